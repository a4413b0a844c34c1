"""What was recorded and what was worked out, as tables: the ground under every receipt.

``dipstick query RUN 'SELECT ...'`` reads these, so each number of a report can be derived again by hand.
Recorded tables keep their columns and get seconds beside every ``*_ns`` time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.model import HOLLOW_STATES, STATES
from dipstick.recording.schema import TABLES, TIME_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dipstick.analysis.pipeline import Findings, Gpu
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.analysis.waits import Meetings
    from dipstick.recording.reader import Recording

DERIVED: dict[str, str] = {
    "phase_pieces": "exclusive phases inside the window: rank, phase, t0_s, t1_s, seconds, step",
    "steps": "steps: rank, step, t0_s, t1_s, seconds",
    "waits": "arrivals at barriers: barrier, step, rank, arrival_s, release_s, wait_s, late_rank, because",
    "states": "classification windows: host, gpu, rank, t0_s, t1_s, util_pct, state, busy_s, hollow_s",
    "dips": "dips: gpu (null: the job), start_s, end_s, depth_pct, phase, series, scope ...",
}


def recorded(recording: Recording, name: str) -> pl.DataFrame:
    """One recorded table, with ``x_s`` beside each ``x_ns`` point in time."""
    frame = recording.table(name)
    seconds = [(pl.col(c) / 1e9).alias(f"{c[:-3]}_s") for c in TIME_COLUMNS[name] if c in frame.columns]
    return frame.with_columns(seconds)


def derived(findings: Findings, name: str) -> pl.DataFrame:
    """One table of ``DERIVED``, from finished findings."""
    builders: dict[str, Callable[[Findings], pl.DataFrame]] = {
        "phase_pieces": lambda f: _stack(_pieces(t) for t in f.timelines),
        "steps": lambda f: _stack(_steps(t) for t in f.timelines),
        "waits": lambda f: _stack(_waits(m) for m in f.meetings),
        "states": lambda f: _stack(_states(g) for g in f.gpus),
        "dips": _dips,
    }
    return builders[name](findings)


def names() -> tuple[str, ...]:
    """Every table that can be asked for."""
    return (*TABLES, *DERIVED)


def _stack(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    parts = list(frames)
    return pl.concat(parts) if parts else pl.DataFrame()


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
    busy = np.where(np.isnan(series.active), np.nan, series.active) * width
    return pl.DataFrame(
        {
            "host": [gpu.signals.host] * len(width), "gpu": np.full(len(width), gpu.signals.gpu),
            "rank": pl.Series([gpu.rank] * len(width), dtype=pl.Int64),
            "t0_s": series.windows.t0 / 1e9, "t1_s": series.windows.t1 / 1e9, "util_pct": series.active * 100,
            "state": _named(STATES, series.code), "busy_s": busy, "hollow_s": np.where(hollow, busy, 0.0),
        }
    )  # fmt: skip


def _dips(findings: Findings) -> pl.DataFrame:
    rows = [
        {
            "host": d.host, "gpu": d.gpu, "start_s": d.start_s, "end_s": d.end_s, "seconds": d.end_s - d.start_s,
            "depth_pct": d.depth_pct, "baseline_pct": d.baseline_pct, "deficit_gpu_s": d.deficit_gpu_s,
            "phase": d.phase, "boundary_lag_s": d.boundary_lag_s, "series": d.series, "scope": d.scope,
        }
        for d in (*findings.dips, *findings.job_dips)
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame()
