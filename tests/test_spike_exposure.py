"""Event heights from coarse samples: overlap regression with boxes, its gates and its verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.design import Timeline, box_shares, phase_shares
from dipstick.analysis.spike_exposure import ExposureOptions, ExposureResult, judge_exposure
from dipstick.analysis.spike_schedules import Schedule

if TYPE_CHECKING:
    from dipstick.model import FloatArray

QUICK = ExposureOptions(draws=299)
LEVELS = np.array([20.0, 2.0, 10.0])


def edges_of(steps: int, seed: int = 0) -> FloatArray:
    """Phase edges: generate, reward, train of 35, 10 and 15 s, each +-8 %."""
    rng = np.random.default_rng(seed)
    seconds = np.array([35.0, 10.0, 15.0]) * (1 + 0.08 * rng.normal(size=(steps, 3)))
    return np.concatenate([[0.0], np.cumsum(seconds.ravel())])


def every(edges: FloatArray, n: int, offset: float, name: str) -> Schedule:
    """An event of 3 s in every n-th step, ``offset`` after the start of training."""
    start = edges[2::3][n - 1 :: n] + offset
    return Schedule(name, start, start + 3)


def judge(
    steps: int,
    height: float,
    *,
    window: float = 15.0,
    period: float | None = None,
    noise: float = 3.0,
    every_n: int = 10,
) -> tuple[ExposureResult, ExposureResult]:
    """Checkpoints of ``height`` every ``every_n`` steps; cache clears every 5, innocent."""
    rng = np.random.default_rng(4)
    edges = edges_of(steps)
    save, clear = every(edges, every_n, 2.0, "checkpoint"), every(edges, 5, 9.0, "cache")
    ts = np.arange(window, edges[-1], period or window)
    share = phase_shares(
        Timeline(edges, np.tile(np.arange(3), steps), ("generate", "reward", "train")), ts, window
    )
    boxes = box_shares(save.start_s, save.end_s, ts, window)
    value = share @ LEVELS + height * boxes + rng.normal(0, noise, ts.size)
    found = judge_exposure(ts, value, window, share, edges[::3], [save, clear], QUICK)
    return found[0], found[1]


class TestPlanted:
    """W = 15 s, events of 3 s."""

    def test_the_guilty_schedule_is_named_with_its_height(self) -> None:
        """50 points in every tenth of 100 steps."""
        save, clear = judge(100, 50.0)

        assert (save.verdict, clear.verdict) == ("yes", "unconfirmed")
        assert save.height_pct.low < 50 < save.height_pct.high

    def test_a_height_of_fifteen_points_is_partial(self) -> None:
        """Between the thresholds of 10 and 20; little noise, so that it is seen."""
        save, _ = judge(200, 15.0, noise=0.5)

        assert save.verdict == "partially"

    def test_an_innocent_schedule_gets_a_no_with_enough_data(self) -> None:
        """No spikes, little noise: the upper bound is below 10 points."""
        save, clear = judge(200, 0.0, noise=0.5)

        assert (save.verdict, clear.verdict) == ("no", "no")

    def test_fine_samples_work_as_well(self) -> None:
        """W = 5 s."""
        assert judge(100, 50.0, window=5.0)[0].verdict == "yes"

    def test_the_detectable_height_shrinks_with_the_run(self) -> None:
        """60 and 240 steps."""
        short, long = judge(60, 0.0)[0], judge(240, 0.0)[0]

        assert long.detectable_pct < short.detectable_pct


class TestGates:
    """Where the regression must not answer."""

    def test_four_fired_steps_are_too_few(self) -> None:
        """40 steps, every tenth: the bootstrap would degenerate."""
        save, _ = judge(40, 50.0)

        assert (save.verdict, save.codes, save.steps) == ("unconfirmed", ("COARSE",), 4)

    def test_a_sparse_scrape_that_sees_few_events_does_not_say_no(self) -> None:
        """W = 1 s each 15 s, 60 steps: a fifth of the events is touched; the methods' bootstrap said "no" in half."""
        save, _ = judge(60, 50.0, window=1.0, period=15.0)

        assert (save.verdict, save.codes) == ("unconfirmed", ("COARSE",))

    def test_a_schedule_that_is_its_own_phase_is_collinear(self) -> None:
        """A sync column beside a sync phase: the same numbers twice."""
        edges = edges_of(60)
        ts = np.arange(15.0, edges[-1], 15.0)
        share = phase_shares(Timeline(edges, np.tile(np.arange(3), 60), ("g", "r", "sync")), ts, 15.0)
        sync = Schedule("sync", edges[2::3][:60], edges[3::3])
        found = judge_exposure(ts, share @ LEVELS, 15.0, share, edges[::3], [sync], QUICK)[0]

        assert found.codes == ("COARSE", "COLLINEAR")

    def test_twins_share_a_column_and_are_at_most_partial(self) -> None:
        """0.7 s apart at W = 15 s."""
        edges = edges_of(100)
        save = every(edges, 10, 2.0, "checkpoint")
        clear = Schedule("cache", save.start_s + 0.7, save.end_s)
        ts = np.arange(15.0, edges[-1], 15.0)
        share = phase_shares(Timeline(edges, np.tile(np.arange(3), 100), ("g", "r", "t")), ts, 15.0)
        value = share @ LEVELS + 50 * box_shares(save.start_s, save.end_s, ts, 15.0)
        value += np.random.default_rng(0).normal(0, 2, ts.size)
        found = judge_exposure(ts, value, 15.0, share, edges[::3], [save, clear], QUICK)

        assert [(r.verdict, r.codes, r.twins) for r in found] == [
            ("partially", ("COLLINEAR",), ("cache",)),
            ("partially", ("COLLINEAR",), ("checkpoint",)),
        ]

    def test_missing_samples_are_left_out(self) -> None:
        """Every third value is NaN; the height is still found."""
        edges = edges_of(120)
        save = every(edges, 6, 2.0, "checkpoint")
        ts = np.arange(5.0, edges[-1], 5.0)
        share = phase_shares(Timeline(edges, np.tile(np.arange(3), 120), ("g", "r", "t")), ts, 5.0)
        value = share @ LEVELS + 50 * box_shares(save.start_s, save.end_s, ts, 5.0)
        value += np.random.default_rng(0).normal(0, 2, ts.size)
        value[::3] = np.nan
        found = judge_exposure(ts, value, 5.0, share, edges[::3], [save], QUICK)[0]

        assert found.verdict == "yes"
        assert found.height_pct.value == pytest.approx(50.0, abs=5.0)

    def test_a_step_schedule_has_no_exchange_test(self) -> None:
        """There is no step without it."""
        edges = edges_of(60)
        ts = np.arange(5.0, edges[-1], 5.0)
        share = phase_shares(Timeline(edges, np.tile(np.arange(3), 60), ("g", "r", "t")), ts, 5.0)
        log = Schedule("log", edges[2::3][:60] + 4, edges[2::3][:60] + 6)
        value = share @ LEVELS + np.random.default_rng(0).normal(0, 2, ts.size)
        found = judge_exposure(ts, value, 5.0, share, edges[::3], [log], QUICK)[0]

        assert found.kind == "step"
        assert np.isnan(found.p_value)
