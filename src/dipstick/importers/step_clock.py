"""A clock for rows without times: what the seconds of their steps add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.timings import LONGEST_S, extent_ns
from dipstick.importers.training_keys import STEP_TIME
from dipstick.importers.training_rows import steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_NS: Final = 10**17
"""Three years: where a made-up clock stops."""
SAYS: Final = (
    "its rows have no times: the clock is the sum of the steps' seconds, so time between steps is missing where no "
    "progress bar shows it"
)
"""What a log's reader notes of such a clock."""


class StepClock:
    """Adds up ``step_time``, a mean over the steps since the row before, or else the parts of the step.

    Args:
        every: Steps that the first row stands for (``logging_steps``).
        runs: Rows before the first seconds are at the start; False: their time is not known.
    """

    def __init__(self, every: int = 1, *, runs: bool = False) -> None:
        self._every = every
        self.ns = 0
        self.is_running = runs
        self._last: int | None = None

    def at(self, step: int | None, values: Mapping[str, float], *, floor_ns: int = 0) -> int | None:
        """Nanoseconds from the first step's start to the row; None before any row had seconds.

        Args:
            step: The trainer's step.
            values: Finite numbers by key.
            floor_ns: The step had not ended before this (a progress bar says so).
        """
        seconds = next((values[key] for key in STEP_TIME if key in values), None)
        if seconds is not None and 0 < seconds < LONGEST_S:
            taken = steps_of(step, self._last, self._every) * round(seconds * 1e9)
            self._last = step if step is not None else self._last
        else:
            taken = extent_ns(values)
        self.ns = min(max(self.ns + taken, floor_ns), MOST_NS)
        self.is_running = self.is_running or self.ns > 0
        return self.ns if self.is_running else None
