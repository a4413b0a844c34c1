"""Check 1: are the dips part of the step, and which boundary do they follow?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dipstick import phases
from dipstick.analysis.alignment import AlignmentVerdict, judge_alignment
from dipstick.analysis.alignment import Evidence as Weighed
from dipstick.analysis.contest import ContestResult, anchor_contest, one_per_step
from dipstick.analysis.lock import LockResult, locked_to_loop
from dipstick.analysis.lock_regression import regression_lock
from dipstick.analysis.shifts import Loop
from dipstick.judgement import REASONS, Check, Reason, Receipt, Verdict
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.evidence import NO_BARRIER
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dipstick.model import Dip, FloatArray
    from dipstick.model import Series as SeriesName
    from dipstick.verdicts.evidence import Evidence

QUESTION = "Are the dips part of the step, and which boundary do they follow?"
ANCHORS = ("generate", "logprobs", "reward", "forward", "weight_sync")
"""Phases whose first start in each step is a candidate boundary, in the loop's order."""
NOT_DIPS = ("unattributed", "startup", "teardown")
MOST_GAP = 0.05


def check(evidence: Evidence) -> Check:
    """Judge the alignment of the job's dips (of work, where hollow time is known) with the loop."""
    judged = weigh(evidence)
    if judged is None:
        return Check("alignment", QUESTION, missing(evidence), facts={"levels": None, "lag_s": None})
    return Check(
        "alignment", QUESTION, as_verdict(judged), tuple(_receipts(evidence)), _facts(evidence, judged)
    )


def missing(evidence: Evidence) -> Verdict:
    """Why the alignment could not be weighed."""
    if not evidence.findings.gpus:
        return unconfirmed(Reason.MISSING_SIGNAL, "no GPU telemetry was recorded")
    if evidence.synchronous:
        return unconfirmed(*evidence.no_steps)
    return unconfirmed(Reason.MISSING_SIGNAL, NO_BARRIER)


def as_verdict(judged: AlignmentVerdict) -> Verdict:
    """The analysis's verdict as one of ours: what stands in the way of a "yes" is its experiment."""
    effect = judged.effect or judged.drop_pct
    in_the_way = Reason(judged.reasons[0]) if judged.reasons else Reason.LOW_N
    open_, yes = judged.verdict == "unconfirmed", judged.verdict == "yes"
    seen = judged.detectable_drop_pct if judged.effect is None else judged.detectable_effect
    return Verdict(
        word=judged.verdict,
        because=judged.why,
        effect=effect.value if effect else None,
        interval=(effect.low, effect.high) if effect else None,
        p=judged.p_value,
        reason=in_the_way if open_ else None,
        min_detectable=None if yes else seen,
        steps_needed=None if yes else judged.steps_needed,
        experiment=REASONS[in_the_way].fix if judged.verdict == "partially" and judged.reasons else "",
    )


def weigh(evidence: Evidence) -> AlignmentVerdict | None:
    """All evidence of methods 4.1 for the kept steps; None without telemetry, steps or a barrier they end at."""
    return evidence.once("alignment", _weigh)


def _weigh(evidence: Evidence) -> AlignmentVerdict | None:
    loop = _loop(evidence)
    if loop is None or not evidence.telemetry or not evidence.synchronous:
        return None
    lock, contest = event_tests(evidence, loop)
    regression = regression_lock(evidence.telemetry, evidence.window_s, loop, evidence.rng(12))
    drop = None if evidence.overlap is None or contest is None else _drop(evidence, contest)
    gap = evidence.path.gap_share if evidence.path else 0.0
    extra: tuple[Any, ...] = ("GAP",) if gap > MOST_GAP else ()
    judged = judge_alignment(Weighed(lock, regression, contest, drop, extra))
    if judged.verdict == "unconfirmed" and evidence.too_coarse:
        return replace(judged, reasons=("COARSE", *(r for r in judged.reasons if r != "COARSE")))
    return judged


def _loop(evidence: Evidence) -> Loop | None:
    steps = evidence.steps
    if steps is None or not len(evidence.close):
        return None
    starts = steps.start_s[evidence.close]
    return Loop(starts, (float(starts[0]), float(steps.end_s[evidence.close[-1]])))


def dips_of_job(evidence: Evidence) -> tuple[SeriesName, list[Dip]]:
    """The job's dips, of work where any GPU's hollow time is known; one GPU's own where it is alone.

    Never those of several GPUs together: GPUs of one job are copies, and each copy would count as evidence.
    """
    findings = evidence.findings
    hollow_known = any(gpu.states.method != "utilization" for gpu in findings.gpus)
    series: SeriesName = "work" if hollow_known else "utilization"
    pool = findings.dips if sum(gpu.used for gpu in findings.gpus) == 1 else findings.job_dips
    start, end = (t / 1e9 for t in evidence.close_ns)
    return series, [dip for dip in pool if dip.series == series and start <= dip.start_s < end]


def event_tests(evidence: Evidence, loop: Loop) -> tuple[LockResult | None, ContestResult | None]:
    """Event coincidence against the shift null, and the anchor contest; None without dips."""
    _, dips = dips_of_job(evidence)
    if not dips:
        return None, None
    onsets = np.asarray([dip.start_s for dip in dips])
    weights = np.asarray([dip.deficit_gpu_s for dip in dips])
    anchors = anchor_times(evidence)
    tolerance = evidence.window_s
    lock = locked_to_loop(
        loop, {name: at[np.isfinite(at)] for name, at in anchors.items()}, onsets, tolerance, evidence.rng(10)
    )
    chosen = one_per_step(loop.step_starts, loop.run[1], onsets, weights)
    return lock, anchor_contest(anchors, chosen, evidence.rng(11))


def anchor_times(evidence: Evidence) -> dict[str, FloatArray]:
    """First start of each phase in each kept step, over all ranks; phases that some step lacks are left out."""
    steps = evidence.steps
    assert steps is not None  # noqa: S101 - callers have checked
    start, end = steps.start_s[evidence.close], steps.end_s[evidence.close]
    found: dict[str, FloatArray] = {}
    for name in ANCHORS:
        per_rank = [
            _first_starts(t.edges / 1e9, t.code == phases.CODE[name], start, end)
            for t in evidence.findings.timelines
        ]
        at = np.min(per_rank, axis=0) if per_rank else np.zeros(0)
        if at.size and np.isfinite(at).mean() > 0.9:  # noqa: PLR2004 - nearly every step
            found[name] = np.where(np.isfinite(at), at, np.nan)
    return found


def _first_starts(
    edges: FloatArray,
    inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    start: FloatArray,
    end: FloatArray,
) -> FloatArray:
    begins = edges[:-1][inside & ~np.concatenate([[False], inside[:-1]])]
    if not begins.size:
        return np.full(start.size, np.inf)
    at = np.searchsorted(begins, start)
    first = begins[np.clip(at, 0, begins.size - 1)]
    return np.where((at < begins.size) & (first < end), first, np.inf)


def _drop(evidence: Evidence, contest: ContestResult) -> Any:
    """Level before minus level after the boundary that leads the contest."""
    fit = evidence.overlap
    after = contest.winner or contest.leader
    if fit is None or after is None or not evidence.telemetry:
        return None
    before = evidence.telemetry[0].timeline.before(after)
    return fit.drop(before, after) if before else None


def _facts(evidence: Evidence, judged: AlignmentVerdict) -> dict[str, Any]:
    fit = evidence.overlap
    return {
        "looked_at_s": [t / 1e9 for t in evidence.close_ns],
        "boundary": judged.boundary,
        "candidates": list(judged.candidates),
        "boundary_lag_s": judged.lag_s.value if judged.lag_s else None,
        "drop_pct": judged.drop_pct.value if judged.drop_pct else None,
        "drop_interval": [judged.drop_pct.low, judged.drop_pct.high] if judged.drop_pct else None,
        "reasons": list(judged.reasons),
        "lag_s": fit.lag_s.value if fit else None,
        "r2": fit.r2 if fit else None,
        "levels": [
            {
                "phase": level.name,
                "util_pct": level.level_pct.value,
                "interval": [level.level_pct.low, level.level_pct.high],
            }
            for level in fit.levels
            if level.level_pct is not None
        ]
        if fit
        else None,
    }


def _receipts(evidence: Evidence) -> Iterator[Receipt]:
    series, dips = dips_of_job(evidence)
    for dip in _deepest(dips):
        yield Receipt(
            kind="interval",
            text=f"dip of {series}: {dip.depth_pct:z.0f} points for {dip.end_s - dip.start_s:z.1f} s, mostly {dip.phase or 'no phase'}",
            gpu=dip.gpu,
            t0_s=dip.start_s,
            t1_s=dip.end_s,
            value=dip.deficit_gpu_s,
            unit="GPU-s",
            query=select(
                "deficit_gpu_s, phase",
                "dips",
                gpu=dip.gpu,
                series=series,
                start_s=dip.start_s,
                end_s=dip.end_s,
            ),
        )


def _deepest(dips: Sequence[Dip], most: int = 5) -> list[Dip]:
    return sorted(dips, key=lambda dip: -dip.deficit_gpu_s)[:most]
