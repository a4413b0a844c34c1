"""CSV, JSON lines and Parquet as batches of text columns: what the generic importer reads, whatever it is stored in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.base import Head
from dipstick.importers.cells import read_cells
from dipstick.importers.chunks import chunks
from dipstick.importers.layout import MAX_COLUMNS, find_layout
from dipstick.importers.text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Sink

PARQUET_MAGIC: Final = b"PAR1"
BATCH: Final = 65_536
PIECE: Final = 4 << 20


def records(path: Path, sink: Sink) -> Iterator[pl.DataFrame]:
    """Batches with all columns as text; what is no single value (lists, objects) is null.

    Args:
        path: The file.
        sink: Counts rows, and lines that are no record.

    Raises:
        ImportFormatError: The file is damaged.
    """
    head = Head(path)
    if head.raw.startswith(PARQUET_MAGIC):
        yield from _parquet(path, sink)
    elif head.text.lstrip().startswith("{"):
        yield from _json_lines(path, sink)
    else:
        yield from _csv(path, head, sink)


def first_names(head: Head) -> tuple[str, ...]:
    """The columns, from the beginning of the file; empty if it is no such file."""
    if head.raw.startswith(PARQUET_MAGIC):
        try:
            return tuple(pl.scan_parquet(head.path, glob=False).collect_schema())
        except (pl.exceptions.PolarsError, OSError):
            return ()
    if head.text.lstrip().startswith("{"):
        first = json_object(head.lines[0]) if head.lines else None
        return tuple(first) if first else ()
    try:
        layout = find_layout(head.lines, str(head.path))
    except ImportFormatError:
        return ()
    return layout.names if layout is not None and layout.has_header else ()


def _parquet(path: Path, sink: Sink) -> Iterator[pl.DataFrame]:
    """Row group by row group."""
    import pyarrow as pa  # noqa: PLC0415 - only for Parquet
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            plain = [f.name for f in file.schema_arrow if not pa.types.is_nested(f.type)][:MAX_COLUMNS]
            for batch in file.iter_batches(batch_size=BATCH, columns=plain):
                frame = pl.DataFrame(pl.from_arrow(batch))
                sink.saw(frame.height)
                yield frame.select(_as_text(frame[name]) for name in frame.columns)
    except (pa.ArrowException, pl.exceptions.PolarsError, ValueError) as error:
        raise ImportFormatError(
            f"the Parquet file is damaged: {str(error).splitlines()[0]}", where=str(path)
        ) from error


def _as_text(column: pl.Series) -> pl.Series:
    """Text; points in time as ISO (with offset if they have a zone)."""
    if isinstance(column.dtype, pl.Datetime):
        zone = column.dtype.time_zone
        text = (column.dt.convert_time_zone("UTC") if zone else column).dt.strftime("%Y-%m-%dT%H:%M:%S%.9f")
        return text + "+00:00" if zone else text
    return column.cast(pl.String, strict=False)


def _json_lines(path: Path, sink: Sink) -> Iterator[pl.DataFrame]:
    """One object a line; lines that are none are counted."""
    for data, done in chunks(path, size=PIECE):
        found = [json_object(line) for line in data.split(b"\n") if line.strip()]
        good = [row for row in found if row is not None]
        sink.saw(len(found))
        sink.drop("no JSON object on the line", len(found) - len(good))
        names = list(dict.fromkeys(name for row in good for name in row))[:MAX_COLUMNS]
        if good and names:
            yield pl.DataFrame(
                {name: [_cell(row.get(name)) for row in good] for name in names},
                schema=dict.fromkeys(names, pl.String),
            )
        sink.progress(done)


def _cell(value: object) -> str | None:
    """A number or text; huge integers are none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return repr(value)


def _csv(path: Path, head: Head, sink: Sink) -> Iterator[pl.DataFrame]:
    """A table with a header; rows with more cells than it has are dropped."""
    layout = find_layout(head.lines, str(path))
    if layout is None or not layout.has_header or layout.delimiter == " ":
        raise ImportFormatError("it has no line that names its columns.", where=str(path))
    skip = layout.skip
    for data, done in chunks(path, quoted=layout.quoted):
        body = data
        while skip and body:
            body, skip = body[body.find(b"\n") + 1 :], skip - 1
        frame = read_cells(body, len(layout.names), layout.delimiter, quoted=layout.quoted, where=str(path))
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
        sink.saw(frame.height)
        fits = frame.filter(pl.col("extra").is_null())
        sink.drop("more cells than the header has", frame.height - fits.height)
        yield fits.drop("extra").rename({f"c{i}": name for i, name in enumerate(layout.names)})
        sink.progress(done)
