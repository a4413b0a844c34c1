"""Dips of utilization and of work: hysteresis on window means, against a local baseline.

A dip begins where a window mean falls below half the baseline and ends where it rises above 0.7 of it
(methods 2.4; a single cut at 0.5 gives 18 times the spurious dips). Thresholds on window means put edges
up to a window off, so each edge is moved by the share of its window that the dip fills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import indicator, integral, lay, merge_edges, piece_at, sample
from dipstick.analysis.telemetry import Series
from dipstick.model import Dip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray, Scope
    from dipstick.model import Series as SeriesName

ENTER, LEAVE = 0.5, 0.7
BASELINE_PERCENTILE = 80.0
BASELINE_STEPS = 2
POOLED_VALUES = 2_000_000
"""Window means whose percentiles are taken in one go: 16 MiB."""
BUSY_PHASES = ("generate", "logprobs", "forward", "backward", "optimizer")
TOGETHER = 0.5
USED_PCT = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """Dips of one series: edges (ns, refined), depth and deficit below the local baseline."""

    start: IntArray
    end: IntArray
    depth: FloatArray
    baseline: FloatArray
    deficit_gpu_s: FloatArray

    def __len__(self) -> int:
        """How many dips there are."""
        return len(self.start)


def find(series: Series, baseline: FloatArray, counter_window_ns: int) -> Found:
    """Dips of one series of window means.

    Args:
        series: Percent; NaN ends a dip (not measured is not low).
        baseline: Local baseline of each window (percent).
        counter_window_ns: A dip must last this long, and two samples.

    Example: windows of 1 s at 100, 100, 40, 0, 0, 60, 100 hold one dip; its edges are moved into the
    partly filled windows: 0.6 of the third and 0.4 of the sixth belong to it, so it lasts 3.0 s.
    """
    value = series.value
    mark = np.where(
        value < ENTER * baseline, 1, np.where((value > LEAVE * baseline) | np.isnan(value), -1, 0)
    )
    after_gap = np.concatenate([[True], series.t0[1:] > series.t1[:-1]])
    inside = _held(np.where(after_gap & (mark == 0), -1, mark))
    first = np.flatnonzero(inside & (after_gap | ~np.concatenate([[False], inside[:-1]])))
    last = np.flatnonzero(inside & np.append(after_gap[1:] | ~inside[1:], True))
    shortest = np.maximum(counter_window_ns, 0)
    long_enough = (
        (series.t1[last] - series.t0[first] >= shortest) & (last > first) if len(first) else first > 0
    )
    return _measure(series, baseline, first[long_enough], last[long_enough])


def _held(mark: IntArray) -> npt.NDArray[np.bool_]:
    """Hysteresis: the last decided mark holds until the next one."""
    decided = np.maximum.accumulate(np.where(mark != 0, np.arange(len(mark)), -1))
    return np.where(decided >= 0, mark[np.clip(decided, 0, None)] == 1, False)


def _measure(series: Series, baseline: FloatArray, first: IntArray, last: IntArray) -> Found:
    if not len(first):
        none = np.zeros(0)
        return Found(first, first, none, none, none)
    width = series.t1 - series.t0
    # reduceat works on [first, last], expressed as alternating slices
    cuts = np.stack([first, last + 1], axis=1).ravel()
    low = np.minimum.reduceat(np.append(series.value, np.inf), cuts)[0::2]
    base = (np.add.reduceat(np.append(baseline, 0.0), cuts)[0::2]) / (last - first + 1)
    lost = np.maximum(baseline - np.nan_to_num(series.value, nan=0.0), 0.0) * width / 1e11
    deficit = np.add.reduceat(np.append(lost, 0.0), cuts)[0::2]
    start = series.t0[first] + _moved(series, base, low, first, first - 1)
    end = series.t1[last] - _moved(series, base, low, last, last + 1)
    return Found(start, np.maximum(end, start), base - low, base, deficit)


def _moved(series: Series, base: FloatArray, low: FloatArray, edge: IntArray, beyond: IntArray) -> IntArray:
    """How far the dip's edge lies inside its edge window (ns; negative: in the window beyond it).

    What the edge window lacks is taken off, and what the window beyond it already lost is added: on noisy
    square waves that leaves edges right to a few percent of a window (either correction alone: half a window).
    """
    depth = np.maximum(base - low, 1e-9)
    width = series.t1 - series.t0
    filled = np.clip((base - series.value[edge]) / depth, 0, 1)
    near = np.clip(beyond, 0, len(series.value) - 1)
    touching = (near == beyond) & (
        np.minimum(np.abs(series.t1[near] - series.t0[edge]), np.abs(series.t0[near] - series.t1[edge])) == 0
    )
    spill = np.where(touching, np.clip(np.nan_to_num((base - series.value[near]) / depth), 0, 1), 0.0)
    moved: IntArray = ((1 - filled) * width[edge] - spill * width[near]).astype(np.int64)
    return moved


@dataclass(frozen=True, slots=True)
class BusyWindows:
    """The step of each window, and whether its middle lies in a phase that should be busy."""

    step: IntArray
    busy: npt.NDArray[np.bool_]
    steps: int


def busy_windows(series: Series, timeline: RankTimeline | None) -> BusyWindows | None:
    """Where the windows of a series lie in the loop; None without steps."""
    if timeline is None or not len(timeline.steps):
        return None
    middle = (series.t0 + series.t1) // 2
    code = sample(timeline.edges, timeline.code, middle, phases.UNATTRIBUTED)
    busy = np.isin(code, [phases.CODE[p] for p in BUSY_PHASES])
    step = np.maximum(piece_at(timeline.steps.t0, middle), 0)
    return BusyWindows(step, busy, len(timeline.steps))


def baseline_of(series: Series, timeline: RankTimeline | None) -> FloatArray:
    """:func:`baseline` of the windows of one series."""
    return baseline(series.value, busy_windows(series, timeline))


def baseline(value: FloatArray, windows: BusyWindows | None) -> FloatArray:
    """Local baseline of each window: the 80th percentile over busy phases of steps k-2 to k+2.

    Without steps it is one 80th percentile of the windows above 1 % (a GPU that rests half the run has not
    halved its plateau).
    """
    chosen = None if windows is None else windows.busy & ~np.isnan(value)
    if windows is None or chosen is None or not chosen.any():
        return np.full(len(value), _percentile(value[value > USED_PCT]))
    per_step = _rolling(windows.step[chosen], value[chosen], windows.steps)
    local: FloatArray = per_step[windows.step]
    return local


def _rolling(step: IntArray, value: FloatArray, steps: int) -> FloatArray:
    """80th percentile over the windows of steps k-2..k+2; steps without any take their neighbours'."""
    bounds = np.searchsorted(step, np.arange(steps + 1))
    k = np.arange(steps)
    first = bounds[np.maximum(k - BASELINE_STEPS, 0)]
    size = bounds[np.minimum(k + BASELINE_STEPS + 1, steps)] - first
    out = np.full(steps, np.nan)
    for same in _by_size(size):
        pools = sliding_window_view(value, size[same[0]])[first[same]]
        at = _rank_of_percentile(pools.shape[1])
        out[same] = np.partition(pools, at, axis=1)[:, at]
    known = np.flatnonzero(~np.isnan(out))
    filled: FloatArray = np.interp(np.arange(steps), known, out[known])
    return filled


def _by_size(size: IntArray) -> Iterator[IntArray]:
    """Positions of equal size, a bounded number of values at once; those of size 0 are left out."""
    order = np.argsort(size, kind="stable")[np.count_nonzero(size == 0) :]
    for same in np.split(order, np.flatnonzero(np.diff(size[order])) + 1):
        most = max(POOLED_VALUES // max(int(size[same[:1]].sum()), 1), 1)
        yield from (same[at : at + most] for at in range(0, len(same), most))


def _percentile(values: FloatArray) -> float:
    """80th percentile by partition (the lower of the two neighbours); 0 for none."""
    if not len(values):
        return 0.0
    at = _rank_of_percentile(len(values))
    return float(np.partition(values, at)[at])


def _rank_of_percentile(count: int) -> int:
    return int((count - 1) * BASELINE_PERCENTILE / 100)


def mean_series(parts: Sequence[Series], period_ns: int) -> Series:
    """The job's series: the mean over its GPUs on one regular grid (one window where no period is known)."""
    start, end = min(int(s.t0[0]) for s in parts), max(int(s.t1[-1]) for s in parts)
    pace = period_ns if period_ns > 0 else max(end - start, 1)
    edges = np.arange(start, end + pace, pace, dtype=np.int64)
    stacked = np.stack(abreast(lambda part: part.mean_over(edges[:-1], edges[1:]), parts))
    known = ~np.isnan(stacked).any(axis=0)
    return Series(edges[:-1][known], edges[1:][known], stacked[:, known].mean(axis=0))


def describe(
    found: Found,
    scope: Sequence[Scope],
    *,
    host: str,
    gpu: int | None,
    timeline: RankTimeline | None,
    series: SeriesName,
    curve: tuple[Series, FloatArray],
) -> list[Dip]:
    """Dips as dataclasses, with the phase that each costs most in, the one that fills it, and the lag to that one's start.

    The two differ where a dip's edges are soft: 3 s of generation at 90 of 100 % and 1 s of weight sync at 0 % lost
    0.3 and 1 GPU-seconds, so that dip is the sync's, though generation fills it.
    """
    boundary, lag = _phases_of(found, timeline)
    phase = _costliest(found, timeline, curve, boundary)
    start, end, depth, base, deficit = (
        column.tolist()  # Python numbers: a day has 200,000 dips
        for column in (
            found.start / 1e9, found.end / 1e9, found.depth, found.baseline, found.deficit_gpu_s
        )
    )  # fmt: skip
    rows = zip(start, end, depth, base, deficit, phase, boundary, lag, scope, strict=True)
    return [
        Dip(host, gpu, a, b, d, p, cost, of, by, late, series, wide)
        for a, b, d, p, cost, of, by, late, wide in rows
    ]


def _costliest(
    found: Found,
    timeline: RankTimeline | None,
    curve: tuple[Series, FloatArray],
    filled: Sequence[str | None],
) -> Sequence[str | None]:
    """Per dip the phase in which most of its utilization is missing; the one that fills it where none is missing."""
    if timeline is None or not len(found):
        return filled
    edges = merge_edges(timeline.edges, found.start, found.end)
    values, baseline = curve
    laid = lay(values.t0, values.t1)
    below = np.maximum(baseline - np.nan_to_num(values.value, nan=np.inf), 0.0)
    missing = np.diff(integral(laid.edges, laid.rate(below), edges))
    code = sample(timeline.edges, timeline.code, edges[:-1], phases.UNATTRIBUTED)
    start, end = np.searchsorted(edges, found.start), np.searchsorted(edges, found.end)
    most, costliest = np.zeros(len(found)), np.full(len(found), -1)
    for one in np.unique(code).tolist():
        until = np.concatenate([[0.0], np.cumsum(np.where(code == one, missing, 0.0))])
        mine = until[end] - until[start]
        costliest[mine > most] = one
        most = np.maximum(most, mine)
    return [phases.PHASES[c] if c >= 0 else by for c, by in zip(costliest.tolist(), filled, strict=True)]


def _phases_of(
    found: Found, timeline: RankTimeline | None
) -> tuple[Sequence[str | None], Sequence[float | None]]:
    """Per dip the phase that fills most of it, and the lag to that phase's start; None where there is none."""
    if timeline is None or not len(found):
        return [None] * len(found), [None] * len(found)
    spent = timeline.phase_ns_in(found.start, found.end)
    code, lags = spent.argmax(axis=1), np.zeros(len(found))
    for wanted in np.unique(code):
        mine = code == wanted
        lags[mine] = _lags(timeline, int(wanted), found.start[mine])
    filled: list[bool] = (spent.max(axis=1) != 0).tolist()
    names = [phases.PHASES[c] if some else None for c, some in zip(code.tolist(), filled, strict=True)]
    return names, [lag if some else None for lag, some in zip(lags.tolist(), filled, strict=True)]


def _lags(timeline: RankTimeline, code: int, start: IntArray) -> FloatArray:
    """Seconds from the nearest start of the phase to each dip's start (positive: the dip starts later)."""
    here = timeline.code == code
    starts = timeline.edges[:-1][here & ~np.concatenate([[False], here[:-1]])]
    if not len(starts):
        return np.full(len(start), np.nan)
    right = np.searchsorted(starts, start)
    before, after = starts[np.clip(right - 1, 0, None)], starts[np.clip(right, None, len(starts) - 1)]
    near = np.where(np.abs(start - before) <= np.abs(after - start), before, after)
    lag: FloatArray = (start - near) / 1e9
    return lag


def scopes(per_gpu: Sequence[Found]) -> list[list[Scope]]:
    """Tell job-wide dips from one-GPU dips: ``job`` if every other used GPU dips during half of it or more."""
    shapes = [indicator(found.start, found.end) for found in per_gpu]
    return [_scope(found, shapes[:mine] + shapes[mine + 1 :]) for mine, found in enumerate(per_gpu)]


def _scope(found: Found, others: Sequence[tuple[IntArray, FloatArray]]) -> list[Scope]:
    width = np.maximum(found.end - found.start, 1)
    joined = np.zeros(len(found), np.int64)
    for shape in others:
        joined += (integral(*shape, found.end) - integral(*shape, found.start)) >= TOGETHER * width
    return ["job" if count == len(others) else "gpu" if count == 0 else "some" for count in joined.tolist()]
