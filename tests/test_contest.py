"""Which boundary do the dips follow? The anchor contest and the step shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from calibration.loops import contest_onsets, draw_run
from dipstick.analysis.contest import ContestResult, anchor_contest, dispersion, one_per_step, step_shuffle_p

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray

NAN = float("nan")


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def contest(steps: int, lag_sd: float, seed: int = 1) -> ContestResult:
    """Reward start is the true anchor; 15 % of the dips are strays."""
    run = draw_run(rng(seed), steps, 0.2)
    return anchor_contest(run.boundaries, contest_onsets(rng(seed + 1), run, lag_sd), rng(seed + 2))


def test_the_true_anchor_wins_when_its_lag_is_steady() -> None:
    """Lag SD 0.2 s against a reward phase that varies by 1.8 s, 40 steps."""
    actual = contest(40, 0.2)

    assert (actual.winner, actual.leader, actual.unresolved) == ("reward", "reward", ("reward",))
    assert actual.probability["reward"] >= 0.95
    assert actual.lag_s.low <= 1.0 <= actual.lag_s.high
    assert actual.separation is not None
    assert actual.separation > 3
    assert actual.reasons == ()


def test_anchors_that_cannot_be_told_apart_are_listed_together() -> None:
    """Lag SD 4 s: no winner, reward among the candidates, COLLINEAR."""
    actual = contest(40, 4.0)

    assert actual.winner is None
    assert "reward" in actual.unresolved
    assert len(actual.unresolved) > 1
    assert actual.reasons == ("COLLINEAR",)


def test_anchors_that_never_move_apart_both_lead() -> None:
    """Gather always exactly 2 s behind reward: ties are nobody's win."""
    reward = np.cumsum(rng().uniform(50, 70, 30))
    onsets = reward + 1 + rng(2).normal(0, 0.1, 30)

    actual = anchor_contest({"reward": reward, "gather": reward + 2}, onsets, rng())

    assert actual.winner is None
    assert actual.separation == pytest.approx(0.0, abs=1e-6)


def test_dispersion_of_the_docstrings_example() -> None:
    """Lags 1.0, 1.1, 0.9, 1.0 and 30, 34, 28, 33."""
    actual = dispersion(np.array([[1.0, 1.1, 0.9, 1.0], [30.0, 34.0, 28.0, 33.0]]))

    assert actual.tolist() == pytest.approx([0.05, 2.0])


def test_steps_without_a_dip_or_an_anchor_are_left_out() -> None:
    """Of 30 steps 3 have no dip and 2 no gather: 25 count."""
    run = draw_run(rng(), 30, 0.2)
    onsets = run.starts[:, 1] + 1
    onsets[:3] = NAN
    gather = run.starts[:, 2].copy()
    gather[-2:] = NAN

    actual = anchor_contest({"reward": run.starts[:, 1], "gather": gather}, onsets, rng())

    assert actual.steps == 25


def test_few_steps_are_not_judged() -> None:
    """Seven: LOW_N, every anchor still possible, no lag."""
    actual = contest(7, 0.2)

    assert (actual.winner, actual.leader, actual.reasons) == (None, None, ("LOW_N",))
    assert set(actual.unresolved) == {"generate", "reward", "gather", "train", "sync"}
    assert np.isnan(actual.lag_s.value)


def test_no_anchors_is_not_an_error() -> None:
    """Nothing to choose from."""
    assert anchor_contest({}, np.ones(30), rng()).leader is None


def test_a_single_anchor_has_no_rival() -> None:
    """It wins, and the separation is unknown rather than infinite."""
    run = draw_run(rng(), 30, 0.2)

    actual = anchor_contest({"reward": run.starts[:, 1]}, contest_onsets(rng(2), run, 0.2), rng())

    assert actual.winner == "reward"
    assert actual.separation is None


def test_a_long_run_is_thinned_and_says_so() -> None:
    """5,700 steps: 1,000 evenly spaced ones are resampled."""
    actual = contest(5700, 1.0)

    assert (actual.steps, actual.steps_used) == (5700, 1000)
    assert actual.winner == "reward"


def test_equal_seeds_give_equal_results() -> None:
    """The generator is the only source of chance."""
    assert contest(20, 1.0) == contest(20, 1.0)


# -- one onset a step


def starts() -> FloatArray:
    return np.array([0.0, 10.0, 20.0])


def test_the_first_onset_of_each_step_is_taken_by_default() -> None:
    """Step 2 has none."""
    actual = one_per_step(starts(), 30.0, np.array([2.0, 7.0, 12.0]))

    assert actual[:2].tolist() == [2.0, 12.0]
    assert np.isnan(actual[2])


def test_the_largest_dip_of_each_step_is_taken_by_weight() -> None:
    """7 s outweighs 2 s."""
    actual = one_per_step(starts(), 30.0, np.array([2.0, 7.0, 12.0]), np.array([1.0, 5.0, 2.0]))

    assert actual[:2].tolist() == [7.0, 12.0]


def test_onsets_outside_the_steps_belong_to_none() -> None:
    """Before the first step and after the last one's end."""
    actual = one_per_step(starts() + 5, 30.0, np.array([1.0, 31.0]))

    assert np.isnan(actual).all()


# -- step shuffle


def test_dips_that_follow_a_moving_boundary_beat_shuffled_steps() -> None:
    """The boundary wanders by 5 s from step to step, the dip with it."""
    boundary = rng().normal(30, 5, 40)

    assert step_shuffle_p(boundary, boundary + rng(2).normal(1, 0.3, 40), 1.0, rng(3)) == 0.001


def test_dips_at_a_fixed_time_in_the_step_do_not() -> None:
    """They would fit any step's boundary as well."""
    boundary = rng().normal(30, 5, 40)

    p_value = step_shuffle_p(boundary, 31 + rng(2).normal(0, 0.3, 40), 1.0, rng(3))

    assert p_value is not None
    assert p_value > 0.05


def test_a_boundary_that_does_not_move_cannot_be_tested() -> None:
    """SD below the tolerance, or fewer than 8 steps with both."""
    steady = rng().normal(30, 0.1, 40)
    few = np.where(np.arange(40) < 7, rng().normal(30, 5, 40), NAN)

    assert step_shuffle_p(steady, steady + 1, 1.0, rng()) is None
    assert step_shuffle_p(few, few + 1, 1.0, rng()) is None
