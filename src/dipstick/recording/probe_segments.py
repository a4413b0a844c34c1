"""Segments that probes wrote inside the training processes, turned into tables of the recording.

::

    RUN/probe/HOST.PID.STARTUNIXNS.jsonl     one a process, one JSON object a line, times monotonic

``dipstick run`` converts them when CMD has ended and then removes them; the reader converts in memory what was left
behind (a run that still goes on, or a supervisor that was killed). A segment is never trusted: each line is checked,
bounded, and skipped and counted if it is not what it should be. A cut last line is normal: the process was killed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.model import Note
from dipstick.recording import probe_lines
from dipstick.recording.parts import Part, Source
from dipstick.recording.probe_clock import align, fit
from dipstick.recording.probe_jobs import JobBook
from dipstick.recording.rows import to_frame
from dipstick.recording.tail import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from dipstick.recording.probe_clock import Anchors
    from dipstick.recording.probe_lines import Line

    Sink = Callable[[str, Sequence[dict[str, Any]]], None]

FOLDER: Final = "probe"
NAME: Final = re.compile(r"(?P<host>[^/]{1,255})\.(?P<pid>\d{1,10})\.(?P<start>\d{1,19})\.jsonl")
MOST_SEGMENTS: Final = 65_000
"""A clock number has 16 bits, and each segment has its own clock."""
MOST_BYTES: Final = 4 << 30
"""Of one segment; a probe stops at its own cap long before (DIPSTICK_PROBE_MAX_MB)."""
MOST_ANCHORS: Final = 100_000
_COSTS: Final = ("rows", "span_ns", "hook_ns", "writer_ns")
MOST_HOOKS: Final = 10_000
BATCH: Final = 20_000
"""Rows of a table that are kept before they go to the sink."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment in the folder, with what its name says."""

    path: Path
    host: str
    pid: int

    def status(self) -> os.stat_result | None:
        """The file's size and times; None where it is gone (the run has just ended)."""
        try:
            return self.path.lstat()
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Hook:
    """Whether a hook found its target; ``why`` and ``version`` (of the hooked package) as the probe saw them."""

    target: str
    bound: bool
    why: str | None = None
    version: str | None = None


@dataclass
class ProbeProcess:
    """One process that a probe was in.

    Attributes:
        role: As the probe calls it, ``reward_worker`` where it ran jobs and the probe does not know, else None.
        versions: Packages that its hooks saw.
        hooks: The last word on each target.
        spans: How many it wrote.
        ended: Its segment ends as it should; False: killed, or still running.
        capped: Why it stopped writing early: ``size`` (its cap), ``disk``; None if it did not.
        dropped: Rows that its ring buffer lost.
        cost: What its probe cost so far, from its last anchor: ``rows``, ``span_ns`` (one span), ``hook_ns``, ``writer_ns``.
    """

    host: str
    pid: int
    clock: int
    rank: int | None = None
    local_rank: int | None = None
    role: str | None = None
    python: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    spans: int = 0
    ended: bool = False
    capped: str | None = None
    dropped: int = 0
    cost: dict[str, int] = field(default_factory=dict)


@dataclass
class ProbeData:
    """What was found in the segments, beside the rows.

    Attributes:
        processes: One a segment.
        rows: Rows handed to the sink, by table.
        skipped: Lines that were not usable, by reason.
        notes: What the reader of the recording should know.
        files: Names of the segments that were read.
        workers: Processes that ran reward jobs, by (host, pid), with the rank that fed them.
        unmatched_jobs: Jobs without a worker's word on when they ran.
    """

    processes: list[ProbeProcess] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    workers: dict[tuple[str, int], int | None] = field(default_factory=dict)
    unmatched_jobs: int = 0

    @property
    def dropped(self) -> int:
        """Rows that ring buffers lost, all processes."""
        return sum(process.dropped for process in self.processes)


def segment_files(folder: Path) -> list[SegmentFile]:
    """Segments in a folder, by name; links and anything that is not named like one are left alone."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    matches = [(name, match) for name in names if (match := NAME.fullmatch(name))]
    return [SegmentFile(folder / name, match["host"], int(match["pid"])) for name, match in matches]


def convert(files: Sequence[SegmentFile], sink: Sink) -> ProbeData:
    """Read segments and hand their rows to a sink, table by table, in batches.

    Args:
        files: From :func:`segment_files`; segments beyond ``MOST_SEGMENTS`` are not read.
        sink: Gets a table's name and rows as dicts (``RecordingWriter.append`` fits). ``clock`` numbers count from 1.

    Returns:
        Everything else that was in them.
    """
    work = _Conversion(sink)
    for number, file in enumerate(files[:MOST_SEGMENTS], start=1):
        work.read(file, number)
    if len(files) > MOST_SEGMENTS:
        work.data.notes.append(
            Note(
                "warning",
                f"{len(files) - MOST_SEGMENTS} of {len(files)} probe segments were not read: too many",
            )
        )
    work.finish()
    return work.data


def unconverted(run: Path, converted: Collection[str]) -> tuple[list[Source], list[Note]]:
    """What the reader needs of segments that ``dipstick run`` did not turn into tables.

    Args:
        run: The recording.
        converted: Names of the segments whose rows are in the tables already.

    Returns:
        Sources in memory, one a table, and notes.
    """
    files = [file for file in segment_files(run / FOLDER) if file.path.name not in converted]
    if not files:
        return [], []
    frames: dict[str, list[pl.DataFrame]] = {}

    def keep(table: str, rows: Sequence[dict[str, Any]]) -> None:
        frames.setdefault(table, []).append(to_frame(table, rows))

    data = convert(files, keep)
    keep("processes", process_rows(data))
    sources = [
        Source(table, FOLDER, (Part(f"{table}/{FOLDER}", pl.concat(parts).lazy()),))
        for table, parts in frames.items()
    ]
    return sources, data.notes


class _Conversion:
    """The state of one conversion: rows that wait for a batch, anchors and jobs that wait for the end."""

    def __init__(self, sink: Sink) -> None:
        self.data = ProbeData()
        self._sink = sink
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._jobs = JobBook()
        self._anchors: dict[str, dict[int, Anchors]] = {}

    def read(self, file: SegmentFile, clock: int) -> None:
        """One segment."""
        try:
            lines = _lines(file.path)
        except OSError as error:
            self.data.notes.append(Note("warning", f"probe/{file.path.name} can't be read: {error.strerror}"))
            return
        process = ProbeProcess(file.host, file.pid, clock)
        self.data.processes.append(process)
        self.data.files.append(file.path.name)
        self._anchors.setdefault(file.host, {})[clock] = []
        for raw in lines:
            line = probe_lines.parse_line(raw)
            if line is None:
                self.data.skipped["not a JSON object with a kind, or too long"] += 1
            else:
                self._take(line, process)

    def _take(self, line: Line, process: ProbeProcess) -> None:
        """Whatever a line is."""
        kind = line["k"]
        if kind in probe_lines.ROWS:
            self._take_row(kind, line, process)
        elif kind == "job":
            self._take_job(line, process)
        elif kind == "anchor":
            self._take_anchor(line, process)
        elif not _take_fact(line, process):
            self.data.skipped["of an unknown kind (written by a newer probe?)"] += 1

    def _take_row(self, kind: str, line: Line, process: ProbeProcess) -> None:
        table, make, required, filled = probe_lines.ROWS[kind]
        row = make(line)
        if any(row[column] is None for column in required):
            self.data.skipped[f"a {kind} without {' or '.join(c.removesuffix('_ns') for c in required)}"] += 1
            return
        process.spans += kind == "span"
        known = {"host": process.host, "pid": process.pid, "rank": process.rank}
        self._put(table, row | {column: known[column] for column in filled} | {"clock": process.clock})

    def _take_job(self, line: Line, process: ProbeProcess) -> None:
        part = probe_lines.job_part(line)
        if part is None:
            self.data.skipped["a job without id"] += 1
        else:
            self._jobs.add(process.host, process.pid, process.rank, process.clock, part)

    def _take_anchor(self, line: Line, process: ProbeProcess) -> None:
        mono, unix = probe_lines.count(line.get("m")), probe_lines.count(line.get("u"))
        mine = self._anchors[process.host][process.clock]
        if mono is None or unix is None or len(mine) >= MOST_ANCHORS:
            self.data.skipped["an anchor without both times, or one too many"] += 1
        else:
            mine.append((mono, unix))
            take_cost(line, process)

    def _put(self, table: str, row: dict[str, Any]) -> None:
        rows = self._waiting.setdefault(table, [])
        rows.append(row)
        self.data.rows[table] += 1
        if len(rows) >= BATCH:
            self._sink(table, self._waiting.pop(table))

    def finish(self) -> None:
        """Anchors on one axis a host, jobs joined, processes named, notes written."""
        clocks = {}
        for host, segments in sorted(self._anchors.items()):
            aligned, common = align(segments)
            if common is not None:
                self.data.notes += _step_notes(host, common)
            pids = {p.clock: p.pid for p in self.data.processes}
            for number, anchors in aligned.items():
                if anchors:
                    clocks[number] = fit(anchors)
                for mono, unix in anchors:
                    stamp = {"clock": number, "host": host, "pid": pids[number]}
                    self._put("anchors", stamp | {"mono_ns": mono, "unix_ns": unix})
        self.data.workers = self._jobs.worker_pids()
        for row in self._jobs.rows(clocks):
            self._put("jobs", row)
        self.data.unmatched_jobs = self._jobs.unmatched
        for process in self.data.processes:
            self._name(process)
        self.data.notes += _notes(self.data, self._jobs.overflow)
        for table in list(self._waiting):
            self._sink(table, self._waiting.pop(table))

    def _name(self, process: ProbeProcess) -> None:
        """A worker that its probe could not name is known by its jobs."""
        key = (process.host, process.pid)
        if process.role is None and key in self.data.workers:
            process.role = "reward_worker"
        if process.rank is None:
            process.rank = self.data.workers.get(key)
        if process.role is None and process.rank is not None and process.spans:
            process.role = "trainer"  # one without spans inherited its rank: a data loader, a tokenizer


def process_rows(data: ProbeData) -> list[dict[str, Any]]:
    """Rows of the ``processes`` table: what the probes alone know of who is who."""
    return [
        {"host": p.host, "pid": p.pid, "role": p.role or "other", "rank": p.rank, "source": FOLDER}
        for p in data.processes
    ]


def _take_fact(line: Line, process: ProbeProcess) -> bool:
    """Lines about the process itself; whether it was one."""
    kind = line["k"]
    if kind == "meta":
        take_meta(line, process)
    elif kind == "hooks":
        _take_hooks(line, process)
    elif kind == "dropped":
        process.dropped += probe_lines.count(line.get("count")) or 0
    elif kind == "capped":
        process.capped = probe_lines.text(line.get("why"), 16) or "size"
    elif kind == "end":
        process.ended = True
    else:
        return bool(
            kind == "open"
        )  # what a process is inside of: for a live view; its span comes when it ends
    return True


def take_cost(line: Line, process: ProbeProcess) -> None:
    """What the probe has cost by an anchor."""
    costs = {name: probe_lines.count(line.get(name)) for name in _COSTS}
    process.cost |= {name: value for name, value in costs.items() if value is not None}


def take_meta(line: Line, process: ProbeProcess) -> None:
    """May come again when more is known (the rank, after the process group exists): what it does not say stays."""
    process.rank = _known(probe_lines.small(line.get("rank")), process.rank)
    process.local_rank = _known(probe_lines.small(line.get("local_rank")), process.local_rank)
    process.role = probe_lines.text(line.get("role"), 64) or process.role
    process.python = probe_lines.text(line.get("python"), 64) or process.python
    versions = line.get("versions")
    for name, version in list(versions.items())[:1000] if isinstance(versions, dict) else ():
        shown = probe_lines.text(version, 64)
        if shown is not None:
            process.versions[name[:128]] = shown


def _known(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _take_hooks(line: Line, process: ProbeProcess) -> None:
    """A list of hooks; a later word on a target replaces the earlier one."""
    listed = next((value for value in line.values() if isinstance(value, list)), [])
    for entry in listed:
        target = probe_lines.text(entry.get("target")) if isinstance(entry, dict) else None
        if target is None or (len(process.hooks) >= MOST_HOOKS and target not in process.hooks):
            continue
        why, version = probe_lines.text(entry.get("why")), probe_lines.text(entry.get("version"), 64)
        process.hooks[target] = Hook(target, entry.get("bound") is True, why, version)


def _lines(path: Path) -> Iterator[bytes]:
    """Complete lines of a regular file, never through a link.

    Raises:
        OSError: It can't be opened, or is no regular file.
    """
    return _read(open_regular(path))


def _read(descriptor: int) -> Iterator[bytes]:
    """Lines up to ``MOST_BYTES``. One that is too long comes in pieces, each of them no line; a cut last one is left out."""
    left = MOST_BYTES
    with os.fdopen(descriptor, "rb") as stream:
        while left > 0 and (line := stream.readline(probe_lines.LONGEST_LINE + 1)):
            left -= len(line)
            if line.endswith(b"\n") or len(line) > probe_lines.LONGEST_LINE:
                yield line


def _step_notes(host: str, common: Any) -> list[Note]:
    return [
        Note(
            "warning",
            f"the wall clock of {host} was set by {step.step_ns / 1e9:+.3f} s at Unix {step.unix_ns / 1e9:.3f}; "
            "removed from the time axis of its processes",
        )
        for step in common.steps
    ]


def _notes(data: ProbeData, overflow: int) -> list[Note]:
    """What went wrong, in words."""
    texts = [f"probe segments: {n} lines skipped: {reason}" for reason, n in sorted(data.skipped.items())]
    if overflow:
        texts.append(f"{overflow} job records were not kept: too many")
    if data.dropped:
        texts.append(f"the probes' buffers overflowed: {data.dropped} rows are lost")
    full = {"disk": "found the disk full"}
    texts += [
        f"process {p.pid} on {p.host}{_rank(p)} {full.get(p.capped, 'reached its size cap (DIPSTICK_PROBE_MAX_MB)')}: "
        "what came after is missing"
        for p in data.processes
        if p.capped is not None
    ]
    cut = [p for p in data.processes if not p.ended and not p.capped]
    trainers = [p for p in cut if p.rank is not None and p.spans]
    texts += [
        f"process {p.pid} on {p.host}{_rank(p)} did not end by itself (killed, or still running): at most its last second is missing"
        for p in trainers[:20]
    ]
    notes = [Note("warning", text) for text in texts]
    if len(cut) > len(trainers):
        text = f"{len(cut) - len(trainers)} other processes did not end by themselves: at most their last second is missing"
        notes.append(Note("info", text))
    if data.unmatched_jobs:
        why = "when they ran is not known (no probe in the workers?)"
        notes.append(
            Note("warning", f"{data.unmatched_jobs} jobs were submitted and no worker spoke of them: {why}")
        )
    return notes


def _rank(process: ProbeProcess) -> str:
    """`` (trainer, rank 0)``, empty for a process of which neither is known."""
    parts = [process.role or "", "" if process.rank is None else f"rank {process.rank}"]
    known = ", ".join(part for part in parts if part)
    return f" ({known})" if known else ""
