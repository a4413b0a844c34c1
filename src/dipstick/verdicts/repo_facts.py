"""Mechanism facts from the code, as verdicts with receipts; each says "unconfirmed" rather than guess.

A "no" needs every place to be understood: a payload of unknown type, a worker function that could not
be followed, or a scan that a limit cut short leaves the question open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.repo_model import UNKNOWN
from dipstick.verdicts.repo_pools import THREADS, UNSURE

if TYPE_CHECKING:
    from dipstick.verdicts.repo_model import Finding, RepoFindings

RECORD: Final = "record a run with dipstick run: it notes the types and bytes that cross, and who waits where"


@dataclass(frozen=True, slots=True)
class Fact:
    """One question to the code.

    Attributes:
        verdict: The answer.
        receipts: The places it rests on.
        label: Always ``static``: read from the code, not measured in the run.
    """

    verdict: Verdict
    receipts: tuple[Finding, ...]
    label: str = "static"


def receipt(finding: Finding) -> Receipt:
    """A finding as a receipt: what the line does, and the line."""
    parts = [finding.kind.replace("_", " "), finding.target, finding.target_place]
    parts += [", ".join(finding.payload), finding.detail, finding.sure]
    said = " · ".join(part for part in parts if part)
    return Receipt("code", f"{said}: {finding.code}", file=finding.file, line=finding.line, origin="static")


def _open(because: str, receipts: tuple[Finding, ...] = ()) -> Fact:
    """Can't tell."""
    return Fact(unconfirmed(Reason.MISSING_SIGNAL, because, RECORD), receipts)


def _fact(answer: bool, because: str, receipts: tuple[Finding, ...]) -> Fact:  # noqa: FBT001  # yes or no
    """A plain answer."""
    return Fact(Verdict("yes" if answer else "no", because), receipts)


def _places(findings: tuple[Finding, ...], most: int = 3) -> str:
    """``a.py:3, b.py:7 and 2 more``."""
    listed = ", ".join(dict.fromkeys(finding.place for finding in findings[:most]))
    return listed if len(findings) <= most else f"{listed} and {len(findings) - most} more"


def reward_receives_text(found: RepoFindings) -> Fact:
    """Do the reward functions get text (and not tensors)?

    Yes by TRL's contract for functions without annotations, by annotation otherwise; no if one is
    annotated with tensors.
    """
    rewards = found.of("reward_function")
    if not rewards:
        return _open("no reward function was found in the checkout")
    tensors = tuple(finding for finding in rewards if finding.tensors)
    if tensors:
        return _fact(False, f"completions are {', '.join(tensors[0].payload)} at {_places(tensors)}", tensors)
    unknown = tuple(finding for finding in rewards if finding.tensors is None)
    if unknown:
        return _open(f"the reward functions of {_places(unknown)} could not be followed", unknown)
    names = ", ".join(dict.fromkeys(finding.target for finding in rewards))
    return _fact(
        True, f"{names} get {', '.join(dict.fromkeys(p for f in rewards for p in f.payload))}", rewards
    )


def submissions(found: RepoFindings) -> tuple[Finding, ...]:
    """Work handed to worker processes: that which a reward function leads to, else all of it."""
    work = tuple(finding for finding in found.of("pool_submit") if finding.detail != THREADS)
    return tuple(finding for finding in work if finding.from_reward) or work


def pool_payload_has_tensors(found: RepoFindings) -> Fact:
    """Does what is handed to the worker processes hold torch tensors (on a GPU or not)?"""
    work = submissions(found)
    if not work:
        return _open("nothing in the checkout submits work to a process pool that could be recognised")
    tensors = tuple(finding for finding in work if finding.tensors and finding.detail != UNSURE)
    if tensors:
        return _fact(True, f"{', '.join(tensors[0].payload)} handed over at {_places(tensors)}", tensors)
    unknown = tuple(finding for finding in work if finding.tensors is not False)
    if unknown:
        return _open(f"what crosses to a process at {_places(unknown)} can't be told from the code", unknown)
    if not found.complete:
        return _open("no tensors in what was read, but the scan did not read everything", work)
    types = (
        ", ".join(dict.fromkeys(p for finding in work for p in finding.payload)) or "nothing but the function"
    )
    return _fact(False, f"{types} handed over at {_places(work)}", work)


def pool_payload_is(found: RepoFindings, type_name: str) -> Fact:
    """Is a type (``ase.Atoms``) among what is handed to the worker processes, as such or inside a container?"""
    work = submissions(found)
    with_it = tuple(f for f in work if any(type_name in payload for payload in f.payload))
    if with_it:
        return _fact(True, f"{type_name} handed over at {_places(with_it)}", with_it)
    if not work or not found.complete or any(UNKNOWN in payload for f in work for payload in f.payload):
        return _open(f"the code does not tell whether {type_name} is handed over", work)
    return _fact(False, f"{type_name} is not among the payload at {_places(work)}", work)


def workers_synchronise(found: RepoFindings) -> Fact:
    """Do worker processes wait for each other?

    Yes for a barrier, condition or collective in their code; partially for locks and events; no if every
    submitted function was followed and none of its code in the checkout has either. Queues hand work
    over and make no worker wait for another.
    """
    sync = found.of("worker_sync")
    barriers = tuple(finding for finding in sync if finding.detail in {"barrier", "collective"})
    if barriers:
        return _fact(
            True, f"workers wait for each other at {_places(barriers)} ({barriers[0].target})", barriers
        )
    weak = tuple(finding for finding in sync if finding.detail in {"lock", "event"})
    if weak:
        because = f"workers use {weak[0].target} at {_places(weak)}, but nothing that makes all of them meet"
        return Fact(Verdict("partially", because), weak)
    work = submissions(found)
    lost = tuple(finding for finding in work if not finding.target_file)
    if not work or lost or not found.complete:
        where = f": {_places(lost)}" if lost else ""
        return _open(f"the workers' code could not be followed{where}", work)
    names = ", ".join(dict.fromkeys(finding.target for finding in work))
    return _fact(False, f"no synchronization primitive in the code that workers run ({names})", work)


def ranks_gather(found: RepoFindings) -> Fact:
    """Do the ranks wait for each other once a step? By a call in the checkout, or inside TRL's trainer."""
    gathers = found.of("gather")
    trainers = found.of("trainer")
    if trainers:
        because = f"TRL's trainer gathers the rewards of all ranks at the end of every scoring ({_places(trainers)})"
        return _fact(True, because, trainers + gathers)
    if gathers:
        return _fact(True, f"{gathers[0].target} at {_places(gathers)}", gathers)
    return _open("no trainer and no collective was found in the checkout")


def generation_hands_over_tensors(found: RepoFindings) -> Fact:
    """Does generation hand tensors on (rather than text or token ids)?

    With TRL the trainer generates and hands text to the reward functions; else the ``.generate`` calls
    of the checkout tell.
    """
    calls = found.of("generate")
    trainers, rewards = found.of("trainer"), found.of("reward_function")
    tensors = tuple(finding for finding in calls if finding.tensors)
    if trainers and rewards:
        text = reward_receives_text(found)
        word = {"yes": "no", "no": "yes"}.get(text.verdict.word)
        if word is None:
            return text
        return _fact(word == "yes", text.verdict.because, text.receipts)
    if tensors:
        return _fact(True, f"token tensors are passed on at {_places(tensors)}", tensors)
    if not calls or any(finding.tensors is None for finding in calls):
        return _open("what becomes of the generated tokens can't be told from the code", calls)
    return _fact(False, f"{calls[0].detail} is read from the result at {_places(calls)}", calls)


def settings(found: RepoFindings) -> dict[str, tuple[Finding, ...]]:
    """Schedule settings and explicit event calls by name; several places for one name are all listed."""
    table: dict[str, tuple[Finding, ...]] = {}
    for finding in found.of("schedule"):
        table[finding.target] = (*table.get(finding.target, ()), finding)
    return table
