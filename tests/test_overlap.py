"""Overlap regression: levels, lag and window come back from samples that average over them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from calibration.loops import Run, draw_run, locked_telemetry
from dipstick.analysis.design import Telemetry, Timeline, phase_shares
from dipstick.analysis.overlap import OverlapFit, estimate_window, fit_overlap, phase_lag, unexplained

if TYPE_CHECKING:
    from dipstick.analysis.stats import Estimate, FloatArray

SKEWS = np.arange(-5.0, 5.1, 0.25)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def world(
    window: float = 1.0, period: float = 1.0, steps: int = 20, skew: float = 0.0
) -> tuple[Run, list[Telemetry]]:
    """A loop that runs at 90 % and at 5 % in reward and gather; noise 4 points."""
    run = draw_run(rng(7), steps, 0.05)
    return run, [locked_telemetry(rng(8), run, window, period, 85.0, skew)]


def fit(run: Run, telemetry: list[Telemetry], window: float, **options: object) -> OverlapFit:
    result = fit_overlap(telemetry, window, run.starts[:, 0], rng(9), draws=200, **options)  # type: ignore[arg-type]
    assert result is not None
    return result


def level(of: OverlapFit, name: str) -> Estimate:
    found = next(x.level_pct for x in of.levels if x.name == name)
    assert found is not None
    return found


def test_levels_come_back_from_samples_of_one_second() -> None:
    """Reward 5 % and train 90 %, each inside its interval, phases of a second each apart."""
    run, telemetry = world()

    actual = fit(run, telemetry, 1.0)

    assert level(actual, "reward").low <= 5 <= level(actual, "reward").high
    assert level(actual, "train").value == pytest.approx(90, abs=1)
    assert actual.r2 > 0.95


def test_a_mean_over_stamps_would_be_biased_where_the_regression_is_not() -> None:
    """At W = 15 s samples stamped inside reward average 50 points too high; the regression is within 6."""
    run, telemetry = world(15.0, 15.0, steps=60)
    t = telemetry[0]
    inside = phase_shares(t.timeline, t.ts, 1e-3)[:, 1] > 0.5

    naive = t.util[inside].mean()
    actual = fit(run, telemetry, 15.0)

    assert naive > 45
    held = next(x for x in actual.levels if "reward" in x.name)
    assert held.level_pct is not None
    assert held.level_pct.value == pytest.approx(5, abs=6)


@pytest.mark.parametrize(
    ("window", "period", "within"), [(1.0, 1.0, 0.06), (5.0, 5.0, 0.2), (1.0, 15.0, 0.3)]
)
def test_the_lag_comes_back(window: float, period: float, within: float) -> None:
    """Telemetry stamped 2.1 s late, found to a fraction of the sampling, at the interval's ends at worst."""
    run, telemetry = world(window, period, steps=40, skew=2.1)

    actual = fit(run, telemetry, window)

    assert actual.lag_s.value == pytest.approx(2.1, abs=within)
    assert actual.lag_s.low - 0.05 <= 2.1 <= actual.lag_s.high + 0.05
    assert not actual.at_grid_edge


def test_a_lag_outside_the_grid_is_a_bound_and_says_so() -> None:
    """Skew 4 s with a grid that ends at 1 s."""
    run, telemetry = world(skew=4.0)

    assert fit(run, telemetry, 1.0, lags=np.arange(-1.0, 1.01, 0.25)).at_grid_edge


def test_the_drop_into_reward_is_before_minus_after() -> None:
    """85 points from the last part of generate to reward."""
    run, telemetry = world()

    drop = fit(run, telemetry, 1.0).drop("generate", "reward")

    assert drop is not None
    assert drop.value == pytest.approx(85, abs=3)
    assert drop.low < drop.value < drop.high


def test_there_is_no_drop_between_phases_that_are_one_column() -> None:
    """A gather of 1.2 s glued to reward at W = 15 s cannot be told from it, and neither can their difference."""
    run, telemetry = world(15.0, 15.0, steps=12)

    actual = fit(run, telemetry, 15.0)

    if "reward+gather" in [x.name for x in actual.levels]:
        assert actual.drop("reward", "gather") is None
    assert actual.drop("reward", "no such phase") is None


def test_a_draining_rollout_is_followed_by_its_parts() -> None:
    """Generate falls from 90 to 10 % over its length: first part high, last part low, reward still right."""
    run = draw_run(rng(3), 30, 0.05)
    parts = split_levels(run)

    actual = fit(run, [parts], 1.0)

    assert level(actual, "generate[1]").value == pytest.approx(85, abs=3)
    assert level(actual, "generate[8]").value == pytest.approx(15, abs=3)
    assert level(actual, "reward").value == pytest.approx(5, abs=2)


def split_levels(run: Run) -> Telemetry:
    """Utilization that falls linearly through generate (9 in 10 parts of it are flat within 1 point)."""
    timeline = run.timeline
    stamps = np.arange(1.0, run.end, 1.0)
    fine = np.arange(0.0, run.end, 0.02)
    step = np.searchsorted(run.starts[:, 0], fine, side="right") - 1
    share = (fine - run.starts[step, 0]) / (run.starts[step, 1] - run.starts[step, 0])
    phase = timeline.codes[np.searchsorted(timeline.edges, fine, side="right") - 1]
    clean = np.where(phase == 0, 90 - 80 * share, np.array([0, 5, 5, 90, 90])[phase])
    sums = np.concatenate([[0.0], np.cumsum(clean)])
    ends = np.searchsorted(fine, stamps)
    means = (sums[ends] - sums[ends - 50]) / 50
    return Telemetry(stamps, means + rng(4).normal(0, 1, means.size), timeline)


# -- what cannot be seen


def sparse(window: float) -> OverlapFit:
    """Train, with a checkpoint of half a second at 8-8.5 s of every tenth second; a sample every two seconds."""
    edges = np.concatenate([[0.0], np.cumsum(np.tile([8.0, 0.5, 1.5], 4)), np.arange(50.0, 201.0, 10.0)])
    codes = np.concatenate([np.tile([0, 1, 0], 4), np.zeros(16, dtype=np.int64)])
    log = Timeline(edges, codes, ("train", "checkpoint", "never"))
    stamps = np.arange(2.0, 200.0, 2.0)
    sample = Telemetry(stamps, phase_shares(log, stamps, window) @ np.array([90.0, 10.0, 0.0]), log)
    result = fit_overlap(
        [sample], window, np.arange(0.0, 200.0, 10.0), rng(), lags=np.array([-0.25, 0.0, 0.25])
    )
    assert result is not None
    return result


@pytest.mark.parametrize(("window", "samples"), [(1.0, 0), (2.0, 4)])
def test_a_phase_that_few_samples_touch_has_no_level(window: float, samples: int) -> None:
    """Four checkpoints of half a second, touched four times or never: COARSE, not a number."""
    actual = next(x for x in sparse(window).levels if x.name == "checkpoint")

    assert actual.level_pct is None
    assert actual.exposed_samples == samples
    assert actual.reasons == ("COARSE",)


def test_a_phase_that_did_not_occur_is_not_listed() -> None:
    """It took no time, so there is nothing to say about it."""
    assert "never" not in [x.name for x in sparse(1.0).levels]


def test_missing_samples_are_left_out_and_not_read_as_zero() -> None:
    """A third of the samples NaN: the same levels."""
    run, telemetry = world()
    holes = telemetry[0].util.copy()
    holes[::3] = np.nan

    actual = fit(run, [replace(telemetry[0], util=holes)], 1.0)

    assert level(actual, "train").value == pytest.approx(90, abs=1)
    assert actual.samples < np.isfinite(telemetry[0].util).sum()


def test_samples_outside_the_log_are_left_out() -> None:
    """Nothing inside: no fit, and no error."""
    run, telemetry = world()
    late = replace(telemetry[0], ts=telemetry[0].ts + 1e6)

    assert fit_overlap([late], 1.0, run.starts[:, 0], rng()) is None
    assert phase_lag([late], 1.0, run.starts[:, 0], "reward", 0.0, rng()) is None


def test_a_long_run_is_thinned_to_whole_steps_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit every second step is used; levels stay."""
    run, telemetry = world()
    monkeypatch.setattr("dipstick.analysis.overlap.MAX_ROWS", 700)

    actual = fit(run, telemetry, 1.0)

    assert actual.samples_used < 0.6 * actual.samples
    assert actual.steps == 10
    assert level(actual, "train").value == pytest.approx(90, abs=1)


def test_two_gpus_share_their_levels_and_their_steps() -> None:
    """A copy of the GPU doubles the samples but not the steps: the interval does not shrink by root two."""
    run, telemetry = world()

    one, two = fit(run, telemetry, 1.0), fit(run, telemetry * 2, 1.0)

    assert two.samples == 2 * one.samples
    assert two.steps == one.steps
    assert width(level(two, "reward")) == pytest.approx(width(level(one, "reward")), rel=0.2)


def width(of: Estimate) -> float:
    return of.high - of.low


def test_equal_seeds_give_equal_fits() -> None:
    """The generator is the only source of chance."""
    run, telemetry = world(steps=10)

    assert np.array_equal(fit(run, telemetry, 1.0).draws, fit(run, telemetry, 1.0).draws)


# -- window and separate lag


@pytest.mark.parametrize(("window", "period"), [(1.0, 1.0), (5.0, 5.0), (1.0, 15.0), (15.0, 15.0)])
def test_the_window_is_found_and_is_not_the_period(window: float, period: float) -> None:
    """A 15 s scrape of a 1 s average is told from a 15 s average."""
    run, telemetry = world(window, period, steps=40, skew=1.3)

    chosen, errors = estimate_window(telemetry, (1.0, 5.0, 15.0), run.starts[:, 0])

    assert chosen == window
    assert errors[window] == min(errors.values())


def later_reward(run: Run, by: float) -> list[Telemetry]:
    """The GPU enters reward ``by`` seconds after the log says so; all other boundaries agree."""
    starts = run.starts.copy()
    starts[:, 1] += by
    real = Run(starts, run.end)
    t = locked_telemetry(rng(8), real, 1.0, 1.0, 85.0, 0.0)
    return [replace(t, timeline=run.timeline)]


@pytest.mark.parametrize("by", [0.0, 1.5, -1.5])
def test_one_phase_can_lag_while_the_others_do_not(by: float) -> None:
    """Queued generate kernels run on after the reward has begun; the common lag stays 0."""
    run = draw_run(rng(7), 30, 0.05)

    actual = phase_lag(later_reward(run, by), 1.0, run.starts[:, 0], "reward", 0.0, rng(2))

    assert actual is not None
    assert actual.value == pytest.approx(by, abs=0.3)
    assert actual.low <= by <= actual.high


# -- what the phases do not explain


def test_a_burst_that_no_phase_explains_is_listed_with_its_time() -> None:
    """Five seconds at 30 % in the middle of train, once."""
    run, telemetry = world()
    t = telemetry[0]
    at = run.starts[9, 3] + 5
    hit = (t.ts > at) & (t.ts <= at + 5)
    odd = replace(t, util=np.where(hit, 30.0, t.util))

    groups = unexplained(fit(run, [odd], 1.0))

    first, last, z = min(groups, key=lambda g: g[2])
    assert (first, last) == (t.ts[hit][0], t.ts[hit][-1])
    assert z < -4


def test_a_steady_run_has_nothing_unexplained_in_its_flat_phases() -> None:
    """Normal noise alone: no group beyond 4 SD survives the false discovery rate."""
    run = draw_run(rng(7), 20, 0.05)
    stamps: FloatArray = np.arange(2.0, run.end, 1.0)
    flat = Telemetry(stamps, 50 + rng(3).normal(0, 4, stamps.size), run.timeline)

    assert unexplained(fit(run, [flat], 1.0, lags=SKEWS)) == ()
