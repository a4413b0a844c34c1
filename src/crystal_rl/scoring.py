"""One task to one result: edit, check, relax, score. What a worker runs; needs no pool.

    scorer = load_scorer("chgnet", device="cuda:0")     # once a process: 5-15 s of imports, 0.1 s of weights
    scorer.warm_up()                                    # one small relaxation
    result = scorer.evaluate(task)                      # any number of times

The same task gives the same result. A completion that fails is a result; an exception out of ``evaluate`` is the
surrogate's or ours (out of memory, say), never the completion's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from crystal_rl.messages import Result, Task


class Evaluates(Protocol):
    """What a worker needs; :class:`Scorer` and the fakes of tests are such."""

    @property
    def model(self) -> str:
        """Name and version: ``chgnet-0.3.0``."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:0``."""

    def warm_up(self) -> None:
        """Run the model once, so that the first task pays for no start."""

    def evaluate(self, task: Task, beat: Callable[[int, float], None] | None = None) -> Result:
        """Score one task.

        Args:
            task: What to do.
            beat: Called at each relaxation step with the step and the largest force, eV/Å; may raise to stop.
        """
