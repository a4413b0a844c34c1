"""Null 1 on the utilization itself: do the phases explain its variance better than shifted ones would?

Works where dip onsets cannot be seen (W = D = 15 s: power 1.0 from 8 steps for an 85-point drop).
R2 at *all* offsets comes from FFTs: X'X(g) is the correlation of the sampling comb with products of the
shares, X'y(g) that of the samples with the shares. No offset is fitted twice.

The common shift is linear: at most a quarter of the run either way, judged on the part that still
overlaps. A circular shift puts a phase slip where the run's end meets its start into every null draw but
not into the observed series, and called strictly periodic unrelated dips (period L or L/2) locked in
9-10 % of runs at the 5 % level; the linear shift does in 3.5 % (benchmarks/calibration, S5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import phase_shares, same_columns, within
from dipstick.analysis.detectable import p_floor
from dipstick.analysis.gram import explained
from dipstick.analysis.shifts import (
    Loop,
    Tables,
    circular,
    correlate_circular,
    fast_length,
    shift_test,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dipstick.analysis.design import Telemetry
    from dipstick.analysis.stats import FloatArray, IntArray, Reason

DRAWS = 999
ALPHA = 0.05
MIN_STEPS = 8
SKEWS = np.arange(-2.0, 2.01, 0.25)
_CELL_S = 0.25
_MAX_CELLS = 100_000
_MAX_BLOCKS = 32
_SMALL_SHARE = 0.01
_PAD_CELLS = 8


@dataclass(frozen=True, slots=True)
class RegressionLock:
    """The regression test of "locked to the loop".

    Attributes:
        r2: Variance explained by the phases at the best lag (adjusted for the number of columns;
            unconstrained levels, no sub-bins).
        chance_r2: The null's mean, each draw at its own best lag.
        lag_s: The best lag of the grid.
        p_global: Common shift. ``p_block``: shift per block of 8 steps (None below two blocks).
        p_value: The larger.
        p_floor: The smallest p this run can give.
        blocks: Blocks used by the block shift (a long run is judged on 32 evenly spaced ones).
    """

    r2: float
    chance_r2: float
    lag_s: float
    p_global: float
    p_block: float | None
    p_value: float
    p_floor: float
    draws: int
    steps: int
    blocks: int
    samples: int
    reasons: tuple[Reason, ...] = ()


def regression_lock(
    telemetry: Sequence[Telemetry],
    window: float,
    loop: Loop,
    rng: np.random.Generator,
    *,
    lags: FloatArray = SKEWS,
    draws: int = DRAWS,
) -> RegressionLock | None:
    """R2 of the overlap regression against the max-of-two shift null.

    Args:
        telemetry: One entry a GPU; their timelines cover ``loop.run`` and share their phase names. One
            level a phase for all of them.
        window: The averaging window W in seconds.
        loop: Steps and run.
        rng: Source of the shifts.
        lags: Lag and skew grid in seconds.
        draws: Null draws.

    Returns:
        None without samples in the run.
    """
    cell = max(_CELL_S, loop.seconds / _MAX_CELLS)
    scene = _Scene(tuple(telemetry), window, cell, _column_groups(telemetry))
    samples = sum(int(_usable(t, *loop.run).sum()) for t in telemetry)
    if samples == 0:
        return None
    cells = np.unique(np.rint(lags / cell).astype(np.int64))
    whole, nearest, farthest = _linear(scene, loop, lags)
    shifts = rng.integers(nearest, farthest + 1, size=(draws, 1)) * rng.choice([-1, 1], size=(draws, 1))
    common = shift_test(whole, cells, shifts, scene.score)
    blocks = spread(loop.blocks(), _MAX_BLOCKS)
    p_block = _block_p(scene, blocks, cells, rng, draws)
    floor = p_floor(loop, window / 2, lags, draws)
    return RegressionLock(
        r2=common.observed,
        chance_r2=float(common.null.mean()),
        lag_s=float(common.lag_cell * cell),
        p_global=common.p_value,
        p_block=p_block,
        p_value=common.p_value if p_block is None else max(common.p_value, p_block),
        p_floor=floor,
        draws=draws,
        steps=loop.steps,
        blocks=len(blocks),
        samples=samples,
        reasons=_reasons(loop, floor),
    )


def _linear(scene: _Scene, loop: Loop, lags: FloatArray) -> tuple[Tables, int, int]:
    """The whole run padded so that shifts do not wrap, and the nearest and farthest shift in cells."""
    farthest = int(loop.seconds / 4 / scene.cell)
    nearest = min(int((1.5 * scene.window + lags[-1] - lags[0]) / scene.cell), farthest)
    pad = farthest + int(np.abs(lags).max() / scene.cell) + _PAD_CELLS
    return scene.tables([loop.run], pad), nearest, farthest


def _block_p(
    scene: _Scene, blocks: list[tuple[float, float]], cells: IntArray, rng: np.random.Generator, draws: int
) -> float | None:
    """The block shift's p; None for a single block, where it would be the common shift over again."""
    if len(blocks) == 1:
        return None
    tables = scene.tables(blocks, 0)
    return shift_test(tables, cells, circular(tables, rng, draws), scene.score).p_value


def _reasons(loop: Loop, floor: float) -> tuple[Reason, ...]:
    low: tuple[Reason, ...] = ("LOW_N",) if loop.steps < MIN_STEPS else ()
    return (*low, "P_FLOOR") if floor > ALPHA else low


def _usable(t: Telemetry, start: float, stop: float) -> npt.NDArray[np.bool_]:
    return np.isfinite(t.util) & (t.ts >= start) & (t.ts < stop)


@dataclass(frozen=True, slots=True)
class _Scene:
    """The samples, the grid and the columns of one test."""

    telemetry: tuple[Telemetry, ...]
    window: float
    cell: float
    groups: FloatArray

    @property
    def columns(self) -> int:
        """Number of columns after small phases are put together."""
        return int(self.groups.shape[1])

    def tables(self, blocks: Sequence[tuple[float, float]], pad: int) -> Tables:
        """Per block, at each offset: X'X (upper triangle), X'y, n, y'1, y'y of the samples that overlap."""
        return tuple(
            np.sum([self._features(t, *block, pad) for t in self.telemetry], axis=0) for block in blocks
        )

    def _features(self, t: Telemetry, start: float, stop: float, pad: int) -> FloatArray:
        cells = max(1, round((stop - start) / self.cell))
        pad = fast_length(cells + pad) - cells if pad else 0
        middles = start + (np.arange(cells) + 0.5) * (stop - start) / cells
        here = within(t.timeline, start - self.window, stop)
        shares = np.zeros((cells + pad, self.columns + 1))
        shares[:cells] = np.column_stack(
            [phase_shares(here, middles, self.window) @ self.groups, np.ones(cells)]
        )
        use = _usable(t, start, stop)
        at = np.minimum(((t.ts[use] - start) / (stop - start) * cells).astype(np.int64), cells - 1)
        count, total, square = (
            np.bincount(at, weights=t.util[use] ** power, minlength=cells + pad).astype(np.float64)
            for power in (0, 1, 2)
        )
        upper, lower = np.triu_indices(self.columns)
        inside = shares[:, -1:]
        return np.concatenate(
            [
                correlate_circular(count, shares[:, upper] * shares[:, lower]),
                correlate_circular(total, shares[:, :-1]),
                correlate_circular(count, inside),
                correlate_circular(total, inside),
                correlate_circular(square, inside),
            ],
            axis=1,
        )

    def score(self, features: FloatArray) -> FloatArray:
        """Adjusted R2 from summed features (..., features): fewer overlapping samples fit noise better."""
        pairs, columns = self.columns * (self.columns + 1) // 2, self.columns
        upper, lower = np.triu_indices(columns)
        gram = np.empty((*features.shape[:-1], columns, columns))
        gram[..., upper, lower] = features[..., :pairs]
        gram[..., lower, upper] = features[..., :pairs]
        count, total, square = (features[..., i] for i in (-3, -2, -1))
        mean = total**2 / np.maximum(count, 1.0)
        spread_of_y = np.maximum(square - mean, 1e-9)
        left = 1 - (explained(gram, features[..., pairs : pairs + columns]) - mean) / spread_of_y
        adjusted: FloatArray = 1 - left * (count - 1) / np.maximum(count - columns, 1.0)
        return adjusted


def _column_groups(telemetry: Sequence[Telemetry]) -> FloatArray:
    """Phases below 1 % of the time share one column: they cannot carry R2, and each costs FFTs."""
    seconds = np.sum([t.timeline.seconds() for t in telemetry], axis=0)
    small = seconds < _SMALL_SHARE * seconds.sum()
    identity = np.eye(len(same_columns(telemetry)))
    columns = [identity[:, ~small], identity[:, small].sum(axis=1, keepdims=True)]
    return np.concatenate(columns if small.any() else columns[:1], axis=1)
