"""The files of a recording as lazy tables in today's schema; damaged files cost themselves, not the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.model import Note
from dipstick.recording.layout import STREAM
from dipstick.recording.schema import frame_schema
from dipstick.recording.segments import read_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dipstick.recording.layout import Listing, PartFile
    from dipstick.recording.manifest import Manifest

    Query = Callable[[pl.LazyFrame], pl.LazyFrame]


UNREADABLE: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What damaged bytes make Polars raise; a panic is how some of its decoders refuse a page."""


@dataclass(frozen=True, slots=True)
class Part:
    """One readable file.

    Attributes:
        key: ``TABLE/FILE``.
        rows: Lazy frame with exactly ``frame_schema(table)``, times as stored.
        path: Set if the file has today's schema, so that it can be scanned together with others.
    """

    key: str
    rows: pl.LazyFrame
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one table by one writer, in file order; the writer's anchors hold for them."""

    table: str
    writer: str
    parts: tuple[Part, ...]

    @property
    def rows(self) -> pl.LazyFrame:
        """All parts; one scan of many files where they have today's schema (the usual case)."""
        paths = [part.path for part in self.parts if part.path is not None]
        if len(paths) == len(self.parts):
            return pl.scan_parquet(paths, glob=False)
        return pl.concat([part.rows for part in self.parts])

    def collect(self, query: Query) -> tuple[pl.DataFrame, list[str]]:
        """Run a query over the rows; parts whose data pages are damaged are left out.

        Args:
            query: Lazy rows to lazy result; run once over all parts, or, if that fails, part by part.

        Returns:
            The result (part by part concatenated), and the keys of the damaged parts.
        """
        try:
            return query(self.rows).collect(), []
        except UNREADABLE:
            return self._collect_each(query)

    def _collect_each(self, query: Query) -> tuple[pl.DataFrame, list[str]]:
        """The query, part by part."""
        results = [query(pl.LazyFrame(schema=frame_schema(self.table))).collect()]
        damaged: list[str] = []
        for part in self.parts:
            try:
                results.append(query(part.rows).collect())
            except UNREADABLE:
                damaged.append(part.key)
        return pl.concat(results), damaged


def open_parts(listing: Listing, manifest: Manifest) -> tuple[list[Source], list[Note]]:
    """Open every readable file.

    Args:
        listing: What the folder holds.
        manifest: Names the finished parts and their rows, so that a lost one is noticed.

    Returns:
        The sources (one a table and writer), and a note for each file that can't be read in full.
    """
    notes = [Note("warning", f"{name} is a symbolic link: not followed") for name in listing.links]
    found: dict[tuple[str, str], list[Part]] = {}
    for file in listing.parts:
        part, note = _open(file, manifest.parts.get(file.key))
        notes += [note] if note else []
        if part is not None:
            found.setdefault((file.table, file.writer), []).append(part)
    present = {file.key for file in listing.parts}
    lost = {key: rows for key, rows in manifest.parts.items() if key not in present}
    notes += [Note("warning", f"{key} is missing: {rows} rows are lost") for key, rows in lost.items()]
    return [Source(table, writer, tuple(parts)) for (table, writer), parts in found.items()], notes


def damaged_note(key: str, rows: int | None) -> Note:
    """A part that can't be read, and what that costs as far as the manifest knows."""
    cost = "its rows are lost" if rows is None else f"{rows} rows are lost"
    return Note("warning", f"{key} is damaged or cut short: {cost}")


def _open(file: PartFile, rows: int | None) -> tuple[Part | None, Note | None]:
    """A file as a part, and what is wrong with it."""
    if file.path.suffix == f".{STREAM}":
        return _open_stream(file)
    try:
        schema = pl.scan_parquet(file.path, glob=False).collect_schema()
    except UNREADABLE:
        return None, damaged_note(file.key, rows)
    if schema == frame_schema(file.table):
        return Part(file.key, pl.scan_parquet(file.path, glob=False), file.path), None
    return Part(file.key, conform(pl.scan_parquet(file.path, glob=False), schema, file.table)), None


def _open_stream(file: PartFile) -> tuple[Part | None, Note | None]:
    """A live or abandoned segment: every complete batch."""
    frame, whole = read_segment(file.path)
    note = None
    if not whole:
        kept = f"its {frame.height} complete rows were read"
        note = Note("info", f"{file.key} ends in the middle of a write (the writer was killed): {kept}")
    if frame.width == 0:
        return None, note
    return Part(file.key, conform(frame.lazy(), frame.schema, file.table)), note


def conform(frame: pl.LazyFrame, schema: pl.Schema, table: str) -> pl.LazyFrame:
    """Bring an older or foreign schema into today's: missing columns null, extra ones left out."""
    wanted = frame_schema(table)
    filled = frame.with_columns(_column(name, dtype, schema.get(name)) for name, dtype in wanted.items())
    return filled.select(list(wanted))


def _column(name: str, dtype: Any, found: pl.DataType | None) -> pl.Expr:
    """One column, cast where it has another type; a nested value is no value."""
    if found is None or found.is_nested():
        return pl.lit(0 if name == "clock" else None, dtype=dtype).alias(name)
    column = pl.col(name)
    if found != dtype:
        column = column.cast(dtype, strict=False)
    return column.fill_null(0) if name == "clock" else column
