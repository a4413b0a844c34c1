"""Damaged, foreign and hostile recordings: a clear message or an honest partial answer, never a traceback."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import DipstickError, EmptyRecordingError, RecordingError
from dipstick.recording.reader import Recording, open_recording
from dipstick.recording.schema import TABLES
from dipstick.recording.segments import read_segment
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

S = 1_000_000_000
T = 1_796_000_000 * S


def make(path: Path, **tables: Any) -> Path:
    """A closed recording at path/run, written in parts of at least two rows."""
    options: dict[str, Any] = {"writer": "a", "segment_rows": 2}
    with RecordingWriter.create(path / "run", origin="measured", host="node1", **options) as writer:
        for table, rows in tables.items():
            for begin in range(0, len(rows), 2):
                writer.append(table, rows[begin : begin + 2])
                writer.flush()
    return path / "run"


def gpu(count: int) -> list[dict[str, Any]]:
    """One sample of GPU 0 a second."""
    return [{"host": "node1", "gpu": 0, "t_ns": T + s * S, "util_pct": 50.0} for s in range(count)]


def load_all(recording: Recording) -> dict[str, int]:
    """Rows of every table that has any."""
    return {name: height for name in TABLES if (height := recording.table(name).height)}


def texts(recording: Recording) -> list[str]:
    """What the notes say."""
    return [note.text for note in recording.notes]


# --- not a recording ---


def test_a_missing_folder(tmp_path: Path) -> None:
    """The message names it and the sample that always works."""
    with pytest.raises(RecordingError, match=r"nowhere: no such folder\.\n.*sample:h200x2-grpo"):
        open_recording(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    """A log is imported; its name is quoted for the shell."""
    (tmp_path / "my log.csv").write_text("timestamp, index")
    with pytest.raises(RecordingError, match=r"it is a file.*\n.*dipstick import '.*/my log.csv' -o RUN"):
        open_recording(tmp_path / "my log.csv")


def test_an_empty_folder(tmp_path: Path) -> None:
    """Nothing was recorded yet."""
    with pytest.raises(EmptyRecordingError, match=r"the folder is empty.*\n.*dipstick run"):
        open_recording(tmp_path)


@pytest.mark.parametrize(
    "name", ["spans.r0.jsonl", "nvidia-smi.csv", "run-abc.wandb", "events.out.tfevents.1.host.2.0"]
)
def test_a_foreign_folder_that_looks_like_logs(tmp_path: Path, name: str) -> None:
    """The way in is `dipstick import`."""
    (tmp_path / name).touch()
    with pytest.raises(
        RecordingError, match=r"no dipstick recording.*\n.*looks like a trace or logs: dipstick import"
    ):
        open_recording(tmp_path)


def test_a_foreign_folder_of_anything_else(tmp_path: Path) -> None:
    """No import is promised for holiday pictures."""
    (tmp_path / "beach.heic").touch()
    with pytest.raises(RecordingError, match=r"no dipstick recording.*\n.*Give the folder that dipstick run"):
        open_recording(tmp_path)


# --- the manifest ---


def test_a_newer_schema_says_which_dipstick_is_needed(tmp_path: Path) -> None:
    """The version that wrote it can read it."""
    run = make(tmp_path, gpu=gpu(1))
    head = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**head, "schema_version": 2, "tool_version": "0.9.1"}))
    with pytest.raises(RecordingError, match=r"schema version 2; this dipstick reads up to 1\.\n.*0\.9\.1"):
        open_recording(run)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"schema_version": ' + b"9" * 10_000 + b"}",
    ],
    ids=["empty", "cut", "array", "null", "binary", "deep", "huge number"],
)
def test_a_damaged_manifest(tmp_path: Path, content: bytes) -> None:
    """Without it nobody knows what the tables mean."""
    run = make(tmp_path, gpu=gpu(1))
    (run / "manifest.json").write_bytes(content)
    with pytest.raises(RecordingError, match=r"manifest\.json is damaged"):
        open_recording(run)


def test_another_tools_manifest(tmp_path: Path) -> None:
    """Many things have a manifest.json."""
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(RecordingError, match="does not say that this is a dipstick recording"):
        open_recording(tmp_path)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"health": 3, "hosts": {}, "notes": [1], "parts": [], "info": null}']
)
def test_a_damaged_piece_of_the_manifest_costs_only_itself(tmp_path: Path, content: bytes) -> None:
    """The tables are whole; health and state of that writer are unknown."""
    run = make(tmp_path, gpu=gpu(2))
    (run / "manifest.a.json").write_bytes(content)
    recording = open_recording(run)
    assert (load_all(recording), recording.manifest.health, recording.manifest.state) == (
        {"gpu": 2},
        {},
        "recording",
    )


def test_members_of_the_wrong_kind_are_left_out(tmp_path: Path) -> None:
    """Counters that are no numbers, notes that are no notes."""
    run = make(tmp_path, gpu=gpu(1))
    piece = {"state": "closed", "health": {"gaps": 2, "x": "y", "b": True}, "notes": [7, {"text": "hello"}]}
    (run / "manifest.a.json").write_text(json.dumps(piece))
    recording = open_recording(run)
    assert recording.manifest.health == {"gaps": 2}
    assert texts(recording) == ["hello"]


# --- damaged tables ---


def test_a_truncated_part_costs_its_rows_and_no_more(tmp_path: Path) -> None:
    """Three parts of two samples; the second is cut: four samples are left and the loss is counted."""
    run = make(tmp_path, gpu=gpu(6))
    part = run / "gpu" / "a-000002.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    recording = open_recording(run)
    assert [t // S for t in recording.table("gpu")["t_ns"]] == [0, 1, 4, 5]
    assert texts(recording) == ["gpu/a-000002.parquet is damaged or cut short: 2 rows are lost"]


def test_a_part_that_is_gone_is_missed(tmp_path: Path) -> None:
    """The manifest knows what was written."""
    run = make(tmp_path, gpu=gpu(4))
    (run / "gpu" / "a-000001.parquet").unlink()
    assert texts(open_recording(run)) == ["gpu/a-000001.parquet is missing: 2 rows are lost"]


def test_a_damaged_page_inside_a_part_is_found_on_reading(tmp_path: Path) -> None:
    """The footer is whole, the bytes before it are not: the part is left out, the other one is kept."""
    run = make(tmp_path, gpu=gpu(4))
    part = run / "gpu" / "a-000001.parquet"
    content = bytearray(part.read_bytes())
    content[4:60] = b"\xff" * 56
    part.write_bytes(content)
    recording = open_recording(run)
    assert load_all(recording) == {"gpu": 2}
    assert texts(recording) == ["gpu/a-000001.parquet is damaged or cut short: 2 rows are lost"]


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    """The only part is cut: there is nothing to explain."""
    run = make(tmp_path, gpu=gpu(2))
    (run / "gpu" / "a-000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(EmptyRecordingError, match=r"no row with a usable time.*\n.*2 rows are lost"):
        open_recording(run)


def test_all_tables_empty(tmp_path: Path) -> None:
    """A recording that was stopped at once, or holds only rows without times, can't be explained."""
    with pytest.raises(EmptyRecordingError, match="no row with a usable time"):
        open_recording(make(tmp_path, processes=[{"pid": 1}], spans=[{"t0_ns": 5, "t1_ns": 4}]))


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a live segment of five batches of two rows, as it stands before closing."""
    path = tmp_path_factory.mktemp("stream") / "run"
    writer = RecordingWriter.create(path, origin="measured", host="node1", writer="a")
    for begin in range(0, 10, 2):
        writer.append("gpu", gpu(10)[begin : begin + 2])
        writer.flush()
    copy = path.parent / "stream"
    shutil.copy(path / "gpu" / "a-000001.arrows", copy)
    writer.close()
    return copy


def rows_in(folder: Path, content: bytes) -> tuple[int, bool]:
    """How many rows a segment with these bytes gives, and whether it ends cleanly."""
    (folder / "x.arrows").write_bytes(content)
    frame, clean = read_segment(folder / "x.arrows")
    return frame.height, clean


def test_a_stream_cut_anywhere_keeps_every_complete_batch(tmp_path: Path, stream: Path) -> None:
    """Cut at 200 places: the rows grow by whole batches with the length, and no cut loses a complete batch."""
    content = stream.read_bytes()
    cuts = [round(len(content) * i / 200) for i in range(201)]
    heights = [rows_in(tmp_path, content[:cut])[0] for cut in cuts]
    assert heights == sorted(heights)
    assert set(heights) == {0, 2, 4, 6, 8, 10}
    assert rows_in(tmp_path, content) == (10, True)


def test_a_stream_cut_inside_a_batch_is_noted(tmp_path: Path, stream: Path) -> None:
    """The note says how many rows are there."""
    run = make(tmp_path, spans=[{"t0_ns": T, "t1_ns": T + S}])
    (run / "gpu").mkdir()
    (run / "gpu" / "b-000001.arrows").write_bytes(stream.read_bytes()[:-10])
    recording = open_recording(run)
    assert load_all(recording) == {"gpu": 8, "spans": 1}
    assert texts(recording) == [
        "gpu/b-000001.arrows ends in the middle of a write (the writer was killed): its 8 complete rows were read"
    ]


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"PAR1", b"\x00" * 1000])
def test_a_stream_that_is_none(tmp_path: Path, content: bytes) -> None:
    """It costs itself, not the recording."""
    run = make(tmp_path, gpu=gpu(2))
    (run / "gpu" / "b-000001.arrows").write_bytes(content)
    assert load_all(open_recording(run)) == {"gpu": 2}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(where=st.integers(0, 10**6), what=st.binary(min_size=1, max_size=40))
def test_garbage_in_a_stream_never_raises(tmp_path: Path, stream: Path, where: int, what: bytes) -> None:
    """Bytes overwritten anywhere: at most all rows are read, nothing escapes as another exception."""
    content = bytearray(stream.read_bytes())
    where %= len(content)
    content[where : where + len(what)] = what
    height, _ = rows_in(tmp_path, bytes(content))
    assert 0 <= height <= 10


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(where=st.integers(0, 10**6), what=st.binary(min_size=1, max_size=400))
def test_garbage_in_a_part_never_raises_anything_but_our_errors(
    tmp_path: Path, where: int, what: bytes
) -> None:
    """Bytes overwritten anywhere in the larger of two parts: a partial answer, or an error that says so."""
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    run = make(tmp_path, gpu=gpu(4), spans=[{"t0_ns": T, "t1_ns": T + S}])
    part = run / "gpu" / "a-000001.parquet"
    content = bytearray(part.read_bytes())
    where %= len(content)
    content[where : where + len(what)] = what
    part.write_bytes(content)
    try:
        rows = load_all(open_recording(run))
    except DipstickError:
        rows = {}
    assert rows.get("spans", 1) == 1
    assert rows.get("gpu", 2) in {2, 3, 4}


# --- foreign schemas ---


def write_part(run: Path, frame: pl.DataFrame) -> None:
    """Put a frame into the gpu table as another tool might have."""
    (run / "gpu").mkdir(exist_ok=True)
    frame.write_parquet(run / "gpu" / "b-000001.parquet")


def test_older_columns_are_brought_into_todays_schema(tmp_path: Path) -> None:
    """Other types are cast, missing columns are null, unknown ones are left out."""
    run = make(tmp_path, spans=[{"t0_ns": T, "t1_ns": T + S}])
    write_part(
        run, pl.DataFrame({"t_ns": [T + 1], "gpu": ["3"], "util_pct": [42], "host": ["node1"], "volts": [5]})
    )
    row = open_recording(run).table("gpu").row(0, named=True)
    assert {k: v for k, v in row.items() if v is not None} == {
        "host": "node1", "gpu": 3, "t_ns": 1, "util_pct": 42.0, "clock": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"t_ns": ["yesterday"], "gpu": ["first"]}),
        pl.DataFrame({"t_ns": [[1, 2]], "gpu": [{"a": 1}]}),
        pl.DataFrame({"volts": [5]}),
        pl.DataFrame({"t_ns": pl.Series([b"\xff"])}),
        pl.DataFrame({"t_ns": pl.Series([None], dtype=pl.Null)}),
    ],
    ids=["text", "nested", "no known column", "binary", "null"],
)
def test_columns_of_senseless_types_hold_no_rows(tmp_path: Path, frame: pl.DataFrame) -> None:
    """A value that can't be cast is missing; a row without a time is dropped."""
    run = make(tmp_path, spans=[{"t0_ns": T, "t1_ns": T + S}])
    write_part(run, frame)
    assert load_all(open_recording(run)) == {"spans": 1}


def test_pickles_are_data_that_nobody_opens(tmp_path: Path) -> None:
    """A pickle with our file name is no Parquet and is never loaded."""
    run = make(tmp_path, gpu=gpu(2))
    (run / "gpu" / "b-000001.parquet").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    recording = open_recording(run)
    assert load_all(recording) == {"gpu": 2}
    assert texts(recording) == ["gpu/b-000001.parquet is damaged or cut short: its rows are lost"]


# --- links ---


def link_part(run: Path, secret: Path) -> None:
    """A part that is a link to a file elsewhere."""
    (run / "gpu" / "b-000001.parquet").symlink_to(secret / "gpu" / "a-000001.parquet")


def link_table(run: Path, secret: Path) -> None:
    """A table folder that is a link."""
    (run / "spans").symlink_to(secret / "gpu")


def link_piece(run: Path, secret: Path) -> None:
    """A manifest piece that is a link."""
    (run / "manifest.b.json").symlink_to(secret / "manifest.a.json")


@pytest.mark.parametrize("plant", [link_part, link_table, link_piece])
def test_links_inside_a_recording_are_not_followed(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A shared run folder must not read (or show) files that its reader can see and its writer can't."""
    run, secret = make(tmp_path / "one", gpu=gpu(2)), make(tmp_path / "two", gpu=gpu(6))
    plant(run, secret)
    recording = open_recording(run)
    assert load_all(recording) == {"gpu": 2}
    assert len(texts(recording)) == 1
    assert texts(recording)[0].endswith("is a symbolic link: not followed")


def test_a_manifest_that_is_a_link_is_no_recording(tmp_path: Path) -> None:
    """The first file that is read obeys the rule too."""
    run, secret = make(tmp_path / "one", gpu=gpu(2)), make(tmp_path / "two", gpu=gpu(6))
    (run / "manifest.json").unlink()
    (run / "manifest.json").symlink_to(secret / "manifest.json")
    with pytest.raises(RecordingError, match="no dipstick recording"):
        open_recording(run)


def test_a_link_to_a_recording_may_be_given(tmp_path: Path) -> None:
    """`latest -> run-7` is the user's own link."""
    (tmp_path / "latest").symlink_to(make(tmp_path, gpu=gpu(2)))
    assert load_all(open_recording(tmp_path / "latest")) == {"gpu": 2}


def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    """Temporary files of a killed writer, notes of a user, a folder named like a part."""
    run = make(tmp_path, gpu=gpu(2))
    (run / "gpu" / ".a-000002.parquet.tmp").write_bytes(b"half")
    (run / "notes.txt").write_text("hello")
    (run / "gpu" / "b-000001.parquet").mkdir()
    recording = open_recording(run)
    assert (load_all(recording), texts(recording)) == ({"gpu": 2}, [])


# --- odd but readable ---


def test_hostile_strings_are_data(tmp_path: Path) -> None:
    """Markup, escapes, a right-to-left override, a formula and 10 kB come back as they are."""
    names = [
        "</script><script>alert(1)</script>",
        "\x1b]0;owned\x07",
        "\u202egpj.exe",
        "=cmd|' /C calc'!A0",
        "x" * 10_000,
    ]
    run = make(
        tmp_path, spans=[{"t0_ns": T + i, "t1_ns": T + S, "name": name} for i, name in enumerate(names)]
    )
    assert open_recording(run).table("spans")["name"].to_list() == names


def test_a_gpu_that_vanishes_half_way_keeps_its_rows(tmp_path: Path) -> None:
    """GPU 1 stops after 3 of 10 seconds: no rows are made up for it."""
    rows = [
        {"gpu": g, "t_ns": T + s * S, "util_pct": 9.0} for s in range(10) for g in (0, 1) if g == 0 or s < 3
    ]
    frame = open_recording(make(tmp_path, gpu=rows)).table("gpu")
    assert frame.group_by("gpu").len().sort("gpu").rows() == [(0, 10), (1, 3)]


def test_a_recording_of_a_fifth_of_a_second(tmp_path: Path) -> None:
    """Short is not damaged: it reads, with its true length."""
    recording = open_recording(make(tmp_path, gpu=[{"gpu": 0, "t_ns": T}, {"gpu": 0, "t_ns": T + S // 5}]))
    assert (recording.end_unix_ns - recording.start_unix_ns, recording.notes) == (S // 5, ())


def test_a_single_row_is_a_recording_of_no_length(tmp_path: Path) -> None:
    """What can be said about it is for the analysis to decide."""
    recording = open_recording(make(tmp_path, gpu=gpu(1)))
    assert recording.start_unix_ns == recording.end_unix_ns == T
