"""Per step: how wide the reward dip was, and what could have driven it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis import dips
from dipstick.analysis.dip_width import dip_widths
from dipstick.analysis.job_dips import work_series
from dipstick.analysis.replay_schedule import group_max, makespans
from dipstick.analysis.straggler_tests import LONGEST, MAKESPAN, TOTAL

if TYPE_CHECKING:
    from dipstick.analysis.pipeline import Gpu
    from dipstick.analysis.telemetry import Series
    from dipstick.model import FloatArray
    from dipstick.model import Series as SeriesName
    from dipstick.verdicts.evidence import Evidence

HOLLOW_KNOWN = ("counters", "trace", "power")


@dataclass(frozen=True, slots=True)
class RewardDips:
    """One number a kept step, averaged over the job's GPUs.

    Attributes:
        width_s: Equivalent width of the dip between the end of generation and the opening of the reward gather.
        series: ``work`` where hollow time is known (a waiting rank reads 100 % utilization and would hide
            the job's dip), else ``utilization``.
        window_s: The telemetry window.
    """

    width_s: FloatArray
    series: SeriesName
    window_s: float


def reward_dips(evidence: Evidence) -> RewardDips | None:
    """Widths of the kept steps; None without telemetry of GPUs whose rank is known, or a gather all ranks share."""
    return evidence.once("reward_dips", _reward_dips)


def _reward_dips(evidence: Evidence) -> RewardDips | None:
    steps = evidence.steps
    gpus = [gpu for gpu in evidence.findings.gpus if gpu.rank is not None]
    if steps is None or not gpus or evidence.loop is None or not evidence.synchronous:
        return None
    names = [stage.name for stage in evidence.loop.stages]
    if "reward" not in names:
        return None
    name: SeriesName = "work" if all(gpu.states.method in HOLLOW_KNOWN for gpu in gpus) else "utilization"
    low, high = stage_interval(evidence)
    widths = [_width(evidence, gpu, name, (low, high)) for gpu in gpus]
    window = max(gpu.signals.window_ns for gpu in gpus) / 1e9
    return RewardDips(np.mean(widths, axis=0), name, window)


def stage_interval(evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """Kept steps: when the last rank ended generating, and when the reward gather opened (s since start)."""
    steps = evidence.steps
    assert steps is not None  # noqa: S101 - callers have checked
    at = dict(zip(steps.labels, steps.exit_s.T, strict=True))
    low = at.get("lengths", steps.start_s)
    return low[evidence.kept], at["reward"][evidence.kept]


def _width(
    evidence: Evidence, gpu: Gpu, name: SeriesName, interval: tuple[FloatArray, FloatArray]
) -> FloatArray:
    series: Series = gpu.signals.util if name == "utilization" else work_series(gpu.states)
    timeline = next(t for t in evidence.findings.timelines if t.rank == gpu.rank)
    level = dips.baseline_of(series, timeline)
    stamps = series.t1 / 1e9
    base = np.interp(interval[0], stamps, level)
    window_s = gpu.signals.window_ns / 1e9
    floor = _floor(stamps, series.value, window_s, interval, base)
    return dip_widths(stamps, series.value, window_s, interval, base, floor).width_s


def _floor(
    stamps: FloatArray,
    value: FloatArray,
    window_s: float,
    interval: tuple[FloatArray, FloatArray],
    base: FloatArray,
) -> float | None:
    """The usual level inside the dips: the mean of the windows below half the baseline; None without any.

    Against it a second of dip counts as a second. The lowest level would not do: a rank that scores at 17 %
    while the other waits (no work) would make 0.83 s of each second, and the slope would never be 1.
    """
    low, high = interval
    step = np.clip(np.searchsorted(low, stamps - window_s, side="right") - 1, 0, len(low) - 1)
    inside = (stamps - window_s >= low[step]) & (stamps <= high[step]) & (value < dips.ENTER * base[step])
    return float(value[inside].mean()) if inside.any() else None


def drivers(evidence: Evidence) -> dict[str, FloatArray]:
    """Per kept step, over all ranks: the longest job, the work queued per slot, the makespan; empty without jobs."""
    loop = evidence.loop
    if loop is None or loop.jobs is None:
        return {}
    jobs, shape = loop.jobs, (loop.steps, loop.ranks)
    group, groups = jobs.group(), loop.steps * loop.ranks
    work = np.bincount(group, jobs.seconds, groups).reshape(shape) / np.maximum(jobs.slots, 1)
    return {
        LONGEST: group_max(group, jobs.seconds, groups).reshape(shape).max(axis=1),
        TOTAL: work.max(axis=1),
        MAKESPAN: makespans(jobs, loop.steps).reshape(shape).max(axis=1),
    }


def completion_length(evidence: Evidence) -> dict[str, FloatArray]:
    """Mean completion length of the kept steps, where the trainer logged it."""
    steps = evidence.steps
    rows = evidence.recording.table("scalars")
    if steps is None or rows.is_empty():
        return {}
    rows = rows.filter(rows["name"].cast(str) == "completions/mean_length").drop_nulls(["step", "value"])
    logged = {int(step) - 1: value for step, value in rows.select("step", "value").iter_rows()}
    values = np.asarray([logged.get(int(k), np.nan) for k in steps.number[evidence.kept]])
    return {"completion length": values} if np.isfinite(values).all() and np.ptp(values) > 0 else {}
