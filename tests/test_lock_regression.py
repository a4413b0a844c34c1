"""Is the utilization itself locked to the loop? The regression form of null 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.loops import Run, draw_run, locked_telemetry, unrelated_telemetry
from dipstick.analysis.design import Telemetry, Timeline
from dipstick.analysis.lock_regression import RegressionLock, regression_lock
from dipstick.analysis.overlap import fit_overlap


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def locked(
    steps: int = 20, window: float = 15.0, drop: float = 85.0, skew: float = 0.0
) -> tuple[Run, Telemetry]:
    run = draw_run(rng(4), steps, 0.2)
    return run, locked_telemetry(rng(5), run, window, 15.0, drop, skew)


def judged(run: Run, telemetry: Telemetry, window: float = 15.0) -> RegressionLock:
    result = regression_lock([telemetry], window, run.loop, rng(6))
    assert result is not None
    return result


@pytest.mark.parametrize(("window", "steps"), [(15.0, 8), (15.0, 20), (1.0, 20)])
def test_a_deep_drop_is_found_at_fifteen_seconds(window: float, steps: int) -> None:
    """Where no onset can be seen: W = D = 15 s from 8 steps, and a 1 s average scraped every 15 s."""
    run, telemetry = locked(steps, window)

    actual = judged(run, telemetry, window)

    assert actual.p_value <= 0.01
    assert actual.r2 > 0.9
    assert actual.r2 > actual.chance_r2 + 0.5


def test_r2_is_that_of_the_fit() -> None:
    """FFT tables on a grid of 0.25 s against the samples themselves: within 0.03."""
    run, telemetry = locked()
    fit = fit_overlap([telemetry], 15.0, run.starts[:, 0], rng(), split=None)

    assert fit is not None
    assert judged(run, telemetry).r2 == pytest.approx(fit.r2, abs=0.03)


def test_the_skew_is_scanned() -> None:
    """Stamps 1.5 s late: found at that lag."""
    run, telemetry = locked(skew=1.5)

    assert judged(run, telemetry).lag_s == pytest.approx(1.5, abs=0.5)


@pytest.mark.parametrize("kind", ["poisson", "L/2"])
def test_unrelated_dips_are_not_locked(kind: str) -> None:
    """Six runs of each: none below 0.05 (levels over 500 runs are in benchmarks/calibration)."""
    found = []
    for seed in range(6):
        run = draw_run(rng(seed), 30, 0.2)
        telemetry = unrelated_telemetry(rng(seed + 50), run, 15.0, 15.0, kind)  # type: ignore[arg-type]
        found.append(judged(run, telemetry).p_value)

    assert min(found) > 0.05


def test_flat_utilization_explains_nothing() -> None:
    """Noise alone: R2 about 0, p far from small."""
    run, telemetry = locked()
    flat = replace(telemetry, util=50 + rng(8).normal(0, 4, telemetry.util.size))

    actual = judged(run, flat)

    assert actual.r2 < 0.3
    assert actual.p_value > 0.05


def test_constant_utilization_is_not_an_error() -> None:
    """No variance to explain."""
    run, telemetry = locked()

    assert judged(run, replace(telemetry, util=np.full(telemetry.util.size, 50.0))).p_value > 0.05


def test_one_block_is_not_a_second_test() -> None:
    """Eight steps are one block: the block shift would be the common shift over again."""
    run, telemetry = locked(steps=8)

    actual = judged(run, telemetry)

    assert actual.blocks == 1
    assert actual.p_block is None
    assert actual.p_value == actual.p_global


def test_p_is_the_larger_of_the_two_shifts() -> None:
    """From two blocks on."""
    run, telemetry = locked(steps=20, drop=3.0)

    actual = judged(run, telemetry)

    assert actual.p_block is not None
    assert actual.p_value == max(actual.p_global, actual.p_block)


def test_few_steps_and_periodic_steps_are_named() -> None:
    """LOW_N below 8 steps; equal steps leave W / L = 0.25 as the floor, more with the skew scan."""
    few, samples = locked(steps=6)
    assert judged(few, samples).reasons[0] == "LOW_N"

    equal = draw_run(rng(4), 40, 0.0)
    actual = judged(equal, locked_telemetry(rng(5), equal, 15.0, 15.0, 85.0, 0.0))
    assert actual.reasons == ("P_FLOOR",)
    assert actual.p_floor == pytest.approx((15 + 4) / 60)


def test_missing_samples_are_left_out() -> None:
    """NaN is not zero: a quarter of the samples missing, the same finding."""
    run, telemetry = locked()
    util = telemetry.util.copy()
    util[::4] = np.nan

    actual = judged(run, replace(telemetry, util=util))

    assert actual.samples == np.isfinite(util).sum()
    assert actual.p_value <= 0.01


def test_without_samples_there_is_no_test() -> None:
    """None, not a p-value."""
    run, telemetry = locked()
    late = replace(telemetry, ts=telemetry.ts + 1e7)

    assert regression_lock([late], 15.0, run.loop, rng()) is None


def test_short_phases_share_a_column() -> None:
    """A hundred phases of a hundredth each would cost five thousand FFTs: same answer, few columns."""
    run, telemetry = locked()
    timeline = telemetry.timeline
    names = (*timeline.names, *(f"rare{i}" for i in range(60)))
    wide = replace(telemetry, timeline=Timeline(timeline.edges, timeline.codes, names))

    assert judged(run, wide).r2 == pytest.approx(judged(run, telemetry).r2, abs=0.01)


def test_two_gpus_are_judged_together() -> None:
    """A copy changes nothing but the number of samples."""
    run, telemetry = locked()

    two = regression_lock([telemetry, telemetry], 15.0, run.loop, rng(6))

    assert two is not None
    assert two.samples == 2 * judged(run, telemetry).samples
    assert two.r2 == pytest.approx(judged(run, telemetry).r2, abs=0.02)


def test_equal_seeds_give_equal_results() -> None:
    """The generator is the only source of chance."""
    run, telemetry = locked(steps=12)

    assert judged(run, telemetry) == judged(run, telemetry)
