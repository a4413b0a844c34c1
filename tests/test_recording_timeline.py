"""Clocks of a recording: which rows they place, ranges on raw clocks, order and overlap of rows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.model import Note
from dipstick.recording.layout import list_folder
from dipstick.recording.order import MANY_STEPS, count_overlaps, in_order
from dipstick.recording.reader import open_recording
from dipstick.recording.rows import to_frame
from dipstick.recording.schema import TABLES, TIME_COLUMNS
from dipstick.recording.timeline import Clocks, convert, fit_clocks, in_range, raw_range, step_notes
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

S = 1_000_000_000
T = 1_796_000_000 * S


def anchors(*rows: tuple[int | None, int | None, int | None]) -> Clocks:
    """Clocks fitted on (clock, monotonic s, Unix s after T) rows."""
    scaled = [
        {"clock": c, "mono_ns": None if m is None else m * S, "unix_ns": None if u is None else T + u * S}
        for c, m, u in rows
    ]
    return fit_clocks(to_frame("anchors", [{"host": "n", "pid": 3, **row} for row in scaled]))


# --- clocks ---


def test_each_clock_has_its_own_offset() -> None:
    """Clock 1 started 100 s before T, clock 2 50 s before; clock 0 is Unix time."""
    clocks = anchors((1, 100, 0), (2, 50, 0))
    assert [clocks.to_unix(c, t) - T for c, t in [(1, 101 * S), (2, 51 * S), (0, T + S)]] == [S, S, S]
    assert [clocks.to_raw(c, T + S) for c in (1, 2, 0)] == [101 * S, 51 * S, T + S]


def test_half_an_anchor_is_none() -> None:
    """A row cut short by a full disk does not move the axis, and does not make a clock."""
    clocks = anchors((1, 100, 0), (1, 160, None), (2, None, 5))
    assert (clocks.knows(0), clocks.knows(1), clocks.knows(2)) == (True, True, False)
    assert clocks.maps[1].mono_ns.tolist() == [100 * S]


def test_steps_are_told_by_process_and_host() -> None:
    """A clock without a step says nothing."""
    notes = step_notes([anchors((1, 0, 0), (1, 60, 90), (2, 0, 0), (2, 60, 60))])
    text = "the wall clock of process 3 on n was set by +30.000 s within 60 s after Unix 1796000000.000"
    assert notes == [Note("warning", f"{text}; removed from the time axis")]


@pytest.mark.parametrize("table", [table for table in TABLES if TIME_COLUMNS[table]])
def test_every_time_column_is_converted_and_nothing_else(table: str) -> None:
    """Clock 1 rows move by the offset, clock 0 rows stay, nulls stay null, other columns are untouched."""
    times = dict.fromkeys(TIME_COLUMNS[table], 101 * S)
    frame = to_frame(table, [{**times, "clock": 1}, {**dict.fromkeys(times, T), "clock": 0}, {"clock": 1}])
    counts: Counter[str] = Counter()
    moved = convert(frame, table, anchors((1, 100, 0)), counts)
    for column in times:
        assert moved[column].to_list() == [T + S, T, None]
    assert moved.drop(times).equals(frame.drop(times))
    assert counts.total() == 0


RAW = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(90, 300)), min_size=1, max_size=20)


@given(RAW, st.integers(0, 200), st.integers(0, 200))
def test_a_pushed_down_range_never_loses_a_row(rows: list[tuple[int, int]], start: int, end: int) -> None:
    """The raw filter keeps at least the rows that the exact filter keeps after conversion, on every clock."""
    clocks = anchors((1, 100, 0), (1, 200, 100), (2, 90, 0), (2, 190, 60))
    frame = to_frame(
        "gpu", [{"gpu": i, "clock": c, "t_ns": t * S + (T if c == 0 else 0)} for i, (c, t) in enumerate(rows)]
    )
    lower, upper = T + start * S, T + end * S
    exact = convert(frame, "gpu", clocks, Counter()).filter(in_range("gpu", lower, upper))["gpu"]
    pushed = frame.filter(raw_range("gpu", clocks, [0, 1, 2], lower, upper))["gpu"]
    assert set(exact) <= set(pushed)


def test_no_clock_in_use_means_no_row() -> None:
    """A source without placeable rows is not read at all."""
    frame = to_frame("gpu", [{"t_ns": 5}])
    assert frame.filter(raw_range("gpu", Clocks({}, {}), [], 0, 10)).height == 0


# --- order ---


def gpu(*times: int, **more: Any) -> pl.DataFrame:
    """Samples of one GPU."""
    return to_frame("gpu", [{"host": "n", "gpu": 0, "source": "poll", "t_ns": t, **more} for t in times])


@pytest.mark.parametrize(
    ("backward", "notes", "unsorted"), [(1, 1, 0), (MANY_STEPS, 20, 0), (MANY_STEPS + 1, 0, 21)]
)
def test_a_few_steps_are_listed_and_many_are_an_unsorted_file(
    backward: int, notes: int, unsorted: int
) -> None:
    """Up to 20 backward moves each get their note; 21 are one count."""
    times = [t for i in range(backward + 1) for t in (100 * S - i, 200 * S + i)]
    counts: Counter[str] = Counter()
    frame, found = in_order(gpu(*times), "gpu", counts)
    assert frame["t_ns"].is_sorted()
    assert (len(found), counts["unsorted"]) == (notes, unsorted)


def test_equal_times_keep_the_order_of_the_file() -> None:
    """Sorting is stable: of two readings of one instant the first written comes first."""
    rows = [
        {"step": step, "name": "loss", "value": value, "t_ns": t}
        for step, value, t in [(3, 1.0, 9), (1, 2.0, 5), (2, 3.0, 5)]
    ]
    frame, _ = in_order(to_frame("scalars", rows), "scalars", Counter())
    assert frame["step"].to_list() == [1, 2, 3]


def test_rows_without_the_ordering_time_come_last() -> None:
    """Jobs whose submission was not timed, in the order they were written."""
    rows = [
        {"job": j, "submitted_ns": s, "t0_ns": 1, "t1_ns": 2}
        for j, s in [("x", None), ("b", 7), ("y", None), ("a", 5)]
    ]
    frame, _ = in_order(to_frame("jobs", rows), "jobs", Counter())
    assert frame["job"].to_list() == ["a", "b", "x", "y"]


def test_a_job_written_twice_without_submission_time_is_found() -> None:
    """Rows without the ordering time are compared with each other too."""
    rows = [{"job": "x", "pid": 1, "t0_ns": 1, "t1_ns": 2}] * 3
    counts: Counter[str] = Counter()
    frame, _ = in_order(to_frame("jobs", rows), "jobs", counts)
    assert (frame.height, counts["duplicate"]) == (1, 2)


SPAN = st.tuples(st.integers(1, 12), st.integers(0, 6), st.integers(0, 1)).map(
    lambda s: (s[0], s[0] + s[1], s[2])
)


@given(st.lists(SPAN, max_size=15).map(sorted))
def test_overlaps_are_counted_against_the_span_before(spans: list[tuple[int, int, int]]) -> None:
    """Brute force over each thread: starts inside the one before, ends after it."""
    expected = 0
    for thread in (0, 1):
        mine = [(a, b) for a, b, t in spans if t == thread]
        expected += sum(a0 < a1 < b0 < b1 for (a0, b0), (a1, b1) in pairwise(mine))
    frame = to_frame("spans", [{"pid": 1, "tid": t, "t0_ns": a, "t1_ns": b} for a, b, t in spans])
    assert count_overlaps(frame) == expected


# --- the whole path, whatever happens on the way ---

ACTIONS = st.lists(st.sampled_from(["one", "three", "many", "flush"]), max_size=12)


@given(ACTIONS, st.sampled_from(["closed", "abandoned"]))
def test_what_was_flushed_is_read_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], end: str
) -> None:
    """Any sequence of appends and flushes, closed or abandoned: flushed rows are there, in order, none twice."""
    run = tmp_path_factory.mktemp("any") / "run"
    writer = RecordingWriter.create(run, origin="measured", host="n", writer="a", segment_rows=5)
    written = flushed = 0
    for action in [*actions, "one", "flush"]:
        count = {"one": 1, "three": 3, "many": 7, "flush": 0}[action]
        writer.append("gpu", {"t_ns": range(T + written, T + written + count), "gpu": [0] * count})
        written += count
        if action in {"many", "flush"}:
            writer.flush()
            flushed = written
    writer.append("gpu", {"t_ns": [T + written], "gpu": [0]})
    if end == "closed":
        writer.close()
        flushed = written + 1
    assert open_recording(run).table("gpu")["t_ns"].to_list() == list(range(flushed))
    writer.close()


def test_a_segment_that_becomes_a_part_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dipstick live` may list a segment that the writer compacts a moment later: the folder is listed again."""
    writer = RecordingWriter.create(tmp_path / "run", origin="measured", host="n", writer="a")
    writer.append("gpu", gpu(T, T + S))
    writer.flush()
    stale = list_folder(tmp_path / "run")
    writer.close()
    listings = [list_folder(tmp_path / "run"), stale]
    monkeypatch.setattr("dipstick.recording.reader.list_folder", lambda _folder: listings.pop())
    assert open_recording(tmp_path / "run").table("gpu").height == 2
    assert listings == []
