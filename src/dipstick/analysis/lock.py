"""Null 1: are the dips (or the utilization itself) locked to the loop (methods, 4.1)?

Two forms with one null. *Events*: how many dip onsets fall within +-t of a boundary, at the best lag.
*Regression*: how much variance the phases explain (R2), for sampling too coarse to see onsets. In both
the telemetry is shifted as a whole and block by block, each with the maximum over the same lag grid, and
p is the larger of the two: the global shift alone is fooled by drift, the block shift alone by a dip
period near the step's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.detectable import detectable_effect, p_floor, steps_needed
from dipstick.analysis.shifts import (
    Loop,
    ShiftTest,
    Tables,
    circular,
    correlate_circular,
    fast_length,
    shift_test,
    spread,
)
from dipstick.analysis.stats import (
    Estimate,
    FloatArray,
    IntArray,
    Reason,
    coverage,
    excess,
    holm,
    newcombe,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

DRAWS, MANY_DRAWS = 999, 4_999
_LARGE_FAMILY = 10
ALPHA = 0.05
MAX_COVERAGE = 0.25
MIN_STEPS = 8
MIN_ONSETS = 5
NEGLIGIBLE = 0.2
_CELLS_PER_TOLERANCE = 12
_MAX_CELLS = 2_000_000


@dataclass(frozen=True, slots=True)
class BoundaryLock:
    """The event test of one boundary.

    Attributes:
        boundary: Its name.
        boundaries: How many there are in the run.
        onsets: Dip onsets in the run.
        hits: Onsets within the tolerance of a boundary at the best lag.
        precursor_rate: hits / onsets.
        trigger_rate: Share of boundaries with an onset within the tolerance.
        chance_rate: The null's mean precursor rate, at its own best lags (so the scan is paid for).
        effect: precursor_rate - chance_rate, with Newcombe's interval.
        lag_s: The best lag, onset minus boundary.
        p_global: Common shift. ``p_block``: shift per block of 8 steps. ``p_value``: the larger.
        p_adjusted: Holm over the boundaries that could be tested.
        p_floor: The smallest p this run can give.
        coverage: Share of the run inside the match windows.
        detectable_effect: The effect that would have been found with power 0.8 at ``alpha / family``;
            None if not even an effect of 1 would.
        steps_needed: Steps at which an effect of 0.5 would be found with that power; None if unknown.
    """

    boundary: str
    boundaries: int
    onsets: int
    hits: int
    precursor_rate: float
    trigger_rate: float
    chance_rate: float
    effect: Estimate
    lag_s: float
    p_global: float
    p_block: float
    p_value: float
    p_floor: float
    coverage: float
    p_adjusted: float = float("nan")
    detectable_effect: float | None = None
    steps_needed: int | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class LockResult:
    """All boundaries of one family; ``blocks`` is the number of blocks that the block shift used."""

    boundaries: tuple[BoundaryLock, ...]
    tolerance_s: float
    lags_s: tuple[float, float]
    draws: int
    steps: int
    blocks: int

    @property
    def tested(self) -> tuple[BoundaryLock, ...]:
        """Boundaries with a p-value."""
        return tuple(b for b in self.boundaries if np.isfinite(b.p_value))

    @property
    def best(self) -> BoundaryLock | None:
        """The tested boundary with the smallest p, the larger effect deciding ties."""
        return min(self.tested, key=lambda b: (b.p_value, -b.effect.value), default=None)


def lag_grid(step_s: float, tolerance: float) -> FloatArray:
    """-10..+30 s for a 60 s step, scaled down for shorter ones: -L/6..L/2, in steps of the tolerance (<= 1 s).

    A lag beyond half a step cannot be told from a lead of the next boundary.
    """
    first, last, by = -min(10.0, step_s / 6), min(30.0, step_s / 2), min(1.0, tolerance)
    return by * np.arange(np.ceil(first / by - 1e-9), np.floor(last / by + 1e-9) + 1)


def locked_to_loop(
    loop: Loop,
    boundaries: Mapping[str, FloatArray],
    onsets: FloatArray,
    tolerance: float,
    rng: np.random.Generator,
    *,
    lags: FloatArray | None = None,
    draws: int | None = None,
) -> LockResult:
    """Tests each boundary set against the max-of-two shift null.

    Args:
        loop: The steps and the seconds that both log and telemetry cover.
        boundaries: Name -> times in seconds, one family for Holm.
        onsets: Dip onsets of the *job* (GPUs of a barrier-synchronised job are copies of one another:
            give one series, not one a GPU), middle of the sample window that shows the drop.
        tolerance: t = W / 2 + clock uncertainty.
        rng: Source of the shifts.
        lags: Lag and skew grid in seconds; :func:`lag_grid` of the mean step if None.
        draws: Null draws; None for 999, or 4,999 where the family has more than 10 boundaries.

    Returns:
        p, effect, floor and reason codes for each boundary. Sets that cover more than 25 % of the run are
        not tested (COVERAGE) and not counted in the family.

    Errors:
        At level 0.05 at most 5.4 % false positives in every null scenario of methods S2.
    """
    inside = onsets[(onsets >= loop.run[0]) & (onsets < loop.run[1])]
    grid = (
        lag_grid(loop.step_s, tolerance)
        if lags is None
        else np.atleast_1d(np.asarray(lags, dtype=np.float64))
    )
    count = draws or (DRAWS if len(boundaries) <= _LARGE_FAMILY else MANY_DRAWS)
    scene = _Scene(loop, inside, tolerance, grid, count)
    tests = [_test(scene, name, times, rng) for name, times in boundaries.items()]
    adjusted = holm([lock.p_value for lock, _ in tests])
    level = ALPHA / max(1, int(np.isfinite(adjusted).sum()))
    judged = (_judged(scene, *test, float(p), level) for test, p in zip(tests, adjusted, strict=True))
    span = (float(grid[0]), float(grid[-1]))
    return LockResult(tuple(judged), tolerance, span, count, loop.steps, len(spread(loop.blocks())))


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all boundaries of one call share."""

    loop: Loop
    onsets: FloatArray
    tolerance: float
    lags: FloatArray
    draws: int

    @property
    def cell(self) -> float:
        """Grid of the offsets: a twelfth of the tolerance, coarser for runs of more than 2 million cells."""
        return max(self.tolerance / _CELLS_PER_TOLERANCE, self.loop.seconds / _MAX_CELLS)

    @property
    def lag_cells(self) -> IntArray:
        """The lag grid in cells."""
        return np.unique(np.rint(self.lags / self.cell).astype(np.int64))

    @property
    def exclude(self) -> int:
        """Shifts closer than 3 t plus the lag grid's span would find the effect itself again."""
        return int((3 * self.tolerance + self.lags[-1] - self.lags[0]) / self.cell)


def _test(
    scene: _Scene, name: str, times: FloatArray, rng: np.random.Generator
) -> tuple[BoundaryLock, FloatArray | None]:
    """Both shift tests of one boundary (with the common shift's null), or the reason why not."""
    inside = np.sort(times[(times >= scene.loop.run[0]) & (times < scene.loop.run[1])])
    share = coverage(inside, scene.tolerance, scene.loop.run)
    reasons = _reasons_not_to(scene, inside, share)
    if reasons:
        return _untested(scene, name, inside.size, share, reasons), None
    whole, blocks = [scene.loop.run], spread(scene.loop.blocks())
    tables, per_block = _tables(scene, inside, whole), _tables(scene, inside, blocks)
    common = shift_test(tables, scene.lag_cells, circular(tables, rng, scene.draws, scene.exclude))
    apart = shift_test(per_block, scene.lag_cells, circular(per_block, rng, scene.draws))
    return _tested(scene, name, inside, share, (common, apart)), common.null


def _reasons_not_to(scene: _Scene, inside: FloatArray, share: float) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if share > MAX_COVERAGE:
        reasons.append("COVERAGE")
    if min(scene.loop.steps, inside.size) < MIN_STEPS or scene.onsets.size < MIN_ONSETS:
        reasons.append("LOW_N")
    return tuple(reasons)


def _tables(scene: _Scene, inside: FloatArray, blocks: list[tuple[float, float]]) -> Tables:
    """Per block: onsets within the tolerance of a boundary, for each circular offset of the onsets."""
    return tuple(_hits(scene, inside, start, stop) for start, stop in blocks)


def _hits(scene: _Scene, inside: FloatArray, start: float, stop: float) -> FloatArray:
    cells = fast_length(max(1, round((stop - start) / scene.cell)))
    impulses = np.bincount(_cells_of(scene.onsets, start, stop, cells), minlength=cells).astype(np.float64)
    reach = np.arange(-_half(scene), _half(scene) + 1)
    mask = np.zeros(cells)
    mask[(_cells_of(inside, start, stop, cells)[:, None] + reach) % cells] = 1.0
    return np.rint(correlate_circular(impulses, mask))


def _half(scene: _Scene) -> int:
    return max(1, round(scene.tolerance / scene.cell))


def _cells_of(times: FloatArray, start: float, stop: float, cells: int) -> IntArray:
    own = times[(times >= start) & (times < stop)]
    return np.minimum(((own - start) / (stop - start) * cells).astype(np.int64), cells - 1)


def _tested(
    scene: _Scene, name: str, inside: FloatArray, share: float, tests: tuple[ShiftTest, ShiftTest]
) -> BoundaryLock:
    common, apart = tests
    onsets, lag = scene.onsets.size, float(common.lag_cell * scene.cell)
    chance = float(common.null.mean()) / onsets
    return BoundaryLock(
        boundary=name,
        boundaries=inside.size,
        onsets=onsets,
        hits=int(common.observed),
        precursor_rate=common.observed / onsets,
        trigger_rate=float(near_any(inside + lag, scene.onsets, scene.tolerance).mean()),
        chance_rate=chance,
        effect=excess(common.observed, onsets, chance),
        lag_s=lag,
        p_global=common.p_value,
        p_block=apart.p_value,
        p_value=max(common.p_value, apart.p_value),
        p_floor=p_floor(scene.loop, scene.tolerance, scene.lags, scene.draws),
        coverage=share,
        reasons=("NONSTATIONARY",) if _halves_differ(scene, inside + lag) else (),
    )


def _untested(
    scene: _Scene, name: str, boundaries: int, share: float, reasons: tuple[Reason, ...]
) -> BoundaryLock:
    unknown = float("nan")
    return BoundaryLock(
        boundary=name,
        boundaries=boundaries,
        onsets=scene.onsets.size,
        hits=0,
        precursor_rate=unknown,
        trigger_rate=unknown,
        chance_rate=unknown,
        effect=Estimate(unknown, -1.0, 1.0),
        lag_s=unknown,
        p_global=unknown,
        p_block=unknown,
        p_value=unknown,
        p_floor=p_floor(scene.loop, scene.tolerance, scene.lags, scene.draws),
        coverage=share,
        reasons=reasons,
    )


def _judged(
    scene: _Scene, lock: BoundaryLock, null: FloatArray | None, p_adjusted: float, level: float
) -> BoundaryLock:
    """Adds what depends on the family: the adjusted p, the floor, the detectable effect."""
    if null is None:
        return lock
    floor: tuple[Reason, ...] = ("P_FLOOR",) if lock.p_floor > level else ()
    return replace(
        lock,
        p_adjusted=p_adjusted,
        detectable_effect=detectable_effect(null, lock.onsets, level),
        steps_needed=steps_needed(null, lock.onsets, scene.loop.steps, level),
        reasons=(*floor, *lock.reasons),
    )


def near_any(times: FloatArray, others: FloatArray, within: float) -> npt.NDArray[np.bool_]:
    """For each time, is any of ``others`` at most ``within`` away?"""
    if others.size == 0:
        return np.zeros(times.size, dtype=np.bool_)
    ordered = np.sort(others)
    right = np.clip(np.searchsorted(ordered, times), 0, ordered.size - 1)
    left = np.clip(right - 1, 0, None)
    close: npt.NDArray[np.bool_] = (
        np.minimum(np.abs(ordered[right] - times), np.abs(ordered[left] - times)) <= within
    )
    return close


def _halves_differ(scene: _Scene, expected: FloatArray) -> bool:
    """Do the precursor rates of the run's halves differ by more than 0.2 and more than chance?

    Methods, section 5, compares each half's estimate with the other's interval, which flags 17-25 % of
    steady runs (two estimates differ by more than either's own error). The 99 % interval of the difference
    flags 1 %, and a difference below 0.2 changes no verdict.
    """
    hit = near_any(scene.onsets, expected, scene.tolerance)
    early = scene.onsets < sum(scene.loop.run) / 2
    difference = newcombe(*_count(hit[early]), *_count(hit[~early]), level=0.99)
    return abs(difference.value) > NEGLIGIBLE and not difference.low <= 0 <= difference.high


def _count(hit: npt.NDArray[np.bool_]) -> tuple[int, int]:
    return int(hit.sum()), hit.size
