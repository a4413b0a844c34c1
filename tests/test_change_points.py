"""Change points in detail: splits, stretches, edges, and how often nothing is taken for something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.ar_null import ar1_draws, memory_of
from dipstick.analysis.change_points import find_changes
from dipstick.analysis.trends import judge_trend

if TYPE_CHECKING:
    from dipstick.analysis.change_points import ChangePoint
    from dipstick.model import FloatArray


def levels(*parts: tuple[float, int], sd: float = 1.0, seed: int = 0) -> FloatArray:
    """Levels and how many steps each lasts, with white noise."""
    flat = np.concatenate([np.full(n, level) for level, n in parts])
    return flat + np.random.default_rng(seed).normal(0, sd, flat.size)


def find(series: FloatArray, draws: int = 399) -> tuple[ChangePoint, ...]:
    """With a fixed seed."""
    return find_changes(series, np.random.default_rng(1), draws=draws)


class TestShapes:
    """What is found in planted series."""

    def test_a_stretch_in_the_middle_has_two_edges(self) -> None:
        """A slow neighbour from step 40 to 55 of 120: a single split can't see it."""
        found = [c.step for c in find(levels((60.0, 40), (75.0, 15), (60.0, 65)))]

        assert found == pytest.approx([40, 55], abs=2)

    def test_a_stretch_tells_both_levels(self) -> None:
        """60, 75, 60."""
        found = find(levels((60.0, 40), (75.0, 15), (60.0, 65)))

        assert [found[0].before, found[0].after, found[1].after] == pytest.approx([60, 75, 60], abs=1)

    def test_a_staircase_is_at_least_a_drift(self) -> None:
        """Four stairs look like long memory to a single split, but not to the line through them."""
        found = judge_trend(levels((10.0, 25), (20.0, 25), (30.0, 25), (40.0, 25)))

        assert found.verdict == "yes"
        assert found.shape in {"drift", "change"}

    def test_a_fall_is_found_like_a_rise(self) -> None:
        """20 to 10."""
        assert [c.step for c in find(levels((20.0, 30), (10.0, 30)))] == [30]

    def test_one_wild_step_is_not_a_change(self) -> None:
        """Ranks do not care how wild."""
        series = levels((10.0, 60))
        series[30] = 10_000.0

        assert find(series) == ()

    def test_a_change_near_the_end_needs_eight_steps_behind_it(self) -> None:
        """Four steps at another level are an outlier of the last segment, not a segment."""
        assert all(c.step <= 52 for c in find(levels((10.0, 56), (30.0, 4))))

    def test_changes_come_in_order_with_matching_levels(self) -> None:
        """What one leaves is what the next begins with."""
        found = find(levels((10.0, 30), (25.0, 30), (5.0, 30)))

        assert [c.step for c in found] == sorted(c.step for c in found)
        assert found[0].after == found[1].before

    def test_at_most_seven_changes_are_named(self) -> None:
        """Six is where the search stops; a stretch may add its second edge."""
        parts = [(10.0 + 20 * (i % 2), 12) for i in range(14)]

        assert len(find(levels(*parts))) <= 7

    def test_the_same_seed_gives_the_same_changes(self) -> None:
        """Draws come from the generator that is passed."""
        series = levels((10.0, 30), (12.0, 30))

        assert find(series) == find(series)


class TestLevel:
    """How often chance is taken for a change."""

    @pytest.mark.parametrize("n", [20, 40, 120])
    def test_white_noise_has_changes_in_at_most_one_run_of_ten(self, n: int) -> None:
        """100 runs at nominal 5 %."""
        found = sum(bool(find(levels((10.0, n), seed=s), 199)) for s in range(100))

        assert found <= 10

    def test_a_series_with_memory_is_not_taken_for_steps(self) -> None:
        """100 AR(0.8) series of 120 steps."""
        rng = np.random.default_rng(3)
        rows = ar1_draws(rng, rng.normal(size=120), 0.8, 999)[:100]

        assert sum(bool(find(row, 199)) for row in rows) <= 12


class TestMemory:
    """The estimate behind the null."""

    def test_more_fitted_parameters_raise_the_memory(self) -> None:
        """What was fitted hides memory; the correction gives it back."""
        rest = np.random.default_rng(0).normal(size=40)

        assert memory_of(rest, 8) > memory_of(rest, 2)

    def test_memory_is_never_negative_nor_one(self) -> None:
        """An alternating series reads 0, a line reads at most 0.98."""
        assert memory_of(np.tile([1.0, -1.0], 30)) == 0.0
        assert memory_of(np.arange(60.0)) == 0.98

    def test_a_constant_rest_has_none(self) -> None:
        """No variance to correlate."""
        assert memory_of(np.zeros(30)) == 0.0

    def test_draws_are_centred(self) -> None:
        """Whatever the rest's mean."""
        rows = ar1_draws(np.random.default_rng(0), np.random.default_rng(1).normal(5, 1, 200), 0.3, 199)

        assert float(rows.mean()) == pytest.approx(0.0, abs=0.1)

    def test_draws_start_in_the_stationary_spread(self) -> None:
        """The first step varies as much as the last."""
        rows = ar1_draws(np.random.default_rng(0), np.random.default_rng(1).normal(size=300), 0.9, 999)

        assert rows[:, 0].std() == pytest.approx(rows[:, -1].std(), rel=0.15)
