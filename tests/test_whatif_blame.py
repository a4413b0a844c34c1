"""Attribution of a slowdown to ranks, workers and the longest job: remove, add, and where they disagree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dipstick.analysis.replay_model import Jobs, Loop, Stage
from dipstick.analysis.whatif_blame import (
    Cause,
    blame_longest_job,
    blame_ranks,
    blame_workers,
    worker_factors,
)

ONE_STAGE = (Stage("reward", ("reward",)),)
RNG = np.random.default_rng(0)


def ranks_of(*seconds: float, steps: int = 20) -> Loop:
    """One barrier, one phase; each rank takes the same seconds in every step."""
    return Loop(
        stages=ONE_STAGE,
        seconds=np.tile(seconds, (steps, 1, 1)).astype(np.float64),
        transfer=np.zeros((steps, 1)),
        gap=np.zeros(steps),
        measured=np.full(steps, max(seconds)),
        gpus=np.ones(len(seconds), dtype=np.int64),
    )


def jobs_of(per_rank: list[list[float]], slots: int, workers: list[list[int]] | None = None) -> Loop:
    """Each rank runs its jobs in each of 20 steps."""
    steps, ranks = 20, len(per_rank)
    rank = np.repeat(np.arange(ranks), [len(j) for j in per_rank])
    seconds = np.concatenate([np.array(j, dtype=np.float64) for j in per_rank])
    worker = None if workers is None else np.concatenate([np.array(w) for w in workers])
    jobs = Jobs(
        step=np.repeat(np.arange(steps), rank.size),
        rank=np.tile(rank, steps),
        seconds=np.tile(seconds, steps),
        slots=np.full(ranks, slots),
        outside=np.zeros((steps, ranks)),
        worker=None if worker is None else np.tile(worker, steps),
    )
    return replace(ranks_of(*[1.0] * ranks), jobs=jobs)


def numbers(cause: Cause) -> tuple[str, float, float, float]:
    """Name, S_x, removed, added."""
    return (
        cause.name,
        round(cause.s_x.value, 6),
        round(cause.removed.value, 6),
        round(cause.added.value, 6),
    )


class TestRanks:
    """Peers are ranks."""

    def test_one_slow_rank_explains_all(self) -> None:
        """10, 10, 16: T 16, ideal 12. Rank 2 alone makes and unmakes the 4 s."""
        result = blame_ranks(ranks_of(10, 10, 16), RNG)

        assert result.speedup.value == pytest.approx(16 / 12)
        assert [numbers(c) for c in result.causes] == [
            ("rank 2", 1.333333, 1, 1),
            ("rank 0", 1, 0, 0),
            ("rank 1", 1, 0, 0),
        ]
        assert not any(c.interacts for c in result.causes)

    def test_two_equally_slow_ranks_hide_each_other(self) -> None:
        """10, 16, 16 (ideal 14): the two views differ, so the cause interacts with another.

        Fixing one leaves the other (removed 0), yet either alone makes the 2 s (added 1).
        """
        result = blame_ranks(ranks_of(10, 16, 16), RNG)

        assert [numbers(c) for c in result.causes] == [
            ("rank 0", 1, 0, 0),
            ("rank 1", 1.142857, 0, 1),
            ("rank 2", 1.142857, 0, 1),
        ]
        assert [c.interacts for c in result.causes] == [False, True, True]

    def test_a_balanced_run_is_not_blamed_on_anyone(self) -> None:
        """S = 10.2 / 10.1 = 1.01 < 1.03: nothing to attribute."""
        result = blame_ranks(ranks_of(10, 10.2), RNG)

        assert (result.skipped, result.causes) == (True, ())
        assert result.speedup.value == pytest.approx(10.2 / 10.1)

    @pytest.mark.parametrize("factor", [1.16, 1.4, 2.03])
    def test_an_injected_slowdown_is_recovered(self, factor: float) -> None:
        """Eight noisy ranks, one made slower by the factors of the OSDI'25 paper: it gets the blame.

        The ideal is the mean over all eight, so S = factor / ((7 + factor) / 8).
        """
        rng = np.random.default_rng(7)
        seconds = rng.lognormal(2, 0.02, (60, 1, 8))
        seconds[:, :, 5] *= factor
        loop = replace(ranks_of(*[1.0] * 8, steps=60), seconds=seconds, measured=seconds.max(axis=(1, 2)))

        result = blame_ranks(loop, rng)

        assert result.causes[0].name == "rank 5"
        assert result.causes[0].removed.value > 0.8
        assert result.speedup.value == pytest.approx(factor / ((7 + factor) / 8), rel=0.02)


class TestWorkers:
    """Peers are workers."""

    def test_a_slow_worker_is_found_by_its_mean_job(self) -> None:
        """Means 2 and 6 s: factors 0.5 and 1.5; ideal 4 s, measured 6."""
        loop = jobs_of([[2], [6]], slots=1, workers=[[0], [1]])
        assert loop.jobs is not None

        result = blame_workers(loop, RNG)

        assert worker_factors(loop.jobs).tolist() == [0.5, 1.5]
        assert result is not None
        assert result.speedup.value == pytest.approx(1.5)
        assert [numbers(c) for c in result.causes] == [("worker 1", 1.5, 1, 1), ("worker 0", 1, 0, 0)]

    def test_a_worker_number_without_jobs_is_left_alone(self) -> None:
        """Worker 1 of the run served another phase."""
        loop = jobs_of([[2], [2]], slots=1, workers=[[0], [2]])
        assert loop.jobs is not None

        assert worker_factors(loop.jobs).tolist() == [1, 1, 1]

    def test_equal_workers_with_unequal_jobs_are_not_blamed(self) -> None:
        """Both workers run a short and a long job a step."""
        result = blame_workers(jobs_of([[1, 5], [5, 1]], slots=1, workers=[[0, 0], [1, 1]]), RNG)

        assert result is not None
        assert result.skipped

    def test_without_worker_numbers_there_is_no_answer(self) -> None:
        """None, not an empty list of culprits."""
        assert blame_workers(jobs_of([[1]], slots=1), RNG) is None
        assert blame_workers(ranks_of(1, 2), RNG) is None

    def test_factors_need_workers(self) -> None:
        """The message names what is missing."""
        jobs = jobs_of([[1]], slots=1).jobs
        assert jobs is not None

        with pytest.raises(ValueError, match="needs the worker of each job"):
            worker_factors(jobs)


class TestLongestJob:
    """Peers are the jobs of a step."""

    def test_the_longest_job_of_a_step(self) -> None:
        """1, 1, 1, 5 on 2 slots: T 6, ideal (2, 2, 2, 2) 4; fixed (1, 1, 1, 2) 3; only (2, 2, 2, 5) 7."""
        result = blame_longest_job(jobs_of([[1, 1, 1, 5]], slots=2), RNG)

        assert result is not None
        assert [numbers(c) for c in result.causes] == [("longest job", 1.75, 1.5, 1.5)]

    def test_queued_work_is_not_the_longest_jobs_fault(self) -> None:
        """Eight jobs of 2 s on one slot: all alike, nothing to attribute."""
        result = blame_longest_job(jobs_of([[2] * 8], slots=1), RNG)

        assert result is not None
        assert result.skipped

    def test_the_longest_is_taken_over_all_ranks(self) -> None:
        """Rank 1's 9 s job is the step's longest; rank 0's 3 s job is not edited.

        T 9, mean (1 + 3 + 1 + 9) / 4 = 3.5; fixed: rank 1 ends at 3.5; removed (9 - 3.5) / (9 - 3.5) = 1.
        """
        result = blame_longest_job(jobs_of([[1, 3], [1, 9]], slots=2), RNG)

        assert result is not None
        assert [numbers(c) for c in result.causes] == [("longest job", round(9 / 3.5, 6), 1, 1)]

    def test_of_equal_jobs_one_is_the_longest(self) -> None:
        """5, 5, 1, 1 (mean 3) on 4 slots: removing one 5 leaves the other: removed 0, added 1."""
        result = blame_longest_job(jobs_of([[5, 5, 1, 1]], slots=4), RNG)

        assert result is not None
        assert [numbers(c) for c in result.causes] == [("longest job", round(5 / 3, 6), 0, 1)]
        assert result.causes[0].interacts

    def test_without_jobs_there_is_no_answer(self) -> None:
        """No job log, no longest job."""
        assert blame_longest_job(ranks_of(1, 2), RNG) is None
