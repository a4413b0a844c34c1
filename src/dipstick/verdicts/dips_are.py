"""What the dips are, in one word: the rules behind ``answer.dips_are``, first match wins.

1. No telemetry: ``unknown``. No dips: ``none``, or ``unknown`` if none of half a step could have been seen.
2. Bus copies take half of the time without work (claim ``transfers_force_waiting`` says yes): ``transfer``.
3. Under 80 % of the lost GPU-seconds lie in named phases: ``unknown``.
4. Half of them or more lie in checkpoints, or in waits for a peer that is in one: ``checkpoint``.
5. Half or more lie in rewards and the waits for them:
   a. one rank is last more often than chance, by the exact test, and 2 % of all GPU-seconds or more are
      spent waiting for it: ``straggler_rank``;
   b. the dip's width follows the longest job (check 4 says yes): ``straggler_job``;
   c. it follows the work queued per slot or its packing (and that varies: p90 / p10 of 2 or more), or no such
      driver wins but the workers are busy for 75 % of their slots: ``queued_work``;
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
from dipstick.verdicts.bill import gpu_seconds
from dipstick.verdicts.claim_mechanisms import WORTH_NAMING, transfers_force_waiting
from dipstick.verdicts.dip_cost import lost_by_phase

if TYPE_CHECKING:
    from dipstick.model import DipsAre
    from dipstick.verdicts.evidence import Evidence

NAMED_SHARE = 0.8
MOST = 0.5
SLOTS_BUSY = 0.75
QUEUE = ("total_work", "makespan")
VARIES = 2.0
"""A phase of constant length is the step's own, however well its last milliseconds follow the queue's."""


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
    lost = lost_by_phase(evidence)
    total = sum(lost.values())
    if total <= 0:
        return Kind("unknown" if evidence.too_coarse else "none", None, 0.0)
    named = {phase: s for phase, s in lost.items() if phase is not None and phase not in NOT_A_FINDING}
    groups = _grouped(evidence, named)
    top = max(groups, key=lambda phase: groups[phase], default=None)
    share = groups[top] / total if top else 0.0
    if transfers_force_waiting(evidence)[0].word == "yes":
        return Kind("transfer", top, share)
    if sum(named.values()) < NAMED_SHARE * total or top is None or evidence.too_coarse:
        return Kind("unknown", top, share)
    return Kind(_word(evidence, top, share, named), top, share)


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
    waits = sum(named.get(phase, 0.0) for phase in WAIT_PHASES) >= MOST * sum(named.values())
    if (top == "reward" or waits) and _one_rank_is_late(evidence):
        return "straggler_rank"
    if top == "reward":
        return _reward_word(evidence, named)
    return "imbalance" if waits else "step_cycle"


def _one_rank_is_late(evidence: Evidence) -> bool:
    """One rank comes last more often than chance, and the others wait for it (always last by 1 ms costs nothing)."""
    found, stragglers = check_stragglers.straggler_rank(evidence), evidence.findings.stragglers
    if found is None or found[1].word != "yes" or stragglers is None:
        return False
    blame_s = stragglers.by_rank[found[0].rank].blame_s
    return blame_s >= WORTH_NAMING * sum(gpu_seconds(evidence.findings).values())


def _reward_word(evidence: Evidence, named: dict[str, float]) -> DipsAre:
    test, jobs = check_stragglers.dips_follow(evidence), evidence.findings.stragglers
    if test is not None and test.verdict == "yes":
        return "straggler_job"
    busy = bool(jobs and jobs.slots and jobs.slots_busy and jobs.slots_busy >= SLOTS_BUSY * jobs.slots)
    winner = None if test is None else test.row(test.driver)
    follows = winner is not None and winner.name in QUEUE and (busy or winner.spread >= VARIES)
    if follows or (busy and (test is None or test.driver == "unresolved")):
        return "queued_work"
    waits = sum(named.get(phase, 0.0) for phase in WAIT_PHASES)
    return "imbalance" if waits >= MOST * sum(named.values()) else "step_cycle"
