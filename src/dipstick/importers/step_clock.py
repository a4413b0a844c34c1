"""A clock for rows without times: what their ``step_time`` adds up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.training_keys import STEP_TIME
from dipstick.importers.training_rows import LONGEST_S, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_NS: Final = 10**17
"""Three years: where a made-up clock stops."""


class StepClock:
    """Adds up ``step_time``, a mean over the steps since the row before.

    Args:
        every: Steps that the first row stands for (``logging_steps``).
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self.ns = 0
        self.is_running = False
        self._last: int | None = None

    def at(self, step: int | None, values: Mapping[str, float]) -> int | None:
        """Nanoseconds from the first step's start to the row; None before any row had a ``step_time``."""
        seconds = next((values[key] for key in STEP_TIME if key in values), None)
        if seconds is not None and 0 < seconds < LONGEST_S:
            many = steps_of(step, self._last, self._every)
            self.ns = min(self.ns + many * round(seconds * 1e9), MOST_NS)
            self.is_running = True
            self._last = step if step is not None else self._last
        return self.ns if self.is_running else None
