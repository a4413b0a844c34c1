"""Who waits for whom right now: barriers that some ranks have reached and others have not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis.live_frame import Awaited
from dipstick.analysis.timeline import paint
from dipstick.analysis.waits import keyed_ends, next_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.analysis.timeline import RankTimeline

GATHERS: tuple[str, ...] = (
    "gather", "gather_object", "gather_for_metrics", "wait_for_everyone", "all_gather_object", "broadcast_object_list",
    "barrier",
)  # fmt: skip
"""Calls that return only when all ranks have come (on the host: gloo, objects)."""
_NEVER = np.zeros(0, np.int64), np.zeros(0, np.int64)
SHORTEST_NS = 50_000_000
"""A shorter wait is nobody's fault: clocks and flushes agree to no less."""


def open_waits(
    ended: Sequence[RankTimeline], timelines: Sequence[RankTimeline], t: int
) -> tuple[list[RankTimeline], list[Awaited]]:
    """Barriers that are half reached at ``t``, and the timelines with those waits painted in.

    Worked example: rank 0 ended ``_calculate_rewards`` of step 7 at 12 s and has begun no phase since, rank 1 is still
    inside: at 15 s rank 0 has waited 3 s for rank 1 at ``reward``.

    Args:
        ended: Ranks by the spans that have ended: an arrival is an end.
        timelines: The same ranks with open spans cut at ``t``.
        t: Now (ns).
    """
    found = []
    painted = {timeline.rank: timeline for timeline in timelines}
    for barrier in phases.TRL_BARRIERS:
        awaited = _awaited(barrier, ended, painted, t)
        if awaited is not None:
            found.append(awaited)
            for rank, seconds in awaited.waiting:
                start = np.array([t - round(seconds * 1e9)], np.int64)
                code = phases.CODE[barrier.wait_phase]
                painted[rank] = paint(painted[rank], start, np.array([t], np.int64), code)
    return list(painted.values()), found


def _awaited(
    barrier: phases.Barrier, ended: Sequence[RankTimeline], now: Mapping[int, RankTimeline], t: int
) -> Awaited | None:
    training = [rank for rank, timeline in now.items() if len(timeline.steps)]
    keyed = dict.fromkeys(training, _NEVER)  # a rank that has ended nothing yet can be the late one
    keyed |= {e.rank: keyed_ends(e, barrier.arrive_at_end_of) for e in ended if e.rank in keyed}
    newest = {rank: int(keys[-1]) for rank, (keys, _) in keyed.items() if len(keys)}
    if not newest or len(keyed) < 2:  # noqa: PLR2004 - one rank has nobody to wait for
        return None
    key = max(newest.values())
    late = tuple(rank for rank in keyed if newest.get(rank, -1) < key)
    arrived = {rank: int(keyed[rank][1][-1]) for rank in keyed if newest.get(rank) == key}
    waiting = tuple(
        (rank, (t - at) / 1e9)
        for rank, at in arrived.items()
        if t - at >= SHORTEST_NS and int(next_span(now[rank], np.array([at], np.int64))[0]) >= t
    )
    if not late or not waiting:
        return None
    return Awaited(barrier.name, waiting, late, key >> 20, None)


def gathering(
    inside: Mapping[int, tuple[str, int]], steps: Mapping[int, int | None], t: int
) -> Awaited | None:
    """Ranks inside a call that gathers, while others are not: who is not there is waited for.

    Args:
        inside: By rank, the innermost open span and its start (ns); ranks without one are left out.
        steps: By rank, the step it is in.
        t: Now (ns).
    """
    there = {rank: at for rank, (name, at) in inside.items() if phases.short_name(name) in GATHERS}
    if not there or len(there) == len(steps):
        return None
    step = max((number for rank in there if (number := steps.get(rank)) is not None), default=None)
    late = tuple(rank for rank in steps if rank not in there)
    waiting = tuple((rank, (t - at) / 1e9) for rank, at in there.items() if t - at >= SHORTEST_NS)
    name = phases.short_name(inside[next(iter(there))][0])
    return Awaited(name, waiting, late, step, None) if waiting else None
