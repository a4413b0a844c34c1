"""Is one worker slow: against the others of its rank, in all steps or in the widest dips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.replay_model import Jobs
from dipstick.analysis.slow_worker import (
    STRONG,
    SlowWorker,
    _add_up,
    _ranks_within,
    _verdict,
    judge_workers,
)
from dipstick.analysis.stats import Estimate
from dipstick.selftest.loop import JobPlan, Plan, schedule
from records import near

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray, IntArray

Row = tuple[int, int, int, float]
"""Step, rank, worker, seconds."""


def jobs(rows: Sequence[Row], slots: Sequence[int] = (2,)) -> Jobs:
    step, rank, worker = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    steps, ranks = int(step.max()) + 1, int(rank.max()) + 1
    return Jobs(
        step=step, rank=rank, seconds=np.array([row[3] for row in rows]), slots=np.array(slots),
        outside=np.zeros((steps, ranks)), worker=worker,
    )  # fmt: skip


def pool(seconds: Sequence[FloatArray], rank: int = 0, first: int = 0) -> list[Row]:
    """One array (steps, jobs) a worker of a rank."""
    return [
        (k, rank, first + w, float(x))
        for w, each in enumerate(seconds)
        for k, row in enumerate(each)
        for x in row
    ]


def draws(steps: int = 40, count: int = 4, seed: int = 0, spread: float = 0.3) -> FloatArray:
    drawn: FloatArray = np.exp(np.random.default_rng(seed).normal(0, spread, (steps, count)))
    return drawn


def judged(rows: list[Row], deep: Sequence[int] = (), slots: Sequence[int] = (2,)) -> tuple[SlowWorker, ...]:
    found = jobs(rows, slots)
    mask = np.zeros(int(found.step.max()) + 1, np.bool_)
    mask[list(deep)] = True
    return judge_workers(found, mask, np.random.default_rng(1))


# What is found


def test_a_worker_that_takes_three_times_as_long_is_slow() -> None:
    """Its peer is not."""
    fast, slow = judged(pool([draws(seed=1), 3 * draws(seed=2)]))

    assert (fast.verdict, slow.verdict) == ("no", "yes")
    assert slow.ratio.value == near(3.0, rel=0.1)
    assert slow.p_holm < 1e-6


def test_two_equal_workers_are_not_slow() -> None:
    """Both ratios are near 1, and certainly below 1.2."""
    found = judged(pool([draws(seed=1), draws(seed=2)]))

    assert [w.verdict for w in found] == ["no", "no"]
    assert [w.ratio.value for w in found] == near([1.0, 1.0], abs=0.1)


def test_a_worker_that_is_slow_in_every_fourth_step_is_found_in_the_widest_dips() -> None:
    """1.15 over all steps and 1.6 in the deep ones: the peers' toy."""
    factor = np.where(np.arange(60) % 4 == 3, 1.6, 1.0)[:, None]
    one, two = draws(60, spread=0.03, seed=1), factor * draws(60, spread=0.03, seed=2)

    fast, slow = judged(pool([one, two]), deep=range(3, 60, 4))

    assert slow.verdict == "yes"
    assert (slow.ratio.value, slow.deep.value) == near((1.15, 1.6), rel=0.02)
    assert fast.verdict == "no"


def test_one_very_long_job_makes_no_slow_worker() -> None:
    """Ranks do not care how much longer it was; its ratio is uncertain, so it is no "no" either."""
    one, two = draws(seed=1), draws(seed=2)
    two[7, 0] = 300.0

    _, unlucky = judged(pool([one, two]))

    assert unlucky.p_holm > 0.05
    assert unlucky.verdict == "unconfirmed"


def test_workers_are_held_against_their_own_rank_only() -> None:
    """Rank 1 has twice the work in each job, on both of its workers: nobody is slow."""
    rows = pool([draws(seed=1), draws(seed=2)]) + pool(
        [2 * draws(seed=3), 2 * draws(seed=4)], rank=1, first=2
    )

    assert [w.verdict for w in judged(rows, slots=(2, 2))] == ["no"] * 4


def test_the_slow_worker_of_four_is_named_with_its_rank() -> None:
    """Worker 3, the second of rank 1."""
    rows = pool([draws(seed=1), draws(seed=2)]) + pool([draws(seed=3), 2 * draws(seed=4)], rank=1, first=2)

    found = judged(rows, slots=(2, 2))

    assert [(w.worker, w.rank) for w in found if w.verdict == "yes"] == [(3, 1)]


def test_a_rank_with_one_worker_has_nobody_to_compare() -> None:
    """Nothing is said about it."""
    assert judged(pool([draws()]), slots=(1,)) == ()


def test_without_workers_nothing_is_said() -> None:
    """The log names no process."""
    anonymous = replace(jobs(pool([draws(), draws(seed=1)])), worker=None)

    assert judge_workers(anonymous, np.zeros(40, np.bool_), np.random.default_rng(0)) == ()


def test_steps_in_which_a_worker_had_no_job_do_not_count_for_it() -> None:
    """The slow one got work in every other step."""
    rows = [row for row in pool([draws(seed=1), 3 * draws(seed=2)]) if row[2] == 0 or row[0] % 2 == 0]

    fast, slow = judged(rows)

    assert (fast.steps, slow.steps) == (20, 20)
    assert slow.verdict == "yes"


def test_seven_steps_are_too_few() -> None:
    """Whatever they show."""
    assert {w.verdict for w in judged(pool([draws(7), 3 * draws(7, seed=1)]))} == {"unconfirmed"}


def test_deep_steps_that_are_not_known_leave_their_ratio_open() -> None:
    """NaN, over everything."""
    _, slow = judged(pool([draws(seed=1), 3 * draws(seed=2)]))

    assert np.isnan(slow.deep.value)
    assert slow.verdict == "yes"


def test_the_same_numbers_come_out_twice() -> None:
    """The bootstrap is seeded."""
    rows = pool([draws(seed=1), 1.4 * draws(seed=2)])

    assert judged(rows, deep=(1, 2, 3)) == judged(rows, deep=(1, 2, 3))


@pytest.mark.parametrize("spread", [0.3, 1.2])
def test_equal_workers_are_rarely_called_slow(spread: float) -> None:
    """200 runs of four workers, jobs of usual and of very long tails: at most a few, from a level of 5 %."""
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 7])
        drawn = np.exp(rng.normal(0, spread, (4, 30, 4)))
        rows = pool(list(drawn[:2])) + pool(list(drawn[2:]), rank=1, first=2)
        hits += any(w.p_holm <= 0.05 for w in judged(rows, slots=(2, 2)))

    assert hits <= 18  # 5 % of 200 are 10; 18 are exceeded in 0.5 % of such tests


def pooled(seed: int, spread: float, times: float = 1.0) -> tuple[SlowWorker, ...]:
    """Two ranks whose workers take the next job when they are free; the last worker ``times`` as slow."""
    plan = Plan(steps=46, jobs=JobPlan(count=8, seconds=0.2, spread=spread, slow={(1, 1): times}))
    start, end, worker = schedule(plan, np.random.default_rng(seed))
    step, rank = (
        np.broadcast_to(np.arange(n)[at], start.shape)
        for n, at in ((46, np.s_[None, :, None]), (2, np.s_[:, None, None]))
    )
    found = Jobs(
        step=step.ravel(), rank=rank.ravel(), seconds=(end - start).ravel(), slots=np.array([2, 2]),
        outside=np.zeros((46, 2)), worker=(worker + 2 * rank).ravel(),
    )  # fmt: skip
    width = end.max(axis=(0, 2))
    return judge_workers(found, width >= np.quantile(width, 0.75), np.random.default_rng(1))


@pytest.mark.parametrize("spread", [0.3, 1.3])
def test_equal_workers_of_a_real_pool_are_rarely_called_slow(spread: float) -> None:
    """Who has a long job gets fewer others, and is no slower for it: 200 runs, level 5 %, and almost no "yes"."""
    runs = [pooled(seed, spread) for seed in range(200)]

    assert sum(any(w.p_holm <= 0.05 for w in found) for found in runs) <= 18
    assert sum(any(w.verdict == "yes" for w in found) for found in runs) <= 4


def test_a_worker_of_a_real_pool_that_takes_half_as_long_again_is_found() -> None:
    """In each of twenty runs, and nobody else."""
    runs = [pooled(seed, 0.3, 1.5) for seed in range(20)]

    assert [[w.worker for w in found if w.verdict == "yes"] for found in runs] == [[3]] * 20


# The arithmetic


def test_the_worked_example() -> None:
    """Two jobs each, worker 1's the longer two: ranks sum to 7 where 5 is expected, variance 5 / 3, ten times."""
    rows = [(k, 0, w, 1.0 + 2 * w + j) for k in range(10) for w in (0, 1) for j in (0, 1)]
    found = jobs(rows)

    assert found.worker is not None
    sums = _add_up(found, found.worker, 10)

    assert (sums.score * 5).tolist() == near([-20, 20])
    assert (sums.variance * 25).tolist() == near([50 / 3, 50 / 3])
    assert sums.score[1] / np.sqrt(sums.variance[1]) == near(4.9, abs=0.01)


def test_fair_seconds_are_what_as_many_jobs_of_the_peers_took() -> None:
    """Worker 0 has two jobs, worker 1 one of 3 s: fair for worker 0 are 6 s."""
    found = jobs([(0, 0, 0, 1.0), (0, 0, 0, 2.0), (0, 0, 1, 3.0)])
    assert found.worker is not None

    sums = _add_up(found, found.worker, 1)

    assert sums.own.tolist() == [[3, 3]]
    assert sums.fair.tolist() == [[6, 1.5]]


@pytest.mark.parametrize(
    ("values", "group", "ranks"),
    [
        ([5, 7, 1, 7], [0, 0, 0, 1], [2, 3, 1, 1]),
        ([4, 4, 9], [0, 0, 0], [1.5, 1.5, 3]),
        ([2, 2, 2], [0, 1, 1], [1, 1.5, 1.5]),
        ([3, 1, 2], [2, 0, 1], [1, 1, 1]),
    ],
)
def test_ranks_within_groups(values: list[float], group: list[int], ranks: list[float]) -> None:
    """Ties share their mean, groups do not mix."""
    places: IntArray = np.array(group)

    assert _ranks_within(np.array(values, np.float64), places).tolist() == ranks


def interval(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high)


@pytest.mark.parametrize(
    ("p", "ratio", "deep", "word"),
    [
        (0.01, interval(1.3, 1.6), interval(1.3, 1.6), "yes"),
        (0.01, interval(1.05, 1.1), interval(1.3, 1.6), "yes"),
        (0.01, interval(1.05, 1.3), interval(1.0, 1.5), "partially"),
        (0.20, interval(1.3, 1.6), interval(1.3, 1.6), "unconfirmed"),
        (0.90, interval(0.9, 1.1), interval(0.9, 1.1), "no"),
        (0.90, interval(0.9, 1.1), interval(0.9, 1.3), "unconfirmed"),
        (0.01, interval(1.05, 1.1), interval(1.0, 1.1), "no"),
    ],
)
def test_the_rule(p: float, ratio: Estimate, deep: Estimate, word: str) -> None:
    """Significance and size are both needed for a "yes"; a "no" needs both bounds below 1.2."""
    assert STRONG == 1.2
    assert _verdict(p, ratio, deep, 40) == word
