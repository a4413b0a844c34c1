"""Properties of the parts that everything else counts on, against the obvious slow form of each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dipstick.analysis.dip_width import dip_widths
from dipstick.analysis.rank_partial import block_orders, take_out
from dipstick.analysis.spike_events import off_beat
from dipstick.analysis.spike_mixture import fit_mixture
from dipstick.analysis.spike_null import hit_test
from dipstick.analysis.spike_power import fisher_power
from dipstick.analysis.spike_schedules import Opportunities, hit, measure, merged, overlap, touches
from dipstick.analysis.spikes import find_spikes, runs_above
from dipstick.analysis.stats import binomial_pmf, fisher_greater
from dipstick.analysis.trend_causes import share_explained

if TYPE_CHECKING:
    from dipstick.model import FloatArray

# Quarter seconds are exact in binary: no property fails for a rounding.
QUARTERS = st.integers(0, 400).map(lambda n: n / 4)
WINDOWS = st.lists(st.tuples(QUARTERS, st.integers(1, 40).map(lambda n: n / 4)), min_size=1, max_size=12)
HEIGHTS = npst.arrays(np.float64, st.integers(1, 40), elements=st.integers(0, 30).map(float))


def bounds(windows: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    """Starts and ends."""
    lo = np.array([a for a, _ in windows])
    return lo, lo + np.array([b for _, b in windows])


def cells(windows: list[tuple[float, float]]) -> set[int]:
    """The quarter seconds inside, one by one."""
    return {q for a, length in windows for q in range(round(4 * a), round(4 * (a + length)))}


def opportunities(windows: list[tuple[float, float]]) -> Opportunities:
    """All fired and clean."""
    lo, hi = bounds(windows)
    flag = np.ones(lo.size, dtype=bool)
    return Opportunities(lo, hi, flag, flag)


class TestWindows:
    """Sets of seconds."""

    @given(WINDOWS)
    def test_the_measure_is_the_number_of_cells_inside(self, windows: list[tuple[float, float]]) -> None:
        """Whatever overlaps."""
        assert measure(*bounds(windows)) == len(cells(windows)) / 4

    @given(WINDOWS)
    def test_merged_windows_are_apart_and_in_order(self, windows: list[tuple[float, float]]) -> None:
        """Each begins after the one before it ended."""
        lo, hi = merged(*bounds(windows))

        assert (lo < hi).all()
        assert (lo[1:] > hi[:-1]).all()

    @given(WINDOWS)
    def test_merging_twice_changes_nothing(self, windows: list[tuple[float, float]]) -> None:
        """A projection."""
        once = merged(*bounds(windows))
        twice = merged(*once)

        assert (once[0].tolist(), once[1].tolist()) == (twice[0].tolist(), twice[1].tolist())

    @given(WINDOWS, WINDOWS)
    def test_overlap_is_jaccard(self, a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
        """Cells in both over cells in either."""
        one, two = cells(a), cells(b)

        assert overlap(opportunities(a), opportunities(b)) == pytest.approx(len(one & two) / len(one | two))

    @given(WINDOWS, WINDOWS)
    def test_touching_is_any_pair_that_overlaps(
        self, a: list[tuple[float, float]], b: list[tuple[float, float]]
    ) -> None:
        """Closed intervals."""
        (lo, hi), (other_lo, other_hi) = bounds(a), bounds(b)
        slow = [bool(np.any((other_lo <= h) & (other_hi >= x))) for x, h in zip(lo, hi, strict=True)]

        assert touches(lo, hi, other_lo, other_hi).tolist() == slow

    @given(WINDOWS, st.lists(QUARTERS, max_size=20))
    def test_a_window_is_hit_if_any_onset_lies_in_it(
        self, windows: list[tuple[float, float]], onsets: list[float]
    ) -> None:
        """Closed intervals again."""
        lo, hi = bounds(windows)
        onset = np.sort(np.array(onsets))
        slow = [bool(np.any((onset >= a) & (onset <= b))) for a, b in zip(lo, hi, strict=True)]

        assert hit(onset, lo, hi).tolist() == slow


class TestRuns:
    """Hysteresis."""

    @given(HEIGHTS)
    def test_runs_are_what_a_loop_finds(self, height: FloatArray) -> None:
        """Enter 15, leave 7.5."""
        slow, start = [], None
        for i, h in enumerate([*height, -1.0]):
            if h >= 7.5 and start is None:
                start = i
            elif h < 7.5 and start is not None:
                if height[start:i].max() >= 15:
                    slow.append((start, i))
                start = None

        assert runs_above(height, np.full(height.size, 15.0), 0.5, np.ones(height.size)) == slow

    @given(HEIGHTS)
    def test_spikes_never_overlap_and_lie_inside_the_samples(self, height: FloatArray) -> None:
        """Without phases."""
        t0 = np.arange(float(height.size))
        spikes = find_spikes(t0, t0 + 1, height).spikes

        assert all(a.end_s <= b.start_s for a, b in pairwise(spikes))
        assert all(0 <= s.start_s < s.end_s <= height.size for s in spikes)

    @given(HEIGHTS, st.integers(1, 50).map(float))
    def test_adding_a_constant_moves_no_spike(self, height: FloatArray, level: float) -> None:
        """Only the height over the neighbourhood counts."""
        t0 = np.arange(float(height.size))
        before, after = find_spikes(t0, t0 + 1, height), find_spikes(t0, t0 + 1, height + level)

        assert [(s.start_s, s.end_s) for s in before.spikes] == [(s.start_s, s.end_s) for s in after.spikes]


class TestStatistics:
    """Tables, mixtures, permutations."""

    @given(st.integers(1, 8), st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
    def test_power_is_the_sum_over_rejected_tables(
        self, fired: int, unfired: int, p: float, q: float
    ) -> None:
        """Every table of hits, with its own Fisher p-value."""
        a, b = binomial_pmf(fired, p), binomial_pmf(unfired, q)
        slow = sum(
            float(a[i] * b[j])
            for i in range(fired + 1)
            for j in range(unfired + 1)
            if fisher_greater(i, fired, j, unfired) <= 0.0501
        )

        assert fisher_power(fired, unfired, p, q, 0.0501) == pytest.approx(slow, abs=1e-9)

    @given(WINDOWS, st.lists(QUARTERS, min_size=1, max_size=20, unique=True))
    def test_posterior_shares_add_up(self, windows: list[tuple[float, float]], onsets: list[float]) -> None:
        """Background and schedules share each spike without rest."""
        onset = np.sort(np.array(onsets))
        fit = fit_mixture(onset, [bounds(windows)], 120.0, 10)

        assert fit.background + fit.owner.sum(axis=1) == pytest.approx(1.0)

    @given(st.integers(0, 2**31), st.integers(3, 30))
    def test_hit_counts_stay_within_the_windows(self, seed: int, steps: int) -> None:
        """P in (0, 1], chance in [0, 1]."""
        rng = np.random.default_rng(seed)
        edges = np.concatenate([[0.0], np.cumsum(rng.uniform(20, 60, steps))])
        onset = np.sort(rng.uniform(0, edges[-1], 10))
        found = hit_test(onset, (edges[:-1] + 5, edges[:-1] + 9), edges, rng, 49, 3.0)

        assert 0 <= found.hits <= found.windows == steps
        assert 0 < found.p_value <= 1
        assert 0 <= found.chance <= 1

    @given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**31))
    def test_block_orders_are_permutations(self, size: int, block: int, seed: int) -> None:
        """Any size and block."""
        orders = block_orders(np.random.default_rng(seed), size, block, 5)

        assert (np.sort(orders, axis=1) == np.arange(size)).all()

    @given(st.integers(0, 2**31))
    def test_residuals_do_not_correlate_with_what_was_taken_out(self, seed: int) -> None:
        """Step index and covariate ranks."""
        rng = np.random.default_rng(seed)
        y, x, c = rng.normal(size=(3, 30))
        left = take_out(y, {"x": x}, [c])
        rank = np.argsort(np.argsort(c))[1:].astype(float)

        assert abs(np.corrcoef(left.y, np.arange(29))[0, 1]) < 1e-6
        assert abs(np.corrcoef(left.x["x"], rank)[0, 1]) < 1e-6

    @given(st.integers(0, 2**31), st.floats(-3, 3), st.floats(-3, 3))
    def test_the_drift_is_shared_out_without_rest(self, seed: int, own: float, through: float) -> None:
        """Y = own drift + through x c, exactly: the share is what goes through c."""
        rng = np.random.default_rng(seed)
        k = np.arange(40.0)
        c = k + rng.normal(0, 5, 40)
        y = own * k + through * c
        slope_c = np.polyfit(k, c, 1)[0]
        total = own + through * slope_c
        assume(abs(total) > 0.1)

        assert share_explained(y, c, rng, 10).value == pytest.approx(through * slope_c / total, abs=1e-6)

    @given(st.floats(5, 60), st.integers(20, 200))
    def test_a_run_cut_off_beat_ends_half_a_period_after_a_beat(self, period: float, steps: int) -> None:
        """And loses less than a period."""
        edges = np.arange(float(steps)) * 60.0
        cut = off_beat(edges, np.arange(0.0, edges[-1], period))

        assert (cut[-1] / period) % 1 == pytest.approx(0.5, abs=1e-6)
        assert edges[-1] - cut[-1] < period + 1e-9

    @given(st.floats(0, 5), st.floats(2, 25), st.floats(1, 8))
    def test_the_equivalent_width_is_the_dips_length(
        self, offset: float, length: float, window: float
    ) -> None:
        """For any dip and window, noise-free and contiguous."""
        lo, hi = 40 + offset, 40 + offset + length
        ts = np.arange(window, 120.0, window)
        inside = np.clip(np.minimum(ts, hi) - np.maximum(ts - window, lo), 0, None) / window
        found = dip_widths(
            ts, 90 - 70 * inside, window, (np.array([lo]), np.array([hi])), np.array([90.0]), 20.0
        )

        assert found.width_s[0] == pytest.approx(length, rel=1e-6)
