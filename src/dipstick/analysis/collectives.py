"""Waits inside recorded ``torch.distributed`` calls, beside those that the spans show.

A rank that has entered a collective waits until the last rank has (methods 2.1: release = last arrival). Whether the
host or the device does that waiting is seen, not assumed:

* *Host* (gloo, object gathers, barriers): nobody leaves before the last has entered, and all leave together. Those waits
  become ``collective_wait``, also inside a named phase: a rank that is in a barrier of its checkpoint isn't saving.
* *Device* (NCCL): the host leaves at once. The device's own milliseconds differ by the wait; the least is the transfer.
  The host works on meanwhile, so these seconds lie beside the host's phases and are never added to them.

The n-th call of a name in a step is the same on every rank where all have equally many. The recording doesn't say which
ranks a call is for, nor which is the source: calls of a part of the ranks, and one-to-all or all-to-one calls, fail the
test of leaving together and are left out; so is a call that begins during another of its process. Calls that DDP makes in C++ are not recorded at all.
Rows that are kernels of a trace are no calls of a host: ``kernel_collectives`` splits them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.kernel_collectives import KERNEL
from dipstick.analysis.spans import of_ranks
from dipstick.analysis.timeline import WAITS, paint
from dipstick.analysis.waits import Meetings, late_because

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray

SHORTEST_NS: Final = 1_000_000
"""A shorter wait is nobody's fault: handing a kernel over takes half of that."""
APART: Final = 0.5
"""Ranks that leave further apart than this share of the longest wait did not leave together."""
WAIT: Final = "collective_wait"


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one name, matched across ranks: K calls, R ranks.

    Attributes:
        name: ``all_reduce``.
        ranks: (R,) who took part.
        step: (K,) step number.
        entered: (K, R) when the host entered (ns).
        left: (K, R) when it left (ns).
        device_ms: (K, R) the device's time; NaN where it wasn't recorded.
    """

    name: str
    ranks: tuple[int, ...]
    step: IntArray
    entered: IntArray
    left: IntArray
    device_ms: FloatArray


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """Seconds that one rank's device waited inside one kind of collective; not part of any host phase's sum."""

    rank: int
    name: str
    seconds: float
    count: int


def match(
    timelines: Sequence[RankTimeline], collectives: pl.DataFrame, processes: pl.DataFrame
) -> list[Calls]:
    """The calls that all ranks with steps made equally often in a step, by name.

    Args:
        timelines: Ranks; those without steps take no part.
        collectives: The recorded table (times in ns since start).
        processes: The recorded table: reward workers inherit a rank and are not it.
    """
    present = [t for t in timelines if len(t.steps)]
    if len(present) < 2 or collectives.is_empty():  # noqa: PLR2004 - one rank has nobody to wait for
        return []
    hosts = collectives.filter(pl.col("source").cast(pl.String).ne_missing(KERNEL))
    rows = of_ranks(hosts, processes).drop_nulls(["entered_ns", "left_ns"])
    keyed = pl.concat([_keyed(t, rows.filter(pl.col("rank") == t.rank)) for t in present])
    same = pl.col("rank").n_unique().over("name", "step", "nth") == len(present)
    groups = keyed.with_columns(same.alias("same")).filter(pl.col("same").all().over("name", "step"))
    ranks = tuple(t.rank for t in present)
    return [_calls(str(name), ranks, part) for (name,), part in groups.group_by("name", maintain_order=True)]


def _keyed(timeline: RankTimeline, rows: pl.DataFrame) -> pl.DataFrame:
    """One rank's calls inside the window and its steps, numbered by name within each step."""
    if timeline.main.lane.pid is not None:
        rows = rows.filter(pl.col("pid").is_null() | (pl.col("pid") == timeline.main.lane.pid))
    rows = rows.sort("entered_ns")
    under_way = pl.col("left_ns").cum_max().shift(1) > pl.col(
        "entered_ns"
    )  # another thread's: whose, nobody knows
    rows = rows.filter(~under_way.fill_null(value=False))
    entered = rows["entered_ns"].to_numpy()
    position = np.searchsorted(timeline.steps.t0, entered, side="right") - 1
    inside = (
        (position >= 0) & (entered >= timeline.edges[0]) & (rows["left_ns"].to_numpy() <= timeline.edges[-1])
    )
    columns = (
        pl.col("name").cast(pl.String),
        pl.col("rank").cast(pl.Int64),
        "entered_ns",
        "left_ns",
        "device_ms",
    )
    found = rows.select(*columns, pl.Series("step", timeline.steps.number[position], pl.Int64)).filter(inside)
    return found.with_columns(pl.int_range(pl.len()).over("name", "step").alias("nth"))


def _calls(name: str, ranks: tuple[int, ...], part: pl.DataFrame) -> Calls:
    ordered = part.sort(["step", "nth", pl.col("rank").replace_strict(ranks, range(len(ranks)))])

    def grid(column: str) -> npt.NDArray[np.generic]:
        return ordered[column].to_numpy().reshape(-1, len(ranks))

    device = grid("device_ms").astype(np.float64)
    step = grid("step")[:, 0].astype(np.int64)
    return Calls(
        name, ranks, step, grid("entered_ns").astype(np.int64), grid("left_ns").astype(np.int64), device
    )


def host_meetings(timelines: Sequence[RankTimeline], calls: Sequence[Calls]) -> list[Meetings]:
    """Calls in which the hosts waited for each other; nothing is painted yet."""
    found = []
    for one in calls:
        release = one.entered.max(axis=1)
        longest = release - one.entered.min(axis=1)
        spread = one.left.max(axis=1) - one.left.min(axis=1)
        met = (one.left.min(axis=1) >= release) & (longest >= SHORTEST_NS) & (spread <= APART * longest)
        if met.any():
            found.append((one.name, one.ranks, one.step[met], one.entered[met]))
    present = [t for t in timelines if len(t.steps)]
    releases = (
        np.sort(np.concatenate([at.max(axis=1) for *_, at in found])) if found else np.zeros(0, np.int64)
    )
    return [_meeting(present, name, ranks, step, at, releases) for name, ranks, step, at in found]


def _meeting(
    timelines: Sequence[RankTimeline], name: str, ranks: tuple[int, ...], step: IntArray, at: IntArray,
    releases: IntArray,
) -> Meetings:  # fmt: skip
    release, last = at.max(axis=1), at.argmax(axis=1)
    before = np.searchsorted(releases, at.min(axis=1), side="right") - 1
    since = np.where(before >= 0, releases[np.clip(before, 0, None)], timelines[0].edges[0])
    barrier = phases.Barrier(name, name, WAIT)
    ends = np.repeat(release[:, None], len(ranks), axis=1)
    return Meetings(barrier, ranks, step, at, release, last, ends, late_because(timelines, at, last, since))


def add_collectives(
    timelines: Sequence[RankTimeline], meetings: Sequence[Meetings], calls: Sequence[Calls]
) -> tuple[list[RankTimeline], list[Meetings]]:
    """Timelines and meetings with the hosts' waits at collectives.

    What a barrier of the spans already counts stays there, so that every nanosecond is counted once.

    Args:
        timelines: Ranks with the spans' waits painted in.
        meetings: Those waits.
        calls: What ``match`` found.
    """
    found, added = list(timelines), []
    for meeting in host_meetings(timelines, calls):
        counted = np.zeros_like(meeting.arrival)
        for column, rank in enumerate(meeting.ranks):
            row = next(i for i, t in enumerate(found) if t.rank == rank)
            found[row], counted[:, column] = _painted(found[row], meeting.arrival[:, column], meeting.release)
        added.append(replace(meeting, counted=counted))
    told = sum(int(m.waits_ns().sum()) for m in added)
    assert told == _waited_ns(found) - _waited_ns(timelines), "a collective's wait was counted twice"  # noqa: S101 - asserted promise
    return found, [*meetings, *added]


def _painted(timeline: RankTimeline, start: IntArray, end: IntArray) -> tuple[RankTimeline, IntArray]:
    """The rank with these waits, and how much of each (K,) was no wait before."""
    waited = end > start
    after = paint(timeline, start[waited], end[waited], phases.CODE[WAIT], over=True)
    new = _wait_ns(after, start, end) - _wait_ns(timeline, start, end)
    return after, np.where(waited, new, 0)


def _wait_ns(timeline: RankTimeline, start: IntArray, end: IntArray) -> IntArray:
    waits: IntArray = timeline.phase_ns_in(start, end)[:, WAITS].sum(axis=1)
    return waits


def _waited_ns(timelines: Sequence[RankTimeline]) -> int:
    return sum(int(t.seconds_ns()[WAITS].sum()) for t in timelines)


def device_waits(calls: Sequence[Calls]) -> tuple[DeviceWait, ...]:
    """Seconds that devices waited where hosts did not, longest first: own time less the least of any rank.

    Example: an all_reduce of 1,000 ms on rank 0 and 2 ms on rank 1 is 0.998 s that rank 0's GPU waited, at 100 % utilization.
    """
    rows = []
    for one in calls:
        left_early = one.left.min(axis=1) < one.entered.max(axis=1)
        known = ~np.isnan(one.device_ms).any(axis=1)
        at = one.device_ms[left_early & known]
        waited = at - at.min(axis=1, keepdims=True) if len(at) else at
        long = waited * 1e6 >= SHORTEST_NS
        for column, rank in enumerate(one.ranks):
            mine = waited[long[:, column], column]
            if len(mine):
                rows.append(DeviceWait(rank, one.name, float(mine.sum()) / 1e3, len(mine)))
    return tuple(sorted(rows, key=lambda row: -row.seconds))
