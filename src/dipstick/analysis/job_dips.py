"""Dips of every used GPU and of the job as a whole, on utilization and on work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis import dips
from dipstick.analysis.telemetry import Series
from dipstick.model import HOLLOW_STATES, STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.states import StateSeries
    from dipstick.analysis.telemetry import Signals
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import Dip, FloatArray, Scope
    from dipstick.model import Series as SeriesName

    Used = tuple[Signals, StateSeries, RankTimeline | None]

SERIES: tuple[SeriesName, ...] = ("utilization", "work")


def find_all(used: Sequence[Used], timelines: Sequence[RankTimeline]) -> tuple[list[Dip], list[Dip]]:
    """Dips per GPU, and dips of the mean over the job's GPUs.

    Args:
        used: Telemetry, states and rank of each GPU that the job uses.
        timelines: All ranks; dips are looked for inside their window (start-up is not a dip).
    """
    per_gpu: list[Dip] = []
    job: list[Dip] = []
    shared: dict[int, tuple[Series, dips.BusyWindows | None]] = {}
    for name in SERIES:
        series = [_series(signals, states, name, timelines) for signals, states, _ in used]
        usual = [
            dips.baseline(s.value, _busy(s, one[2], shared, place))
            for place, (s, one) in enumerate(zip(series, used, strict=True))
        ]
        found = [
            dips.find(s, base, one[0].window_ns) for s, base, one in zip(series, usual, used, strict=True)
        ]
        for (signals, _, rank), one, scope, values, base in zip(
            used, found, dips.scopes(found), series, usual, strict=True
        ):
            per_gpu += dips.describe(
                one,
                scope,
                host=signals.host,
                gpu=signals.gpu,
                timeline=rank,
                series=name,
                curve=(values, base),
            )
        job += _of_job(used, series, timelines, name)
    return per_gpu, job


def _busy(
    series: Series,
    timeline: RankTimeline | None,
    shared: dict[int, tuple[Series, dips.BusyWindows | None]],
    place: int,
) -> dips.BusyWindows | None:
    """Where a GPU's windows lie in the loop, looked up once where both of its series have the same windows."""
    if place in shared:
        other, windows = shared[place]
        if np.array_equal(other.t0, series.t0) and np.array_equal(other.t1, series.t1):
            return windows
    windows = dips.busy_windows(series, timeline)
    shared[place] = series, windows
    return windows


def work_series(states: StateSeries) -> Series:
    """Utilization minus hollow time, in percent, on the classification windows."""
    hollow = np.isin(states.code, [STATES.index(name) for name in HOLLOW_STATES])
    work: FloatArray = np.where(hollow, 0.0, states.active) * 100
    return Series(states.windows.t0, states.windows.t1, work)


def _series(
    signals: Signals, states: StateSeries, name: SeriesName, timelines: Sequence[RankTimeline]
) -> Series:
    series = signals.util if name == "utilization" else work_series(states)
    if not timelines:
        return series
    return series.clip(int(timelines[0].edges[0]), int(timelines[0].edges[-1]))


def _of_job(
    used: Sequence[Used], series: Sequence[Series], timelines: Sequence[RankTimeline], name: SeriesName
) -> list[Dip]:
    """Dips of the mean over the job's GPUs; their phases are those of the first rank."""
    usable = [s for s in series if len(s.t0)]
    if len(usable) < 2:  # noqa: PLR2004 - one GPU's dips are the job's
        return []
    mean = dips.mean_series(usable, max(signals.period_ns for signals, _, _ in used))
    first = timelines[0] if timelines else None
    base = dips.baseline_of(mean, first)
    found = dips.find(mean, base, max(signals.window_ns for signals, _, _ in used))
    wide: list[Scope] = ["job"] * len(found)
    return dips.describe(found, wide, host="", gpu=None, timeline=first, series=name, curve=(mean, base))
