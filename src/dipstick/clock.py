"""One time axis: monotonic clocks to Unix time, clock steps, and what interval a sample stands for.

Every process stamps its rows with its own monotonic clock and now and then writes an *anchor*, a
(monotonic, Unix) pair read back to back. The difference of the two is the offset; how it changes from
anchor to anchor tells drift (followed) from a step of the wall clock (removed and reported).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

STEP_BASE_NS: Final = 50_000_000
"""An offset may change by this much between two anchors without being called a step: reading a pair is
not atomic, and a descheduled process can hold the two reads tens of milliseconds apart."""

STEP_RATE: Final = 500e-6
"""...plus this share of the time between them: 500 ppm is the fastest that ntpd and chrony slew a clock."""

MIN_ANCHOR_DISTANCE_NS: Final = 1_000_000_000
"""Anchors closer than this to the one before are skipped: they hold no drift, only reading noise.
It also bounds the slope to 1 ± 0.051, which keeps every conversion monotone."""

_CHUNK: Final = 1 << 17
"""Times converted at once: the temporaries stay in the cache, and 10 million rows need no 500 MB of them."""

GAP_FACTOR: Final = 1.5
"""Two samples further apart than this many median periods leave a gap, not one long sample."""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of the wall clock between two anchors, removed from the conversion.

    Attributes:
        after_ns: Monotonic time of the last anchor before the jump.
        before_ns: Monotonic time of the first anchor after it.
        unix_ns: ``after_ns`` on the continuous Unix axis.
        step_ns: How far the wall clock jumped; negative is backward.
    """

    after_ns: int
    before_ns: int
    unix_ns: int
    step_ns: int


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """A place in a series, in file order, where time went back.

    Attributes:
        index: Position of the first sample after the jump.
        unix_ns: Time of the sample before it.
        back_ns: How far it went back, positive.
    """

    index: int
    unix_ns: int
    back_ns: int


@dataclass(frozen=True, slots=True)
class ClockMap:
    """Piecewise linear conversion from one monotonic clock to continuous Unix time.

    Attributes:
        mono_ns: Knots, strictly increasing, shape (n,), n >= 1.
        unix_ns: Unix time at the knots, steps removed, strictly increasing, shape (n,).
        steps: The steps that were removed.
    """

    mono_ns: IntArray
    unix_ns: IntArray
    steps: tuple[ClockStep, ...] = ()

    def to_unix(self, mono_ns: IntArray) -> IntArray:
        """Convert monotonic to Unix nanoseconds; monotone, constant offset outside the anchors.

        Anchors (0 s, 100 s) and (60 s, 160.006 s), a drift of 100 ppm: 30 s becomes 130.003 s,
        and 90 s becomes 190.006 s (the last offset holds on).

        Args:
            mono_ns: Times of this clock, shape (n,).

        Returns:
            Unix nanoseconds, shape (n,).
        """
        return _shift(mono_ns, self.mono_ns, self.unix_ns)

    def to_mono(self, unix_ns: IntArray) -> IntArray:
        """The inverse of :meth:`to_unix`, exact to a few nanoseconds; used to push a time range down."""
        return _shift(unix_ns, self.unix_ns, self.mono_ns)


def _shift(times: IntArray, knots: IntArray, targets: IntArray) -> IntArray:
    """Map ``knots`` to ``targets`` linearly, as integer offset + small correction (floats hold no 1e18)."""
    offset = targets - knots
    rate = np.append(np.diff(offset) / np.diff(knots), 0.0)
    shifted = np.empty_like(times)
    for begin in range(0, len(times), _CHUNK):
        part = times[begin : begin + _CHUNK]
        left = np.clip(np.searchsorted(knots, part, side="right") - 1, 0, len(knots) - 1)
        since = np.maximum(part - knots[left], 0)
        shifted[begin : begin + _CHUNK] = part + offset[left] + np.rint(since * rate[left]).astype(np.int64)
    return shifted


def fit_clock(mono_ns: IntArray, unix_ns: IntArray) -> ClockMap:
    """Fit a conversion through anchor pairs that follows drift and does not follow steps.

    Between neighbouring anchors ``dt`` apart the offset ``unix - mono`` may change by 50 ms + 500 ppm x dt;
    a larger change is a step of the wall clock. The axis before the first step is the true one.

    Anchors at 0, 60, 120 s with offsets 1000.000, 1000.006, 997.010 s: the first change (6 ms) is drift, the
    second (-2.996 s; allowed are 50 + 30 = 80 ms) is a step. The offsets used are 1000.000, 1000.006, 1000.006 s
    and the step of -2.996 s is reported between 60 and 120 s.

    Args:
        mono_ns: Monotonic times of the anchors, shape (n,), any order.
        unix_ns: Unix times read with them, shape (n,).

    Returns:
        The conversion and its steps.

    Raises:
        ValueError: There is no anchor.
    """
    if len(mono_ns) == 0:
        raise ValueError("a clock needs at least one (monotonic, Unix) anchor")
    keep = _spaced(np.argsort(mono_ns, kind="stable"), mono_ns)
    mono, offset = mono_ns[keep], unix_ns[keep] - mono_ns[keep]
    elapsed, change = np.diff(mono), np.diff(offset)
    stepped = np.abs(change) > STEP_BASE_NS + STEP_RATE * elapsed
    drift = np.concatenate(([0], np.cumsum(np.where(stepped, 0, change))))
    unix = mono + offset[0] + drift
    steps = tuple(
        ClockStep(int(mono[i]), int(mono[i + 1]), int(unix[i]), int(change[i]))
        for i in np.flatnonzero(stepped)
    )
    return ClockMap(mono, unix, steps)


def _spaced(order: npt.NDArray[np.intp], mono_ns: IntArray) -> list[int]:
    """Indices of anchors at least ``MIN_ANCHOR_DISTANCE_NS`` apart, in time order, the first included."""
    kept = [int(order[0])]
    for index in order[1:]:
        if mono_ns[index] - mono_ns[kept[-1]] >= MIN_ANCHOR_DISTANCE_NS:
            kept.append(int(index))
    return kept


def detect_backward_steps(times_ns: IntArray) -> tuple[BackwardStep, ...]:
    """Find where a series that is already Unix time goes back, in file order.

    ``[10, 11, 12, 9, 10, 30]`` s: one step at index 3, from 12 s, 3 s back. The jump from 10 to 30 s is a gap
    (nothing was recorded), not a step.

    Args:
        times_ns: Sample times of one series as they stand in the file, shape (n,).

    Returns:
        The steps, in file order.
    """
    change = np.diff(times_ns)
    return tuple(
        BackwardStep(int(i) + 1, int(times_ns[i]), -int(change[i])) for i in np.flatnonzero(change < 0)
    )


def window_interval(t_ns: IntArray, window_ns: IntArray | int) -> tuple[IntArray, IntArray]:
    """The interval a windowed sample averages over: ``[t - window, t]``, not the instant t.

    A 200 ms utilization sample stamped 5.0 s says what happened between 4.8 s and 5.0 s.

    Args:
        t_ns: Sample times, shape (n,).
        window_ns: The counter's averaging window, shape (n,) or one number; 0 where it is unknown.

    Returns:
        Starts and ends, shape (n,) each.
    """
    return t_ns - window_ns, t_ns


def covering_segments(
    t_ns: IntArray, window_ns: int = 0, period_ns: int | None = None
) -> tuple[IntArray, IntArray]:
    """The interval each sample of one series represents, so that the segments tile the recorded time.

    A sample reaches back to the one before it. Where the distance is more than ``max(window, 1.5 x period)``
    samples are missing: then, and for the first sample, it covers only ``max(window, period)`` and the rest
    stays a gap. A gap is never idle time.

    Samples at 1.0, 2.0, 3.0, 7.0 s (period 1 s, window 0.2 s) cover [0, 1), [1, 2), [2, 3) and [6, 7);
    3-6 s is a gap.

    Args:
        t_ns: Sample times of one series, sorted, shape (n,).
        window_ns: The counter's averaging window; 0 if unknown.
        period_ns: Typical distance of two samples; their median if None.

    Returns:
        Starts and ends, shape (n,) each; ``start <= end`` and segments never overlap.
    """
    distance = np.diff(t_ns)
    period = _median(distance) if period_ns is None else period_ns
    reach = max(window_ns, int(GAP_FACTOR * period))
    width = np.full(len(t_ns), max(window_ns, period), dtype=np.int64)
    width[1:] = np.where(distance > reach, np.minimum(width[1:], distance), distance)
    return t_ns - width, t_ns


def _median(distance: IntArray) -> int:
    """The median of the positive distances, 0 if there are none."""
    positive = distance[distance > 0]
    return int(np.median(positive)) if len(positive) else 0
