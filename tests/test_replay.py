"""Replay: steps rebuilt from phases, barriers and jobs; the bill that adds up; the critical path."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.analysis.replay import gate, replay, run_stages, scheduled_seconds
from dipstick.analysis.replay_model import GAP, TRL_STAGES, Jobs, Loop, Stage, carry_over, take_steps
from dipstick.analysis.replay_paid import charge_overlaps, paid
from dipstick.analysis.replay_path import critical_path, path_seconds
from dipstick.analysis.replay_schedule import group_max, list_schedule, makespans
from dipstick.phases import PHASES

TWO_STAGES = (Stage("gen", ("generate",)), Stage("train", ("train",)))


def two_ranks(steps: int = 1) -> Loop:
    """Generate 10 and 12 s, barrier; train 3 and 2 s, barrier with 0.5 s of transfer; steps of 16 s."""
    return Loop(
        stages=TWO_STAGES,
        seconds=np.tile([[[10.0, 12.0], [3.0, 2.0]]], (steps, 1, 1)),
        transfer=np.tile([[0.0, 0.5]], (steps, 1)),
        gap=np.zeros(steps),
        measured=np.full(steps, 16.0),
        gpus=np.array([1, 1]),
    )


def with_jobs(seconds: list[float], slots: int = 2, outside: float = 0.5) -> Loop:
    """One rank, one step: generate 20 s, then the jobs; measured 26.5 s."""
    n = len(seconds)
    jobs = Jobs(
        step=np.zeros(n, dtype=np.int64),
        rank=np.zeros(n, dtype=np.int64),
        seconds=np.array(seconds),
        slots=np.array([slots]),
        outside=np.array([[outside]]),
    )
    return Loop(
        stages=(Stage("reward", ("generate", "reward")),),
        seconds=np.array([[[20.0], [6.5]]]),
        transfer=np.zeros((1, 1)),
        gap=np.zeros(1),
        measured=np.array([26.5]),
        gpus=np.array([1]),
        jobs=jobs,
    )


def one_group(seconds: list[float], slots: int, release: list[float] | None = None) -> list[float]:
    ends = list_schedule(
        np.zeros(len(seconds), dtype=np.int64),
        np.array(seconds),
        np.array([slots]),
        None if release is None else np.array(release),
    )
    return [float(end) for end in ends]


class TestListSchedule:
    """Jobs on worker slots."""

    def test_a_job_goes_to_the_slot_that_is_free_first(self) -> None:
        """Slot A runs the 3 s job; slot B runs 1 and 1, then the 4 s job from 2 to 6."""
        assert one_group([3, 1, 1, 4], 2) == [3, 1, 2, 6]

    def test_one_slot_is_a_queue(self) -> None:
        """With one worker the ends are running sums."""
        assert one_group([3, 1, 4], 1) == [3, 4, 8]

    def test_more_slots_than_jobs_run_all_at_once(self) -> None:
        """Each job ends after its own length."""
        assert one_group([3, 1], 5) == [3, 1]

    def test_a_job_waits_for_its_release(self) -> None:
        """A free slot can't start a job before it is submitted."""
        assert one_group([3, 2], 1, [4, 10]) == [7, 12]

    def test_groups_do_not_share_slots_and_may_come_interleaved(self) -> None:
        """Rows of two groups in any order: each group keeps its own order."""
        ends = list_schedule(np.array([1, 0, 1, 0]), np.array([5.0, 1.0, 5.0, 1.0]), np.array([1, 1]))

        assert ends.tolist() == [5, 1, 10, 2]

    def test_groups_may_have_different_numbers_of_slots(self) -> None:
        """Group 0 has one slot, group 1 has two."""
        ends = list_schedule(np.array([0, 0, 1, 1]), np.ones(4), np.array([1, 2]))

        assert ends.tolist() == [1, 2, 1, 1]

    def test_a_group_without_slots_is_refused(self) -> None:
        """Nothing could ever run there."""
        with pytest.raises(ValueError, match="at least one worker slot"):
            list_schedule(np.array([0]), np.ones(1), np.array([0]))

    def test_no_jobs_end_at_no_time(self) -> None:
        """An empty log is an empty answer, not an error."""
        assert list_schedule(np.zeros(0, dtype=np.int64), np.zeros(0), np.array([2, 2])).tolist() == []

    @given(
        jobs=st.lists(
            st.tuples(st.integers(0, 3), st.floats(0, 10), st.floats(0, 5)), min_size=1, max_size=40
        ),
        slots=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    )
    def test_it_equals_a_heap_that_is_run_job_by_job(
        self, jobs: list[tuple[int, float, float]], slots: list[int]
    ) -> None:
        """The vectorised schedule is the textbook one."""
        free = [[0.0] * count for count in slots]
        expected = []
        for group, seconds, release in jobs:
            end = max(heapq.heappop(free[group]), release) + seconds
            heapq.heappush(free[group], end)
            expected.append(end)

        actual = list_schedule(
            np.array([j[0] for j in jobs]),
            np.array([j[1] for j in jobs]),
            np.array(slots),
            np.array([j[2] for j in jobs]),
        )

        assert expected == actual.tolist()

    def test_the_largest_of_an_empty_group_is_zero(self) -> None:
        """A step without jobs has a makespan of 0 s."""
        assert group_max(np.array([0, 0, 2]), np.array([1.0, 3.0, 2.0]), 3).tolist() == [3, 0, 2]

    def test_the_dispatch_gap_holds_a_slot_too(self) -> None:
        """Two 1 s jobs on one slot with 0.25 s of hand-over each: 2.5 s."""
        loop = with_jobs([1, 1], slots=1)
        assert loop.jobs is not None

        assert makespans(replace(loop.jobs, dispatch_s=0.25), 1).tolist() == [[2.5]]

    def test_logged_submission_times_hold_a_job_back(self) -> None:
        """The second job is submitted 5 s after the first."""
        loop = with_jobs([1, 1], slots=2)
        assert loop.jobs is not None

        assert makespans(replace(loop.jobs, submitted=np.array([0.0, 5.0])), 1).tolist() == [[6.0]]


class TestModel:
    """The arrays and their checks."""

    def test_trl_stages_use_the_phase_vocabulary(self) -> None:
        """A phase that no other layer knows would vanish from the bill."""
        assert {phase for stage in TRL_STAGES for phase in stage.phases} <= set(PHASES)
        assert PHASES[0] == GAP

    def test_a_phase_may_own_several_columns(self) -> None:
        """The gap stands in every stage."""
        loop = replace(
            two_ranks(), stages=(Stage("a", (GAP,)), Stage("b", (GAP,))), seconds=np.zeros((1, 2, 2))
        )

        assert loop.columns_of(GAP).tolist() == [0, 1]

    def test_an_unknown_phase_lists_the_known_ones(self) -> None:
        """The message is the way out."""
        with pytest.raises(ValueError, match="no phase 'sleep'; this loop has generate, train"):
            two_ranks().columns_of("sleep")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("gap", np.zeros(2)),
            ("measured", np.zeros(2)),
            ("gpus", np.ones(3, dtype=np.int64)),
            ("transfer", np.zeros((1, 3))),
            ("seconds", np.zeros((1, 3, 2))),
        ],
    )
    def test_a_wrong_shape_is_named(self, field: str, value: Any) -> None:
        """Shapes are checked once, when the loop is built."""
        with pytest.raises(ValueError, match=field):
            replace(two_ranks(), **{field: value})

    def test_a_step_must_end_in_a_barrier(self) -> None:
        """Otherwise ranks would carry their lead into the next step and T_k would have no meaning."""
        stages = (TWO_STAGES[0], Stage("train", ("train",), barrier=False))

        with pytest.raises(ValueError, match="must end in a barrier"):
            replace(two_ranks(), stages=stages)

    def test_work_after_the_last_barrier_belongs_to_the_next_step(self) -> None:
        """A checkpoint of 0.9 s on rank 0 after step 1 lengthens step 2."""
        assert carry_over(np.array([[0, 0], [0.9, 0], [0, 0]])).tolist() == [[0, 0], [0, 0], [0.9, 0]]

    def test_taking_steps_takes_their_jobs_and_renumbers_them(self) -> None:
        """Jobs of dropped steps go; those of step 2 become step 1's."""
        loop = two_ranks(3)
        jobs = Jobs(
            step=np.array([0, 1, 2, 2]),
            rank=np.array([0, 0, 0, 1]),
            seconds=np.array([1.0, 2.0, 3.0, 4.0]),
            slots=np.array([1, 1]),
            outside=np.arange(6.0).reshape(3, 2),
            worker=np.array([0, 0, 0, 1]),
        )
        loop = replace(loop, stages=(Stage("gen", ("generate",)), Stage("train", ("reward",))), jobs=jobs)

        kept = take_steps(loop, np.array([0, 2])).jobs

        assert kept is not None
        assert (kept.step.tolist(), kept.seconds.tolist()) == ([0, 1, 1], [1, 3, 4])
        assert kept.outside.tolist() == [[0, 1], [4, 5]]
        assert kept.worker is not None
        assert kept.worker.tolist() == [0, 0, 1]
        assert kept.submitted is None


class TestReplay:
    """Step times rebuilt."""

    def test_a_barrier_waits_for_the_last_rank(self) -> None:
        """12 (slowest generate) + 3 (slowest train) + 0.5 of transfer."""
        assert replay(two_ranks()).step_s.tolist() == [15.5]

    def test_without_a_barrier_a_rank_goes_on_at_once(self) -> None:
        """10 + 3 = 13 and 12 + 2 = 14: the step takes 14 + 0.5, not 15.5."""
        stages = (Stage("gen", ("generate",), barrier=False), TWO_STAGES[1])

        assert replay(replace(two_ranks(), stages=stages)).step_s.tolist() == [14.5]

    def test_the_gap_is_added_once(self) -> None:
        """Half a second that no stage holds."""
        assert replay(replace(two_ranks(), gap=np.array([0.5]))).step_s.tolist() == [16.0]

    def test_arrivals_and_begins_are_since_the_steps_start(self) -> None:
        """Both ranks begin to train when the slower one has generated."""
        run = run_stages(two_ranks(), two_ranks().seconds)

        assert run.begin[0].tolist() == [[0, 0], [12, 12]]
        assert run.arrive[0].tolist() == [[10, 12], [15, 14]]

    def test_the_reward_phase_is_its_jobs_makespan_plus_overhead(self) -> None:
        """20 + (6 + 0.5): the makespan of 3, 1, 1, 4 s on 2 slots is 6 s, not 4.5."""
        assert replay(with_jobs([3, 1, 1, 4])).step_s.tolist() == [26.5]

    def test_a_phase_with_two_columns_gets_its_jobs_once(self) -> None:
        """A reward phase that returns later in the step is not paid twice."""
        loop = with_jobs([1])
        loop = replace(
            loop,
            stages=(*loop.stages, Stage("more", ("reward",))),
            seconds=np.array([[[20.0], [1.0], [0.5]]]),
            transfer=np.zeros((1, 2)),
        )

        assert scheduled_seconds(loop)[0, :, 0].tolist() == [20, 1.5, 0]

    def test_without_jobs_the_measured_seconds_are_used(self) -> None:
        """No job log, no schedule."""
        loop = two_ranks()

        assert scheduled_seconds(loop) is loop.seconds


class TestGate:
    """When a replay may be used."""

    def test_a_replay_that_meets_the_measured_steps_passes(self) -> None:
        """15.5 against 15.5."""
        result = gate(replace(two_ranks(5), measured=np.full(5, 15.5)))

        assert (result.median, result.p90, result.steps, result.passed, result.reason) == (0, 0, 5, True, "")

    def test_a_few_bad_steps_are_enough_to_refuse(self) -> None:
        """Errors 1, 1, 0 and 10 %: the median (1 %) is fine, the 90th percentile (7.3 %) is not."""
        loop = replace(two_ranks(4), measured=np.array([15.5 / 1.01, 15.5 / 0.99, 15.5, 15.5 / 1.1]))

        result = gate(loop)

        assert result.median == pytest.approx(0.01)
        assert result.p90 == pytest.approx(0.073)
        assert (result.passed, result.reason) == (False, "REPLAY_MISMATCH")

    def test_a_constant_error_above_two_percent_is_refused(self) -> None:
        """16 measured, 15.5 replayed: 3.1 % everywhere."""
        assert gate(two_ranks(10)).reason == "REPLAY_MISMATCH"

    def test_no_usable_step_is_a_refusal(self) -> None:
        """Nothing measured, nothing to trust."""
        result = gate(replace(two_ranks(2), measured=np.array([0.0, np.nan])))

        assert (result.steps, result.passed, result.reason) == (0, False, "REPLAY_MISMATCH")


class TestPaid:
    """The bill of GPU-seconds."""

    def test_every_gpu_second_is_on_one_line(self) -> None:
        """Two GPUs for 16 s: the lines of the docstring's example add up to 32."""
        bill = paid(two_ranks())

        assert [(row.name, row.kind, row.gpu_s) for row in bill.rows] == [
            ("generate", "phase", 22.0),
            ("train", "phase", 5.0),
            ("gen", "wait", 2.0),
            ("train", "wait", 1.0),
            ("transfer", "transfer", 1.0),
            ("unattributed", "gap", 1.0),
        ]
        assert bill.total_gpu_s == 32.0

    def test_a_rank_with_more_gpus_pays_more(self) -> None:
        """Rank 1 has 3 GPUs: generate costs 10 + 3 x 12."""
        bill = paid(replace(two_ranks(), gpus=np.array([1, 3])))

        assert bill.rows[0].gpu_s == 46.0
        assert bill.total_gpu_s == 64.0

    def test_the_most_expensive_line_can_be_a_wait(self) -> None:
        """One rank generates 2 s, the other 20: the wait (18) costs less than generate (22)."""
        seconds = np.array([[[2.0, 20.0], [1.0, 1.0]]])
        assert paid(replace(two_ranks(), seconds=seconds)).most == "generate"

        three = Loop(
            stages=TWO_STAGES[:1],
            seconds=np.array([[[2.0, 2.0, 20.0]]]),
            transfer=np.zeros((1, 1)),
            gap=np.zeros(1),
            measured=np.array([20.0]),
            gpus=np.array([1, 1, 1]),
        )
        assert paid(three).most == "gen"

    @pytest.mark.parametrize(("measured", "ok"), [(16.0, True), (17.0, False), (14.0, False)])
    def test_more_than_five_percent_unexplained_is_flagged(self, measured: float, ok: bool) -> None:  # noqa: FBT001  # the expected value
        """15.5 s of a step are explained; too much explained is as bad as too little."""
        assert paid(replace(two_ranks(), measured=np.array([measured]))).gap_ok is ok

    def test_columns_of_the_gap_are_gap(self) -> None:
        """Time inside a stage that no span covers is never a phase."""
        loop = replace(two_ranks(), stages=(Stage("gen", ("generate",)), Stage("train", (GAP,))))

        rows = {row.name: row.gpu_s for row in paid(loop).rows if row.kind in {"phase", "gap"}}

        assert rows == {"generate": 22.0, "unattributed": 6.0}

    @given(st.integers(0, 2**32 - 1))
    def test_the_bill_adds_up_for_any_loop(self, seed: int) -> None:
        """Conservation: sum over lines = G x sum of step times."""
        rng = np.random.default_rng(seed)
        loop = Loop(
            stages=TRL_STAGES,
            seconds=rng.lognormal(size=(5, 11, 3)),
            transfer=rng.random((5, 3)),
            gap=rng.random(5),
            measured=rng.uniform(10, 30, 5),
            gpus=np.array([1, 2, 4]),
        )

        bill = paid(loop)

        assert sum(row.gpu_s for row in bill.rows) == pytest.approx(7 * loop.measured.sum())
        assert sum(row.share for row in bill.rows) == pytest.approx(1)


class TestChargeOverlaps:
    """Seconds of overlapping phases."""

    START, END = np.array([0.0, 6.0]), np.array([10.0, 14.0])
    PHASE = np.array([0, 1])

    def test_overlapping_phases_share_the_seconds(self) -> None:
        """Generate [0, 10), reward [6, 14): 6 + 4/2 and 4/2 + 4."""
        assert charge_overlaps(self.START, self.END, self.PHASE, 2).tolist() == [8, 6]

    def test_the_gpu_phase_can_come_first(self) -> None:
        """Then generate keeps all of its 10 s."""
        charged = charge_overlaps(self.START, self.END, self.PHASE, 2, first=np.array([0]))

        assert charged.tolist() == [10, 4]

    def test_two_spans_of_one_phase_count_once(self) -> None:
        """Nested spans of the same phase are one phase."""
        assert charge_overlaps(self.START, self.END, np.array([0, 0]), 1).tolist() == [14]

    def test_no_spans_cost_nothing(self) -> None:
        """An empty timeline has no seconds."""
        empty = np.zeros(0)

        assert charge_overlaps(empty, empty, np.zeros(0, dtype=np.int64), 2).tolist() == [0, 0]

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 3)), min_size=1))
    def test_the_charges_add_up_to_the_covered_time(self, spans: list[tuple[int, int, int]]) -> None:
        """No second is charged twice or lost, with either rule."""
        covered = len({t for start, length, _ in spans for t in range(start, start + length)})
        start = np.array([float(s[0]) for s in spans])
        end = start + np.array([s[1] for s in spans])
        phase = np.array([s[2] for s in spans])

        for first in (None, np.array([0, 2])):
            assert charge_overlaps(start, end, phase, 4, first).sum() == pytest.approx(covered)


class TestCriticalPath:
    """The walk back over the barriers."""

    def test_it_follows_the_last_rank_to_each_barrier(self) -> None:
        """Rank 1's generate, then rank 0's train; 0.5 s of transfer and 0.5 s of gap of 16."""
        path = critical_path(two_ranks(), np.random.default_rng(0))

        assert [(row.phase, row.seconds, row.share.value) for row in path.rows] == [
            ("generate", 12.0, 0.75),
            ("train", 3.0, 0.1875),
        ]
        assert (path.transfer_share, path.gap_share) == (0.03125, 0.03125)
        assert path.last_rank.tolist() == [[1, 0]]
        assert path.longest == "generate"

    def test_removing_a_phase_is_bounded_by_its_share(self) -> None:
        """1 / (1 - 0.75)."""
        assert critical_path(two_ranks(), np.random.default_rng(0)).row("generate").removal_bound == 4

    def test_the_lead_is_over_the_largest_other_phase(self) -> None:
        """0.75 - 0.1875, and the same below zero for the other."""
        path = critical_path(two_ranks(), np.random.default_rng(0))

        assert [row.lead.value for row in path.rows] == [0.5625, -0.5625]

    def test_stages_without_a_barrier_belong_to_the_rank_that_is_last_later(self) -> None:
        """Rank 1 is last at the only barrier (14 against 13): both its phases are on the path."""
        loop = replace(two_ranks(), stages=(Stage("gen", ("generate",), barrier=False), TWO_STAGES[1]))

        on_path, last = path_seconds(loop)

        assert (on_path.tolist(), last.tolist()) == ([[12, 2]], [[1]])

    def test_equal_steps_leave_no_doubt(self) -> None:
        """Every bootstrap sample is the same, so the interval has no width."""
        share = critical_path(two_ranks(30), np.random.default_rng(0)).row("train").share

        assert (share.low, share.high) == pytest.approx((0.1875, 0.1875))

    def test_an_absent_phase_is_an_error(self) -> None:
        """A claim about a phase that the loop lacks can't be answered from its path."""
        with pytest.raises(KeyError, match="sleep"):
            critical_path(two_ranks(), np.random.default_rng(0)).row("sleep")

    @given(st.integers(0, 2**32 - 1))
    def test_shares_and_gap_sum_to_one(self, seed: int) -> None:
        """Whatever the loop: phases + transfer + gap = 1."""
        rng = np.random.default_rng(seed)
        loop = Loop(
            stages=TRL_STAGES,
            seconds=rng.lognormal(size=(6, 11, 4)),
            transfer=rng.random((6, 3)),
            gap=rng.random(6),
            measured=rng.uniform(10, 30, 6),
            gpus=np.ones(4, dtype=np.int64),
        )

        path = critical_path(loop, rng, draws=10)

        shares = sum(row.share.value for row in path.rows)
        assert shares + path.transfer_share + path.gap_share == pytest.approx(1)
