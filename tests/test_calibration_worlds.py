"""The worlds that S6 and S7 are calibrated in hold the truth they claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.s6_s7_worlds import (
    SHARES,
    SpikeWorld,
    StragglerWorld,
    ar1,
    loop,
    memory_samples,
    spike_onsets,
    straggler_run,
)
from dipstick.analysis.stats import spearman

BASE = SpikeWorld(1.0, 100, 20, 5, None)


def rng(seed: int = 0) -> np.random.Generator:
    """A fresh one."""
    return np.random.default_rng(seed)


class TestLoop:
    """Steps and phases."""

    def test_phases_have_the_shares_of_the_methods(self) -> None:
        """55 / 15 / 2 / 23 / 5 % of 60 s."""
        seconds = np.diff(loop(rng(), 2000)).reshape(-1, 5).mean(axis=0)

        assert seconds == pytest.approx(60 * SHARES, rel=0.02)

    def test_wandering_series_have_unit_variance_and_the_memory_asked_for(self) -> None:
        """AR(0.8)."""
        series = ar1(rng(), 20_000, 0.8)

        assert series.std() == pytest.approx(1.0, abs=0.05)
        assert np.corrcoef(series[:-1], series[1:])[0, 1] == pytest.approx(0.8, abs=0.02)


class TestSpikes:
    """Events and what they cause."""

    def test_schedules_fire_as_often_as_they_should(self) -> None:
        """100 steps: sync 100, checkpoint 5, cache 20; cron every 45 s."""
        edges, _, schedules = spike_onsets(rng(), BASE)
        counts = {n: s.start_s.size for n, s in schedules.items()}

        assert (counts["sync"], counts["checkpoint"], counts["cache"]) == (100, 5, 20)
        assert counts["cron"] == pytest.approx(edges[-1] / 45, abs=1)

    def test_background_is_a_fifth_of_a_spike_a_step(self) -> None:
        """Without a cause."""
        onsets = [spike_onsets(rng(seed), BASE)[1].size for seed in range(50)]

        assert np.mean(onsets) == pytest.approx(20, abs=2)

    @pytest.mark.parametrize(("background", "period"), [("L", 60.0), ("L/2", 30.0), ("0.37L", 22.2)])
    def test_a_process_of_its_own_keeps_its_period(self, background: str, period: float) -> None:
        """Whatever the steps do; stamps are quantised to 1 s."""
        _, onset, _ = spike_onsets(rng(), replace(BASE, background=background))

        assert np.diff(onset).mean() == pytest.approx(period, abs=0.1)

    def test_a_growing_background_is_denser_at_the_end(self) -> None:
        """Three quarters of it in the second half."""
        edges, onset, _ = spike_onsets(rng(), replace(BASE, background="growing"))

        assert np.mean(onset > edges[-1] / 2) == pytest.approx(0.75, abs=0.1)

    def test_nine_of_ten_events_of_the_cause_bring_a_spike(self) -> None:
        """Sync."""
        _, onset, schedules = spike_onsets(rng(), replace(BASE, cause="sync"))
        start = schedules["sync"].start_s
        hit = np.searchsorted(onset, start + 1.5) > np.searchsorted(onset, start - 0.5)

        assert hit.mean() == pytest.approx(0.9, abs=0.06)

    def test_stamps_are_the_middles_of_windows(self) -> None:
        """W = 5 s."""
        _, onset, _ = spike_onsets(rng(), replace(BASE, window_s=5.0, cause="sync"))

        assert (onset % 5 == 2.5).all()

    def test_twins_are_always_seven_tenths_of_a_second_apart(self) -> None:
        """Checkpoint and cache clear."""
        _, _, schedules = spike_onsets(rng(), SpikeWorld(1.0, 100, 10, 10, None, twins=True))

        assert schedules["cache"].start_s - schedules["checkpoint"].start_s == pytest.approx(0.7)

    def test_coarse_samples_hold_the_spikes_area(self) -> None:
        """50 points x 3 s for 0.9 of 100 syncs and 20 of background, less what overlaps; mean of ten runs."""
        counts = []
        for seed in range(10):
            ts, value, share, _, _ = memory_samples(rng(seed), SpikeWorld(15.0, 100, 10, 5, "sync"))
            level = share @ np.array([20.0, 2.0, 1.0, 10.0])
            counts.append(float(np.sum(value - level)) * float(ts[1] - ts[0]) / (50 * 3))

        assert np.mean(counts) == pytest.approx(107, abs=8)

    def test_the_seconds_of_sync_belong_to_train(self) -> None:
        """Four columns that add up to 1."""
        share = memory_samples(rng(), SpikeWorld(15.0, 40, 10, 5, None))[2]

        assert share.shape[1] == 4
        assert share.sum(axis=1) == pytest.approx(1.0)


class TestStragglers:
    """Jobs and dips."""

    def test_widths_follow_the_longest_job_second_for_second(self) -> None:
        """Plus 2 s of overhead."""
        run = straggler_run(rng(), StragglerWorld("longest_job", 1.0, 60))

        assert np.median(run.width_s - run.drivers["longest_job"]) == pytest.approx(2.0, abs=0.2)

    def test_coarse_windows_keep_the_widths(self) -> None:
        """W = 15 s."""
        run = straggler_run(rng(), StragglerWorld("longest_job", 15.0, 60))

        assert np.median(run.width_s - run.drivers["longest_job"]) == pytest.approx(2.0, abs=1.0)

    def test_the_makespan_is_at_least_the_longest_job_and_the_mean_load(self) -> None:
        """Graham's bounds."""
        drivers = straggler_run(rng(), StragglerWorld("none", 1.0, 60)).drivers
        least = np.maximum(drivers["longest_job"], drivers["total_work"])

        assert (drivers["makespan"] >= least - 1e-9).all()
        assert (drivers["makespan"] <= drivers["total_work"] + drivers["longest_job"] + 1e-9).all()

    def test_completion_length_drives_jobs_and_dips_alike(self) -> None:
        """The trap of S7: both correlate with it over 400 steps."""
        run = straggler_run(rng(), StragglerWorld("length", 1.0, 400))
        length = run.covariates["completion_length"]

        assert spearman(length, run.width_s) > 0.5
        assert spearman(length, run.drivers["total_work"]) > 0.5

    def test_unrelated_dips_do_not_follow_anything(self) -> None:
        """Over 400 steps."""
        run = straggler_run(rng(), StragglerWorld("none", 1.0, 400))

        assert abs(spearman(run.drivers["longest_job"], run.width_s)) < 0.15

    def test_the_trend_world_drifts_on_both_sides(self) -> None:
        """Jobs and dips rise together."""
        run = straggler_run(rng(), StragglerWorld("trend", 1.0, 100))
        k = np.arange(100.0)

        assert spearman(k, run.width_s) > 0.7
        assert spearman(k, run.drivers["total_work"]) > 0.5
