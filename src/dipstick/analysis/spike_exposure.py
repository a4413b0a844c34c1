"""Schedules against coarse telemetry (W > 3 s): how much does an event add to the samples that see it?

At W = 15 s a spike of 3 s is a bump of a fifth of its height and has no onset. So no spikes are detected:
each sample is modelled as the mix of the phases inside its window (overlap regression, methods 3.2) plus,
for each schedule, the share of the window inside its events. The fitted coefficient is the event's height
in percentage points; its interval comes from resampling whole steps.

Worked example: a sample over [0, 15) that holds 3 s of a 50 point event on a phase at 20 reads
20 + 3 / 15 x 50 = 30; the regression sees the share 0.2 beside an excess of 10 and says 50.

A "yes" of an optional schedule must also survive exchanging which steps fired (the fitted height against
999 draws of as many other places), because with five fired steps a bootstrap interval is too short.
Exposure gate: at least 8 samples overlap the events, in at least 5 fired steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import box_shares
from dipstick.analysis.spike_schedules import (
    Kind,
    Reach,
    Schedule,
    kind_of,
    merged,
    opportunities,
    overlap,
    step_of,
)
from dipstick.analysis.stats import (
    Estimate,
    Reason,
    holm,
    normal_quantile,
    percentile_interval,
    permutation_p,
    step_draws,
    step_weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray, IntArray, Verdict

_MIN_SAMPLES, _MIN_STEPS = 8, 5
_TWIN_OVERLAP = 0.8
_MOST_VIF = 10.0
_RIDGE = 1e-9
_UNSEEN = 1e-6  # summed squared share below which a draw holds no such event
_ABSURD_PCT = 1e3  # a height like this is a draw without a solution
_POWER_Z = 0.84


@dataclass(frozen=True, slots=True)
class ExposureOptions:
    """Conventions: methods 4.3 and 7.

    Attributes:
        alpha: Family-wise level; each interval has level 1 - alpha / schedules.
        strong_pct: Height for "yes", percentage points.
        weak_pct: Height for "partially"; an upper bound below it is a "no".
        least_s: Events shorter than this are widened to it (a spike outlasts the call that caused it).
        draws: Bootstrap and exchange draws.
        seed: Their seed.
    """

    alpha: float = 0.05
    strong_pct: float = 20.0
    weak_pct: float = 10.0
    least_s: float = 1.0
    draws: int = 999
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ExposureResult:
    """The verdict on one schedule.

    Attributes:
        twins: Schedules that samples this coarse can't tell from it.
        height_pct: Fitted height of the event, interval at level 1 - alpha / schedules.
        samples: Samples that overlap its events.
        steps: Fired steps among them.
        vif: Variance inflation of its column by phases and other schedules.
        p_value: Exchange of fired steps; NaN for each-step and clock schedules.
        p_adjusted: After Holm.
        detectable_pct: Height seen with power 0.8.
    """

    name: str
    kind: Kind
    verdict: Verdict
    codes: tuple[Reason, ...]
    twins: tuple[str, ...]
    height_pct: Estimate
    samples: int
    steps: int
    vif: float
    p_value: float
    p_adjusted: float
    detectable_pct: float


@dataclass(frozen=True, slots=True)
class _Column:
    """One class of schedules as a regressor: the share of each sample inside its events."""

    members: tuple[int, ...]
    kind: Kind
    share: FloatArray
    lo_s: FloatArray
    hi_s: FloatArray
    spare: tuple[FloatArray, FloatArray]  # where it could have fired but did not


@dataclass(frozen=True, slots=True)
class _Model:
    """The regression: shares (n, phases + columns) against y (n,), and the step of each sample."""

    t0: FloatArray
    t1: FloatArray
    shares: FloatArray
    y: FloatArray
    step: IntArray
    steps: int
    columns: tuple[_Column, ...]

    @property
    def phases(self) -> int:
        return int(self.shares.shape[1]) - len(self.columns)

    def without(self, at: int) -> FloatArray:
        """What the other columns leave of this column and of y: (n, 2)."""
        other = np.delete(self.shares, at, axis=1)
        both = np.column_stack([self.shares[:, at], self.y])
        return np.asarray(both - other @ np.linalg.lstsq(other, both, rcond=None)[0])


def judge_exposure(
    ts: FloatArray,
    value_pct: FloatArray,
    window_s: float,
    phase_share: FloatArray,
    edge_s: FloatArray,
    schedules: Sequence[Schedule],
    options: ExposureOptions | None = None,
) -> tuple[ExposureResult, ...]:
    """Fit event heights and judge each schedule, in the order given.

    Args:
        ts: Sample stamps (n,), seconds, ascending; sample j is the mean over [ts - window, ts].
        value_pct: Memory-access time (n,), percent; NaN is missing.
        window_s: W.
        phase_share: Share of each window inside each phase (n, p), rows adding up to 1. The seconds of a phase
            that is itself a suspect (weight sync) belong to the phase before it here: the height is then what
            the event adds to its surroundings, and the two columns are not the same thing twice.
        edge_s: Step edges (N + 1,).
        schedules: The suspects; all are in the family.
        options: Levels, thresholds, seed.
    """
    opt = options or ExposureOptions()
    keep = np.isfinite(value_pct) & (ts > edge_s[0]) & (ts - window_s < edge_s[-1])
    t1 = ts[keep]
    columns = _columns(t1, window_s, edge_s, schedules, opt)
    shares = np.column_stack([phase_share[keep], *(c.share for c in columns)])
    step = np.clip(step_of(t1 - window_s / 2, edge_s), 0, edge_s.size - 2)
    model = _Model(t1 - window_s, t1, shares, value_pct[keep], step, edge_s.size - 1, columns)
    rng = np.random.default_rng(opt.seed)
    fits = _bootstrap(model, rng, opt.draws)
    p_values = np.array([_exchange_p(model, i, rng, opt.draws) for i in range(len(columns))])
    adjusted = holm(p_values)
    level = 1 - opt.alpha / max(1, len(schedules))
    out: dict[int, ExposureResult] = {}
    for i, column in enumerate(columns):
        drawn = fits[:, model.phases + i]
        p = (float(p_values[i]), float(adjusted[i]))
        for m in column.members:
            others = tuple(schedules[j].name for j in column.members if j != m)
            out[m] = _result(model, i, (schedules[m].name, others), drawn, p, level, opt)
    return tuple(out[m] for m in range(len(schedules)))


def _columns(
    ts: FloatArray, window_s: float, edge_s: FloatArray, schedules: Sequence[Schedule], opt: ExposureOptions
) -> tuple[_Column, ...]:
    """One column for each class of schedules that samples this coarse can't tell apart."""
    wide = [opportunities(s, edge_s, Reach(window_s / 2, window_s / 2)) for s in schedules]
    exact = [opportunities(s, edge_s, Reach(0.0, 0.0)) for s in schedules]
    left, columns = list(range(len(schedules))), []
    while left:
        first = left.pop(0)
        members = (first, *(j for j in left if overlap(wide[first], wide[j]) > _TWIN_OVERLAP))
        left = [j for j in left if j not in members]
        lo = np.concatenate([exact[m].lo_s[exact[m].fired] for m in members])
        hi = np.concatenate([exact[m].hi_s[exact[m].fired] for m in members])
        lo, hi = merged(lo, np.maximum(hi, lo + opt.least_s))
        free = exact[first].lo_s[~exact[first].fired]
        length = float(np.median(hi - lo)) if lo.size else opt.least_s
        share = box_shares(lo, hi, ts, window_s)
        columns.append(
            _Column(members, kind_of(schedules[first], edge_s), share, lo, hi, (free, free + length))
        )
    return tuple(columns)


def _bootstrap(model: _Model, rng: np.random.Generator, draws: int) -> FloatArray:
    """Coefficients (1 + draws, columns): least squares on all steps, then on resampled steps.

    Sums of products over each step are reweighted; no draw touches the samples again.
    """
    width = model.shares.shape[1]
    cross, right = np.zeros((model.steps, width, width)), np.zeros((model.steps, width))
    np.add.at(cross, model.step, model.shares[:, :, None] * model.shares[:, None, :])
    np.add.at(right, model.step, model.shares * model.y[:, None])
    drawn = step_weights(step_draws(rng, model.steps, draws), model.steps)
    weights = np.vstack([np.ones(model.steps), drawn])
    left = np.tensordot(weights, cross, axes=1) + _RIDGE * np.eye(width)
    fits = np.linalg.solve(left, (weights @ right)[:, :, None])[:, :, 0]
    absurd = (np.einsum("dii->di", left) <= _UNSEEN) | (np.abs(fits) > _ABSURD_PCT)
    return np.asarray(np.where(absurd, np.nan, fits))


def _result(
    model: _Model,
    i: int,
    names: tuple[str, tuple[str, ...]],
    drawn: FloatArray,
    p: tuple[float, float],
    level: float,
    opt: ExposureOptions,
) -> ExposureResult:
    column, name, twins = model.columns[i], *names
    height = percentile_interval(float(drawn[0]), drawn[1:], level)
    error = float(np.nanstd(drawn[1:])) if np.isfinite(drawn[1:]).any() else float("inf")
    samples = int(np.count_nonzero(column.share))
    fired = _fired_steps(model, column)
    vif = _vif(model, model.phases + i)
    fit = samples >= _MIN_SAMPLES and fired >= _MIN_STEPS
    verdict, codes = _verdict(height, p[1], vif, opt, fit=fit, alone=not twins)
    seen = (normal_quantile(level) + _POWER_Z) * error
    return ExposureResult(name, column.kind, verdict, codes, twins, height, samples, fired, vif, *p, seen)


def _fired_steps(model: _Model, column: _Column) -> int:
    """Events that at least one sample overlaps (one a step)."""
    seen = np.searchsorted(model.t0, column.hi_s) > np.searchsorted(model.t1, column.lo_s, side="right")
    return int(np.count_nonzero(seen))


def _exchange_p(model: _Model, i: int, rng: np.random.Generator, draws: int) -> float:
    """Fitted height against heights of as many other places where the schedule could have fired.

    What the other columns explain is removed first; each place then has a score (its share of the window
    times what is left) and a weight, and a draw is a choice of places.
    """
    column = model.columns[i]
    if column.kind != "event" or column.spare[0].size == 0 or column.lo_s.size == 0:
        return float("nan")
    rest = model.without(model.phases + i)[:, 1]
    lo = np.concatenate([column.lo_s, column.spare[0]])
    hi = np.concatenate([column.hi_s, column.spare[1]])
    score, weight = _scores(model, lo, hi, rest)
    fired = column.lo_s.size
    chosen = np.argsort(rng.random((draws, lo.size)), axis=1)[:, :fired]
    null = score[chosen].sum(axis=1) / np.maximum(weight[chosen].sum(axis=1), _RIDGE)
    return permutation_p(float(score[:fired].sum() / max(weight[:fired].sum(), _RIDGE)), null)


def _scores(model: _Model, lo: FloatArray, hi: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums over the samples that overlap each place: share x rest, and share squared."""
    first = np.searchsorted(model.t1, lo, side="right")
    stop = np.maximum(np.searchsorted(model.t0, hi), first)
    score, weight = np.zeros(lo.size), np.zeros(lo.size)
    for k in range(int(np.max(stop - first, initial=0))):
        row = np.minimum(first + k, model.t0.size - 1)
        inside = np.minimum(model.t1[row], hi) - np.maximum(model.t0[row], lo)
        share = np.clip(inside, 0.0, None) * (first + k < stop) / (model.t1[row] - model.t0[row])
        score += share * rest[row]
        weight += share**2
    return score, weight


def _vif(model: _Model, at: int) -> float:
    """Variance inflation of one column by all the others."""
    column = model.shares[:, at]
    total = float(np.sum((column - column.mean()) ** 2))
    left = model.without(at)[:, 0]
    return total / max(float(left @ left), _RIDGE) if total > 0 else float("inf")


def _verdict(
    height: Estimate, adjusted: float, vif: float, opt: ExposureOptions, *, fit: bool, alone: bool
) -> tuple[Verdict, tuple[Reason, ...]]:
    if not fit:
        return "unconfirmed", ("COARSE",)
    if vif > _MOST_VIF:
        return "unconfirmed", ("COARSE", "COLLINEAR")
    found = height.low > 0 and not adjusted > opt.alpha
    if found and height.value >= opt.strong_pct:
        return ("yes", ()) if alone else ("partially", ("COLLINEAR",))
    if found and height.value >= opt.weak_pct:
        return "partially", ()
    return ("no", ()) if height.high < opt.weak_pct else ("unconfirmed", ("LOW_N",))
