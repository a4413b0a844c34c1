"""Memory spikes that samples are too coarse to show: how much each event adds to the samples that see it.

One GPU is looked at, the one with most samples: GPUs of a job are copies of one another (methods, S1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dipstick import phases
from dipstick.analysis.design import Timeline, phase_shares
from dipstick.analysis.spike_exposure import ExposureResult, judge_exposure
from dipstick.judgement import REASONS, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.spike_schedules import Schedule
    from dipstick.analysis.telemetry import Series
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray

FOUND = frozenset({"yes", "partially"})


def exposed(
    seen: Sequence[tuple[Series, RankTimeline | None]], edge_s: FloatArray, suspects: Sequence[Schedule]
) -> tuple[ExposureResult, ...]:
    """Judge each event's height in percentage points; empty without phases, steps or events.

    Args:
        seen: Memory-access time of each GPU with the phases of its rank.
        edge_s: Step edges (N + 1,), seconds.
        suspects: The events.
    """
    known = [(series, rank) for series, rank in seen if rank is not None]
    if not known or not suspects or len(edge_s) < 2:  # noqa: PLR2004 - one step has two edges
        return ()
    series, rank = max(known, key=lambda pair: len(pair[0].value))
    stamps, window = series.t1 / 1e9, float(np.median(series.t1 - series.t0)) / 1e9
    codes = without_suspects(rank.code.astype(np.int64), [s.name for s in suspects])
    share = phase_shares(Timeline(rank.edges / 1e9, codes, phases.PHASES), stamps, window)
    present = share[:, share.any(axis=0)]
    return judge_exposure(stamps, series.value, window, present, edge_s, suspects)


def without_suspects(codes: IntArray, suspects: Sequence[str]) -> IntArray:
    """Phase codes in which a phase that is itself a suspect belongs to the phase before it.

    Example: generate, checkpoint, reward with the checkpoint suspected: generate, generate, reward.
    """
    mine = np.isin(codes, [phases.CODE[name] for name in suspects if name in phases.CODE])
    last = np.maximum.accumulate(np.where(mine, -1, np.arange(codes.size)))
    return np.where(last >= 0, codes[last], phases.UNATTRIBUTED)


def verdict_of(results: Sequence[ExposureResult], apart_s: float) -> Verdict:
    """Partially, where an event stands out; else open: samples this coarse can't show spikes, nor when they began."""
    because = f"one sample every {apart_s:z.0f} s can't show spikes of a few seconds, nor when they began"
    found = sorted((r for r in results if r.verdict in FOUND), key=lambda r: -r.height_pct.value)
    if not found:
        least = [r.detectable_pct for r in results if np.isfinite(r.detectable_pct)]
        return Verdict("unconfirmed", because, reason=Reason.COARSE, min_detectable=min(least, default=None))
    told = "; ".join(f"the samples that see a {_named(r)} read {_height(r)} points more" for r in found)
    top = found[0].height_pct
    fix = REASONS[Reason.COARSE].fix
    return Verdict(
        "partially", f"{because}; {told}", top.value, (top.low, top.high), min_detectable=found[0].detectable_pct,
        experiment=fix,
    )  # fmt: skip


def _named(result: ExposureResult) -> str:
    return " or ".join(sorted({result.name, *result.twins}))


def _height(result: ExposureResult) -> str:
    height = result.height_pct
    return f"{height.value:z.0f} [{height.low:z.0f}, {height.high:z.0f}]"


def facts(results: Sequence[ExposureResult]) -> list[dict[str, Any]]:
    """Ready for the JSON: the keys of the other form, null where samples this coarse have no answer."""
    return [
        {
            "event": r.name, "verdict": r.verdict, "reason": r.codes[0] if r.codes else None,
            "p_adjusted": r.p_adjusted if np.isfinite(r.p_adjusted) else None, "precision": None, "recall": None,
            "fired": r.steps, "samples": r.samples, "effect": r.height_pct.value,
            "interval": [r.height_pct.low, r.height_pct.high], "twins": list(r.twins),
            "detectable": r.detectable_pct, "steps_needed": None,
        }
        for r in results
    ]  # fmt: skip
