"""List scheduling: the logged jobs, in logged order, each on the worker slot that is free first.

One pass per job position, all (step, rank) groups at once: a day of 5,700 steps x 8 ranks x 64 jobs
takes a fraction of a second. Method: Graham's list scheduling, the rule that a process pool follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Jobs
    from dipstick.model import FloatArray, IntArray


def list_schedule(
    group: IntArray, seconds: FloatArray, slots: IntArray, release: FloatArray | None = None
) -> FloatArray:
    """When each job ends, in seconds after its group's time 0.

    Args:
        group: Group (step and rank) of each job, shape (n,); rows of a group are in submission order.
        seconds: How long each job holds its slot [s], shape (n,).
        slots: Worker slots of each group, all >= 1, shape (groups,).
        release: Earliest start of each job [s], shape (n,); None means 0.

    Returns:
        End of each job [s], shape (n,).

    Example:
        One group, 2 slots, jobs of 3, 1, 1 and 4 s: slot A runs the 3; slot B runs 1 and 1 (ends 1, 2);
        the 4 goes to B, free at 2, and ends at 6. Ends: ``[3, 1, 2, 6]``; the makespan is 6 although
        the work is 9 s over 2 slots (4.5 s).
    """
    if slots.size and int(slots.min()) < 1:
        raise ValueError("every group needs at least one worker slot")
    ends = np.zeros(group.size)
    order = np.arange(group.size) if (group[1:] >= group[:-1]).all() else np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=slots.size)
    first = np.cumsum(counts) - counts
    by_size = np.argsort(-counts, kind="stable")
    ascending = -counts[by_size]
    free = _free_slots(slots[by_size])
    for position in range(int(counts.max(initial=0))):
        rows = np.arange(np.searchsorted(ascending, -position, side="left"))
        job = order[first[by_size[rows]] + position]
        slot = free[:, rows].argmin(axis=0)
        begin = free[slot, rows] if release is None else np.maximum(free[slot, rows], release[job])
        ends[job] = free[slot, rows] = begin + seconds[job]
    return ends


def _free_slots(slots: IntArray) -> FloatArray:
    """When each slot is free: 0, or never for slots that a group does not have; shape (max slots, groups)."""
    numbers = np.arange(int(slots.max(initial=1)))[:, None]
    return np.where(numbers < slots[None, :], 0.0, np.inf)


def group_max(group: IntArray, values: FloatArray, groups: int) -> FloatArray:
    """Largest value of each group, 0 for an empty one, shape (groups,)."""
    result = np.zeros(groups)
    np.maximum.at(result, group, values)
    return result


def makespans(jobs: Jobs, steps: int, release: FloatArray | None = None) -> FloatArray:
    """Seconds from the first submission to the last job's end, shape (K, R); 0 without jobs.

    Args:
        jobs: The logged jobs.
        steps: K.
        release: Earliest start of each job [s]; None takes the logged submission times.
    """
    group, ranks = jobs.group(), jobs.slots.size
    earliest = jobs.submitted if release is None else release
    ends = list_schedule(group, jobs.seconds + jobs.dispatch_s, np.tile(jobs.slots, steps), earliest)
    return group_max(group, ends, steps * ranks).reshape(steps, ranks)
