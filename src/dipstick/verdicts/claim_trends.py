"""Claims about the run as a whole: steps getting longer, dips thinning out, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.trends import judge_trend
from dipstick.errors import UsageError
from dipstick.judgement import Reason, Verdict
from dipstick.phases import PHASES
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.dip_series import completion_length, drivers, reward_dips

if TYPE_CHECKING:
    from dipstick.analysis.trends import Trend
    from dipstick.model import FloatArray
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence


def series_of(evidence: Evidence) -> dict[str, FloatArray]:
    """What can drift, by kept step: step time, reward dip, each phase, queued work, longest job."""
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
    return found | drivers(evidence)


def trend_of(evidence: Evidence, of: str) -> Trend | None:
    """Drift of one series, with the covariates that could explain it; None without steps.

    Raises:
        UsageError: There is no such series; lists them.
    """
    known = series_of(evidence)
    if not known:
        return None
    if of not in known:
        if of in PHASES:
            return None
        raise UsageError(f"there is no series {of!r}", fix=f"series: {', '.join(known)}")
    others = {name: x for name, x in drivers(evidence).items() if name != of and np.ptp(x) > 0}
    return judge_trend(known[of], completion_length(evidence) | others)


def describe(of: str, trend: Trend) -> str:
    """The drift in words."""
    change = trend.change
    text = f"{of} changes by {100 * change.value:+.0f} % [{100 * change.low:+.0f}, {100 * change.high:+.0f}] over {trend.steps} steps"
    if trend.change_points:
        text += f", a step change at step {trend.change_points[0].step}"
    if trend.because:
        text += f"; it goes with {trend.because[0]}"
    return text


@claim_test
def drifts(evidence: Evidence, *, of: str = "step") -> Judged:
    """A series drifts over the run (of = step, dip, a phase, total_work, longest_job): 20 % of its median or more."""
    trend = trend_of(evidence, of)
    if trend is None:
        return unconfirmed(Reason.MISSING_SIGNAL, f"no {of} was recorded by step"), ()
    reason = Reason(trend.codes[0]) if trend.codes else None
    interval = (trend.change.low, trend.change.high)
    return Verdict(
        trend.verdict,
        describe(of, trend),
        trend.change.value,
        interval,
        trend.p_value,
        reason,
        trend.detectable,
    ), ()
