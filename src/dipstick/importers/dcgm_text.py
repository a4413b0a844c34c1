"""DCGM as text: scrapes of the exporter's page in a loop, and ``dcgmi dmon``."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.importers.binding import Binding, check_bound, factor, wished
from dipstick.importers.chunks import chunks
from dipstick.importers.dcgm_fields import FIELDS, SHORT, is_blank
from dipstick.importers.samples import Samples, no_times
from dipstick.importers.times import TimeFormat, TimeReader, find_format

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "dcgm"
NAME: Final = "DCGM as text (exporter page in a loop, dcgmi dmon)"

_SAMPLE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)(?:\s+(?P<ms>\d{12,14}))?\s*$"
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ENTITY: Final = re.compile(r"\s*GPU[ -]?(\d{1,4})\s+(.*)$")
PIECE: Final = 4 << 20


def sniff(head: Head) -> float:
    """Exporter lines, or the header of dcgmi dmon."""
    if re.search(r"^DCGM_FI_\w+\{", head.text, re.MULTILINE):
        return 0.95
    return 0.95 if any(line.lstrip().startswith("#Entity") for line in head.lines[:50]) else 0.0


class _Reader:
    """Line by line: a moment ends where a series (or GPU) comes again, or a line gives another time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.bindings: dict[str, Binding] = {}
        self.rows: list[dict[str, Any]] = []
        self.dropped: Counter[str] = Counter()
        self.read = 0
        self.moment = -1
        self.time: str | None = None
        self._open: dict[tuple[str, int], dict[str, Any]] = {}
        self._columns: list[str] = []

    def take(self, line: str) -> None:
        """One line."""
        if match := _SAMPLE.match(line):
            self._exporter(match)
        elif line.lstrip().startswith("#Entity"):
            self._columns = line.replace("#", " ").split()[1:]
            self._bind(self._columns)
        elif match := _ENTITY.match(line):
            self._dmon(int(match[1]), match[2].split())
        elif line.strip() and not line.startswith(("#", "ID")) and _time_of(line) is not None:
            self.close()
            self.time = line.strip()

    def _bind(self, names: list[str]) -> None:
        for name in names:
            if name not in self.bindings:
                known = FIELDS.get(SHORT.get(name, name))
                bare = Binding(name, sure="not used" if name.startswith("DCGM_FI_") else "unrecognised")
                self.bindings[name] = wished(self.options.wishes, name, 0) or (
                    Binding(name, *known) if known else bare
                )

    def _exporter(self, match: re.Match[str]) -> None:
        labels: dict[str, str] = dict(_LABEL.findall(match["labels"]))
        gpu = labels.get("gpu", "")
        self._bind([match["name"]])
        self.read += 1
        if "GPU_I_ID" in labels or not (gpu.isascii() and gpu.isdigit() and len(gpu) < 5):  # noqa: PLR2004 - digits
            self.dropped["no gpu label, or a MIG instance"] += 1
            return
        row = self._row(
            (labels.get("Hostname") or labels.get("hostname") or "", int(gpu)), match["name"], match["ms"]
        )
        row.setdefault("name", labels.get("modelName"))
        row.setdefault("uuid", labels.get("UUID"))
        self._value(row, match["name"], match["value"])

    def _dmon(self, gpu: int, cells: list[str]) -> None:
        self.read += 1
        if len(cells) != len(self._columns):
            self.dropped["another number of cells than the header has"] += 1
            return
        row = self._row(("", gpu), "\n", None)
        for name, cell in zip(self._columns, cells, strict=True):
            self._value(row, name, cell)

    def _row(self, key: tuple[str, int], series: str, ms: str | None) -> dict[str, Any]:
        """The row of this GPU and moment; a series that comes again begins the next moment."""
        row = self._open.get(key)
        if (row is not None and series in row["seen"]) or self.moment < 0:
            self.close()
            self.moment += 1
            row = None
        if row is None:
            row = {
                "host": key[0] or None,
                "gpu": key[1],
                "time": ms or self.time,
                "moment": self.moment,
                "seen": set(),
            }
            self._open[key] = row
        row["seen"].add(series)
        return row

    def _value(self, row: dict[str, Any], name: str, cell: str) -> None:
        binding = self.bindings[name]
        try:
            value = float(cell)
        except ValueError:
            return
        if binding.meaning and value == value and not is_blank(value):  # noqa: PLR0124 - NaN
            row[f"={name}"] = value

    def close(self) -> None:
        """The moment is over."""
        for row in self._open.values():
            row.pop("seen")
            self.rows.append(row)
        self._open = {}


def _time_of(line: str) -> TimeFormat | None:
    from dipstick.errors import ImportFormatError  # noqa: PLC0415 - a slashed date is no time here

    try:
        return find_format([line.strip()])
    except ImportFormatError:
        return None


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read it; text of DCGM rarely has times: a line of ``date`` before each scrape, or ``--interval``.

    Raises:
        ImportFormatError: There are no times, and none were given.
    """
    reader = _Reader(options)
    out: _Out | None = None
    for data, done in chunks(path, size=PIECE):
        for line in data.decode("utf-8", "replace").split("\n"):
            reader.take(line.rstrip("\r"))
        if reader.rows:
            out = out or _Out(reader, options, sink, str(path))
            out.add(reader)
        sink.progress(done)
    reader.close()
    if reader.rows:
        (out or _Out(reader, options, sink, str(path))).add(reader, last=True)
    elif out is not None:
        out.finish()
    sink.saw(reader.read)
    for why, many in reader.dropped.items():
        sink.drop(why, many)


class _Out:
    """Rows of each piece into the tables; units and times are decided on the first."""

    def __init__(self, reader: _Reader, options: Options, sink: Sink, where: str) -> None:
        check_bound(where, list(reader.bindings.values()))
        frame = pl.DataFrame(reader.rows, infer_schema_length=None)
        self._units = {name: _decided(b, frame) for name, b in reader.bindings.items()}
        self._options = options
        cells = [row["time"] for row in reader.rows if row["time"]]
        form = find_format(cells[:200])
        if form is None and options.interval_ns is None:
            raise no_times(where)
        self._reader = None if form is None else TimeReader(form, options.tz)
        sink.clock(
            self._reader.clock if self._reader else "relative",
            resolution_ns=form.resolution_ns if form else 0,
        )
        sink.bind(
            *([Binding("(time)", "time", form.says)] if form else []),
            Binding("gpu", "gpu"),
            *self._units.values(),
        )
        self._samples = Samples(
            sink, options, whole_seconds=bool(form and form.resolution_ns), timeless=form is None
        )

    def add(self, reader: _Reader, *, last: bool = False) -> None:
        """Take the rows that are finished."""
        frame = pl.DataFrame(reader.rows, infer_schema_length=None)
        reader.rows = []
        if self._reader is None:
            times = frame["moment"] * (self._options.interval_ns or 1)
        else:
            times = self._reader.read(frame["time"].cast(pl.String))
        values: dict[str, pl.Expr] = {}
        for name, b in self._units.items():
            if b.meaning and f"={name}" in frame.columns:
                values.setdefault(
                    b.meaning, (pl.col(f"={name}").cast(pl.Float64) * factor(b)).alias(b.meaning)
                )
        shared = [pl.col(c).cast(pl.String) for c in ("host", "name", "uuid") if c in frame.columns]
        self._samples.add(
            frame.with_columns(times.alias("t_ns")).select("t_ns", "gpu", *shared, *values.values())
        )
        if last:
            self.finish()

    def finish(self) -> None:
        """Write what is held back."""
        self._samples.finish()


def _decided(binding: Binding, frame: pl.DataFrame) -> Binding:
    """Percent or ratio, from the values."""
    if binding.unit != "?":
        return binding
    column = f"={binding.source}"
    largest = frame[column].cast(pl.Float64).max() if column in frame.columns else None
    top = largest if isinstance(largest, float) else 0.0
    large = top > 1.0
    return Binding(
        binding.source, binding.meaning, "%" if large else "ratio", "certain", f"its largest value is {top:g}"
    )
