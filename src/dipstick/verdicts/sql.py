"""Queries that derive a receipt's number again. Recorded strings are hostile: every literal is quoted here."""

from __future__ import annotations

Literal = str | int | float | None


def literal(value: Literal) -> str:
    """A SQL literal; quotes in strings are doubled.

    Example: ``it's`` becomes ``'it''s'``.
    """
    if value is None:
        return "NULL"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return repr(value)


def select(what: str, table: str, *conditions: str, **equal: Literal) -> str:
    """``SELECT what FROM table WHERE ...``.

    Args:
        what: Columns or aggregates, written by us, never from a recording.
        table: One of ``analysis.frames.names()``.
        conditions: Further conditions, written by us.
        equal: Column = value; the value may come from a recording.

    Example: ``select("SUM(seconds)", "phase_pieces", rank=0, phase="reward")``.
    """
    tests = [f"{column} = {literal(value)}" for column, value in equal.items()] + list(conditions)
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT {what} FROM {table}{where}"  # noqa: S608 - run by the user against their own recording; literals are quoted
