"""Idle by synchronization: who waited, for whom, what one rank alone would give back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dipstick.analysis.replay_model import Loop, Stage
from dipstick.analysis.replay_waits import barrier_waits, blame_shares, last_arrivers, persistence


def loop_of(arrivals: list[list[float]], gpus: list[int] | None = None) -> Loop:
    """One barrier stage whose work is the arrivals; the step ends with the last one."""
    seconds = np.array(arrivals, dtype=np.float64)
    return Loop(
        stages=(Stage("reward", ("reward",)),),
        seconds=seconds[:, None, :],
        transfer=np.zeros((len(arrivals), 1)),
        gap=np.zeros(len(arrivals)),
        measured=seconds.max(axis=1),
        gpus=np.array(gpus or [1] * seconds.shape[1]),
    )


class TestBarrierWaits:
    """Waiting, blame and what is recoverable."""

    def test_the_early_rank_waits_and_the_late_one_is_blamed(self) -> None:
        """Arrivals 10 and 12 s: 2 GPU-seconds of 24, all blamed on rank 1."""
        (wait,) = barrier_waits(loop_of([[10, 12]]))

        assert (wait.name, wait.wait_gpu_s, wait.share) == ("reward", 2.0, 2 / 24)
        assert wait.waited_s.tolist() == [2, 0]
        assert wait.blame_gpu_s.tolist() == [0, 2]
        assert wait.recoverable_s.tolist() == [0, 2]
        assert wait.last_count.tolist() == [0, 1]

    def test_waits_weigh_the_waiting_ranks_gpus(self) -> None:
        """A rank of 4 GPUs that waits 2 s wastes 8 GPU-seconds."""
        (wait,) = barrier_waits(loop_of([[10, 12]], gpus=[4, 1]))

        assert wait.wait_gpu_s == 8.0

    def test_recoverable_is_last_minus_second_last_only(self) -> None:
        """Arrivals 4, 10, 12: fixing rank 2 saves 2 s, although the others waited 8 + 2."""
        (wait,) = barrier_waits(loop_of([[4, 10, 12]]))

        assert wait.blame_gpu_s.tolist() == [0, 0, 10]
        assert wait.recoverable_s.tolist() == [0, 0, 2]

    def test_imbalance_is_the_mean_of_ratios(self) -> None:
        """Ranks take turns at 10 and 12 s: no rank is slow on average, yet every step costs 12/11."""
        (wait,) = barrier_waits(loop_of([[10, 12], [12, 10]]))

        assert wait.imbalance == pytest.approx(12 / 11)

    def test_imbalance_counts_from_the_last_barrier(self) -> None:
        """Second barrier: work 5 and 3 s since the first one, 5 / 4."""
        loop = replace(
            loop_of([[10, 12]]),
            stages=(Stage("gen", ("generate",)), Stage("reward", ("reward",))),
            seconds=np.array([[[10.0, 12.0], [5.0, 3.0]]]),
            transfer=np.zeros((1, 2)),
            measured=np.array([17.0]),
        )

        first, second = barrier_waits(loop)

        assert (first.imbalance, second.imbalance) == (12 / 11, 5 / 4)

    def test_a_single_rank_waits_for_nobody(self) -> None:
        """No peers, no waits."""
        (wait,) = barrier_waits(loop_of([[10], [12]]))

        assert (wait.wait_gpu_s, wait.imbalance) == (0, 1)
        assert wait.recoverable_s.tolist() == [0]

    def test_a_clock_too_coarse_splits_the_blame(self) -> None:
        """12.0 and 12.3 s can't be told apart by clocks good to half a second."""
        arrivals = np.array([[10.0, 12.0, 12.3]])

        assert blame_shares(arrivals).tolist() == [[0, 0, 1]]
        assert blame_shares(arrivals, clock_s=0.5).tolist() == [[0, 0.5, 0.5]]


class TestLastArrivers:
    """The exact test for one slow rank."""

    def test_eleven_of_twelve_is_no_accident(self) -> None:
        """The 135m trace: p = 13 / 4096 one-sided, doubled by Holm over two ranks."""
        blame = np.array([[0.0, 1.0]] * 11 + [[1.0, 0.0]])

        zero, one = last_arrivers(blame)

        assert one.p == pytest.approx(13 / 4096)
        assert one.p_holm == pytest.approx(26 / 4096)
        assert one.share.value == pytest.approx(11 / 12)
        assert one.excess.value == pytest.approx(5 / 6)
        assert zero.p > 0.99

    def test_twenty_of_thirty_one_is_not_enough(self) -> None:
        """The flagship trace: p = 0.075, 0.15 after Holm."""
        _, one = last_arrivers(np.array([[0.0, 1.0]] * 20 + [[1.0, 0.0]] * 11))

        assert one.p == pytest.approx(0.0748, abs=1e-4)
        assert one.p_holm == pytest.approx(0.1496, abs=1e-4)

    def test_ties_count_in_part_and_never_lower_the_p(self) -> None:
        """Ten ties of two ranks: 5 each, as chance would have it."""
        one, two = last_arrivers(np.full((10, 2), 0.5))

        assert (one.share.value, two.share.value) == (0.5, 0.5)
        assert one.p == pytest.approx(0.623, abs=1e-3)

    def test_one_rank_or_no_step_has_no_answer(self) -> None:
        """Nothing to compare."""
        assert last_arrivers(np.ones((5, 1))) == ()
        assert last_arrivers(np.ones((0, 2))) == ()

    def test_the_level_holds_when_no_rank_is_slow(self) -> None:
        """400 runs of 30 steps and 4 equal ranks: a rank is called slow in at most 5 % (+2 SE) of them."""
        rng = np.random.default_rng(5)
        arrivals = rng.lognormal(size=(400, 30, 4))

        called = [min(r.p_holm for r in last_arrivers(blame_shares(a))) <= 0.05 for a in arrivals]

        assert np.mean(called) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)


class TestPersistence:
    """Whether the same rank stays last."""

    def test_long_streaks_persist(self) -> None:
        """Rank 0 last for 20 steps, then rank 1 for 20: 38 of 39 neighbours agree."""
        result = persistence(np.repeat([0, 1], 20).astype(float), np.random.default_rng(0))

        assert result.agreement == pytest.approx(38 / 39)
        assert result.p == 0.001

    def test_turns_do_not_persist(self) -> None:
        """Alternating ranks never agree with the step before."""
        result = persistence(np.tile([0.0, 1.0], 20), np.random.default_rng(0))

        assert (result.agreement, result.p) == (0, 1)

    def test_six_steps_are_too_few(self) -> None:
        """Two orders of twenty agree as often: p about 0.1 although the streaks are perfect."""
        result = persistence(np.array([0.0, 0, 0, 1, 1, 1]), np.random.default_rng(0))

        assert result.p == pytest.approx(0.1, abs=0.03)
