"""Long series made short enough for a page: least and most of each column, and everything around what matters.

A column keeps the least and the most of its samples, so no dip and no spike is lost, only its exact place in the
column. Inside the *windows* (stretches around receipts) every sample stays. Plain NumPy: the columns must be the
same for every GPU, and ``minimum.reduceat`` over them is all there is to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dipstick.model import CodeArray, FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cells:
    """Stretches of time with what a signal was in each.

    Attributes:
        t0_s: Starts, ascending.
        t1_s: Ends.
        low: Least value (or the code) of each.
        high: Most; the same array as ``low`` where nothing was thinned.
        samples: How many samples they were made of.
        mean: Mean over the time that was measured; None where nothing was thinned, and for codes.
        column_s: How wide a column is outside the windows; 0 where nothing was thinned.
    """

    t0_s: FloatArray
    t1_s: FloatArray
    low: FloatArray
    high: FloatArray
    samples: int
    mean: FloatArray | None = None
    column_s: float = 0.0

    @property
    def is_thinned(self) -> bool:
        """Whether a cell holds more than one sample."""
        return len(self.t0_s) < self.samples


def thin(t0: FloatArray, t1: FloatArray, value: FloatArray, windows: Sequence[Window], most: int) -> Cells:
    """A signal in at most about ``most`` cells.

    Worked example: values 1, 9, 2, 3 of one second each, ``most`` 4 and up: four cells. ``most`` 2: one column
    of 4 s with low 1, high 9 and mean 3.75. With the window (3, 4) the last second keeps its own cell: (1, 9), (3, 3).

    Args:
        t0: Starts, seconds, ascending.
        t1: Ends.
        value: One a stretch; NaN is not measured, and a column of nothing else stays NaN.
        windows: Disjoint and ascending; what touches them is kept whole.
        most: Cells.
    """
    if len(t0) <= most:
        return Cells(t0, t1, value, value, len(t0))
    first = _groups(t0, t1, windows, most)
    low, high = np.fmin.reduceat(value, first), np.fmax.reduceat(value, first)
    ends, mean = t1[_lasts(first, len(t0))], _means(t1 - t0, value, first)
    return Cells(t0[first], ends, low, high, len(t0), mean, _column(t0, t1, most))


def _means(seconds: FloatArray, value: FloatArray, first: IntArray) -> FloatArray:
    """Mean of each group, weighted by time; NaN where nothing in it was measured."""
    weight = np.where(np.isfinite(value), seconds, 0.0)
    whole, total = np.add.reduceat(weight, first), np.add.reduceat(weight * np.nan_to_num(value), first)
    mean: FloatArray = np.divide(total, whole, out=np.full(len(first), np.nan), where=whole > 0)
    return mean


def thin_codes(
    t0: FloatArray, t1: FloatArray, code: CodeArray, windows: Sequence[Window], most: int
) -> Cells:
    """The same for codes: neighbours of one code are one cell; then a column gets the code that covers most of it."""
    t0, t1, code = _merged(t0, t1, code)
    if len(t0) <= most:
        return Cells(t0, t1, code.astype(float), code.astype(float), len(t0))
    first = _groups(t0, t1, windows, most)
    kinds = int(code.max(initial=0)) + 1
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(t0))))
    seconds = np.bincount(group * kinds + code, t1 - t0, len(first) * kinds).reshape(-1, kinds)
    mostly = np.argmax(seconds, axis=1).astype(float)
    return Cells(
        t0[first], t1[_lasts(first, len(t0))], mostly, mostly, len(t0), column_s=_column(t0, t1, most)
    )


def _merged(t0: FloatArray, t1: FloatArray, code: CodeArray) -> tuple[FloatArray, FloatArray, CodeArray]:
    """Neighbours of one code that touch, as one."""
    if len(t0) == 0:
        return t0, t1, code
    same = (np.diff(code.astype(int)) == 0) & (t0[1:] - t1[:-1] <= _TOUCH_S)
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    return t0[first], t1[_lasts(first, len(t0))], code[first]


_TOUCH_S = 1e-4


def _lasts(first: IntArray, length: int) -> IntArray:
    """The last index of each group: ``([0, 3], 5)`` -> ``[2, 4]``."""
    return np.append(first[1:], length) - 1


def _groups(t0: FloatArray, t1: FloatArray, windows: Sequence[Window], most: int) -> IntArray:
    """Where a new cell starts: at each sample that is kept, at each new column, and after a hole of a column or more."""
    width = _column(t0, t1, most)
    kept = inside(t0, t1, windows)
    column = np.floor((t0 - t0[0]) / width)
    new = (np.diff(column) != 0) | kept[1:] | kept[:-1] | (t0[1:] - t1[:-1] > width)
    return np.flatnonzero(np.concatenate(([True], new)))


def _column(t0: FloatArray, t1: FloatArray, most: int) -> float:
    """Seconds of a column, so that half the cells cover everything."""
    return max((float(t1[-1]) - float(t0[0])) / max(most // 2, 1), 1e-9)


def inside(t0: FloatArray, t1: FloatArray, windows: Sequence[Window]) -> BoolArray:
    """Which stretches touch a window."""
    if not windows:
        return np.zeros(len(t0), bool)
    starts, ends = np.array(windows).T
    nearest = np.minimum(np.searchsorted(ends, t0, "right"), len(windows) - 1)
    found: BoolArray = (starts[nearest] < t1) & (ends[nearest] > t0)
    return found


def disjoint(windows: Iterable[Window], longest: float) -> list[Window]:
    """Windows as disjoint ones in ascending order; those that would take the total over ``longest`` are left out.

    The first come first: ``([(5, 6), (0, 2), (1, 3)], 3.5)`` takes (5, 6) and (0, 2) and no more.
    """
    taken: list[Window] = []
    for window in windows:
        united = _united([*taken, window])
        if sum(b - a for a, b in united) <= longest:
            taken = united
    return taken


def _united(windows: Iterable[Window]) -> list[Window]:
    out: list[Window] = []
    for a, b in sorted(windows):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out


def held(t: FloatArray, value: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Instants as stretches: each value stands for the time since the one before, three usual distances at most.

    Worked example: read at 1, 2, 3 and 10 s: the stretches are (0, 1), (1, 2), (2, 3) and (7, 10), with a hole.
    """
    if len(t) == 0:
        return t, t, value
    distance = np.diff(t)
    usual = float(np.median(distance)) if len(distance) else 1.0
    back = np.minimum(np.concatenate(([usual], distance)), 3 * usual)
    return t - back, t, value
