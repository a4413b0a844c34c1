"""Queries that derive a receipt's number again. Recorded strings are hostile: every literal is quoted here."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex

Literal = str | SupportsIndex | SupportsFloat | None


def literal(value: Literal) -> str:
    """A SQL literal; quotes in strings are doubled. What is not measured (None, NaN, infinity) is NULL.

    Half surrogates, which no UTF-8 shell can pass on, become U+FFFD.

    Example: ``it's`` becomes ``'it''s'``.
    """
    if value is None:
        return "NULL"
    if isinstance(value, str):
        doubled = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("'", "''")
        return f"'{doubled}'"
    if isinstance(value, SupportsIndex):  # also NumPy's integers, whose repr is no SQL
        return repr(value.__index__())
    number = float(value)
    return repr(number) if math.isfinite(number) else "NULL"


def equals(column: str, value: Literal) -> str:
    """``column = value``, or ``column IS NULL``: nothing equals NULL."""
    text = literal(value)
    return f"{column} IS NULL" if text == "NULL" else f"{column} = {text}"


def select(what: str, table: str, *conditions: str, **equal: Literal) -> str:
    """``SELECT what FROM table WHERE ...``.

    Args:
        what: Columns or aggregates, written by us, never from a recording.
        table: One of ``analysis.frames.names()``.
        conditions: Further conditions, written by us.
        equal: Column = value; the value may come from a recording.

    Example: ``select("SUM(seconds)", "phase_pieces", rank=0, phase="reward")``.
    """
    tests = [equals(column, value) for column, value in equal.items()] + list(conditions)
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT {what} FROM {table}{where}"  # noqa: S608 - run by the user against their own recording; literals are quoted


def within(column: str, table: str, span_s: tuple[float, float], **equal: Literal) -> str:
    """The sum of a column over a stretch of time; rows that reach outside count for the part inside.

    Args:
        column: A column of seconds, such as ``hollow_s``.
        table: A table with ``t0_s`` and ``t1_s``.
        span_s: The stretch, seconds since start.
        equal: As in :func:`select`.

    Example: 0.2 s that are hollow on [0.9, 1.1) count 0.1 s over (1.0, 5.0).
    """
    start, end = (literal(bound) for bound in span_s)
    inside = f"(LEAST(t1_s, {end}) - GREATEST(t0_s, {start})) / (t1_s - t0_s)"
    return select(
        f"COALESCE(SUM({column} * {inside}), 0.0)", table, f"t1_s > {start}", f"t0_s < {end}", **equal
    )
