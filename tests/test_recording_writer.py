"""The writer: append-only, nothing flushed is lost, nothing foreign is overwritten."""

from __future__ import annotations

import errno
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dipstick.errors import RecordingError
from dipstick.recording.reader import open_recording
from dipstick.recording.rows import to_frame
from dipstick.recording.schema import TABLES, frame_schema
from dipstick.recording.segments import Segment
from dipstick.recording.writer import RecordingWriter

S = 1_000_000_000
T = 1_796_000_000 * S


def new(path: Path, **more: Any) -> RecordingWriter:
    """A writer with a known id."""
    return RecordingWriter.create(path, origin="measured", host="node1", **{"writer": "a", **more})


def gpu(*seconds: int, **more: Any) -> list[dict[str, Any]]:
    """One row of GPU 0 for each second."""
    return [
        {"host": "node1", "gpu": 0, "t_ns": T + second * S, "util_pct": 50.0, **more} for second in seconds
    ]


def files(folder: Path) -> list[str]:
    """Every file below the folder, by relative name."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def seconds(folder: Path) -> list[int]:
    """The times of the gpu table in whole seconds since its first row."""
    return [t // S for t in open_recording(folder).table("gpu")["t_ns"].to_list()]


# --- the folder ---


def test_the_folder_is_private(tmp_path: Path) -> None:
    """A run folder can hold command lines: only its owner may enter it."""
    new(tmp_path / "deep" / "run").close()
    assert stat.S_IMODE((tmp_path / "deep" / "run").stat().st_mode) == 0o700


def test_an_existing_recording_is_not_overwritten(tmp_path: Path) -> None:
    """Without force the old recording stays and the message names the flag."""
    with new(tmp_path / "run") as writer:
        writer.append("gpu", gpu(1, 2))
    with pytest.raises(RecordingError, match=r"already there.*\n.*--force"):
        new(tmp_path / "run")
    assert seconds(tmp_path / "run") == [0, 1]


def test_force_replaces_a_recording(tmp_path: Path) -> None:
    """With force nothing of the old one is left, also not another writer's files."""
    with (
        new(tmp_path / "run") as first,
        RecordingWriter.join(tmp_path / "run", host="node2", writer="b") as second,
    ):
        first.append("gpu", gpu(1))
        second.append("spans", [{"t0_ns": T, "t1_ns": T + 1}])
    with new(tmp_path / "run", force=True) as writer:
        writer.append("gpu", gpu(5))
    assert files(tmp_path / "run") == ["gpu/a-000001.parquet", "manifest.a.json", "manifest.json"]


def test_force_does_not_delete_what_is_no_recording(tmp_path: Path) -> None:
    """A folder with other things in it is refused even with force."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordingError, match="not empty and holds no recording"):
        new(tmp_path, force=True)
    assert files(tmp_path) == ["thesis.tex"]


def test_force_does_not_follow_a_link_out_of_the_folder(tmp_path: Path) -> None:
    """A table folder that is a link keeps what it points to."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("x")
    new(tmp_path / "run").close()
    (tmp_path / "run" / "gpu").symlink_to(tmp_path / "precious")
    new(tmp_path / "run", force=True).close()
    assert files(tmp_path / "precious") == ["data"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """A recording is a folder."""
    (tmp_path / "run").write_text("x")
    with pytest.raises(RecordingError, match="it is a file"):
        new(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    """Here its parent is a file."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordingError, match="can't be made"):
        new(tmp_path / "file" / "run")


def test_a_table_folder_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    """In a shared run folder somebody else may plant links."""
    (tmp_path / "elsewhere").mkdir()
    writer = new(tmp_path / "run")
    (tmp_path / "run" / "gpu").symlink_to(tmp_path / "elsewhere")
    writer.append("gpu", gpu(1))
    with pytest.raises(RecordingError, match="symbolic link"):
        writer.flush()
    assert files(tmp_path / "elsewhere") == []


# --- rows ---


ROWS = [{"gpu": 1, "t_ns": T, "util_pct": 10.0}, {"gpu": 2, "t_ns": T + 1, "power_w": 99.5}]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        {"gpu": [1, 2], "t_ns": [T, T + 1], "util_pct": [10.0, None], "power_w": [None, 99.5]},
        pl.DataFrame(ROWS, infer_schema_length=None),
    ],
    ids=["dicts", "lists", "frame"],
)
def test_rows_may_be_dicts_lists_or_a_frame(rows: Any) -> None:
    """All three give the full schema: missing columns null, clock 0."""
    frame = to_frame("gpu", rows)
    assert frame.schema == pl.Schema(frame_schema("gpu"))
    assert frame.select("gpu", "t_ns", "util_pct", "power_w", "host", "clock").rows() == [
        (1, T, 10.0, None, None, 0),
        (2, T + 1, None, 99.5, None, 0),
    ]


@pytest.mark.parametrize("rows", [[], {}, pl.DataFrame()], ids=["dicts", "lists", "frame"])
def test_no_rows_are_fine(rows: Any) -> None:
    """Nothing to append is an empty frame."""
    assert to_frame("spans", rows).shape == (0, len(TABLES["spans"]))


def test_an_unknown_column_is_an_error_that_lists_the_valid_ones(tmp_path: Path) -> None:
    """A misspelt column must not vanish."""
    with (
        new(tmp_path / "run") as writer,
        pytest.raises(RecordingError, match=r"no column 'utli'.*\n.*util_pct"),
    ):
        writer.append("gpu", [{"utli": 3}])


def test_an_unknown_table_is_an_error_that_lists_the_tables(tmp_path: Path) -> None:
    """So must a table."""
    with (
        new(tmp_path / "run") as writer,
        pytest.raises(RecordingError, match=r"no table 'gpus2'.*\n.*gpu_counters"),
    ):
        writer.append("gpus2", [{}])


@pytest.mark.parametrize("value", ["warm", 70_000, -1])
def test_a_value_that_does_not_fit_its_column_is_an_error(tmp_path: Path, value: Any) -> None:
    """A GPU index is an unsigned 16-bit number; nothing is wrapped or nulled in silence."""
    with new(tmp_path / "run") as writer, pytest.raises(RecordingError, match="gpu: a value does not fit"):
        writer.append("gpu", [{"gpu": value, "t_ns": T}])


def test_a_closed_writer_takes_no_rows(tmp_path: Path) -> None:
    """And closing twice is harmless."""
    writer = new(tmp_path / "run")
    writer.close()
    writer.close()
    with pytest.raises(RecordingError, match="closed"):
        writer.append("gpu", gpu(1))


# --- segments and parts ---


def test_flushed_rows_can_be_read_while_the_writer_is_open(tmp_path: Path) -> None:
    """`dipstick live` reads what is flushed; what is not flushed is not there yet."""
    writer = new(tmp_path / "run")
    writer.append("gpu", gpu(1, 2))
    writer.flush()
    writer.append("gpu", gpu(3))
    assert seconds(tmp_path / "run") == [0, 1]
    writer.close()
    assert seconds(tmp_path / "run") == [0, 1, 2]


def test_the_callers_clock_decides_when_to_flush(tmp_path: Path) -> None:
    """The first call starts the interval; a flush happens when a second has passed, then again a second later."""
    writer = new(tmp_path / "run")
    writer.append("gpu", gpu(1))
    calls = [5.0, 5.9, 6.0, 6.5, 7.0]
    assert [writer.maybe_flush(round(now * S)) for now in calls] == [False, False, True, False, True]
    writer.close()


def test_a_full_segment_becomes_a_parquet_part(tmp_path: Path) -> None:
    """With 3 rows a segment, 3 + 1 rows are one part and one live segment; closing makes it two parts."""
    writer = new(tmp_path / "run", segment_rows=3)
    for second in (1, 2, 3, 4):
        writer.append("gpu", gpu(second))
        writer.flush()
    assert [name for name in files(tmp_path / "run") if "gpu" in name] == [
        "gpu/a-000001.parquet",
        "gpu/a-000002.arrows",
    ]
    writer.close()
    assert [name for name in files(tmp_path / "run") if "gpu" in name] == [
        "gpu/a-000001.parquet",
        "gpu/a-000002.parquet",
    ]
    assert seconds(tmp_path / "run") == [0, 1, 2, 3]


def test_many_rows_at_once_become_parts_in_their_order(tmp_path: Path) -> None:
    """A frame of a segment's size or more is written as Parquet, after the rows that came before it."""
    with new(tmp_path / "run", segment_rows=3) as writer:
        writer.append("gpu", gpu(1))
        writer.append("gpu", gpu(2, 3, 4, 5))
        writer.append("gpu", gpu(6))
    assert open_recording(tmp_path / "run").scan("gpu").collect()["t_ns"].to_list() == [
        T + s * S for s in range(1, 7)
    ]
    assert [name for name in files(tmp_path / "run") if "gpu" in name] == [
        f"gpu/a-00000{n}.parquet" for n in (1, 2, 3)
    ]


def test_a_kill_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    """A kill -9 between flushes: every flushed row is there, in Parquet or in the live segment."""
    script = f"""
import os, signal
from dipstick.recording.writer import RecordingWriter
writer = RecordingWriter.create({str(tmp_path / "run")!r}, origin="measured", host="h", writer="a", segment_rows=4)
for second in range(10):
    writer.append("gpu", [{{"host": "h", "gpu": 0, "t_ns": {T} + second * {S}}}])
    if second < 9:
        writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    source = str(Path(__file__).resolve().parent.parent / "src")
    done = subprocess.run([sys.executable, "-c", script], check=False, env={"PYTHONPATH": source})
    assert done.returncode == -9
    assert [name for name in files(tmp_path / "run") if "gpu" in name] == [
        "gpu/a-000001.parquet", "gpu/a-000002.parquet", "gpu/a-000003.arrows",
    ]  # fmt: skip
    assert seconds(tmp_path / "run") == list(range(9))
    recording = open_recording(tmp_path / "run")
    assert recording.manifest.state == "recording"
    assert "was not closed" in recording.notes[0].text


def test_a_segment_left_beside_its_part_is_not_read_twice(tmp_path: Path) -> None:
    """A crash after the part was written and before the segment was removed: the part wins."""
    writer = new(tmp_path / "run")
    writer.append("gpu", gpu(1, 2))
    writer.flush()
    shutil.copy(tmp_path / "run" / "gpu" / "a-000001.arrows", tmp_path / "kept")
    writer.close()
    shutil.copy(tmp_path / "kept", tmp_path / "run" / "gpu" / "a-000001.arrows")
    assert open_recording(tmp_path / "run").scan("gpu").collect().height == 2


def test_a_full_disk_costs_the_batch_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error reaches the caller, the rows count as dropped, and a later flush goes to a new segment."""
    writer = new(tmp_path / "run")
    writer.append("gpu", gpu(1))
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", _no_space)
        writer.append("gpu", gpu(2, 3))
        with pytest.raises(OSError, match="No space"):
            writer.flush()
    writer.append("gpu", gpu(4))
    writer.close()
    assert seconds(tmp_path / "run") == [0, 3]
    assert open_recording(tmp_path / "run").manifest.health == {"dropped_rows": 2}


def _no_space(_self: Segment, _frame: pl.DataFrame) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_error_inside_the_with_block_still_closes_the_recording(tmp_path: Path) -> None:
    """Rows so far stay readable."""
    writer = new(tmp_path / "run")
    writer.append("gpu", gpu(1))
    with pytest.raises(RecordingError), writer:
        writer.append("nonsense", [])
    assert open_recording(tmp_path / "run").manifest.state == "closed"


def test_time_ranges_can_be_told_from_row_groups(tmp_path: Path) -> None:
    """Parts carry minimum and maximum of every time column for each group of 65,536 rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    count = 150_000
    with new(tmp_path / "run") as writer:
        writer.append("gpu", {"t_ns": range(T, T + count), "gpu": [0] * count})
    metadata = pq.ParquetFile(tmp_path / "run" / "gpu" / "a-000001.parquet").metadata
    column = metadata.schema.to_arrow_schema().get_field_index("t_ns")
    groups = [metadata.row_group(i).column(column).statistics for i in range(metadata.num_row_groups)]
    assert [(g.min - T, g.max - T) for g in groups] == [(0, 65_535), (65_536, 131_071), (131_072, 149_999)]


# --- several writers ---


def test_two_writers_share_a_folder(tmp_path: Path) -> None:
    """Rows, hosts, health, facts and notes are merged; the recording is closed when both are."""
    first = new(tmp_path / "run")
    second = RecordingWriter.join(tmp_path / "run", host="node2", writer="b")
    first.append("gpu", gpu(1))
    second.append("gpu", gpu(2, host="node2"))
    first.count(missed_ticks=2, late_ticks=1)
    second.count(missed_ticks=3)
    first.set_info(exit_status=0)
    second.add_host("node3")
    second.note("warning", "no GPM")
    first.close()
    assert open_recording(tmp_path / "run").manifest.state == "recording"
    second.close()
    manifest = open_recording(tmp_path / "run").manifest
    assert (manifest.state, manifest.hosts) == ("closed", ("node1", "node2", "node3"))
    assert manifest.health == {"missed_ticks": 5, "late_ticks": 1}
    assert (manifest.info, [note.text for note in manifest.notes]) == ({"exit_status": 0}, ["no GPM"])
    assert open_recording(tmp_path / "run").table("gpu")["host"].to_list() == ["node1", "node2"]


def test_each_writer_numbers_its_own_clocks(tmp_path: Path) -> None:
    """Two hosts that both call their clock 1 do not mix: each is converted by its own anchors."""
    first = new(tmp_path / "run")
    second = RecordingWriter.join(tmp_path / "run", host="node2", writer="b")
    for writer, boot in ((first, T), (second, T - 500 * S)):
        writer.append("anchors", [{"clock": 1, "host": "h", "pid": 7, "mono_ns": S, "unix_ns": boot + S}])
    first.append("gpu", [{"gpu": 0, "t_ns": 10 * S, "clock": 1}])
    second.append("gpu", [{"gpu": 1, "t_ns": 520 * S, "clock": 1}])
    first.close()
    second.close()
    assert open_recording(tmp_path / "run").table("gpu", columns=["gpu", "t_ns"]).rows() == [
        (0, 0),
        (1, 10 * S),
    ]


@pytest.mark.parametrize("name", ["a", "../x", "", "a-b"])
def test_a_writer_id_is_unique_and_plain(tmp_path: Path, name: str) -> None:
    """The id is part of file names: it must be new and hold letters, digits and underscores only."""
    new(tmp_path / "run").close()
    if name == "":
        assert RecordingWriter.join(tmp_path / "run", host="h", writer=name).writer.startswith("w")
        return
    with pytest.raises(RecordingError, match="writer id"):
        RecordingWriter.join(tmp_path / "run", host="h", writer=name)


def test_joining_needs_a_recording(tmp_path: Path) -> None:
    """A writer joins what another one made."""
    with pytest.raises(RecordingError, match=r"manifest\.json is damaged"):
        RecordingWriter.join(tmp_path, host="h")


def test_the_manifest_says_what_the_recording_is(tmp_path: Path) -> None:
    """Kind, schema version, creation time, origin and source stand in manifest.json."""
    new(tmp_path / "run", source="torchrun train.py", created_unix_ns=T).close()
    head = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert head | {"tool_version": "?"} == {
        "kind": "dipstick-recording",
        "schema_version": 1,
        "tool_version": "?",
        "created_unix_ns": T,
        "origin": "measured",
        "source": "torchrun train.py",
    }
