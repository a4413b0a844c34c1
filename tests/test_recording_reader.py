"""The reader: one time axis, ranges without reading everything, samples, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.errors import RecordingError, UsageError
from dipstick.recording import reader
from dipstick.recording.reader import Recording, open_recording, sample_names
from dipstick.recording.schema import CATEGORIES, TABLES, TIME_COLUMNS, frame_schema
from dipstick.recording.timeline import in_range
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
MS = 1_000_000
T = 1_796_000_000 * S


def record(path: Path, **tables: Any) -> Recording:
    """A recording with these tables, opened."""
    with RecordingWriter.create(path / "run", origin="measured", host="node1", writer="a") as writer:
        for table, rows in tables.items():
            writer.append(table, rows)
    return open_recording(path / "run")


def texts(recording: Recording) -> list[str]:
    """What the notes say."""
    return [note.text for note in recording.notes]


def span(start_s: float, end_s: float, **more: Any) -> dict[str, Any]:
    """A span between two times, in seconds after T."""
    return {"pid": 1, "t0_ns": T + round(start_s * S), "t1_ns": T + round(end_s * S), **more}


# --- the time axis ---


def test_time_zero_is_the_earliest_row_of_any_table(tmp_path: Path) -> None:
    """A job submitted before the first sample and the first span sets t = 0; the latest end is the end."""
    recording = record(
        tmp_path,
        gpu=[{"gpu": 0, "t_ns": T + 5 * S, "window_ns": 10 * S}],
        spans=[span(4, 20)],
        jobs=[{"job": "x", "submitted_ns": T + 3 * S, "t0_ns": T + 6 * S, "t1_ns": T + 7 * S}],
    )
    assert (recording.start_unix_ns, recording.end_unix_ns) == (T + 3 * S, T + 20 * S)
    assert recording.table("gpu")["t_ns"].to_list() == [2 * S]
    assert recording.table("spans").select("t0_ns", "t1_ns").rows() == [(S, 17 * S)]
    assert recording.table("jobs").select("submitted_ns", "t0_ns", "t1_ns").rows() == [(0, 3 * S, 4 * S)]


def test_monotonic_times_are_converted_by_their_anchors(tmp_path: Path) -> None:
    """Spans on a process clock (offset T - 100 s, drifting 6 ms a minute) and samples on Unix time share an axis."""
    recording = record(
        tmp_path,
        anchors=[
            {"clock": 1, "pid": 1, "mono_ns": 100 * S, "unix_ns": T},
            {"clock": 1, "pid": 1, "mono_ns": 160 * S, "unix_ns": T + 60 * S + 6 * MS},
        ],
        gpu=[{"gpu": 0, "t_ns": T}],
        spans=[{"pid": 1, "t0_ns": 130 * S, "t1_ns": 160 * S, "clock": 1}, span(1, 2)],
    )
    assert recording.table("spans").select("t0_ns", "t1_ns").rows() == [
        (1 * S, 2 * S),
        (30 * S + 3 * MS, 60 * S + 6 * MS),
    ]


def test_a_clock_step_is_removed_and_noted(tmp_path: Path) -> None:
    """The wall clock was set back 29.03 s; spans after it do not move, and the note says when and how much."""
    anchors = [
        {
            "clock": 1,
            "host": "node1",
            "pid": 7,
            "mono_ns": m * S,
            "unix_ns": T + m * S - (29_030 * MS if m > 60 else 0),
        }
        for m in (1, 60, 120)
    ]
    recording = record(tmp_path, anchors=anchors, spans=[{"t0_ns": 1 * S, "t1_ns": 119 * S, "clock": 1}])
    assert recording.table("spans").select("t0_ns", "t1_ns").rows() == [(0, 118 * S)]
    where = "the wall clock of process 7 on node1 was set by -29.030 s within 60 s after Unix 1796000060.000"
    assert texts(recording) == [f"{where}; removed from the time axis"]


def test_rows_of_a_clock_without_anchors_are_dropped_and_counted(tmp_path: Path) -> None:
    """They can't be placed: not at 0, not anywhere."""
    recording = record(tmp_path, spans=[span(0, 1), {"t0_ns": 5 * S, "t1_ns": 6 * S, "clock": 9}])
    assert recording.table("spans").height == 1
    assert texts(recording) == [
        "spans: 1 stamped by a clock without anchors can't be placed in time: dropped"
    ]


def test_optional_times_may_be_null(tmp_path: Path) -> None:
    """A scalar without a time, a job never submitted, a collective never left; an event without end is an instant."""
    recording = record(
        tmp_path,
        scalars=[{"step": 1, "name": "loss", "value": 0.5}],
        jobs=[{"job": "warm", "t0_ns": T, "t1_ns": T + S}],
        collectives=[{"name": "all_reduce", "entered_ns": T + S}],
        events=[{"name": "checkpoint", "t0_ns": T + 2 * S}],
    )
    assert recording.table("scalars")["t_ns"].to_list() == [None]
    assert recording.table("jobs")["submitted_ns"].to_list() == [None]
    assert recording.table("collectives").select("entered_ns", "left_ns").rows() == [(S, None)]
    assert recording.table("events").select("t0_ns", "t1_ns").rows() == [(2 * S, 2 * S)]
    assert recording.notes == ()


# --- tables ---


def test_every_table_has_its_full_schema(tmp_path: Path) -> None:
    """Also one that was never written; text with few values is Categorical."""
    recording = record(tmp_path, gpu=[{"gpu": 0, "t_ns": T}])
    for table in TABLES:
        assert recording.table(table).schema == pl.Schema(frame_schema(table))
    assert recording.table("spans").schema["name"] == pl.Categorical
    assert {column for schema in TABLES.values() for column in schema} >= CATEGORIES


def test_has_tells_tables_with_usable_rows(tmp_path: Path) -> None:
    """A table whose only row can't be used is not there; one without times is if it has a row."""
    recording = record(
        tmp_path,
        gpu=[{"gpu": 0, "t_ns": T}],
        spans=[span(2, 1)],
        processes=[{"pid": 1}],
        scalars=[{"step": 1}],
    )
    assert [table for table in TABLES if recording.has(table)] == ["gpu", "scalars", "processes"]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    """And nothing else comes with them."""
    recording = record(tmp_path, spans=[span(1, 2, name="b"), span(0, 3, name="a")])
    assert recording.table("spans", columns=["t1_ns", "name"]).rows() == [(3 * S, "a"), (2 * S, "b")]


def test_a_table_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    """The message lists what there is."""
    recording = record(tmp_path, gpu=[{"t_ns": T}])
    with pytest.raises(UsageError, match=r"no table 'span'.*\n.*spans"):
        recording.table("span")
    with pytest.raises(UsageError, match=r"no column util.*\n.*util_pct"):
        recording.table("gpu", columns=["util"])


def test_scan_gives_rows_as_stored(tmp_path: Path) -> None:
    """Nothing converted, nothing cleaned, in file order."""
    recording = record(tmp_path, spans=[span(5, 6), span(3, 2)])
    assert recording.scan("spans").select("t0_ns").collect()["t0_ns"].to_list() == [T + 5 * S, T + 3 * S]
    assert recording.scan("jobs").collect().height == 0


def test_a_loaded_table_is_kept_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question gets the same frame; beyond the limit the least recently used one goes."""
    recording = record(tmp_path, gpu=[{"t_ns": T}], spans=[span(0, 1)], jobs=[{"t0_ns": T, "t1_ns": T}])
    frames = {name: recording.table(name) for name in ("gpu", "spans", "jobs")}
    assert recording.table("gpu") is frames["gpu"]
    monkeypatch.setattr(
        reader, "CACHE_BYTES", frames["gpu"].estimated_size() + frames["jobs"].estimated_size()
    )
    recording.table("gpu", columns=["t_ns"])
    assert recording.table("gpu") is frames["gpu"]
    assert recording.table("spans") is not frames["spans"]


def test_notes_of_a_table_come_once_it_was_loaded_in_full(tmp_path: Path) -> None:
    """A part of a table says nothing about the whole, and loading twice does not note twice."""
    recording = record(tmp_path, gpu=[{"t_ns": T}], spans=[span(2, 1), span(0, 1)])
    recording.table("spans", end_ns=S)
    assert texts(recording) == []
    recording.table("spans")
    recording.table("spans", columns=["name"])
    assert texts(recording) == ["spans: 1 that end before they start: dropped"]


# --- time ranges ---


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        (None, None, ["long", "early", "instant", "late"]),
        (2, 3, ["long", "instant"]),
        (1, 2, ["long"]),
        (3, None, ["long", "late"]),
        (None, 1, ["long", "early"]),
        (20, 30, []),
    ],
)
def test_a_span_is_in_a_range_if_any_part_of_it_is(
    tmp_path: Path, start: int | None, end: int | None, names: list[str]
) -> None:
    """Ranges are half-open: a span that ends at the start is out, one of no length that starts there is in."""
    spans = [
        span(0, 10, name="long"),
        span(0.5, 1, name="early"),
        span(2, 2, name="instant"),
        span(5, 9, name="late"),
    ]
    recording = record(tmp_path, spans=spans)
    found = recording.table(
        "spans", start_ns=None if start is None else start * S, end_ns=None if end is None else end * S
    )
    assert found["name"].to_list() == names


def test_a_sample_is_in_a_range_by_its_stamp(tmp_path: Path) -> None:
    """[2, 4) holds the samples at 2 and 3 s."""
    recording = record(tmp_path, gpu=[{"gpu": 0, "t_ns": T + s * S} for s in range(6)])
    assert recording.table("gpu", start_ns=2 * S, end_ns=4 * S)["t_ns"].to_list() == [2 * S, 3 * S]


def test_a_range_on_a_drifting_clock_is_exact(tmp_path: Path) -> None:
    """1 ms samples on a clock that runs 400 ppm fast: the range is cut on the common axis, not on the raw one."""
    anchors = [{"clock": 4, "mono_ns": m * S, "unix_ns": T + m * S + m * 400_000} for m in (1, 61, 121)]
    samples = [{"gpu": 0, "t_ns": S + i * MS, "clock": 4} for i in range(100_000)]
    recording = record(tmp_path, anchors=anchors, gpu=samples)
    whole = recording.table("gpu")["t_ns"]
    part = recording.table("gpu", start_ns=50 * S, end_ns=51 * S)["t_ns"]
    assert part.to_list() == whole.filter((whole >= 50 * S) & (whole < 51 * S)).to_list()
    assert 999 <= len(part) <= 1000


TIME = st.integers(0, 20)


@given(st.lists(st.tuples(TIME, TIME).map(sorted), max_size=20), TIME, TIME)
def test_in_range_agrees_with_its_definition(rows: list[list[int]], start: int, end: int) -> None:
    """A row is in [start, end) if it shares an instant with it, or starts in it."""
    frame = pl.DataFrame(rows, schema={"t0_ns": pl.Int64, "t1_ns": pl.Int64}, orient="row")
    expected = [(a, b) for a, b in rows if a < end and (b > start or a >= start)]
    assert frame.filter(in_range("spans", start, end)).rows() == expected


def damaged_recording(tmp_path: Path) -> Recording:
    """Three row groups of samples; the utilization of the first is overwritten with garbage."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    count = 180_000
    recording = record(
        tmp_path,
        gpu={"gpu": [0] * count, "t_ns": range(T, T + count), "util_pct": [i % 97 for i in range(count)]},
    )
    part = recording.path / "gpu" / "a-000001.parquet"
    group = pq.ParquetFile(part).metadata.row_group(0)
    column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "util_pct")
    content = bytearray(part.read_bytes())
    begin = column.dictionary_page_offset or column.data_page_offset
    content[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    part.write_bytes(content)
    return open_recording(recording.path)


def test_a_range_reads_only_the_row_groups_it_needs(tmp_path: Path) -> None:
    """The first of three row groups is damaged: the third still reads."""
    damaged = damaged_recording(tmp_path)
    found = damaged.table("gpu", start_ns=170_000, end_ns=170_003)
    assert found.select("t_ns", "util_pct").rows() == [(t, t % 97) for t in (170_000, 170_001, 170_002)]
    assert texts(damaged) == []
    assert damaged.table("gpu").height == 0
    assert texts(damaged) == ["gpu/a-000001.parquet is damaged or cut short: 180000 rows are lost"]


# --- names ---


def test_samples_are_found_by_name() -> None:
    """Both real traces are shipped."""
    assert sample_names() == ["h200x2-grpo", "h200x2-grpo-135m"]
    assert open_recording("sample:h200x2-grpo").name == "sample:h200x2-grpo"


@pytest.mark.parametrize("name", ["nope", "", "../recording", "h200x2-grpo/gpu"])
def test_an_unknown_sample_lists_the_known_ones(name: str) -> None:
    """It is a usage error; names are looked up, never joined to a path."""
    with pytest.raises(UsageError, match=r"no sample.*\n.*sample:h200x2-grpo, sample:h200x2-grpo-135m"):
        open_recording(f"sample:{name}")


def test_a_recording_is_named_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is given as a dot."""
    record(tmp_path, gpu=[{"t_ns": T}])
    monkeypatch.chdir(tmp_path / "run")
    assert open_recording(".").name == "run"


def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording is private to its owner."""
    record(tmp_path, gpu=[{"t_ns": T}])
    monkeypatch.setattr(reader, "list_folder", _forbidden)
    with pytest.raises(RecordingError, match="may not be read"):
        open_recording(tmp_path / "run")


def _forbidden(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_time_columns_are_what_the_reader_converts() -> None:
    """Windows are lengths, not times; anchors are the conversion itself."""
    assert TIME_COLUMNS["gpu"] == ("t_ns",)
    assert TIME_COLUMNS["jobs"] == ("submitted_ns", "t0_ns", "t1_ns")
    assert TIME_COLUMNS["anchors"] == ()


def test_whether_a_column_was_recorded_is_known_without_loading_the_table(tmp_path: Path) -> None:
    """One value is enough; an empty column, an empty table and rows that cannot be read have none."""
    recording = record(tmp_path, spans=[span(1, 2, name="a"), span(2, 3, name="b", pickled_b=7)])

    assert recording.has_values("spans", "pickled_b")
    assert not recording.has_values("spans", "file")
    assert not recording.has_values("jobs", "payload_types")
    with pytest.raises(UsageError, match="no column nope"):
        recording.has_values("spans", "nope")


def test_whether_a_value_was_recorded_is_known_without_loading_the_table(tmp_path: Path) -> None:
    """Any of those asked for is enough; a missing one is none of them."""
    recording = record(tmp_path, spans=[span(1, 2, name="a", phase="reward"), span(2, 3, name="b")])

    assert recording.has_values("spans", "name", ("x", "b"))
    assert recording.has_values("spans", "phase", ("reward",))
    assert not recording.has_values("spans", "phase", ("transfer", ""))
    assert not recording.has_values("jobs", "job", ("a",))


def test_a_damaged_part_has_no_values_and_is_noted(tmp_path: Path) -> None:
    """As when its table is loaded; a column of it that can be read counts."""
    damaged = damaged_recording(tmp_path)

    assert damaged.has_values("gpu", "gpu")
    assert not damaged.has_values("gpu", "util_pct")
    assert texts(damaged) == ["gpu/a-000001.parquet is damaged or cut short: 180000 rows are lost"]
