"""Hand-made records, in seconds, so that a test reads as the story it tells.

``span("vLLM.generate", 0, 4)`` is a row of the spans table; ``memory(spans=[...], gpu=[...])`` is a recording of
such rows that never touches a disk; ``on_disk`` writes the same rows through the real writer and reads them back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from dipstick.model import Overhead
from dipstick.recording.reader import open_recording
from dipstick.recording.rows import to_frame
from dipstick.recording.schema import TABLES
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dipstick.model import IntArray, Note
    from dipstick.recording.reader import Recording

Row = dict[str, Any]
HOST = "node1"
UNIX_NS = 1_796_053_319_000_000_000
"""Where t = 0 lies when rows are written to disk."""


def ns(seconds: float) -> int:
    """Seconds as integer nanoseconds."""
    return round(seconds * 1e9)


def near(expected: Any, **tolerance: Any) -> Any:
    """``pytest.approx`` that a type checker lets one compare inside tuples and lists."""
    return pytest.approx(expected, **tolerance)


def times(*seconds: float) -> IntArray:
    """Seconds as an array of nanoseconds."""
    return np.array([ns(s) for s in seconds], np.int64)


def table(name: str, rows: Iterable[Row] = ()) -> pl.DataFrame:
    """Rows as the reader would hand them out: the table's types, missing columns null."""
    listed = list(rows)
    frame = to_frame(name, listed)
    return frame if listed else frame.clear()


def span(
    name: str, start: float, end: float, *, rank: int | None = 0, step: int | None = None, **more: Any
) -> Row:
    """A span of a rank's main thread (process 900 + rank)."""
    pid = 900 + (rank or 0)
    return {
        "host": HOST,
        "pid": pid,
        "rank": rank,
        "t0_ns": ns(start),
        "t1_ns": ns(end),
        "name": name,
        "step": step,
    } | more


def cycle(rank: int, step: int, start: float, lengths: tuple[float, float, float, float]) -> list[Row]:
    """One GRPO step as TRL nests it: generate, rewards, a stretch without spans (the wait), backward.

    ``cycle(0, 0, 0.0, (4, 3, 2, 1))``: generate [0, 4), rewards [4, 7), nothing until 9, backward [9, 10).
    """
    generated, rewarded, resumed, end = (start + float(sum(lengths[:k])) for k in (1, 2, 3, 4))
    return [
        span("step", start, end, rank=rank, step=step),
        span("GRPOTrainer._prepare_inputs", start, resumed, rank=rank, step=step),
        span("GRPOTrainer.vLLM.generate", start, generated, rank=rank, step=step),
        span("GRPOTrainer._calculate_rewards", generated, rewarded, rank=rank, step=step),
        span("backward", resumed, end, rank=rank, step=step),
    ]


def job(name: str, start: float, end: float, *, rank: int = 0, pid: int = 1000, step: int = 0) -> Row:
    """A reward job that was submitted when it started."""
    return {
        "host": HOST, "rank": rank, "pid": pid, "job": name, "step": step,
        "submitted_ns": ns(start), "t0_ns": ns(start), "t1_ns": ns(end),
    }  # fmt: skip


def process(pid: int, *, rank: int | None, gpu: int | None, host: str = HOST, role: str = "trainer") -> Row:
    """Which rank and GPU a process has."""
    return {"host": host, "pid": pid, "rank": rank, "gpu": gpu, "role": role}


def utilization(
    percent: Sequence[float], *, gpu: int = 0, start: float = 0.0, period: float = 0.2, **columns: Any
) -> list[Row]:
    """Utilization samples of one GPU, one each ``period``; sample i is stamped at the end of its window.

    More columns are given once for all rows (``power_w=120.0``) or as one list.
    """
    fixed: Row = {"host": HOST, "gpu": gpu, "window_ns": ns(period), "source": "buffer"}
    rows: list[Row] = []
    for i, value in enumerate(percent):
        more = {name: v[i] if isinstance(v, list) else v for name, v in columns.items()}
        rows.append(fixed | {"t_ns": ns(start + (i + 1) * period), "util_pct": value} | more)
    return rows


def counters(
    sm: Sequence[float], *, gpu: int = 0, start: float = 0.0, period: float = 0.2, **columns: Any
) -> list[Row]:
    """Profiling counters of one GPU over the same windows; what is not given reads 0, ``None`` is not measured."""
    quiet: Row = dict.fromkeys(
        (
            "tensor_active_pct",
            "dram_active_pct",
            "pcie_rx_mib_s",
            "pcie_tx_mib_s",
            "nvlink_rx_mib_s",
            "nvlink_tx_mib_s",
        ),
        0.0,
    )
    rows: list[Row] = []
    for i, value in enumerate(sm):
        more = {name: v[i] if isinstance(v, list) else v for name, v in columns.items()}
        when: Row = {"host": HOST, "gpu": gpu, "t_ns": ns(start + (i + 1) * period), "window_ns": ns(period)}
        rows.append(quiet | when | {"sm_active_pct": value} | more)
    return rows


def boxcar(busy: Sequence[tuple[float, float]], seconds: float, *, period: float = 0.2) -> list[float]:
    """What ``utilization.gpu`` reads of a GPU that is busy during these intervals: the percent of each window."""
    means = []
    for i in range(math.ceil(seconds / period - 1e-9)):
        left, right = i * period, (i + 1) * period
        inside = sum(max(0.0, min(b, right) - max(a, left)) for a, b in busy)
        means.append(100 * inside / period)
    return means


@dataclass
class MemoryRecording:
    """What analyses use of a recording, over tables in memory (times are already relative)."""

    tables: dict[str, pl.DataFrame]
    start_unix_ns: int
    end_unix_ns: int
    path: Path = Path("memory")
    name: str = "memory"
    notes: tuple[Note, ...] = ()
    manifest: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(origin="imported"))
    overhead: Overhead = field(default_factory=lambda: Overhead(because="it is in memory"))

    def table(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """The table, empty with its full schema if there are no rows; instants can be limited to ``[start, end)``."""
        frame = self.tables.get(name, table(name))
        if start_ns is not None and end_ns is not None:
            frame = frame.filter((frame["t_ns"] >= start_ns) & (frame["t_ns"] < end_ns))
        return frame if columns is None else frame.select(columns)

    def scan(self, name: str) -> pl.LazyFrame:
        """The same rows, lazily."""
        return self.table(name).lazy()

    def has_values(self, name: str, column: str, among: Sequence[str] = ()) -> bool:
        """Whether any row has the column, or one of these values in it."""
        cells = self.table(name)[column]
        return bool((cells.cast(pl.String).is_in(among) if among else cells.is_not_null()).any())

    def has(self, name: str) -> bool:
        """Whether the table holds rows."""
        return not self.table(name).is_empty()


def _ends(rows: Iterable[Row]) -> Iterator[int]:
    for row in rows:
        yield from (row[c] for c in ("t_ns", "t1_ns", "left_ns") if row.get(c) is not None)


def memory(**rows: Sequence[Row]) -> Recording:
    """A recording in memory: ``memory(spans=[...], gpu=[...])``; it ends with its last row."""
    end = max((t for part in rows.values() for t in _ends(part)), default=0)
    tables = {name: table(name, part) for name, part in rows.items()}
    return cast("Recording", MemoryRecording(tables, UNIX_NS, UNIX_NS + end))


def without(recording: Recording, *gone: str) -> Recording:
    """The same recording as if these tables had never been recorded."""
    tables = {name: recording.table(name) for name in TABLES if name not in gone}
    return cast(
        "Recording",
        MemoryRecording(tables, recording.start_unix_ns, recording.end_unix_ns, notes=recording.notes),
    )


def on_disk(folder: Path, **rows: Sequence[Row]) -> Recording:
    """The rows written by the real writer at ``UNIX_NS`` and opened again."""
    with RecordingWriter.create(folder, origin="imported", host=HOST, created_unix_ns=UNIX_NS) as writer:
        for name, part in rows.items():
            writer.append(name, moved(part))
    return open_recording(folder)


def moved(rows: Iterable[Row]) -> list[Row]:
    """Rows in Unix time, as writers take them."""
    return [{c: v + UNIX_NS if _is_time(c, v) else v for c, v in row.items()} for row in rows]


def _is_time(column: str, value: Any) -> bool:
    return column in {"t_ns", "t0_ns", "t1_ns", "submitted_ns", "entered_ns", "left_ns"} and value is not None
