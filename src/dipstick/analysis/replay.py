"""Replay: step times rebuilt from phases, barriers and jobs; the gate that decides whether to trust them.

Methods 2.5: T^(k) = sum over stages of [max over ranks of (sum of the stage's phases) + transfer] + gap.
The idea and the gate's purpose: "Understanding Stragglers ... What-if Analysis", OSDI'25 (arXiv 2505.05713),
which discards traces that its replay misses by more than 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.analysis.replay_schedule import makespans

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Loop
    from dipstick.model import FloatArray

GATE_MEDIAN: Final = 0.02
GATE_P90: Final = 0.05
REPLAY_MISMATCH: Final = "REPLAY_MISMATCH"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed run; times are seconds since the step's start (the previous last-barrier exit).

    Attributes:
        begin: When a rank begins a stage, shape (K, S, R).
        arrive: When it ends the stage's work, shape (K, S, R).
        step_s: Step times, shape (K,).
    """

    begin: FloatArray
    arrive: FloatArray
    step_s: FloatArray


@dataclass(frozen=True, slots=True)
class Gate:
    """How far the replay is from the measured step times.

    Attributes:
        median: Median of |replayed - measured| / measured.
        p90: Its 90th percentile.
        steps: Steps compared.
        passed: Median <= 2 % and p90 <= 5 %.
        reason: ``REPLAY_MISMATCH`` if not passed, else empty.
    """

    median: float
    p90: float
    steps: int
    passed: bool
    reason: str


def run_stages(loop: Loop, seconds: FloatArray) -> Replay:
    """Send every rank through the stages with the given seconds, shape (K, P, R).

    Example:
        Two ranks, one step, stage 1 (barrier): 10 and 12 s; stage 2 (barrier, transfer 0.5): 3 and 2 s.
        Rank 0 waits 2 s, both leave stage 1 at 12; stage 2 ends at 12 + 3 + 0.5: the step takes 15.5 s.
    """
    begin = np.empty((loop.steps, len(loop.stages), loop.ranks))
    arrive = np.empty_like(begin)
    now = np.zeros((loop.steps, loop.ranks))
    for s, (stage, columns) in enumerate(zip(loop.stages, loop.stage_columns(), strict=True)):
        begin[:, s] = now
        arrive[:, s] = now = now + seconds[:, columns].sum(axis=1)
        if stage.barrier:
            release = now.max(axis=1) + loop.transfer[:, s]
            now = np.repeat(release[:, None], loop.ranks, axis=1)
    return Replay(begin, arrive, now[:, 0] + loop.gap)


def scheduled_seconds(loop: Loop) -> FloatArray:
    """``loop.seconds`` with the reward phase rebuilt from its jobs: makespan plus measured overhead.

    The first column of the jobs' phase gets the seconds; further ones (a phase that returns) get 0.
    Without jobs the measured seconds come back.
    """
    jobs = loop.jobs
    if jobs is None:
        return loop.seconds
    seconds = loop.seconds.copy()
    columns = loop.columns_of(jobs.phase)
    seconds[:, columns] = 0.0
    seconds[:, columns[0]] = makespans(jobs, loop.steps) + jobs.outside
    return seconds


def replay(loop: Loop) -> Replay:
    """The run again, reward jobs list-scheduled over their slots.

    Example:
        One rank with 2 slots, generate 20 s, jobs 3, 1, 1, 4 s and 0.5 s of parsing:
        20 + (6 + 0.5) = 26.5 s, see :func:`~dipstick.analysis.replay_schedule.list_schedule`.
    """
    return run_stages(loop, scheduled_seconds(loop))


def gate(loop: Loop, replayed: Replay | None = None) -> Gate:
    """Compare replayed with measured step times.

    Example:
        Measured 10, 10, 10 and 10 s, replayed 10.1, 9.9, 10 and 11 s: errors 1, 1, 0 and 10 %,
        median 1 %, p90 7.3 %: refused, although the median is small.
    """
    step_s = (replayed or replay(loop)).step_s
    usable = np.isfinite(loop.measured) & (loop.measured > 0)
    errors = np.abs(step_s - loop.measured)[usable] / loop.measured[usable]
    if not errors.size:
        return Gate(float("nan"), float("nan"), 0, passed=False, reason=REPLAY_MISMATCH)
    median, p90 = float(np.median(errors)), float(np.quantile(errors, 0.9))
    passed = median <= GATE_MEDIAN and p90 <= GATE_P90
    return Gate(median, p90, int(errors.size), passed, "" if passed else REPLAY_MISMATCH)
