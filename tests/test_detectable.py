"""What a run can show at all."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis.detectable import critical_count, detectable_effect, p_floor, steps_needed
from dipstick.analysis.shifts import Loop
from dipstick.analysis.stats import binomial_pmf

FIXED = np.array([0.0])


def loop(steps: int, wander: float) -> Loop:
    """Steps of 60 s whose lengths alternate by +-``wander`` seconds."""
    lengths = 60.0 + wander * np.where(np.arange(steps) % 2, 1, -1)
    starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    return Loop(starts, (0.0, 60.0 * steps))


def test_the_floor_of_uneven_steps_is_the_tolerance_over_the_run() -> None:
    """T = 2400 s, t = 3 s: 6 / 2400."""
    assert p_floor(loop(40, 5.0), 3.0, FIXED, 999) == pytest.approx(0.0025)


def test_the_floor_of_equal_steps_is_the_tolerance_over_the_step() -> None:
    """Whatever the number of steps: 6 / 60."""
    assert p_floor(loop(40, 0.0), 3.0, FIXED, 999) == pytest.approx(0.1)
    assert p_floor(loop(4000, 0.0), 3.0, FIXED, 999) == pytest.approx(0.1)


def test_a_free_lag_leaves_a_periodic_loop_nothing() -> None:
    """(6 + 40) / 60: a lag grid of 40 s reaches most of the step."""
    assert p_floor(loop(40, 0.0), 3.0, np.array([-10.0, 30.0]), 999) == pytest.approx(46 / 60)


def test_small_wander_counts_once_it_adds_up() -> None:
    """SD 0.5 s: 25 steps wander 2.5 s < 6 s (periodic), 400 steps 10 s (not)."""
    assert p_floor(loop(25, 0.5), 3.0, FIXED, 999) == pytest.approx(0.1)
    assert p_floor(loop(400, 0.5), 3.0, FIXED, 999) < 0.01


def test_the_draws_bound_the_floor_too() -> None:
    """No p below 1 / (m + 1)."""
    assert p_floor(loop(40, 5.0), 0.1, FIXED, 99) == pytest.approx(0.01)


def test_the_critical_count_is_the_first_that_reaches_the_level() -> None:
    """Null counts 0..98 once each: above 95 there are 3, (1 + 3) / 100 = 0.04; above 94 it is 0.05."""
    null = np.arange(99.0)

    assert critical_count(null, 0.05) == 95
    assert critical_count(null, 0.04) == 96


def test_a_level_that_the_draws_cannot_reach_has_no_critical_count() -> None:
    """1 / 100 is above 0.001."""
    assert critical_count(np.zeros(99), 0.001) > 10**6


def test_the_detectable_effect_has_power_four_fifths() -> None:
    """At chance + effect, P(hits >= critical count) is 0.8, and the critical count is above the null's tail."""
    null = np.random.default_rng(1).binomial(40, 0.1, 999).astype(np.float64)

    effect = detectable_effect(null, 40, 0.05)

    assert effect is not None
    need = critical_count(null, 0.05)
    rate = effect + null.mean() / 40
    assert binomial_pmf(40, rate)[need:].sum() == pytest.approx(0.8, abs=1e-6)
    assert 0.1 < effect < 0.2


def test_nothing_is_detectable_where_the_null_already_hits_everything() -> None:
    """The critical count exceeds the number of onsets."""
    assert detectable_effect(np.full(999, 10.0), 10, 0.05) is None


def test_steps_needed_grow_as_the_level_shrinks() -> None:
    """Half an effect of 0.5 in 20 steps: more for 0.001 than for 0.05."""
    null = np.random.default_rng(1).binomial(26, 0.1, 9999).astype(np.float64)

    loose, strict = steps_needed(null, 26, 20, 0.05), steps_needed(null, 26, 20, 0.001)

    assert loose is not None
    assert strict is not None
    assert 8 <= loose < strict < 60


def test_steps_needed_are_unknown_where_chance_leaves_no_room() -> None:
    """Chance 0.6 and an effect of 0.5 do not fit into one."""
    assert steps_needed(np.full(999, 12.0), 20, 20, 0.05) is None
