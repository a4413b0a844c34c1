"""Ranks that were started anew (torchrun's elastic restarts): several processes, one after the other, one rank.

Worked example: process 11 does steps 0-5 of rank 0 and is killed; process 22 resumes from the checkpoint at step 3
and does 3-10. The rank's lane is 11's spans and then 22's. Steps 3-5 were done twice: those of 11 lose their number,
so that a step number names one stretch of time; their phases still count.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dipstick.model import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.spans import Lane


def join_restarts(lanes: Sequence[Lane]) -> tuple[list[Lane], list[Note]]:
    """One lane of steps a rank, where its processes followed each other; a note on every restart.

    Args:
        lanes: From :func:`dipstick.analysis.spans.read_lanes`.

    Returns:
        The lanes, and notes. Processes of one rank that ran at the same time are left as they are, and named.
    """
    kept, notes = list(lanes), []
    for rank in sorted({lane.rank for lane in lanes}):
        mine = [lane for lane in lanes if lane.rank == rank and _numbered(lane).any()]
        runs = _by_process(mine)
        if len(runs) < 2:  # noqa: PLR2004 - nothing to join
            continue
        if any(int(a.t1.max()) > int(b.t0.min()) for a, b in pairwise(runs)):
            notes.append(_at_once(rank, runs))
            continue
        kept = [lane for lane in kept if all(lane is not run for run in runs)] + [_joined(runs)]
        notes.append(_restarted(rank, runs))
    return kept, notes


def _numbered(lane: Lane) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which spans are numbered steps."""
    return np.asarray(lane.called("step") & (lane.step >= 0))


def _by_process(lanes: Sequence[Lane]) -> list[Lane]:
    """The lane with most steps of each process, in the order of their first step."""
    best: dict[int | None, Lane] = {}
    for lane in lanes:
        before = best.get(lane.pid)
        if before is None or _numbered(lane).sum() > _numbered(before).sum():
            best[lane.pid] = lane
    return sorted(best.values(), key=lambda lane: int(lane.t0[_numbered(lane)].min()))


def _joined(runs: Sequence[Lane]) -> Lane:
    """All spans in time order; a number that a later process did again belongs to that one."""
    steps = []
    for i, run in enumerate(runs):
        later = [other.step[_numbered(other)].min() for other in runs[i + 1 :]]
        redone = run.step >= min(later, default=np.iinfo(np.int64).max)
        steps.append(np.where(redone, -1, run.step))
    t0, t1, name, declared = (
        np.concatenate([getattr(run, column) for run in runs]) for column in ("t0", "t1", "name", "declared")
    )
    return replace(runs[-1], t0=t0, t1=t1, name=name, declared=declared, step=np.concatenate(steps))


def _restarted(rank: int, runs: Sequence[Lane]) -> Note:
    told = ", then ".join(f"pid {run.pid} (steps {_range(run)})" for run in runs)
    twice = sum(len(np.intersect1d(_steps(a), _steps(b))) for a, b in pairwise(runs))
    more = f"; {twice} of them were done twice, and the later ones count" if twice else ""
    return Note("warning", f"rank {rank} was restarted: {told}{more}")


def _at_once(rank: int, runs: Sequence[Lane]) -> Note:
    pids = ", ".join(str(run.pid) for run in runs)
    return Note(
        "warning",
        f"processes {pids} all say that they are rank {rank}, at the same time: only the steps of the one with most are counted",
    )


def _steps(run: Lane) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.unique(run.step[_numbered(run)])


def _range(run: Lane) -> str:
    """``0-5``."""
    steps = _steps(run)
    return f"{steps[0]}–{steps[-1]}" if len(steps) > 1 else str(steps[0])
