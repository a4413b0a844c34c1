"""Drift, change points, and the covariate that explains them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.ar_null import ar1_draws, memory_of
from dipstick.analysis.change_points import find_changes
from dipstick.analysis.trend_causes import explain_drift, share_explained
from dipstick.analysis.trends import TrendOptions, judge_thinning, judge_trend

if TYPE_CHECKING:
    from dipstick.model import FloatArray

QUICK = TrendOptions(draws=399)
STEPS = np.arange(60.0)


def noise(n: int, sd: float = 1.0, seed: int = 0) -> FloatArray:
    """White noise."""
    return np.random.default_rng(seed).normal(0, sd, n)


def wander(n: int, memory: float, seed: int) -> FloatArray:
    """A stationary AR(1) series of unit variance."""
    shock = np.random.default_rng(seed).normal(size=n + 200)
    for k in range(1, shock.size):
        shock[k] += memory * shock[k - 1]
    return np.asarray(shock[200:] * np.sqrt(1 - memory**2))


class TestDrift:
    """Steps getting longer."""

    def test_the_worked_example(self) -> None:
        """100 + k seconds: 59 of 129.5 is 46 % over the run."""
        found = judge_trend(100 + STEPS + noise(60), options=QUICK)

        assert (found.verdict, found.shape) == ("yes", "drift")
        assert found.slope == pytest.approx(1.0, abs=0.03)
        assert found.change.value == pytest.approx(59 / 129.5, abs=0.02)

    def test_fifteen_percent_is_partial(self) -> None:
        """Between the thresholds of 10 and 20 %."""
        assert judge_trend(100 + 0.25 * STEPS + noise(60), options=QUICK).verdict == "partially"

    def test_falling_counts_as_drift(self) -> None:
        """Minus one second a step."""
        found = judge_trend(200 - STEPS + noise(60), options=QUICK)

        assert found.verdict == "yes"
        assert found.change.value < -0.2

    def test_a_steady_series_gets_a_no(self) -> None:
        """100 +- 1: the interval lies within 10 %."""
        found = judge_trend(100 + noise(60), options=QUICK)

        assert (found.verdict, found.shape, found.change_points) == ("no", "flat", ())

    def test_a_noisy_steady_series_stays_open_with_what_it_could_see(self) -> None:
        """100 +- 60."""
        found = judge_trend(100 + noise(60, 60.0), options=QUICK)

        assert (found.verdict, found.codes) == ("unconfirmed", ("LOW_N",))
        assert found.detectable is not None
        assert found.detectable > 0.2

    def test_nineteen_steps_are_too_few(self) -> None:
        """Twenty are the minimum."""
        assert judge_trend(100 + np.arange(19.0), options=QUICK).codes == ("LOW_N",)

    def test_a_constant_does_not_drift(self) -> None:
        """No variance, no warning."""
        assert judge_trend(np.full(30, 5.0)).verdict == "no"

    def test_a_short_constant_is_open(self) -> None:
        """Three steps."""
        assert judge_trend(np.full(3, 5.0)).codes == ("LOW_N",)

    def test_missing_steps_keep_their_place(self) -> None:
        """Slope per step, not per sample: every second step is missing."""
        y = 100 + STEPS + noise(60)
        y[::2] = np.nan

        assert judge_trend(y, options=QUICK).slope == pytest.approx(1.0, abs=0.06)

    def test_series_with_memory_are_rarely_called_drifting(self) -> None:
        """100 AR(0.8) series of 40 steps around 100, SD 15: at most 12 at nominal 5 %."""
        drifts = [
            judge_trend(100 + 15 * wander(40, 0.8, seed), options=TrendOptions(draws=199)).p_value <= 0.05
            for seed in range(100)
        ]

        assert sum(drifts) <= 12


class TestChangePoints:
    """Jumps to another level."""

    def test_the_worked_example(self) -> None:
        """20 steps around 10, then 20 around 15."""
        found = find_changes(np.repeat([10.0, 15.0], 20) + noise(40, 0.5), np.random.default_rng(0))

        assert [c.step for c in found] == [20]
        assert [found[0].before, found[0].after] == pytest.approx([10.0, 15.0], abs=0.3)

    def test_two_jumps_are_two_changes(self) -> None:
        """10, 20, 10."""
        found = find_changes(np.repeat([10.0, 20.0, 10.0], 30) + noise(90), np.random.default_rng(0))

        assert [c.step for c in found] == [30, 60]

    def test_a_jump_fits_better_as_levels_than_as_a_line(self) -> None:
        """Restart with another batch size at step 30."""
        found = judge_trend(np.repeat([100.0, 140.0], 30) + noise(60), options=QUICK)

        assert found.shape == "change"
        assert [c.step for c in found.change_points] == [30]

    def test_a_line_is_not_reported_as_stairs(self) -> None:
        """Levels would imitate it, so they are left out."""
        assert judge_trend(100 + STEPS + noise(60), options=QUICK).change_points == ()

    def test_changes_name_the_step_not_the_sample(self) -> None:
        """The first ten steps are missing."""
        y = np.repeat([100.0, 140.0], 30) + noise(60)
        y[:10] = np.nan

        assert [c.step for c in judge_trend(y, options=QUICK).change_points] == [30]

    def test_noise_has_no_change(self) -> None:
        """60 steps."""
        assert find_changes(noise(60, seed=4), np.random.default_rng(0)) == ()

    def test_short_and_constant_series_have_none(self) -> None:
        """15 steps, or no variance."""
        rng = np.random.default_rng(0)

        assert find_changes(np.repeat([0.0, 9.0], [7, 8]), rng) == find_changes(np.zeros(40), rng) == ()


class TestExplanations:
    """Which covariate is behind the drift."""

    def test_a_covariate_that_moves_the_series_step_by_step_explains_its_drift(self) -> None:
        """Step time = 0.3 x completion length, and length drifts; a bystander drifts as well."""
        length = 100 + 2 * STEPS + noise(60, 8.0)
        bystander = STEPS + noise(60, 3.0, seed=1)
        y = 0.3 * length + noise(60, 0.5, seed=2)
        found = judge_trend(y, {"completion_length": length, "loss": bystander}, QUICK)

        assert found.because == ("completion_length",)
        assert found.covariates[0].share.value == pytest.approx(1.0, abs=0.15)
        assert not found.covariates[1].explains

    def test_a_drift_of_its_own_has_no_explanation(self) -> None:
        """Both rise, nothing else in common."""
        found = judge_trend(100 + STEPS + noise(60), {"loss": STEPS + noise(60, 5.0, seed=1)}, QUICK)

        assert (found.verdict, found.because) == ("yes", ())

    def test_a_falling_covariate_can_explain_a_rise(self) -> None:
        """More free slots, shorter steps."""
        slots = 100 - STEPS + noise(60, 8.0)
        found = judge_trend(300 - slots + noise(60, 0.5, seed=1), {"slots": slots}, QUICK)

        assert found.because == ("slots",)

    def test_a_steady_series_needs_no_explanation(self) -> None:
        """It follows the covariate, but does not drift."""
        x = noise(60, 5.0)
        found = judge_trend(100 + x + noise(60, 0.5, seed=1), {"x": x}, QUICK)

        assert found.because == ()

    def test_a_series_that_does_not_move_needs_no_explanation(self) -> None:
        """Where that is not asked for, no covariate is tried on it; one that moves is explained as ever."""
        flat, rising, x = 100 + noise(60), 100 + STEPS + noise(60), {"x": STEPS + noise(60, seed=1)}
        sparing = replace(QUICK, explain_flat=False)

        assert [len(judge_trend(flat, x, o).covariates) for o in (QUICK, sparing)] == [1, 0]
        assert judge_trend(flat, None, sparing) == judge_trend(flat, x, sparing)
        assert judge_trend(rising, x, QUICK) == judge_trend(rising, x, sparing)

    def test_a_constant_covariate_is_not_tried(self) -> None:
        """224 tokens in each step."""
        assert explain_drift(100 + STEPS, {"tokens": np.full(60, 224.0)}, np.random.default_rng(0)) == ()

    def test_the_share_is_exact_for_an_exact_relation(self) -> None:
        """Y = 2 c."""
        c = 10 * STEPS / 60 + noise(60)

        assert share_explained(2 * c, c, np.random.default_rng(0)).value == pytest.approx(1.0)

    def test_too_few_steps_have_no_share(self) -> None:
        """Seven."""
        share = share_explained(np.arange(7.0), noise(7), np.random.default_rng(0))

        assert np.isnan(share.value)


class TestThinning:
    """Dips thinning out."""

    def test_longer_steps_thin_the_dips_of_the_graph_but_not_of_the_loop(self) -> None:
        """One dip a step, steps from 60 to 120 s."""
        edges = np.concatenate([[0.0], np.cumsum(60 + STEPS + noise(60))])
        found = judge_thinning(edges[:-1] + 33, edges, options=QUICK)

        assert found.because == "steps_longer"
        assert found.per_minute.change.value < -0.4
        assert found.per_step.verdict == "no"

    def test_fewer_dips_a_step_are_told_apart(self) -> None:
        """Five dips a step at first, one at the end, steps of 60 s."""
        edges = np.concatenate([[0.0], np.cumsum(60 + noise(60))])
        count = np.round(5 - 4 * STEPS / 59).astype(int)
        onset = np.concatenate([e + 5 + 10 * np.arange(c) for e, c in zip(edges[:-1], count, strict=True)])

        assert judge_thinning(onset, edges, options=QUICK).because == "fewer_per_step"

    def test_shorter_steps_crowd_the_dips(self) -> None:
        """Steps from 120 to 60 s."""
        edges = np.concatenate([[0.0], np.cumsum(120 - STEPS + noise(60))])

        assert judge_thinning(edges[:-1] + 20, edges, options=QUICK).because == "steps_shorter"

    def test_a_steady_rate_is_steady(self) -> None:
        """One dip a step of 60 +- 1 s."""
        edges = np.concatenate([[0.0], np.cumsum(60 + noise(60))])
        found = judge_thinning(edges[:-1] + 20, edges, options=QUICK)

        assert (found.because, found.per_minute.verdict) == (None, "no")


class TestNull:
    """Series that only look like they drift."""

    def test_memory_is_rounded_up(self) -> None:
        """White noise reads a little above 0, AR(0.8) at least 0.8 on average."""
        white = np.mean([memory_of(noise(60, seed=s)) for s in range(50)])
        strong = np.mean([memory_of(wander(60, 0.8, s)) for s in range(50)])

        assert 0 <= white < 0.3
        assert strong > 0.8

    def test_five_values_have_no_memory(self) -> None:
        """Too few to say."""
        assert memory_of(np.arange(5.0)) == 0.0

    def test_draws_have_the_memory_asked_for(self) -> None:
        """Lag-1 autocorrelation of long draws."""
        rows = ar1_draws(np.random.default_rng(0), noise(2000), 0.7, 20)
        lag = np.mean([np.corrcoef(r[:-1], r[1:])[0, 1] for r in rows])

        assert lag == pytest.approx(0.7, abs=0.03)

    def test_long_series_take_fewer_draws(self) -> None:
        """5,700 steps: 350 instead of 999."""
        assert ar1_draws(np.random.default_rng(0), noise(5700), 0.5, 999).shape == (350, 5700)
