"""The driver's own time stamps on the monotonic clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dipstick.capture.devices import Clock

STEP_NS: Final = 50_000_000
"""The offset of the two clocks changes by drift between polls; more than this is a step of the wall clock."""
SAME_NS: Final = 5_000_000
"""Two conversions of one stamp agree within this (500 ppm of slewing over the seconds between two polls)."""


class Stamps:
    """Converts NVML's microseconds, which are Unix time; on some boards they count from the host's start.

    After a step of the wall clock the driver's buffer holds stamps of both sides. Each is tried with the present
    offset, the one before the step, and none (counted from the host's start); the first that lands after the last
    sample and not in the future is right.

    Worked example: unix - mono was 1000 s and is 4600 s (a step of +1 h). At mono = 60 s, last sample at 55 s:
    a stamp of 1056 s is -3544 s with the present offset (too old) and 56 s with the former one.

    Attributes:
        now: Monotonic time of the last refresh.
        steps: How often the wall clock was set. After a step stamps may repeat, so all samples must be fetched again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        mono, unix = clock.anchor()
        self._offsets = [unix - mono]
        self.now = mono
        self.steps = 0

    def refresh(self) -> None:
        """Read the clocks again, before each fetch."""
        self.now, unix = self._clock.anchor()
        offset = unix - self.now
        if abs(offset - self._offsets[0]) > STEP_NS:
            self._offsets = [offset, self._offsets[0]]
            self.steps += 1
        self._offsets[0] = offset

    def mono(self, stamp_us: int, after_ns: int) -> int | None:
        """Monotonic nanoseconds of a stamp, None for one that is not newer than ``after_ns`` or makes no sense."""
        for offset in (*self._offsets, 0):
            time = stamp_us * 1000 - offset
            if after_ns + SAME_NS < time <= self.now + STEP_NS:
                return time
        return None
