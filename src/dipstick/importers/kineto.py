"""PyTorch profiler (Kineto) Chrome traces, ``*.pt.trace.json[.gz]``: one file a rank.

As libkineto/src/output_json.cpp writes them: ``ts`` and ``dur`` are microseconds, Unix time where the file has
no ``baseTimeNanoseconds``. All ranks' times are their hosts' wall clocks.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import polars as pl

from dipstick.importers.annotations import phase_of, step_of
from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.busy import COMM, COPY_BUS, COPY_DEVICE, WORK, Device, extent, is_communication
from dipstick.importers.gpu_trace import MOST_NAMES, Origin, write_devices

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.json_events import Event, TraceFile
    from dipstick.importers.options import Options

FORMAT: Final = "kineto"
NAME: Final = "PyTorch profiler trace (Kineto, *.pt.trace.json[.gz])"

GPU_KINDS: Final = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "set", "Memset": "set",
}  # fmt: skip
RANGES: Final = ("user_annotation",)
UNIX_US: Final = (1e15, 4e15)
"""Microseconds that are Unix time: 2001 to 2096."""
LATEST_US: Final = 4e15
MOST_DEVICES: Final = 1024
_DIRECTION: Final = re.compile(r"\b(?:Memcpy|Copy)\s+([HDPA]to[HDPA])\b")
_WORKER: Final = re.compile(r"(?P<host>.+)_\d+\.\d+\.pt\.trace\.json(?:\.gz)?")


def sniff(head: Head) -> float:
    """It has ``traceEvents`` with what Kineto writes beside or inside; a bare list of its events will do."""
    text = head.text.lstrip()
    if not text.startswith(("{", "[")):
        return 0.0
    signs = ('"schemaVersion"', '"deviceProperties"', '"distributedInfo"', '"baseTimeNanoseconds"',
             '"cpu_op"', '"user_annotation"', '"cuda_runtime"', '"kernel"', '"traceName"')  # fmt: skip
    known = any(sign in text for sign in signs)
    if '"traceEvents"' in text:
        return 0.95 if known else 0.4
    named = ".pt.trace.json" in head.path.name
    return 0.9 if known and ('"ph"' in text or named) else 0.0


@dataclass
class _Reading:
    """What is gathered from one file. Times are ns on the file's own zero (``base`` is added when rows are written)."""

    devices: dict[int, Device] = field(default_factory=dict)
    spans: list[tuple[Any, ...]] = field(default_factory=list)
    comms: list[tuple[Any, ...]] = field(default_factory=list)
    names: dict[str, tuple[str | None, int | None]] = field(default_factory=dict)
    comm_names: dict[str, bool] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Sort one complete event in."""
        kind = GPU_KINDS.get(event.cat) if type(event.cat) is str else None
        if kind is None and event.cat not in RANGES:
            return
        ts, dur = event.ts, event.dur
        if not (_is_number(ts) and _is_number(dur) and dur >= 0 and abs(ts) + dur < LATEST_US):
            self.dropped["an event without a start or length"] += 1
            return
        start = round(ts * 1000)
        end = start + round(dur * 1000)
        if not isinstance(event.name, str):
            self.dropped["an event without a name"] += 1
        elif kind is None:
            self._range(event, start, end)
        else:
            self._activity(kind, event, start, end)

    def _range(self, event: Event, start: int, end: int) -> None:
        name = event.name
        if name not in self.names and len(self.names) < MOST_NAMES:
            self.names[name] = (phase_of(name), step_of(name))
        phase, step = self.names.get(name, (None, None))
        pid = event.pid if _is_id(event.pid) else None
        if pid is not None:
            self.pids[pid] += 1
        tid = event.tid if _is_id(event.tid) else None
        if step is not None:
            self.steps += [start, end]
        self.spans.append((pid, tid, start, end, "step" if step is not None else name, phase, step))

    def _activity(self, kind: str, event: Event, start: int, end: int) -> None:
        args = event.args
        index = args.device if args is not None and args.device is not None else event.pid
        if not _is_id(index) or index >= MOST_DEVICES:
            self.dropped["a GPU activity that names no GPU"] += 1
            return
        device = self.devices.setdefault(index, Device())
        device.add(self._class(kind, event, device), start, end)
        if kind == "kernel" and self.comm_names.get(event.name):
            self.comms.append((event.name, start, end, *_group(event)))

    def _class(self, kind: str, event: Event, device: Device) -> int:
        name = event.name
        if kind == "kernel":
            known = self.comm_names.get(name)
            if known is None:
                known = is_communication(name)
                if len(self.comm_names) < MOST_NAMES:
                    self.comm_names[name] = known
            return COMM if known else WORK
        found = _DIRECTION.search(name)
        way = found[1] if found else ("set" if kind == "set" else "other")
        size = event.args.bytes if event.args is not None else None
        if _is_id(size):
            device.bytes_b[way] += size
        device.copies[way] += 1
        return COPY_BUS if "H" in way else COPY_DEVICE


def _group(event: Event) -> tuple[str | None, int | None, int | None]:
    """Process group, elements and ranks that take part, as far as the trace says (PyTorch 2.3 and later)."""
    args = event.args
    if args is None:
        return None, None, None
    named = [part[:200] for part in (args.group, args.ranks) if isinstance(part, str)]
    elements = args.elements if _is_id(args.elements) else None
    members = args.members if _is_id(args.members) and 0 < args.members < 2**31 else None
    return " ".join(named) or None, elements, members


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) is int or (type(value) is float and value == value)  # noqa: PLR0124 - not NaN


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**62  # a bool is none


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read one rank's trace: shares of kernels and copies, ranges as spans, collectives.

    Raises:
        ImportFormatError: It has no events, or none that is a GPU activity or a range.
    """
    from dipstick.importers.json_events import TraceFile  # noqa: PLC0415 - msgspec, only where a trace is read

    del options
    trace = TraceFile(path, lambda text: sink.note("warning", f"{sink.file}: {text}"))
    reading = _Reading()
    writer: _Writer | None = None
    for events, done in trace.events():
        sink.progress(done)
        sink.saw(len(events))
        for event in events:
            if event.ph == "X":
                reading.take(event)
        if writer is None:
            writer = _Writer.begin(trace, reading, sink)
        if writer is not None:
            writer.flush(reading)
    writer = writer or _Writer.begin(trace, reading, sink, last=True)
    if writer is not None:
        writer.finish(trace, reading)
    for why, rows in (reading.dropped + trace.dropped).items():
        sink.drop(why, rows)
    bindings = _bindings(reading)
    check_bound(str(path), bindings or [Binding("traceEvents", sure="unrecognised")])
    sink.bind(*bindings)


@dataclass
class _Writer:
    """Writes rows once the clock is known."""

    sink: Sink
    base: int
    rank: int | None
    host: str | None
    world: int | None = None

    @classmethod
    def begin(cls, trace: TraceFile, reading: _Reading, sink: Sink, *, last: bool = False) -> _Writer | None:
        """Once it is known what the times are: by the header, by the first times, at the latest at the end of the file."""
        base = trace.header.get("baseTimeNanoseconds")
        first = next((s[2] for s in reading.spans), None)
        first = first if first is not None else next((d.first() for d in reading.devices.values()), None)
        if not last and (first is None or (not _is_id(base) and not _is_unix(first))):
            return None
        base = base if _is_id(base) and not (first is not None and _is_unix(first)) else 0
        sink.clock("unix" if base or (first is not None and _is_unix(first)) else "relative")
        info = trace.header.get("distributedInfo")
        rank, world = (
            (info.get(key) for key in ("rank", "world_size")) if isinstance(info, dict) else (None, None)
        )
        named = _WORKER.fullmatch(trace.path.name)
        host = named["host"] if named and sink.host == "host0" else None
        world = world if _is_id(world) and 0 < world < 2**31 else None
        return cls(sink, base, rank if _is_id(rank) and rank < 2**31 else None, host, world)

    def flush(self, reading: _Reading) -> None:
        """Ranges and collectives so far."""
        if reading.spans:
            columns = ["pid", "tid", "t0_ns", "t1_ns", "name", "phase", "step"]
            types = [pl.Int64, pl.Int64, pl.Int64, pl.Int64, pl.String, pl.String, pl.Int64]
            self._put("spans", reading.spans, dict(zip(columns, types, strict=True)), origin="measured")
            reading.spans = []
        if reading.comms:
            types_ = {"name": pl.String, "entered_ns": pl.Int64, "left_ns": pl.Int64, "group": pl.String,
                      "elements": pl.Int64, "members": pl.Int32}  # fmt: skip
            self._put("collectives", reading.comms, types_, source="kernel")
            reading.comms = []

    def _put(self, table: str, rows: list[tuple[Any, ...]], types: Any, **more: str) -> None:
        frame = pl.DataFrame(rows, schema=types, orient="row")
        frame = frame.with_columns(pl.col(c) + self.base for c in frame.columns if c.endswith("_ns"))
        if table == "collectives":
            took = (pl.col("left_ns") - pl.col("entered_ns")) / 1e6
            most = pl.lit(self.world, dtype=pl.Int32)
            frame = frame.with_columns(took.alias("device_ms"), pl.col("members").fill_null(most))
        extra = [
            pl.lit(self.rank, dtype=pl.Int32).alias("rank"),
            *(pl.lit(v).alias(k) for k, v in more.items()),
        ]
        host = [] if self.host is None else [pl.lit(self.host).alias("host")]
        self.sink.rows(table, frame.with_columns(*extra, *host))

    def finish(self, trace: TraceFile, reading: _Reading) -> None:
        """The rest, and the GPUs."""
        self.flush(reading)
        world = trace.header.get("distributedInfo")
        size = world.get("world_size") if isinstance(world, dict) else None
        self.sink.fact(rank=self.rank, world_size=size if _is_id(size) else None)
        listed = trace.header.get("deviceProperties")
        cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        found = extent(list(reading.devices.values()))
        ends = [*reading.steps, *(found or ())]
        origin = Origin(self.base, self.rank, self.host, _main(reading.pids), cards[:MOST_DEVICES])
        write_devices(self.sink, reading.devices, (min(ends), max(ends)) if ends else None, origin)


def _main(pids: Counter[int]) -> int | None:
    return pids.most_common(1)[0][0] if pids else None


def _is_unix(ns: int) -> bool:
    return UNIX_US[0] < ns / 1000 < UNIX_US[1]


def _bindings(reading: _Reading) -> list[Binding]:
    """Categories, and each range's phase."""
    found = []
    if reading.devices:
        found += [
            Binding("ts, dur", "time", "us"),
            Binding("kernel, gpu_memcpy, gpu_memset", "kernel activity", why="union over streams"),
        ]
    if any(reading.comm_names.values()):
        found.append(Binding("kernels named nccl…", "collective", sure="likely", why="by the kernels' names"))
    for name, (phase, step) in sorted(reading.names.items())[:200]:
        if step is None and phase is not None:
            found.append(Binding(name[:120], f"span, phase {phase}", sure="likely", why="by its name"))
        elif step is None:
            found.append(Binding(name[:120], "span", why="part of the range around it"))
    if any(step is not None for _, step in reading.names.values()):
        found.append(Binding("ProfilerStep#N", "step", why="profiler.step() of the training loop"))
    return found
