"""Who was working on a GPU around a spike, as far as the driver told: one load of the table for all spikes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.recording.reader import Recording

SLACK_NS = 1_000_000_000


def seen_running(
    recording: Recording, spikes: Sequence[tuple[str, int, float, float]]
) -> list[list[dict[str, Any]]]:
    """The processes that accessed memory within a second of each spike, the busiest first (ties by pid).

    Args:
        recording: With the ``gpu_process`` and ``processes`` tables.
        spikes: Host, GPU, start and end (seconds since start) of each: every host has a GPU 0, and a pid 7.

    Returns:
        For each spike the processes' pid, role (None where nobody recorded it) and highest ``mem_pct``.

    Example: pid 7 reads 20 and 60 % on GPU 0 at 9.5 and 10.2 s; the spike (its host, 0, 10.0, 10.5) was
    accompanied by ``{"pid": 7, "role": "cron", "mem_pct": 60.0}``.
    """
    around = [
        ((host, gpu), int(start * 1e9) - SLACK_NS, int(end * 1e9) + SLACK_NS)
        for host, gpu, start, end in spikes
    ]
    if not around:
        return []
    low, high = min(start for _, start, _ in around), max(end for _, _, end in around)
    seen = recording.table(
        "gpu_process", start_ns=low, end_ns=high, columns=["t_ns", "host", "gpu", "pid", "mem_pct"]
    ).with_columns(pl.col("host").cast(pl.String).fill_null(""))
    parts = seen.filter(pl.col("mem_pct") > 0).partition_by("host", "gpu", as_dict=True, maintain_order=True)
    known = recording.table("processes").select(
        pl.col("host").cast(pl.String).fill_null(""), "pid", pl.col("role").cast(pl.String)
    )
    roles: dict[str, dict[int, str | None]] = {}
    for host, pid, role in known.iter_rows():
        roles.setdefault(host, {})[pid] = role
    nobody = seen.clear()
    return [
        _busiest(parts.get(where, nobody), start, end, roles.get(where[0], {}))
        for where, start, end in around
    ]


def _busiest(rows: pl.DataFrame, start: int, end: int, roles: dict[int, str | None]) -> list[dict[str, Any]]:
    """Processes in the rows of ``[start, end)``; the rows are in time order."""
    first, stop = np.searchsorted(rows["t_ns"].to_numpy(), [start, end]).tolist()
    highest: dict[int, float] = {}
    for pid, percent in rows[first:stop].select("pid", "mem_pct").iter_rows():
        highest[pid] = max(percent, highest.get(pid, percent))
    ordered = sorted(highest.items(), key=lambda item: (-item[1], item[0]))
    return [{"pid": pid, "role": roles.get(pid), "mem_pct": percent} for pid, percent in ordered]
