"""From timelines to the replay's loop: stages, columns, waits left out, jobs; and runs that are not that tidy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.loop import build_loop
from dipstick.analysis.pipeline import analyse
from dipstick.analysis.replay import gate
from dipstick.analysis.replay_model import GAP
from records import Row, job, memory, near, ns, span
from worlds import World

if TYPE_CHECKING:
    from dipstick.analysis.loop import Steps

TINY = World(generate=[4, 5], reward=[[3, 2], [3, 4]], train=1.0)
"""Step 0: generate [0, 4), rewards until 7 and 6, gather at 7, backward [7, 8). Step 1: [8, 13), 16 and 17, [17, 18)."""


def steps_of(
    rows: list[Row], jobs: list[Row] | None = None, gpus: dict[int, int] | None = None
) -> Steps | None:
    """The loop of some spans."""
    recording = memory(spans=rows, **({"jobs": jobs} if jobs else {}))
    return build_loop(analyse(recording).timelines, recording.table("jobs"), gpus or {})


def known(rows: list[Row], jobs: list[Row] | None = None, gpus: dict[int, int] | None = None) -> Steps:
    """The same where there is one."""
    steps = steps_of(rows, jobs, gpus)
    assert steps is not None
    return steps


# Stages and seconds


def test_a_step_runs_from_last_barrier_to_last_barrier() -> None:
    """The last barrier of a step is its last backward; the first step starts with its own start."""
    steps = known(TINY.spans())

    assert steps.number.tolist() == [0, 1]
    assert steps.labels == ("lengths", "reward", "backward")
    assert steps.start_s.tolist() == [0, 8]
    assert steps.end_s.tolist() == [8, 18]
    assert steps.loop.measured.tolist() == [8, 10]


def test_arrivals_are_each_rank_s_own_and_a_barrier_opens_with_the_last() -> None:
    """Rank 0 ends its rewards at 7 and 16, rank 1 at 6 and 17."""
    steps = known(TINY.spans())

    assert steps.arrive_s[:, 1].tolist() == [[7, 6], [16, 17]]
    assert steps.exit_s.tolist() == [[4, 7, 8], [13, 17, 18]]


def test_columns_hold_the_seconds_of_each_phase_and_no_wait() -> None:
    """Stage 1 generate, stage 2 reward, stage 3 backward; each ends with what no phase explains (here 0)."""
    loop = known(TINY.spans()).loop

    assert loop.columns == ("generate", GAP, "reward", GAP, "backward", GAP)
    assert loop.seconds[:, :, 0] == near(np.array([[4, 0, 3, 0, 1, 0], [5, 0, 3, 0, 1, 0]]))
    assert loop.seconds[:, :, 1] == near(np.array([[4, 0, 2, 0, 1, 0], [5, 0, 4, 0, 1, 0]]))


def test_the_replay_of_an_exact_loop_is_exact() -> None:
    """max(4) + max(3, 2) + 1 = 8 and 5 + 4 + 1 = 10: nothing is lost between the stages."""
    found = gate(known(TINY.spans()).loop)

    assert (found.median, found.p90, found.passed) == (near(0), near(0), True)


def test_time_in_no_phase_is_its_own_column() -> None:
    """Half a second before each backward without a span: 0.5 s of gap in the third stage."""
    rows = [r | {"t0_ns": r["t0_ns"] + ns(0.5)} if r["name"] == "backward" else r for r in TINY.spans()]

    loop = known(rows).loop

    assert loop.seconds[:, 5, :] == near(np.full((2, 2), 0.5))
    assert loop.seconds[:, 4, :] == near(np.full((2, 2), 0.5))


def test_a_framework_without_a_barrier_has_one_stage_less() -> None:
    """No rewards on the trainer's thread: two stages."""
    rows = [r for r in TINY.spans() if not r["name"].endswith("_calculate_rewards")]

    assert known(rows).labels == ("lengths", "backward")


def test_a_rank_s_gpus_are_counted_and_unknown_ones_are_one() -> None:
    """Rank 0 has four, rank 1 is not known."""
    assert known(TINY.spans(), gpus={0: 4}).loop.gpus.tolist() == [4, 1]


# Ranks


def test_ranks_keep_their_numbers() -> None:
    """Ranks 6 and 7 of a larger job were recorded."""
    rows = [r | {"rank": r["rank"] + 6} for r in TINY.spans()]

    assert known(rows).ranks == (6, 7)


def test_a_rank_without_steps_has_no_place_in_the_loop() -> None:
    """Rank 0 left a single span: the loop is rank 1's."""
    rows = [span("reward", 1, 2, rank=0), *(r for r in TINY.spans() if r["rank"] == 1)]

    steps = known(rows)

    assert steps.ranks == (1,)
    assert steps.arrive_s.shape == (2, 3, 1)


def test_one_rank_is_a_loop_too() -> None:
    """It waits for nobody."""
    rows = [r for r in TINY.spans() if r["rank"] == 0]

    steps = known(rows)

    assert steps.ranks == (0,)
    assert steps.loop.measured.tolist() == [8, 10]


# Steps that are missing, alone, or not in order


@pytest.mark.parametrize(
    "rows", [[], [r for r in TINY.spans() if r["step"] == 0], [span("step", 0, 1, step=0)]]
)
def test_fewer_than_two_whole_steps_are_no_loop(rows: list[Row]) -> None:
    """No span at all, one step, a step without phases: a step time needs a step before it."""
    assert steps_of([*rows, span("x", 0, 20)]) is None


def test_steps_that_a_rank_lacks_are_left_out() -> None:
    """Rank 1 lost step 1 of three: the loop has steps 0 and 2, and the time of step 1 is in step 2."""
    world = World(generate=[4, 4, 4], reward=[[2, 2]] * 3)
    rows = [r for r in world.spans() if not (r["rank"] == 1 and r["step"] == 1)]

    steps = known(rows)

    assert steps.number.tolist() == [0, 2]
    assert steps.loop.measured.tolist() == [7, 14]


def test_step_numbers_that_count_down_are_no_loop() -> None:
    """Not one step ends after the one before it."""
    rows = [r | {"step": 9 - r["step"]} for r in World(generate=[4] * 3, reward=[[2, 2]] * 3).spans()]

    assert steps_of(rows) is None


def test_numbers_that_start_again_keep_the_steps_in_order() -> None:
    """A restart from step 1 of three: the second step 1 and 2 count, and time never runs backwards."""
    world = World(generate=[4] * 6, reward=[[2, 2]] * 6)
    rows = [r | {"step": r["step"] if r["step"] < 3 else r["step"] - 2} for r in world.spans()]

    steps = known(rows)

    assert (steps.loop.measured > 0).all()
    assert (np.diff(steps.end_s) > 0).all()
    assert steps.number.tolist() == [0, 1, 2, 3]


def test_generation_of_an_evaluation_after_backward_moves_the_step_s_end() -> None:
    """It comes last in its step; no column is negative and the replay still adds up to the step."""
    world = World(generate=[4] * 3, reward=[[2, 2]] * 3)
    late = [
        span("GRPOTrainer.vLLM.generate", 13.2, 13.8, rank=rank, step=1) for rank in range(2)
    ]  # inside the training second of step 1

    loop = known(world.spans() + late).loop

    assert (loop.seconds >= -1e-9).all()
    assert loop.seconds[1].sum(axis=0) == near([7, 7])


# Jobs


def test_jobs_are_those_of_the_steps_in_submission_order() -> None:
    """Rank 1 submits its second job first."""
    jobs = [
        job(f"{s}.{r}", 8 * s + 4, 8 * s + 6, rank=r, pid=50 + r, step=s) for s in range(2) for r in range(2)
    ]
    jobs += [job("early", 8 + 3.5, 8 + 4, rank=1, pid=51, step=1), job("warm-up", 0, 1, step=-1)]

    found = known(TINY.spans(), jobs).loop.jobs

    assert found is not None
    assert found.step.tolist() == [0, 0, 1, 1, 1]
    assert found.rank.tolist() == [0, 1, 0, 1, 1]
    assert found.seconds == near([2, 2, 2, 0.5, 2])
    assert found.submitted == near([0, 0, 0, 0, 0.5])


def test_slots_are_the_worker_processes_of_each_rank() -> None:
    """Two workers on rank 0, one on rank 1."""
    jobs = [
        job(f"{s}.{p}", 8 * s + 4, 8 * s + 5, rank=p // 52, pid=p, step=s)
        for s in range(2)
        for p in (50, 51, 52)
    ]

    steps = known(TINY.spans(), jobs)

    found = steps.loop.jobs
    assert found is not None
    assert found.worker is not None
    assert found.slots.tolist() == [2, 1]
    assert steps.workers == ((0, 50), (0, 51), (1, 52))
    assert [steps.workers[w][1] for w in found.worker.tolist()] == [50, 51, 52, 50, 51, 52]


def test_the_same_pid_on_two_ranks_is_two_workers() -> None:
    """Ranks of two hosts."""
    jobs = [job(f"{s}.{r}", 8 * s + 4, 8 * s + 5, rank=r, pid=77, step=s) for s in range(2) for r in range(2)]

    assert known(TINY.spans(), jobs).workers == ((0, 77), (1, 77))


def test_what_the_jobs_do_not_fill_of_the_reward_is_outside() -> None:
    """Rank 0 scores [4, 7), its job runs [4.5, 6): 3 - 1.5 s are parsing and collecting."""
    jobs = [
        job(f"{s}.{r}", 10 * s + 4.5, 10 * s + 6, rank=r, pid=50 + r, step=s)
        for s in range(2)
        for r in range(2)
    ]

    found = known(TINY.spans(), jobs).loop.jobs

    assert found is not None
    assert found.outside == near(np.array([[1.5, 0.5], [1.5, 2.5]]))


@pytest.mark.parametrize(("missing", "there"), [(1, True), (3, False)])
def test_a_few_steps_without_jobs_are_steps_without_work(missing: int, there: bool) -> None:  # noqa: FBT001 - parametrized
    """No completion was valid in one of 20 pairs of step and rank: 0 s. In three of 20: jobs were not recorded."""
    world = World(generate=[4] * 10, reward=[[2, 2]] * 10)
    jobs = [r for r in world.reward_jobs() if not (r["rank"] == 1 and r["step"] < missing)]

    steps = known(world.spans(), jobs)

    assert (steps.loop.jobs is not None) is there
    if steps.loop.jobs is not None:
        assert steps.loop.jobs.outside[0].tolist() == near([0, 2])


def test_jobs_of_rewards_that_run_beside_the_loop_are_no_part_of_it() -> None:
    """Asynchronous rewards: jobs were logged, but no reward span lies between the barriers."""
    rows = [r for r in TINY.spans() if not r["name"].endswith("_calculate_rewards")]

    assert known(rows, TINY.reward_jobs()).loop.jobs is None


def test_jobs_without_a_submission_time_are_not_scheduled() -> None:
    """The order in which a pool got them is not known."""
    jobs = [j | {"submitted_ns": None} for j in TINY.reward_jobs()]

    steps = known(TINY.spans(), jobs)

    assert steps.loop.jobs is None
    assert steps.workers == ()
