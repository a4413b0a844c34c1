"""What the dips are, in one word: the rules behind ``answer.dips_are``, first match wins.

1. No telemetry: ``unknown``. No dips: ``none``.
2. Bus copies take half of the time without work (claim ``transfers_force_waiting`` says yes): ``transfer``.
3. Under 80 % of the lost GPU-seconds lie in named phases: ``unknown``.
4. Half of them or more lie in checkpoints, or in waits for a peer that is in one: ``checkpoint``.
5. Half or more lie in rewards and the waits for them:
   a. one rank is last more often than chance, by the exact test: ``straggler_rank``;
   b. the dip's width follows the longest job (check 4 says yes): ``straggler_job``;
   c. it follows the work queued per slot or its packing, or no driver wins but the workers are busy for 75 %
      of their slots: ``queued_work``;
   d. the waits alone hold half: ``imbalance``; else ``step_cycle``.
6. Half or more lie in waits: ``straggler_rank`` or ``imbalance``, as in 5.
7. One phase of the step holds half: ``step_cycle``. Else ``mixed``.

Dips are those of work where hollow time is known (a waiting rank reads 100 %), else of utilization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dipstick.analysis.breakdown import NOT_A_FINDING
from dipstick.phases import WAIT_PHASES
from dipstick.verdicts import check_stragglers
from dipstick.verdicts.claim_mechanisms import transfers_force_waiting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dipstick.model import Dip, DipsAre
    from dipstick.verdicts.evidence import Evidence

NAMED_SHARE = 0.8
MOST = 0.5
SLOTS_BUSY = 0.75
QUEUE = ("total_work", "makespan")


@dataclass(frozen=True, slots=True)
class Kind:
    """The word, and the phase group that holds most of the lost GPU-seconds with its share."""

    word: DipsAre
    phase: str | None
    share: float


def dips_are(evidence: Evidence) -> Kind:
    """Apply the rules."""
    findings = evidence.findings
    if not findings.gpus:
        return Kind("unknown", None, 0.0)
    lost = lost_by_phase(_chosen(evidence))
    total = sum(lost.values())
    if total <= 0:
        return Kind("none", None, 0.0)
    named = {phase: s for phase, s in lost.items() if phase is not None and phase not in NOT_A_FINDING}
    groups = _grouped(evidence, named)
    top = max(groups, key=lambda phase: groups[phase], default=None)
    share = groups[top] / total if top else 0.0
    if transfers_force_waiting(evidence)[0].word == "yes":
        return Kind("transfer", top, share)
    if sum(named.values()) < NAMED_SHARE * total or top is None:
        return Kind("unknown", top, share)
    return Kind(_word(evidence, top, share, named), top, share)


def _chosen(evidence: Evidence) -> list[Dip]:
    known = any(gpu.states.method != "utilization" for gpu in evidence.findings.gpus)
    work = [d for d in evidence.findings.dips if d.series == "work"]
    seen = [d for d in evidence.findings.dips if d.series == "utilization"]
    return (work or seen) if known else (seen or work)


def lost_by_phase(dips: Iterable[Dip]) -> dict[str | None, float]:
    """GPU-seconds below the baseline, by the phase that fills each dip."""
    lost: dict[str | None, float] = {}
    for dip in dips:
        lost[dip.phase] = lost.get(dip.phase, 0.0) + dip.deficit_gpu_s
    return lost


def _grouped(evidence: Evidence, named: dict[str, float]) -> dict[str, float]:
    """Waits go to what the late peer was doing: the reward gather to reward, the others by cause."""
    breakdown = evidence.findings.breakdown
    groups = {phase: s for phase, s in named.items() if phase not in WAIT_PHASES}
    for phase in WAIT_PHASES:
        rows = [w for w in breakdown.waits if w.phase == phase] if breakdown else []
        seconds = sum(w.seconds for w in rows)
        for row in rows:
            part = named.get(phase, 0.0) * row.seconds / seconds if seconds else 0.0
            groups[row.because] = groups.get(row.because, 0.0) + part
    return groups


def _word(evidence: Evidence, top: str, share: float, named: dict[str, float]) -> DipsAre:
    if share < MOST:
        return "mixed"
    if top == "checkpoint":
        return "checkpoint"
    if _one_rank_is_late(evidence):
        return "straggler_rank"
    if top == "reward":
        return _reward_word(evidence, named)
    waits = sum(named.get(phase, 0.0) for phase in WAIT_PHASES)
    return "imbalance" if waits >= MOST * sum(named.values()) else "step_cycle"


def _one_rank_is_late(evidence: Evidence) -> bool:
    found = check_stragglers.straggler_rank(evidence)
    return found is not None and found[1].word == "yes"


def _reward_word(evidence: Evidence, named: dict[str, float]) -> DipsAre:
    test, jobs = check_stragglers.dips_follow(evidence), evidence.findings.stragglers
    if test is not None and test.verdict == "yes":
        return "straggler_job"
    busy = bool(jobs and jobs.slots and jobs.slots_busy and jobs.slots_busy >= SLOTS_BUSY * jobs.slots)
    if test is not None and (test.driver in QUEUE or (test.driver == "unresolved" and busy)):
        return "queued_work"
    if test is None and busy:
        return "queued_work"
    waits = sum(named.get(phase, 0.0) for phase in WAIT_PHASES)
    return "imbalance" if waits >= MOST * sum(named.values()) else "step_cycle"
