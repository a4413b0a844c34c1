"""The measurement model: what share of a telemetry sample's window each phase fills.

A sample stamped ``ts`` is the mean over ``[ts - W, ts]``, not a reading at an instant. With the time
spent in each phase up to t as a cumulative function, the share of any window is a difference of two
look-ups, so a design matrix costs one ``searchsorted`` whatever the number of phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.stats import FloatArray, IntArray

MAX_PARTS = 8
SAMPLES_A_PART = 40


@dataclass(frozen=True)
class Timeline:
    """Exclusive phases of one rank: segment i is [edges[i], edges[i + 1]) in phase ``names[codes[i]]``.

    Attributes:
        edges: Seconds, ascending, shape (segments + 1,).
        codes: Phase of each segment, shape (segments,). Time without a phase needs a column of its own
            ("unattributed"): the shares of a window must add up to 1.
        names: One a phase.
    """

    edges: FloatArray
    codes: IntArray
    names: tuple[str, ...]

    def seconds(self) -> FloatArray:
        """Seconds in each phase, shape (phases,)."""
        spent = np.bincount(self.codes, weights=np.diff(self.edges), minlength=len(self.names))
        return spent.astype(np.float64)

    @cached_property
    def spent(self) -> FloatArray:
        """Seconds spent in each phase before each edge, shape (segments + 1, phases): looked up at every lag tried."""
        table = np.zeros((self.edges.size, len(self.names)))
        table[np.arange(1, self.edges.size), self.codes] = np.diff(self.edges)
        return np.cumsum(table, axis=0, out=table)

    def starts(self, name: str) -> FloatArray:
        """Start times of the segments in phase ``name`` that follow another phase."""
        inside = self.codes == self.names.index(name)
        first: FloatArray = self.edges[:-1][inside & ~np.concatenate([[False], inside[:-1]])]
        return first

    def before(self, name: str, reach: float = 1.0) -> str | None:
        """The phase that fills most of the ``reach`` seconds before the starts of ``name``; None if none does.

        Not simply the segment before: a few milliseconds of "unattributed" often lie between two phases.
        """
        starts = self.starts(name)
        seconds = (cumulative(self, starts) - cumulative(self, starts - reach)).sum(axis=0)
        seconds[self.names.index(name)] = 0.0
        return self.names[int(np.argmax(seconds))] if seconds.any() else None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Utilization samples of one GPU and the phases of its rank.

    Attributes:
        ts: Sample stamps in seconds, shape (n,); sample i covers ``[ts[i] - W, ts[i]]``.
        util: Percent, shape (n,); NaN is a missing sample and is left out.
        timeline: The rank's phases, on the same clock up to the lag that is estimated.
    """

    ts: FloatArray
    util: FloatArray
    timeline: Timeline


def cumulative(timeline: Timeline, times: FloatArray) -> FloatArray:
    """Seconds spent in each phase before each time, shape (times, phases)."""
    inside = np.clip(times, timeline.edges[0], timeline.edges[-1])
    segment = np.clip(np.searchsorted(timeline.edges, inside, side="right") - 1, 0, timeline.codes.size - 1)
    result = timeline.spent[segment]
    result[np.arange(times.size), timeline.codes[segment]] += inside - timeline.edges[segment]
    return result


def near(timeline: Timeline, low: FloatArray, high: FloatArray) -> Timeline:
    """The timeline without detail that no interval ``[low, high]`` touches: same shares inside them, far fewer segments.

    A thinned day of samples touches under 1 % of its segments; what lies between becomes one segment
    of the first phase.
    """
    order = np.argsort(low, kind="stable")
    begin, reach = low[order], np.maximum.accumulate(high[order])
    at = np.searchsorted(begin, timeline.edges[1:], side="left") - 1
    keep = (
        (at >= 0) & (reach[np.clip(at, 0, None)] > timeline.edges[:-1])
        if begin.size
        else np.zeros(timeline.codes.size, np.bool_)
    )
    first = keep | np.concatenate([[True], keep[:-1]])
    codes = np.where(keep, timeline.codes, 0)[first]
    return Timeline(np.append(timeline.edges[:-1][first], timeline.edges[-1]), codes, timeline.names)


def within(timeline: Timeline, low: float, high: float) -> Timeline:
    """:func:`near` for one interval, without a look at every segment."""
    edges, codes = timeline.edges, timeline.codes
    first = int(np.searchsorted(edges[1:], low, side="right"))
    stop = max(int(np.searchsorted(edges[:-1], high)), first)
    before, after = edges[: min(first, 1)], edges[-1:] if stop < codes.size else edges[:0]
    kept = np.concatenate([before, edges[first : stop + 1], after])
    filled = np.concatenate([codes[:0], [0][: min(first, 1)], codes[first:stop], [0][: len(after)]])
    return Timeline(kept, filled.astype(codes.dtype), timeline.names)


def phase_shares(timeline: Timeline, ends: FloatArray, window: float) -> FloatArray:
    """Share of ``[end - window, end]`` inside each phase, shape (ends, phases); rows sum to 1 inside the log.

    Example: generate 0-6 s, reward 6-10 s; the sample stamped 7 s with W = 2 s is [0.5, 0.5].
    """
    return (cumulative(timeline, ends) - cumulative(timeline, ends - window)) / window


def box_shares(starts: FloatArray, stops: FloatArray, ends: FloatArray, window: float) -> FloatArray:
    """Share of each ``[end - window, end]`` inside the union of the boxes ``[start, stop]``, shape (ends,)."""
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(stops[order])
    begin = np.maximum(starts[order], np.concatenate([[-np.inf], reach[:-1]]))
    edges = np.column_stack([np.minimum(begin, reach), reach]).ravel()
    if edges.size == 0:
        return np.zeros(ends.size)
    covered = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (np.arange(edges.size - 1) % 2 == 0))])
    share: FloatArray = (np.interp(ends, edges, covered) - np.interp(ends - window, edges, covered)) / window
    return share


def parts_for(telemetry: Telemetry, name: str, steps: int, window: float) -> int:
    """Into how many sub-bins a phase can be cut: at most 8, each at least a window long.

    Each part also needs some 40 separate samples, or the parts soak up what the lag should explain
    (at W = D = 15 s and 10 steps the lag's SD went from 0.2 to 2.8 s with 4 parts).
    Example: 33 s of generation in 60 s steps: 8 at W = D = 1 s; 2 at 15 s and 40 steps; 1 at 10 steps.
    """
    timeline = telemetry.timeline
    per_step = timeline.seconds()[timeline.names.index(name)] / max(1, steps)
    separate = min((timeline.edges[-1] - timeline.edges[0]) / window, telemetry.ts.size)
    return int(np.clip(min(per_step / window, separate / SAMPLES_A_PART), 1, MAX_PARTS))


def split_phase(timeline: Timeline, name: str, step_starts: FloatArray, parts: int) -> Timeline:
    """Cuts each step's time in ``name`` into ``parts`` equal bins, named ``name[1]`` .. ``name[parts]``.

    A rollout drains gradually; one level for all of it would push the slope into the lag and into the
    level of the phase that follows. Equal shares of the *time in the phase* are cut, so that short
    interruptions do not matter.
    """
    if parts <= 1 or name not in timeline.names:
        return timeline
    code = timeline.names.index(name)
    spent = np.concatenate([[0.0], np.cumsum(np.diff(timeline.edges) * (timeline.codes == code))])
    bounds = np.interp(np.append(step_starts, timeline.edges[-1]), timeline.edges, spent)
    levels = bounds[:-1, None] + np.diff(bounds)[:, None] * np.arange(1, parts) / parts
    cuts = np.interp(levels[np.diff(bounds) > 0].ravel(), spent, timeline.edges)
    edges = np.unique(np.concatenate([timeline.edges, cuts]))
    middle = (edges[:-1] + edges[1:]) / 2
    codes = _codes_at(timeline, middle)
    position = np.interp(middle, timeline.edges, spent)
    step = np.clip(np.searchsorted(bounds, position, side="right") - 1, 0, step_starts.size - 1)
    width = np.maximum(np.diff(bounds)[step], 1e-12)
    part = np.clip(((position - bounds[step]) / width * parts).astype(np.int64), 0, parts - 1)
    return _renamed(edges, codes, part, timeline.names, code, parts)


def _renamed(
    edges: FloatArray, codes: IntArray, part: IntArray, names: tuple[str, ...], code: int, parts: int
) -> Timeline:
    """The parts take the phase's place in the names; later codes move up."""
    inserted = tuple(f"{names[code]}[{k + 1}]" for k in range(parts))
    moved = codes + np.where(codes > code, parts - 1, 0) + np.where(codes == code, part, 0)
    return Timeline(edges, moved, (*names[:code], *inserted, *names[code + 1 :]))


def base_name(column: str) -> str:
    """``generate[3]`` is a part of ``generate``."""
    return column.split("[", 1)[0]


def move_starts(timeline: Timeline, name: str, by: float) -> Timeline:
    """The same phases with each start of ``name`` moved by ``by`` seconds.

    Earlier: ``name`` is painted over whatever came before. Later: the phase before it (:meth:`before`) goes on.
    """
    starts = timeline.starts(name)
    edges = np.unique(np.concatenate([timeline.edges, np.clip(starts + by, *timeline.edges[[0, -1]])]))
    middle = (edges[:-1] + edges[1:]) / 2
    codes = _codes_at(timeline, middle)
    if by < 0:
        following = np.append(starts, np.inf)[np.searchsorted(starts, middle, side="right")]
        codes[middle >= following + by] = timeline.names.index(name)
    else:
        latest = np.append(-np.inf, starts)[np.searchsorted(starts, middle, side="right")]
        late = (middle < latest + by) & (codes == timeline.names.index(name))
        earlier = timeline.before(name)
        codes[late] = timeline.names.index(earlier) if earlier else codes[late]
    return replace(timeline, edges=edges, codes=codes)


def _codes_at(timeline: Timeline, times: FloatArray) -> IntArray:
    """Phase at each time (the first or last one outside the log)."""
    at = np.searchsorted(timeline.edges, times, side="right") - 1
    codes: IntArray = timeline.codes[np.clip(at, 0, timeline.codes.size - 1)]
    return codes


def same_columns(telemetry: Sequence[Telemetry]) -> tuple[str, ...]:
    """The column names, which must be the same for all GPUs of one fit."""
    names = telemetry[0].timeline.names
    if any(t.timeline.names != names for t in telemetry):
        raise ValueError("all timelines of one fit need the same phase names in the same order")
    return names
