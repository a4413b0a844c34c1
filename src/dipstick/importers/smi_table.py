"""Plain ``nvidia-smi`` in a loop: tables for people, a time above each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding
from dipstick.importers.chunks import chunks
from dipstick.importers.samples import Samples
from dipstick.importers.times import CTIME, TimeReader

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "nvidia-smi-table"
NAME: Final = "plain nvidia-smi tables in a loop"

_TIME: Final = re.compile(r"\s*([A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4})\s*$")
_CARD: Final = re.compile(
    r"\|\s*(?P<gpu>\d{1,4})\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|Disabled|Enabled)?\s*\|\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_VALUES: Final = re.compile(
    r"\|(?P<board>[^|]*)\|\s*(?:(?P<used>\d+)\s*MiB\s*/\s*(?P<total>\d+)\s*MiB|[^|]*?)\s*\|\s*(?:(?P<util>\d+)\s*%|N/A|ERR!|-)\s+[A-Z]"
)
_WATTS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*W\s*/")
_HEAT: Final = re.compile(r"(\d+)\s*C\b")
_PROCESS: Final = re.compile(
    r"\|\s*(?P<gpu>\d{1,4})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?:C\+G|C|G|M\+C)\s.*?(?:(?P<used>\d+)\s*MiB|N/A)\s*\|"
)
PIECE: Final = 4 << 20

BINDINGS: Final = (
    Binding("(line above the table)", "time", "local, whole seconds"), Binding("GPU", "gpu"), Binding("Name", "name"),
    Binding("GPU-Util", "util_pct", "%"), Binding("Memory-Usage", "mem_used_b", "MiB"),
    Binding("Pwr:Usage/Cap", "power_w", "W"), Binding("Temp", "temp_c", "C"),
    Binding("Processes: GPU Memory", "process_mem_b", "MiB"), Binding("Fan", sure="not used"), Binding("Perf", sure="not used"),
)  # fmt: skip


def sniff(head: Head) -> float:
    """The frame that nvidia-smi draws."""
    return 0.95 if "| NVIDIA-SMI " in head.text and "GPU-Util" in head.text else 0.0


@dataclass(slots=True)
class _Pages:
    """Where the reading is: the time above, the GPU of the first of its two lines, rows of this piece."""

    time: str | None = None
    card: dict[str, Any] | None = None
    snapshots: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)

    def take(self, line: str) -> None:
        """One line of the file."""
        if match := _TIME.match(line):
            self.time, self.card = match[1], None
            self.snapshots += 1
        elif match := _CARD.match(line):
            self.card = {
                "time": self.time,
                "gpu": int(match["gpu"]),
                "name": match["name"],
                "uuid": match["bus"],
            }
        elif self.card is not None and (match := _VALUES.match(line)):
            self.rows.append({**self.card, **_values(match)})
            self.card = None
        elif match := _PROCESS.match(line):
            used = match["used"]
            row = {"time": self.time, "gpu": int(match["gpu"]), "pid": int(match["pid"][:18])}
            self.processes.append({**row, "process_mem_b": None if used is None else float(used) * 2**20})


def _values(match: re.Match[str]) -> dict[str, float | None]:
    """The second line of a GPU; N/A and ERR! are missing."""
    watts, heat = _WATTS.search(match["board"]), _HEAT.search(match["board"])
    return {
        "util_pct": None if match["util"] is None else float(match["util"]),
        "mem_used_b": None if match["used"] is None else float(match["used"]) * 2**20,
        "mem_total_b": None if match["total"] is None else float(match["total"]) * 2**20,
        "power_w": None if watts is None else float(watts[1]),
        "temp_c": None if heat is None else float(heat[1]),
    }


_SCHEMA: Final = {
    "time": pl.String, "gpu": pl.Int64, "name": pl.String, "uuid": pl.String, "util_pct": pl.Float64,
    "mem_used_b": pl.Float64, "mem_total_b": pl.Float64, "power_w": pl.Float64, "temp_c": pl.Float64,
}  # fmt: skip
_PROCESS_SCHEMA: Final = {"time": pl.String, "gpu": pl.Int64, "pid": pl.Int64, "process_mem_b": pl.Float64}


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read every table.

    Raises:
        ImportFormatError: There is no time above the tables.
    """
    reader = TimeReader(CTIME, options.tz)
    sink.clock(reader.clock, resolution_ns=CTIME.resolution_ns)
    sink.bind(*BINDINGS)
    cards = Samples(sink, options, whole_seconds=True)
    processes = Samples(sink, options, whole_seconds=True, describes=False)
    pages = _Pages()
    for data, done in chunks(path, size=PIECE):
        for line in data.decode("utf-8", "replace").split("\n"):
            pages.take(line.rstrip("\r"))
        sink.saw(len(pages.rows))
        for rows, schema, samples in (
            (pages.rows, _SCHEMA, cards),
            (pages.processes, _PROCESS_SCHEMA, processes),
        ):
            frame = pl.DataFrame(rows, schema=schema, orient="row")
            samples.add(frame.with_columns(reader.read(frame["time"]).alias("t_ns")).drop("time"))
            rows.clear()
        sink.progress(done)
    if not pages.snapshots:
        raise ImportFormatError(
            "no line above its tables says when they were taken.", where=str(path),
            fix="Record again: nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1",
        )  # fmt: skip
    cards.finish()
    processes.finish()
    sink.fact(snapshots=pages.snapshots)
