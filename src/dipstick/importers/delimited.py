"""Telemetry in delimited text: nvidia-smi's CSV, what AMD's tools print, and tables that people write by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.base import Head
from dipstick.importers.binding import check_bound
from dipstick.importers.cells import read_cells
from dipstick.importers.chunks import chunks
from dipstick.importers.columns import Columns, find_columns
from dipstick.importers.headerless import needs_names
from dipstick.importers.layout import Layout, find_layout
from dipstick.importers.samples import Samples, count_times, no_times
from dipstick.importers.times import TimeReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Sink
    from dipstick.importers.options import Options

UNIT_CHARACTERS: Final = " \t\r\"'%MiBGKWHzCmb°/s[]"
"""Stripped from both ends of a cell before it is read as a number."""

ABSURD: Final = 1e15
"""DCGM and others write 2**63 - k or 140737488355328 for no value."""

_BLANKS: Final = re.compile(rb"[ \t]+")


def read_telemetry(path: Path, options: Options, sink: Sink, *, model: str | None = None) -> None:
    """Read a table of telemetry into the sink (``model``: name of GPUs that have none).

    Raises:
        ImportFormatError: It is no table, its columns can't be bound, or its rows have no times and none were given.
    """
    where = str(path)
    layout = find_layout(Head(path).lines, where)
    if layout is None:
        raise ImportFormatError(
            "it is no table: no line names columns, and none holds numbers only.", where=where
        )
    columns = find_columns(layout, options, where)
    if not columns.metrics and not layout.has_header and layout.sample:
        raise needs_names(where, layout.names, layout.sample[0])
    check_bound(where, list(columns.bindings))
    sink.bind(*columns.bindings)
    reader = time_reader(columns, options, sink, where)
    whole = columns.time is not None and columns.time.resolution_ns > 0
    samples = Samples(sink, options, whole_seconds=whole, timeless=reader is None, model=model)
    done_rows = 0
    for raw, done in _frames(path, layout, columns, sink):
        for frame in telemetry_batch(raw, layout, columns, reader, options, done_rows):
            samples.add(frame)
        done_rows += raw.height
        sink.progress(done)
    samples.finish()
    _refuse_empty(sink, columns, where)


def telemetry_batch(
    raw: pl.DataFrame,
    layout: Layout,
    columns: Columns,
    reader: TimeReader | None,
    options: Options,
    done: int,
) -> Iterator[pl.DataFrame]:
    """Text columns ``c0`` ... as frames with time, GPU and metrics in the tables' units; ``done`` rows came before."""
    times = _times(raw, columns, reader, options, done)
    yield from _values(raw.with_columns(times.alias("t_ns")), layout, columns)


def time_reader(columns: Columns, options: Options, sink: Sink, where: str) -> TimeReader | None:
    """Reads the time column; None where rows are counted instead.

    Raises:
        ImportFormatError: There is no time, and no ``--interval``.
    """
    if columns.time is None:
        if options.interval_ns is None:
            raise no_times(where)
        sink.clock("relative")
        return None
    reader = TimeReader(columns.time, options.tz)
    sink.clock(reader.clock, resolution_ns=columns.time.resolution_ns)
    if columns.time.resolution_ns:
        sink.note("info", f"{sink.file}: its times are whole seconds: each may be up to a second early")
    return reader


def _frames(path: Path, layout: Layout, columns: Columns, sink: Sink) -> Iterator[tuple[pl.DataFrame, int]]:
    """The needed columns as text, named ``c0`` ..., data rows only; and bytes done."""
    separator = "\t" if layout.delimiter == " " else layout.delimiter
    needed = sorted({*columns.places.values(), *(i for i, *_ in columns.metrics)})
    skip = layout.skip
    for data, done in chunks(
        path, quoted=layout.quoted, damage=lambda why: sink.note("warning", f"{sink.file}: {why}")
    ):
        body = data
        while skip and body:
            body, skip = body[body.find(b"\n") + 1 :], skip - 1
        if layout.delimiter == " ":
            body = b"\n".join(_BLANKS.sub(b"\t", line.strip()) for line in body.split(b"\n"))
        frame = read_cells(
            body, len(layout.names), separator, quoted=layout.quoted, where=str(path), wanted=needed
        )
        yield _data_rows(frame, layout, columns, sink), done


def _data_rows(frame: pl.DataFrame, layout: Layout, columns: Columns, sink: Sink) -> pl.DataFrame:
    """Without repeated headers, blank lines and rows with more cells than there are columns.

    Raises:
        ImportFormatError: Another header comes in the middle of the file.
    """
    cells = [c for c in frame.columns if c != "extra"]
    blank = pl.all_horizontal(pl.col(c).is_null() for c in cells)
    frame = frame.filter(~blank)
    if layout.has_header:
        named = {f"c{i}": layout.names[i] for i, *_ in columns.metrics}
        is_name = [pl.col(c).str.strip_chars(' "\r') == name for c, name in named.items()]
        is_header = pl.all_horizontal(is_name).fill_null(value=False)
        _refuse_other_header(frame.filter(~is_header), layout, columns, sink)
        frame = frame.filter(~is_header)
    sink.saw(frame.height)
    fits = frame.filter(pl.col("extra").is_null() | (pl.col("extra").str.strip_chars() == ""))
    sink.drop("more cells than the header has", frame.height - fits.height)
    return fits.drop("extra")


def _refuse_other_header(frame: pl.DataFrame, layout: Layout, columns: Columns, sink: Sink) -> None:
    """A second header with other columns: what comes behind it would be bound to the wrong ones."""
    place = columns.places.get("time", columns.places.get("gpu"))
    if place is None:
        return
    again = frame.filter(pl.col(f"c{place}").str.strip_chars(' "\r#') == layout.names[place].strip(" #"))
    if again.height:
        shown = ", ".join(str(value) for value in again.row(0) if value is not None)
        raise ImportFormatError(
            f"another header comes in the middle of it, with other columns ({shown}).", where=sink.file,
            fix="Split the file before that line, and import the parts together.",
        )  # fmt: skip


def _times(
    raw: pl.DataFrame, columns: Columns, reader: TimeReader | None, options: Options, done: int
) -> pl.Series:
    """Nanoseconds of each row."""
    if reader is None:
        return count_times(
            raw.height, done, options.interval_ns or 1, _rows_of_a_sweep(raw, columns, options)
        )
    if "date" in columns.places and "clock" in columns.places:
        both = pl.concat_str(
            [pl.col(f"c{columns.places[key]}").str.strip_chars() for key in ("date", "clock")], separator=" "
        )
        return reader.read(raw.select(both.alias("t"))["t"])
    place = columns.places["time"] if "time" in columns.places else columns.places["elapsed"]
    return reader.read(raw[f"c{place}"].str.strip_chars(' "\r\t'))


def _rows_of_a_sweep(raw: pl.DataFrame, columns: Columns, options: Options) -> int:
    """How many GPUs a file without times has."""
    if "gpu" in columns.places:
        return max(raw[f"c{columns.places['gpu']}"].str.strip_chars().n_unique(), 1)
    return options.gpus or 1


def number(column: str, layout: Layout) -> pl.Expr:
    """A cell as a number: unit cut off, words and absurd values null."""
    text = pl.col(column).str.strip_chars(UNIT_CHARACTERS)
    if layout.decimal_comma:
        text = text.str.replace(",", ".", literal=True)
    value = text.cast(pl.Float64, strict=False)
    return pl.when(value.abs() < ABSURD).then(value)


def _values(raw: pl.DataFrame, layout: Layout, columns: Columns) -> Iterator[pl.DataFrame]:
    """Named columns in the tables' units; one frame, or one a GPU for wide tables."""
    shared = [pl.col("t_ns"), *_described(columns, layout)]
    for gpu in dict.fromkeys(gpu for *_, gpu in columns.metrics):
        mine = [
            (number(f"c{i}", layout) * times).alias(meaning) if times != 1 else number(f"c{i}", layout).alias(meaning)
            for i, meaning, times, g in columns.metrics if g == gpu
        ]  # fmt: skip
        which = [] if gpu is None else [pl.lit(gpu, dtype=pl.Int64).alias("gpu")]
        others = shared if gpu is None else [e for e in shared if e.meta.output_name() != "gpu"]
        yield raw.lazy().select(*others, *which, *mine).collect()


def _described(columns: Columns, layout: Layout) -> list[pl.Expr]:
    """GPU, host, process and what describes the GPU."""
    found = []
    for key, place in columns.places.items():
        cell = pl.col(f"c{place}").str.strip_chars(' "\r')
        if key in {"gpu", "pid"}:
            direct = cell.cast(pl.Int64, strict=False)
            found.append(
                direct.fill_null(
                    cell.str.extract(r"^[A-Za-z: ]+(\d{1,5})$").cast(pl.Int64, strict=False)
                ).alias(key)
            )
        elif key in {"host", "name", "uuid"}:
            found.append(pl.when(cell.str.len_chars() > 0).then(cell).alias(key))
        elif key == "mem_total_b":
            times = next((f for b, f in _factors(columns) if b == place), 1.0)
            found.append((number(f"c{place}", layout) * times).alias(key))
    return found


def _factors(columns: Columns) -> Iterator[tuple[int, float]]:
    from dipstick.importers.binding import factor  # noqa: PLC0415

    for i, binding in enumerate(columns.bindings):
        if binding.meaning == "mem_total_b":
            yield i, factor(binding)


def _refuse_empty(sink: Sink, columns: Columns, where: str) -> None:
    """Every value is N/A: the GPU does not support the metric; that is not 0.

    Raises:
        ImportFormatError: So it is.
    """
    dropped = sink.account.dropped["no value in it (N/A)"]
    if dropped and not sink.account.tables.total() - sink.account.tables["gpus"]:
        names = ", ".join(b.source for b in columns.bindings if b.is_metric)
        raise ImportFormatError(
            f"{names}: not supported by this GPU: [N/A] or empty in all {dropped:,} rows (that is not 0).", where=where,
            fix="Nothing can be told from it. Query other fields: utilization.gpu, power.draw.",
        )  # fmt: skip
