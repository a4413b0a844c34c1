"""How long the utilization counter averages: learned while sampling, where the driver could not say at the start."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.capture.devices import GpuReading

MIN_CHANGES: Final = 20
"""Fewer changes of a polled value than this do not show how often the counter updates."""
SLOWER_THAN_POLL: Final = 1.4
"""Changes no further apart than this many poll periods say how fast we poll, not how fast the counter is."""


class WindowProbe:
    """One GPU's window in nanoseconds, None while it can't be told.

    The driver keeps one sample a window, so the median distance of its samples is the window. Without samples: a
    polled value changes at most once a window. At 10 Hz on an H200 the change distances are 199, 200, 398, 201 ms:
    their first quartile, averaged with what lies within 25 % of it, is 200 ms.

    Args:
        known: What was found when the device was opened.
        period_ns: How often it is polled.
    """

    def __init__(self, known: int | None, period_ns: int) -> None:
        self.window_ns = known
        self._period = period_ns
        self._last: GpuReading | None = None
        self._changed_ns: int | None = None
        self._distances: list[int] = []

    def saw_samples(self, times_ns: Sequence[int]) -> None:
        """Learn from the driver's samples (three or more)."""
        gaps = [b - a for a, b in pairwise(times_ns)]
        if self.window_ns is None and len(gaps) > 1:
            self.window_ns = _rounded(median(gaps))

    def saw_poll(self, reading: GpuReading) -> None:
        """Learn from a poll, when it differs from the one before."""
        if self.window_ns is not None or reading.util_pct is None:
            return
        last, self._last = self._last, reading
        if last is None or last[1:3] == reading[1:3]:  # utilization and memory utilization
            return
        if self._changed_ns is not None:
            self._distances.append(reading.t_ns - self._changed_ns)
        self._changed_ns = reading.t_ns
        if len(self._distances) >= MIN_CHANGES:
            self._conclude()

    def _conclude(self) -> None:
        """Decide from the distances so far, and begin anew where they can't tell."""
        quartile = quantiles(self._distances, n=4)[0]
        near = [d for d in self._distances if abs(d - quartile) <= quartile / 4]
        self._distances = []
        if quartile > SLOWER_THAN_POLL * self._period and near:
            self.window_ns = _rounded(mean(near))


def _rounded(value: float) -> int:
    """To whole milliseconds."""
    return round(value / 1e6) * 1_000_000
