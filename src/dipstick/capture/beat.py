"""A beat that does not drift: deadlines on a fixed grid, lateness and missed ticks counted, never made up for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Beat:
    """How well the beat was kept.

    Attributes:
        period_ns: Distance of two deadlines.
        ticks: Deadlines that were kept.
        missed: Deadlines that passed while a tick was still at work, or while the process did not run.
        late_ns: Sum over ticks of how long after its deadline each began.
        latest_ns: The largest of these.
    """

    period_ns: int
    ticks: int = 0
    missed: int = 0
    late_ns: int = 0
    latest_ns: int = 0

    def began(self, late_ns: int) -> None:
        """Count a tick."""
        self.ticks += 1
        self.late_ns += late_ns
        self.latest_ns = max(self.latest_ns, late_ns)


def keep_beat(
    tick: Callable[[int], None],
    period_ns: int,
    now: Callable[[], int],
    wait: Callable[[float], bool],
    beat: Beat,
) -> None:
    """Call ``tick`` at every deadline until ``wait`` says to stop.

    Worked example, period 100 ms from t = 0: the tick due at 200 ms takes 250 ms and ends at 450. The deadline at
    300 is missed and counted, that at 400 is kept 50 ms late, and the next one comes at 500, on the grid.

    Args:
        tick: The work; gets the deadline.
        period_ns: Distance of two deadlines.
        now: Monotonic nanoseconds.
        wait: Sleeps for that many seconds, or less if there is a reason to stop; returns whether to stop.
        beat: Gets the counts.
    """
    start = now()
    deadline = start
    while not wait(max(0, deadline - now()) / 1e9):
        late = max(0, now() - deadline)
        skipped = late // period_ns
        beat.missed += skipped
        deadline += skipped * period_ns
        beat.began(late - skipped * period_ns)
        tick(deadline)
        deadline += period_ns


class Every:
    """Work that is due less often than every tick; a missed tick postpones it, never drops it.

    Args:
        period_ns: How often.
        first_ns: When first; spreads the work of several GPUs over the ticks.
    """

    def __init__(self, period_ns: int, first_ns: int) -> None:
        self._period = period_ns
        self._next = first_ns

    def due(self, deadline_ns: int) -> bool:
        """Whether to do it at this deadline."""
        if deadline_ns < self._next:
            return False
        self._next += ((deadline_ns - self._next) // self._period + 1) * self._period
        return True
