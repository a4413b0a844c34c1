"""The ranks' side of a trace folder: spans, jobs, events, processes, the Trainer's log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.importers.text import fitting, read_json_lines
from dipstick.model import Note
from dipstick.phases import short_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANK_FILE: Final = re.compile(r"(?P<kind>spans|jobs)\.r(?P<rank>\d{1,6})\.jsonl")
EVENTS: Final = {"checkpoint": "checkpoint", "empty_cache": "cache_clear", "sync_weights": "weight_sync"}
"""Spans that are also events, by their name without the trainer class."""

_SPAN: Final = {
    "name": pl.String, "rank": pl.Int32, "pid": pl.Int64, "step": pl.Int64, "t0": pl.Int64, "t1": pl.Int64,
    "pickled_bytes": pl.Int64, "jobs": pl.Int64,
}  # fmt: skip
_JOB: Final = {
    "job": pl.String, "rank": pl.Int32, "pid": pl.Int64, "step": pl.Int64, "t0": pl.Int64, "t1": pl.Int64,
    "submitted": pl.Int64, "natoms": pl.Int64, "opt_steps": pl.Int64,
}  # fmt: skip

_REQUIRED: Final = {"spans": ("name", "t0", "t1"), "jobs": ("t0", "t1")}


def read(folder: Path, host: str, notes: list[Note]) -> dict[str, pl.DataFrame]:
    """Read spans, jobs and scalars, and derive events from spans.

    Args:
        folder: The trace folder.
        host: Host of every row.
        notes: Gets a note a file with lines that were skipped.

    Returns:
        ``spans``, ``jobs``, ``events`` and ``scalars``; empty where the files are absent.
    """
    spans = _ranks(folder, "spans", _SPAN, notes)
    jobs = _ranks(folder, "jobs", _JOB, notes)
    table = spans.select(
        pl.lit(host).alias("host"), "pid", "rank", pl.col("t0").alias("t0_ns"), pl.col("t1").alias("t1_ns"),
        "name", "step", pl.lit("measured").alias("origin"), pl.col("pickled_bytes").alias("pickled_b"), "jobs",
    )  # fmt: skip
    return {
        "spans": table,
        "jobs": _jobs(jobs, host),
        "events": _events(table),
        "scalars": _scalars(folder, notes),
    }


def _ranks(folder: Path, kind: str, columns: dict[str, Any], notes: list[Note]) -> pl.DataFrame:
    """All ranks' files of one kind; the rank is the line's own, or the file name's."""
    frames = [pl.DataFrame(schema=columns)]
    for path in sorted(folder.iterdir()):
        match = RANK_FILE.fullmatch(path.name)
        if match is None or match["kind"] != kind or not path.is_file():
            continue
        frame, skipped = read_json_lines(path, columns, _REQUIRED[kind])
        frames.append(frame.with_columns(pl.col("rank").fill_null(int(match["rank"]))))
        if skipped:
            notes.append(Note("warning", f"{path.name}: {skipped} lines could not be read; skipped"))
    return pl.concat(frames)


def _jobs(jobs: pl.DataFrame, host: str) -> pl.DataFrame:
    """The jobs table; a submission time of 0 means it was not taken."""
    size = pl.format("natoms={} opt_steps={}", "natoms", "opt_steps")
    return jobs.select(
        pl.lit(host).alias("host"), "rank", "pid", "job", "step",
        pl.when(pl.col("submitted") > 0).then(pl.col("submitted")).alias("submitted_ns"),
        pl.col("t0").alias("t0_ns"), pl.col("t1").alias("t1_ns"), size.alias("detail"),
    )  # fmt: skip


def _events(spans: pl.DataFrame) -> pl.DataFrame:
    """One event for each span in ``EVENTS``."""
    named = {name: EVENTS[short_name(name)] for name in spans["name"].unique() if short_name(name) in EVENTS}
    rows = spans.filter(pl.col("name").is_in(list(named)))
    return rows.select("host", "rank", "pid", pl.col("name").replace(named), "t0_ns", "t1_ns", "step")


def processes(tables: dict[str, pl.DataFrame], host: str) -> pl.DataFrame:
    """Who is who: pids in spans are trainers (TRL's colocated engine lives in them), pids in jobs reward workers.

    Args:
        tables: With ``spans``, ``jobs`` and ``gpu_process``.
        host: Host of every row.

    Returns:
        One row a process; ``gpu`` is the one it was seen on most often, null if it never was.
    """
    ranks = tables["spans"].select(
        "pid", "rank", pl.lit("trainer+engine").alias("role"), pl.lit("spans").alias("source")
    )
    workers = tables["jobs"].select(
        "pid", "rank", pl.lit("reward_worker").alias("role"), pl.lit("jobs").alias("source")
    )
    people = pl.concat([ranks, workers]).drop_nulls("pid").unique("pid", keep="first", maintain_order=True)
    seen = tables["gpu_process"].group_by("pid").agg(pl.col("gpu").mode().min())
    return people.join(seen, on="pid", how="left", maintain_order="left").with_columns(
        pl.lit(host).alias("host")
    )


def _scalars(folder: Path, notes: list[Note]) -> pl.DataFrame:
    """``log_history`` of ``trainer_state.json``, one row a number; the log holds no times."""
    schema = {"step": pl.Int64, "name": pl.String, "value": pl.Float64}
    path = folder / "trainer_state.json"
    if not path.is_file():
        return pl.DataFrame(schema=schema)
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        notes.append(Note("warning", f"{path.name} is no JSON; skipped"))
        state = {}
    history = state.get("log_history") if isinstance(state, dict) else None
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    return pl.DataFrame([row for entry in entries for row in _numbers(entry)], schema=schema, orient="row")


def _numbers(entry: dict[str, Any]) -> Iterator[tuple[int, str, float]]:
    """Every number of one log entry but its step."""
    step = fitting(entry.get("step"), pl.Int64)
    for name, value in entry.items() if isinstance(step, int) else ():
        number = fitting(value, pl.Float64)
        if name != "step" and isinstance(step, int) and isinstance(number, float):
            yield step, name, number
