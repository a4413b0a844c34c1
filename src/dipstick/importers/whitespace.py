"""``nvidia-smi dmon`` and ``pmon``: columns in blanks, named by lines that begin with ``#`` and come again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import MEANINGS, Binding, check_bound, factor, wished
from dipstick.importers.chunks import chunks
from dipstick.importers.samples import Samples, no_times
from dipstick.importers.times import TimeFormat, TimeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dipstick.importers.base import Sink
    from dipstick.importers.options import Options

DATED: Final = TimeFormat("local", "%Y%m%d %H:%M:%S", resolution_ns=10**9, says="local, whole seconds")
PIECE: Final = 4 << 20
"""Bytes at once: cells are Python strings for a moment."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a column of dmon or pmon is: meaning (empty: no use) and default unit."""

    meaning: str = ""
    unit: str = ""


@dataclass(slots=True)
class Names:
    """The header that holds for the rows below it."""

    names: tuple[str, ...]
    units: tuple[str, ...] = ()

    @property
    def has_date(self) -> bool:
        """``-o DT``, ``-o D``: the first column is the date."""
        return "date" in self.names

    @property
    def has_time(self) -> bool:
        """``-o DT``, ``-o T``."""
        return "time" in self.names


def cells_of(line: str) -> list[str]:
    """The cells of a line: blanks, or commas with ``--format csv``."""
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def header_of(line: str) -> tuple[str, ...]:
    """Names of a ``#`` line, lower case: ``# gpu   pwr`` and ``#Date Time gpu``."""
    return tuple(cell.strip("# ").lower() for cell in cells_of(line.strip().lstrip("#")) if cell.strip("# "))


def bind(header: Names, known: Mapping[str, Known], options: Options) -> list[Binding]:
    """What the columns are; the unit line overrides the usual unit (``GPM:%``)."""
    found = []
    for i, name in enumerate(header.names):
        if said := wished(options.wishes, name, i + 1):
            found.append(said)
        elif name in {"date", "time"}:
            found.append(Binding(name, "date" if name == "date" else "clock", "local"))
        elif name in known:
            what = known[name]
            unit = header.units[i].removeprefix("GPM:") if i < len(header.units) else what.unit
            units = MEANINGS[what.meaning].units if what.meaning in MEANINGS else None
            good = {"MB": "MiB"}.get(unit, unit)
            found.append(
                Binding(name, what.meaning, (good if units and good in units else what.unit) if units else "")
                if what.meaning
                else Binding(name, sure="not used")
            )
        else:
            found.append(Binding(name, sure="unrecognised"))
    return found


def read_monitor(path: Path, options: Options, sink: Sink, known: Mapping[str, Known], last: str) -> None:
    """Read dmon or pmon.

    Args:
        path: The file.
        options: ``interval_ns``, ``start_ns`` where there is no ``-o DT``.
        sink: Gets the rows.
        known: The columns.
        last: The column that may hold blanks (the command), empty if none.

    Raises:
        ImportFormatError: There is no header; or no times, and none were given.
    """
    state = _State(path, options, sink, known, last)
    for data, done in chunks(path, size=PIECE):
        text = data.decode("utf-8", "replace")
        for header, rows in state.blocks(text):
            state.add(header, rows)
        sink.progress(done)
    state.finish()


class _State:
    """Goes from block to block: header, binding, sweeps without time."""

    def __init__(
        self, path: Path, options: Options, sink: Sink, known: Mapping[str, Known], last: str
    ) -> None:
        self._where = str(path)
        self._options = options
        self._sink = sink
        self._known = known
        self._last = last
        self._header: Names | None = None
        self._bound: tuple[str, ...] = ()
        self._bindings: list[Binding] = []
        self._samples: Samples | None = None
        self._reader: TimeReader | None = None
        self._sweep = -1
        self._gpu_before = 1 << 30

    def blocks(self, text: str) -> Iterator[tuple[Names, list[list[str]]]]:
        """Rows with the header that holds for them."""
        rows: list[list[str]] = []
        for line in text.split("\n"):
            if line.lstrip().startswith("#"):
                if rows and self._header is not None:
                    yield self._header, rows
                    rows = []
                self._take_header(line)
            elif line.strip():
                rows.append(cells_of(line))
        if rows:
            if self._header is None:
                raise ImportFormatError(
                    "it has no header: which column is what differs from driver to driver.", where=self._where,
                    fix="A dmon or pmon log begins with '# gpu …'. Add that line.",
                )  # fmt: skip
            yield self._header, rows

    def _take_header(self, line: str) -> None:
        """Names; or the line of units below them."""
        names = header_of(line)
        if "gpu" in names:
            self._header = Names(names)
        elif self._header is not None:
            units = tuple(cells_of(line.strip().removeprefix("#")))
            if len(units) == len(self._header.names):
                self._header.units = units

    def add(self, header: Names, rows: list[list[str]]) -> None:
        """Rows of one header; bound again where the header changes."""
        if header.names != self._bound:
            self._bind(header)
        width = len(header.names)
        fits = [row for row in rows if len(row) == width or (self._last and len(row) >= width)]
        self._sink.saw(len(rows))
        self._sink.drop("another number of cells than the header has", len(rows) - len(fits))
        if not fits or self._samples is None:
            return
        frame = pl.DataFrame(
            {name: [row[i] for row in fits] for i, name in enumerate(header.names)},
            schema=dict.fromkeys(header.names, pl.String),
        )
        self._samples.add(self._values(frame))

    def _bind(self, header: Names) -> None:
        """Bindings and clock of a header; a later header only adds what is new.

        Raises:
            ImportFormatError: Nothing is bound; or there are no times.
        """
        self._bindings = bind(header, self._known, self._options)
        check_bound(self._where, self._bindings)
        told = {b.source for b in self._sink.account.bindings}
        self._sink.bind(*(b for b in self._bindings if b.source not in told))
        self._bound = header.names
        if self._samples is not None:
            return
        if header.has_date and header.has_time:
            self._reader = TimeReader(DATED, self._options.tz)
            self._sink.clock(self._reader.clock, resolution_ns=10**9)
        elif self._options.interval_ns is None:
            raise no_times(self._where)
        else:
            self._sink.clock("relative")
        self._samples = Samples(
            self._sink,
            self._options,
            whole_seconds=self._reader is not None,
            timeless=self._reader is None,
            describes=not self._last,
        )

    def _values(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Time, GPU, and the metrics in the tables' units; ``-`` is missing."""
        gpu = frame["gpu"].cast(pl.Int64, strict=False)
        times = (
            self._counted(gpu)
            if self._reader is None
            else self._reader.read(frame["date"] + " " + frame["time"])
        )
        columns = [times.alias("t_ns"), gpu.alias("gpu")]
        for binding in self._bindings:
            if binding.meaning == "pid":
                columns.append(frame[binding.source].cast(pl.Int64, strict=False).alias("pid"))
            elif binding.is_metric and binding.meaning in MEANINGS:
                value = frame[binding.source].cast(pl.Float64, strict=False) * factor(binding)
                columns.append(value.alias(binding.meaning))
        made = pl.DataFrame(columns)
        return made.filter(pl.col("pid").is_not_null()) if "pid" in made.columns else made

    def _counted(self, gpu: pl.Series) -> pl.Series:
        """Times without stamps: a new sweep begins where the GPU's index does not grow."""
        found = []
        for index in gpu.to_list():
            at = -1 if index is None else index
            if at <= self._gpu_before:
                self._sweep += 1
            self._gpu_before = at
            found.append(max(self._sweep, 0) * (self._options.interval_ns or 1))
        return pl.Series("t_ns", found, dtype=pl.Int64)

    def finish(self) -> None:
        """Write what is left."""
        if self._samples is not None:
            self._samples.finish()
