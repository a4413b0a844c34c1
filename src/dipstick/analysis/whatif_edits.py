"""Edits of a loop: each returns another loop in which one thing is different (methods 2.5 a-e).

An edit holds everything else fixed: the policy, the lengths, the contention for the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.replay import run_stages, scheduled_seconds
from dipstick.analysis.replay_schedule import makespans

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Jobs, Loop
    from dipstick.model import FloatArray, IntArray


def _jobs(loop: Loop) -> Jobs:
    """The loop's jobs.

    Raises:
        ValueError: None were logged, so that an edit of jobs has nothing to edit.
    """
    if loop.jobs is None:
        raise ValueError("this edit needs the logged reward jobs")
    return loop.jobs


def faster(loop: Loop, phase: str, times: float) -> Loop:
    """(a) ``phase`` runs ``times`` faster: d / times; for the jobs' phase, jobs and overhead alike.

    Example:
        Generate 20 s, twice as fast: 10 s.
    """
    seconds = loop.seconds.copy()
    seconds[:, loop.columns_of(phase)] /= times
    jobs = loop.jobs
    if jobs is not None and jobs.phase == phase:
        submitted = None if jobs.submitted is None else jobs.submitted / times
        jobs = replace(
            jobs,
            seconds=jobs.seconds / times,
            outside=jobs.outside / times,
            submitted=submitted,
            dispatch_s=jobs.dispatch_s / times,
        )
    return replace(loop, seconds=seconds, jobs=jobs)


def cap_jobs(loop: Loop, cap_s: float) -> Loop:
    """(b) No job runs longer than ``cap_s``: min(j, c), then rescheduled.

    Example:
        Jobs 3, 1, 1, 4 s on 2 slots with a cap of 2 s: 2, 1, 1, 2 end at 2, 1, 2, 4: makespan 4, not 6.
    """
    jobs = _jobs(loop)
    return replace(loop, jobs=replace(jobs, seconds=np.minimum(jobs.seconds, cap_s)))


def more_slots(loop: Loop, extra: int) -> Loop:
    """(c) ``extra`` worker slots more on every rank, then rescheduled; jobs do not get slower.

    Example:
        Jobs 3, 1, 1, 4 s on 3 slots: ends 3, 1, 1, 5: makespan 5, not 6.
    """
    jobs = _jobs(loop)
    return replace(loop, jobs=replace(jobs, slots=jobs.slots + extra))


def balance_ranks(loop: Loop, phase: str | None = None) -> Loop:
    """(d) Every rank takes the ranks' mean: d := mean over ranks, for one phase or for all.

    The reward phase is balanced after scheduling: each rank gets the mean makespan.

    Example:
        Reward 10 and 14 s: both 12 s; the barrier opens 2 s earlier.
    """
    seconds = scheduled_seconds(loop).copy()
    columns = np.arange(len(loop.columns)) if phase is None else loop.columns_of(phase)
    seconds[:, columns] = seconds[:, columns].mean(axis=2, keepdims=True)
    keeps_jobs = loop.jobs is not None and phase not in {None, loop.jobs.phase}
    return replace(loop, seconds=seconds, jobs=loop.jobs if keeps_jobs else None)


def phase_begins(loop: Loop, seconds: FloatArray, phase: str) -> FloatArray:
    """When each rank begins a phase, in seconds since the step's start, shape (K, R)."""
    column = int(loop.columns_of(phase)[0])
    stage = next(s for s, part in enumerate(loop.stage_columns()) if part.start <= column < part.stop)
    before = slice(loop.stage_columns()[stage].start, column)
    begins: FloatArray = run_stages(loop, seconds).begin[:, stage] + seconds[:, before].sum(axis=1)
    return begins


def overlap_reward(loop: Loop, generate: str = "generate") -> Loop:
    """(e) A sample's job is submitted as soon as the sample has finished generating.

    Stage end = max over samples of (generation end + queue + job): jobs are scheduled in the order in
    which their samples finish; what the reward phase still needs when its turn comes is what is left.

    Raises:
        ValueError: No jobs, or ``Jobs.ready`` (end of generation per sample) was not logged.

    Example:
        One slot; samples ready at 4 and 10 s of a generation of 10 s; jobs of 3 and 2 s end at 7 and
        12: of the 5 s of reward 2 s are left after generation.
    """
    jobs = _jobs(loop)
    if jobs.ready is None:
        raise ValueError("overlapping reward with generation needs the end of generation of each sample")
    order = np.lexsort((jobs.ready, jobs.group()))
    early = replace(
        jobs, step=jobs.step[order], rank=jobs.rank[order], seconds=jobs.seconds[order], submitted=None
    )
    done = makespans(early, loop.steps, release=jobs.ready[order]) + jobs.outside
    return _with_reward_done(loop, phase_begins(loop, loop.seconds, generate) + done)


def overlap_bound(loop: Loop, generate: str = "generate") -> Loop:
    """The most that overlapping could give where sample ends are unknown: every job ready at once.

    The jobs start with generation; only what the makespan has left after generation remains.
    """
    jobs = _jobs(loop)
    done = makespans(replace(jobs, submitted=None), loop.steps) + jobs.outside
    return _with_reward_done(loop, phase_begins(loop, loop.seconds, generate) + done)


def _with_reward_done(loop: Loop, done: FloatArray) -> Loop:
    """The loop with rewards done at ``done`` (since the step's start, (K, R)): the rest is waited for."""
    phase = _jobs(loop).phase
    seconds = loop.seconds.copy()
    columns: IntArray = loop.columns_of(phase)
    seconds[:, columns] = 0.0
    left = np.maximum(done - phase_begins(loop, seconds, phase), 0.0)
    seconds[:, columns[0]] = left
    return replace(loop, seconds=seconds, jobs=None)
