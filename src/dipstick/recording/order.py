"""Rows in time order, each once; clocks that stepped back; spans that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick.clock import detect_backward_steps
from dipstick.model import Note
from dipstick.recording.schema import KEYS, TIME_COLUMNS

if TYPE_CHECKING:
    from collections import Counter

TELEMETRY: Final = {"gpu": ("host", "gpu", "source"), "gpu_counters": ("host", "gpu")}
"""Tables that are polled in time order, and what makes one series of them. Only there does a time that goes
back mean that a clock stepped; spans, for instance, are written when they end."""

MANY_STEPS: Final = 20
"""A clock steps a few times in a run; more backward moves than this are an unsorted file."""

FEW_AT_ONCE: Final = 16
"""Rows with the same time, up to which they are compared with each other one by one."""


def in_order(frame: pl.DataFrame, table: str, counts: Counter[str]) -> tuple[pl.DataFrame, list[Note]]:
    """Sort by the table's first time column and drop rows that were written twice.

    Args:
        frame: Rows of all writers in file order, times converted; the key columns must be there.
        table: Which table.
        counts: Gets the number of rows by reason.

    Returns:
        The rows in time order (rows without that time last), and notes on clocks that stepped back.
    """
    notes: list[Note] = []
    order = TIME_COLUMNS[table][0]
    if not frame[order].is_sorted(nulls_last=True):
        notes = _backward(frame, table, counts)
        frame = frame.sort(order, maintain_order=True, nulls_last=True)
    return _once(frame, table, counts), notes


def _once(frame: pl.DataFrame, table: str, counts: Counter[str]) -> pl.DataFrame:
    """Drop repeated rows; only rows that share their time with a neighbour are looked at."""
    time = pl.col(TIME_COLUMNS[table][0])
    shared = (time == time.shift(1)) | (time == time.shift(-1)) | time.is_null()
    twin = frame.select(shared.fill_null(value=False)).to_series()
    if table not in KEYS or not twin.any():
        return frame
    if _all_apart(frame, table):
        return frame
    key = pl.struct(KEYS[table])
    first = frame.filter(twin).select(key.is_first_distinct().alias("first"))["first"].to_numpy()
    if first.all():
        return frame
    counts["duplicate"] += int((~first).sum())
    keep = ~twin.to_numpy()
    keep[np.flatnonzero(~keep)] = first
    return frame.filter(pl.Series(keep))


def _all_apart(frame: pl.DataFrame, table: str) -> bool:
    """Whether no two rows that share their time have the same key: by shifts, which cost a fraction of hashing.

    Only where few rows share a time (eight GPUs polled together); False is "not known".
    """
    time = frame[TIME_COLUMNS[table][0]]
    length = time.rle().struct.field("len").max() if len(time) else 0
    if not isinstance(length, int) or length > FEW_AT_ONCE:
        return False
    same = (
        pl.all_horizontal(pl.col(c).eq_missing(pl.col(c).shift(by)) for c in KEYS[table])
        for by in range(1, length)
    )
    # the rows that a shift brings in are null: equal only to rows without a time, which are left to the hash
    return not time.null_count() and not any(frame.select(one.any()).item() for one in same)


def _backward(frame: pl.DataFrame, table: str, counts: Counter[str]) -> list[Note]:
    """Where a telemetry series goes back in time, in file order: a stepped clock, or an unsorted file."""
    if table not in TELEMETRY:
        return []
    keys = TELEMETRY[table]
    notes: list[Note] = []
    for *names, times in frame.group_by(keys, maintain_order=True).agg("t_ns").iter_rows():
        steps = detect_backward_steps(np.asarray(times, dtype=np.int64))
        if len(steps) > MANY_STEPS:
            counts["unsorted"] += len(steps)
            continue
        where = " ".join(str(name) for name in names if name is not None)
        notes += [
            Note(
                "warning",
                f"{table} of {where}: the clock went back {step.back_ns / 1e9:z.3f} s at Unix {step.unix_ns / 1e9:z.3f}",
            )
            for step in steps
        ]
    return notes


def count_overlaps(spans: pl.DataFrame) -> int:
    """Spans that start inside the span before them in the same thread and end after it.

    Nested spans are normal. Spans of one thread that cross are not; analyses let the later start win.

    Args:
        spans: The table in time order with ``host, pid, tid, t0_ns, t1_ns``.

    Returns:
        How many.
    """
    thread = ("host", "pid", "tid")
    start, end = pl.col("t0_ns").shift(1), pl.col("t1_ns").shift(1)
    crossing = (start < pl.col("t0_ns")) & (pl.col("t0_ns") < end) & (end < pl.col("t1_ns"))
    found = spans.group_by(thread, maintain_order=True).agg(crossing.sum().alias("n"))
    return int(found["n"].sum())
