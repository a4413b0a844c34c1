"""The last step that every rank has ended, broken down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis.live_frame import LastStep
from dipstick.analysis.states import CODE
from dipstick.model import HOLLOW_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.pipeline import Gpu
    from dipstick.analysis.timeline import RankTimeline

    Parts = tuple[tuple[str, float], ...]

FEWEST = 3
"""Steps that a median needs."""


def last_step(
    ended: Sequence[RankTimeline], timelines: Sequence[RankTimeline], gpus: Sequence[Gpu]
) -> LastStep | None:
    """The last step that all ranks with steps have ended; None if there is none yet.

    Args:
        ended: Ranks by the spans that have ended.
        timelines: The same with open spans and waits.
        gpus: Of those ranks.
    """
    spans = {e.rank: _whole_steps(e) for e in ended if len(e.steps)}
    common = set.intersection(*(set(found) for found in spans.values())) if spans else set()
    if not common:
        return None
    number = max(common)
    by_rank = tuple((t.rank, _parts(t, *spans[t.rank][number])) for t in timelines if t.rank in spans)
    start = min(found[number][0] for found in spans.values())
    end = max(found[number][1] for found in spans.values())
    lengths = [max(f[n][1] for f in spans.values()) - min(f[n][0] for f in spans.values()) for n in common]
    busy, hollow = _gpu_seconds(gpus, start, end)
    return LastStep(
        number=number,
        seconds=(end - start) / 1e9,
        median_s=float(np.median(lengths)) / 1e9 if len(lengths) >= FEWEST else None,
        phases=_mean([parts for _, parts in by_rank]),
        by_rank=by_rank,
        hollow_gpu_s=hollow,
        busy_gpu_s=busy,
    )


def _whole_steps(timeline: RankTimeline) -> dict[int, tuple[int, int]]:
    """Start and end by number. Where steps are only numbers on other spans, the last one may go on."""
    steps = timeline.steps
    whole = {int(n): (int(a), int(b)) for n, a, b in zip(steps.number, steps.t0, steps.t1, strict=True)}
    lane = timeline.main.lane
    if not (lane.called("step") & (lane.step >= 0)).any():
        whole.pop(max(whole))
    return whole


def _parts(timeline: RankTimeline, start: int, end: int) -> Parts:
    """Exclusive seconds of one rank by phase, longest first."""
    until = timeline.phase_ns_until(np.array([start, end], np.int64))
    spent = (until[1] - until[0]) / 1e9
    found = [(phases.PHASES[code], float(s)) for code, s in enumerate(spent) if s > 0]
    return tuple(sorted(found, key=lambda part: -part[1]))


def _mean(parts: Sequence[Parts]) -> Parts:
    total: dict[str, float] = {}
    for one in parts:
        for name, seconds in one:
            total[name] = total.get(name, 0.0) + seconds / len(parts)
    return tuple(sorted(total.items(), key=lambda part: -part[1]))


def _gpu_seconds(gpus: Sequence[Gpu], start: int, end: int) -> tuple[float | None, float | None]:
    """GPU-seconds busy and hollow in the step; None where telemetry does not reach over all of it."""
    used = [gpu for gpu in gpus if gpu.used]
    if not used or not all(_covers(gpu, start, end) for gpu in used):
        return None, None
    totals = sum((gpu.states.totals(start, end) for gpu in used), np.zeros(len(CODE)))
    hollow = sum(float(totals[CODE[name]]) for name in HOLLOW_STATES)
    return float(totals.sum() - totals[CODE["idle"]]), hollow


def _covers(gpu: Gpu, start: int, end: int) -> bool:
    windows = gpu.states.windows
    return bool(len(windows.t0) and windows.t0[0] <= start and windows.t1[-1] >= end)
