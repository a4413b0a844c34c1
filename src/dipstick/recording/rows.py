"""Rows as callers have them, checked against the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from dipstick.errors import RecordingError
from dipstick.recording.schema import TABLES, frame_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = pl.DataFrame | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def to_frame(table: str, rows: Rows) -> pl.DataFrame:
    """Bring rows into the table's schema: columns in order, missing ones null (``clock``: 0).

    Args:
        table: A name in ``TABLES``.
        rows: A DataFrame, a dict of lists, or a list of dicts.

    Returns:
        A frame with exactly the columns and types of ``frame_schema(table)``.

    Raises:
        RecordingError: Unknown table, unknown column, or a value that does not fit the column's type.
    """
    if table not in TABLES:
        raise RecordingError(f"there is no table {table!r}.", fix=f"Tables: {', '.join(TABLES)}.")
    schema = frame_schema(table)
    names = _names(rows)
    if not names:
        return pl.DataFrame(schema=schema)
    unknown = [name for name in names if name not in schema]
    if unknown:
        raise RecordingError(
            f"the table has no column {', '.join(map(repr, unknown))}.",
            where=table,
            fix=f"Columns: {', '.join(schema)}.",
        )
    try:
        frame = _build(rows, {name: TABLES[table][name] for name in names})
        return frame.select(_column(name, dtype, names) for name, dtype in schema.items())
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise RecordingError(f"a value does not fit its column: {error}", where=table) from error


def _names(rows: Rows) -> list[str]:
    """Column names that the rows use, in order of first appearance."""
    if isinstance(rows, pl.DataFrame):
        return rows.columns
    if isinstance(rows, Mapping):
        return list(rows)
    return list(dict.fromkeys(name for row in rows for name in row))


def _build(rows: Rows, schema: dict[str, Any]) -> pl.DataFrame:
    """A frame of the columns that are there."""
    if isinstance(rows, pl.DataFrame):
        return rows
    if isinstance(rows, Mapping):
        return pl.DataFrame(rows, schema=schema)
    return pl.from_dicts(list(rows), schema=schema)


def _column(name: str, dtype: Any, present: list[str]) -> pl.Expr:
    """One column of the result: cast, or filled (``clock`` 0 means Unix time)."""
    if name in present:
        column = pl.col(name).cast(dtype)
        return column.fill_null(0) if name == "clock" else column
    return pl.lit(0 if name == "clock" else None, dtype=dtype).alias(name)
