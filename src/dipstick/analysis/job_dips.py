"""Dips of every used GPU and of the job as a whole, on utilization and on work."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis import dips
from dipstick.analysis.abreast import abreast
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
    of_gpus: list[tuple[SeriesName, list[Series]]] = []
    shared: dict[int, tuple[Series, dips.BusyWindows | None]] = {}
    for name in SERIES:
        series = abreast(partial(_series, name=name, timelines=timelines), used)
        found = abreast(partial(_find, shared=shared), enumerate(zip(used, series, strict=True)))
        scoped = zip(used, found, dips.scopes(found), strict=True)
        per_gpu += chain.from_iterable(abreast(partial(_describe, name=name), scoped))
        of_gpus.append((name, series))
    job = abreast(partial(_of_job, used=used, timelines=timelines), of_gpus)
    return per_gpu, list(chain.from_iterable(job))


def _find(
    gpu: tuple[int, tuple[Used, Series]], shared: dict[int, tuple[Series, dips.BusyWindows | None]]
) -> dips.Found:
    """Dips of one GPU; of ``shared`` it touches its own place only."""
    place, ((signals, _, timeline), series) = gpu
    level = dips.baseline(series.value, _busy(series, timeline, shared, place))
    return dips.find(series, level, signals.window_ns)


def _describe(gpu: tuple[Used, dips.Found, Sequence[Scope]], name: SeriesName) -> list[Dip]:
    (signals, _, timeline), found, scope = gpu
    return dips.describe(found, scope, host=signals.host, gpu=signals.gpu, timeline=timeline, series=name)


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


def _series(gpu: Used, name: SeriesName, timelines: Sequence[RankTimeline]) -> Series:
    signals, states, _ = gpu
    series = signals.util if name == "utilization" else work_series(states)
    if not timelines:
        return series
    return series.clip(int(timelines[0].edges[0]), int(timelines[0].edges[-1]))


def _of_job(
    of_gpus: tuple[SeriesName, Sequence[Series]], used: Sequence[Used], timelines: Sequence[RankTimeline]
) -> list[Dip]:
    """Dips of the mean over the job's GPUs; their phases are those of the first rank."""
    name, series = of_gpus
    usable = [s for s in series if len(s.t0)]
    if len(usable) < 2:  # noqa: PLR2004 - one GPU's dips are the job's
        return []
    mean = dips.mean_series(usable, max(signals.period_ns for signals, _, _ in used))
    first = timelines[0] if timelines else None
    found = dips.find(mean, dips.baseline_of(mean, first), max(signals.window_ns for signals, _, _ in used))
    return dips.describe(found, ["job"] * len(found), host="", gpu=None, timeline=first, series=name)
