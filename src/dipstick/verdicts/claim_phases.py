"""Claims about phases, ranks, jobs and what-ifs: tests on measured seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import Estimate
from dipstick.analysis.straggler_tests import MAKESPAN, TOTAL
from dipstick.analysis.whatif_verdict import fix_gives, phase_dominates
from dipstick.errors import UsageError
from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.phases import PHASES
from dipstick.verdicts import check_stragglers
from dipstick.verdicts.algebra import from_decision, measured, unconfirmed
from dipstick.verdicts.bill import gpu_seconds, phase_receipts, step_receipts, unit, utilization_receipts
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.analysis.overlap import OverlapFit, PhaseLevel
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

UNSEEN_PCT = 2.0
FEWEST_FINE, FEWEST_COARSE, FINE_S = 15, 30, 5.0
"""Steps that a driver of the dips needs at a telemetry window up to 5 s, and above (methods 4.4)."""


def known_phase(phase: str) -> str:
    """The phase itself.

    Raises:
        UsageError: There is no such phase; lists them.
    """
    if phase not in PHASES:
        raise UsageError(f"there is no phase {phase!r}", fix=f"phases: {', '.join(PHASES)}")
    return phase


@claim_test
def phase_longest(evidence: Evidence, *, phase: str) -> Judged:
    """The phase dominates the critical path (its share's interval above 50 %, or 10 points ahead of all others)."""
    path, whatifs = evidence.path, evidence.whatifs
    if path is None or whatifs is None:
        return unconfirmed(*evidence.no_steps), ()
    if phase not in {row.phase for row in path.rows}:
        known_phase(phase)
        because = f"{phase} takes no time on the critical path"
        return Verdict("no", because, effect=0.0), phase_receipts(evidence, phase)
    decision = phase_dominates(path, phase, whatifs.gate)
    share = decision.effect
    because = f"{phase} is {100 * share.value:z.0f} % of the critical path [{100 * share.low:z.0f}, {100 * share.high:z.0f}], {path.steps} steps"
    return from_decision(decision, because), phase_receipts(evidence, phase)


@claim_test
def paid_most_for(evidence: Evidence, *, phase: str) -> Judged:
    """The phase takes the most GPU-seconds over all ranks (a count, no inference)."""
    breakdown = evidence.findings.breakdown
    known_phase(phase)
    if breakdown is None or breakdown.paid_most_for is None:
        return unconfirmed(*evidence.no_steps), ()
    seconds, most = gpu_seconds(evidence.findings), breakdown.paid_most_for
    because = f"{phase} takes {seconds.get(phase, 0.0):z.0f} of {sum(seconds.values()):z.0f} {unit(evidence.findings)}"
    because += "" if phase == most else f", {most} takes {seconds[most]:z.0f}"
    receipts = [phase_receipts(evidence, name) for name in dict.fromkeys((phase, most))]
    verdict = Verdict("yes" if phase == most else "no", because, effect=seconds.get(phase, 0.0))
    return verdict, tuple(receipt for part in receipts for receipt in part)


@claim_test
def phase_utilization(
    evidence: Evidence, *, phase: str, at_least: float = 0.0, at_most: float = 100.0
) -> Judged:
    """Mean ``utilization.gpu`` in the phase lies between two levels (overlap regression, step-bootstrap interval)."""
    known_phase(phase)
    fit = evidence.overlap
    if fit is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "utilization beside phases was not recorded"), ()
    levels, receipts = _levels(fit, phase), utilization_receipts(evidence, phase)
    known = [level.level_pct for level in levels if level.level_pct is not None]
    if len(known) < len(levels) or not levels:
        code = next((r for level in levels for r in level.reasons), "COARSE")
        return unconfirmed(Reason(code), f"the level of {phase} can't be told"), receipts
    mean = Estimate(*(float(np.mean([getattr(e, side) for e in known])) for side in ("value", "low", "high")))
    because = f"{phase} reads {mean.value:z.0f} % [{mean.low:z.0f}, {mean.high:z.0f}]"
    word = _between(mean.value, (mean.low, mean.high), at_least, at_most)
    return measured(word, because, mean, len(evidence.kept)), receipts


def _levels(fit: OverlapFit, phase: str) -> list[PhaseLevel]:
    """The columns of a phase alone; of one that was cut into parts, all but the draining last.

    A column that coarse samples merged with another phase's is the level of both, and no answer for one.
    """
    mine = [
        level for level in fit.levels if {name.split("[")[0] for name in level.name.split("+")} == {phase}
    ]
    return mine[:-1] if len(mine) > 1 else mine


def _between(value: float, interval: tuple[float, float], at_least: float, at_most: float) -> Word:
    """Whether a level and its interval lie between two bounds, give or take what cannot be seen."""
    low, high = interval
    if at_least - UNSEEN_PCT <= low and high <= at_most + UNSEEN_PCT:
        return "yes"
    if high < at_least or low > at_most:
        return "no"
    return "partially" if at_least <= value <= at_most else "unconfirmed"


@claim_test
def straggler_rank(evidence: Evidence, *, rank: int) -> Judged:
    """One rank comes last at the reward gather more often than chance (exact binomial, Holm over ranks)."""
    rows, met = check_stragglers.arrivers(evidence), check_stragglers.gather(evidence)
    if not rows or met is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "fewer than two ranks meet at a reward gather"), ()
    if rank not in met.ranks:
        raise UsageError(f"there is no rank {rank}", fix=f"ranks: {', '.join(map(str, met.ranks))}")
    column = met.ranks.index(rank)
    last = int((met.last == column).sum())
    receipt = Receipt("count", f"rank {rank} arrives last {last} times", rank=rank, value=last, unit="steps",
                      query=select("COUNT(*)", "waits", barrier="reward", rank=rank, late_rank=rank))  # fmt: skip
    return check_stragglers.rank_verdict(rows[column], met), (receipt,)


@claim_test
def dips_follow_longest_job(evidence: Evidence) -> Judged:
    """The width of the reward dip follows the longest reward job of the step (methods 4.4)."""
    return check_stragglers.judge(evidence), check_stragglers.receipts(evidence)


@claim_test
def dips_follow_queued_work(evidence: Evidence) -> Judged:
    """The width of the reward dip follows the work queued for the workers, not one long job."""
    test = check_stragglers.dips_follow(evidence)
    if test is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "no reward jobs with worker times beside GPU telemetry"), ()
    row, receipts = test.row(TOTAL), check_stragglers.receipts(evidence)
    few = test.steps < (FEWEST_FINE if evidence.window_s <= FINE_S else FEWEST_COARSE)
    if row is None or not np.isfinite(row.rho.value):
        code = Reason(test.codes[0]) if test.codes else Reason.LOW_N
        because = f"no correlation of dips and jobs can be worked out from {test.steps} steps"
        return unconfirmed(code, because), receipts
    won = {"none": "no driver is followed", "unresolved": "no driver wins"}
    because = f"{won.get(test.driver, f'{test.driver} wins')}; total work: rho {row.rho.value:z.2f}, {row.slope.value:z.2f} s of dip per second, contest {row.share:z.2f}, {test.steps} steps"
    open_ = few or test.driver == "unresolved"
    word: Word = "unconfirmed" if open_ else "yes" if test.driver in {TOTAL, MAKESPAN} else "no"
    verdict = Verdict(
        word, because, row.rho.value, (row.rho.low, row.rho.high), row.p_adjusted,
        reason=(Reason.LOW_N if few else Reason.COLLINEAR) if open_ else None,
        min_detectable=None if word == "yes" else test.detectable_rho,
        steps_needed=test.steps_needed if open_ else None,
    )  # fmt: skip
    return verdict, receipts


@claim_test
def speedup(
    evidence: Evidence,
    *,
    change: str = "faster",
    phase: str = "reward",
    times: float = 2.0,
    at_least: float = 1.1,
) -> Judged:
    """A change makes the step at least so much faster: change = faster, more_slots, cap_jobs, balance or overlap_reward."""
    whatifs = evidence.whatifs
    if change == "more_slots" and not times.is_integer():
        raise UsageError(f"{times:g} is no number of worker slots", fix="times=1, 2 ...")
    if whatifs is None:
        return unconfirmed(*evidence.no_steps), ()
    if change == "faster" and phase not in whatifs.loop.columns:
        because = f"{known_phase(phase)} takes no time between the barriers of a step"
        return Verdict("no" if at_least > 1 else "yes", because, effect=1.0), phase_receipts(evidence, phase)
    edits = {
        "faster": lambda w: w.faster(phase, times),
        "more_slots": lambda w: w.more_slots(int(times)),
        "cap_jobs": lambda w: w.cap_jobs(times),
        "balance": lambda w: w.balance(),
        "overlap_reward": lambda w: w.overlap_reward(),
    }
    result, receipts = edits[change](whatifs), step_receipts(evidence)
    s = result.speedup
    if not np.isfinite(s.value):
        because = f"{result.change}: reward jobs between a generation and a gather were not recorded"
        return unconfirmed(Reason(result.reason), because), receipts
    because = (
        f"{result.change}: {s.value:z.2f} times faster [{s.low:z.2f}, {s.high:z.2f}], {result.held_fixed}"
    )
    return from_decision(fix_gives(result, at_least, _gap(evidence)), because), receipts


def _gap(evidence: Evidence) -> float:
    """Share of the critical path that no phase explains."""
    return evidence.path.gap_share if evidence.path else 0.0
