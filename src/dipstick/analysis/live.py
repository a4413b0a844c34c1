"""One instant of a run, worked out from a window around it: pure, the same for a run that records and for a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.intervals import sample
from dipstick.analysis.live_frame import Frame, RankNow
from dipstick.analysis.live_gpus import gpus_now, processes_now, recorder, tracks_of, with_gpus
from dipstick.analysis.live_steps import last_step
from dipstick.analysis.live_waits import gathering, open_waits
from dipstick.analysis.pipeline import find_gpus
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.timeline import build
from dipstick.analysis.waits import meet, paint_waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.analysis.live_frame import Awaited
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.recording.window import Window

    Opened = Mapping[int, tuple[str, int]]


def frame(window: Window) -> Frame:
    """The run at ``window.t_ns``.

    Args:
        window: From ``recording.live.LiveRun`` or ``recording.window.Replay``.
    """
    t, window = window.t_ns, _polled(window)
    spans = window.table("spans").filter(pl.col("t0_ns") < t)
    processes = with_gpus(window.table("processes"), window.table("gpu_process"))
    ended, timelines = _timelines(spans, processes, t)
    meetings = meet(ended)
    timelines, waits = open_waits(ended, paint_waits(timelines, meetings), t)
    gpus, _ = find_gpus(window, processes, timelines, _learned(window))
    opened = _opened(spans, processes, t)
    steps = _steps(spans, processes, [timeline.rank for timeline in timelines])
    ranks = tuple(_rank(timeline, window, opened, steps) for timeline in timelines)
    if not waits and (held := gathering(opened, steps, t)) is not None:
        waits = [held]
    return Frame(
        name=window.name,
        mode=window.mode,
        t_s=t / 1e9,
        last_s=window.last_ns / 1e9,
        step=max((r.step for r in ranks if r.step is not None), default=None),
        gpus=gpus_now(gpus, window),
        processes=() if gpus else processes_now(window, processes),
        ranks=ranks,
        waits=_longest_first(waits, ranks),
        last_step=last_step(ended, timelines, gpus),
        recorder=recorder(window),
        tracks=tracks_of(gpus, timelines),
    )


def _polled(window: Window) -> Window:
    """Without the driver's own samples where there are polls: those come in batches, seconds late."""
    polls = window.table("gpu").filter(pl.col("source").ne_missing("buffer"))
    return window if polls.is_empty() else replace(window, tables={**window.tables, "gpu": polls})


def _learned(window: Window) -> tuple[int, int]:
    """Where idle power is learned: all telemetry that is held."""
    return window.t_ns - 3600 * 10**9, window.t_ns


def _timelines(
    spans: pl.DataFrame, processes: pl.DataFrame, t: int
) -> tuple[list[RankTimeline], list[RankTimeline]]:
    """Ranks by the spans that have ended, and by all spans with those under way cut at ``t``."""
    start = spans["t0_ns"].min()
    if not isinstance(start, int):
        return [], []
    bounds = start, t
    over = spans.filter(pl.col("t1_ns") <= t)
    cut = spans.with_columns(pl.col("t1_ns").fill_null(t).clip(upper_bound=t))
    both = [
        [_unended(made) for made in build(read_lanes(part, processes)[0], bounds, bounds)[0]]
        for part in (over, cut)
    ]
    return both[0], both[1]


def _unended(timeline: RankTimeline) -> RankTimeline:
    """Without a teardown: after its last step a rank may be between two steps as well as at its end."""
    code = np.where(timeline.code == phases.CODE["teardown"], phases.UNATTRIBUTED, timeline.code)
    return timeline.with_phases(timeline.edges, code.astype(np.uint8))


def _under_way(spans: pl.DataFrame, t: int) -> pl.DataFrame:
    return spans.filter(pl.col("t1_ns").is_null() | (pl.col("t1_ns") > t))


def _opened(spans: pl.DataFrame, processes: pl.DataFrame, t: int) -> dict[int, tuple[str, int]]:
    """By rank, the innermost open span that is no step, and its start."""
    found: dict[int, tuple[str, int]] = {}
    for lane in read_lanes(_under_way(spans, t).with_columns(t1_ns=pl.lit(t, pl.Int64)), processes)[0]:
        for name, start in zip(lane.name.tolist(), lane.t0.tolist(), strict=True):
            if lane.names[name] != "step" and start >= found.get(lane.rank, ("", -1))[1]:
                found[lane.rank] = (lane.names[name], start)
    return found


def _steps(spans: pl.DataFrame, processes: pl.DataFrame, ranks: Sequence[int]) -> dict[int, int | None]:
    """By rank, the highest step that any of its spans carries."""
    found: dict[int, int | None] = dict.fromkeys(ranks)
    for lane in read_lanes(spans.with_columns(pl.col("t1_ns").fill_null(pl.col("t0_ns"))), processes)[0]:
        highest = int(lane.step.max(initial=-1))
        before = found.get(lane.rank)
        if lane.rank in found and highest >= 0:
            found[lane.rank] = highest if before is None else max(before, highest)
    return found


def _rank(timeline: RankTimeline, window: Window, opened: Opened, steps: Mapping[int, int | None]) -> RankNow:
    rank, t = timeline.rank, window.t_ns
    step = steps.get(rank)
    code, since = _phase_at(timeline, t)
    phase = None if code == phases.UNATTRIBUTED else phases.PHASES[code]
    begun = _step_start(timeline, step, t)
    sent, done = _jobs(window, rank, step)
    return RankNow(
        rank=rank,
        phase=phase,
        phase_s=None if since is None else (t - since) / 1e9,
        inside=opened[rank][0] if rank in opened else None,
        step=step,
        step_s=None if begun is None else (t - begun) / 1e9,
        jobs_sent=sent,
        jobs_done=done,
        last=None if phase is not None else _before(timeline),
    )


def _phase_at(timeline: RankTimeline, t: int) -> tuple[int, int | None]:
    """The phase at the last moment before ``t``, and since when it lasts."""
    at = np.array([t - 1], np.int64)
    code = int(sample(timeline.edges, timeline.code, at, phases.UNATTRIBUTED)[0])
    piece = int(np.searchsorted(timeline.edges, t - 1, side="right")) - 1
    while piece > 0 and timeline.code[piece - 1] == code:
        piece -= 1
    return code, int(timeline.edges[piece]) if piece >= 0 else None


def _before(timeline: RankTimeline) -> str | None:
    """The last phase that the rank was in."""
    known = timeline.code[timeline.code != phases.UNATTRIBUTED]
    return phases.PHASES[int(known[-1])] if len(known) else None


def _step_start(timeline: RankTimeline, step: int | None, t: int) -> int | None:
    """When the step under way began."""
    mine = timeline.steps.number == (-1 if step is None else step)
    starts = timeline.steps.t0[mine & (timeline.steps.t1 >= t)]
    return int(starts.min()) if len(starts) else None


def _jobs(window: Window, rank: int, step: int | None) -> tuple[int | None, int | None]:
    """Reward jobs of the rank's step: handed out, and ended."""
    if step is None:
        return None, None
    jobs, t = window.table("jobs"), window.t_ns
    begun = pl.col("submitted_ns").fill_null(pl.col("t0_ns"))
    mine = jobs.filter((pl.col("rank") == rank) & (pl.col("step") == step) & (begun <= t))
    if mine.is_empty():
        return None, None
    return mine.height, mine.filter(pl.col("t1_ns") <= t).height


def _longest_first(waits: Sequence[Awaited], ranks: Sequence[RankNow]) -> tuple[Awaited, ...]:
    """With the phase of the late ranks, where they agree."""
    doing = {rank.rank: rank.phase for rank in ranks}
    named = []
    for wait in waits:
        of_late = {doing.get(rank) for rank in wait.late}
        named.append(replace(wait, phase=of_late.pop() if len(of_late) == 1 else None))
    return tuple(sorted(named, key=lambda wait: -max(seconds for _, seconds in wait.waiting)))
