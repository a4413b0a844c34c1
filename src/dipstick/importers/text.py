"""Tolerant reading of CSV and JSON lines: bad lines are counted, not fatal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read_csv(path: Path, columns: Mapping[str, Any], required: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Read a CSV with a header; cells that do not fit their type are null.

    Args:
        path: The file; a byte-order mark, CRLF, blank lines and a cut last line are fine. Quotes are plain
            characters: telemetry has none, and one stray quote would swallow the rest of the file.
        columns: Type of each column by header name, lower case; columns that are absent become null.
        required: Columns without which a row is useless.

    Returns:
        The usable rows with exactly ``columns`` (NaN is null), and how many rows were skipped.

    Raises:
        ImportFormatError: A required column is not in the header, or the file is no text.
    """
    raw = _raw_csv(path)
    if raw.width == 0:
        return pl.DataFrame(schema=dict(columns)), 0
    absent = [name for name in required if name not in raw.columns]
    if absent:
        raise ImportFormatError(
            f"the header has no column {', '.join(absent)}.",
            where=str(path),
            fix=f"Expected: {','.join(columns)}",
        )
    frame = raw.select(_cell(name, dtype, raw.columns) for name, dtype in columns.items())
    good = frame.drop_nulls(required)
    return good, frame.height - good.height


def _raw_csv(path: Path) -> pl.DataFrame:
    """Every cell as text under lower-case names; blank lines left out. No columns if the file is empty."""
    try:
        raw = pl.read_csv(
            path,
            glob=False,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
            quote_char=None,
        )
        named = raw.rename({name: name.strip().lower() for name in raw.columns})
    except pl.exceptions.NoDataError:
        return pl.DataFrame()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ImportFormatError(
            f"it can't be read as CSV: {str(error).splitlines()[0]}", where=str(path)
        ) from error
    return named.filter(pl.any_horizontal(pl.all().is_not_null()))


def _cell(name: str, dtype: Any, present: list[str]) -> pl.Expr:
    """One column, cast from text; NaN is a missing value."""
    if name not in present:
        return pl.lit(None, dtype=dtype).alias(name)
    value = pl.col(name).str.strip_chars().cast(dtype, strict=False)
    return value.fill_nan(None) if dtype in {pl.Float32, pl.Float64} else value


def read_json_lines(
    path: Path, columns: Mapping[str, Any], required: Sequence[str]
) -> tuple[pl.DataFrame, int]:
    """Read one JSON object a line; lines that are none, or whose values do not fit, are skipped.

    Args:
        path: The file.
        columns: Type of each member that is wanted; absent members become null.
        required: Members without which a line is useless.

    Returns:
        The usable rows with exactly ``columns``, and how many lines were skipped.
    """
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    objects = [found for line in lines if (found := json_object(line)) is not None]
    frame = pl.DataFrame(
        {
            name: pl.Series(name, [fitting(found.get(name), dtype) for found in objects], dtype=dtype)
            for name, dtype in columns.items()
        },
        schema=dict(columns),
    )
    good = frame.drop_nulls(required)
    return good, len(lines) - good.height


def json_object(line: bytes | str) -> dict[str, Any] | None:
    """The JSON object on a line, None if there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def fitting(value: object, dtype: Any) -> object:
    """The value if it fits the type, else None; a whole float is an integer, a boolean is no number."""
    if dtype == pl.String:
        return value if isinstance(value, str) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if dtype == pl.Float64:
        return float(value) if isinstance(value, float) or abs(value) < 2**1000 else None
    whole = int(value) if isinstance(value, int) or value.is_integer() else None
    limit = 2**31 if dtype == pl.Int32 else 2**63
    return whole if whole is not None and -limit <= whole < limit else None
