"""Does y follow x once drift and shared causes are taken out: partial Spearman, prewhitened (methods, 4.4).

Two series that drift together correlate without having to do with one another: naive Spearman was
"significant" in 26-67 % of such runs (S7). So ranks are used, and from each series' ranks the ranks of the
covariates (mean completion length), the step index and the series' own previous value are regressed out.
What is left is correlated; its null permutes blocks of about 2 N^(1/3) steps of the residuals (at most a fifth
of the steps, or short runs have no orders to compare with).

Worked example: y = 1, 2, 3, 4, 5 and x = 1, 2, 3, 5, 4 over steps 0..4. Spearman is 0.9. Without the step
index the residual ranks are y: 0, 0, 0, 0, 0 (y is the trend), so nothing is left to follow and rho is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import (
    Estimate,
    Side,
    normal_quantile,
    pearson,
    permutation_p,
    ranks,
    residuals,
    step_draws,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.model import FloatArray, IntArray

_SPEARMAN_VARIANCE = 1.06  # Fieller, Hartley and Pearson 1957: variance of Fisher's z of a rank correlation
_SAME = 0.98  # residual correlation above which two drivers are one
_FLAT = 1e-9
_MOST_VALUES, _FEWEST_DRAWS = 2_000_000, 199  # a day of 5,700 steps takes 350 draws instead of 999
_LEAST_BLOCKS = 5  # with three blocks (15 steps) hardly any order is left to compare with
_SPARE = 4  # rows beyond the shared columns: intercept, own past, two degrees of freedom


@dataclass(frozen=True, slots=True)
class Partial:
    """A partial rank correlation.

    Attributes:
        rho: The correlation and its interval (Fisher z, effective steps).
        p_value: Block permutation, one-sided (follows = rises with) unless asked otherwise.
        steps: Steps that remained (finite, with a predecessor).
        columns: Columns taken out of each side.
    """

    rho: Estimate
    p_value: float
    steps: int
    columns: int


@dataclass(frozen=True, slots=True)
class Residuals:
    """What is left of y and of each driver, row by row (n,), and how many columns were taken out."""

    y: FloatArray
    x: Mapping[str, FloatArray]
    columns: int


@dataclass(frozen=True, slots=True)
class Contest:
    """Which driver y follows best.

    Attributes:
        winner: The driver with bootstrap probability >= 0.95; None if there is none.
        share: Bootstrap probability of each driver (or class) to have the largest rho.
        rho: Residual correlation of each driver.
        same: Classes of drivers that are one in this run (residual correlation above 0.98).
    """

    winner: tuple[str, ...] | None
    share: Mapping[tuple[str, ...], float]
    rho: Mapping[str, float]
    same: tuple[tuple[str, ...], ...]


def take_out(y: FloatArray, drivers: Mapping[str, FloatArray], covariates: Sequence[FloatArray]) -> Residuals:
    """Rank residuals of y and of each driver given covariates, step index and own previous value.

    Args:
        y: Response by step (n,); NaN rows are dropped from all series.
        drivers: Predictors by step (n,).
        covariates: Shared causes by step (n,); constant ones are left out.
    """
    table = np.column_stack([y, *drivers.values(), *covariates])
    keep = np.isfinite(table).all(axis=1)
    index = np.flatnonzero(keep).astype(np.float64)
    shared = [index] + [ranks(c[keep]) for c in covariates if np.ptp(c[keep]) > 0]
    design = np.column_stack(shared)[1:]

    def left(series: FloatArray) -> FloatArray:
        rank = ranks(series[keep])
        if rank.size < design.shape[1] + _SPARE:
            return np.full(max(0, rank.size - 1), np.nan)
        out = residuals(rank[1:], np.column_stack([design, rank[:-1]]))
        return out if float(np.std(out)) > _FLAT * rank.size else np.full(out.size, np.nan)

    return Residuals(left(y), {name: left(x) for name, x in drivers.items()}, design.shape[1] + 1)


def correlate(
    y: FloatArray,
    x: FloatArray,
    columns: int,
    rng: np.random.Generator,
    draws: int = 999,
    side: Side = "greater",
) -> Partial:
    """Correlation of two residual series with its block-permutation p-value.

    The interval is Fisher's: half width 1.96 sqrt(1.06 / (n - columns - 3)) on the z scale.
    """
    n = y.size
    rho = pearson(x, y) if n and np.isfinite(x).all() and np.isfinite(y).all() else float("nan")
    free = n - columns - 3
    if np.isnan(rho) or free <= 0:
        return Partial(Estimate(float("nan"), -1.0, 1.0), float("nan"), int(n), columns)
    draws = min(draws, max(_FEWEST_DRAWS, _MOST_VALUES // n))
    order = block_orders(rng, n, max(1, min(round(2 * n ** (1 / 3)), n // _LEAST_BLOCKS)), draws)
    a, b = (x - x.mean()) / np.linalg.norm(x - x.mean()), (y - y.mean()) / np.linalg.norm(y - y.mean())
    half = normal_quantile(0.95) * float(np.sqrt(_SPEARMAN_VARIANCE / free))
    z = float(np.arctanh(np.clip(rho, -0.9999, 0.9999)))
    interval = Estimate(rho, float(np.tanh(z - half)), float(np.tanh(z + half)))
    # Residuals move in n - 1 - columns directions, shuffled ones in n - 1: without this 15 steps gave 8-11 %.
    null = a[order] @ b * float(np.sqrt((n - 1) / (n - 1 - columns)))
    return Partial(interval, permutation_p(rho, null, side), int(n), columns)


def block_orders(rng: np.random.Generator, size: int, block: int, draws: int) -> IntArray:
    """Orders of 0..size-1 in which contiguous blocks (of a randomly rotated circle) change places, (draws, size)."""
    block = min(block, max(1, size // 2))
    cell = np.arange(size) // block
    place = np.argsort(rng.random((draws, int(cell[-1]) + 1)), axis=1)
    order = np.argsort(place[:, cell] * size + np.arange(size), axis=1)
    return np.asarray((order + rng.integers(0, size, size=(draws, 1))) % size, dtype=np.int64)


def contest(
    left: Residuals, rng: np.random.Generator, draws: int = 500, level: float = 0.95, block: int = 1
) -> Contest:
    """Which driver has the largest residual correlation with y, over bootstrap draws of the steps?

    Drivers that are one and the same in this run form a class: with as many slots as jobs the makespan
    *is* the longest job, and a race between them would be a coin toss.
    """
    names = [n for n, x in left.x.items() if np.isfinite(x).all()]
    rho = {n: pearson(left.x[n], left.y) for n in names}
    if not names or not np.isfinite(left.y).all() or left.y.size < _SPARE:
        return Contest(None, {}, rho, ())
    classes = _classes(left, names)
    index = step_draws(rng, left.y.size, draws, block)
    y = left.y[index]
    scores = np.column_stack([_row_correlation(left.x[group[0]][index], y) for group in classes])
    wins = np.bincount(np.argmax(scores, axis=1), minlength=len(classes)) / draws
    share = {group: float(w) for group, w in zip(classes, wins, strict=True)}
    best = max(share, key=lambda g: share[g])
    return Contest(best if share[best] >= level else None, share, rho, classes)


def _classes(left: Residuals, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rest, classes = list(names), []
    while rest:
        first = rest.pop(0)
        same = [n for n in rest if pearson(left.x[first], left.x[n]) > _SAME]
        rest = [n for n in rest if n not in same]
        classes.append((first, *same))
    return tuple(classes)


def _row_correlation(x: FloatArray, y: FloatArray) -> FloatArray:
    """Correlation of each row of x with the same row of y; -2 where a row is constant."""
    a, b = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    norm = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.where(norm > 0, (a * b).sum(axis=1) / np.maximum(norm, 1e-300), -2.0)


def detectable_rho(steps: int, columns: int, level: float = 0.05, power_z: float = 0.8416) -> float | None:
    """Smallest partial rho that a one-sided test at ``level`` sees with power 0.8; None without enough steps.

    Example: 30 steps, 3 columns: z = (1.645 + 0.842) sqrt(1.06 / 24) = 0.523, rho = 0.48.
    """
    free = steps - columns - 3
    if free <= 0:
        return None
    z = (normal_quantile(1 - 2 * level) + power_z) * float(np.sqrt(_SPEARMAN_VARIANCE / free))
    return float(np.tanh(z))


def steps_for(rho: float, columns: int, level: float = 0.05, power_z: float = 0.8416) -> int:
    """Steps at which a partial ``rho`` is seen with power 0.8.

    Example: rho 0.5 with 3 columns: z = 0.549; 1.06 ((1.645 + 0.842) / 0.549)^2 + 6 = 27.8, so 28.
    """
    z = float(np.arctanh(min(abs(rho), 0.999)))
    need = _SPEARMAN_VARIANCE * ((normal_quantile(1 - 2 * level) + power_z) / max(z, 1e-6)) ** 2
    return int(np.ceil(min(need, 1e9) + columns + 3))
