"""One exclusive phase at every instant of every rank, over one analysis window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import merge_edges, piece_at, sample
from dipstick.analysis.spans import ResolvedLane, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dipstick.analysis.spans import Lane
    from dipstick.model import CodeArray, IntArray

WAITS = [phases.CODE[name] for name in phases.WAIT_PHASES]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one rank in time order: the framework's number, start and end (ns)."""

    number: IntArray
    t0: IntArray
    t1: IntArray

    def __len__(self) -> int:
        """How many steps the rank has."""
        return len(self.number)


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """One rank: its main thread's spans, its steps, and its exclusive phases over the window.

    Attributes:
        edges: Piece boundaries (ns); the first and last are the window's.
        code: Phase code of each piece (``dipstick.phases.PHASES``).
    """

    rank: int
    main: ResolvedLane
    steps: Steps
    edges: IntArray
    code: CodeArray

    def with_phases(self, edges: IntArray, code: CodeArray) -> RankTimeline:
        """The same rank with other pieces (waits painted in)."""
        return replace(self, edges=edges, code=code)

    def seconds_ns(self) -> IntArray:
        """Exclusive nanoseconds by phase code; they add up to the window (asserted)."""
        widths = np.diff(self.edges)
        total = np.zeros(len(phases.PHASES), np.int64)
        np.add.at(total, self.code, widths)
        assert total.sum() == self.edges[-1] - self.edges[0], "phase nanoseconds do not add up to the window"  # noqa: S101 - the sum is the product's promise
        return total

    def phase_ns_until(self, times: IntArray) -> IntArray:
        """Exclusive nanoseconds by phase from the window's start to each time.

        Args:
            times: Sorted, distinct instants (ns); those outside the window count as its ends.

        Returns:
            Shape (len(times), phases), exact. Example: generate on [0, 6), reward on [6, 10) gives for
            time 8 the row generate 6, reward 2.
        """
        kinds, pieces = len(phases.PHASES), len(self.code)
        at = np.clip(times, self.edges[0], self.edges[-1])
        piece = np.clip(piece_at(self.edges, at), 0, pieces - 1)
        slot = np.cumsum(
            np.bincount(piece, minlength=pieces)
        )  # the first time that has all of the piece before it
        # float64 holds integers exactly up to 2**53 ns = 104 days
        sums = np.bincount(
            slot * kinds + self.code, weights=np.diff(self.edges), minlength=(len(times) + 1) * kinds
        )
        until: IntArray = np.cumsum(sums.reshape(-1, kinds), axis=0)[: len(times)].astype(np.int64)
        until[np.arange(len(times)), self.code[piece]] += at - self.edges[piece]
        return until

    def phase_ns_in(self, start: IntArray, end: IntArray) -> IntArray:
        """Exclusive nanoseconds by phase in each of the intervals (ns), shape (len(start), phases).

        Example: transfers on [1, 2) and [7, 9), intervals [0, 5) and [5, 10): 1 and 2 in the column of ``transfer``.
        """
        times = merge_edges(start, end)
        until = self.phase_ns_until(times)
        spent: IntArray = until[np.searchsorted(times, end)] - until[np.searchsorted(times, start)]
        return spent


def build(
    lanes: Iterable[Lane], whole: tuple[int, int], window: tuple[int, int] | None = None
) -> tuple[list[RankTimeline], tuple[int, int]]:
    """Timelines of all ranks over the common analysis window.

    Args:
        lanes: Threads of all ranks.
        whole: First and last instant of the recording (ns).
        window: The analysis window; None takes the steps' own.

    Returns:
        The timelines by rank, and the window: first step's start to last step's end over all ranks,
        or the whole recording where no rank has steps.
    """
    by_rank: dict[int, list[ResolvedLane]] = {}
    for resolved in abreast(resolve, lanes):
        by_rank.setdefault(resolved.lane.rank, []).append(resolved)
    ranks = {rank: _main_first(threads) for rank, threads in sorted(by_rank.items())}
    steps = {rank: find_steps(resolved[0].lane) for rank, resolved in ranks.items()}
    window = window or _window(list(steps.values()), whole)
    return [_timeline(rank, ranks[rank], steps[rank], window) for rank in ranks], window


def find_steps(lane: Lane) -> Steps:
    """Step spans where the framework has them, else the extent of the spans that carry a step number."""
    mask = lane.called("step") & (lane.step >= 0)
    if not mask.any():
        mask = lane.step >= 0
    number, first = np.unique(lane.step[mask], return_index=True)
    end = np.zeros(len(number), np.int64)
    np.maximum.at(end, np.searchsorted(number, lane.step[mask]), lane.t1[mask])
    start = lane.t0[mask][first]
    order = np.argsort(start, kind="stable")
    return Steps(number[order], start[order], end[order])


def _main_first(lanes: list[ResolvedLane]) -> list[ResolvedLane]:
    """The thread that runs the steps first, then the others."""

    def weight(resolved: ResolvedLane) -> tuple[int, int]:
        lane = resolved.lane
        return int(lane.called("step").sum()), int((lane.t1 - lane.t0).sum())

    return sorted(lanes, key=weight, reverse=True)


def _window(steps: list[Steps], whole: tuple[int, int]) -> tuple[int, int]:
    starts = [int(s.t0.min()) for s in steps if len(s)]
    ends = [int(s.t1.max()) for s in steps if len(s)]
    if not starts or max(ends) <= min(starts):
        return whole
    return min(starts), max(ends)


def _timeline(rank: int, lanes: list[ResolvedLane], steps: Steps, window: tuple[int, int]) -> RankTimeline:
    edges, code = lanes[0].pieces()
    for other in lanes[1:]:
        edges, code = _under(edges, code, *other.pieces())
    edges, code = clip(edges, code, window)
    edges, code = _outside_steps(edges, code, steps)
    return RankTimeline(rank, lanes[0], steps, edges, code)


def _under(
    edges: IntArray, code: CodeArray, more: IntArray, more_code: CodeArray
) -> tuple[IntArray, CodeArray]:
    """Fill the main thread's unattributed time with what another thread (async rewards) does meanwhile."""
    joined = merge_edges(edges, more)
    mine = sample(edges, code, joined[:-1], phases.UNATTRIBUTED)
    theirs = sample(more, more_code, joined[:-1], phases.UNATTRIBUTED)
    return joined, np.where(mine != phases.UNATTRIBUTED, mine, theirs).astype(np.uint8)


def clip(edges: IntArray, code: CodeArray, window: tuple[int, int]) -> tuple[IntArray, CodeArray]:
    """The step function over exactly the window, ``unattributed`` where it says nothing."""
    if len(edges) > 1 and (edges[0], edges[-1]) == window:
        return edges, code.astype(np.uint8, copy=False)
    inside = edges[(edges > window[0]) & (edges < window[1])]
    out = np.concatenate([[window[0]], inside, [window[1]]]).astype(np.int64)
    return out, sample(edges, code, out[:-1], phases.UNATTRIBUTED).astype(np.uint8)


def _outside_steps(edges: IntArray, code: CodeArray, steps: Steps) -> tuple[IntArray, CodeArray]:
    """Unattributed time before a rank's own first step is startup, after its last is teardown."""
    if not len(steps):
        return edges, code
    first, last = steps.t0.min(), steps.t1.max()
    cuts = [t for t in (first, last) if edges[0] < t < edges[-1]]
    edges, code = _split(edges, code, np.asarray(cuts, np.int64))
    quiet = code == phases.UNATTRIBUTED
    code = np.where(quiet & (edges[1:] <= first), phases.CODE["startup"], code)
    return edges, np.where(quiet & (edges[:-1] >= last), phases.CODE["teardown"], code).astype(np.uint8)


def _split(edges: IntArray, code: CodeArray, cuts: IntArray) -> tuple[IntArray, CodeArray]:
    joined = merge_edges(edges, cuts)
    if len(joined) == len(edges):
        return edges, code
    return joined, sample(edges, code, joined[:-1], phases.UNATTRIBUTED).astype(np.uint8)


def paint(
    timeline: RankTimeline, starts: IntArray, ends: IntArray, code: int, *, over: bool = False
) -> RankTimeline:
    """Give disjoint intervals a phase where the rank is unattributed, or (``over``) in any phase but a wait."""
    edges, old = _split(timeline.edges, timeline.code, np.concatenate([starts, ends]))
    window = (timeline.edges[0], timeline.edges[-1])
    edges, old = clip(edges, old, (int(window[0]), int(window[1])))
    order = np.argsort(starts, kind="stable")
    at = piece_at(starts[order], edges[:-1])
    hit = (
        (at >= 0) & (edges[:-1] < ends[order][np.clip(at, 0, None)])
        if len(starts)
        else np.zeros(len(old), np.bool_)
    )
    free = ~np.isin(old, WAITS) if over else old == phases.UNATTRIBUTED
    new = np.where(hit & free, code, old).astype(np.uint8)
    return timeline.with_phases(edges, new)
