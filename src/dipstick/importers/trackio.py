"""trackio's SQLite store: what the training logged, and its system metrics."""

from __future__ import annotations

import json
import re
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.gpu_rows import GpuRows
from dipstick.importers.run_choice import one_run
from dipstick.importers.sqlite_file import columns, has, opened
from dipstick.importers.text import fitting
from dipstick.importers.training_rows import LogRow, TrainingRows
from dipstick.importers.unix import unix_ns

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "trackio"
NAME: Final = "trackio store (SQLite)"

_METRICS: Final = {
    "utilization": ("util_pct", "%"), "memory_utilization": ("mem_util_pct", "%"),
    "allocated_memory": ("mem_used_b", "GiB"), "power": ("power_w", "W"), "temp": ("temp_c", "C"),
    "sm_clock": ("sm_mhz", "MHz"), "pcie_tx": ("pcie_tx_mib_s", "MiB/s"), "pcie_rx": ("pcie_rx_mib_s", "MiB/s"),
}  # fmt: skip
_KEY: Final = re.compile(r"gpu/(\d{1,4})/(\w+)")


def sniff(head: Head) -> float:
    """An SQLite file with trackio's table."""
    return 0.95 if not head.is_dir and has(head.path, "metrics", "run_name", "timestamp", "metrics") else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read one run of it.

    Raises:
        ImportFormatError: It is damaged, holds several runs and none was chosen, or nothing in it is known.
    """
    with opened(path) as base:
        key = "run_id" if "run_id" in columns(base, "metrics") else "run_name"
        run = one_run(_runs(base, key), options.run, str(path))
        rows, gpus = TrainingRows(sink, exact=False), GpuRows(sink, options, _system)
        for t_ns, counter, values in _rows(base, "metrics", key, run, sink):
            own = values.get("train/global_step")
            is_call = any(name.startswith("profiling/") for name in values)
            step = int(own) if own is not None and abs(own) < 2**53 else None if is_call else counter
            rows.add(LogRow(t_ns, step, values))
        for t_ns, _, values in _rows(base, "system_metrics", key, run, sink):
            gpus.add(t_ns, values)
        gpus.close()
        rows.close()
    check_bound(str(path), sink.account.bindings)
    sink.note(
        "info",
        f"{sink.file}: trackio sends rows in batches and stamps them when it does: times are late by an unknown part of a batch, and spans that end then are reconstructed",
    )


def _runs(base: sqlite3.Connection, key: str) -> dict[str, str]:
    """Name of each run by what tells it apart."""
    found: dict[str, str] = {}
    for table in ("metrics", "system_metrics"):
        if {key, "run_name"} <= set(columns(base, table)):
            found |= {
                str(k): str(n)
                for k, n in base.execute(f"SELECT DISTINCT {key}, run_name FROM {table} LIMIT 10000")  # noqa: S608 - our own names
            }
    return found


def _rows(
    base: sqlite3.Connection, table: str, key: str, run: str, sink: Sink
) -> Iterator[tuple[int, int | None, dict[str, float]]]:
    """Time, step and numbers of each row in the order of logging."""
    names = columns(base, table)
    if not {key, "timestamp", "metrics"} <= set(names):
        return
    step = "step" if "step" in names else "NULL"
    for stamp, at, data in base.execute(
        f"SELECT timestamp, {step}, metrics FROM {table} WHERE {key} = ? ORDER BY rowid",  # noqa: S608 - our own names
        (run,),
    ):
        sink.saw(1)
        t_ns, values = _stamp(stamp), _numbers(data)
        if t_ns is None or values is None:
            sink.drop("row whose time or JSON can't be read", 1)
            continue
        found = fitting(at, pl.Int64)
        yield t_ns, found if isinstance(found, int) else None, values


def _numbers(data: object) -> dict[str, float] | None:
    """Numbers of a row; trackio writes NaN and infinity as text, which are left out."""
    try:
        found: Any = json.loads(data) if isinstance(data, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {k: v for k, x in found.items() if isinstance(v := fitting(x, pl.Float64), float) and isfinite(v)}


def _stamp(text: object) -> int | None:
    """Nanoseconds of an ISO time; without a zone it is UTC."""
    try:
        return unix_ns(datetime.fromisoformat(str(text)))
    except (ValueError, OverflowError):
        return None


def _system(key: str) -> Binding:
    match = _KEY.fullmatch(key)
    if match is None or match[2] not in _METRICS:
        return Binding(
            key,
            sure="not used"
            if key.startswith(("gpu/", "cpu", "memory", "disk", "network"))
            else "unrecognised",
        )
    return Binding(key, *_METRICS[match[2]], gpu=int(match[1]))
