"""Nsight Systems, exported with ``nsys export --type sqlite``: kernels, copies and NVTX ranges of all its processes.

Tables are made only for what was captured. Environment, users and command lines that the file also holds are not read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import polars as pl

from dipstick.importers.annotations import phase_of, step_of
from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.busy import COMM, COPY_BUS, COPY_DEVICE, WORK, Device, extent, is_communication
from dipstick.importers.gpu_trace import MOST_NAMES, Origin, write_devices
from dipstick.importers.sqlite_file import MAGIC, opened

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "nsight"
NAME: Final = "Nsight Systems export (nsys export --type sqlite)"

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RANGES: Final = "NVTX_EVENTS"
RANGE_TYPES: Final = (59, 60)
"""Push/pop and start/end ranges; others are marks and names."""
COPY_KINDS: Final = {
    1: "HtoD",
    2: "DtoH",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
"""``copyKind``; 11 to 13 are copies of unified memory."""
BATCH: Final = 50_000
LATEST_NS: Final = 10**18
LARGEST_DEVICE: Final = 1024
_SIGNS: Final = (
    b"TARGET_INFO_SESSION_START_TIME",
    b"META_DATA_EXPORT",
    b"CUPTI_ACTIVITY_KIND_",
    b"StringIds",
    b"ANALYSIS_DETAILS",
)


def sniff(head: Head) -> float:
    """An SQLite file whose schema (at its beginning) has tables of nsys."""
    if not head.raw.startswith(MAGIC):
        return 0.0
    return 0.95 if sum(sign in head.raw for sign in _SIGNS) >= 2 else 0.0  # noqa: PLR2004 - one name may be anyone's


@dataclass
class _Export:
    """The open database; only plain tables are read, and of them only columns that are there."""

    base: sqlite3.Connection
    columns: dict[str, set[str]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List the tables."""
        found = self.base.execute(
            "SELECT name FROM sqlite_master WHERE type='table' AND rootpage > 0"
        ).fetchall()
        for (name,) in found:
            if isinstance(name, str) and name.isidentifier() and not name.startswith("ENUM_"):
                info = self.base.execute(f'PRAGMA table_info("{name}")').fetchall()
                self.columns[name] = {row[1] for row in info}

    def rows(self, table: str, *wanted: str) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of the columns; null where the table has no such column; nothing without the table."""
        if table not in self.columns:
            return
        listed = ", ".join(f'"{c}"' if c in self.columns[table] else "NULL" for c in wanted)
        cursor = self.base.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - names are our own
        while batch := cursor.fetchmany(BATCH):
            yield batch

    def text(self, number: object) -> str:
        """A string by its id; empty where there is none."""
        if not _fits(number):
            return ""
        known = self.names.get(number)
        if known is None:
            row = None
            if {"id", "value"} <= self.columns.get("StringIds", set()):
                row = self.base.execute(
                    "SELECT substr(value, 1, 500) FROM StringIds WHERE id = ?", (number,)
                ).fetchone()
            known = str(row[0]) if row and row[0] is not None else ""
            if len(self.names) < MOST_NAMES:
                self.names[number] = known
        return known

    def start_ns(self) -> int | None:
        """Unix time of the session's start; None in old exports, and where several sessions disagree."""
        found = {
            row[0] for batch in self.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs") for row in batch[:2]
        }
        start = found.pop() if len(found) == 1 else None
        return start if _fits(start) and start > LATEST_NS // 1000 else None


@dataclass
class _Reading:
    """What is gathered; times are ns since the session's start."""

    devices: dict[int, Device] = field(default_factory=dict)
    owners: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    phases: dict[str, str | None] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    has_comm: bool = False


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read kernels, copies, CUDA graphs and NVTX ranges.

    Raises:
        ImportFormatError: It is no database, is damaged, or holds neither GPU activity nor ranges.
    """
    del options
    again = "Export it again: nsys export --type sqlite FILE.nsys-rep."
    with opened(path, "the database can't be read", again) as base:
        _read(_Export(base), path, sink)


def _read(export: _Export, path: Path, sink: Sink) -> None:
    origin = export.start_ns()
    sink.clock("unix" if origin is not None else "relative")
    base, reading = origin or 0, _Reading()
    _kernels(export, reading, base, sink)
    _copies(export, reading, sink)
    _ranges(export, reading, base, sink)
    bindings = _bindings(export, reading)
    check_bound(str(path), bindings)
    sink.bind(*bindings)
    found = extent(list(reading.devices.values()))
    ends = [*reading.ends, *(found or ())]
    write_devices(
        sink, reading.devices, (min(ends), max(ends)) if ends else None, Origin(base, cards=_cards(export))
    )
    _processes(reading, sink)
    sink.progress(path.stat().st_size)


def _kernels(export: _Export, reading: _Reading, base: int, sink: Sink) -> None:
    """Kernels, and whole CUDA graphs where the profiler recorded only those."""
    for batch in export.rows(KERNELS, "start", "end", "deviceId", "demangledName", "globalPid", "shortName"):
        comms = []
        for start, end, device, long_id, pid, short_id in batch:
            name = export.text(long_id) or export.text(short_id)
            comm = is_communication(name)
            if _add(reading, COMM if comm else WORK, start, end, device) is not None:
                reading.owners[device, _pid(pid)] += 1
                if comm:
                    comms.append((name, _pid(pid), start + base, end + base, (end - start) / 1e6))
        reading.has_comm |= bool(comms)
        types = {
            "name": pl.String,
            "pid": pl.Int64,
            "entered_ns": pl.Int64,
            "left_ns": pl.Int64,
            "device_ms": pl.Float64,
        }
        rows = pl.DataFrame(comms, schema=types, orient="row")
        sink.rows("collectives", rows.with_columns(pl.lit("kernel").alias("source")))
        _count(sink, batch)
    for batch in export.rows(GRAPHS, "start", "end", "deviceId", "globalPid"):
        for start, end, device, pid in batch:
            if _add(reading, WORK, start, end, device) is not None:
                reading.owners[device, _pid(pid)] += 1
        _count(sink, batch)
    if GRAPHS in export.columns:
        sink.note("warning", f"{sink.file}: CUDA graphs were recorded as a whole and count as work, also where they wait for "
                  "other ranks; record with --cuda-graph-trace=node to tell them apart")  # fmt: skip


def _copies(export: _Export, reading: _Reading, sink: Sink) -> None:
    for batch in export.rows(COPIES, "start", "end", "deviceId", "copyKind", "bytes"):
        for start, end, device, kind, size in batch:
            way = COPY_KINDS.get(kind, "other") if _fits(kind) else "other"
            one = _add(reading, COPY_BUS if "H" in way else COPY_DEVICE, start, end, device)
            if one is not None:
                one.copies[way] += 1
                one.bytes_b[way] += size if _fits(size) else 0
        _count(sink, batch)
    for batch in export.rows(SETS, "start", "end", "deviceId"):
        for start, end, device in batch:
            _add(reading, COPY_DEVICE, start, end, device)
        _count(sink, batch)


def _add(reading: _Reading, kind: int, start: Any, end: Any, device: Any) -> Device | None:
    if not (_lasts(start, end) and _fits(device) and device <= LARGEST_DEVICE):
        return None
    one = reading.devices.setdefault(device, Device())
    one.add(kind, start, end)
    return one


def _count(sink: Sink, batch: list[tuple[Any, ...]]) -> None:
    """Rows (start, end, device ...) seen, and those that no GPU or time can be given."""
    bad = sum(not (_lasts(r[0], r[1]) and _fits(r[2]) and r[2] <= LARGEST_DEVICE) for r in batch)
    sink.saw(len(batch))
    sink.drop("an activity without a start, end or GPU", bad)


def _ranges(export: _Export, reading: _Reading, base: int, sink: Sink) -> None:
    types = {"pid": pl.Int64, "tid": pl.Int64, "t0_ns": pl.Int64, "t1_ns": pl.Int64, "name": pl.String, "phase": pl.String,
             "step": pl.Int64, "origin": pl.String}  # fmt: skip
    for batch in export.rows(RANGES, "start", "end", "text", "textId", "eventType", "globalTid"):
        ranges = [row for row in batch if row[4] in RANGE_TYPES]
        spans = [span for row in ranges if (span := _span(export, reading, row, base)) is not None]
        sink.rows("spans", pl.DataFrame(spans, schema=types, orient="row"))
        sink.saw(len(batch))
        sink.drop("an NVTX mark or name, not a range", len(batch) - len(ranges))
        sink.drop("an NVTX range without a name, start or end", len(ranges) - len(spans))


def _span(export: _Export, reading: _Reading, row: tuple[Any, ...], base: int) -> tuple[Any, ...] | None:
    start, end, text, text_id, _, thread = row
    name = text[:500] if isinstance(text, str) else export.text(text_id)
    if not name or not _lasts(start, end):
        return None
    step, phase = step_of(name), phase_of(name)
    shown = name if step is None else "step"
    if len(reading.phases) < MOST_NAMES:
        reading.phases[shown if step is None else "(step N)"] = phase
    reading.ends = [min([start, *reading.ends]), max([end, *reading.ends])]
    tid = thread & 0xFFFFFF if _fits(thread) else None
    return _pid(thread), tid, start + base, end + base, shown, phase, step, "measured"


def _processes(reading: _Reading, sink: Sink) -> None:
    """The process with most kernels of each GPU is taken for its rank."""
    rows: list[tuple[Any, ...]] = []
    taken = set[int]()
    for (device, pid), _ in reading.owners.most_common():
        if pid and device not in taken and pid not in {row[0] for row in rows}:
            taken.add(device)
            rows.append((pid, device, device, "trainer", "trace"))
    if rows:
        types = {"pid": pl.Int64, "rank": pl.Int32, "gpu": pl.Int32, "role": pl.String, "source": pl.String}
        sink.rows("processes", pl.DataFrame(rows, schema=types, orient="row"))
        sink.bind(
            Binding("globalPid", "pid", "", "likely", "the process with most kernels of a GPU is its rank")
        )


def _cards(export: _Export) -> list[dict[str, Any]]:
    """Name and memory by CUDA ordinal."""
    found: dict[int, dict[str, Any]] = {}
    for batch in export.rows("TARGET_INFO_GPU", "cuDevice", "id", "name", "totalMemory"):
        for device, number, name, memory in batch:
            at = device if _fits(device) else number
            if _fits(at) and at <= LARGEST_DEVICE:
                found[at] = {"name": name, "totalGlobalMem": memory}
    return [found.get(i, {}) for i in range(max(found, default=-1) + 1)]


def _bindings(export: _Export, reading: _Reading) -> list[Binding]:
    found = []
    if reading.devices:
        found.append(
            Binding("kernels, memcpy, memset", "kernel activity", why="union over streams and processes")
        )
    if reading.has_comm:
        found.append(Binding("kernels named nccl…", "collective", sure="likely", why="by the kernels' names"))
    for name, phase in sorted(reading.phases.items())[:200]:
        if phase or name == "(step N)":
            says = "step" if phase is None else f"span, phase {phase}"
            found.append(Binding(name[:120], says, sure="likely", why="by its name"))
        else:
            found.append(Binding(name[:120], "span", why="part of the range around it"))
    if "GPU_METRICS" in export.columns:
        found.append(Binding("GPU_METRICS", sure="not used", why="kernels say exactly what ran"))
    return found


def _pid(number: object) -> int | None:
    """The process of a globalPid or globalTid."""
    return (number >> 24) & 0xFFFFFF if _fits(number) else None


def _fits(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 2**63


def _lasts(start: object, end: object) -> bool:
    return _fits(start) and _fits(end) and start <= end < LATEST_NS
