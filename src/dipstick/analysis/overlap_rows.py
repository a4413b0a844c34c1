"""Rows of an overlap regression, and the search for the lag that fits them best.

Split from :mod:`overlap`, which makes a finding of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import Telemetry, move_starts, near, parts_for, phase_shares, split_phase
from dipstick.analysis.gram import Sums, explained, nonnegative, squared_error, step_sums, total_sums
from dipstick.analysis.stats import Estimate, FloatArray, IntArray, percentile_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

GRID_S = 0.25
REFINE_S = 3.0
"""How far around the best lag of the profile the draws may look."""
_FEWEST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples of all GPUs that are usable at every lag of the grid, sorted by step.

    Attributes:
        ts: Stamps per GPU; ``order`` sorts their concatenation by step, as ``y`` and ``step`` are.
        step: 0..steps - 1, ascending.
        available: Samples before thinning.
    """

    telemetry: tuple[Telemetry, ...]
    ts: tuple[FloatArray, ...]
    order: IntArray
    y: FloatArray
    step: IntArray
    steps: int
    available: int

    def design(self, window: float, lag: float) -> FloatArray:
        """Shares at one lag, shape (rows, columns); rows in the order of ``y``."""
        parts = [
            phase_shares(t.timeline, ts - lag, window) for t, ts in zip(self.telemetry, self.ts, strict=True)
        ]
        return np.concatenate(parts)[self.order]

    @property
    def stamps(self) -> FloatArray:
        """All stamps in the order of ``y``."""
        return np.concatenate(self.ts)[self.order]


def cut_drain(
    telemetry: Sequence[Telemetry], split: str | None, step_starts: FloatArray, window: float
) -> tuple[Telemetry, ...]:
    """The draining phase cut into as many parts as the sampling carries; unchanged if there is none."""
    if split is None or split not in telemetry[0].timeline.names:
        return tuple(telemetry)
    parts = parts_for(telemetry[0], split, step_starts.size, window)
    return tuple(replace(t, timeline=split_phase(t.timeline, split, step_starts, parts)) for t in telemetry)


def select_rows(
    telemetry: tuple[Telemetry, ...],
    window: float,
    step_starts: FloatArray,
    lags: tuple[float, float],
    most: int,
) -> Rows:
    """Keeps samples whose window lies inside the log at every lag; thins to evenly spaced steps."""
    kept = [_inside(t, window, lags) for t in telemetry]
    available = sum(int(k.sum()) for k in kept)
    every = max(1, -(-available // most))
    thin = step_starts.size >= _FEWEST_STEPS * every
    ts, y, step = [], [], []
    for t, keep in zip(telemetry, kept, strict=True):
        number = np.searchsorted(step_starts, t.ts, side="right") - 1
        use = keep & (number % every == 0) if thin else keep
        ts.append(t.ts[use])
        y.append(t.util[use])
        step.append(number[use])
    number = np.concatenate(step)
    order = np.argsort(number, kind="stable")
    _, compact = np.unique(number[order], return_inverse=True)
    steps = int(compact.max()) + 1 if compact.size else 0
    values = np.concatenate(y)[order]
    if thin and every > 1:
        touched = [
            near(t.timeline, at - lags[1] - window, at - lags[0]) for t, at in zip(telemetry, ts, strict=True)
        ]
        telemetry = tuple(
            replace(t, timeline=timeline) for t, timeline in zip(telemetry, touched, strict=True)
        )
    return Rows(telemetry, tuple(ts), order, values, compact.astype(np.int64), steps, available)


def _inside(t: Telemetry, window: float, lags: tuple[float, float]) -> npt.NDArray[np.bool_]:
    first, last = t.timeline.edges[0], t.timeline.edges[-1]
    inside: npt.NDArray[np.bool_] = (
        np.isfinite(t.util) & (t.ts - lags[1] - window >= first) & (t.ts - lags[0] <= last)
    )
    return inside


def profile(rows: Rows, window: float, lags: FloatArray) -> FloatArray:
    """Squared error of the best non-negative levels at each lag."""
    sums = [total_sums(rows.design(window, lag), rows.y) for lag in lags]
    return np.array([float(squared_error(s, nonnegative(s.gram, s.cross))) for s in sums])


@dataclass(frozen=True, slots=True)
class Near:
    """The chosen candidate of each draw; draw 0 is the run itself.

    Attributes:
        at: Lag (or move) of each draw in seconds, shape (1 + draws,).
        sums: X'X, X'y, y'y of each draw at its own candidate.
        step: Distance of two candidates in seconds.
    """

    at: FloatArray
    sums: Sums
    step: float

    def estimate(self) -> Estimate:
        """The run's own candidate; the draws' interval is widened by half a grid step."""
        inner = percentile_interval(float(self.at[0]), self.at[1:])
        return replace(inner, low=inner.low - self.step / 2, high=inner.high + self.step / 2)


def nearest(designs: Sequence[FloatArray], rows: Rows, weights: FloatArray, grid: FloatArray) -> Near:
    """Per draw the candidate design with the smallest squared error (unconstrained)."""
    drawn = [step_sums(design, rows.y, rows.step, rows.steps).weighted(weights) for design in designs]
    best = np.argmax([explained(d.gram, d.cross) for d in drawn], axis=0)
    draw = np.arange(weights.shape[0])
    gram, cross = np.stack([d.gram for d in drawn]), np.stack([d.cross for d in drawn])
    chosen = Sums(gram[best, draw], cross[best, draw], drawn[0].square)
    return Near(grid[best], chosen, float(grid[1] - grid[0]))


def refine(rows: Rows, window: float, lag: float, weights: FloatArray) -> Near:
    """Profiles around ``lag`` for every draw, on a five times finer grid while the draws agree.

    Starts at +-3 s in steps of 0.25 s; ends at steps of 0.05 or 0.01 s where the sampling supports it.
    """
    for step, reach in ((GRID_S, round(REFINE_S / GRID_S)), (GRID_S / 5, 7), (GRID_S / 25, 7)):
        grid = lag + step * np.arange(-reach, reach + 1, dtype=np.float64)
        near = nearest([rows.design(window, d) for d in grid], rows, weights, grid)
        lag = float(near.at[0])
        if np.abs(near.at - lag).max() > step:
            break
    return near


def moved_start(rows: Rows, phase: str, by: float) -> Rows:
    """The same samples against timelines in which ``phase`` starts ``by`` seconds later."""
    moved = (replace(t, timeline=move_starts(t.timeline, phase, by)) for t in rows.telemetry)
    return replace(rows, telemetry=tuple(moved))
