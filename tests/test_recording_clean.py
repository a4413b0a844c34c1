"""Bad rows: what is dropped, what becomes missing, and the note that says so."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.model import Note
from dipstick.recording import clean, order
from dipstick.recording.reader import open_recording
from dipstick.recording.rows import to_frame
from dipstick.recording.schema import TABLES
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

S = 1_000_000_000
T = 1_796_000_000 * S


def load(path: Path, table: str, rows: list[dict[str, Any]]) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    """The table as loaded and the notes as (level, text); an event at T sets t = 0."""
    with RecordingWriter.create(path / "run", origin="measured", host="node1", writer="a") as writer:
        writer.append("handoffs", [{"t_ns": T}])
        writer.append(table, rows)
    recording = open_recording(path / "run")
    frame = recording.table(table)
    return frame, [(note.level, note.text) for note in recording.notes]


@pytest.mark.parametrize("table", ["spans", "jobs", "events"])
def test_rows_that_end_before_they_start_are_dropped(tmp_path: Path, table: str) -> None:
    """A span of -1 s takes no time; a span of 0 s is kept."""
    rows = [{"pid": 1, "t0_ns": T + 2, "t1_ns": T + 1}, {"pid": 2, "t0_ns": T + 3, "t1_ns": T + 3}]
    frame, notes = load(tmp_path, table, rows)
    assert frame["pid"].to_list() == [2]
    assert notes == [("warning", f"{table}: 1 that end before they start: dropped")]


def test_rows_without_a_required_time_are_dropped(tmp_path: Path) -> None:
    """A span that never ended (its process was killed) has no length."""
    frame, notes = load(tmp_path, "spans", [{"pid": 1, "t0_ns": T}, {"pid": 2, "t1_ns": T}, {"pid": 3}])
    assert frame.height == 0
    assert notes == [("warning", "spans: 3 without a start or end time: dropped")]


@pytest.mark.parametrize("time", [0, -5, 2**62 + 1, 2**63 - 1, -(2**63)])
def test_rows_with_a_time_that_cannot_be_are_dropped(tmp_path: Path, time: int) -> None:
    """And they do not set t = 0."""
    frame, notes = load(tmp_path, "gpu", [{"gpu": 0, "t_ns": time}, {"gpu": 0, "t_ns": T + S}])
    assert frame["t_ns"].to_list() == [S]
    assert notes == [("warning", "gpu: 1 with a time that can't be (<= 0 or beyond 2**62 ns): dropped")]


def test_an_optional_time_that_cannot_be_is_ignored(tmp_path: Path) -> None:
    """The job stays; t = 0 does not move to its submission time of -1."""
    frame, notes = load(tmp_path, "jobs", [{"job": "x", "submitted_ns": -1, "t0_ns": T, "t1_ns": T + S}])
    assert frame.select("submitted_ns", "t0_ns", "t1_ns").rows() == [(None, 0, S)]
    assert notes == [("warning", "jobs: 1 with an optional time that can't be: that time is ignored")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_missing_not_zero(tmp_path: Path, value: float) -> None:
    """The row stays, the value is null."""
    frame, notes = load(tmp_path, "gpu", [{"gpu": 0, "t_ns": T, "util_pct": value, "power_w": 100.0}])
    assert frame.select("util_pct", "power_w").rows() == [(None, 100.0)]
    assert notes == [("warning", "gpu: 1 values NaN or infinite: treated as missing")]


@pytest.mark.parametrize(
    ("value", "kept", "note"),
    [
        (0.0, 0.0, None),
        (100.0, 100.0, None),
        (104.0, 100.0, ("info", "gpu_counters: 1 percentages between 100 and 110: counted as 100")),
        (110.0, 100.0, ("info", "gpu_counters: 1 percentages between 100 and 110: counted as 100")),
        (
            111.0,
            None,
            (
                "warning",
                "gpu_counters: 1 values outside what the unit allows (percent 0-100, no negatives): missing",
            ),
        ),
        (
            -1.0,
            None,
            (
                "warning",
                "gpu_counters: 1 values outside what the unit allows (percent 0-100, no negatives): missing",
            ),
        ),
    ],
)
def test_percentages_stay_between_0_and_100(
    tmp_path: Path, value: float, kept: float | None, note: tuple[str, str] | None
) -> None:
    """A little over 100 is a counter's rounding; far over it, or below 0, is no percentage."""
    frame, notes = load(tmp_path, "gpu_counters", [{"gpu": 0, "t_ns": T, "sm_active_pct": value}])
    assert frame["sm_active_pct"].to_list() == [kept]
    assert notes == ([note] if note else [])


def test_negative_readings_are_missing(tmp_path: Path) -> None:
    """Some tools write -1 for "not available"; a temperature may be negative."""
    row = {"gpu": 0, "t_ns": T, "mem_used_b": -1, "power_w": -1.0, "window_ns": -1, "temp_c": -3.0}
    frame, notes = load(tmp_path, "gpu", [row])
    assert frame.select("mem_used_b", "power_w", "window_ns", "temp_c").rows() == [(None, None, None, -3.0)]
    assert notes == [
        ("warning", "gpu: 3 values outside what the unit allows (percent 0-100, no negatives): missing")
    ]


def test_rows_written_twice_are_kept_once(tmp_path: Path) -> None:
    """The same GPU, source and time is one sample, also with others of that instant between them."""
    rows = [{"gpu": g, "source": s, "t_ns": T, "util_pct": u} for g, s, u in [
        (0, "poll", 10.0), (1, "poll", 20.0), (0, "poll", 10.0), (0, "buffer", 30.0), (1, "poll", 20.0),
    ]]  # fmt: skip
    frame, notes = load(tmp_path, "gpu", rows)
    assert frame.select("gpu", "source", "util_pct").rows() == [
        (0, "poll", 10.0),
        (1, "poll", 20.0),
        (0, "buffer", 30.0),
    ]
    assert notes == [("warning", "gpu: 2 written twice: kept once")]


@pytest.mark.parametrize("gpus", [2, 8, 16, 17, 40])
def test_a_copy_is_found_among_however_many_rows_share_its_time(tmp_path: Path, gpus: int) -> None:
    """The first row of an instant again as its last; without the copy all rows stay."""
    rows = [{"gpu": g, "source": "poll", "t_ns": T, "util_pct": 10.0} for g in range(gpus)]
    frame, notes = load(tmp_path / "copy", "gpu", [*rows, rows[0]])
    assert frame["gpu"].to_list() == list(range(gpus))
    assert notes == [("warning", "gpu: 1 written twice: kept once")]

    assert load(tmp_path / "apart", "gpu", rows)[1] == []


def test_two_spans_of_one_instant_are_two_spans(tmp_path: Path) -> None:
    """Same start, other end, name, thread or rank: nothing is dropped."""
    base = {"pid": 1, "tid": 1, "rank": 0, "name": "a", "t0_ns": T, "t1_ns": T + 1}
    rows = [base, {**base, "t1_ns": T + 2}, {**base, "name": "b"}, {**base, "tid": 2}, {**base, "rank": 1}]
    frame, notes = load(tmp_path, "spans", rows)
    assert (frame.height, notes) == (5, [])


def test_a_scalar_logged_twice_is_kept_twice(tmp_path: Path) -> None:
    """A Trainer may log the same number again in a step; that is no damage."""
    frame, notes = load(tmp_path, "scalars", [{"step": 31, "name": "epoch", "value": 0.12}] * 2)
    assert (frame.height, notes) == (2, [])


def test_spans_are_sorted_without_a_word(tmp_path: Path) -> None:
    """A span is written when it ends, so inner spans come first: that is normal."""
    rows = [{"pid": 1, "t0_ns": T + s, "t1_ns": T + 9} for s in (3, 1, 2)]
    frame, notes = load(tmp_path, "spans", rows)
    assert (frame["t0_ns"].to_list(), notes) == ([1, 2, 3], [])


def test_telemetry_that_goes_back_is_a_clock_step(tmp_path: Path) -> None:
    """Once back by 3 s: the clock of that host was set; sorted, and said when and by how much."""
    rows = [{"host": "node1", "gpu": 0, "source": "poll", "t_ns": T + s * S} for s in (10, 11, 12, 9, 10, 30)]
    frame, notes = load(tmp_path, "gpu", rows)
    assert [t // S for t in frame["t_ns"]] == [9, 10, 11, 12, 30]
    assert notes == [
        ("warning", "gpu: 1 written twice: kept once"),
        ("warning", "gpu of node1 0 poll: the clock went back 3.000 s at Unix 1796000012.000"),
    ]


def test_telemetry_in_no_order_is_sorted_with_one_note(tmp_path: Path) -> None:
    """24 times back is no clock, it is an unsorted file."""
    rows = [{"host": "node1", "gpu": 0, "t_ns": T + s * S} for s in range(25, 0, -1)]
    frame, notes = load(tmp_path, "gpu", rows)
    assert frame["t_ns"].is_sorted()
    assert notes == [("info", "gpu: rows were not in time order (24 times back): sorted")]


def test_gpus_written_one_after_the_other_are_no_clock_step(tmp_path: Path) -> None:
    """Each GPU's own samples are in order; the file as a whole need not be."""
    rows = [{"host": "node1", "gpu": g, "t_ns": T + s * S} for g in (0, 1) for s in (1, 2, 3)]
    frame, notes = load(tmp_path, "gpu", rows)
    assert (frame["gpu"].to_list(), notes) == ([0, 1, 0, 1, 0, 1], [])


def test_spans_that_cross_in_one_thread_are_counted_not_changed(tmp_path: Path) -> None:
    """[0, 2) and [1, 3) cross; nested spans, equal starts and other threads do not."""
    crossing = [{"pid": 1, "t0_ns": T, "t1_ns": T + 2}, {"pid": 1, "t0_ns": T + 1, "t1_ns": T + 3}]
    nested = [{"pid": 2, "t0_ns": T, "t1_ns": T + 9}, {"pid": 2, "t0_ns": T + 1, "t1_ns": T + 3}]
    equal = [{"pid": 3, "t0_ns": T, "t1_ns": T + 1}, {"pid": 3, "t0_ns": T, "t1_ns": T + 3}]
    frame, notes = load(tmp_path, "spans", [*crossing, *nested, *equal])
    assert frame.height == 6
    assert notes == [
        ("info", "spans: 1 overlap the span before in the same thread without nesting: the later start wins")
    ]


def test_every_reason_has_its_message() -> None:
    """Counts become notes in the order of the rules."""
    counts = Counter(dict.fromkeys(clean.MESSAGES, 2))
    notes = clean.notes_of("gpu", counts)
    assert len(notes) == len(clean.MESSAGES)
    assert notes[0] == Note("warning", "gpu: 2 with a time that can't be (<= 0 or beyond 2**62 ns): dropped")


MOMENT = st.integers(-2, 12).map(lambda n: None if n == 12 else n)


@given(st.lists(st.tuples(MOMENT, MOMENT), max_size=20))
def test_dropped_rows_are_counted_exactly_once(rows: list[tuple[int | None, int | None]]) -> None:
    """Whatever the times: kept rows + counted rows = all rows, and a kept row is valid."""
    frame = to_frame("spans", [{"t0_ns": a, "t1_ns": b} for a, b in rows])
    counts: Counter[str] = Counter()
    kept = clean.drop_bad_times(frame, "spans", counts)
    assert kept.height + counts.total() == len(rows)
    assert all(0 < a <= b for a, b in kept.select("t0_ns", "t1_ns").iter_rows())


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from(["poll", "buffer"])), max_size=30
    )
)
def test_deduplication_keeps_each_key_once_in_time_order(rows: list[tuple[int, int, str]]) -> None:
    """Any mixture of repeated samples ends as the sorted set of keys, the first of each kept."""
    samples = [{"t_ns": t, "gpu": g, "source": s, "power_w": float(i)} for i, (t, g, s) in enumerate(rows)]
    counts: Counter[str] = Counter()
    frame, _ = order.in_order(to_frame("gpu", samples), "gpu", counts)
    first = {key: float(i) for i, key in reversed(list(enumerate(rows)))}
    assert frame["t_ns"].is_sorted()
    assert (
        dict(zip(frame.select("t_ns", "gpu", "source").iter_rows(), frame["power_w"], strict=True)) == first
    )
    assert counts["duplicate"] == len(rows) - len(first)


@given(st.lists(st.none() | st.floats(), max_size=20))
def test_cleaned_values_are_possible_values(values: list[float | None]) -> None:
    """Any float, NaN included: what is left is null or between 0 and 100, and good values are untouched."""
    frame = to_frame("gpu_process", [{"t_ns": 1, "sm_pct": value} for value in values]).select("sm_pct")
    cleaned = clean.clean_values(frame, "gpu_process", Counter())["sm_pct"].to_list()
    assert all(value is None or 0 <= value <= 100 for value in cleaned)
    for before, after in zip(frame["sm_pct"].to_list(), cleaned, strict=True):
        if before is not None and 0 <= before <= 100:
            assert after == before


def test_every_table_survives_cleaning_when_empty() -> None:
    """No rows, no notes, no error."""
    for table in TABLES:
        counts: Counter[str] = Counter()
        assert clean.clean_values(to_frame(table, []), table, counts).height == 0
        assert counts.total() == 0
