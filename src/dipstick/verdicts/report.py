"""From a recording to the one object that every renderer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick.analysis.pipeline import Findings, Gpu, analyse
from dipstick.errors import EmptyRecordingError
from dipstick.model import GpuTrack, Note, RankTrack, Report, RunInfo, Sampling, Tenant, Tracks
from dipstick.recording.schema import TABLES
from dipstick.verdicts import (
    check_alignment,
    check_phases,
    check_spikes,
    check_stragglers,
    check_trends,
    scorecard,
)
from dipstick.verdicts.answer import answer
from dipstick.verdicts.evidence import Evidence
from dipstick.verdicts.missing import missing
from dipstick.verdicts.reconstructed import is_any, marked, marked_answer, share
from dipstick.verdicts.repo import scan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.model import IntArray
    from dipstick.recording.reader import Recording
    from dipstick.verdicts.claims import Said

CHECKS = (check_alignment, check_phases, check_spikes, check_stragglers, check_trends)
"""In the order of the screen."""
SHORT_RUN_S = 10.0


def explain(recording: Recording, *, repo: str | Path | None = None, claims: Sequence[Said] = ()) -> Report:
    """Analyse a recording, run the checks and judge the claims.

    Args:
        recording: From :func:`dipstick.load`.
        repo: A checkout of the training code, read and never run, for what the recording cannot tell.
        claims: The user's own claims, compiled; they come after the scorecard's.

    Raises:
        EmptyRecordingError: It holds neither GPU samples nor spans.
    """
    findings = analyse(recording)
    if not findings.gpus and not findings.timelines:
        raise _nothing(recording)
    evidence = Evidence(recording, findings, None if repo is None else scan(repo))
    rebuilt = share(recording) if is_any(recording) else (0, 0)
    checks = tuple(marked(module.check(evidence), rebuilt) for module in CHECKS)
    return Report(
        run=_run(recording, findings),
        answer=marked_answer(answer(evidence), recording),
        states=findings.states,
        states_all=findings.states_all,
        dips=findings.dips,
        job_dips=findings.job_dips,
        phases=findings.breakdown,
        stragglers=findings.stragglers,
        tenants=_tenants(recording, findings.window),
        missing=missing(recording, findings),
        notes=(*findings.notes, *_notes(recording, findings)),
        tracks=_tracks(findings),
        checks=checks,
        claims=tuple(marked(claim, rebuilt) for claim in scorecard.judge(evidence, tuple(claims))),
    )


def _nothing(recording: Recording) -> EmptyRecordingError:
    """The refusal, with what there is (power, processes or jobs, but neither utilization nor spans) and what would help."""
    held = [table for table in TABLES if recording.has(table) and table not in {"gpus", "anchors"}]
    but = f" (it holds {', '.join(held)})" if held else ""
    fix = (
        "import it together with utilization (nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw "
        "--format=csv -lms 500) or with spans (docs/import.md)"
    )
    if recording.manifest.origin == "measured":
        fix = 'record it on a machine with a GPU, or mark its phases: with dipstick.span("reward"): …'
    return EmptyRecordingError(
        f"holds neither GPU utilization nor phase spans, so there is nothing to explain{but}",
        where=str(recording.path),
        fix=fix,
    )


def _run(recording: Recording, findings: Findings) -> RunInfo:
    names = recording.table("gpus")["name"].drop_nulls().cast(pl.String).unique().sort().to_list()
    steps = {int(n) for t in findings.timelines for n in t.steps.number}
    start, end = findings.window
    return RunInfo(
        name=recording.name,
        start_unix_ns=recording.start_unix_ns,
        seconds=(recording.end_unix_ns - recording.start_unix_ns) / 1e9,
        window_s=(start / 1e9, end / 1e9),
        gpus=len(findings.gpus),
        ranks=len(findings.timelines),
        steps=len(steps),
        hosts=len({gpu.signals.host for gpu in findings.gpus}) or 1,
        origin=recording.manifest.origin,
        sampling=_sampling(findings),
        overhead=recording.overhead,
        gpu_names=tuple(names),
        unused_gpus=tuple(f"{g.signals.host}:{g.signals.gpu}" for g in findings.gpus if not g.used),
    )


def _sampling(findings: Findings) -> Sampling:
    used = [gpu for gpu in findings.gpus if gpu.used] or list(findings.gpus)
    if not used:
        return Sampling(None, None, None, None, 0, 0.0, None, has_counters=False)
    period = max(gpu.signals.period_ns for gpu in used) / 1e9
    window = max(gpu.signals.window_ns for gpu in used) / 1e9
    length = max(findings.window[1] - findings.window[0], 1)
    seen = [gpu.signals.util.clip(*findings.window).recorded_ns / length for gpu in used]
    holes = np.concatenate([gpu.signals.gaps_ns for gpu in used])
    return Sampling(
        period_s=period,
        counter_window_s=window,
        smallest_visible_dip_s=2 * max(period, window),
        coverage=min(seen),
        gaps=len(holes),
        gap_s=float(holes.sum()) / 1e9,
        source=used[0].signals.source,
        has_counters=any(gpu.states.method == "counters" for gpu in used),
    )


def _tenants(recording: Recording, window: tuple[int, int]) -> tuple[Tenant, ...]:
    """Processes per GPU, with their mean SM utilization over the window where the driver gave it."""
    rows = recording.table("gpu_process").filter(pl.col("t_ns").is_between(*window))
    if rows.is_empty():
        return ()
    grouped = rows.group_by("host", "gpu", "pid").agg(pl.col("sm_pct").mean(), pl.col("mem_used_b").max())
    known = recording.table("processes").select("pid", pl.col("host", "role").cast(pl.String))
    roles = {(host, pid): role for pid, host, role in known.iter_rows() if role}
    ordered = grouped.with_columns(pl.col("host").cast(pl.String)).sort("host", "gpu", "pid")
    return tuple(
        Tenant(host, gpu, pid, roles.get((host, pid), "unknown"), sm, memory)
        for host, gpu, pid, sm, memory in ordered.iter_rows()
    )


def _notes(recording: Recording, findings: Findings) -> list[Note]:
    notes = []
    seconds = (recording.end_unix_ns - recording.start_unix_ns) / 1e9
    if seconds < SHORT_RUN_S:
        notes.append(
            Note("warning", f"the recording is only {seconds:z.1f} s long: shares and counts are anecdotes")
        )
    notes += [_unused(gpu) for gpu in findings.gpus if not gpu.used]
    notes += [note for gpu in findings.gpus if (note := _vanished(gpu, findings))]
    return notes


def _unused(gpu: Gpu) -> Note:
    return Note(
        "info",
        f"GPU {gpu.signals.gpu} on {gpu.signals.host or 'this host'} was never used and is left out of the job",
    )


def _vanished(gpu: Gpu, findings: Findings) -> Note | None:
    """A GPU whose samples stop long before the window ends."""
    end = int(gpu.signals.util.t1[-1]) if len(gpu.signals.util.t1) else 0
    left = (findings.window[1] - end) / 1e9
    if gpu.used and left > max(5.0, 10 * gpu.signals.period_ns / 1e9):
        return Note(
            "warning",
            f"GPU {gpu.signals.gpu}: no samples in the last {left:z.0f} s of the window; that time is not counted",
        )
    return None


def _tracks(findings: Findings) -> Tracks:
    ranks = tuple(
        RankTrack(t.rank, tuple(g.key for g in findings.gpus if g.rank == t.rank), t.edges / 1e9, t.code)
        for t in findings.timelines
    )
    starts: Sequence[IntArray] = [t.steps.t0 for t in findings.timelines if len(t.steps)]
    first = starts[0] / 1e9 if starts else np.zeros(0)
    return Tracks(tuple(_gpu_track(gpu) for gpu in findings.gpus), ranks, first)


def _gpu_track(gpu: Gpu) -> GpuTrack:
    windows = gpu.states.windows
    return GpuTrack(
        gpu.signals.host,
        gpu.signals.gpu,
        gpu.rank,
        windows.t0 / 1e9,
        windows.t1 / 1e9,
        gpu.states.active * 100,
        gpu.states.code,
    )
