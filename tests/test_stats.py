"""The shared estimators against textbook numbers, and their behaviour at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis import stats


def rng(seed: int = 1) -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(seed)


# -- many tests at once


def test_holm_steps_down_from_the_smallest() -> None:
    """The smallest is multiplied by the family size, and no later one falls below an earlier one."""
    actual = stats.holm([0.01, 0.04, 0.03])

    assert pytest.approx(actual) == [0.03, 0.06, 0.06]


def test_a_test_that_could_not_run_is_not_counted_in_the_family() -> None:
    """NaN stays NaN, and the others are corrected for two tests, not three."""
    actual = stats.holm([0.01, np.nan, 0.04])

    assert pytest.approx(actual[[0, 2]]) == [0.02, 0.04]
    assert np.isnan(actual[1])


def test_adjusted_p_values_never_exceed_one() -> None:
    """Multiplying by the family size is capped."""
    assert stats.holm([0.6, 0.9]).tolist() == [1.0, 1.0]
    assert stats.benjamini_hochberg([0.6, 0.9]).max() <= 1.0


def test_benjamini_hochberg_steps_up_from_the_largest() -> None:
    """The p-value times n over rank, made monotone from the top."""
    actual = stats.benjamini_hochberg([0.01, 0.04, 0.03])

    assert pytest.approx(actual) == [0.03, 0.04, 0.04]


def test_an_empty_family_gives_an_empty_answer() -> None:
    """No tests, no p-values, no error."""
    assert stats.holm([]).size == 0
    assert stats.benjamini_hochberg([]).size == 0


# -- permutation p


def test_a_permutation_p_is_never_zero() -> None:
    """With 999 null draws all below, p is 1/1000."""
    assert stats.permutation_p(5.0, np.zeros(999)) == 0.001


def test_ties_with_the_null_count_against_the_finding() -> None:
    """A null draw equal to the observed value is as extreme as it."""
    assert stats.permutation_p(2.0, [1.0, 2.0, 3.0]) == 0.75


def test_the_other_sides_of_a_permutation_p() -> None:
    """'less' counts small draws; 'two-sided' doubles the smaller tail."""
    null = np.arange(99.0)

    assert stats.permutation_p(1.0, null, "less") == 0.03
    assert stats.permutation_p(1.0, null, "two-sided") == 0.06


# -- rates


def test_sixteen_clean_misses_put_the_bound_below_a_fifth() -> None:
    """The reason why 'no' needs 16 opportunities (methods, section 0)."""
    actual = stats.wilson(0, 16)

    assert actual.low == 0.0
    assert actual.high == pytest.approx(0.1936, abs=1e-4)
    assert stats.wilson(0, 15).high > 0.2


def test_wilson_interval_of_a_textbook_rate() -> None:
    """81 of 263 (Newcombe 1998, table I)."""
    actual = stats.wilson(81, 263)

    assert (actual.low, actual.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_a_rate_without_trials_is_unknown_and_not_zero() -> None:
    """NaN with the interval [0, 1]."""
    actual = stats.wilson(0, 0)

    assert np.isnan(actual.value)
    assert (actual.low, actual.high) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "trials"), [(0, 7), (7, 7), (3, 11)])
def test_a_wilson_interval_holds_its_rate(hits: int, trials: int) -> None:
    """Also at 0 and at all hits, where rounding could put it outside."""
    actual = stats.wilson(hits, trials)

    assert actual.low <= actual.value <= actual.high


def test_newcombe_interval_of_the_papers_example() -> None:
    """56/70 against 48/80 (Newcombe 1998, part II, method 10)."""
    actual = stats.newcombe(56, 70, 48, 80)

    assert actual.value == pytest.approx(0.2)
    assert (actual.low, actual.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_a_difference_with_one_side_unknown_is_unknown() -> None:
    """No trials on one side: NaN and [-1, 1]."""
    actual = stats.newcombe(3, 5, 0, 0)

    assert np.isnan(actual.value)
    assert (actual.low, actual.high) == (-1.0, 1.0)


def test_excess_shifts_the_interval_by_the_chance_rate() -> None:
    """A known chance rate adds no width."""
    rate, actual = stats.wilson(8, 10), stats.excess(8, 10, 0.1)

    assert actual.value == pytest.approx(0.7)
    assert actual.high - actual.low == pytest.approx(rate.high - rate.low)


# -- exact tests


def test_last_arriver_in_eleven_of_twelve_steps() -> None:
    """Two ranks: (12 + 1) / 4096 one-sided, twice that two-sided."""
    assert stats.binomial_p(11, 12, 0.5) == pytest.approx(13 / 4096)
    assert stats.binomial_p(11, 12, 0.5, "two-sided") == pytest.approx(26 / 4096)


def test_binomial_tails_overlap_at_the_observed_count() -> None:
    """Both tails together are 1 + pmf."""
    both = stats.binomial_p(3, 10, 0.4) + stats.binomial_p(3, 10, 0.4, "less")

    assert both == pytest.approx(1 + stats.binomial_pmf(10, 0.4)[3])


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_certain_rate_has_a_degenerate_binomial(rate: float) -> None:
    """No NaN from log(0)."""
    assert stats.binomial_p(0, 5, rate, "less") == 1.0 - rate


def test_fisher_is_one_over_the_number_of_ways_for_a_perfect_match() -> None:
    """3 of 3 fired and 0 of 7 unfired: 1 / C(10, 3)."""
    assert stats.fisher_greater(3, 3, 0, 7) == pytest.approx(1 / 120)


def test_fisher_on_the_lady_tasting_tea() -> None:
    """3 of 4 right: 17 / 70."""
    assert stats.fisher_greater(3, 4, 1, 4) == pytest.approx(17 / 70)


def test_fisher_without_hits_says_nothing() -> None:
    """The p-value is 1."""
    assert stats.fisher_greater(0, 3, 0, 7) == pytest.approx(1.0)


# -- resampling


def test_step_draws_are_equal_for_equal_seeds() -> None:
    """The generator is the only source of chance."""
    assert np.array_equal(stats.step_draws(rng(), 9, 5), stats.step_draws(rng(), 9, 5))


def test_moving_blocks_keep_neighbours_together() -> None:
    """Within a block each index follows the one before."""
    actual = stats.step_draws(rng(), 12, 50, block=4)

    assert actual.shape == (50, 12)
    assert np.all(np.diff(actual.reshape(50, 3, 4), axis=2) == 1)
    assert (actual.min(), actual.max()) == (0, 11)


def test_a_block_longer_than_the_run_is_the_run() -> None:
    """One block fits in only one way."""
    assert stats.step_draws(rng(), 3, 2, block=9).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_step_weights_count_how_often_each_step_was_drawn() -> None:
    """Index rows become multiplicities that sum to the number of steps."""
    actual = stats.step_weights(np.array([[0, 0, 2], [1, 1, 1]]), 3)

    assert actual.tolist() == [[2, 0, 1], [0, 3, 0]]


@pytest.mark.parametrize(("steps", "length"), [(1, 1), (31, 3), (5700, 18)])
def test_block_length_is_the_cube_root(steps: int, length: int) -> None:
    """N^(1/3), rounded."""
    assert stats.block_length(steps) == length


def test_percentile_interval_ignores_draws_that_failed() -> None:
    """NaN draws are left out; without any draw the interval is everything."""
    actual = stats.percentile_interval(5.0, [*np.arange(101.0), np.nan])

    assert (actual.low, actual.high) == pytest.approx((2.5, 97.5))
    assert stats.percentile_interval(5.0, [np.nan]).low == -np.inf


def test_circular_shifts_stay_away_from_zero() -> None:
    """At least ``exclude`` cells either way, all of the rest reached."""
    actual = stats.circular_shifts(rng(), 20, 5000, exclude=3)

    assert sorted(set(actual.tolist())) == list(range(3, 18))


def test_circular_shifts_of_a_tiny_run_still_exist() -> None:
    """An exclusion wider than the run is narrowed."""
    actual = stats.circular_shifts(rng(), 4, 100, exclude=50)

    assert set(actual.tolist()) == {1, 2, 3}


# -- robust statistics


def test_mad_scale_is_the_sd_of_a_normal_sample() -> None:
    """Within 2 % at 20,000 draws, and untouched by 5 % wild values."""
    x = rng().normal(0, 3, 20_000)
    wild = np.concatenate([x, np.full(1000, 1e6)])

    assert float(stats.mad_scale(x)) == pytest.approx(3, rel=0.02)
    assert float(stats.mad_scale(wild)) == pytest.approx(3, rel=0.1)


def test_mad_scale_along_an_axis() -> None:
    """One scale a row."""
    actual = stats.mad_scale([[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]], axis=1)

    assert actual.tolist() == pytest.approx([1.4826, 14.826])


def test_the_error_of_a_median_shrinks_with_the_root_of_n() -> None:
    """1.25 x 1.4826 x MAD / sqrt(n); NaN without data."""
    assert stats.median_error([0.0, 1.0, 2.0, 3.0]) == pytest.approx(1.25 * 1.4826 * 1.0 / 2)
    assert np.isnan(stats.median_error([]))


def test_robust_z_of_a_constant_series_is_zero() -> None:
    """Not infinite."""
    assert stats.robust_z([2.0, 2.0, 2.0]).tolist() == [0, 0, 0]
    assert stats.robust_z([]).size == 0


def test_robust_z_of_an_outlier_is_large() -> None:
    """The outlier does not widen the scale it is judged by."""
    assert stats.robust_z([1.0, 2.0, 3.0, 4.0, 100.0])[-1] > 60


def test_ties_share_their_mean_rank() -> None:
    """[10, 30, 30] is [1, 2.5, 2.5]."""
    assert stats.ranks([10, 30, 30]).tolist() == [1, 2.5, 2.5]


def test_spearman_sees_any_monotone_relation() -> None:
    """exp(x) has rank correlation 1 with x, -1 reversed."""
    x = np.arange(10.0)

    assert stats.spearman(x, np.exp(x)) == pytest.approx(1)
    assert stats.spearman(x, -np.exp(x)) == pytest.approx(-1)


@pytest.mark.parametrize("pair", [([1.0, 2.0], [1.0, 2.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])])
def test_correlation_that_cannot_be_judged_is_nan(pair: tuple[list[float], list[float]]) -> None:
    """Two points, or a constant side."""
    assert np.isnan(stats.pearson(*pair))


def test_residuals_leave_nothing_of_a_covariate() -> None:
    """With y = 2 + 3a - b exactly, all residuals vanish."""
    a, b = rng().normal(size=(2, 30))

    actual = stats.residuals(2 + 3 * a - b, np.column_stack([a, b]))

    assert np.abs(actual).max() < 1e-12


def test_lag1_autocorrelation_of_a_random_walk_is_near_one() -> None:
    """And near zero for its increments."""
    steps = rng().normal(size=4000)

    assert stats.lag1_autocorrelation(np.cumsum(steps)) > 0.99
    assert abs(stats.lag1_autocorrelation(steps)) < 0.05


# -- Theil-Sen


def test_theil_sen_is_the_median_of_the_pairwise_slopes() -> None:
    """The docstring's example: 2, 2, 2, 33, 48.5, 95 has median 17.5."""
    actual = stats.theil_sen([0, 1, 2, 3], [1, 3, 5, 100], rng())

    assert actual.slope.value == pytest.approx(17.5)
    assert actual.pairs_used == 6


def test_theil_sen_shrugs_off_outliers() -> None:
    """A fifth of wild points leaves slope and intercept in place."""
    x = np.arange(50.0)
    y = 3 + 0.5 * x
    y[::5] += 1000

    actual = stats.theil_sen(x, y, rng())

    assert actual.slope.value == pytest.approx(0.5, abs=0.05)
    assert actual.intercept == pytest.approx(3, abs=2)


def test_theil_sen_interval_covers_at_about_its_level() -> None:
    """95 % nominal: 93-97.5 % in 400 samples of 30 points."""
    generator = rng(7)
    covered = 0
    for _ in range(400):
        x = generator.normal(size=30)
        slope = stats.theil_sen(x, x + generator.normal(size=30), generator).slope
        covered += slope.low <= 1 <= slope.high

    assert 0.93 <= covered / 400 <= 0.975


def test_theil_sen_says_how_many_pairs_it_used() -> None:
    """A long run is judged on a sample of its pairs, with nearly the same slope."""
    x = np.arange(3000.0)
    actual = stats.theil_sen(x, 2 * x + rng().normal(size=3000), rng(), max_pairs=20_000)

    assert actual.pairs == 3000 * 2999 // 2
    assert actual.pairs_used == 20_000
    assert actual.slope.value == pytest.approx(2, abs=1e-3)


def test_theil_sen_without_spread_in_x_is_unknown() -> None:
    """No pair carries a slope."""
    actual = stats.theil_sen([1, 1, 1], [1, 2, 3], rng())

    assert np.isnan(actual.slope.value)
    assert actual.pairs_used == 0


# -- coverage


def test_coverage_counts_overlapping_windows_once() -> None:
    """10 +- 3 and 12 +- 3 in a minute: 8 s of 60."""
    assert stats.coverage([12, 10], 3, (0, 60)) == pytest.approx(8 / 60)


def test_coverage_of_the_methods_example() -> None:
    """Five boundaries of a 60 s step at +-3 s cover 0.37 where two of them overlap (methods, 4.1)."""
    step = 60 * np.cumsum([0, 0.55, 0.15, 0.02, 0.23])
    boundaries = (np.arange(40)[:, None] * 60 + step).ravel()

    assert stats.coverage(boundaries, 3, (0, 2400)) == pytest.approx(0.37, abs=0.055)


def test_coverage_is_cut_at_the_ends_of_the_run() -> None:
    """Windows beyond the run count only inside it; no windows cover nothing."""
    assert stats.coverage([0, 60], 3, (0, 60)) == pytest.approx(0.1)
    assert stats.coverage([], 3, (0, 60)) == 0.0
    assert stats.coverage(np.arange(60), 15, (0, 60)) == 1.0
