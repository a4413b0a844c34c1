"""What-ifs: edits of a loop, the speed-up they give, its interval, and when the tool must not say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.analysis.replay import replay
from dipstick.analysis.replay_model import Jobs, Loop, Stage
from dipstick.analysis.stats import Estimate
from dipstick.analysis.whatif import WhatIfs, compare, event_cost
from dipstick.analysis.whatif_boot import block_sums, min_detectable, steps_needed
from dipstick.analysis.whatif_edits import (
    balance_ranks,
    cap_jobs,
    faster,
    more_slots,
    overlap_bound,
    overlap_reward,
    phase_begins,
)

STAGES = (
    Stage("lengths", ("generate",)),
    Stage("reward", ("logprobs", "reward")),
    Stage("backward", ("train",)),
)


def loop_of(
    steps: int = 30, jobs: tuple[float, ...] = (3, 1, 1, 4), ready: tuple[float, ...] | None = None
) -> Loop:
    """One rank, 2 slots: generate 20, logprobs 1, jobs (makespan 6) + 0.5, train 2.5: 30 s a step."""
    n = len(jobs)
    log = Jobs(
        step=np.repeat(np.arange(steps), n),
        rank=np.zeros(n * steps, dtype=np.int64),
        seconds=np.tile(jobs, steps).astype(np.float64),
        slots=np.array([2]),
        outside=np.full((steps, 1), 0.5),
        ready=None if ready is None else np.tile(ready, steps).astype(np.float64),
    )
    return Loop(
        stages=STAGES,
        seconds=np.tile([[[20.0], [1.0], [6.5], [2.5]]], (steps, 1, 1)),
        transfer=np.zeros((steps, 3)),
        gap=np.zeros(steps),
        measured=np.full(steps, 30.0),
        gpus=np.array([1]),
        jobs=log,
    )


def step_s(loop: Loop) -> float:
    """Length of the first step."""
    return float(replay(loop).step_s[0])


class TestEdits:
    """What each edit does to a step of 30 s."""

    def test_a_faster_phase_divides_its_seconds(self) -> None:
        """Generate 20 -> 10."""
        assert step_s(faster(loop_of(), "generate", 2)) == 20.0

    def test_a_faster_reward_makes_its_jobs_and_overhead_faster(self) -> None:
        """6.5 -> 3.25."""
        assert step_s(faster(loop_of(), "reward", 2)) == 26.75

    def test_capped_jobs_are_scheduled_again(self) -> None:
        """3, 1, 1, 4 capped at 2: 2, 1, 1, 2 on two slots end at 4, not 6."""
        assert step_s(cap_jobs(loop_of(), 2)) == 28.0

    def test_a_third_slot_shortens_the_queue(self) -> None:
        """3, 1, 1 start at once, the 4 at 1: makespan 5."""
        assert step_s(more_slots(loop_of(), 1)) == 29.0

    def test_balanced_ranks_take_the_mean_of_the_scheduled_reward(self) -> None:
        """Reward 4 and 8 s (one job each): both 6, so that the barrier opens at 6."""
        loop = Loop(
            stages=(Stage("reward", ("reward",)),),
            seconds=np.array([[[4.0, 8.0]]]),
            transfer=np.zeros((1, 1)),
            gap=np.zeros(1),
            measured=np.array([8.0]),
            gpus=np.array([1, 1]),
            jobs=Jobs(
                np.array([0, 0]), np.array([0, 1]), np.array([4.0, 8.0]), np.array([1, 1]), np.zeros((1, 2))
            ),
        )

        assert (step_s(loop), step_s(balance_ranks(loop)), step_s(balance_ranks(loop, "reward"))) == (8, 6, 6)

    def test_balancing_another_phase_keeps_the_jobs(self) -> None:
        """They can still be edited afterwards."""
        assert balance_ranks(loop_of(), "generate").jobs is not None
        assert balance_ranks(loop_of(), "reward").jobs is None

    def test_overlapped_jobs_start_as_samples_finish(self) -> None:
        """Samples ready at 5, 8, 16, 19 s: of the reward only the tail is left.

        Jobs of 3, 1, 1, 4 s end at 8, 9, 17, 23, with 0.5 s of overhead at 23.5; generation ends at 20,
        logprobs at 21: 2.5 s of reward are left; 20 + 1 + 2.5 + 2.5.
        """
        assert step_s(overlap_reward(loop_of(ready=(5, 8, 16, 19)))) == 26.0

    def test_overlapped_jobs_run_in_the_order_in_which_samples_finish(self) -> None:
        """The first job's sample is the last to finish: 1, 1, 4 are done before it starts at 20."""
        assert step_s(overlap_reward(loop_of(ready=(20, 1, 2, 3)))) == 20 + 1 + (3.5 - 1) + 2.5

    def test_reward_done_before_its_turn_costs_nothing(self) -> None:
        """All samples ready at once: the 6.5 s hide behind 20 s of generation."""
        assert step_s(overlap_reward(loop_of(ready=(0, 0, 0, 0)))) == 23.5
        assert step_s(overlap_bound(loop_of())) == 23.5

    def test_overlapping_without_sample_ends_is_refused(self) -> None:
        """The message names the signal."""
        with pytest.raises(ValueError, match="end of generation of each sample"):
            overlap_reward(loop_of())

    def test_an_edit_of_jobs_needs_jobs(self) -> None:
        """Durations of a phase alone say nothing about its queue."""
        with pytest.raises(ValueError, match="needs the logged reward jobs"):
            cap_jobs(replace(loop_of(), jobs=None), 1)

    def test_phases_begin_after_those_before_them(self) -> None:
        """Reward begins after generation (20) and logprobs (1)."""
        loop = loop_of(1)

        assert phase_begins(loop, loop.seconds, "reward").tolist() == [[21]]

    def test_edits_leave_the_loop_as_it_was(self) -> None:
        """An edit returns another loop."""
        loop = loop_of()
        for edit in (faster(loop, "reward", 2), cap_jobs(loop, 1), more_slots(loop, 1), balance_ranks(loop)):
            assert edit is not loop

        assert step_s(loop) == 30.0

    @given(st.integers(0, 2**32 - 1), st.floats(0.1, 5))
    def test_a_cap_or_a_slot_never_makes_one_job_list_end_before_its_longest_job(
        self, seed: int, cap: float
    ) -> None:
        """A makespan is at least its longest job and at least its work over its slots."""
        rng = np.random.default_rng(seed)
        jobs = tuple(rng.lognormal(size=8))
        loop = loop_of(1, jobs)
        capped = np.minimum(jobs, cap)

        makespan = step_s(cap_jobs(loop, cap)) - 24.0

        assert makespan >= max(capped.max(), capped.sum() / 2) - 1e-9


class TestCompare:
    """Speed-up, waste and saved seconds."""

    def test_speedup_waste_and_saved_seconds(self) -> None:
        """40 s that would take 32 on 2 GPUs: S 1.25, waste 0.2, 16 GPU-seconds."""
        before = np.array([10.0, 10.0, 20.0])

        result = compare("x", before, before * 0.8, 2, np.random.default_rng(0))

        speedup = result.speedup
        assert (speedup.low, speedup.value, speedup.high) == pytest.approx((1.25, 1.25, 1.25))
        assert result.waste.value == pytest.approx(0.2)
        assert result.saved_gpu_s.value == pytest.approx(16)
        assert result.saved_gpu_s.low < 16 < result.saved_gpu_s.high

    def test_the_interval_covers_the_true_ratio(self) -> None:
        """Independent steps: the 95 % interval holds the true S in about 95 % of 300 runs of 60 steps."""
        rng = np.random.default_rng(1)
        covered = 0
        for _ in range(300):
            before = rng.lognormal(2, 0.3, 60)
            result = compare("x", before, before - rng.uniform(0, 2, 60), 1, rng, draws=300)
            truth = math.exp(2 + 0.045) / (math.exp(2 + 0.045) - 1)
            covered += result.speedup.low <= truth <= result.speedup.high

        assert 0.88 <= covered / 300 <= 0.99

    def test_the_same_seed_gives_the_same_interval(self) -> None:
        """Nothing is drawn from hidden state."""
        first, second = (WhatIfs(loop_of(), seed=3).faster("reward", 2) for _ in range(2))

        assert first == second


class TestBlockSums:
    """The moving-block bootstrap."""

    def test_a_sample_has_as_many_steps_as_the_run(self) -> None:
        """A column of ones sums to N in every draw, whether or not blocks divide N."""
        for steps in (1, 2, 7, 8, 31):
            assert set(block_sums(np.ones((steps, 1)), np.random.default_rng(0), 50).ravel()) == {steps}

    def test_columns_are_drawn_together(self) -> None:
        """Two equal columns keep equal sums: ratios keep their pairing."""
        column = np.random.default_rng(0).random(20)

        sums = block_sums(np.column_stack([column, column]), np.random.default_rng(1))

        assert (sums[:, 0] == sums[:, 1]).all()

    def test_neighbours_stay_together(self) -> None:
        """Steps that alternate 0, 2 in blocks of two always sum to 8: their dependence is kept."""
        assert set(block_sums(np.tile([[0.0], [2.0]], (4, 1)), np.random.default_rng(0), 50).ravel()) == {8}

    def test_a_smaller_distance_needs_more_steps(self) -> None:
        """Interval +-0.1 at 31 steps sees 0.143; half that distance needs four times the steps."""
        estimate = Estimate(0.5, 0.4, 0.6)

        assert min_detectable(estimate) == pytest.approx(0.143, abs=1e-3)
        assert steps_needed(estimate, 31, min_detectable(estimate) / 2) == 124
        assert steps_needed(estimate, 31, 0) is None
        assert steps_needed(Estimate(0.5, -math.inf, math.inf), 31, 0.1) is None


class TestWhatIfs:
    """Edits against one baseline."""

    def test_an_edit_that_changes_nothing_gives_exactly_one(self) -> None:
        """Both sides are replayed, so what the replay misses cancels."""
        assert WhatIfs(loop_of()).faster("reward", 1).speedup == Estimate(1, 1, 1)

    def test_each_edit_is_named_and_measured(self) -> None:
        """Steps of 30 s: 20 s left with generation twice as fast, and so on."""
        whatifs = WhatIfs(loop_of(ready=(5, 8, 16, 19)))
        results = [
            whatifs.faster("generate", 2),
            whatifs.cap_jobs(2),
            whatifs.more_slots(1),
            whatifs.balance(),
            whatifs.balance("reward"),
            whatifs.overlap_reward(),
        ]

        assert [(r.change, round(30 / r.speedup.value, 6), r.reason) for r in results] == [
            ("generate 2x faster", 20, ""),
            ("reward jobs capped at 2 s", 28, ""),
            ("1 more worker slot a rank", 29, ""),
            ("ranks balanced", 30, ""),
            ("reward balanced over ranks", 30, ""),
            ("reward overlapped with generation", 26, ""),
        ]

    def test_a_replay_that_misses_refuses_every_edit(self) -> None:
        """Measured 33 s, replayed 30: the numbers may be looked at, not used."""
        whatifs = WhatIfs(replace(loop_of(), measured=np.full(30, 33.0)))

        assert whatifs.faster("generate", 2).reason == "REPLAY_MISMATCH"
        assert whatifs.cap_jobs(1).reason == "REPLAY_MISMATCH"

    def test_without_jobs_the_job_edits_name_the_missing_signal(self) -> None:
        """NaN and MISSING_SIGNAL, never 1.0."""
        whatifs = WhatIfs(replace(loop_of(), jobs=None))

        for result in (whatifs.cap_jobs(1), whatifs.more_slots(1), whatifs.overlap_reward()):
            assert math.isnan(result.speedup.value)
            assert result.reason == "MISSING_SIGNAL"

    def test_without_sample_ends_overlap_is_an_upper_bound(self) -> None:
        """At most 30 / 23.5."""
        result = WhatIfs(loop_of()).overlap_reward()

        assert result.speedup.value == pytest.approx(30 / 23.5)
        assert (result.reason, result.upper_bound) == ("MISSING_SIGNAL", True)

    def test_every_answer_says_what_it_holds_fixed(self) -> None:
        """A what-if is not a forecast."""
        assert "held fixed" in WhatIfs(loop_of()).balance().held_fixed


class TestDropEvent:
    """Fired minus matched unfired."""

    def test_an_event_is_compared_with_the_steps_beside_it(self) -> None:
        """10, 13, 12, 11: the fired step cost 13 - (10 + 12) / 2."""
        cost = event_cost(np.array([10.0, 13, 12, 11]), np.array([False, True, False, False]))

        assert cost.tolist() == [0, 2, 0, 0]

    def test_at_the_edge_the_one_neighbour_is_used(self) -> None:
        """First and last step fired."""
        cost = event_cost(np.array([12.0, 10, 11, 15]), np.array([True, False, False, True]))

        assert cost.tolist() == [2, 0, 0, 4]

    def test_fired_steps_in_a_row_skip_each_other(self) -> None:
        """Both are matched with the quiet steps around the pair."""
        cost = event_cost(np.array([10.0, 15, 16, 12]), np.array([False, True, True, False]))

        assert cost.tolist() == [0, 4, 5, 0]

    def test_a_drift_of_step_times_cancels(self) -> None:
        """Steps get longer by 1 s each; the event costs 3 s on top and is found as 3."""
        fired = np.arange(30) % 5 == 2
        step = 10.0 + np.arange(30) + 3 * fired

        assert event_cost(step, fired)[fired] == pytest.approx(3)

    def test_dropping_a_checkpoint_saves_its_seconds(self) -> None:
        """6 of 30 steps cost 3 s more: 918 s become 900."""
        fired = np.arange(30) % 5 == 2
        loop = replace(loop_of(), measured=30.0 + 3 * fired)

        result = WhatIfs(loop).drop_event("checkpoint", fired)

        assert result.change == "without checkpoint"
        assert result.speedup.value == pytest.approx(918 / 900)
        assert result.saved_gpu_s.value == pytest.approx(18)
        assert result.reason == ""

    def test_a_few_fired_steps_are_too_few(self) -> None:
        """Under five fired steps a bootstrap has nothing to draw from."""
        fired = np.arange(30) % 10 == 2

        assert WhatIfs(loop_of()).drop_event("checkpoint", fired).reason == "LOW_N"

    @pytest.mark.parametrize("always", [True, False])
    def test_an_event_without_a_contrast_has_no_cost(self, always: bool) -> None:  # noqa: FBT001  # both extremes
        """Weight sync fires in every step: nothing to compare with."""
        result = WhatIfs(loop_of()).drop_event("weight sync", np.full(30, always))

        assert math.isnan(result.speedup.value)
        assert result.reason == "LOW_N"
