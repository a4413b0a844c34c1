"""What is wrong with rows, how many, and what happens to them. Nothing is changed in silence.

Rules, in order (each one that fires becomes a note with the number of rows):

1. a time <= 0 or beyond 2**62 ns is absurd: the row is dropped (an optional time becomes null);
2. a row without a required time is dropped;
3. a row that ends before it starts is dropped;
4. NaN and infinities become null: missing, never zero;
5. a percentage outside 0-110, or another negative reading, becomes null; 100-110 counts as 100;
6. rows are sorted by time, and a row written twice (same key, see ``schema.KEYS``) is dropped.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.model import Note
from dipstick.recording.schema import INTERVALS, REQUIRED_TIMES, TABLES, TIME_COLUMNS

if TYPE_CHECKING:
    from typing import Literal

LATEST_NS: Final = 2**62
PERCENT_LIMIT: Final = 110.0
"""Counters that divide busy cycles by a nominal window (GPM, per-process utilization) read up to a few percent
over 100 when the real window was longer. Those mean "100"; beyond 110 % the value is not a percentage."""

MESSAGES: Final[dict[str, tuple[Literal["info", "warning"], str]]] = {
    "absurd": ("warning", "{n} with a time that can't be (<= 0 or beyond 2**62 ns): dropped"),
    "absurd_optional": ("warning", "{n} with an optional time that can't be: that time is ignored"),
    "null_time": ("warning", "{n} without a start or end time: dropped"),
    "backwards": ("warning", "{n} that end before they start: dropped"),
    "no_clock": ("warning", "{n} stamped by a clock without anchors can't be placed in time: dropped"),
    "not_finite": ("warning", "{n} values NaN or infinite: treated as missing"),
    "out_of_range": (
        "warning",
        "{n} values outside what the unit allows (percent 0-100, no negatives): missing",
    ),
    "clipped": ("info", "{n} percentages between 100 and 110: counted as 100"),
    "duplicate": ("warning", "{n} written twice: kept once"),
    "unsorted": ("info", "rows were not in time order ({n} times back): sorted"),
    "overlapping": (
        "info",
        "{n} overlap the span before in the same thread without nesting: the later start wins",
    ),
}


def notes_of(table: str, counts: Counter[str]) -> list[Note]:
    """The counts in words, one note a reason."""
    return [
        Note(level, f"{table}: {text.format(n=counts[key])}")
        for key, (level, text) in MESSAGES.items()
        if counts[key]
    ]


def valid_times(table: str) -> pl.Expr:
    """Whether a row has every required time, none absurd, and does not end before it starts (on raw times)."""
    fine = [sane(column) for column in REQUIRED_TIMES[table]]
    return pl.all_horizontal(*fine, ~_ends_early(table)).fill_null(value=False)


def clock_number() -> pl.Expr:
    """The clock of a row; a file that another tool wrote may leave it out, and then means Unix time."""
    return pl.col("clock").fill_null(0)


def sane(column: str) -> pl.Expr:
    """Whether a stored time can be one."""
    return (pl.col(column) > 0) & (pl.col(column) <= LATEST_NS)


def _ends_early(table: str) -> pl.Expr:
    if table not in INTERVALS:
        return pl.lit(value=False)
    start, end = INTERVALS[table]
    return (pl.col(end) < pl.col(start)).fill_null(value=False)


def drop_bad_times(frame: pl.DataFrame, table: str, counts: Counter[str]) -> pl.DataFrame:
    """Apply rules 1-3 to the rows of one clock or several; the times are raw (not yet converted).

    An event without an end is an instant: its end becomes its start.

    Args:
        frame: Rows with at least the table's time columns.
        table: Which table.
        counts: Gets the number of rows by reason.

    Returns:
        The rows that can be placed in time.
    """
    optional = [c for c in TIME_COLUMNS[table] if c not in REQUIRED_TIMES[table]]
    strange = [c for c in optional if c in frame.columns and not frame[c].is_null().all()]
    if strange:
        bad = frame.select((~sane(c)).sum() for c in strange).row(0)
        counts["absurd_optional"] += sum(n or 0 for n in bad)
        frame = frame.with_columns(pl.when(sane(c)).then(pl.col(c)) for c in strange)
    if table == "events" and "t1_ns" in frame.columns:
        frame = frame.with_columns(pl.col("t1_ns").fill_null(pl.col("t0_ns")))
    keep = frame.select(valid_times(table).alias("keep"))["keep"]
    if keep.all():
        return frame
    _count_bad(frame.filter(~keep), table, counts)
    return frame.filter(keep)


def _count_bad(bad: pl.DataFrame, table: str, counts: Counter[str]) -> None:
    """Why each of these rows can't be used; the first reason counts."""
    required = REQUIRED_TIMES[table]
    absurd = pl.any_horizontal((~sane(c)).fill_null(value=False) for c in required)
    missing = pl.any_horizontal(pl.col(c).is_null() for c in required)
    reason = pl.when(absurd).then(pl.lit("absurd")).when(missing).then(pl.lit("null_time"))
    reasons = bad.select(reason.otherwise(pl.lit("backwards")).alias("reason"))["reason"]
    counts.update(dict(reasons.value_counts().iter_rows()))


def clean_values(frame: pl.DataFrame, table: str, counts: Counter[str]) -> pl.DataFrame:
    """Apply rules 4 and 5 to the measured columns that are present."""
    exprs: list[pl.Expr] = []
    tallies: list[tuple[str, pl.Expr]] = []
    for name in frame.columns:
        column = pl.col(name)
        finite = pl.lit(value=True)
        if TABLES[table][name] in {pl.Float32, pl.Float64}:
            finite = column.is_finite()
            tallies.append(("not_finite", (~finite).sum()))
        low, high = _limits(table, name)
        if low is not None:
            inside = column.is_between(low, high) if high is not None else column >= low
            tallies.append(("out_of_range", (finite & ~inside).sum()))
            finite &= inside
        if high is not None:
            tallies.append(("clipped", (finite & (column > 100.0)).sum()))  # noqa: PLR2004 - percent
        exprs.append(_kept(name, finite, percent=high is not None))
    totals = frame.select(expr.alias(str(i)) for i, (_, expr) in enumerate(tallies))
    found: Counter[str] = Counter()
    for (reason, _), total in zip(tallies, totals.row(0) if tallies else (), strict=True):
        found[reason] += total or 0
    counts.update(found)
    return frame.with_columns(exprs) if found.total() else frame


def _kept(name: str, good: pl.Expr, *, percent: bool) -> pl.Expr:
    """The column with bad values null and, for a percentage, the overshoot cut."""
    column = pl.col(name)
    return pl.when(good).then(column.clip(upper_bound=100.0) if percent else column).alias(name)


def _limits(table: str, name: str) -> tuple[float | None, float | None]:
    """The range a measured column can have; (None, None) for anything that is no measurement."""
    if name.endswith("_pct"):
        return 0.0, PERCENT_LIMIT
    if table.startswith("gpu") and name.endswith(("_b", "_w", "_mhz", "_mib_s", "window_ns")):
        return 0, None
    return None, None
