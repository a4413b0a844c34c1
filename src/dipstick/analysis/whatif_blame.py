"""Which rank, worker or job slows the run: S_x, M_x and add_x against an ideal of equal peers (methods 2.5).

The ideal replaces a duration by its mean over peers (ranks; workers; the jobs of one step). Two views:
remove (only x is made ideal) and add (everything but x is made ideal). Where they disagree by more
than 0.2 the cause interacts with others. Shares are not forced to sum to 1 (in the OSDI'25 artifact,
arXiv 2505.05713, M reaches 1.22 and 1.30).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dipstick.analysis.replay import run_stages, scheduled_seconds
from dipstick.analysis.replay_schedule import makespans
from dipstick.analysis.stats import Estimate, percentile_interval
from dipstick.analysis.whatif_boot import DRAWS, block_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from dipstick.analysis.replay_model import Jobs, Loop
    from dipstick.model import FloatArray, IntArray

    BoolArray = npt.NDArray[np.bool_]

SKIP_BELOW: Final = 1.03
"""Attribution is skipped when the ideal run would be less than 3 % faster (artifact default)."""
INTERACTS: Final = 0.2

Peers = Literal["rank", "worker", "longest_job"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One suspect.

    Attributes:
        name: ``rank 1``, ``worker 3``, ``longest job``.
        s_x: Slowdown with only x left as measured: T(only x) / T_ideal.
        removed: M_x: part of the slowdown that making x ideal takes away.
        added: add_x: part of the slowdown that x alone causes.
        interacts: Whether the two differ by more than 0.2: x's effect depends on other causes.
    """

    name: str
    s_x: Estimate
    removed: Estimate
    added: Estimate
    interacts: bool


@dataclass(frozen=True, slots=True)
class Attribution:
    """All suspects of one kind.

    Attributes:
        peers: What was made equal.
        speedup: S = T / T_ideal, with its interval.
        causes: Largest ``removed`` first; empty if skipped.
        skipped: Whether S < 1.03, so that there is nothing to attribute.
    """

    peers: Peers
    speedup: Estimate
    causes: tuple[Cause, ...]
    skipped: bool


@dataclass(frozen=True, slots=True)
class _Times:
    """Step times of one suspect's two edits, each (K,)."""

    name: str
    fixed: FloatArray
    only: FloatArray


def _attribute(
    peers: Peers,
    times: tuple[FloatArray, FloatArray],
    suspects: Iterable[_Times],
    rng: np.random.Generator,
    draws: int,
) -> Attribution:
    """Ratios and their intervals; ``times`` are the replayed and the ideal step times.

    ``suspects`` is only drawn from (each costs two replays) if there is something to attribute.
    """
    now, ideal = times
    worth_it = float(now.sum()) >= SKIP_BELOW * float(ideal.sum())
    found = list(suspects) if worth_it else []
    columns = np.column_stack([now, ideal, *(c for s in found for c in (s.fixed, s.only))])
    sums, drawn = columns.sum(axis=0), block_sums(columns, rng, draws)
    speedup = percentile_interval(float(sums[0] / sums[1]), drawn[:, 0] / drawn[:, 1])
    causes = [_cause(s.name, sums, drawn, 2 + 2 * i) for i, s in enumerate(found)]
    causes.sort(key=lambda cause: -cause.removed.value)
    return Attribution(peers, speedup, tuple(causes), skipped=not worth_it)


def _cause(name: str, sums: FloatArray, drawn: FloatArray, at: int) -> Cause:
    """One suspect from the sums (C,) and their draws (draws, C); its columns are ``at`` and ``at + 1``."""

    def estimate(of: Callable[[FloatArray], FloatArray]) -> Estimate:
        with np.errstate(divide="ignore", invalid="ignore"):
            return percentile_interval(float(of(sums[None])[0]), of(drawn))

    removed = estimate(lambda t: (t[:, 0] - t[:, at]) / (t[:, 0] - t[:, 1]))
    added = estimate(lambda t: (t[:, at + 1] - t[:, 1]) / (t[:, 0] - t[:, 1]))
    s_x = estimate(lambda t: t[:, at + 1] / t[:, 1])
    return Cause(name, s_x, removed, added, abs(removed.value - added.value) > INTERACTS)


def blame_ranks(loop: Loop, rng: np.random.Generator, draws: int = DRAWS) -> Attribution:
    """Is a rank slow? Peers are the ranks: ideal = mean over ranks of every phase, step by step.

    Example:
        Three ranks take 10, 10 and 16 s to the only barrier: T = 16, ideal 12, S = 1.33. Rank 2 made
        ideal: T = 12, removed (16 - 12) / 4 = 1; only rank 2 left: T = 16, added 1. Rank 0 made ideal:
        T = 16, removed 0; only rank 0 left: T = 12, added 0.
    """
    seconds = scheduled_seconds(loop)
    mean = np.repeat(seconds.mean(axis=2, keepdims=True), loop.ranks, axis=2)

    def suspect(r: int) -> _Times:
        fixed, only = seconds.copy(), mean.copy()
        fixed[:, :, r] = mean[:, :, r]
        only[:, :, r] = seconds[:, :, r]
        return _times(loop, f"rank {r}", fixed, only)

    times = run_stages(loop, seconds).step_s, run_stages(loop, mean).step_s
    return _attribute("rank", times, map(suspect, range(loop.ranks)), rng, draws)


def _times(loop: Loop, name: str, fixed: FloatArray, only: FloatArray) -> _Times:
    """Step times of one suspect from its two edited sets of phase seconds (K, P, R)."""
    return _Times(name, run_stages(loop, fixed).step_s, run_stages(loop, only).step_s)


def worker_factors(jobs: Jobs) -> FloatArray:
    """How slow each worker is: its mean job over the mean of the workers' means, shape (workers,).

    A pool hands the next job to whichever worker is free, whatever its length, so that over a run the
    workers see the same mix and a mean far from the others' is the worker's own.

    Raises:
        ValueError: The jobs carry no worker.
    """
    if jobs.worker is None:
        raise ValueError("blaming workers needs the worker of each job")
    counts = np.bincount(jobs.worker)
    means = np.bincount(jobs.worker, weights=jobs.seconds) / np.maximum(counts, 1)
    usual = float(means[counts > 0].mean())
    scaled: FloatArray = np.where(
        means > 0, means / (usual or 1.0), 1.0
    )  # jobs of no length stay as they are
    return scaled


def blame_workers(loop: Loop, rng: np.random.Generator, draws: int = DRAWS) -> Attribution | None:
    """Is a worker slow? Ideal = every worker's jobs scaled to the common mean; None without workers.

    Only the pool that a worker serves is scheduled again for it.

    Example:
        Two ranks with one worker each and one job a step: 2 s and 6 s. Factors 0.5 and 1.5; ideal 4 s,
        T = 6, S = 1.5; worker 1 made ideal: 2 and 4, T = 4: removed 1. Worker 0: removed 0.
    """
    jobs = loop.jobs
    if jobs is None or jobs.worker is None or not jobs.worker.size:
        return None
    workers = jobs.worker
    level = jobs.seconds / worker_factors(jobs)[workers]
    now, ideal = _job_seconds(loop, jobs, jobs.seconds), _job_seconds(loop, jobs, level)

    def suspect(w: int) -> _Times:
        mine = workers == w
        ranks = np.unique(jobs.rank[mine])
        fixed = _patched(loop, jobs, now, (np.where(mine, level, jobs.seconds), ranks))
        only = _patched(loop, jobs, ideal, (np.where(mine, jobs.seconds, level), ranks))
        return _times(loop, f"worker {w}", fixed, only)

    times = run_stages(loop, now).step_s, run_stages(loop, ideal).step_s
    return _attribute("worker", times, map(suspect, np.unique(workers).tolist()), rng, draws)


def blame_longest_job(loop: Loop, rng: np.random.Generator, draws: int = DRAWS) -> Attribution | None:
    """Is it the longest job of each step? Ideal = every job takes the step's mean; None without jobs.

    The longest job is taken over all ranks, since the barrier waits for the slowest anywhere.

    Example:
        One rank, 2 slots, jobs 1, 1, 1 and 5 s: T = 1 + 5 = 6 (starts at 1). Ideal: four of 2 s, T = 4.
        Longest made ideal (1, 1, 1, 2): T = 3, removed (6 - 3) / 2 = 1.5; only it left (2, 2, 2, 5):
        T = 7, added (7 - 4) / 2 = 1.5.
    """
    jobs = loop.jobs
    if jobs is None or not jobs.seconds.size:
        return None
    counts = np.bincount(jobs.step, minlength=loop.steps)
    mean = (np.bincount(jobs.step, jobs.seconds, loop.steps) / np.maximum(counts, 1))[jobs.step]
    longest = _longest(jobs, loop.steps)
    times = (_job_step_s(loop, jobs, jobs.seconds), _job_step_s(loop, jobs, mean))

    def suspect(name: str) -> _Times:
        fixed = _job_step_s(loop, jobs, np.where(longest, mean, jobs.seconds))
        return _Times(name, fixed, _job_step_s(loop, jobs, np.where(longest, jobs.seconds, mean)))

    return _attribute("longest_job", times, map(suspect, ["longest job"]), rng, draws)


def _longest(jobs: Jobs, steps: int) -> BoolArray:
    """Whether a job is the longest of its step (the first of equals), shape (n,)."""
    top = np.full(steps, -np.inf)
    np.maximum.at(top, jobs.step, jobs.seconds)
    candidates = np.flatnonzero(jobs.seconds == top[jobs.step])
    _, first = np.unique(jobs.step[candidates], return_index=True)
    chosen = np.zeros(jobs.step.size, dtype=np.bool_)
    chosen[candidates[first]] = True
    return chosen


def _job_seconds(loop: Loop, jobs: Jobs, seconds: FloatArray) -> FloatArray:
    """Phase seconds (K, P, R) when the jobs take ``seconds`` (n,)."""
    return scheduled_seconds(replace(loop, jobs=replace(jobs, seconds=seconds)))


def _job_step_s(loop: Loop, jobs: Jobs, seconds: FloatArray) -> FloatArray:
    """Step times (K,) when the jobs take ``seconds`` (n,)."""
    return run_stages(loop, _job_seconds(loop, jobs, seconds)).step_s


def _patched(loop: Loop, jobs: Jobs, base: FloatArray, edit: tuple[FloatArray, IntArray]) -> FloatArray:
    """``base`` with the reward of some ranks scheduled again; ``edit`` is (job seconds, those ranks)."""
    seconds, ranks = edit
    mine = np.isin(jobs.rank, ranks)
    some = replace(
        jobs,
        step=jobs.step[mine],
        rank=jobs.rank[mine],
        seconds=seconds[mine],
        submitted=None if jobs.submitted is None else jobs.submitted[mine],
    )
    result = base.copy()
    column = int(loop.columns_of(jobs.phase)[0])
    result[:, column, ranks] = (makespans(some, loop.steps) + jobs.outside)[:, ranks]
    return result
