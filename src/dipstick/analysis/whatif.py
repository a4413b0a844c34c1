"""What-ifs: how much shorter the steps would be, with an interval, and when not to say (methods 2.5).

S = sum of T over sum of T', both replayed, so that what the replay misses cancels; waste = 1 - 1/S;
saved = G x sum(T - T'). Intervals come from a moving-block bootstrap over steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.analysis.replay import gate, replay
from dipstick.analysis.stats import Estimate, percentile_interval
from dipstick.analysis.whatif_boot import DRAWS, block_sums
from dipstick.analysis.whatif_edits import (
    balance_ranks,
    cap_jobs,
    faster,
    more_slots,
    overlap_bound,
    overlap_reward,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from dipstick.analysis.replay_model import Loop
    from dipstick.model import FloatArray

MIN_FIRED: Final = 5
"""Fewer fired steps make the bootstrap degenerate (methods 4.3, exposure gate)."""

HELD_FIXED: Final = "everything else held fixed: policy, completion lengths, contention for the GPU"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change and what it would do to the run.

    Attributes:
        change: What is different, as a phrase.
        speedup: S, with its interval; NaN if it can't be computed.
        waste: 1 - 1/S: the share of the run that the change would save.
        saved_gpu_s: GPU-seconds saved over the steps looked at.
        steps: Steps looked at.
        reason: Empty, or why the numbers may not be used (``REPLAY_MISMATCH``, ``LOW_N``,
            ``MISSING_SIGNAL``).
        upper_bound: True if S is only the most that the change could give.
        held_fixed: The assumption to print beside the number.
    """

    change: str
    speedup: Estimate
    waste: Estimate
    saved_gpu_s: Estimate
    steps: int
    reason: str = ""
    upper_bound: bool = False
    held_fixed: str = HELD_FIXED


def compare(
    change: str,
    before: FloatArray,
    after: FloatArray,
    gpus: int,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> WhatIf:
    """S, waste and saved GPU-seconds of two sets of step times, each of shape (K,) [s].

    Example:
        Steps of 10, 10 and 20 s that would take 8, 8 and 16 s on 2 GPUs: S = 40 / 32 = 1.25,
        waste 0.2, saved 2 x 8 = 16 GPU-s; all steps shrink alike, so S's interval is [1.25, 1.25].
    """
    sums = block_sums(np.column_stack([before, after]), rng, draws)
    total, left = float(before.sum()), float(after.sum())
    return WhatIf(
        change=change,
        speedup=percentile_interval(total / left, sums[:, 0] / sums[:, 1]),
        waste=percentile_interval(1 - left / total, 1 - sums[:, 1] / sums[:, 0]),
        saved_gpu_s=percentile_interval(gpus * (total - left), gpus * (sums[:, 0] - sums[:, 1])),
        steps=before.size,
    )


def unknown(change: str, steps: int, reason: str) -> WhatIf:
    """A what-if that can't be computed."""
    nothing = Estimate(float("nan"), float("-inf"), float("inf"))
    return WhatIf(change, nothing, nothing, nothing, steps, reason)


class WhatIfs:
    """The edits of one loop, each against the same replayed baseline.

    If the replay misses the measured step times (see :func:`~dipstick.analysis.replay.gate`) every
    answer carries ``REPLAY_MISMATCH``; its numbers are there to look at, not to use.

    Args:
        loop: The run; drop warm-up and checkpoint steps first (:func:`~.replay_model.take_steps`).
        seed: Seed of the bootstrap; each edit uses the same resampled steps, so edits can be compared.
        draws: Bootstrap samples.
    """

    def __init__(self, loop: Loop, *, seed: int = 0, draws: int = DRAWS) -> None:
        self.loop = loop
        self.seed = seed
        self.draws = draws
        baseline = replay(loop)
        self.gate = gate(loop, baseline)
        self.before = baseline.step_s

    def judge(self, change: str, after: FloatArray) -> WhatIf:
        """Compare edited step times with the baseline."""
        rng = np.random.default_rng(self.seed)
        result = compare(change, self.before, after, int(self.loop.gpus.sum()), rng, self.draws)
        return replace(result, reason=self.gate.reason)

    def edit(self, change: str, make: Callable[[Loop], Loop]) -> WhatIf:
        """Any edit: ``make`` gets the loop and returns another one."""
        return self.judge(change, replay(make(self.loop)).step_s)

    def _job_edit(self, change: str, make: Callable[[Loop], Loop]) -> WhatIf:
        """An edit of the jobs; without a job log it can't be computed."""
        if self.loop.jobs is None:
            return unknown(change, self.loop.steps, "MISSING_SIGNAL")
        return self.edit(change, make)

    def faster(self, phase: str, times: float) -> WhatIf:
        """(a) A phase ``times`` faster."""
        return self.edit(f"{phase} {times:g}x faster", lambda loop: faster(loop, phase, times))

    def cap_jobs(self, cap_s: float) -> WhatIf:
        """(b) No reward job longer than ``cap_s``."""
        return self._job_edit(f"reward jobs capped at {cap_s:g} s", lambda loop: cap_jobs(loop, cap_s))

    def more_slots(self, extra: int) -> WhatIf:
        """(c) More worker slots on every rank."""
        return self._job_edit(
            f"{extra} more worker slot{'s' * (extra != 1)} a rank", lambda loop: more_slots(loop, extra)
        )

    def balance(self, phase: str | None = None) -> WhatIf:
        """(d) All ranks take the mean."""
        name = "ranks balanced" if phase is None else f"{phase} balanced over ranks"
        return self.edit(name, lambda loop: balance_ranks(loop, phase))

    def overlap_reward(self) -> WhatIf:
        """(e) Reward jobs start as samples finish; without sample ends only the upper bound is known."""
        change, jobs = "reward overlapped with generation", self.loop.jobs
        if "generate" not in self.loop.columns:
            return unknown(change, self.loop.steps, "MISSING_SIGNAL")
        if jobs is None or jobs.ready is not None:
            return self._job_edit(change, overlap_reward)
        bound = self.edit(change, overlap_bound)
        return replace(bound, reason=bound.reason or "MISSING_SIGNAL", upper_bound=True)

    def drop_event(self, name: str, fired: npt.NDArray[np.bool_]) -> WhatIf:
        """(f) An event that fired in some steps never happens: see :func:`event_cost`.

        Uses measured step times: the event's cost need not be a phase of the replay.

        Args:
            name: The event.
            fired: Steps whose time the event is in, shape (K,); for a checkpoint after the last barrier
                that is the *next* step.
        """
        change = f"without {name}"
        if not fired.any() or fired.all():
            return unknown(change, self.loop.steps, "LOW_N")
        cost = event_cost(self.loop.measured, fired)
        rng = np.random.default_rng(self.seed)
        before, gpus = self.loop.measured, int(self.loop.gpus.sum())
        result = compare(change, before, before - cost, gpus, rng, self.draws)
        return replace(result, reason="" if int(fired.sum()) >= MIN_FIRED else "LOW_N")


def event_cost(step_s: FloatArray, fired: npt.NDArray[np.bool_]) -> FloatArray:
    """What the event added to each step: fired minus matched unfired, 0 where it did not fire.

    A fired step is matched with the nearest unfired step on each side (one side at the run's edge), so a
    slow drift of step times cancels. The single differences are noisy; their sum is the estimate.

    Args:
        step_s: Step times [s], shape (K,).
        fired: Steps in which the event fired, shape (K,), neither all nor none.

    Example:
        Steps 10, 13, 12, 11 with the event in the second: matched with (10 + 12) / 2 = 11; cost 2.
    """
    quiet = np.flatnonzero(~fired)
    loud = np.flatnonzero(fired)
    after = np.searchsorted(quiet, loud)
    left = quiet[np.maximum(after - 1, 0)]
    right = quiet[np.minimum(after, quiet.size - 1)]
    cost = np.zeros(step_s.size)
    cost[loud] = step_s[loud] - (step_s[left] + step_s[right]) / 2
    return cost
