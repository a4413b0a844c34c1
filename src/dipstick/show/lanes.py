"""Tracks cut into columns: the numbers behind every drawn lane, for any width and time range."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dipstick.model import CodeArray, FloatArray, GpuTrack, IntArray, RankTrack, Report

_COLUMNS_A_STEP = 20
_MOST_STEPS = 4


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of time to draw, in seconds since the recording's start.

    Attributes:
        t0: Start.
        t1: End.
        first_step: Number of the first step in it; None where it is not a run of whole steps.
        last_step: Number of the last step in it.
        steps: (number, start second) of each step that starts in it.
        typical: Whether it was picked for being typical, rather than asked for or the whole.
    """

    t0: float
    t1: float
    first_step: int | None = None
    last_step: int | None = None
    steps: tuple[tuple[int, float], ...] = ()
    typical: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU in columns.

    Attributes:
        host: Its host.
        gpu: Its index.
        rank: Whose phases ``phase`` holds; None where no rank is known.
        util: Mean utilization of each column in percent; NaN where nothing was sampled.
        state: State code that covers most of each column; -1 where nothing was sampled.
        phase: Phase code that covers most of each column; None where no rank is known.
    """

    host: str
    gpu: int
    rank: int | None
    util: FloatArray
    state: IntArray
    phase: IntArray | None


def whole(report: Report) -> Range:
    """The analysis window as a range."""
    t0, t1 = report.run.window_s
    starts = step_starts(report)
    return Range(t0, t1, steps=tuple(starts))


def step_starts(report: Report) -> list[tuple[int, float]]:
    """(number, start second) of each step; numbered from the arrivals where they match, else from 0."""
    starts = [float(s) for s in report.tracks.step_start_s]
    arrivals = report.stragglers.arrivals if report.stragglers else ()
    numbers = [a.step for a in arrivals] if len(arrivals) == len(starts) else list(range(len(starts)))
    return list(zip(numbers, starts, strict=True))


def between(report: Report, t0: float | None, t1: float | None) -> Range:
    """The part of the window that the user asked for."""
    start, end = report.run.window_s
    a, b = (start if t0 is None else t0), (end if t1 is None else t1)
    inside = tuple((number, s) for number, s in step_starts(report) if a <= s < b)
    return Range(a, b, steps=inside)


def typical(report: Report, columns: int) -> Range:
    """A few neighbouring steps whose lengths are closest to the median: what a step looks like.

    A column of a long run holds more than a phase, so lanes over all of it are mush; two to four steps at 20
    columns or more each can be read. Fewer than that in all, or no steps: the whole window.

    Worked example: lengths 20, 13, 12, 14, 13 (median 13) and two steps: the deviations of the pairs are
    7, 1, 2, 1, so the pair that starts at step 1 is taken (the earliest of equals).
    """
    starts = step_starts(report)
    many = max(2, min(_MOST_STEPS, columns // _COLUMNS_A_STEP))
    if len(starts) <= many:
        return whole(report)
    edges = np.array([*(s for _, s in starts), report.run.window_s[1]])
    lengths = np.diff(edges)
    off = np.convolve(np.abs(lengths - np.median(lengths)), np.ones(many), mode="valid")
    first = int(np.argmin(off.round(6)))
    last = first + many - 1
    chosen = tuple(starts[first : last + 1])
    return Range(
        float(edges[first]), float(edges[last + 1]), chosen[0][0], chosen[-1][0], chosen, typical=True
    )


def lanes(report: Report, span: Range, columns: int, *, phases: bool = True) -> tuple[Lane, ...]:
    """Each GPU's utilization, state and (if asked for) phase in ``columns`` equal columns of the range."""
    edges = np.linspace(span.t0, span.t1, columns + 1)
    ranks = {track.rank: track for track in report.tracks.ranks if phases}
    return tuple(_lane(track, ranks.get(_rank_of(track, report)), edges) for track in report.tracks.gpus)


def _rank_of(track: GpuTrack, report: Report) -> int:
    """The rank drawn under a GPU: its own, else the first that lists the GPU, else -1 (none)."""
    if track.rank is not None:
        return track.rank
    return next((r.rank for r in report.tracks.ranks if (track.host, track.gpu) in r.gpus), -1)


def _lane(track: GpuTrack, rank: RankTrack | None, edges: FloatArray) -> Lane:
    windows = cut(track.t0_s, track.t1_s, edges)
    phase = None if rank is None else most_of(cut(rank.edge_s[:-1], rank.edge_s[1:], edges), rank.code)
    return Lane(
        track.host,
        track.gpu,
        None if rank is None else rank.rank,
        mean_of(windows, track.util_pct),
        most_of(windows, track.state),
        phase,
    )


@dataclass(frozen=True, slots=True)
class Cut:
    """Windows cut at column edges: piece i is ``seconds[i]`` of window ``window[i]`` in column ``column[i]``."""

    window: IntArray
    column: IntArray
    seconds: FloatArray
    columns: int


def cut(t0: FloatArray, t1: FloatArray, edges: FloatArray) -> Cut:
    """Cut windows at the edges of columns; one pass over the windows that touch the columns at all.

    Worked example: windows [0, 1) and [1, 4), columns [0, 2) and [2, 4) -> 1 s of window 0 in column 0,
    1 s of window 1 in column 0 and 2 s of it in column 1.

    Args:
        t0: Window starts, seconds, ascending. Where windows overlap, the earlier one keeps the time.
        t1: Window ends, seconds.
        edges: Column edges, one more than columns.
    """
    ends = np.maximum.accumulate(t1)
    first, last = np.searchsorted(ends, edges[0], "right"), np.searchsorted(t0, edges[-1], "left")
    ends = np.minimum(ends[first:last], edges[-1])
    starts = np.maximum(t0[first:last], np.concatenate(([edges[0]], ends[:-1])))
    begin = _edges_before(np.searchsorted(starts, edges, "left"), len(starts)) - 1
    pieces = np.where(
        ends > starts, _edges_before(np.searchsorted(ends, edges, "right"), len(ends)) - begin, 0
    )
    window = np.repeat(np.arange(len(starts)), pieces)
    column = begin[window] + np.arange(len(window)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    seconds = np.minimum(ends[window], edges[column + 1]) - np.maximum(starts[window], edges[column])
    return Cut(window + first, column, seconds, len(edges) - 1)


def _edges_before(positions: IntArray, windows: int) -> IntArray:
    """For each window the number of edges whose position is at or before it: ``([0, 2], 3)`` -> ``[1, 1, 2]``."""
    return np.repeat(np.arange(len(positions) + 1), np.diff(positions, prepend=0, append=windows))


def mean_of(pieces: Cut, value: FloatArray) -> FloatArray:
    """Mean of a piecewise constant series over each column, weighted by covered time.

    Worked example: windows [0, 1) = 100 and [1, 2) = 0, columns [0, 1.5) and [1.5, 3):
    100 * 1 / 1.5 = 66.7 and 0 (only half of it covered, by zeros). A column nothing covers is NaN.

    Args:
        pieces: The windows, cut.
        value: One value a window; NaN counts as not covered.
    """
    values = value[pieces.window]
    seconds = np.where(np.isfinite(values), pieces.seconds, 0.0)
    covered = np.bincount(pieces.column, seconds, pieces.columns)
    total = np.bincount(
        pieces.column, seconds * np.nan_to_num(values, posinf=0.0, neginf=0.0), pieces.columns
    )
    out = np.full(pieces.columns, np.nan)
    np.divide(total, covered, out=out, where=covered > 0)
    return out


def most_of(pieces: Cut, code: CodeArray) -> IntArray:
    """The code that covers most of each column; -1 where none does. Ties go to the lower code."""
    codes = int(code.max(initial=0)) + 1
    place = pieces.column * codes + code[pieces.window]
    seconds = np.bincount(place, pieces.seconds, pieces.columns * codes).reshape(-1, codes)
    best: IntArray = np.argmax(seconds.round(9), axis=1)
    return np.where(seconds.max(axis=1) > 0, best, -1)


def runs(codes: IntArray) -> list[tuple[int, int, int]]:
    """(first column, one past the last, code) of each run of equal codes: ``[4, 4, 5]`` -> ``[(0, 2, 4), (2, 3, 5)]``."""
    if len(codes) == 0:
        return []
    cuts = np.flatnonzero(np.diff(codes)) + 1
    bounds = [0, *(int(c) for c in cuts), len(codes)]
    return [(a, b, int(codes[a])) for a, b in pairwise(bounds)]


def ticks(t0: float, t1: float, most: int) -> tuple[list[float], float]:
    """Round times inside the range, at most ``most`` of them, and their distance.

    >>> ticks(40.1, 92.3, 6)
    ([50.0, 60.0, 70.0, 80.0, 90.0], 10.0)
    """
    length = max(t1 - t0, 1e-6)
    step = next((s for s in _nice_steps() if length / s <= most), length)
    first = np.ceil(t0 / step - 1e-9)
    found = [float(round(i * step, 6)) for i in np.arange(first, np.floor(t1 / step + 1e-9) + 1)]
    return found, step


def _nice_steps() -> list[float]:
    small = [m * 10.0**e for e in range(-4, 1) for m in (1, 2, 5)]
    return [*small, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800]
