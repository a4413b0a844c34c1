"""Where a series moves to another level: segmentation on ranks against an AR(1) null.

Each segment is offered a *split* (one change) and a *stretch* (away and back again: a slow neighbour for
twenty minutes), because a split alone can't see a stretch in the middle. Own code rather than ``ruptures``:
a p-value for each change and a null with memory, which the penalties of PELT do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.ar_null import ar1_draws, memory_of
from dipstick.analysis.stats import permutation_p, ranks

if TYPE_CHECKING:
    from dipstick.model import FloatArray, IntArray

_MIN_SEGMENT = 8
_MOST_CHANGES = 6
_GRID = 40  # places tried for the edges of a stretch
_OFFERS = 2


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The series moves to another level at ``step`` (first step of the new level).

    ``before`` and ``after`` are medians of the segments on either side; ``p_value`` is that of the split
    or stretch that found it, within its own segment.
    """

    step: int
    before: float
    after: float
    p_value: float


@dataclass(frozen=True, slots=True)
class _Offer:
    """Places to change at, their p-value, and the ranks' variance that is left."""

    cuts: tuple[int, ...]
    p_value: float
    left: float


def find_changes(
    series: FloatArray, rng: np.random.Generator, alpha: float = 0.05, draws: int = 999
) -> tuple[ChangePoint, ...]:
    """Change levels where chance does not make as large a difference.

    Segments are at least 8 steps long; at most 6 changes; the n-th offer tried must reach alpha / n.

    Example: 20 steps around 10, then 20 around 15: one change at step 20, before 10, after 15.
    """
    todo, cuts, tried = [(0, series.size)], dict[int, float](), 0
    while todo and len(cuts) < _MOST_CHANGES:
        lo, hi = todo.pop(0)
        if hi - lo < 2 * _MIN_SEGMENT or np.ptp(series[lo:hi]) == 0:
            continue
        offer = _best_offer(ranks(series[lo:hi]), rng, draws)
        tried += 1
        if offer.p_value <= alpha / tried:
            cuts |= {lo + c: offer.p_value for c in offer.cuts}
            todo += pairwise([lo, *(lo + c for c in offer.cuts), hi])
    where = sorted(cuts)
    levels = [float(np.median(series[a:b])) for a, b in pairwise([0, *where, series.size])]
    return tuple(ChangePoint(c, levels[i], levels[i + 1], cuts[c]) for i, c in enumerate(where))


def _best_offer(rank: FloatArray, rng: np.random.Generator, draws: int) -> _Offer:
    """The split or the stretch, whichever is less likely by chance (a tie goes to the better fit)."""
    n = rank.size
    last = np.arange(_MIN_SEGMENT, n - _MIN_SEGMENT + 1)
    grid = np.unique(np.linspace(_MIN_SEGMENT, n - _MIN_SEGMENT, _GRID).astype(np.int64))
    a, b = (grid[i] for i in np.triu_indices(grid.size, k=1))
    wide = b - a >= _MIN_SEGMENT
    shapes = [(np.zeros_like(last), last), (a[wide], b[wide])]
    offers = [_offer(rank, lo, hi, rng, draws) for lo, hi in shapes if lo.size]
    best = min(offers, key=lambda o: (o.p_value, o.left))
    return _Offer(best.cuts, min(1.0, best.p_value * _OFFERS), best.left)


def _offer(rank: FloatArray, lo: IntArray, hi: IntArray, rng: np.random.Generator, draws: int) -> _Offer:
    """The interval [lo, hi) whose mean differs most from the rest, and how often chance does as well."""
    observed = _contrast(rank[None, :], lo, hi)[0]
    best = int(np.argmax(observed))
    inside = (np.arange(rank.size) >= lo[best]) & (np.arange(rank.size) < hi[best])
    rest = rank - np.where(inside, rank[inside].mean(), rank[~inside].mean())
    taken = 8 if lo.max() > 0 else 5  # a stretch or a split, see memory_of
    null = _contrast(ar1_draws(rng, rest, memory_of(rest, taken), draws), lo, hi).max(axis=1)
    cuts = tuple(int(c) for c in (lo[best], hi[best]) if c > 0)
    return _Offer(_sharpened(rank, cuts), permutation_p(float(observed[best]), null), float(rest.var()))


def _contrast(rows: FloatArray, lo: IntArray, hi: IntArray) -> FloatArray:
    """|mean inside - mean outside| in standard errors for every interval: (rows, intervals)."""
    n, size = rows.shape[1], hi - lo
    total = rows.sum(axis=1, keepdims=True)
    sums = np.concatenate([np.zeros((rows.shape[0], 1)), np.cumsum(rows, axis=1)], axis=1)
    gap = sums[:, hi]  # in place from here on: a day has 2 million of these
    gap -= sums[:, lo]
    outside = total - gap
    outside /= n - size
    gap /= size
    gap -= outside
    np.abs(gap, out=gap)
    gap /= np.maximum(rows.std(axis=1, keepdims=True), 1e-12) * np.sqrt(n / (size * (n - size)))
    return np.asarray(gap)


def _sharpened(rank: FloatArray, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Move each edge of a stretch off its grid to where the two sides differ most."""
    if len(cuts) == 1:
        return cuts
    a, b = cuts
    reach = max(1, rank.size // _GRID)
    near_a = np.arange(max(_MIN_SEGMENT, a - reach), min(b - _MIN_SEGMENT, a + reach) + 1)
    a = int(near_a[np.argmax(_contrast(rank[None, :], near_a, np.full_like(near_a, b))[0])])
    near_b = np.arange(max(a + _MIN_SEGMENT, b - reach), min(rank.size - _MIN_SEGMENT, b + reach) + 1)
    b = int(near_b[np.argmax(_contrast(rank[None, :], np.full_like(near_b, a), near_b)[0])])
    return a, b
