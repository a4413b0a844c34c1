"""The loop as arrays: stages that end in barriers, seconds per phase and rank, and the reward jobs.

A step is a list of stages. Inside a stage a rank runs its phases one after another; at the end of a
barrier stage all ranks wait for the last one. Work that a rank does after the last barrier of a step
(TRL's checkpoint on rank 0) belongs to the first stage of the next one: see :func:`carry_over`.
Definitions: methods 2.1 and 2.5; the stages of TRL: trl/trainer/grpo_trainer.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from dipstick.model import FloatArray, IntArray

GAP: Final = "unattributed"
"""The column for time inside a stage that no span covers; it counts as gap, never as a phase."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a rank does between two meeting points.

    Attributes:
        name: Label of the barrier at the end (``lengths``, ``reward``), or of the stage.
        phases: Phases in the order a rank runs them; each is one column of ``Loop.seconds``.
        barrier: Whether all ranks meet at the end; False leaves each rank on its own clock.
    """

    name: str
    phases: tuple[str, ...]
    barrier: bool = True


TRL_STAGES: Final[tuple[Stage, ...]] = (
    Stage("lengths", ("checkpoint", "weight_sync", "generate", GAP)),
    Stage("reward", ("logprobs", "reward", GAP)),
    Stage("backward", ("forward", "backward", "optimizer", GAP)),
)
"""TRL >= 0.22: the completion-length gather, the reward gather, and the gradient all-reduce."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Logged reward jobs, one row a job; the rows of one step and rank are in submission order.

    Attributes:
        step: Row of ``Loop.seconds`` the job belongs to, shape (n,).
        rank: Rank whose pool ran it, shape (n,).
        seconds: Start to end on the worker [s], shape (n,).
        slots: Worker slots of each rank, shape (R,).
        outside: Seconds of the reward phase before the first submission and after the last job's end
            (parsing, pickling, collecting), measured, shape (K, R).
        submitted: Seconds after the first submission of the same step and rank, shape (n,); None if at once.
        worker: Worker number of the run (0..), shape (n,); None if not logged.
        ready: When the job's sample finished generating, in seconds after generation began, shape (n,);
            None if not logged (TRL hands over whole batches).
        dispatch_s: Seconds a slot is held between two jobs (pickle, queue), added to each job.
        phase: The phase that the jobs make up.
    """

    step: IntArray
    rank: IntArray
    seconds: FloatArray
    slots: IntArray
    outside: FloatArray
    submitted: FloatArray | None = None
    worker: IntArray | None = None
    ready: FloatArray | None = None
    dispatch_s: float = 0.0
    phase: str = "reward"

    def group(self) -> IntArray:
        """Number of the job's (step, rank) pair: ``step * R + rank``, shape (n,)."""
        return self.step * self.slots.size + self.rank


@dataclass(frozen=True, slots=True)
class Loop:
    """One run as arrays: K steps, P columns (stage by stage, phase by phase), S stages, R ranks.

    Attributes:
        stages: The stages in order; the last one ends in a barrier (a step ends there).
        seconds: Measured seconds, waits left out, shape (K, P, R).
        transfer: Barrier exit minus last arrival [s], shape (K, S); 0 where a stage has no barrier.
        gap: Seconds of a step outside all stages, measured, shape (K,). Never the remainder of the
            measured step time: that would make the replay right by construction.
        measured: Step time, last-barrier exit to last-barrier exit [s], shape (K,).
        gpus: GPUs of each rank, shape (R,).
        jobs: The reward jobs, if logged.

    Raises:
        ValueError: Shapes disagree, or the last stage has no barrier.
    """

    stages: tuple[Stage, ...]
    seconds: FloatArray
    transfer: FloatArray
    gap: FloatArray
    measured: FloatArray
    gpus: IntArray
    jobs: Jobs | None = None

    def __post_init__(self) -> None:
        """Check the shapes once, so that no analysis has to."""
        if not self.stages or not self.stages[-1].barrier:
            raise ValueError("the last stage of a step must end in a barrier")
        steps, columns, ranks = self.seconds.shape
        expected = {
            "seconds": (columns, len(self.columns)),
            "transfer": (self.transfer.shape, (steps, len(self.stages))),
            "gap": (self.gap.shape, (steps,)),
            "measured": (self.measured.shape, (steps,)),
            "gpus": (self.gpus.shape, (ranks,)),
            "jobs.slots": (self.jobs.slots.shape if self.jobs else (ranks,), (ranks,)),
            "jobs.outside": (self.jobs.outside.shape if self.jobs else (steps, ranks), (steps, ranks)),
        }
        for name, (got, want) in expected.items():
            if got != want:
                raise ValueError(f"{name}: shape {got}, expected {want}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The phase of each column of ``seconds``; a phase can own several."""
        return tuple(phase for stage in self.stages for phase in stage.phases)

    @property
    def steps(self) -> int:
        """K."""
        return int(self.seconds.shape[0])

    @property
    def ranks(self) -> int:
        """R."""
        return int(self.seconds.shape[2])

    def stage_columns(self) -> tuple[slice, ...]:
        """The columns of each stage."""
        edges = np.cumsum([0, *(len(stage.phases) for stage in self.stages)])
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(edges))

    def columns_of(self, phase: str) -> IntArray:
        """Positions of the columns that hold ``phase``.

        Raises:
            ValueError: No stage has that phase.
        """
        found = [i for i, name in enumerate(self.columns) if name == phase]
        if not found:
            raise ValueError(f"no phase {phase!r}; this loop has {', '.join(dict.fromkeys(self.columns))}")
        return np.array(found, dtype=np.int64)


def carry_over(seconds: FloatArray) -> FloatArray:
    """Seconds that a rank spent after the last barrier of step k, as work of step k + 1.

    The first step gets 0 and what follows the last step is left out (it lies behind the last barrier).

    Args:
        seconds: Seconds per step and rank, shape (K, R).

    Example:
        A checkpoint of 0.9 s on rank 0 after step 1 of 3: ``[[0, 0], [0.9, 0], [0, 0]]`` becomes
        ``[[0, 0], [0, 0], [0.9, 0]]``.
    """
    return np.concatenate([np.zeros_like(seconds[:1]), seconds[:-1]])


def take_steps(loop: Loop, keep: IntArray) -> Loop:
    """The loop with only the steps in ``keep`` (ascending positions), jobs included."""
    jobs = loop.jobs
    return replace(
        loop,
        seconds=loop.seconds[keep],
        transfer=loop.transfer[keep],
        gap=loop.gap[keep],
        measured=loop.measured[keep],
        jobs=None if jobs is None else _take_jobs(jobs, keep, loop.steps),
    )


def _take_jobs(jobs: Jobs, keep: IntArray, steps: int) -> Jobs:
    """The jobs of the kept steps, renumbered."""
    place = np.full(steps, -1, dtype=np.int64)
    place[keep] = np.arange(keep.size)
    rows = place[jobs.step] >= 0

    return replace(
        jobs,
        step=place[jobs.step[rows]],
        rank=jobs.rank[rows],
        seconds=jobs.seconds[rows],
        outside=jobs.outside[keep],
        submitted=None if jobs.submitted is None else jobs.submitted[rows],
        worker=None if jobs.worker is None else jobs.worker[rows],
        ready=None if jobs.ready is None else jobs.ready[rows],
    )
