"""Does the run change while it runs: steps getting longer, dips thinning out, jumps to another level.

A rate or a duration by step is tested for drift (rank correlation with the step index) and for change
points, both against series with the same memory (:mod:`dipstick.analysis.ar_null`). Whether a line or
levels describe it better is decided by BIC. What explains it: :mod:`dipstick.analysis.trend_causes`.

Worked example: 60 steps of 100 + k seconds (+-1): slope 1 s a step, change 59 / 130 = 45 % of the median.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dipstick.analysis.ar_null import ar1_draws, memory_of
from dipstick.analysis.change_points import ChangePoint, find_changes
from dipstick.analysis.stats import Estimate, Reason, permutation_p, ranks, residuals, theil_sen
from dipstick.analysis.trend_causes import Explanation, explain_drift

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray, Verdict

Shape = Literal["flat", "drift", "change"]

_MIN_STEPS = 20
_LINE = 4
_TWO_SIDED_Z, _POWER_Z = 1.96, 0.84


@dataclass(frozen=True, slots=True)
class TrendOptions:
    """Conventions: a drift of 20 % of the median over the run is "yes", 10 % "partially"."""

    alpha: float = 0.05
    strong: float = 0.2
    weak: float = 0.1
    draws: int = 999
    seed: int = 0
    explain_flat: bool = True
    """Whether covariates are also tried on a series that does not move: it tells nothing, and a day of steps takes a second."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One series over the steps.

    Attributes:
        verdict: On "it drifts": yes, partially, no (interval of the change within +-10 %), unconfirmed.
        change: Theil-Sen slope x (steps - 1), as a share of the median; its interval is widened for the
            series' memory.
        slope: In units of the series for each step.
        p_value: Two-sided, against AR(1) series with the same memory.
        memory: Lag-1 autocorrelation without the drift, rounded up (see ``memory_of``).
        shape: flat, drift (a line fits better) or change (levels fit better).
        change_points: In order of the steps; empty where a line fits better (stairs would only imitate it).
        because: Covariates that explain the drift, best first; empty if none does.
        covariates: All that were tried.
        steps: Steps in the test.
        detectable: Smallest change (share of the median) seen with power 0.8; None if unknown.
    """

    verdict: Verdict
    codes: tuple[Reason, ...]
    change: Estimate
    slope: float
    p_value: float
    memory: float
    shape: Shape
    change_points: tuple[ChangePoint, ...]
    because: tuple[str, ...]
    covariates: tuple[Explanation, ...]
    steps: int
    detectable: float | None


def judge_trend(
    y: FloatArray, covariates: Mapping[str, FloatArray] | None = None, options: TrendOptions | None = None
) -> Trend:
    """Drift and change points of one series, and the covariate that explains them.

    Args:
        y: By step (N,); NaN steps are left out.
        covariates: By step (N,): completion length, jobs, total work ...
        options: Levels, thresholds, draws, seed.
    """
    opt = options or TrendOptions()
    at = np.flatnonzero(np.isfinite(y))
    series, step = y[at], at.astype(np.float64)
    if series.size < _LINE or np.ptp(series) == 0:
        return _nothing(series)
    rng = np.random.default_rng(opt.seed)
    slope = theil_sen(step, series, rng).slope
    rank = ranks(series)
    rest = residuals(rank, step)
    memory = memory_of(rest)
    null = _with_time(ar1_draws(rng, rest, memory, opt.draws))
    p = permutation_p(float(_with_time(rank[None, :])[0]), null, "two-sided")
    centre = abs(float(np.median(series))) or float(np.std(series))
    change = _scaled(slope, float(step[-1] - step[0]) / centre, float(np.sqrt((1 + memory) / (1 - memory))))
    points = find_changes(series, rng, opt.alpha, opt.draws)
    shape = _shape(series, step, points, drifts=p <= opt.alpha)
    tried = (covariates or {}) if shape != "flat" or opt.explain_flat else {}
    found = explain_drift(y, tried, rng, opt.alpha, opt.draws)
    because = [e.name for e in sorted(found, key=lambda e: -e.share.value) if e.explains and shape != "flat"]
    moved = tuple(replace(c, step=int(at[c.step])) for c in points) if shape == "change" else ()
    return Trend(
        *_verdict(change, p, series.size, opt), change, slope.value, p, memory, shape, moved, tuple(because),
        found, int(series.size), _detectable(change),
    )  # fmt: skip


def _nothing(series: FloatArray) -> Trend:
    """Too few steps for a line, or a constant (which does not drift)."""
    flat = series.size >= _MIN_STEPS
    still = Estimate(0.0, 0.0, 0.0) if flat else Estimate(float("nan"), float("-inf"), float("inf"))
    return Trend(
        "no" if flat else "unconfirmed", () if flat else ("LOW_N",), still, 0.0, 1.0, 0.0, "flat", (), (), (),
        int(series.size), None,
    )  # fmt: skip


def _scaled(slope: Estimate, factor: float, widen: float) -> Estimate:
    """Slope interval x factor, half widths stretched for autocorrelation (n_eff = n (1 - r) / (1 + r))."""
    low, high = (slope.value + (bound - slope.value) * widen for bound in (slope.low, slope.high))
    return Estimate(slope.value * factor, low * factor, high * factor, slope.level)


def _verdict(change: Estimate, p: float, steps: int, opt: TrendOptions) -> tuple[Verdict, tuple[Reason, ...]]:
    if steps < _MIN_STEPS:
        return "unconfirmed", ("LOW_N",)
    if p <= opt.alpha and abs(change.value) >= opt.strong:
        return "yes", ()
    if p <= opt.alpha and abs(change.value) >= opt.weak:
        return "partially", ()
    inside = -opt.weak < change.low and change.high < opt.weak
    return ("no", ()) if inside else ("unconfirmed", ("LOW_N",))


def _detectable(change: Estimate) -> float | None:
    """Power 0.8 at two-sided 5 %: 2.8 standard errors, from the interval's half width of 1.96."""
    half = (change.high - change.low) / 2
    return half * (_TWO_SIDED_Z + _POWER_Z) / _TWO_SIDED_Z if np.isfinite(half) else None


def _with_time(rows: FloatArray) -> FloatArray:
    """Correlation of each row with its index."""
    k = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    centred = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(centred @ k / np.maximum(np.linalg.norm(centred, axis=1) * np.linalg.norm(k), 1e-300))


def _shape(series: FloatArray, step: FloatArray, points: tuple[ChangePoint, ...], *, drifts: bool) -> Shape:
    """Line or levels, whichever has the smaller BIC (one parameter more for a line, two for each change)."""
    if not points:
        return "drift" if drifts else "flat"
    level = np.searchsorted([c.step for c in points], np.arange(series.size), side="right")
    means = np.bincount(level, weights=series) / np.bincount(level)
    n = series.size
    stairs = n * np.log(np.mean((series - means[level]) ** 2) + 1e-12) + 2 * len(points) * np.log(n)
    line = n * np.log(np.mean(residuals(series, step) ** 2) + 1e-12) + np.log(n)
    return "change" if stairs < line else "drift"


@dataclass(frozen=True, slots=True)
class Thinning:
    """Do dips become rarer (or more frequent) over the run, and is it only that steps change length?

    Attributes:
        per_minute: Dips a minute, by step: what a person sees in the graph.
        per_step: Dips a step: what the loop does.
        step_s: Step time.
        because: ``steps_longer`` (fewer a minute, as many a step), ``fewer_per_step``, ``steps_shorter``,
            ``more_per_step``, or None if the rate does not change or neither accounts for it.
    """

    per_minute: Trend
    per_step: Trend
    step_s: Trend
    because: str | None


def judge_thinning(
    onset_s: FloatArray,
    edge_s: FloatArray,
    covariates: Mapping[str, FloatArray] | None = None,
    options: TrendOptions | None = None,
) -> Thinning:
    """Trend of the dip rate.

    Args:
        onset_s: Dip onsets, seconds.
        edge_s: Step edges (N + 1,), seconds.
        covariates: By step (N,).
        options: Levels and thresholds.

    Example: one dip a step, steps growing from 60 to 120 s: dips a minute halve, dips a step stay 1,
    so the dips thin out because the steps get longer.
    """
    count = np.histogram(onset_s, bins=edge_s)[0].astype(np.float64)
    length = np.diff(edge_s)
    minute = judge_trend(count / length * 60, covariates, options)
    step = judge_trend(count, covariates, options)
    seconds = judge_trend(length, covariates, options)
    fewer = minute.change.value < 0
    because = None
    if _moves(minute) and _moves(step) and (step.change.value < 0) == fewer:
        because = "fewer_per_step" if fewer else "more_per_step"
    elif _moves(minute) and _moves(seconds) and (seconds.change.value > 0) == fewer:
        because = "steps_longer" if fewer else "steps_shorter"
    return Thinning(minute, step, seconds, because)


def _moves(trend: Trend) -> bool:
    return trend.verdict in {"yes", "partially"}
