"""Mechanism facts: from findings to verdicts, and when the code does not tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dipstick.judgement import Reason
from dipstick.verdicts import repo_facts as facts
from dipstick.verdicts.repo_model import Finding, RepoFindings

REWARD = Finding(
    "reward_function", "train.py", 5, "code", "reward.f", "reward.py", 1, ("list[text]",), tensors=False
)
WORK = Finding(
    "pool_submit", "reward.py", 9, "code", "worker.score", "worker.py", 3, ("ase.Atoms",),
    tensors=False, detail="processes: pickled",
)  # fmt: skip
TRAINER = Finding("trainer", "train.py", 4, "code", "trl.GRPOTrainer")
GENERATE = Finding("generate", "loop.py", 7, "code", "vllm.LLM.generate", tensors=False, detail="text")
GATHER = Finding("gather", "loop.py", 8, "code", "torch.distributed.all_gather")
SYNC = Finding("worker_sync", "worker.py", 6, "code", "gate.wait", detail="barrier")


def of(*findings: Finding, complete: bool = True) -> RepoFindings:
    """A scan with these findings."""
    return RepoFindings("repo", findings, 3, (), complete)


def answer(fact: facts.Fact) -> tuple[str, str]:
    """Word and sentence."""
    return fact.verdict.word, fact.verdict.because


def test_reward_receives_text() -> None:
    """By contract or annotation; no for tensors; open if one could not be followed or none was found."""
    assert answer(facts.reward_receives_text(of(REWARD))) == ("yes", "reward.f get list[text]")
    tensor = replace(REWARD, payload=("torch.Tensor",), tensors=True)
    assert answer(facts.reward_receives_text(of(REWARD, tensor))) == (
        "no",
        "completions are torch.Tensor at train.py:5",
    )
    assert facts.reward_receives_text(of(replace(REWARD, tensors=None))).verdict.word == "unconfirmed"
    assert facts.reward_receives_text(of()).verdict.word == "unconfirmed"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "no"),
        ({"tensors": True, "payload": ("torch.Tensor (cuda)",)}, "yes"),
        ({"tensors": None, "payload": ("?",)}, "unconfirmed"),
        ({"detail": "threads: same memory, nothing is pickled", "tensors": True}, "unconfirmed"),
        (
            {"detail": "pool of unknown kind: pickled if its workers are processes", "tensors": True},
            "unconfirmed",
        ),
    ],
)
def test_pool_payload_has_tensors(changes: dict[str, Any], word: str) -> None:
    """One submission: as it is; with tensors; unknown; to threads, which pickle nothing; to who knows what."""
    assert facts.pool_payload_has_tensors(of(replace(WORK, **changes))).verdict.word == word


def test_one_unknown_payload_is_enough_to_leave_a_no_open_but_not_a_yes() -> None:
    """A tensor that was seen stays seen."""
    unknown, tensors = replace(WORK, tensors=None, line=10), replace(WORK, tensors=True, line=11)

    assert facts.pool_payload_has_tensors(of(WORK, unknown)).verdict.word == "unconfirmed"
    assert facts.pool_payload_has_tensors(of(WORK, unknown, tensors)).verdict.word == "yes"


def test_a_scan_cut_short_proves_no_absence() -> None:
    """No tensors in half of the code is not no tensors."""
    for fact in (facts.pool_payload_has_tensors, facts.workers_synchronise):
        assert fact(of(WORK, complete=False)).verdict.word == "unconfirmed"


def test_pools_that_no_reward_leads_to_do_not_count_beside_one_that_does() -> None:
    """A preprocessing script may ship what it likes."""
    mine = replace(WORK, from_reward=True)
    other = replace(WORK, file="prepare.py", tensors=True)

    assert facts.submissions(of(mine, other)) == (mine,)
    assert facts.pool_payload_has_tensors(of(mine, other)).verdict.word == "no"
    assert facts.submissions(of(WORK, other)) == (WORK, other)


def test_pool_payload_is() -> None:
    """A type by its name, inside containers too; absent only if all is known."""
    inside = replace(WORK, payload=("list[ase.Atoms]",))
    unknown = replace(WORK, payload=("?",))

    assert facts.pool_payload_is(of(inside), "ase.Atoms").verdict.word == "yes"
    assert facts.pool_payload_is(of(WORK), "torch.Tensor").verdict.word == "no"
    assert facts.pool_payload_is(of(unknown), "torch.Tensor").verdict.word == "unconfirmed"
    assert facts.pool_payload_is(of(), "ase.Atoms").verdict.word == "unconfirmed"


@pytest.mark.parametrize(
    ("findings", "word"),
    [
        ((WORK, SYNC), "yes"),
        ((WORK, replace(SYNC, detail="collective")), "yes"),
        ((WORK, replace(SYNC, detail="lock")), "partially"),
        ((WORK, replace(SYNC, detail="event")), "partially"),
        ((WORK, replace(SYNC, detail="queue")), "no"),
        ((WORK, replace(SYNC, detail="queue"), SYNC), "yes"),
        ((WORK,), "no"),
        ((WORK, replace(WORK, target_file="")), "unconfirmed"),
        ((), "unconfirmed"),
    ],
)
def test_workers_synchronise(findings: tuple[Finding, ...], word: str) -> None:
    """Barriers and collectives; locks and events; queues; nothing; a function that could not be followed; no pool."""
    assert facts.workers_synchronise(of(*findings)).verdict.word == word


def test_ranks_gather() -> None:
    """TRL's trainer always does; else a collective in the code; else open."""
    assert facts.ranks_gather(of(TRAINER, GATHER)).receipts == (TRAINER, GATHER)
    assert answer(facts.ranks_gather(of(GATHER))) == ("yes", "torch.distributed.all_gather at loop.py:8")
    assert facts.ranks_gather(of()).verdict.word == "unconfirmed"


@pytest.mark.parametrize(
    ("findings", "word"),
    [
        ((TRAINER, REWARD), "no"),
        ((TRAINER, replace(REWARD, tensors=True)), "yes"),
        ((TRAINER, replace(REWARD, tensors=None)), "unconfirmed"),
        ((GENERATE,), "no"),
        ((replace(GENERATE, tensors=True, detail="tensors"),), "yes"),
        ((replace(GENERATE, tensors=None, detail="unknown"),), "unconfirmed"),
        ((), "unconfirmed"),
    ],
)
def test_generation_hands_over_tensors(findings: tuple[Finding, ...], word: str) -> None:
    """With TRL the reward functions tell; in a loop of one's own the ``.generate`` calls do."""
    assert facts.generation_hands_over_tensors(of(*findings)).verdict.word == word


def test_an_open_fact_says_how_to_settle_it() -> None:
    """MISSING_SIGNAL, and the command that records it."""
    verdict = facts.reward_receives_text(of()).verdict

    assert verdict.reason is Reason.MISSING_SIGNAL
    assert "dipstick run" in verdict.cheapest_experiment


def test_settings_list_every_place() -> None:
    """A configuration file and a call may disagree: both are shown."""
    one = Finding("schedule", "a.yaml", 1, "", "save_steps", detail="5")
    two = Finding("schedule", "train.py", 9, "", "save_steps", detail="20")

    assert facts.settings(of(one, two)) == {"save_steps": (one, two)}


def test_many_places_are_counted() -> None:
    """Three are named, the rest is a number."""
    work = tuple(replace(WORK, line=n) for n in range(1, 6))

    because = facts.pool_payload_has_tensors(of(*work)).verdict.because

    assert because == "ase.Atoms handed over at reward.py:1, reward.py:2, reward.py:3 and 2 more"


def test_a_receipt_has_the_place_and_the_line() -> None:
    """Static, of kind code."""
    receipt = facts.receipt(WORK)

    assert (receipt.kind, receipt.file, receipt.line, receipt.origin) == ("code", "reward.py", 9, "static")
    assert receipt.text == (
        "pool submit · worker.score · worker.py:3 · ase.Atoms · processes: pickled · by name: code"
    )
