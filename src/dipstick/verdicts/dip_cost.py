"""What the dips cost, by phase: GPU-seconds below the baseline, split at the phases' edges.

Only windows below half the baseline count. A dip that begins with the rewards ends, by hysteresis, where a
window exceeds 0.7 of the baseline; training at 60 % that follows is inside the dip and yet no dip of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis import dips
from dipstick.analysis.intervals import between, indicator, integral, lay
from dipstick.analysis.job_dips import work_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.pipeline import Gpu
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import Dip, IntArray
    from dipstick.model import Series as SeriesName
    from dipstick.verdicts.evidence import Evidence


def lost_by_phase(evidence: Evidence) -> dict[str | None, float]:
    """GPU-seconds lost in dips, by phase; None for GPUs whose phases are not known.

    Dips of work where any GPU's hollow time is known (a waiting rank reads 100 %), else of utilization.
    """
    found, lost = chosen(evidence), dict[str | None, float]()
    ranks = {t.rank: t for t in evidence.findings.timelines}
    for gpu in (g for g in evidence.findings.gpus if g.used):
        mine = [d for d in found if (d.host, d.gpu) == gpu.key]
        timeline = None if gpu.rank is None else ranks.get(gpu.rank)
        for phase, seconds in _split(gpu, timeline, mine) if mine else ():
            lost[phase] = lost.get(phase, 0.0) + seconds
    return lost


def chosen(evidence: Evidence) -> list[Dip]:
    """The dips that count, of all GPUs."""
    known = any(gpu.states.method != "utilization" for gpu in evidence.findings.gpus)
    work = [d for d in evidence.findings.dips if d.series == "work"]
    seen = [d for d in evidence.findings.dips if d.series == "utilization"]
    return (work or seen) if known else (seen or work)


def _split(gpu: Gpu, timeline: RankTimeline | None, mine: Sequence[Dip]) -> list[tuple[str | None, float]]:
    if timeline is None:
        return [(None, sum(d.deficit_gpu_s for d in mine))]
    name: SeriesName = mine[0].series
    whole = gpu.signals.util if name == "utilization" else work_series(gpu.states)
    series = whole.clip(int(timeline.edges[0]), int(timeline.edges[-1]))
    baseline = dips.baseline_of(series, timeline)
    below = np.where(series.value < dips.ENTER * baseline, baseline - series.value, 0.0)
    edges, rate = indicator(*_edges(mine))
    (inside,) = between(edges, [rate], series.t0, series.t1)
    laid = lay(series.t0, series.t1)
    costs = below * (inside >= (series.t1 - series.t0) / 2) / 1e11
    pieces = np.diff(integral(laid.edges, laid.rate(costs), timeline.edges))
    lost = np.bincount(timeline.code, pieces, len(phases.PHASES))
    return [(phases.PHASES[code], float(lost[code])) for code in np.flatnonzero(lost > 0)]


def _edges(mine: Sequence[Dip]) -> tuple[IntArray, IntArray]:
    """Starts and ends, ns; refined edges of neighbours can cross by a part of a window."""
    ordered = sorted(mine, key=lambda d: d.start_s)
    start, end = (
        np.rint([getattr(d, at) * 1e9 for d in ordered]).astype(np.int64) for at in ("start_s", "end_s")
    )
    return start, np.minimum(end, np.append(start[1:], end[-1:]))
