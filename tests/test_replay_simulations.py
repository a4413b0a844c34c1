"""The numbers of methods S8 (barriers and stragglers), reproduced with the functions that reports use."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dipstick.analysis.replay_model import Jobs, Loop, Stage
from dipstick.analysis.replay_waits import barrier_waits
from dipstick.analysis.stats import percentile_interval
from dipstick.analysis.whatif import WhatIfs, compare
from dipstick.analysis.whatif_blame import blame_longest_job, blame_ranks, blame_workers
from dipstick.analysis.whatif_boot import block_sums

STAGE = (Stage("reward", ("reward",)),)


def lognormal(
    rng: np.random.Generator, cv: float, size: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Lognormal durations of mean 1 and the given coefficient of variation."""
    sigma = math.sqrt(math.log(1 + cv * cv))
    return rng.lognormal(-sigma * sigma / 2, sigma, size)


def loop_of(arrivals: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Loop:
    """One barrier; arrivals of shape (K, R)."""
    steps, ranks = arrivals.shape
    return Loop(
        stages=STAGE,
        seconds=arrivals[:, None, :],
        transfer=np.zeros((steps, 1)),
        gap=np.zeros(steps),
        measured=arrivals.max(axis=1),
        gpus=np.ones(ranks, dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("cv", "ranks", "table"),
    [
        (0.1, 2, 1.06),
        (0.1, 4, 1.11),
        (0.1, 8, 1.15),
        (0.1, 64, 1.26),
        (0.3, 2, 1.17),
        (0.3, 4, 1.32),
        (0.3, 8, 1.48),
        (0.3, 64, 1.93),
        (0.6, 2, 1.29),
        (0.6, 4, 1.64),
        (0.6, 8, 2.00),
        (0.6, 64, 3.24),
    ],
)
def test_the_price_of_a_barrier(cv: float, ranks: int, table: float) -> None:
    """E[max over ranks] / mean, every cell of the table; the imbalance of a report is the same to 4 %.

    (The report divides by each step's own mean, the table by the overall one.)
    """
    arrivals = lognormal(np.random.default_rng(8), cv, (20_000, ranks))
    (wait,) = barrier_waits(loop_of(arrivals))

    assert arrivals.max(axis=1).mean() / arrivals.mean() == pytest.approx(table, abs=0.02)
    assert wait.imbalance == pytest.approx(table, rel=0.04)


def test_the_maximum_of_means_hides_the_price_of_a_barrier() -> None:
    """CV 0.3, 8 ranks, 60 steps: the ranks' means differ by a few percent, the barrier costs 48 %."""
    arrivals = lognormal(np.random.default_rng(1), 0.3, (60, 8))
    (wait,) = barrier_waits(loop_of(arrivals))
    means = arrivals.mean(axis=0)

    assert means.max() / means.mean() < 1.1
    assert wait.imbalance > 1.4


@pytest.mark.parametrize(
    ("sigma", "over_median", "removable"), [(0.5, 3.3, 0.16), (0.9, 9.0, 0.26), (1.3, 25.9, 0.34)]
)
def test_removing_the_longest_job_removes_only_its_lead(
    sigma: float, over_median: float, removable: float
) -> None:
    """64 lognormal jobs: max / median, and (max - second) / max, as in the table."""
    jobs = np.sort(np.random.default_rng(2).lognormal(0, sigma, (20_000, 64)), axis=1)

    assert np.mean(jobs[:, -1] / np.median(jobs, axis=1)) == pytest.approx(over_median, rel=0.04)
    assert np.mean((jobs[:, -1] - jobs[:, -2]) / jobs[:, -1]) == pytest.approx(removable, abs=0.01)


def test_recoverable_is_that_lead_when_jobs_are_ranks() -> None:
    """64 ranks of one job each: what fixing the last one gives back is max - second, under a third of the max."""
    arrivals = np.random.default_rng(3).lognormal(0, 0.9, (5_000, 64))
    ordered = np.sort(arrivals, axis=1)
    (wait,) = barrier_waits(loop_of(arrivals))

    assert wait.recoverable_s.sum() == pytest.approx((ordered[:, -1] - ordered[:, -2]).sum())
    assert wait.recoverable_s.sum() / arrivals.max(axis=1).sum() == pytest.approx(0.32, abs=0.02)


@pytest.mark.parametrize(("persistence", "at_least"), [(0.0, 0.90), (0.5, 0.78)])
def test_the_coverage_of_a_speedups_interval(persistence: float, at_least: float) -> None:
    """60 steps, 200 runs: near 95 % for independent steps, about 82 % for AR(1) steps of 0.5.

    Blocks of N^(1/3) (methods 2.5) are short for steps that depend this much; the documentation says so.
    """
    rng = np.random.default_rng(4)
    covered = 0
    truth = 20 / (20 - _mean_of_positive_part(2, 1 / math.sqrt(1 - persistence**2)))
    for _ in range(200):
        noise = np.zeros(160)
        shocks = rng.normal(0, 1, 160)
        for k in range(1, 160):
            noise[k] = persistence * noise[k - 1] + shocks[k]
        saved = np.maximum(0, 2 + noise[100:])
        result = compare("x", np.full(60, 20.0), 20 - saved, 1, rng, draws=200)
        covered += result.speedup.low <= truth <= result.speedup.high

    assert at_least <= covered / 200 <= 0.99


def _mean_of_positive_part(mean: float, sd: float) -> float:
    """E[max(0, X)] of a normal X."""
    z = mean / sd
    return mean * 0.5 * (1 + math.erf(z / math.sqrt(2))) + sd * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def test_blocks_widen_the_interval_of_dependent_steps() -> None:
    """Slow waves of step time: drawing single steps would claim three times too much precision."""
    wave = 10 + np.repeat(np.random.default_rng(5).normal(0, 1, 20), 6)
    rng = np.random.default_rng(6)
    blocks = percentile_interval(wave.sum(), block_sums(wave[:, None], rng)[:, 0])
    single = percentile_interval(wave.sum(), wave[rng.integers(0, 120, (1_000, 120))].sum(axis=1))

    assert blocks.high - blocks.low > 1.5 * (single.high - single.low)


def queue_of(rng: np.random.Generator, slow_worker: float = 1.0, steps: int = 40) -> Loop:
    """Two ranks with two workers each, 32 jobs a step and rank; worker 3 is slower by a factor."""
    n = steps * 2 * 32
    rank = np.tile(np.repeat([0, 1], 32), steps)
    worker = rng.integers(0, 2, n) + 2 * rank
    seconds = rng.lognormal(-1.5, 0.9, n) * np.where(worker == 3, slow_worker, 1.0)
    jobs = Jobs(
        np.repeat(np.arange(steps), 64),
        rank,
        seconds,
        np.array([2, 2]),
        np.full((steps, 2), 0.1),
        worker=worker,
    )
    empty = loop_of(np.ones((steps, 2)))
    return Loop(STAGE, empty.seconds, empty.transfer, empty.gap, empty.measured, empty.gpus, jobs)


def test_a_healthy_queue_blames_no_worker() -> None:
    """The same jobs for everybody, 20 runs: at most one points at a worker."""
    rng = np.random.default_rng(9)
    results = [blame_workers(queue_of(rng), rng, draws=50) for _ in range(20)]

    assert sum(result is not None and not result.skipped for result in results) <= 1


def test_a_slow_worker_is_named_in_every_run() -> None:
    """Jobs on worker 3 take 3 times as long: it leads the list, and rank 1 leads its own."""
    rng = np.random.default_rng(10)
    for _ in range(5):
        loop = queue_of(rng, slow_worker=3.0)
        workers, ranks = blame_workers(loop, rng, draws=50), blame_ranks(loop, rng, draws=50)

        assert workers is not None
        assert workers.causes[0].name == "worker 3"
        assert ranks.causes[0].name == "rank 1"


def test_more_slots_help_a_queue_and_a_cap_helps_a_tail() -> None:
    """32 equal jobs on two slots gain from a third; one job of 20 s among short ones gains from a cap."""
    rng = np.random.default_rng(11)
    queue = queue_of(rng)
    assert queue.jobs is not None
    tail_seconds = np.where(np.arange(queue.jobs.seconds.size) % 64 == 0, 20.0, 0.05)
    tail = Loop(
        STAGE,
        queue.seconds,
        queue.transfer,
        queue.gap,
        queue.measured,
        queue.gpus,
        _with(queue.jobs, tail_seconds),
    )
    even = Loop(
        STAGE,
        queue.seconds,
        queue.transfer,
        queue.gap,
        queue.measured,
        queue.gpus,
        _with(queue.jobs, tail_seconds * 0 + 0.5),
    )

    assert WhatIfs(even).more_slots(1).speedup.value == pytest.approx((16 * 0.5 + 0.1) / (11 * 0.5 + 0.1))
    assert WhatIfs(even).cap_jobs(0.5).speedup.value == 1
    assert WhatIfs(tail).more_slots(1).speedup.value < 1.01
    assert WhatIfs(tail).cap_jobs(2).speedup.value > 8
    longest = blame_longest_job(tail, rng, draws=50)
    assert longest is not None
    assert longest.causes[0].removed.value > 0.9


def _with(jobs: Jobs, seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Jobs:
    """The same jobs with other durations."""
    return Jobs(jobs.step, jobs.rank, seconds, jobs.slots, jobs.outside)
