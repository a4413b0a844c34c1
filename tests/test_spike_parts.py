"""The parts of check 3: shift test, mixture, exact power, cadence."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis.spike_cadence import cadence, rayleigh
from dipstick.analysis.spike_mixture import fit_mixture
from dipstick.analysis.spike_null import hit_test
from dipstick.analysis.spike_power import excess_power, fisher_power, growth_needed, smallest_rate
from dipstick.analysis.stats import fisher_greater


class TestHitTest:
    """Windows against shifted spikes."""

    def test_spikes_locked_to_uneven_steps_are_found(self) -> None:
        """30 steps of 60 +- 4 s, a spike at 50 s into each."""
        rng = np.random.default_rng(0)
        edges = np.concatenate([[0.0], np.cumsum(60 + rng.normal(0, 4, 30))])
        onset = edges[:-1] + 50
        found = hit_test(onset, (onset - 1, onset + 1), edges, rng, 399, 3.0)

        assert (found.hits, found.windows) == (30, 30)
        assert found.p_value < 0.02

    def test_the_larger_of_the_two_shifts_counts(self) -> None:
        """Whatever they are."""
        rng = np.random.default_rng(1)
        edges = np.arange(31.0) * 60.0
        onset = np.sort(rng.uniform(0, 1800, 30))
        found = hit_test(onset, (edges[:-1] + 10, edges[:-1] + 20), edges, rng, 199, 3.0)

        assert found.p_value == max(found.p_global, found.p_block)

    def test_chance_is_the_share_of_time_that_windows_cover(self) -> None:
        """One spike in each 60 s at random, windows of 6 s: about 0.1."""
        rng = np.random.default_rng(2)
        edges = np.arange(101.0) * 60.0
        onset = np.sort(rng.uniform(0, 6000, 100))
        found = hit_test(onset, (edges[:-1] + 10, edges[:-1] + 16), edges, rng, 399, 3.0)

        assert found.chance == pytest.approx(0.1, abs=0.03)

    def test_no_windows_or_no_spikes_is_not_evidence(self) -> None:
        """P = 1."""
        rng = np.random.default_rng(3)
        edges = np.arange(11.0) * 60.0

        assert hit_test(np.empty(0), (edges[:-1], edges[:-1] + 5), edges, rng).p_value == 1.0
        assert hit_test(np.array([5.0]), (np.empty(0), np.empty(0)), edges, rng).p_value == 1.0

    def test_a_window_across_the_end_of_the_circle_is_turned_with_it(self) -> None:
        """A spike train that fills the run is hit under every shift, so p is 1."""
        rng = np.random.default_rng(4)
        edges = np.arange(9.0) * 10.0
        onset = np.arange(0.5, 80.0, 1.0)
        found = hit_test(onset, (np.array([78.0]), np.array([81.0])), edges, rng, 99)

        assert (found.chance, found.p_value) == (1.0, 1.0)


class TestMixture:
    """Sharing spikes out."""

    def test_the_worked_example(self) -> None:
        """1,000 s, ten windows of 2 s, 9 spikes inside and 10 outside."""
        lo = np.arange(10.0) * 100.0
        outside = np.arange(10.0) * 100.0 + 50
        onset = np.sort(np.concatenate([lo[:9] + 1.0, outside]))
        fit = fit_mixture(onset, [(lo, lo + 2)], 1000.0, 10)

        assert fit.spikes_per_event[0] == pytest.approx(0.88, abs=0.01)
        assert fit.background[np.isin(onset, outside)] == pytest.approx(1.0)
        assert fit.background[0] == pytest.approx(0.022, abs=0.003)
        assert fit.delta_bic[0] > 10

    def test_a_schedule_that_adds_nothing_is_not_needed(self) -> None:
        """Its windows lie around the real cause's, so the real cause does as well."""
        lo = np.arange(20.0) * 100.0
        fit = fit_mixture(lo + 1.0, [(lo, lo + 2), (lo - 3, lo + 5)], 2000.0, 20)

        assert fit.delta_bic[0] > 10
        assert fit.delta_bic[1] < 0
        assert fit.alone_bic[1] > 10

    def test_no_schedule_leaves_all_to_the_background(self) -> None:
        """Nothing to assign to."""
        fit = fit_mixture(np.array([1.0, 2.0]), [], 10.0, 5)

        assert fit.background.tolist() == [1.0, 1.0]

    def test_a_schedule_without_hits_gains_nothing(self) -> None:
        """Delta BIC 0."""
        fit = fit_mixture(np.array([50.0, 60.0]), [(np.array([0.0]), np.array([2.0]))], 100.0, 5)

        assert fit.delta_bic[0] == 0.0

    def test_no_spikes_at_all(self) -> None:
        """Empty arrays, no warning."""
        fit = fit_mixture(np.empty(0), [(np.array([0.0]), np.array([2.0]))], 100.0, 5)

        assert fit.background.size == 0


class TestPower:
    """Exact figures."""

    @pytest.mark.parametrize(("fired", "unfired", "power"), [(5, 40, 0.80), (8, 20, 0.86), (3, 100, 0.50)])
    def test_the_methods_figures(self, fired: int, unfired: int, power: float) -> None:
        """Hit 0.8, background 0.1, level 0.01 (methods 4.3); ours are exact, theirs rounded or simulated."""
        assert fisher_power(fired, unfired, 0.8, 0.1, 0.01) == pytest.approx(power, abs=0.04)

    def test_power_is_the_probability_of_rejecting(self) -> None:
        """Against a simulation of 4,000 runs."""
        rng = np.random.default_rng(0)
        a, b = rng.binomial(6, 0.7, 4000), rng.binomial(30, 0.1, 4000)
        simulated = np.mean(
            [fisher_greater(int(x), 6, int(y), 30) <= 0.05 for x, y in zip(a, b, strict=True)]
        )

        assert fisher_power(6, 30, 0.7, 0.1, 0.05) == pytest.approx(float(simulated), abs=0.03)

    def test_without_a_difference_the_power_is_at_most_the_level(self) -> None:
        """Exact tests are conservative."""
        assert fisher_power(10, 50, 0.2, 0.2, 0.05) <= 0.05

    def test_nothing_fired_has_no_power(self) -> None:
        """Nor has nothing unfired."""
        assert fisher_power(0, 10, 1.0, 0.0, 0.05) == fisher_power(10, 0, 1.0, 0.0, 0.05) == 0.0

    def test_excess_over_chance(self) -> None:
        """20 windows at 0.5 against 0.1: nearly certain; at 0.1: at most the level."""
        assert excess_power(20, 0.5, 0.1, 0.05) > 0.99
        assert excess_power(20, 0.1, 0.1, 0.05) <= 0.05

    def test_the_smallest_rate_is_where_power_crosses_080(self) -> None:
        """Power = rate."""
        assert smallest_rate(lambda rate: rate) == pytest.approx(0.8, abs=0.01)

    def test_a_test_without_power_has_no_smallest_rate(self) -> None:
        """Even a rate of 1 stays below 0.8."""
        assert smallest_rate(lambda rate: rate / 2) is None

    def test_growth_is_where_power_crosses_080(self) -> None:
        """Power = g / 10: eight times as long."""
        assert growth_needed(lambda g: g / 10) == pytest.approx(8.0, rel=0.07)

    def test_a_hopeless_test_does_not_grow_for_ever(self) -> None:
        """None beyond 64 times."""
        assert growth_needed(lambda _: 0.0) is None


class TestCadence:
    """Exploratory periods."""

    def test_a_beat_of_seven_minutes_is_found_with_its_resolution(self) -> None:
        """Ten beats in 4,000 s: 1/P +- 1/2T."""
        found = cadence(30 + np.arange(10.0) * 420.0, 4000.0)

        assert found.credible
        assert found.low_s < 420 < found.high_s
        assert 1 / found.low_s - 1 / found.high_s == pytest.approx(1 / 4000)

    def test_the_fundamental_is_named_not_a_harmonic(self) -> None:
        """P/2 and P/3 bunch as well as P."""
        assert cadence(np.arange(30.0) * 100.0, 3000.0).period_s == pytest.approx(100.0, rel=0.02)

    def test_missed_beats_do_not_hide_the_period(self) -> None:
        """A third of 60 beats is missing."""
        keep = np.random.default_rng(0).random(60) < 0.67
        found = cadence((np.arange(60.0) * 58.0)[keep], 3480.0)

        assert found.credible
        assert found.period_s == pytest.approx(58.0, rel=0.02)

    def test_four_beats_prove_nothing(self) -> None:
        """Perfectly regular, but e^-4 at half a dozen frequencies is chance."""
        found = cadence(np.arange(4.0) * 420.0, 1300.0)

        assert not found.credible
        assert found.z == pytest.approx(4.0, abs=0.1)

    def test_unrelated_spikes_rarely_look_periodic(self) -> None:
        """200 runs of 4 to 60 spikes: at most the 10 % asked for."""
        rng = np.random.default_rng(7)
        runs = [cadence(rng.uniform(0, 5000, rng.integers(4, 60)), 5000.0).credible for _ in range(200)]

        assert np.mean(runs) <= 0.10

    def test_a_beat_of_the_step_says_so(self) -> None:
        """60 s steps, a spike in each."""
        assert cadence(np.arange(40.0) * 60.0 + 5, 2400.0, step_s=60.0).step_locked

    def test_a_beat_beside_the_step_does_not(self) -> None:
        """58 s against 60 s, in an hour: told apart."""
        assert not cadence(np.arange(62.0) * 58.0, 3600.0, step_s=60.0).step_locked

    def test_a_multiple_that_the_run_cannot_resolve_is_not_claimed(self) -> None:
        """70 steps or 71? 10 beats in 10 hours of 60 s steps can't say."""
        assert not cadence(np.arange(9.0) * 4200.0, 37_800.0, step_s=60.0).step_locked

    def test_too_few_spikes_have_no_period(self) -> None:
        """Three; the gap is still told."""
        found = cadence(np.array([10.0, 20.0, 40.0]), 100.0)

        assert (found.period_s, found.credible, found.median_gap_s) == (None, False, 15.0)

    def test_no_spikes_at_all(self) -> None:
        """Nothing to measure."""
        assert cadence(np.empty(0), 100.0).median_gap_s is None

    def test_rayleigh_is_n_for_perfect_bunching(self) -> None:
        """20 onsets at a period of 50 s."""
        frequency, z = rayleigh(np.arange(20.0) * 50.0, 1000.0, 40.0)

        assert z[np.argmin(np.abs(frequency - 1 / 50))] == pytest.approx(20.0, abs=0.5)
