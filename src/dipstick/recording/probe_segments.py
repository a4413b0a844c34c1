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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.model import Note
from dipstick.recording import probe_lines
from dipstick.recording.parts import Part, Source
from dipstick.recording.probe_clock import align, fit
from dipstick.recording.probe_jobs import JobBook
from dipstick.recording.probe_notes import notes_of, step_notes
from dipstick.recording.probe_process import ProbeData, ProbeProcess, name_roles, process_rows, take_fact
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
TO_WORKERS: Final = "workers"
"""Where hand-overs of jobs go to; the items of a map are known to the parent by these alone."""
MOST_COLLECTIVES: Final = 10_000
"""Of one process that wait for the device's time; a probe waits for 4,096."""
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


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Segments that no supervisor turned into tables.

    Attributes:
        sources: In memory, one a table.
        notes: What the reader of the recording should know.
        accounts: What the probes cost (see ``recording.overhead``).
    """

    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    accounts: tuple[dict[str, Any], ...] = ()


def unconverted(run: Path, converted: Collection[str]) -> LeftBehind:
    """What the reader needs of segments that ``dipstick run`` did not turn into tables.

    Args:
        run: The recording.
        converted: Names of the segments whose rows are in the tables already.
    """
    files = [file for file in segment_files(run / FOLDER) if file.path.name not in converted]
    if not files:
        return LeftBehind()
    frames: dict[str, list[pl.DataFrame]] = {}

    def keep(table: str, rows: Sequence[dict[str, Any]]) -> None:
        frames.setdefault(table, []).append(to_frame(table, rows))

    data = convert(files, keep)
    keep("processes", process_rows(data))
    sources = [
        Source(table, FOLDER, (Part(f"{table}/{FOLDER}", pl.concat(parts).lazy()),))
        for table, parts in frames.items()
    ]
    return LeftBehind(tuple(sources), tuple(data.notes), tuple(data.accounts))


class _Conversion:
    """The state of one conversion: rows that wait for a batch, anchors and jobs that wait for the end."""

    def __init__(self, sink: Sink) -> None:
        self.data = ProbeData()
        self._sink = sink
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._jobs = JobBook()
        self._collectives: dict[int, dict[str, Any]] = {}
        self._sent = 0
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
        self._put_collectives(0)

    def _take(self, line: Line, process: ProbeProcess) -> None:
        """Whatever a line is."""
        kind = line["k"]
        if kind in probe_lines.ROWS:
            self._take_row(kind, line, process)
        elif kind == "job":
            self._take_job(line, process)
        elif kind == "anchor":
            self._take_anchor(line, process)
        elif kind == "device":
            self._take_device_times(line)
        elif not take_fact(line, process):
            self.data.skipped["of an unknown kind (written by a newer probe?)"] += 1

    def _take_row(self, kind: str, line: Line, process: ProbeProcess) -> None:
        table, make, required, filled = probe_lines.ROWS[kind]
        row = make(line)
        if any(row[column] is None for column in required):
            self.data.skipped[f"a {kind} without {' or '.join(c.removesuffix('_ns') for c in required)}"] += 1
            return
        if kind == "span":
            process.saw_span(row)
        elif kind == "handoff" and row["to"] == TO_WORKERS:
            self._sent += row["count"] or 0
        known = {"host": process.host, "pid": process.pid, "rank": process.rank}
        row |= {column: known[column] for column in filled} | {"clock": process.clock}
        number = probe_lines.count(line.get("i")) if kind == "coll" else None
        if number is None:
            self._put(table, row)
        else:
            self._collectives[number] = row
            self._put_collectives(MOST_COLLECTIVES)

    def _take_device_times(self, line: Line) -> None:
        """``[[number, ms], ...]`` of collectives whose line came before; a number that nobody waits for is skipped."""
        pairs = line.get("coll")
        for pair in pairs if isinstance(pairs, list) else ():
            number = probe_lines.count(pair[0]) if isinstance(pair, list) and len(pair) == 2 else None  # noqa: PLR2004 - a pair
            row = None if number is None else self._collectives.pop(number, None)
            if row is not None:
                self._put("collectives", row | {"device_ms": probe_lines.real(pair[1])})

    def _put_collectives(self, most: int) -> None:
        """Collectives whose device time is not known go without it; at most ``most`` wait."""
        while len(self._collectives) > most:
            self._put("collectives", self._collectives.pop(next(iter(self._collectives))))

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
            process.saw_anchor(line)

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
                self.data.notes += step_notes(host, common)
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
        self.data.unmatched_jobs = max(self._jobs.unmatched, self._sent - self._jobs.ran)
        name_roles(self.data)
        self.data.notes += notes_of(self.data, self._jobs.overflow)
        for table in list(self._waiting):
            self._sink(table, self._waiting.pop(table))


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
