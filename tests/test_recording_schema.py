"""The table schema is the contract with every stage: units in names, times known, keys that exist."""

from __future__ import annotations

import polars as pl
import pytest

from dipstick.recording.schema import (
    CATEGORIES,
    INTERVALS,
    KEYS,
    REQUIRED_TIMES,
    SPAN_LIKE,
    TABLES,
    TIME_COLUMNS,
    frame_schema,
)

UNITS = ("_ns", "_pct", "_b", "_w", "_mhz", "_c", "_mib_s", "_ms")
PLAIN_NUMBERS = {
    "gpu",
    "pid",
    "tid",
    "rank",
    "step",
    "line",
    "jobs",
    "count",
    "clock",
    "value",
    "elements",
    "members",
}
"""Indices, identifiers and counts have no unit; a scalar's value has the unit its name implies."""


@pytest.mark.parametrize("table", TABLES)
def test_every_number_has_its_unit_in_its_name(table: str) -> None:
    """Nobody should have to guess whether a duration is in micro- or nanoseconds."""
    numbers = {name for name, dtype in TABLES[table].items() if dtype != pl.String}
    assert {name for name in numbers if not name.endswith(UNITS)} <= PLAIN_NUMBERS


@pytest.mark.parametrize("table", TABLES)
def test_times_are_64_bit_integers(table: str) -> None:
    """A float can't hold Unix nanoseconds: at 1.8e18 its steps are 256 ns."""
    assert {dtype for name, dtype in TABLES[table].items() if name.endswith("_ns")} <= {pl.Int64}


@pytest.mark.parametrize("table", TABLES)
def test_rows_with_times_say_which_clock_stamped_them(table: str) -> None:
    """Whoever writes monotonic times must be able to say so."""
    assert not TIME_COLUMNS[table] or "clock" in TABLES[table]


def test_points_in_time_are_told_from_lengths() -> None:
    """Windows are lengths and anchors are the conversion itself: neither is converted."""
    assert {name: columns for name, columns in TIME_COLUMNS.items() if columns} == {
        "gpu": ("t_ns",),
        "gpu_counters": ("t_ns",),
        "gpu_process": ("t_ns",),
        "spans": ("t0_ns", "t1_ns"),
        "jobs": ("submitted_ns", "t0_ns", "t1_ns"),
        "handoffs": ("t_ns",),
        "collectives": ("entered_ns", "left_ns"),
        "events": ("t0_ns", "t1_ns"),
        "scalars": ("t_ns",),
        "host_process": ("t_ns",),
        "host_load": ("t_ns",),
    }


def test_only_these_times_may_be_null() -> None:
    """Submission not timed, collective never left, instant event, Trainer log without times."""
    optional = {
        (table, c)
        for table, columns in TIME_COLUMNS.items()
        for c in columns
        if c not in REQUIRED_TIMES[table]
    }
    assert optional == {
        ("jobs", "submitted_ns"),
        ("collectives", "left_ns"),
        ("events", "t1_ns"),
        ("scalars", "t_ns"),
    }


def test_intervals_and_keys_name_columns_that_exist() -> None:
    """A row's start and end are times; a key holds the columns that tell two rows apart."""
    for table, (start, end) in INTERVALS.items():
        assert {start, end} <= set(TIME_COLUMNS[table])
    for table, key in KEYS.items():
        assert set(key) <= set(TABLES[table])
        assert set(REQUIRED_TIMES[table]) <= set(key) | {"t1_ns"}
    assert SPAN_LIKE.keys() <= INTERVALS.keys()


def test_text_with_few_values_is_categorical_and_free_text_is_not() -> None:
    """A name is one of a few dozen; a command line or a job id is not."""
    schema = frame_schema("jobs") | frame_schema("processes")
    assert {name for name, dtype in schema.items() if dtype == pl.String} == {"job", "detail", "cmdline"}
    assert {name for name, dtype in schema.items() if dtype == pl.Categorical} <= CATEGORIES
