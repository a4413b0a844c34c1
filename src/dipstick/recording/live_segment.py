"""One process's probe segment while it is written: the last spans and jobs, and what it is inside of now."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from dipstick.recording import probe_lines
from dipstick.recording.probe_process import ProbeProcess, take_meta
from dipstick.recording.tail import LineTail

if TYPE_CHECKING:
    from dipstick.recording.probe_lines import Line
    from dipstick.recording.probe_segments import SegmentFile

    Row = dict[str, Any]

MOST_SPANS: Final = 2_000
"""Spans of a process that are kept: some 30 steps of TRL, 1 MB."""
MOST_JOBS: Final = 1_000
MOST_OPEN: Final = 256
MOST_ANCHORS: Final = 64
SPAN: Final = ("t0_ns", "t1_ns", "tid", "name", "step", "phase")
JOB: Final = ("job", "rank", "pid", "step", "submitted_ns", "t0_ns", "t1_ns")


class LiveSegment:
    """What is known of one process.

    Attributes:
        process: Host, pid, rank, role, and what its probe has cost so far.
        spans: The last ones that ended (values of ``SPAN``), on the process's own clock.
        opened: What it is inside of, by (name, start): said by ``open`` lines and not ended yet.
        jobs: What this process said of the last jobs, by id (members of ``JOB``).
        anchors: (monotonic, Unix) pairs: the first one and the last ones.
    """

    def __init__(self, file: SegmentFile) -> None:
        self.process = ProbeProcess(file.host, file.pid, 0)
        self.spans: deque[tuple[Any, ...]] = deque(maxlen=MOST_SPANS)
        self.opened: dict[tuple[str, int], Row] = {}
        self.jobs: OrderedDict[str, Row] = OrderedDict()
        self.anchors: list[tuple[int, int]] = []
        self._tail = LineTail(file.path)

    def look(self, size: int) -> bool:
        """Read what was appended; whether there was anything.

        Args:
            size: The file's, as it was listed.
        """
        grown = False
        for raw in self._tail.lines(size):
            grown = True
            line = probe_lines.parse_line(raw)
            if line is not None:
                self._take(line)
        return grown

    def _take(self, line: Line) -> None:
        kind = line["k"]
        if kind == "span":
            self._take_span(probe_lines.ROWS["span"][1](line))
        elif kind == "open":
            self._take_open(probe_lines.ROWS["span"][1](line))
        elif kind == "job":
            self._take_job(probe_lines.job_part(line))
        elif kind == "anchor":
            self._take_anchor(line)
        elif kind == "meta":
            take_meta(line, self.process)
        elif kind == "dropped":
            self.process.dropped += probe_lines.count(line.get("count")) or 0
        elif kind == "capped":
            self.process.capped = probe_lines.text(line.get("why"), 16) or "size"
        elif kind == "end":
            self.process.ended = True
            self.opened.clear()

    def _take_span(self, row: Row) -> None:
        name, a, b, tid = row["name"], row["t0_ns"], row["t1_ns"], row["tid"]
        if name is None or a is None or b is None or b < a:
            return
        self.process.spans += 1
        self.spans.append(tuple(row[column] for column in SPAN))
        self.opened.pop((name, a), None)
        inner = [key for key, one in self.opened.items() if one["tid"] == tid and a <= key[1] < b]
        for key in inner:  # what was open inside it has ended too, even if its own line was lost
            del self.opened[key]

    def _take_open(self, row: Row) -> None:
        name, a = row["name"], row["t0_ns"]
        if name is not None and a is not None:
            self.opened[name, a] = row
            while len(self.opened) > MOST_OPEN:
                del self.opened[next(iter(self.opened))]

    def _take_job(self, part: Row | None) -> None:
        if part is None:
            return
        job = self.jobs.setdefault(part["job"], {})
        job.update({name: part[name] for name in JOB if part[name] is not None})
        self.jobs.move_to_end(part["job"])
        while len(self.jobs) > MOST_JOBS:
            self.jobs.popitem(last=False)

    def _take_anchor(self, line: Line) -> None:
        mono, unix = probe_lines.count(line.get("m")), probe_lines.count(line.get("u"))
        if mono is not None and unix is not None:
            self.anchors.append((mono, unix))
            self.process.saw_anchor(line)
            if len(self.anchors) > MOST_ANCHORS:
                del self.anchors[1]
