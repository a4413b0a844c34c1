"""GPUs, processes and the recorder itself at one instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dipstick.analysis.live_frame import Beat, GpuNow, ProcessNow, Recorder
from dipstick.analysis.states import CODE
from dipstick.model import HOLLOW_STATES, STATES, GpuTrack, RankTrack, Tracks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.pipeline import Gpu
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray
    from dipstick.recording.window import Window

RECENT_S = 10
STALE_NS = 3_000_000_000
"""A sample older than this (and than three periods) does not speak for now."""
FEWEST_BEATS = 5
MISSED_PERIODS = 1.5


def with_gpus(processes: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Who runs where: while a run goes on, the driver's word on each process (``gpu_process``) says it."""
    if used.is_empty() or not processes["gpu"].is_null().all():
        return processes
    main = (
        used.sort("mem_used_b", descending=True, nulls_last=True)
        .unique(["host", "pid"], keep="first", maintain_order=True)
        .select("host", "pid", pl.col("gpu").cast(pl.Int32).alias("seen"))
    )
    joined = processes.join(main, on=["host", "pid"], how="left", maintain_order="left")
    return joined.with_columns(gpu=pl.col("seen")).drop("seen")


def gpus_now(gpus: Sequence[Gpu], window: Window) -> tuple[GpuNow, ...]:
    """Each GPU's last sample, and its last seconds."""
    last = _last_values(window.table("gpu"), ("mem_used_b", "power_w"))
    totals = {
        (str(host or ""), gpu): total
        for host, gpu, total in window.table("gpus").select("host", "gpu", "mem_total_b").iter_rows()
    }
    return tuple(_gpu(gpu, window.t_ns, last.get(gpu.key, {}), totals.get(gpu.key)) for gpu in gpus)


def _gpu(gpu: Gpu, t: int, last: dict[str, Any], total: int | None) -> GpuNow:
    util, states = gpu.signals.util, gpu.states
    age = t - int(util.t1[-1])
    stale = age > max(STALE_NS, 3 * gpu.signals.period_ns)
    spent = states.totals(t - RECENT_S * 10**9, t)
    recorded = float(spent.sum())
    busy = recorded - float(spent[CODE["idle"]])
    hollow = sum(float(spent[CODE[name]]) for name in HOLLOW_STATES)
    return GpuNow(
        host=gpu.signals.host,
        gpu=gpu.signals.gpu,
        rank=gpu.rank,
        util_pct=None if stale else _finite(float(util.value[-1])),
        state=None if stale or not len(states.code) else STATES[int(states.code[-1])],
        busy_pct=100 * busy / recorded if recorded and not stale else None,
        hollow_pct=100 * hollow / recorded if recorded and not stale else None,
        mem_used_b=last.get("mem_used_b"),
        mem_total_b=total,
        power_w=None if stale else last.get("power_w"),
        stale_s=age / 1e9 if stale else None,
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _last_values(rows: pl.DataFrame, columns: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last known value of each column by GPU."""
    last = rows.group_by("host", "gpu").agg(pl.col(c).drop_nulls().last() for c in columns)
    return {
        (str(host or ""), int(gpu)): dict(zip(columns, values, strict=True))
        for host, gpu, *values in last.iter_rows()
        if gpu is not None
    }


def processes_now(window: Window, processes: pl.DataFrame) -> tuple[ProcessNow, ...]:
    """CPU time of the run's processes, ranks first, then the busiest."""
    recent = window.table("host_process").filter(pl.col("t_ns") > window.t_ns - STALE_NS)
    spent = recent.group_by("host", "pid").agg(
        pl.col("cpu_ms").sum(), pl.col("window_ns").sum(), pl.col("rss_b").drop_nulls().last()
    )
    known = {
        (host, pid): (role, rank)
        for host, pid, role, rank in processes.select("host", "pid", "role", "rank").iter_rows()
    }
    found = [
        ProcessNow(host or "", pid, *known.get((host, pid), (None, None)), 1e8 * cpu / width, rss)
        for host, pid, cpu, width, rss in spent.iter_rows()
        if width and cpu is not None
    ]
    return tuple(sorted(found, key=lambda p: (p.rank is None, p.rank, -p.cpu_pct, p.pid)))


def recorder(window: Window) -> Recorder:
    """Overhead from the recorder's own accounts, lateness from the stamps of the samples."""
    health = window.health
    shares = [_sampler_share(account) for account in health.samplers.values()]
    costs = [100 * p.cpu_s / p.wall_s for p in health.probes if p.wall_s]
    return Recorder(
        beats=_beats(window),
        sampler_cpu_pct=max((s for s in shares if s is not None), default=None),
        probe_pct=max(costs, default=None),
        dropped=health.dropped,
        capped=health.capped,
        quiet_s=None if window.sampled_ns is None else max(0.0, (window.t_ns - window.sampled_ns) / 1e9),
    )


def _sampler_share(account: Any) -> float | None:
    """Percent of one core, the start left out."""
    cpu, wall, start = (account.get(name) for name in ("cpu_s", "wall_s", "start_cpu_s"))
    if not isinstance(cpu, int | float) or not isinstance(wall, int | float) or wall <= 0:
        return None
    return max(0.0, 100 * (cpu - (start if isinstance(start, int | float) else 0.0)) / wall)


def _beats(window: Window) -> tuple[Beat, ...]:
    """One a host: from the polls of its first GPU, else from the stand-in."""
    polls = window.table("gpu").filter(pl.col("source") == "poll")
    rows = polls if not polls.is_empty() else window.table("host_process")
    found = []
    for (host,), part in rows.partition_by("host", maintain_order=True, as_dict=True).items():
        mine = part.filter(pl.col("gpu") == part["gpu"].min()) if "gpu" in part.columns else part
        made = beat(str(host or ""), np.unique(mine["t_ns"].to_numpy()))
        found += [made] if made is not None else []
    return tuple(found)


def beat(host: str, t: IntArray) -> Beat | None:
    """Lateness and missed polls from their stamps; None with fewer than ``FEWEST_BEATS``.

    The grid is the median distance; its origin is the earliest poll within its period. Stamps at 0.0, 0.1, 0.203,
    0.3, 0.5 s: 10 a second, 3 ms late at the most, one missed.

    Args:
        host: Whose.
        t: Stamps (ns), sorted, each once.
    """
    if len(t) < FEWEST_BEATS:
        return None
    distance = np.diff(t)
    period = float(np.median(distance))
    slots = np.concatenate([[0.0], np.cumsum(np.maximum(np.rint(distance / period), 1.0))])
    half = (
        len(t) // 2
    )  # the median distance is good to the stamps' jitter; that of pairs far apart to much less
    slope = float(np.median((t[half:] - t[: len(t) - half]) / (slots[half:] - slots[: len(t) - half])))
    late: FloatArray = (t - t[0]) - slots * slope
    late -= late.min()
    missed = int(np.sum(np.rint(distance[distance > MISSED_PERIODS * period] / period) - 1))
    late_ms = late / 1e6
    return Beat(
        host,
        1e9 / slope,
        float(late_ms.mean()),
        float(late_ms.max()),
        missed,
        float(t[-1] - t[0]) / 1e9,
    )


def tracks_of(gpus: Sequence[Gpu], timelines: Sequence[RankTimeline]) -> Tracks:
    """What a renderer draws."""
    ranks = tuple(
        RankTrack(t.rank, tuple(g.key for g in gpus if g.rank == t.rank), t.edges / 1e9, t.code)
        for t in timelines
    )
    drawn = tuple(
        GpuTrack(
            g.signals.host, g.signals.gpu, g.rank, g.states.windows.t0 / 1e9, g.states.windows.t1 / 1e9,
            g.states.active * 100, g.states.code,
        )
        for g in gpus
    )  # fmt: skip
    first = timelines[0].steps.t0 / 1e9 if timelines and len(timelines[0].steps) else np.zeros(0)
    return Tracks(drawn, ranks, first)
