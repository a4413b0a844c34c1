"""Small estimators shared by the checks: corrections, intervals, exact tests, resampling.

Pure functions of numpy arrays. Nothing here seeds itself: every random draw comes from the
``numpy.random.Generator`` that is passed in, so equal input gives equal output.
Only ``scipy.special`` is used (``scipy.stats`` costs most of a second to import).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Callable

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Side = Literal["greater", "less", "two-sided"]
Reason = Literal[
    "LOW_N", "P_FLOOR", "COVERAGE", "COARSE", "COLLINEAR", "CLOCK", "GAP",
    "REPLAY_MISMATCH", "NO_VARIATION", "NONSTATIONARY", "SPINNING",
]  # fmt: skip

REASONS: dict[Reason, str] = {
    "LOW_N": "fewer steps or events than the decision needs",
    "P_FLOOR": "the smallest p-value this run can give is above the level asked for",
    "COVERAGE": "match windows cover more than a quarter of the run",
    "COARSE": "the sampling window is longer than the phase, or too few samples touch it",
    "COLLINEAR": "candidates that are never apart in this run, or a contest without a winner",
    "CLOCK": "clock uncertainty exceeds half the separation being judged",
    "GAP": "more than 5 % of the time is unexplained",
    "REPLAY_MISMATCH": "the replay misses real step times by more than 5 %",
    "NO_VARIATION": "the predictor hardly varies over the run",
    "NONSTATIONARY": "the two halves of the run disagree",
    "SPINNING": "peer wait judged from utilization only, and a spinning wait reads 100 %",
}
"""Reason codes of "unconfirmed" (methods, section 5) and what each means."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval, both in the unit of the number."""

    value: float
    low: float
    high: float
    level: float = 0.95


# -- many tests at once ----------------------------------------------------------------------------


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Holm's step-down adjusted p-values; NaN (a test that could not be run) stays NaN and is not counted.

    Example: ``holm([0.01, 0.04, 0.03])`` is ``[0.03, 0.06, 0.06]``: the smallest times 3, the next
    times 2 (0.06), the largest times 1 but never below the one before it.
    """
    return _adjust(p_values, lambda p: np.maximum.accumulate(p * np.arange(p.size, 0, -1)))


def benjamini_hochberg(p_values: npt.ArrayLike) -> FloatArray:
    """Benjamini-Hochberg adjusted p-values (false discovery rate); NaN stays NaN and is not counted.

    Example: ``benjamini_hochberg([0.01, 0.04, 0.03])`` is ``[0.03, 0.04, 0.04]``.
    """
    return _adjust(
        p_values,
        lambda p: np.minimum.accumulate((p * p.size / np.arange(1, p.size + 1))[::-1])[::-1],
    )


def _adjust(p_values: npt.ArrayLike, rule: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Applies a rule for ascending p-values to the finite entries, in their own order."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    at = np.flatnonzero(np.isfinite(p))
    order = at[np.argsort(p[at], kind="stable")]
    adjusted[order] = np.minimum(rule(p[order]), 1.0)
    return adjusted


def permutation_p(observed: float, null: npt.ArrayLike, side: Side = "greater") -> float:
    """``(1 + #{null as extreme as observed}) / (m + 1)`` (Phipson and Smyth 2010); never 0.

    "two-sided" doubles the smaller one-sided value (at most 1).
    """
    draws = np.asarray(null, dtype=np.float64)
    slack = 1e-12 * max(1.0, abs(observed))
    above = (1 + int(np.count_nonzero(draws >= observed - slack))) / (draws.size + 1)
    below = (1 + int(np.count_nonzero(draws <= observed + slack))) / (draws.size + 1)
    return {"greater": above, "less": below, "two-sided": min(1.0, 2 * min(above, below))}[side]


# -- rates and differences of rates ----------------------------------------------------------------


def normal_quantile(level: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    return float(special.ndtri(0.5 + level / 2))


def wilson(hits: float, trials: float, level: float = 0.95) -> Estimate:
    """Wilson score interval of a rate; without trials the rate is NaN and the interval [0, 1].

    Example: 0 of 16 gives [0, 0.194]: sixteen clean misses put the bound just below 0.2.
    """
    if trials <= 0:
        return Estimate(float("nan"), 0.0, 1.0, level)
    z = normal_quantile(level)
    rate = hits / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * np.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    # At 0 and at all hits the bound is the rate itself; rounding must not put it on the wrong side.
    return Estimate(
        rate, float(min(rate, max(0.0, centre - half))), float(max(rate, min(1.0, centre + half))), level
    )


def newcombe(hits1: float, trials1: float, hits2: float, trials2: float, level: float = 0.95) -> Estimate:
    """Difference of two independent rates with Newcombe's hybrid score interval (1998, method 10).

    Example: 56 of 70 against 48 of 80 is 0.2 with interval [0.0524, 0.3339], as in the paper.
    """
    one, two = wilson(hits1, trials1, level), wilson(hits2, trials2, level)
    low = np.hypot(one.value - one.low, two.high - two.value)
    high = np.hypot(one.high - one.value, two.value - two.low)
    difference = one.value - two.value
    if np.isnan(difference):
        return Estimate(float("nan"), -1.0, 1.0, level)
    return Estimate(difference, float(max(-1.0, difference - low)), float(min(1.0, difference + high)), level)


def excess(hits: float, trials: float, chance: float, level: float = 0.95) -> Estimate:
    """A rate minus a known chance rate (a null's mean): Newcombe's interval with an exact second rate."""
    rate = wilson(hits, trials, level)
    return Estimate(rate.value - chance, rate.low - chance, rate.high - chance, level)


# -- exact tests -----------------------------------------------------------------------------------


def binomial_pmf(trials: int, rate: float) -> FloatArray:
    """Probabilities of 0..trials hits, shape (trials + 1,)."""
    k = np.arange(trials + 1, dtype=np.float64)
    log_choose = special.gammaln(trials + 1) - special.gammaln(k + 1) - special.gammaln(trials - k + 1)
    log_pmf = log_choose + special.xlogy(k, rate) + special.xlog1py(trials - k, -rate)
    pmf: FloatArray = np.exp(log_pmf)
    return pmf


def binomial_p(hits: int, trials: int, rate: float, side: Side = "greater") -> float:
    """Exact binomial p-value of ``hits`` out of ``trials`` at ``rate``.

    "two-sided" sums the outcomes that are no more likely than the one seen.
    Example: last arriver in 11 of 12 steps with two ranks, one-sided: 13 / 4096 = 0.00317.
    """
    pmf = binomial_pmf(trials, rate)
    if side == "greater":
        tail = pmf[hits:].sum()
    elif side == "less":
        tail = pmf[: hits + 1].sum()
    else:
        tail = pmf[pmf <= pmf[hits] * (1 + 1e-7)].sum()
    return float(min(1.0, tail))


def fisher_greater(hits_fired: int, fired: int, hits_unfired: int, unfired: int) -> float:
    """One-sided Fisher exact p-value: are hits more frequent among the fired opportunities?

    Example: 3 of 3 fired and 0 of 7 unfired: 1 / C(10, 3) = 0.00833.
    """
    hits, total = hits_fired + hits_unfired, fired + unfired
    k = np.arange(max(hits_fired, hits - unfired), min(fired, hits) + 1, dtype=np.float64)
    log_pmf = (
        _log_choose(fired, k) + _log_choose(unfired, hits - k) - _log_choose(total, np.asarray(float(hits)))
    )
    return float(min(1.0, np.exp(log_pmf).sum()))


def _log_choose(n: int, k: FloatArray) -> FloatArray:
    result: FloatArray = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return result


# -- resampling over steps -------------------------------------------------------------------------


def block_length(steps: int) -> int:
    """The moving-block length ``N^(1/3)``, at least 1: 3 for 31 steps, 18 for 5,700."""
    return max(1, round(math.cbrt(steps)))


def step_draws(rng: np.random.Generator, steps: int, draws: int, block: int = 1) -> IntArray:
    """Bootstrap indices over steps, shape (draws, steps).

    ``block`` = 1 resamples steps independently; larger values are the moving-block bootstrap
    (blocks start anywhere that they fit, the last one is cut).
    """
    block = min(max(1, block), steps)
    count = -(-steps // block)
    starts = rng.integers(0, steps - block + 1, size=(draws, count))
    return (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :steps].astype(np.int64)


def step_weights(indices: IntArray, steps: int) -> FloatArray:
    """How often each step was drawn, shape (draws, steps): sums over steps become one matrix product."""
    draws = indices.shape[0]
    flat = indices + np.arange(draws)[:, None] * steps
    return np.bincount(flat.ravel(), minlength=draws * steps).reshape(draws, steps).astype(np.float64)


def percentile_interval(value: float, draws: npt.ArrayLike, level: float = 0.95) -> Estimate:
    """The estimate with the percentile interval of its bootstrap draws (NaN draws are left out)."""
    finite = np.asarray(draws, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if finite.size == 0:
        return Estimate(value, float("-inf"), float("inf"), level)
    low, high = np.quantile(finite, [0.5 - level / 2, 0.5 + level / 2])
    return Estimate(value, float(low), float(high), level)


def circular_shifts(rng: np.random.Generator, length: int, draws: int, exclude: int = 0) -> IntArray:
    """Uniform circular shifts of ``length`` cells that stay at least ``exclude`` cells away from 0.

    Where the exclusion would leave nothing it is narrowed to a quarter of the length each way.
    """
    exclude = min(exclude, length // 4)
    return rng.integers(exclude, max(exclude + 1, length - exclude + 1), size=draws) % length


# -- robust location, scale, slope, ranks ----------------------------------------------------------


def mad_scale(values: npt.ArrayLike, axis: int | None = None) -> FloatArray:
    """1.4826 x median absolute deviation: the SD of a normal sample, untouched by a few outliers."""
    x = np.asarray(values, dtype=np.float64)
    centre = np.median(x, axis=axis, keepdims=True)
    return np.asarray(1.4826 * np.median(np.abs(x - centre), axis=axis))


def median_error(values: npt.ArrayLike) -> float:
    """Standard error of a median, 1.25 x 1.48 MAD / sqrt(n) (the uncertainty of a clock offset)."""
    x = np.asarray(values, dtype=np.float64)
    return float(1.25 * mad_scale(x) / np.sqrt(x.size)) if x.size else float("nan")


def robust_z(values: npt.ArrayLike) -> FloatArray:
    """Distance from the median in robust SDs; all zero where half the values are equal."""
    x = np.asarray(values, dtype=np.float64)
    scale = float(mad_scale(x)) if x.size else 0.0
    return (x - np.median(x)) / scale if scale > 0 else np.zeros_like(x)


def ranks(values: npt.ArrayLike) -> FloatArray:
    """Ranks 1..n, ties share their mean rank: ``[10, 30, 30]`` gives ``[1, 2.5, 2.5]``."""
    x = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: FloatArray = (last - (counts - 1) / 2)[inverse]
    return shared


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Correlation coefficient; NaN with fewer than 3 pairs or a constant side."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.size < 3:  # noqa: PLR2004  (two points always correlate perfectly)
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Rank correlation (ties share ranks)."""
    return pearson(ranks(x), ranks(y))


def residuals(y: npt.ArrayLike, covariates: npt.ArrayLike) -> FloatArray:
    """What least squares with an intercept leaves of ``y``; covariates have shape (n, c)."""
    target = np.asarray(y, dtype=np.float64)
    columns = np.asarray(covariates, dtype=np.float64).reshape(target.size, -1)
    design = np.column_stack([np.ones(target.size), columns])
    return target - design @ np.linalg.lstsq(design, target, rcond=None)[0]


def lag1_autocorrelation(values: npt.ArrayLike) -> float:
    """Correlation of a series with itself one step later."""
    x = np.asarray(values, dtype=np.float64)
    return pearson(x[:-1], x[1:])


@dataclass(frozen=True, slots=True)
class Slope:
    """Theil-Sen line ``y = intercept + slope * x``; the interval is of the slope."""

    slope: Estimate
    intercept: float
    pairs_used: int
    pairs: int


def theil_sen(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    rng: np.random.Generator,
    level: float = 0.95,
    max_pairs: int = 400_000,
) -> Slope:
    """Median of pairwise slopes with Sen's (Kendall's tau) interval.

    Above ``max_pairs`` pairs (about 900 points) a random sample of the pairs is used, and said so in
    ``pairs_used``. Pairs with equal x carry no slope and are left out; without any, all is NaN.

    Example: x = 0, 1, 2, 3 and y = 1, 3, 5, 100: slopes 2, 2, 33, 2, 48.5, 95; the median is 17.5.
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    first, second = _pairs(rng, a.size, max_pairs)
    apart = a[first] != a[second]
    slopes = (b[second] - b[first])[apart] / (a[second] - a[first])[apart]
    pairs = a.size * (a.size - 1) // 2
    if slopes.size == 0:
        return Slope(Estimate(float("nan"), float("-inf"), float("inf"), level), float("nan"), 0, pairs)
    spread = np.sqrt(a.size * (a.size - 1) * (2 * a.size + 5) / 18)  # SD of Kendall's S
    half = min(0.5, normal_quantile(level) * spread / (2 * pairs))
    low, slope, high = np.quantile(slopes, [0.5 - half, 0.5, 0.5 + half])
    estimate = Estimate(float(slope), float(low), float(high), level)
    return Slope(estimate, float(np.median(b - slope * a)), int(slopes.size), pairs)


def _pairs(rng: np.random.Generator, size: int, most: int) -> tuple[IntArray, IntArray]:
    """All index pairs i < j, or ``most`` random ones."""
    if size * (size - 1) // 2 <= most:
        first, second = np.triu_indices(size, k=1)
        return first.astype(np.int64), second.astype(np.int64)
    first = rng.integers(0, size, size=most)
    return first, (first + rng.integers(1, size, size=most)) % size


# -- time axis -------------------------------------------------------------------------------------


def coverage(centres: npt.ArrayLike, half_width: float, run: tuple[float, float]) -> float:
    """Share of ``run`` inside the union of the windows ``centre +- half_width`` (all in seconds).

    Example: boundaries at 10 and 12 s, half width 3 s, run 0-60 s: the union is 7-15 s, 0.133.
    """
    c = np.sort(np.asarray(centres, dtype=np.float64))
    starts = np.clip(c - half_width, *run)
    ends = np.clip(c + half_width, *run)
    reached = np.concatenate([[run[0]], np.maximum.accumulate(ends)[:-1]]) if c.size else ends
    return float(np.maximum(0.0, ends - np.maximum(starts, reached)).sum() / (run[1] - run[0]))
