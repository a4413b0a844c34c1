"""Clocks of a recording: every writer's anchors, conversion of its rows, time ranges on raw clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick.clock import ClockMap, fit_clock
from dipstick.model import Note
from dipstick.recording.clean import clock_number
from dipstick.recording.schema import INTERVALS, TIME_COLUMNS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

MARGIN_NS: Final = 1_000
"""Slack of a pushed-down range: the inverse conversion is exact to nanoseconds, the exact filter comes after."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of one writer; number 0 is Unix time and needs no anchor."""

    maps: dict[int, ClockMap]
    names: dict[int, str]

    def to_unix(self, clock: int, value: int) -> int:
        """One time of one clock as Unix time."""
        if clock == 0:
            return value
        return int(self.maps[clock].to_unix(np.array([value], dtype=np.int64))[0])

    def to_raw(self, clock: int, unix_ns: int) -> int:
        """The time that this clock showed at a Unix time, to a few nanoseconds."""
        if clock == 0:
            return unix_ns
        return int(self.maps[clock].to_mono(np.array([unix_ns], dtype=np.int64))[0])

    def knows(self, clock: int) -> bool:
        """Whether times of this clock can be placed."""
        return clock == 0 or clock in self.maps


def fit_clocks(anchors: pl.DataFrame) -> Clocks:
    """Fit every clock in one writer's ``anchors`` rows; null rows are skipped."""
    whole = anchors.filter(pl.all_horizontal(pl.col("clock", "mono_ns", "unix_ns").is_not_null()))
    maps: dict[int, ClockMap] = {}
    names: dict[int, str] = {}
    for (clock,), rows in whole.group_by("clock", maintain_order=True):
        number = int(str(clock))
        maps[number] = fit_clock(rows["mono_ns"].to_numpy(), rows["unix_ns"].to_numpy())
        names[number] = f"process {rows['pid'][0]} on {rows['host'][0]}"
    return Clocks(maps, names)


def step_notes(clocks: Iterable[Clocks]) -> list[Note]:
    """What the reader should know about wall clocks that were set while recording."""
    return [
        Note(
            "warning",
            f"the wall clock of {owner.names[number]} was set by {step.step_ns / 1e9:+z.3f} s within "
            f"{(step.before_ns - step.after_ns) / 1e9:z.0f} s after Unix {step.unix_ns / 1e9:z.3f}; removed from the time axis",
        )
        for owner in clocks
        for number, clock in owner.maps.items()
        for step in clock.steps
    ]


def raw_range(table: str, clocks: Clocks, used: Iterable[int], start_ns: int, end_ns: int) -> pl.Expr:
    """A filter on stored times that keeps every row of a Unix time range (and a microsecond around it)."""
    return reduce(
        or_,
        (
            (clock_number() == number)
            & in_range(
                table, clocks.to_raw(number, start_ns) - MARGIN_NS, clocks.to_raw(number, end_ns) + MARGIN_NS
            )
            for number in used
        ),
        pl.lit(value=False),
    )


def in_range(table: str, start_ns: int, end_ns: int) -> pl.Expr:
    """Whether a row lies in ``[start, end)``; a row that lasts is in if any part of it is."""
    first, last = INTERVALS.get(table, (TIME_COLUMNS[table][0],) * 2)
    begin, finish = pl.col(first), pl.col(last)
    if first == last:
        return (begin >= start_ns) & (begin < end_ns)
    ends_inside = (finish > start_ns) | (begin >= start_ns)
    return (begin < end_ns) & ends_inside.fill_null(value=False)


def convert(frame: pl.DataFrame, table: str, clocks: Clocks, counts: Counter[str]) -> pl.DataFrame:
    """Put the times of one writer's rows on the Unix axis.

    Args:
        frame: Rows with ``clock`` and the table's time columns.
        table: Which table.
        clocks: The writer's clocks.
        counts: Gets ``no_clock``, the rows whose clock has no anchor (they are dropped).

    Returns:
        The rows, times converted; ``clock`` stays as it was.
    """
    used = [int(number) for number in frame["clock"].unique().to_list()]
    lost = [number for number in used if not clocks.knows(number)]
    if lost:
        counts["no_clock"] += int(frame["clock"].is_in(lost).sum())
        frame = frame.filter(~pl.col("clock").is_in(lost))
    for number in set(used) - set(lost) - {0}:
        frame = _convert_one(frame, table, number, clocks.maps[number])
    return frame


def _convert_one(frame: pl.DataFrame, table: str, number: int, clock: ClockMap) -> pl.DataFrame:
    """Convert the rows of one clock, leaving the others."""
    mine = frame["clock"] == number
    columns = [
        pl.Series(name, clock.to_unix(frame[name].fill_null(0).to_numpy()))
        for name in TIME_COLUMNS[table]
        if name in frame.columns
    ]
    converted = pl.DataFrame(columns)
    return frame.with_columns(
        pl.when(mine & frame[c].is_not_null()).then(converted[c]).otherwise(pl.col(c)).alias(c)
        for c in converted.columns
    )
