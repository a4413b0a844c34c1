"""The shift null: would the telemetry fit the loop as well if it had happened some time else?

The run is put on a grid of cells. Per block of steps a *table* holds the statistic for each circular
offset between telemetry and loop inside that block, so a null draw is a look-up and a sum:
one block = one common offset (the global shift), blocks of 8 steps = independent offsets per block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import FloatArray, IntArray, circular_shifts, permutation_p

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCK_STEPS = 8
MAX_BLOCKS = 128
_CHUNK_CELLS = 4_000_000
_LONG_GRID = 20_000

Tables = tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True)
class ShiftTest:
    """One shift test, maximised over the lag grid.

    Attributes:
        p_value: ``(1 + #{null >= observed}) / (draws + 1)``.
        observed: The statistic at its best lag.
        lag_cell: The best lag, in cells of the lag grid's unit.
        null: The statistic's maximum over the lags, one value a draw.
    """

    p_value: float
    observed: float
    lag_cell: int
    null: FloatArray


@dataclass(frozen=True, slots=True)
class Loop:
    """The steps of a run.

    Attributes:
        step_starts: Seconds, ascending, inside ``run``, shape (steps,).
        run: First and last second that both the log and the telemetry cover.
    """

    step_starts: FloatArray
    run: tuple[float, float]

    @property
    def steps(self) -> int:
        """How many."""
        return int(self.step_starts.size)

    @property
    def seconds(self) -> float:
        """Length of the run."""
        return self.run[1] - self.run[0]

    @property
    def step_s(self) -> float:
        """Mean step time L."""
        return self.seconds / max(1, self.steps)

    def blocks(self, steps: int = BLOCK_STEPS) -> FloatArray:
        """Edges (seconds) of blocks of about ``steps`` steps that fill the run, shape (blocks + 1,).

        Example: 20 steps give round(20 / 8) = 2 blocks of 10 steps.
        """
        parts = np.array_split(self.step_starts, max(1, round(self.steps / steps)))
        return np.array([self.run[0], *(part[0] for part in parts[1:]), self.run[1]])


def spread(edges: FloatArray, most: int = MAX_BLOCKS) -> list[tuple[float, float]]:
    """The blocks between the edges as (start, stop); of a long run, ``most`` evenly spaced ones.

    128 blocks are a thousand steps: more would cost seconds and change no verdict.
    """
    pairs = list(pairwise(edges.tolist()))
    return [pairs[i] for i in np.unique(np.linspace(0, len(pairs) - 1, most).astype(int))]


def fast_length(cells: int) -> int:
    """A length that FFTs take quickly: the next product of small primes, for grids where that is within 1 %.

    Short grids are left as they are: their FFTs cost nothing, and the change would be coarse.
    """
    if cells < _LONG_GRID:
        return cells
    from scipy.fft import next_fast_len  # noqa: PLC0415  (long runs only)

    return int(next_fast_len(cells, real=True))


def correlate_circular(impulses: FloatArray, mask: FloatArray) -> FloatArray:
    """``C[g] = sum over c of impulses[c] * mask[(c + g) mod M]`` for all g, by FFT along the first axis.

    Shapes (M,) and (M, ...); the result has the shape of ``mask``.
    """
    spectrum = np.conj(np.fft.rfft(impulses)).reshape(-1, *[1] * (mask.ndim - 1)) * np.fft.rfft(mask, axis=0)
    return np.fft.irfft(spectrum, n=impulses.size, axis=0)


def circular(tables: Tables, rng: np.random.Generator, draws: int, exclude: int = 0) -> IntArray:
    """Independent uniform circular shifts of each block, at least ``exclude`` cells from 0; (draws, blocks)."""
    return np.column_stack([circular_shifts(rng, t.shape[0], draws, exclude) for t in tables])


def shift_test(
    tables: Tables, lags: IntArray, shifts: IntArray, score: Callable[[FloatArray], FloatArray] | None = None
) -> ShiftTest:
    """Shifts each block by its own offset and compares the maxima over the lags with those at no shift.

    Args:
        tables: Per block what is summed over blocks, at each circular offset ``shift - lag``; shape
            (cells of the block, ...).
        lags: The lag grid in cells.
        shifts: Null shifts in cells, shape (draws, blocks).
        score: Turns the summed features (draws, lags, features) into the statistic (draws, lags); None if
            the tables hold the statistic itself.
    """
    of = score or (lambda sums: sums)
    zero = np.zeros((1, len(tables)), dtype=np.int64)
    at_lags = of(table_sums(tables, zero, lags))[0]
    cells = lags.size * len(tables) * int(np.prod(tables[0].shape[1:]))
    null = in_chunks(lambda part: of(table_sums(tables, part, lags)).max(axis=1), shifts, cells)
    ties = np.flatnonzero(at_lags == at_lags.max())
    best = int(ties[ties.size // 2])
    observed = float(at_lags[best])
    return ShiftTest(permutation_p(observed, null), observed, int(lags[best]), null)


def table_sums(tables: Sequence[FloatArray], shifts: IntArray, lags: IntArray) -> FloatArray:
    """Sum over blocks of ``table[(shift - lag) mod M]``, shape (draws, lags, ...)."""
    sizes = np.array([t.shape[0] for t in tables])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flat = np.concatenate(tables)
    index = (shifts[:, None, :] - lags[None, :, None]) % sizes + base
    sums: FloatArray = flat[index].sum(axis=2)
    return sums


def in_chunks(of: Callable[[IntArray], FloatArray], shifts: IntArray, cells: int) -> FloatArray:
    """Applies ``of`` to groups of draws so that a 24-hour run stays within a few tens of MB."""
    size = max(1, _CHUNK_CELLS // max(1, cells))
    return np.concatenate([of(shifts[i : i + size]) for i in range(0, shifts.shape[0], size)])
