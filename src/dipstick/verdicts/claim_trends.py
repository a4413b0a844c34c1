"""Claims about the run as a whole: steps getting longer, dips thinning out, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.trends import TrendOptions, judge_thinning, judge_trend
from dipstick.judgement import Reason, Verdict
from dipstick.phases import PHASES
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.bill import phase_receipts, step_receipts
from dipstick.verdicts.check_alignment import dips_of_job
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.dip_series import completion_length, drivers, reward_dips

if TYPE_CHECKING:
    from dipstick.analysis.trends import Thinning, Trend
    from dipstick.model import FloatArray
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence


def series_of(evidence: Evidence) -> dict[str, FloatArray]:
    """What can drift, by kept step: step time, reward dip, dips a minute, each phase, the gather's wait, queued work."""
    return evidence.once("series", _series)


def _series(evidence: Evidence) -> dict[str, FloatArray]:
    loop = evidence.loop
    if loop is None:
        return {}
    found: dict[str, FloatArray] = {"step": loop.measured}
    dips = reward_dips(evidence)
    if dips is not None:
        found["dip"] = dips.width_s
    for phase in dict.fromkeys(loop.columns):
        columns = [i for i, name in enumerate(loop.columns) if name == phase]
        found[phase] = loop.seconds[:, columns].sum(axis=1).mean(axis=1)
    onsets, edges = _dips_in_steps(evidence)
    if onsets.size:
        found["dips_per_minute"] = np.histogram(onsets, edges)[0] / np.diff(edges) * 60
    return found | _gather_wait(evidence) | drivers(evidence)


def _gather_wait(evidence: Evidence) -> dict[str, FloatArray]:
    """Seconds that a rank waits at the reward gather, on average over the ranks."""
    steps = evidence.steps
    if steps is None or "reward" not in steps.labels or len(steps.ranks) < 2 or not evidence.synchronous:  # noqa: PLR2004 - a wait takes two
        return {}
    arrive = steps.arrive_s[evidence.kept, steps.labels.index("reward")]
    return {"gather_wait": (arrive.max(axis=1, keepdims=True) - arrive).mean(axis=1)}


def thinning(evidence: Evidence) -> Thinning | None:
    """Whether the dips thin out over the run, and whether it is only that the steps get longer; None without dips."""
    onsets, edges = _dips_in_steps(evidence)
    return judge_thinning(onsets, edges, completion_length(evidence)) if onsets.size else None


def _dips_in_steps(evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """When the job's dips start, and the edges (N + 1,) of the kept steps; both empty without steps."""
    steps = evidence.steps
    if steps is None or len(evidence.kept) < 2:  # noqa: PLR2004 - a trend takes two
        return np.zeros(0), np.zeros(0)
    onsets = np.asarray([dip.start_s for dip in dips_of_job(evidence)[1]])
    return onsets, np.append(steps.start_s[evidence.kept], steps.end_s[evidence.kept[-1]])


def trend_of(evidence: Evidence, of: str) -> Trend | None:
    """Drift of one series, with the covariates that could explain it; None where it was not recorded by step."""
    known = series_of(evidence)
    if of not in known:
        return None
    others = {name: x for name, x in drivers(evidence).items() if name != of and np.ptp(x) > 0}
    options = TrendOptions(explain_flat=False)
    return judge_trend(known[of], completion_length(evidence) | others, options)


def describe(of: str, trend: Trend) -> str:
    """The drift in words."""
    change = trend.change
    if not np.isfinite(change.value):
        return f"{of} over {trend.steps} steps: too few for a line"
    text = f"{of} changes by {100 * change.value:+z.0f} % [{100 * change.low:+z.0f}, {100 * change.high:+z.0f}] over {trend.steps} steps"
    if trend.change_points:
        text += f", a step change at step {trend.change_points[0].step}"
    if trend.because:
        text += f"; it goes with {trend.because[0]}"
    return text


@claim_test
def drifts(evidence: Evidence, *, of: str = "step") -> Judged:
    """A series drifts over the run: 20 % of its median or more.

    ``of`` is step, dip, dips_per_minute, a phase, total_work, longest_job or makespan.
    """
    trend = trend_of(evidence, of)
    if trend is None:
        return unconfirmed(Reason.MISSING_SIGNAL, f"no {of} was recorded by step"), ()
    receipts = phase_receipts(evidence, of) if of in PHASES else step_receipts(evidence)
    return as_verdict(trend, trend.p_value, describe(of, trend)), receipts


def as_verdict(trend: Trend, p: float, because: str) -> Verdict:
    """The analysis's verdict as one of ours, with what a run like this one would have shown."""
    change = trend.change
    known = bool(np.isfinite(change.value))
    return Verdict(
        word=trend.verdict,
        because=because,
        effect=change.value if known else None,
        interval=(change.low, change.high) if known else None,
        p=p,
        reason=Reason(trend.codes[0]) if trend.codes else None,
        min_detectable=None if trend.verdict == "yes" else trend.detectable,
    )
