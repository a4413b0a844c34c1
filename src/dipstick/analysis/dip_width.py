"""How long was the dip of each step: deficit area and equivalent width (methods, 2.4).

The area below the baseline does not depend on how the samples cut the dip, while a threshold's duration
errs by up to half a window. Equivalent width = area / (baseline - floor): the length of a full-depth dip
of the same area. With contiguous windows its error is about 0.14 W whatever the dip's length (S8).

Worked example: baseline 90, floor 10, windows of 5 s; a dip from 12 to 24 s reads 90, 90, 42, 10, 26, 90.
Deficits 0, 0, 48, 80, 64, 0 points x 5 s / 100 = 9.6 GPU-s; width 9.6 / 0.8 = 12 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dipstick.model import FloatArray, IntArray

_FLOOR_QUANTILE = 0.05
_LEAST_DEPTH = 5.0
_SPILL = 0.05  # windows that reach outside the interval by less than this share see nothing else
_TILING = 1.5


@dataclass(frozen=True, slots=True)
class DipWidths:
    """One dip a step.

    Attributes:
        deficit_gpu_s: Area below the baseline (N,); NaN where no sample touches the step's interval.
        width_s: Equivalent width (N,).
        samples: Samples that touch the interval (N,).
        floor_pct: The level of a full-depth dip.
        contiguous: Whether the windows tile the time; if not, the area is a sampled estimate.
    """

    deficit_gpu_s: FloatArray
    width_s: FloatArray
    samples: IntArray
    floor_pct: float
    contiguous: bool


def dip_widths(
    ts: FloatArray,
    util_pct: FloatArray,
    window_s: float,
    interval: tuple[FloatArray, FloatArray],
    baseline_pct: FloatArray,
    floor_pct: float | None = None,
) -> DipWidths:
    """Area and width of the dip inside each step's interval.

    Args:
        ts: Sample stamps (n,), ascending; sample j is the mean over [ts - window, ts].
        util_pct: Percent (n,); NaN is missing.
        window_s: W.
        interval: Start and end (N,) of the interval to look in: end of generation to end of the gather.
        baseline_pct: Busy level around each step (N,).
        floor_pct: Level of a full-depth dip; by default the 5 % quantile of the samples inside intervals.
    """
    keep = np.isfinite(util_pct)
    ts, util = ts[keep], util_pct[keep]
    lo, hi = interval
    first = np.searchsorted(ts, lo, side="right")
    stop = np.searchsorted(ts - window_s, hi)
    count = np.maximum(stop - first, 0)
    step = np.repeat(np.arange(lo.size), count)
    row = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    period = float(np.median(np.diff(ts))) if ts.size > 1 else window_s
    inside = np.minimum(ts[row], hi[step]) - np.maximum(ts[row] - window_s, lo[step])
    outside = 1 - np.clip(inside / window_s, 0.0, 1.0)
    below = np.maximum(0.0, baseline_pct[step] - util[row])
    own = below - outside * _neighbour(util, row, count, baseline_pct[step])
    area = np.bincount(step, weights=own, minlength=lo.size) * period / 100
    area = np.where(count > 0, np.maximum(area, 0.0), np.nan)
    full = outside < _SPILL
    floor = (
        floor_pct
        if floor_pct is not None
        else float(np.quantile(util[row][full], _FLOOR_QUANTILE))
        if full.any()
        else 0.0
    )
    depth = np.maximum(baseline_pct - floor, _LEAST_DEPTH) / 100
    return DipWidths(area, area / depth, count.astype(np.int64), floor, bool(period < _TILING * window_s))


def _neighbour(util: FloatArray, row: IntArray, count: IntArray, baseline: FloatArray) -> FloatArray:
    """The deficit just outside the interval, for the first and the last window of each step (0 elsewhere).

    A window that straddles the interval's edge also holds some of the phase beside it, which may run below
    the baseline by itself (training at 60 beside a dip to 15).
    """
    beside = np.zeros(row.size)
    ends = np.cumsum(count)[count > 0] - 1
    starts = ends - count[count > 0] + 1
    before, after = np.maximum(row[starts] - 1, 0), np.minimum(row[ends] + 1, util.size - 1)
    beside[ends] = np.clip(baseline[ends] - util[after], 0.0, None)
    beside[starts] = np.clip(baseline[starts] - util[before], 0.0, None)
    single = starts == ends
    middle = (util[before[single]] + util[after[single]]) / 2
    beside[starts[single]] = np.clip(baseline[starts[single]] - middle, 0.0, None)
    return beside
