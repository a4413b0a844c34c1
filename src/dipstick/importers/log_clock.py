"""The wall clock of a log that one process wrote from beginning to end: what goes back in it is the clock.

Unlike in telemetry (``mend``), rows are in the order in which they were written, whatever their stamps say: a clock may be
set back to before the beginning. Durations that the training took itself (``step_time``) are not touched by it.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from dipstick.importers.protowire import LATEST_S

if TYPE_CHECKING:
    from dipstick.importers.base import Sink

SECOND_NS: Final = 1_000_000_000

SMALL_NS: Final = SECOND_NS
"""Rows this little out of order were written by two threads."""

LONGEST_NS: Final = 60 * SECOND_NS
LONG: Final = 20
"""A row that comes a minute and twenty usual distances after the last one is said: a suspended machine, or a stall."""

LATEST_NS: Final = LATEST_S * SECOND_NS
KEPT: Final = 4096
MOST_NOTES: Final = 20


class LogClock:
    """Times of rows, in file order, mended so that they go on.

    Args:
        sink: Is told where the clock went back and where the log stood still.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._last_ns: int | None = None
        self._last_step = 0
        self._shift = 0
        self._gaps: list[int] = []
        self._notes = 0

    def mend(self, t_ns: int, step: int) -> int:
        """The time of the next row.

        Args:
            t_ns: As it was written, Unix nanoseconds.
            step: Of the row, for messages.
        """
        time, last = t_ns + self._shift, self._last_ns
        if last is None:
            gap = 0
        elif time < last - SMALL_NS:
            gap = self._usual()
            self._went_back(last - time, gap, step)
            time = last + gap
            if time >= LATEST_NS:  # a clock that jumps by centuries: nothing is mended any more
                self._shift, time = 0, t_ns
        else:
            time = max(time, last)
            gap = time - last
            self._stood_still(gap, step)
        if gap and len(self._gaps) < KEPT:
            self._gaps.append(gap)
        self._last_ns, self._last_step = time, step
        return time

    def _usual(self) -> int:
        return round(median(self._gaps)) if self._gaps else 0

    def _went_back(self, back: int, gap: int, step: int) -> None:
        """From here on, rows are moved: one usual distance passed."""
        self._shift += back + gap
        self._note(
            f"the clock went back {back / SECOND_NS:.3f} s between step {self._last_step} and {step}; the rows from there "
            f"on are moved by {(back + gap) / SECOND_NS:+.3f} s, so that time goes on"
        )

    def _stood_still(self, gap: int, step: int) -> None:
        """No step takes twenty times as long because of the training."""
        if gap <= LONGEST_NS or not self._gaps or gap <= LONG * self._usual():
            return
        self._note(
            f"{gap / SECOND_NS:,.0f} s pass between step {self._last_step} and {step} (usually "
            f"{self._usual() / SECOND_NS:.1f} s): the machine was suspended, or the training stood still"
        )

    def _note(self, text: str) -> None:
        self._notes += 1
        if self._notes <= MOST_NOTES:
            self._sink.note("warning", f"{self._sink.file}: {text}")
        elif self._notes == MOST_NOTES + 1:
            self._sink.note("warning", f"{self._sink.file}: its clock jumps in more places than these")
