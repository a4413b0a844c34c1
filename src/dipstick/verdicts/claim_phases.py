"""Claims about phases, ranks, jobs and what-ifs: tests on measured seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.whatif_verdict import fix_gives, phase_dominates, rank_is_straggler
from dipstick.errors import UsageError
from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.phases import PHASES
from dipstick.verdicts import check_stragglers
from dipstick.verdicts.algebra import from_decision, unconfirmed
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.analysis.overlap import OverlapFit, PhaseLevel
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

NO_STEPS = "no steps with phases were recorded"
UNSEEN_PCT = 2.0


def known_phase(phase: str) -> str:
    """The phase itself.

    Raises:
        UsageError: There is no such phase; lists them.
    """
    if phase not in PHASES:
        raise UsageError(f"there is no phase {phase!r}", fix=f"phases: {', '.join(PHASES)}")
    return phase


def phase_receipts(evidence: Evidence, phase: str) -> tuple[Receipt, ...]:
    """Seconds of the phase on each rank."""
    breakdown = evidence.findings.breakdown
    return tuple(
        Receipt(
            "number",
            f"rank {row.rank}: {row.seconds:.1f} s in {phase}",
            rank=row.rank,
            value=row.seconds,
            unit="s",
            query=select("SUM(seconds)", "phase_pieces", rank=row.rank, phase=phase),
        )
        for row in (breakdown.rows if breakdown else ())
        if row.phase == phase
    )


@claim_test
def phase_longest(evidence: Evidence, *, phase: str) -> Judged:
    """The phase dominates the critical path (its share's interval above 50 %, or 10 points ahead of all others)."""
    path, whatifs = evidence.path, evidence.whatifs
    if path is None or whatifs is None:
        return unconfirmed(Reason.MISSING_SIGNAL, NO_STEPS), ()
    if phase not in {row.phase for row in path.rows}:
        known_phase(phase)
        return Verdict("no", f"{phase} takes no time on the critical path", effect=0.0), ()
    decision = phase_dominates(path, phase, whatifs.gate)
    share = decision.effect
    because = f"{phase} is {100 * share.value:.0f} % of the critical path [{100 * share.low:.0f}, {100 * share.high:.0f}], {path.steps} steps"
    return from_decision(decision, because), phase_receipts(evidence, phase)


@claim_test
def paid_most_for(evidence: Evidence, *, phase: str) -> Judged:
    """The phase takes the most GPU-seconds over all ranks (a count, no inference)."""
    breakdown = evidence.findings.breakdown
    known_phase(phase)
    if breakdown is None or breakdown.paid_most_for is None:
        return unconfirmed(Reason.MISSING_SIGNAL, NO_STEPS), ()
    seconds = {row.phase: row.seconds for row in breakdown.totals}
    most = breakdown.paid_most_for
    because = f"{phase} takes {seconds.get(phase, 0.0):.0f} GPU-seconds, {most} takes {seconds[most]:.0f}"
    return Verdict("yes" if phase == most else "no", because, effect=seconds.get(phase, 0.0)), phase_receipts(
        evidence, phase
    )


@claim_test
def phase_utilization(
    evidence: Evidence, *, phase: str, at_least: float = 0.0, at_most: float = 100.0
) -> Judged:
    """Mean ``utilization.gpu`` in the phase lies between two levels (overlap regression, step-bootstrap interval)."""
    known_phase(phase)
    fit = evidence.overlap
    if fit is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "utilization beside phases was not recorded"), ()
    levels = _levels(fit, phase)
    known = [level.level_pct for level in levels if level.level_pct is not None]
    if len(known) < len(levels) or not levels:
        code = next((r for level in levels for r in level.reasons), "COARSE")
        return unconfirmed(Reason(code), f"the level of {phase} can't be told"), ()
    low, high, value = (
        float(np.mean([getattr(e, side) for e in known])) for side in ("low", "high", "value")
    )
    because = f"{phase} reads {value:.0f} % [{low:.0f}, {high:.0f}]"
    word = _between(value, (low, high), at_least, at_most)
    reason = Reason.LOW_N if word == "unconfirmed" else None
    return Verdict(word, because, value, (low, high), reason=reason), _utilization_receipts(evidence, phase)


def _levels(fit: OverlapFit, phase: str) -> list[PhaseLevel]:
    """The columns of a phase; of one that was cut into parts, all but the draining last."""
    mine = [level for level in fit.levels if phase in {name.split("[")[0] for name in level.name.split("+")}]
    return mine[:-1] if len(mine) > 1 else mine


def _between(value: float, interval: tuple[float, float], at_least: float, at_most: float) -> Word:
    """Whether a level and its interval lie between two bounds, give or take what cannot be seen."""
    low, high = interval
    if at_least - UNSEEN_PCT <= low and high <= at_most + UNSEEN_PCT:
        return "yes"
    if high < at_least or low > at_most:
        return "no"
    return "partially" if at_least <= value <= at_most else "unconfirmed"


def _utilization_receipts(evidence: Evidence, phase: str) -> tuple[Receipt, ...]:
    breakdown = evidence.findings.breakdown
    return tuple(
        Receipt("number", f"rank {row.rank}: mean utilization {row.util_mean_pct:.1f} % over {row.seconds:.1f} s", rank=row.rank,
                value=row.util_mean_pct, unit="%")
        for row in (breakdown.rows if breakdown else ())
        if row.phase == phase and row.util_mean_pct is not None
    )  # fmt: skip


@claim_test
def straggler_rank(evidence: Evidence, *, rank: int) -> Judged:
    """One rank comes last at the reward gather more often than chance (exact binomial, Holm over ranks)."""
    rows, steps = check_stragglers.arrivers(evidence), evidence.steps
    ranks = [t.rank for t in evidence.findings.timelines]
    if not rows or steps is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "fewer than two ranks meet at a reward gather"), ()
    if rank not in ranks:
        raise UsageError(f"there is no rank {rank}", fix=f"ranks: {', '.join(map(str, ranks))}")
    row, count = rows[ranks.index(rank)], steps.loop.steps
    because = f"rank {rank} is last in {row.share.value * count:.0f} of {count} steps, p = {row.p_holm:.3g}"
    receipt = Receipt("count", because, rank=rank, value=row.share.value * count, unit="steps",
                      query=select("COUNT(*)", "waits", barrier="reward", rank=rank, late_rank=rank))  # fmt: skip
    return from_decision(rank_is_straggler(row, count), because), (receipt,)


@claim_test
def dips_follow_longest_job(evidence: Evidence) -> Judged:
    """The width of the reward dip follows the longest reward job of the step (methods 4.4)."""
    found = check_stragglers.check(evidence)
    return found.verdict, found.receipts


@claim_test
def dips_follow_queued_work(evidence: Evidence) -> Judged:
    """The width of the reward dip follows the work queued for the workers, not one long job."""
    test = check_stragglers.dips_follow(evidence)
    if test is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "no reward jobs with worker times beside GPU telemetry"), ()
    row = test.row("total_work")
    if row is None or test.driver == "unresolved":
        return unconfirmed(Reason.LOW_N, f"no driver wins over {test.steps} steps"), ()
    because = f"{test.driver} wins; total work: rho {row.rho.value:.2f}, {row.slope.value:.2f} s of dip per second, contest {row.share:.2f}"
    word: Word = "yes" if test.driver in {"total_work", "makespan"} else "no"
    receipts = check_stragglers.check(evidence).receipts
    return Verdict(word, because, row.rho.value, (row.rho.low, row.rho.high), row.p_adjusted), receipts


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
    edits = {
        "faster": lambda w: w.faster(known_phase(phase), times),
        "more_slots": lambda w: w.more_slots(int(times)),
        "cap_jobs": lambda w: w.cap_jobs(times),
        "balance": lambda w: w.balance(),
        "overlap_reward": lambda w: w.overlap_reward(),
    }
    if change not in edits:
        raise UsageError(f"there is no change {change!r}", fix=f"changes: {', '.join(edits)}")
    if whatifs is None:
        return unconfirmed(Reason.MISSING_SIGNAL, NO_STEPS), ()
    result = edits[change](whatifs)
    s = result.speedup
    because = f"{result.change}: {s.value:.2f} times faster [{s.low:.2f}, {s.high:.2f}], {result.held_fixed}"
    return from_decision(fix_gives(result, at_least), because), ()
