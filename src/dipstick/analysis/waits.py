"""Collective waits, worked out across ranks from their arrivals at each barrier.

NCCL returns to Python before it waits, so no span of the waiting rank shows the wait: it surfaces at a
later ``.item()``. It is computed instead: wait = latest arrival - own arrival, for the time in which the
waiting rank is inside no span of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import sample
from dipstick.analysis.timeline import RankTimeline, paint
from dipstick.model import WaitRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import IntArray


@dataclass(frozen=True, slots=True)
class Meetings:
    """Every time the ranks met at one barrier. K meetings, R ranks; times in ns.

    Attributes:
        step: (K,) step number.
        arrival: (K, R) when each rank arrived.
        release: (K,) latest arrival.
        last: (K,) column of the latest rank.
        wait_end: (K, R) end of each rank's wait: the release, or its own next span if that starts sooner.
        because: (K, R) phase code in which the latest rank spent the most extra time since the ranks last met.
        counted: (K, R) ns of each wait that no other barrier counts; None where that is all of it.
    """

    barrier: phases.Barrier
    ranks: tuple[int, ...]
    step: IntArray
    arrival: IntArray
    release: IntArray
    last: IntArray
    wait_end: IntArray
    because: IntArray
    counted: IntArray | None = None

    def waits_ns(self) -> IntArray:
        """(K, R) nanoseconds waited; 0 for the last to arrive."""
        if self.counted is not None:
            return self.counted
        waited: IntArray = np.maximum(self.wait_end - self.arrival, 0)
        return waited


def meet(
    timelines: Sequence[RankTimeline], barriers: Sequence[phases.Barrier] = phases.TRL_BARRIERS
) -> list[Meetings]:
    """Match the ranks' arrivals at every barrier; nothing to match with fewer than two ranks.

    Meetings are paired by step number and order inside the step, and only where all ranks have one.
    """
    present = [t for t in timelines if len(t.steps)]
    if len(present) < 2:  # noqa: PLR2004 - one rank has nobody to wait for
        return []
    arrivals = [(barrier, *_arrivals(present, barrier)) for barrier in barriers]
    arrivals = [(barrier, step, at) for barrier, step, at in arrivals if len(step)]
    releases = (
        np.sort(np.concatenate([at.max(axis=1) for _, _, at in arrivals]))
        if arrivals
        else np.zeros(0, np.int64)
    )
    return [_meetings(present, barrier, step, at, releases) for barrier, step, at in arrivals]


def _arrivals(timelines: Sequence[RankTimeline], barrier: phases.Barrier) -> tuple[IntArray, IntArray]:
    """(K,) step numbers and (K, R) arrival times of the meetings that all ranks share."""
    keyed = [keyed_ends(t, barrier.arrive_at_end_of) for t in timelines]
    common = keyed[0][0]
    for keys, _ in keyed[1:]:
        common = np.intersect1d(common, keys)
    at = [ends[np.searchsorted(keys, common)] for keys, ends in keyed]
    return common >> 20, np.stack(at, axis=1)


def keyed_ends(timeline: RankTimeline, name: str) -> tuple[IntArray, IntArray]:
    """Sorted keys (step << 20 | order inside the step) and ends of the named spans inside the window."""
    lane = timeline.main.lane
    inside = (lane.t1 > timeline.edges[0]) & (lane.t1 <= timeline.edges[-1])
    mask = lane.called(name) & (lane.step >= 0) & inside
    step, end = lane.step[mask], lane.t1[mask]
    order = np.lexsort((end, step))
    step, end = step[order], end[order]
    nth = np.arange(len(step)) - np.searchsorted(step, step)
    return (step << 20) + nth, end


def _meetings(
    timelines: Sequence[RankTimeline],
    barrier: phases.Barrier,
    step: IntArray,
    arrival: IntArray,
    releases: IntArray,
) -> Meetings:
    release = arrival.max(axis=1)
    last = arrival.argmax(axis=1)
    before = np.searchsorted(releases, arrival.min(axis=1), side="right") - 1
    start = timelines[0].edges[0]
    since = np.where(before >= 0, releases[np.clip(before, 0, None)], start)
    ends = [np.minimum(release, next_span(t, arrival[:, column])) for column, t in enumerate(timelines)]
    because = late_because(timelines, arrival, last, since)
    ranks = tuple(t.rank for t in timelines)
    return Meetings(barrier, ranks, step, arrival, release, last, np.stack(ends, axis=1), because)


def next_span(timeline: RankTimeline, times: IntArray) -> IntArray:
    """When the rank is next inside a phase, at or after each instant; the window's end if never.

    An arrival inside a phase (damaged spans that cross) is its own answer: that rank was busy, not waiting.
    """
    starts = np.append(timeline.edges[:-1][timeline.code != phases.UNATTRIBUTED], timeline.edges[-1])
    following = starts[np.clip(np.searchsorted(starts, times), 0, len(starts) - 1)]
    busy = sample(timeline.edges, timeline.code, times, phases.UNATTRIBUTED) != phases.UNATTRIBUTED
    return np.where(busy, times, following)


def late_because(
    timelines: Sequence[RankTimeline], arrival: IntArray, last: IntArray, since: IntArray
) -> IntArray:
    """(K, R) phase in which the latest rank spent most more than the waiting rank, since the ranks last met."""
    spent = np.stack([t.phase_ns_in(since, arrival[:, column]) for column, t in enumerate(timelines)], axis=1)
    late = np.take_along_axis(spent, last[:, None, None], axis=1)
    excess: IntArray = (late - spent).argmax(axis=2)
    return excess


def paint_waits(timelines: Sequence[RankTimeline], meetings: Sequence[Meetings]) -> list[RankTimeline]:
    """Timelines in which waits are phases of their own (``gather_wait``, ``collective_wait``)."""

    def painted(timeline: RankTimeline) -> RankTimeline:
        for meeting in meetings:
            if timeline.rank in meeting.ranks:
                column = meeting.ranks.index(timeline.rank)
                start, end = meeting.arrival[:, column], meeting.wait_end[:, column]
                waited = end > start
                code = phases.CODE[meeting.barrier.wait_phase]
                timeline = paint(timeline, start[waited], end[waited], code)  # barriers add up on one rank
        return timeline

    return abreast(painted, timelines)


def wait_rows(meetings: Sequence[Meetings]) -> tuple[WaitRow, ...]:
    """Waits summed by rank, barrier and cause, longest first."""
    rows = [row for meeting in meetings for row in _rows_of(meeting)]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _rows_of(meeting: Meetings) -> list[WaitRow]:
    waited = meeting.waits_ns()
    rows = []
    for column, rank in enumerate(meeting.ranks):
        for code in np.unique(meeting.because[:, column]):
            mine = (meeting.because[:, column] == code) & (waited[:, column] > 0)
            if mine.any():
                late = {meeting.ranks[i] for i in meeting.last[mine]}
                rows.append(_row(meeting, rank, int(code), waited[mine, column], late))
    return rows


def _row(meeting: Meetings, rank: int, because: int, waited: IntArray, late: set[int]) -> WaitRow:
    return WaitRow(
        rank=rank,
        barrier=meeting.barrier.name,
        because=phases.PHASES[because],
        late_rank=late.pop() if len(late) == 1 else None,
        phase=meeting.barrier.wait_phase,
        seconds=int(waited.sum()) / 1e9,
        count=len(waited),
        longest_s=int(waited.max()) / 1e9,
    )


def critical_path(timelines: Sequence[RankTimeline], meetings: Sequence[Meetings]) -> IntArray:
    """Nanoseconds by phase along the path that decides when each barrier opens; adds up to the window.

    Between two releases the path follows the rank that arrives last at the second (methods 2.5); after
    the last release it follows the rank whose last step ends last.
    """
    present = [t for t in timelines if len(t.steps)] or list(timelines)
    window = present[0].edges[[0, -1]]
    release = np.concatenate([m.release for m in meetings]) if meetings else np.zeros(0, np.int64)
    last = np.concatenate([m.last for m in meetings]) if meetings else np.zeros(0, np.int64)
    order = np.argsort(release, kind="stable")
    ends = [int(t.steps.t1.max()) if len(t.steps) else 0 for t in present]
    follow = np.append(last[order], int(np.argmax(ends)))
    cuts = np.concatenate([window[:1], release[order], window[1:]])
    spent = np.stack([t.phase_ns_in(cuts[:-1], cuts[1:]) for t in present], axis=1)
    path: IntArray = spent[np.arange(len(follow)), follow].sum(axis=0)
    assert path.sum() == window[1] - window[0], "the critical path does not span the window"  # noqa: S101 - asserted promise
    return path
