"""Who came last at the reward gather, who waited, and which job and worker ended last."""

from __future__ import annotations

from dipstick.analysis.pipeline import analyse
from dipstick.model import RankRow, StepArrival, Stragglers, WorkerRow
from records import Row, cycle, job, memory, near, span


def found(spans: list[Row], jobs: list[Row] | None = None) -> Stragglers:
    """The stragglers of these spans and jobs."""
    stragglers = analyse(memory(spans=spans, jobs=jobs or [])).stragglers
    assert stragglers is not None
    return stragglers


RANK_0 = cycle(0, 0, 0, (4, 3, 2, 1)) + cycle(0, 1, 10, (4, 4, 1, 1))
RANK_1 = cycle(1, 0, 0, (4, 5, 0, 1)) + cycle(1, 1, 10, (4, 3, 2, 1))
"""Step 0: rank 0 has its rewards at 7, rank 1 at 9. Step 1: rank 0 at 18, rank 1 at 17."""
SPANS = RANK_0 + RANK_1
JOBS = [
    job("a", 4.0, 6.0, rank=0, pid=10, step=0),
    job("b", 4.0, 7.0, rank=0, pid=11, step=0),
    job("c", 4.0, 9.0, rank=1, pid=20, step=0),
    job("d", 14.0, 18.0, rank=0, pid=10, step=1),
    job("e", 14.0, 17.0, rank=1, pid=20, step=1),
]


def test_each_step_says_who_came_last_by_how_much_and_with_which_job() -> None:
    """Rank 1 in step 0 by 2 s, with job c; rank 0 in step 1 by 1 s, with job d."""
    assert found(SPANS, JOBS).arrivals == (
        StepArrival(step=0, last_rank=1, margin_s=2.0, waits_s={0: 2.0, 1: 0.0}, last_job="c", last_job_pid=20, last_job_s=5.0),
        StepArrival(step=1, last_rank=0, margin_s=1.0, waits_s={0: 0.0, 1: 1.0}, last_job="d", last_job_pid=10, last_job_s=4.0),
    )  # fmt: skip


def test_each_rank_has_its_record() -> None:
    """How often last, how long it waited, and how long others waited for it."""
    stragglers = found(SPANS)

    assert stragglers.by_rank == (RankRow(0, 1, 2.0, 1.0), RankRow(1, 1, 1.0, 2.0))
    assert (stragglers.steps, stragglers.wait_gpu_s) == (2, 3.0)


def test_with_three_ranks_the_blame_is_everything_the_others_waited() -> None:
    """Rank 0 waits 2 s and rank 2 waits 1 s for rank 1; putting rank 1 right alone would win back 1 s."""
    stragglers = found(
        cycle(0, 0, 0, (4, 3, 2, 1)) + cycle(1, 0, 0, (4, 5, 0, 1)) + cycle(2, 0, 0, (4, 4, 1, 1))
    )

    assert stragglers.by_rank == (RankRow(0, 0, 2.0, 0.0), RankRow(1, 1, 0.0, 3.0), RankRow(2, 0, 1.0, 0.0))
    assert stragglers.arrivals[0].margin_s == 1.0


def test_each_worker_has_its_jobs_busy_seconds_and_last_endings() -> None:
    """Worker 10 ended last on its rank in step 1, worker 11 in step 0; worker 20 is alone on rank 1."""
    assert found(SPANS, JOBS).by_worker == (
        WorkerRow(pid=10, rank=0, jobs=2, busy_s=6.0, last_in_steps=1),
        WorkerRow(pid=11, rank=0, jobs=1, busy_s=3.0, last_in_steps=1),
        WorkerRow(pid=20, rank=1, jobs=2, busy_s=8.0, last_in_steps=2),
    )


def test_the_same_pid_on_two_ranks_is_two_workers() -> None:
    """Two hosts number their processes alike."""
    rows = found(SPANS, [r | {"pid": 7} for r in JOBS]).by_worker

    assert [(row.pid, row.rank, row.jobs, row.last_in_steps) for row in rows] == [(7, 0, 3, 2), (7, 1, 2, 2)]


def test_slots_busy_is_job_time_over_reward_time() -> None:
    """17 s of jobs in 15 s of reward phases (7 on rank 0, 8 on rank 1); rank 0 has two workers."""
    stragglers = found(SPANS, JOBS)

    assert (stragglers.slots_busy, stragglers.slots) == (near(17 / 15), 2)


def test_job_lengths_in_brief() -> None:
    """Lengths 2, 3, 5, 4, 3."""
    stragglers = found(SPANS, JOBS)

    assert (stragglers.jobs, stragglers.job_median_s, stragglers.job_max_s) == (5, 3.0, 5.0)
    assert stragglers.job_p99_s == near(4.96)


def test_jobs_outside_the_window_do_not_count() -> None:
    """A warm-up job before the first step, and one that outlives the last."""
    spans = cycle(0, 0, 5, (4, 3, 2, 1))
    jobs = [job("warm-up", 0, 4), job("x", 9, 12), job("late", 14, 16)]

    assert found(spans, jobs).jobs == 1


def test_without_jobs_the_workers_are_not_known() -> None:
    """None, not zero: the arrivals are there all the same."""
    stragglers = found(SPANS)

    assert (stragglers.slots, stragglers.slots_busy, stragglers.job_median_s, stragglers.job_max_s) == (
        None,
    ) * 4
    assert stragglers.by_worker == ()
    assert [a.last_job for a in stragglers.arrivals] == [None, None]


def test_one_rank_has_jobs_but_no_arrivals() -> None:
    """Nobody to wait for: no waits, rather than waits of zero."""
    stragglers = found(RANK_0, JOBS)

    assert (stragglers.steps, stragglers.wait_gpu_s, stragglers.by_rank, stragglers.arrivals) == (
        0,
        None,
        (),
        (),
    )
    assert stragglers.jobs == 5


def test_jobs_without_a_reward_phase_have_no_slots_to_fill() -> None:
    """No reward span was recorded: how busy the slots were can't be told."""
    assert found([span("step", 0, 20, step=0)], JOBS[:2]).slots_busy is None


def test_without_arrivals_and_jobs_there_is_nothing_to_say() -> None:
    """None."""
    assert analyse(memory(spans=RANK_0)).stragglers is None


def test_a_job_without_a_step_is_nobody_s_last() -> None:
    """It still counts as work."""
    stragglers = found(SPANS, [*JOBS, job("stray", 8.0, 8.9, rank=1, pid=20) | {"step": None}])

    assert stragglers.jobs == 6
    assert stragglers.arrivals[0].last_job == "c"
