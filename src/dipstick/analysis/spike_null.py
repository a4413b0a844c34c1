"""Null 1 for schedules that have no unfired steps: shift the spikes against the windows.

Two shifts, and the larger p-value counts (methods, 4.1): one random offset for the whole run (keeps any
periodicity of the spikes, blind to drift) and one offset for each block of 8 steps (keeps drift, breaks
periodicity). Each alone has a wrong level somewhere; the larger of the two did not (S2). Unlike the cell
tables of :mod:`dipstick.analysis.shifts` this counts hits of windows of any length, without a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.shifts import Loop
from dipstick.analysis.spike_schedules import hit
from dipstick.analysis.stats import permutation_p

if TYPE_CHECKING:
    from dipstick.model import FloatArray

_CHUNK = 2_000_000  # window positions looked up at once: bounds the memory at about 100 MB
_FEWEST_DRAWS = 399


@dataclass(frozen=True, slots=True)
class HitTest:
    """Hits of the windows, and what shifting makes of them.

    Attributes:
        hits: Windows with a spike.
        windows: Windows judged.
        p_value: The larger of the two shifts' p-values.
        p_global: Whole-run shift.
        p_block: Block-wise shift.
        chance: Hit rate under the null (the larger of the two means).
    """

    hits: int
    windows: int
    p_value: float
    p_global: float
    p_block: float
    chance: float


def hit_test(
    onset_s: FloatArray,
    windows: tuple[FloatArray, FloatArray],
    edge_s: FloatArray,
    rng: np.random.Generator,
    draws: int = 999,
    exclude_s: float = 0.0,
) -> HitTest:
    """Are windows hit more often than with the spikes shifted?

    Args:
        onset_s: Spike onsets, ascending.
        windows: Where the windows open and close, (n,) each.
        edge_s: Step edges (N + 1,); the run is the circle from the first to the last.
        rng: Source of the shifts.
        draws: Null draws for each shift; 399 at least in runs of more than 2 million windows x draws
            (a day of steps: the p-value's step is then 1 / 400).
        exclude_s: Smallest whole-run shift (3 t: a smaller one compares the effect with itself).
    """
    lo, hi = windows
    onset = onset_s[(onset_s >= edge_s[0]) & (onset_s < edge_s[-1])]
    hits = int(np.count_nonzero(hit(onset, lo, hi)))
    if lo.size == 0 or onset.size == 0:
        return HitTest(hits, int(lo.size), 1.0, 1.0, 1.0, 0.0)
    run = edge_s[[0, -1]]
    draws = min(draws, max(_FEWEST_DRAWS, _CHUNK // lo.size))
    eights = Loop(edge_s[:-1], (float(run[0]), float(run[1]))).blocks()
    whole = _hits_on_circles(onset, windows, run, rng, draws, exclude_s)
    block = _hits_on_circles(onset, windows, eights, rng, draws, 0.0)
    p_global, p_block = permutation_p(hits, whole), permutation_p(hits, block)
    chance = max(float(whole.mean()), float(block.mean())) / lo.size
    return HitTest(hits, int(lo.size), max(p_global, p_block), p_global, p_block, chance)


def _hits_on_circles(
    onset: FloatArray,
    windows: tuple[FloatArray, FloatArray],
    circle: FloatArray,
    rng: np.random.Generator,
    draws: int,
    exclude_s: float,
) -> FloatArray:
    """Hit counts (draws,) with the spikes of each circle turned by its own offset.

    Circle c is the time from ``circle[c]`` to ``circle[c + 1]``. Turning the windows the other way is the
    same, and keeps the onsets sorted.
    """
    lo, hi = windows
    length = np.diff(circle)
    stride = 4 * float(length.max())
    where = np.clip(np.searchsorted(circle, onset, side="right") - 1, 0, length.size - 1)
    key = where * stride + onset - circle[where]
    twice = np.sort(np.concatenate([key, key + length[where]]))
    mine = np.clip(np.searchsorted(circle, (lo + hi) / 2, side="right") - 1, 0, length.size - 1)
    least = np.minimum(exclude_s, length / 4)
    counts = np.empty(draws)
    rows = max(1, _CHUNK // lo.size)
    for first in range(0, draws, rows):
        some = min(rows, draws - first)
        turn = least + rng.random((some, length.size)) * (length - 2 * least)
        begin = np.mod(lo - circle[mine] - turn[:, mine], length[mine]) + mine * stride
        found = np.searchsorted(twice, begin + (hi - lo), side="right") > np.searchsorted(twice, begin)
        counts[first : first + some] = np.count_nonzero(found, axis=1)
    return counts
