"""Spans, jobs, events and telemetry of your own, as CSV, JSON lines and Parquet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.generic import column_of, kind_of
from dipstick.importers.options import Options, parse_zone
from imported import T_S, S, T, bound, read_text, rows

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


def write(folder: Path, records: list[dict[str, Any]], suffix: str, name: str = "mine") -> Path:
    """The same records as CSV, JSON lines or Parquet."""
    path = folder / f"{name}.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif suffix == "csv":
        pl.DataFrame(records).write_csv(path)
    else:
        pl.DataFrame(records).write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_spans_in_three_containers(tmp_path: Path, suffix: str) -> None:
    """Nanoseconds stay exact in all of them."""
    records = [{"name": "generate", "rank": 1, "pid": 9, "step": 4, "t0_ns": T + 1, "t1_ns": T + 2 * S + 3}]
    found = read_path(write(tmp_path, records, suffix))
    assert rows(found, "spans", "name", "rank", "pid", "step", "t0_ns", "t1_ns", "origin") == [
        ("generate", 1, 9, 4, 1, 2 * S + 3, "measured")
    ]
    assert {sure for *_, sure in bound(found).values()} == {"certain"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_telemetry_in_three_containers(tmp_path: Path, suffix: str) -> None:
    """By the same names as in a hand-made CSV."""
    records = [
        {"timestamp": T_S + 0.5 * i, "gpu": i % 2, "gpu_util": 10.0 * i, "power_w": 100.5} for i in range(4)
    ]
    found = read_path(write(tmp_path, records, suffix))
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct", "power_w") == [
        (i % 2, i * S // 2, 10.0 * i, 100.5) for i in range(4)
    ]


@pytest.mark.parametrize(
    ("record", "start", "end"),
    [
        ({"start": T_S, "end": T_S + 2}, 0, 2 * S),
        ({"start_time": T_S + 0.5, "duration_ms": 250}, S // 2, S // 2 + 250 * MS),
        ({"begin": "2026-11-30T15:42:13Z", "duration": 1.5}, 0, 3 * S // 2),
        ({"t0": T, "t1": T + 7}, 0, 7),
        ({"started_at": "2026-11-30T16:42:13+01:00", "ended_at": "2026-11-30T16:42:14+01:00"}, 0, S),
        ({"ts": T_S * 1000, "dur_us": 1000}, 0, MS),
    ],
)
def test_start_with_end_or_duration(tmp_path: Path, record: dict[str, Any], start: int, end: int) -> None:
    """Any unit of Unix time, ISO with an offset; a duration's unit is in its name, seconds if it has none."""
    found = read_path(write(tmp_path, [{"name": "reward", **record}], "jsonl"))
    assert rows(found, "spans", "t0_ns", "t1_ns") == [(start, end)]


def test_parquet_points_in_time(tmp_path: Path) -> None:
    """With a zone they are absolute, without one local; --tz says which zone."""
    when = datetime(2026, 11, 30, 15, 42, 13, tzinfo=UTC)
    aware = read_path(write(tmp_path, [{"name": "x", "start": when, "end": when}], "parquet", "aware"))
    assert (aware.account.clock, rows(aware, "spans", "t0_ns")) == ("unix", [(0,)])
    local = write(
        tmp_path,
        [{"name": "x", "start": when.replace(tzinfo=None), "end": when.replace(tzinfo=None)}],
        "parquet",
        "local",
    )
    assert read_path(local).account.clock == "local"
    assert rows(read_path(local, Options(tz=parse_zone("Asia/Tokyo"))), "spans", "t0_ns") == [
        (-9 * 3600 * S,)
    ]


def test_jobs_have_workers_and_submission_times(tmp_path: Path) -> None:
    """A job column makes jobs; the rest is what the analysis of workers needs."""
    record = {"job_id": "7-3", "rank": 0, "worker_pid": 55, "step": 7, "submitted_at": T_S, "start": T_S + 1, "end": T_S + 2,
              "payload_bytes": 640}  # fmt: skip
    found = read_path(write(tmp_path, [record], "jsonl"))
    columns = ("job", "rank", "pid", "step", "submitted_ns", "t0_ns", "t1_ns", "payload_b")
    assert rows(found, "jobs", *columns) == [("7-3", 0, 55, 7, 0, S, 2 * S, 640)]


def test_events_are_names_with_a_time(tmp_path: Path) -> None:
    """An instant; an end is optional."""
    found = read_path(write(tmp_path, [{"event": "checkpoint", "time": T_S, "step": 5}], "jsonl", "events"))
    assert rows(found, "events", "name", "t0_ns", "step") == [("checkpoint", 0, 5)]


def test_a_phase_names_the_span_where_nothing_else_does(tmp_path: Path) -> None:
    """A phase that is none of dipstick's is a name, not a phase."""
    records = [{"phase": p, "start": T_S, "end": T_S + 1} for p in ("generate", "thinking")]
    found = read_path(write(tmp_path, records, "csv"))
    assert rows(found, "spans", "name", "phase") == [("generate", "generate"), ("thinking", None)]


def test_seconds_since_the_start_are_a_relative_clock(tmp_path: Path) -> None:
    """Small numbers are no Unix time."""
    found = read_path(write(tmp_path, [{"name": "generate", "start": 0.5, "end": 2.0}], "jsonl"))
    assert found.account.clock == "relative"
    assert found.tables["spans"].select("t0_ns", "t1_ns").rows() == [(S // 2, 2 * S)]


@pytest.mark.parametrize(
    ("names", "file", "kind"),
    [
        (("name", "start", "end"), "x.csv", "spans"),
        (("job", "start", "duration"), "x.csv", "jobs"),
        (("name", "start", "end"), "jobs.csv", "jobs"),
        (("event", "ts"), "x.jsonl", "events"),
        (("name", "start", "end"), "events.csv", "events"),
        (("time", "gpu_util"), "x.jsonl", "gpu"),
        (("loss", "step"), "x.jsonl", ""),
    ],
)
def test_which_table_it_is(names: tuple[str, ...], file: str, kind: str) -> None:
    """By the columns; the file's name decides where they allow several."""
    assert kind_of(names, file) == kind


@pytest.mark.parametrize(
    ("name", "column"),
    [("t0_ns", "t0_ns"), ("Start", "t0_ns"), ("end_time", "t1_ns"), ("dur_us", "duration"), ("global_step", "step"),
     ("hostname", "host"), ("loss", ""), ("restart", "")],
)  # fmt: skip
def test_what_columns_are_called(name: str, column: str) -> None:
    """Whole names only: ``restart`` is no start."""
    assert column_of(name) == column


def test_lines_that_are_no_record_are_counted(tmp_path: Path) -> None:
    """Broken JSON, a list, a row without end, a number too large for 64 bits."""
    lines = [
        json.dumps({"name": "a", "start": T, "end": T + 1}), '{"name": "b", "start"', "[1, 2]",
        json.dumps({"name": "c", "start": T}), json.dumps({"name": "d", "start": 10**30, "end": T}),
    ]  # fmt: skip
    found = read_text(tmp_path, "\n".join(lines), "spans.jsonl")
    assert rows(found, "spans", "name") == [("a",)]
    assert (found.account.rows_read, found.account.dropped) == (
        5, {"no JSON object on the line": 2, "start or end can't be read": 2},
    )  # fmt: skip


def test_columns_that_are_none_of_the_four_kinds(tmp_path: Path) -> None:
    """It lists what it has, and what each kind needs."""
    with pytest.raises(
        ImportFormatError, match=r"\(loss, step\) are neither spans.*\n.*Spans need name, start and end"
    ):
        read_text(tmp_path, '{"loss": 1, "step": 2}\n', "x.jsonl", format="generic")


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    """Said, not a traceback."""
    path = write(tmp_path, [{"name": "a", "start": T, "end": T + 1}], "parquet")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\x00" * 50)
    with pytest.raises(ImportFormatError, match="Parquet file is damaged"):
        read_path(path, Options(format="generic"))


def test_strings_of_a_record_stay_strings(tmp_path: Path) -> None:
    """Nothing in a file is run or looked up; a list or object where text is expected is no value."""
    evil = "__import__('os').system('touch pwned')"
    found = read_path(write(tmp_path, [{"name": evil, "start": T, "end": T + 1, "detail": ["a"]}], "jsonl"))
    assert rows(found, "spans", "name", "detail") == [(evil, None)]
