"""What was recorded and what was worked out, as tables: the ground under every receipt.

``dipstick query RUN 'SELECT ...'`` reads these, so each number of a report can be derived again by hand.
Recorded tables keep their columns and get seconds beside every ``*_ns`` time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.loop import build_loop
from dipstick.model import HOLLOW_STATES, STATES
from dipstick.recording.schema import TABLES, TIME_COLUMNS, Schema, frame_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dipstick.analysis.pipeline import Findings, Gpu
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.analysis.waits import Meetings
    from dipstick.recording.reader import Recording

_INT, _REAL, _TEXT = pl.Int64(), pl.Float64(), pl.String()
_SPAN: Schema = {"t0_s": _REAL, "t1_s": _REAL}
SCHEMAS: dict[str, Schema] = {
    "phase_pieces": {"rank": _INT, "phase": _TEXT, **_SPAN, "seconds": _REAL, "step": _INT},
    "phase_rows": {
        "rank": _INT, "phase": _TEXT, "seconds": _REAL, "share": _REAL, "count": _INT, "util_mean_pct": _REAL,
        "hollow_s": _REAL,
    },
    "steps": {"rank": _INT, "step": _INT, **_SPAN, "seconds": _REAL},
    "cycles": {"step": _INT, **_SPAN, "seconds": _REAL},
    "waits": {
        "barrier": _TEXT, "step": _INT, "rank": _INT, "arrival_s": _REAL, "release_s": _REAL, "wait_s": _REAL,
        "late_rank": _INT, "because": _TEXT,
    },
    "states": {
        "host": _TEXT, "gpu": _INT, "rank": _INT, **_SPAN, "util_pct": _REAL, "state": _TEXT, "busy_s": _REAL,
        "hollow_s": _REAL,
    },
    "samples": {"host": _TEXT, "gpu": _INT, "rank": _INT, **_SPAN, "util_pct": _REAL, "mem_util_pct": _REAL},
    "dips": {
        "host": _TEXT, "gpu": _INT, "start_s": _REAL, "end_s": _REAL, "seconds": _REAL, "depth_pct": _REAL,
        "baseline_pct": _REAL, "deficit_gpu_s": _REAL, "phase": _TEXT, "boundary_lag_s": _REAL, "series": _TEXT,
        "scope": _TEXT,
    },
}  # fmt: skip
"""Columns of the derived tables; a table without rows still has them, so that every query can be asked."""

DERIVED: dict[str, str] = {
    "phase_pieces": "exclusive phases inside the analysis window",
    "phase_rows": "the same summed by rank and phase, with mean utilization",
    "steps": "steps as the framework brackets them",
    "cycles": "steps from last barrier to last barrier, the unit of the statistics",
    "waits": "arrivals at barriers, and what the late rank was doing",
    "states": "classification windows over the whole recording",
    "samples": "utilization as the analysis uses it, each sample over the time it stands for",
    "dips": "dips; gpu is null for the job's",
}


def recorded(recording: Recording, name: str) -> pl.DataFrame:
    """One recorded table, with ``x_s`` beside each ``x_ns`` point in time."""
    frame = recording.table(name)
    seconds = [(pl.col(c) / 1e9).alias(f"{c[:-3]}_s") for c in TIME_COLUMNS[name] if c in frame.columns]
    return frame.with_columns(seconds)


def derived(findings: Findings, name: str) -> pl.DataFrame:
    """One table of ``DERIVED``, from finished findings; columns and types are those of ``SCHEMAS``."""
    builders: dict[str, Callable[[Findings], Iterable[pl.DataFrame]]] = {
        "phase_pieces": lambda f: map(_pieces, f.timelines),
        "phase_rows": _phase_rows,
        "steps": lambda f: map(_steps, f.timelines),
        "cycles": _cycles,
        "waits": lambda f: map(_waits, f.meetings),
        "states": lambda f: map(_states, f.gpus),
        "samples": lambda f: map(_samples, f.gpus),
        "dips": _dips,
    }
    schema = SCHEMAS[name]
    parts = [part.cast(schema) for part in builders[name](findings)]  # type: ignore[arg-type] # Schema is a mapping of types
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def names() -> tuple[str, ...]:
    """Every table that can be asked for."""
    return (*TABLES, *DERIVED)


def _pieces(timeline: RankTimeline) -> pl.DataFrame:
    start, end = timeline.edges[:-1], timeline.edges[1:]
    step = np.searchsorted(timeline.steps.t0, start, side="right") - 1
    number = np.append(timeline.steps.number, -1)[step] if len(timeline.steps) else np.full(len(start), -1)
    return pl.DataFrame(
        {
            "rank": np.full(len(start), timeline.rank), "phase": _named(phases.PHASES, timeline.code),
            "t0_s": start / 1e9, "t1_s": end / 1e9, "seconds": (end - start) / 1e9, "step": number,
        }
    )  # fmt: skip


def _phase_rows(findings: Findings) -> Iterable[pl.DataFrame]:
    names_ = list(SCHEMAS["phase_rows"])
    rows = findings.breakdown.rows if findings.breakdown else ()
    listed = [[getattr(row, name) for name in names_] for row in rows]
    return [pl.DataFrame(listed, names_, orient="row", infer_schema_length=None)] if listed else []


def _named(names_: tuple[str, ...], code: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> pl.Series:
    return pl.Series(np.asarray(names_, dtype=object)[code], dtype=pl.String)


def _steps(timeline: RankTimeline) -> pl.DataFrame:
    steps = timeline.steps
    return pl.DataFrame(
        {
            "rank": np.full(len(steps), timeline.rank), "step": steps.number, "t0_s": steps.t0 / 1e9,
            "t1_s": steps.t1 / 1e9, "seconds": (steps.t1 - steps.t0) / 1e9,
        }
    )  # fmt: skip


def _cycles(findings: Findings) -> Iterable[pl.DataFrame]:
    steps = build_loop(findings.timelines, pl.DataFrame(schema=frame_schema("jobs")), {})
    if steps is None:
        return []
    columns = {
        "step": steps.number,
        "t0_s": steps.start_s,
        "t1_s": steps.end_s,
        "seconds": steps.loop.measured,
    }
    return [pl.DataFrame(columns)]


def _waits(meeting: Meetings) -> pl.DataFrame:
    count, ranks = meeting.arrival.shape
    return pl.DataFrame(
        {
            "barrier": [meeting.barrier.name] * (count * ranks),
            "step": np.repeat(meeting.step, ranks), "rank": np.tile(np.asarray(meeting.ranks), count),
            "arrival_s": meeting.arrival.ravel() / 1e9, "release_s": np.repeat(meeting.release, ranks) / 1e9,
            "wait_s": meeting.waits_ns().ravel() / 1e9,
            "late_rank": np.repeat(np.asarray(meeting.ranks)[meeting.last], ranks),
            "because": _named(phases.PHASES, meeting.because.ravel().astype(np.uint8)),
        }
    )  # fmt: skip


def _states(gpu: Gpu) -> pl.DataFrame:
    series = gpu.states
    width = (series.windows.t1 - series.windows.t0) / 1e9
    hollow = np.isin(series.code, [STATES.index(name) for name in HOLLOW_STATES])
    busy = pl.Series(series.active * width).fill_nan(None)  # utilization not measured: not known, not 0
    return pl.DataFrame(
        {
            "host": [gpu.signals.host] * len(width), "gpu": np.full(len(width), gpu.signals.gpu),
            "rank": pl.Series([gpu.rank] * len(width), dtype=pl.Int64),
            "t0_s": series.windows.t0 / 1e9, "t1_s": series.windows.t1 / 1e9, "util_pct": pl.Series(series.active * 100).fill_nan(None),
            "state": _named(STATES, series.code), "busy_s": busy, "hollow_s": np.where(hollow, series.active * width, 0.0),
        }
    )  # fmt: skip


def _samples(gpu: Gpu) -> pl.DataFrame:
    util, memory = gpu.signals.util, gpu.signals.mem_util
    return pl.DataFrame(
        {
            "host": [gpu.signals.host] * len(util.t0), "gpu": np.full(len(util.t0), gpu.signals.gpu),
            "rank": pl.Series([gpu.rank] * len(util.t0), dtype=pl.Int64), "t0_s": util.t0 / 1e9, "t1_s": util.t1 / 1e9,
            "util_pct": pl.Series(util.value).fill_nan(None), "mem_util_pct": pl.Series(memory.value).fill_nan(None),
        }
    )  # fmt: skip


def _dips(findings: Findings) -> Iterable[pl.DataFrame]:
    rows = [
        {
            "host": d.host, "gpu": d.gpu, "start_s": d.start_s, "end_s": d.end_s, "seconds": d.end_s - d.start_s,
            "depth_pct": d.depth_pct, "baseline_pct": d.baseline_pct, "deficit_gpu_s": d.deficit_gpu_s,
            "phase": d.phase, "boundary_lag_s": d.boundary_lag_s, "series": d.series, "scope": d.scope,
        }
        for d in (*findings.dips, *findings.job_dips)
    ]  # fmt: skip
    return [pl.DataFrame(rows, infer_schema_length=None)] if rows else []
