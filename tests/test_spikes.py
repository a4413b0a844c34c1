"""Spikes are found where memory was busier than usual, and each is given to the phase it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.design import Timeline
from dipstick.analysis.spike_levels import Windows, mix_phases, noise_sd, running_quartile, window_shares
from dipstick.analysis.spikes import (
    SpikeOptions,
    SpikeSet,
    find_spikes,
    runs_above,
    union_onsets,
)

if TYPE_CHECKING:
    from dipstick.model import FloatArray

NAMES = ("generate", "reward", "train", "weight_sync")
STEP_S = 10.0


def phases_of(steps: int, cuts: tuple[float, float, float] = (4.0, 7.0, 9.5)) -> Timeline:
    """Steps of 10 s: generate 0-4, reward 4-7, train 7-9.5, weight sync 9.5-10."""
    starts = np.arange(steps)[:, None] * STEP_S + np.array([0.0, *cuts])
    edges = np.append(starts.ravel(), steps * STEP_S)
    return Timeline(edges, np.tile(np.arange(4), steps), NAMES)


def windows(seconds: float, length: float = 0.5) -> tuple[FloatArray, FloatArray]:
    """Contiguous windows from 0."""
    t0 = np.arange(float(round(seconds / length))) * length
    return t0, t0 + length


def series(steps: int, levels: tuple[float, float, float, float], length: float = 0.5) -> FloatArray:
    """What an ideal counter reads: the mix of the phases' levels."""
    t0, t1 = windows(steps * STEP_S, length)
    return np.asarray(window_shares(t0, t1, phases_of(steps)) @ np.array(levels))


def spans(found: SpikeSet) -> list[tuple[float, float, str | None]]:
    """Start, end and owner of each spike."""
    return [(s.start_s, s.end_s, s.explained_by) for s in found.spikes]


class TestRunsAbove:
    """Hysteresis."""

    def test_a_run_lasts_from_leave_level_to_leave_level(self) -> None:
        """The worked example: enter 15, leave 7.5."""
        height = np.array([0.0, 8.0, 16.0, 9.0, 2.0])

        assert runs_above(height, np.full(5, 15.0), 0.5, np.ones(5)) == [(1, 4)]

    def test_what_never_reaches_the_entry_level_is_no_run(self) -> None:
        """Twelve is above leave but below enter."""
        assert runs_above(np.array([0.0, 12.0, 12.0, 0.0]), np.full(4, 15.0), 0.5, np.ones(4)) == []

    def test_a_hole_in_the_samples_ends_a_run(self) -> None:
        """Four windows at 20; the third does not follow the second."""
        follows = np.array([0.0, 1.0, 0.0, 1.0])

        assert runs_above(np.full(4, 20.0), np.full(4, 15.0), 0.5, follows) == [(0, 2), (2, 4)]

    def test_runs_at_both_ends_are_kept(self) -> None:
        """The series starts and ends high."""
        assert runs_above(np.array([20.0, 0.0, 20.0]), np.full(3, 15.0), 0.5, np.ones(3)) == [(0, 1), (2, 3)]

    def test_a_flat_series_has_no_run(self) -> None:
        """Nothing above."""
        assert runs_above(np.zeros(3), np.full(3, 15.0), 0.5, np.ones(3)) == []


class TestLevels:
    """What is usual."""

    def test_the_quartile_stays_quiet_while_a_phase_takes_two_fifths(self) -> None:
        """0 for 60 % and 80 for 40 % of the time."""
        t = np.arange(600.0)
        value = np.where(t % 10 < 4, 80.0, 0.0)

        assert running_quartile(t, value, 60.0).max() == 0.0

    def test_the_quartile_follows_a_level_that_moves(self) -> None:
        """10 in the first hour, 30 in the second: each end reads its own level."""
        t = np.arange(0.0, 7200.0, 1.0)
        base = running_quartile(t, np.where(t < 3600, 10.0, 30.0), 60.0)

        assert (base[0], base[-1]) == (10.0, 30.0)

    def test_the_quartile_bridges_a_hole(self) -> None:
        """No samples between 10 and 500 s."""
        t = np.concatenate([np.arange(10.0), np.arange(500.0, 510.0)])

        assert np.isfinite(running_quartile(t, np.ones(20), 60.0)).all()

    def test_noise_comes_from_differences_so_levels_cancel(self) -> None:
        """SD 4 on a square wave of 0 and 80."""
        rng = np.random.default_rng(0)
        value = np.repeat(np.tile([0.0, 80.0], 50), 40) + rng.normal(0, 4, 4000)

        assert noise_sd(value) == pytest.approx(4.0, rel=0.1)

    def test_whole_percents_do_not_make_the_noise_zero(self) -> None:
        """A constant reads 0.5."""
        assert noise_sd(np.zeros(10)) == 0.5

    def test_one_sample_has_the_least_noise(self) -> None:
        """No difference to take."""
        assert noise_sd(np.array([3.0])) == 0.5

    def test_the_level_of_a_phase_is_the_median_of_windows_inside_it(self) -> None:
        """Ten steps, levels 81, 0, 22, 37; weight sync of 0.5 s falls exactly on windows."""
        t0, t1 = windows(100.0)
        w = Windows(t0, t1, series(10, (81.0, 0.0, 22.0, 37.0)), np.zeros(t0.size))
        rows = mix_phases(w, phases_of(10), 0.0).levels

        assert [r.level_pct for r in rows] == [81.0, 0.0, 22.0, 37.0]

    def test_a_suspect_has_a_level_but_not_a_usual_one(self) -> None:
        """Weight sync must stay to be tested."""
        t0, t1 = windows(100.0)
        w = Windows(t0, t1, series(10, (81.0, 0.0, 22.0, 37.0)), np.zeros(t0.size))

        assert mix_phases(w, phases_of(10), 0.0).levels[3].usual_pct is None

    def test_two_occurrences_are_too_few_for_a_level(self) -> None:
        """Two steps only."""
        t0, t1 = windows(20.0)
        w = Windows(t0, t1, series(2, (81.0, 0.0, 22.0, 37.0)), np.zeros(t0.size))

        assert [r.level_pct for r in mix_phases(w, phases_of(2), 0.0).levels] == [None] * 4

    def test_a_phase_shorter_than_a_window_gets_its_level_from_what_it_adds(self) -> None:
        """Windows of 4 s never lie inside the 2.5 s of training; least squares reads its 22 all the same."""
        t0, t1 = windows(400.0, 4.0)
        w = Windows(t0, t1, series(40, (81.0, 0.0, 22.0, 0.0), 4.0), np.zeros(t0.size))
        train = mix_phases(w, phases_of(40), 0.0).levels[2]

        assert train.windows == 0
        assert train.level_pct == pytest.approx(22.0, abs=1.0)

    def test_slack_keeps_the_highest_of_three_predictions(self) -> None:
        """The reward window beside generate: moved by 0.1 s it holds a fifth of generate."""
        t0, t1 = windows(100.0)
        w = Windows(t0, t1, series(10, (80.0, 0.0, 0.0, 0.0)), np.zeros(t0.size))
        mix = mix_phases(w, phases_of(10), 0.1)

        assert mix.high[8] == pytest.approx(16.0)


class TestFindSpikes:
    """The two passes together."""

    def test_decode_after_a_quiet_phase_is_a_spike_of_generate_in_each_step(self) -> None:
        """81 % for 4 s of each of ten steps, otherwise quiet."""
        t0, t1 = windows(100.0)
        found = find_spikes(t0, t1, series(10, (81.0, 0.0, 0.0, 0.0)), phases_of(10))

        assert spans(found) == [(10.0 * k, 10.0 * k + 4, "generate") for k in range(10)]
        assert found.unexplained == ()

    def test_generate_is_credited_with_all_its_occurrences(self) -> None:
        """Recall 1 over ten steps."""
        t0, t1 = windows(100.0)
        row = find_spikes(t0, t1, series(10, (81.0, 0.0, 0.0, 0.0)), phases_of(10)).levels[0]

        assert (row.occurrences, row.with_spike, row.spikes, row.recall) == (10, 10, 10, 1.0)

    def test_a_spike_inside_a_phase_is_unexplained_although_the_phase_has_its_own(self) -> None:
        """60 % for 1 s in the middle of the reward phase of step 5."""
        value = series(10, (81.0, 0.0, 0.0, 0.0))
        value[110:112] = 60.0
        t0, t1 = windows(100.0)
        found = find_spikes(t0, t1, value, phases_of(10))

        assert [(s.start_s, s.end_s, s.phase) for s in found.unexplained] == [(55.0, 56.0, "reward")]
        assert found.unexplained[0].excess_pct == pytest.approx(60.0)

    def test_weight_sync_glued_to_decode_does_not_own_the_decode(self) -> None:
        """Sync at 37 just before decode at 81: two spikes, decode's is generate's, sync's waits for its test."""
        t0, t1 = windows(100.0)
        found = find_spikes(t0, t1, series(10, (81.0, 0.0, 0.0, 37.0)), phases_of(10))
        owners = [s.explained_by for s in found.spikes]

        assert owners.count("generate") == 10
        assert [s.phase for s in found.unexplained] == ["weight_sync"] * 10

    def test_without_phases_only_the_neighbourhood_judges(self) -> None:
        """One spike of 60 in a quiet run; no owner, no phase, no excess."""
        t0, t1 = windows(100.0)
        value = np.zeros(t0.size)
        value[50] = 60.0
        spike = find_spikes(t0, t1, value).spikes[0]

        assert (spike.start_s, spike.end_s, spike.peak_pct) == (25.0, 25.5, 60.0)
        assert (spike.phase, spike.explained_by, spike.excess_pct) == (None, None, None)

    def test_noise_raises_the_bar(self) -> None:
        """SD 5 needs 30 points: 25 are not a spike, 60 are."""
        rng = np.random.default_rng(1)
        t0, t1 = windows(300.0)
        value = 40 + rng.normal(0, 5, t0.size)
        value[100], value[300] = 65.0, 100.0

        assert [s.start_s for s in find_spikes(t0, t1, value).spikes] == [150.0]

    def test_missing_windows_are_left_out_and_end_a_spike(self) -> None:
        """Two high windows around a hole of 5 s are two spikes, not one of 6 s."""
        t0, t1 = windows(60.0)
        value = np.zeros(t0.size)
        value[[40, 51]] = 80.0
        value[41:51] = np.nan
        found = find_spikes(t0, t1, value)

        assert [(s.start_s, s.end_s) for s in found.spikes] == [(20.0, 20.5), (25.5, 26.0)]
        assert found.samples == 110

    def test_an_empty_series_has_no_spikes(self) -> None:
        """All values missing."""
        found = find_spikes(np.arange(3.0), np.arange(3.0) + 1, np.full(3, np.nan))

        assert (found.spikes, found.samples) == ((), 0)

    def test_one_sample_is_not_a_spike(self) -> None:
        """It is its own neighbourhood."""
        assert find_spikes(np.zeros(1), np.ones(1), np.array([90.0])).spikes == ()

    def test_a_lower_bar_finds_smaller_spikes(self) -> None:
        """12 points with a bar of 10."""
        t0, t1 = windows(100.0)
        value = np.zeros(t0.size)
        value[50] = 12.0

        assert find_spikes(t0, t1, value).spikes == ()
        assert len(find_spikes(t0, t1, value, options=SpikeOptions(min_height_pct=10.0)).spikes) == 1


class TestUnionOnsets:
    """Several GPUs are one witness."""

    def test_the_same_spike_on_two_gpus_counts_once(self) -> None:
        """GPU 1 sees it 0.2 s later."""
        t0, t1 = windows(100.0)
        a, b = np.zeros(t0.size), np.zeros(t0.size)
        a[50], b[51], b[150] = 60.0, 60.0, 60.0
        sets = [find_spikes(t0, t1, a), find_spikes(t0, t1, b)]

        assert union_onsets(sets, 1.0).tolist() == [25.25, 75.25]

    def test_explained_spikes_are_not_handed_on(self) -> None:
        """Decode of each step has an owner."""
        t0, t1 = windows(100.0)
        found = find_spikes(t0, t1, series(10, (81.0, 0.0, 0.0, 0.0)), phases_of(10))

        assert union_onsets([found], 1.0).size == 0
