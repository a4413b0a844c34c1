"""Are dip onsets locked to the loop? The event form of null 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from calibration.loops import Run, draw_run, locked_onsets, unrelated_onsets
from dipstick.analysis.lock import BoundaryLock, lag_grid, locked_to_loop, near_any
from dipstick.analysis.shifts import Loop

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray

FIXED = np.array([0.0])


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def run_of(steps: int = 40, cv: float = 0.1) -> Run:
    return draw_run(rng(5), steps, cv)


def one(
    run: Run, onsets: FloatArray, boundary: str = "reward", lags: FloatArray | None = FIXED
) -> BoundaryLock:
    """The test of a single boundary at a tolerance of 3 s."""
    times = {boundary: run.boundaries[boundary]}
    return locked_to_loop(run.loop, times, onsets, 3.0, rng(6), lags=lags).boundaries[0]


# -- what is found


def test_dips_at_every_reward_start_are_locked() -> None:
    """40 of 40 at the boundary: the smallest p that 999 draws give, effect near 1 - coverage."""
    run = run_of()

    actual = one(run, run.starts[:, 1] + 0.5)

    assert (actual.hits, actual.onsets, actual.boundaries) == (40, 40, 40)
    assert actual.p_value == 0.001
    assert actual.precursor_rate == actual.trigger_rate == 1.0
    assert actual.effect.value == pytest.approx(0.9, abs=0.03)
    assert actual.effect.low > 0.5
    assert actual.reasons == ()


def test_hits_and_onsets_are_counted_by_hand() -> None:
    """Eight boundaries every 60 s (uneven by up to 8 s); 6 onsets 1 s behind one, 3 far from any: 6 of 9."""
    steps = 60.0 * np.arange(8) + np.array([0, 5, 2, 8, 1, 6, 3, 7])
    onsets = np.sort(np.concatenate([steps[:6] + 21.0, steps[:3] + 45.0]))
    loop = Loop(steps, (0.0, 480.0))

    actual = locked_to_loop(loop, {"reward": steps + 20.0}, onsets, 3.0, rng(), lags=FIXED).boundaries[0]

    assert (actual.hits, actual.onsets) == (6, 9)
    assert actual.precursor_rate == pytest.approx(6 / 9)
    assert actual.trigger_rate == pytest.approx(6 / 8)
    assert actual.coverage == pytest.approx(8 * 6 / 480)


def test_a_constant_lag_is_found_by_the_scan() -> None:
    """Dips 12 s behind reward start: missed at lag 0, found at 12 +- 1 s with the lag grid."""
    run = run_of()
    late = run.starts[:, 1] + 12.0

    assert one(run, late).p_value > 0.05
    scanned = one(run, late, lags=None)
    assert scanned.lag_s == pytest.approx(12.0, abs=1.0)
    assert scanned.p_value <= 0.01


def test_an_early_dip_has_a_negative_lag() -> None:
    """Onset 5 s before the boundary."""
    run = run_of()

    assert one(run, run.starts[:, 1] - 5.0, lags=None).lag_s == pytest.approx(-5.0, abs=1.0)


def test_the_scan_is_paid_for() -> None:
    """Unrelated dips: the null's mean rate rises with the lags that were tried."""
    run = run_of()
    onsets = unrelated_onsets(rng(9), run, "poisson")

    assert one(run, onsets, lags=None).chance_rate > one(run, onsets).chance_rate + 0.05


def test_unrelated_dips_are_not_locked() -> None:
    """Poisson dips, and dips with the step's own period, seed by seed: no p below 0.05 in these six."""
    run = run_of()

    found = [
        one(run, unrelated_onsets(rng(s), run, kind)).p_value for s in (1, 2, 3) for kind in ("poisson", "L")
    ]

    assert min(found) > 0.05


def test_p_is_the_larger_of_the_two_shifts() -> None:
    """Neither null alone is safe."""
    run = run_of()

    actual = one(run, locked_onsets(rng(2), run, 0.3))

    assert actual.p_value == max(actual.p_global, actual.p_block)


# -- the family


def test_holm_over_the_boundaries_of_one_call() -> None:
    """Five boundaries, one of them real: its 0.001 becomes 0.005."""
    run = run_of()

    family = locked_to_loop(run.loop, run.boundaries, run.starts[:, 1], 3.0, rng(), lags=FIXED)

    assert [b.boundary for b in family.boundaries] == list(run.boundaries)
    assert family.best is not None
    assert (family.best.boundary, family.best.p_value) == ("reward", 0.001)
    assert family.best.p_adjusted == pytest.approx(0.005)


def test_a_set_that_covers_too_much_is_not_tested_and_not_counted() -> None:
    """All five boundaries as one set at +-6 s cover more than a quarter of the run."""
    run = run_of()
    times = {"reward": run.starts[:, 1], "any": run.starts.ravel()}

    family = locked_to_loop(run.loop, times, run.starts[:, 1], 6.0, rng(), lags=FIXED)
    reward, every = family.boundaries

    assert every.reasons == ("COVERAGE",)
    assert np.isnan(every.p_value)
    assert np.isnan(every.p_adjusted)
    assert reward.p_adjusted == reward.p_value
    assert family.tested == (reward,)


def test_a_large_family_gets_more_draws() -> None:
    """Holm over more than 10 needs p-values finer than 1/1000."""
    run = run_of(steps=10)
    many = {f"b{i}": run.starts[:, 1] + i for i in range(11)}

    assert locked_to_loop(run.loop, many, run.starts[:, 1], 1.0, rng(), lags=FIXED).draws == 4999
    assert (
        locked_to_loop(run.loop, {"b": run.starts[:, 1]}, run.starts[:, 1], 1.0, rng(), lags=FIXED).draws
        == 999
    )


# -- what this run cannot show


@pytest.mark.parametrize("steps", [2, 7])
def test_few_steps_are_not_tested(steps: int) -> None:
    """Below 8: LOW_N, no p."""
    run = run_of(steps)

    actual = one(run, run.starts[:, 1])

    assert actual.reasons == ("LOW_N",)
    assert np.isnan(actual.p_value)


def test_few_dips_are_not_tested() -> None:
    """Four dips in 40 steps."""
    run = run_of()

    assert one(run, run.starts[:4, 1]).reasons == ("LOW_N",)


def test_no_dips_at_all_is_not_an_error() -> None:
    """Nothing to test."""
    actual = one(run_of(), np.zeros(0))

    assert actual.onsets == 0
    assert actual.reasons == ("LOW_N",)


def test_dips_outside_the_run_do_not_count() -> None:
    """The analysis window decides."""
    run = run_of()
    outside = np.array([-50.0, run.end + 1, run.end + 99])

    assert one(run, np.concatenate([run.starts[:, 1], outside])).onsets == 40


def test_a_periodic_loop_stays_at_its_floor() -> None:
    """40 equal steps of 60 s, a dip at each reward start: 6 s / 60 s = 0.1 is the best that can be had."""
    run = run_of(cv=0.0)

    actual = one(run, run.starts[:, 1])

    assert actual.p_floor == pytest.approx(0.1)
    assert actual.reasons == ("P_FLOOR",)


def test_dips_that_stop_half_way_are_nonstationary() -> None:
    """At reward start in the first half, anywhere in the second."""
    run = run_of()
    late = rng(3).uniform(run.end / 2, run.end, 20)

    actual = one(run, np.sort(np.concatenate([run.starts[:20, 1], late])))

    assert "NONSTATIONARY" in actual.reasons


def test_a_steady_run_is_not_called_nonstationary() -> None:
    """Hit rate 0.8 throughout, ten runs: none flagged."""
    run = run_of()

    flagged = [one(run, locked_onsets(rng(s), run, 0.8)).reasons for s in range(10)]

    assert flagged == [()] * 10


def test_the_detectable_effect_shrinks_with_the_run() -> None:
    """More steps see less; and what 40 steps need for an effect of 0.5 is fewer than 40."""
    short, long = run_of(12), run_of(80)

    few = one(short, unrelated_onsets(rng(1), short, "poisson"))
    many = one(long, unrelated_onsets(rng(1), long, "poisson"))

    assert few.detectable_effect is not None
    assert many.detectable_effect is not None
    assert few.detectable_effect > many.detectable_effect
    assert many.steps_needed is not None
    assert many.steps_needed < 80


# -- scale and helpers


def test_a_day_of_steps_is_judged_on_spread_blocks() -> None:
    """5,700 steps: the block shift uses 128 of 712 blocks and says so; the dips are found."""
    run = draw_run(rng(5), 5700, 0.1)
    onsets = locked_onsets(rng(6), run, 0.5)

    family = locked_to_loop(run.loop, {"reward": run.starts[:, 1]}, onsets, 3.0, rng(), lags=FIXED)

    assert (family.steps, family.blocks) == (5700, 128)
    assert family.boundaries[0].p_value == 0.001


def test_equal_seeds_give_equal_results() -> None:
    """The generator is the only source of chance."""
    run = run_of()
    onsets = locked_onsets(rng(2), run, 0.3)

    assert one(run, onsets) == one(run, onsets)


def test_the_lag_grid_of_a_minute_is_that_of_the_methods() -> None:
    """-10..+30 s in 41 lags for a 60 s step."""
    grid = lag_grid(60.0, 3.0)

    assert (grid[0], grid[-1], grid.size) == (-10.0, 30.0, 41)


def test_the_lag_grid_of_short_steps_stays_within_half_a_step() -> None:
    """A 12 s step at t = 0.5 s: -2..6 s in steps of half a second."""
    grid = lag_grid(12.0, 0.5)

    assert (grid[0], grid[-1]) == (-2.0, 6.0)
    assert np.diff(grid) == pytest.approx(0.5)


def test_near_any() -> None:
    """At the tolerance counts; an empty other side never does."""
    assert near_any(np.array([0.0, 5.0, 10.0]), np.array([7.0, 1.0]), 2.0).tolist() == [True, True, False]
    assert near_any(np.array([1.0]), np.zeros(0), 9.0).tolist() == [False]
