"""Loops that run apart: where ranks do not meet, nobody waits, nobody is last, and no dip is "the job's"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.judgement import Reason
from dipstick.verdicts import check_alignment, check_phases, check_stragglers
from dipstick.verdicts.claim_alignment import dips_follow, locked_to_steps
from dipstick.verdicts.claim_phases import straggler_rank
from dipstick.verdicts.dip_series import reward_dips
from dipstick.verdicts.evidence import NO_BARRIER, Evidence
from records import Row, boxcar, cycle, job, memory, process, span, utilization

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.verdicts.claims import Judged

STEPS = 12
PROCESSES = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)]


def together(step_s: float = 10.0) -> list[Row]:
    """Two ranks that meet: rank 1's rewards take 1 s longer, rank 0 waits for it."""
    rows = []
    for k in range(STEPS):
        rows += cycle(0, k, step_s * k, (5, 2, 1, 2)) + cycle(1, k, step_s * k, (5, 3, 0, 2))
    return rows


def plain(rank: int, step_s: float) -> list[Row]:
    """A loop of its own, in spans named like phases."""
    rows = []
    for k in range(STEPS):
        start = step_s * k
        rows += [
            span("step", start, start + step_s, rank=rank, step=k),
            span("generate", start, start + 5, rank=rank, step=k),
            span("reward", start + 5, start + step_s - 2, rank=rank, step=k),
            span("backward", start + step_s - 2, start + step_s, rank=rank, step=k),
        ]
    return rows


def drifting() -> list[Row]:
    """Spans of TRL's names in loops that do not meet: rank 1 takes 11 s for what takes rank 0 ten."""
    rows = []
    for k in range(STEPS):
        rows += cycle(0, k, 10.0 * k, (5, 3, 0, 2)) + cycle(1, k, 11.0 * k, (5.5, 3.5, 0, 2))
    return rows


def evidence(spans: list[Row]) -> Evidence:
    """With utilization of both GPUs (busy but in rewards), and a job of each rank and step."""
    rewards = [row for row in spans if row["name"] in {"reward", "GRPOTrainer._calculate_rewards"}]
    end = max(row["t1_ns"] for row in spans) / 1e9
    gpu = []
    for rank in (0, 1):
        mine = sorted((row["t0_ns"] / 1e9, row["t1_ns"] / 1e9) for row in rewards if row["rank"] == rank)
        edges = [0.0, *(t for pair in mine for t in pair), end]
        gpu += utilization(boxcar(list(zip(edges[0::2], edges[1::2], strict=True)), end), gpu=rank)
    jobs = [
        job(f"{row['rank']}-{row['step']}", row["t0_ns"] / 1e9, row["t1_ns"] / 1e9, rank=row["rank"],
            pid=1000 + row["rank"], step=row["step"])
        for row in rewards
    ]  # fmt: skip
    recording = memory(spans=spans, gpu=gpu, jobs=jobs, processes=PROCESSES)
    return Evidence(recording, analyse(recording))


APART = {"plain spans": plain(0, 10.0) + plain(1, 11.0), "trl's names": drifting()}


@pytest.fixture(params=list(APART))
def apart(request: pytest.FixtureRequest) -> Evidence:
    """Two kinds of loops that do not meet."""
    return evidence(APART[request.param])


def test_ranks_that_meet_are_synchronous() -> None:
    """Rank 0 does nothing until rank 1 is there."""
    assert evidence(together()).synchronous


def test_a_single_rank_has_nobody_to_wait_for() -> None:
    """Its loop is judged as one."""
    assert evidence(plain(0, 10.0)).synchronous


def test_ranks_that_pass_the_same_points_alone_are_not(apart: Evidence) -> None:
    """Rank 0 begins its next phase before rank 1 arrives."""
    assert not apart.synchronous


def test_one_early_start_does_not_part_the_ranks() -> None:
    """A helper's span in a single wait, of twelve."""
    stray = span("logprobs", 7.2, 7.5, rank=0, step=0)

    assert evidence([*together(), stray]).synchronous


def test_no_rank_comes_last(apart: Evidence) -> None:
    """Rank 1 is later at every step, and nobody waits for it; there is nothing to balance either."""
    facts = check_stragglers.check(apart).facts

    assert facts["last_arrivers"] == []
    assert check_stragglers.straggler_rank(apart) is None
    assert "rank" not in [found["peers"] for found in facts["attribution"]]
    changes = [edit["change"] for edit in check_phases.check(apart).facts["what_if"]]
    assert "ranks balanced" not in changes


def test_ranks_that_meet_have_a_last_one() -> None:
    """The control: rank 1, in all twelve."""
    found = check_stragglers.straggler_rank(evidence(together()))

    assert found is not None
    assert (found[0].rank, found[1].word) == (1, "yes")


def test_there_are_no_dips_of_the_job(apart: Evidence) -> None:
    """The reward gather that would end them does not exist."""
    assert reward_dips(apart) is None
    assert reward_dips(evidence(together())) is not None


@pytest.mark.parametrize("module", [check_alignment, check_stragglers])
def test_the_checks_say_why_they_can_t_tell(module: object, apart: Evidence) -> None:
    """Not "no": whether each loop's dips follow its own steps is another question."""
    verdict = module.check(apart).verdict  # type: ignore[attr-defined] # a module

    assert (verdict.word, verdict.reason, verdict.because) == (
        "unconfirmed",
        Reason.MISSING_SIGNAL,
        NO_BARRIER,
    )


@pytest.mark.parametrize(
    "claim",
    [
        locked_to_steps,
        lambda found: dips_follow(found, phase="reward"),
        lambda found: straggler_rank(found, rank=1),
    ],
)
def test_claims_about_the_job_s_steps_stay_open(claim: Callable[[Evidence], Judged], apart: Evidence) -> None:
    """Each is unconfirmed."""
    assert claim(apart)[0].word == "unconfirmed"
