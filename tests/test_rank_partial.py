"""Partial Spearman: what is taken out, the block permutation, the contest of drivers."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis.rank_partial import (
    Residuals,
    block_orders,
    contest,
    correlate,
    detectable_rho,
    steps_for,
    take_out,
)

RNG = np.random.default_rng(11)


def rng() -> np.random.Generator:
    """A fresh one for each test."""
    return np.random.default_rng(5)


class TestTakeOut:
    """Residuals of ranks."""

    def test_a_pure_trend_leaves_nothing(self) -> None:
        """The worked example: y is the step index."""
        y, x = np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 2, 3, 5, 4])
        left = take_out(y, {"x": x}, [])

        assert np.isnan(left.y).all()
        assert np.isnan(correlate(left.y, left.x["x"], left.columns, rng()).rho.value)

    def test_one_row_goes_to_the_lag(self) -> None:
        """30 steps leave 29 rows; step index and own past are two columns, one covariate a third."""
        y = RNG.normal(size=30)
        left = take_out(y, {"x": RNG.normal(size=30)}, [RNG.normal(size=30)])

        assert (left.y.size, left.columns) == (29, 3)

    def test_a_constant_covariate_costs_no_column(self) -> None:
        """Completions that are always 224 tokens long, as in the H200 trace."""
        left = take_out(RNG.normal(size=30), {"x": RNG.normal(size=30)}, [np.full(30, 224.0)])

        assert left.columns == 2

    def test_missing_steps_are_dropped_from_all_series(self) -> None:
        """One NaN in y, another in x."""
        y, x = RNG.normal(size=30), RNG.normal(size=30)
        y[3], x[7] = np.nan, np.nan

        assert take_out(y, {"x": x}, []).y.size == 27

    def test_a_constant_driver_has_no_residuals(self) -> None:
        """Every step hit the same timeout."""
        left = take_out(RNG.normal(size=30), {"x": np.full(30, 30.0)}, [])

        assert np.isnan(left.x["x"]).all()

    def test_the_order_of_values_is_all_that_counts(self) -> None:
        """Any rising transform of x leaves the same residuals."""
        y, x = RNG.normal(size=30), RNG.normal(size=30)

        assert take_out(y, {"x": x}, []).x["x"] == pytest.approx(take_out(y, {"x": np.exp(x)}, []).x["x"])


class TestCorrelate:
    """rho, interval, p."""

    def test_a_strong_relation_is_significant(self) -> None:
        """Y = x + noise, 30 steps."""
        x = RNG.normal(size=30)
        left = take_out(x + 0.3 * RNG.normal(size=30), {"x": x}, [])
        found = correlate(left.y, left.x["x"], left.columns, rng())

        assert found.p_value <= 0.005
        assert found.rho.low > 0.5

    def test_the_interval_is_fishers(self) -> None:
        """N = 29, two columns: half width 1.96 sqrt(1.06 / 24) on the z scale."""
        left = take_out(RNG.normal(size=30), {"x": RNG.normal(size=30)}, [])
        rho = correlate(left.y, left.x["x"], left.columns, rng()).rho

        assert np.arctanh(rho.high) - np.arctanh(rho.low) == pytest.approx(2 * 1.959964 * np.sqrt(1.06 / 24))

    def test_one_sided_asks_for_a_rise(self) -> None:
        """A falling relation is not "follows"; two-sided it is one."""
        x = RNG.normal(size=40)
        left = take_out(-x, {"x": x}, [])

        assert correlate(left.y, left.x["x"], left.columns, rng()).p_value > 0.9
        assert correlate(left.y, left.x["x"], left.columns, rng(), side="two-sided").p_value < 0.01

    def test_too_few_rows_have_no_p(self) -> None:
        """Five rows, two columns taken out."""
        found = correlate(np.arange(5.0), np.arange(5.0), 2, rng())

        assert np.isnan(found.p_value)
        assert (found.rho.low, found.rho.high) == (-1.0, 1.0)

    def test_wandering_series_are_not_called_related(self) -> None:
        """200 pairs of AR(0.9) series of 40 steps: naive Spearman rejects in a fifth, this in at most a tenth."""
        draw = np.random.default_rng(0)
        rejected = 0
        for _ in range(200):
            shock = draw.normal(size=(2, 240))
            for k in range(1, 240):
                shock[:, k] += 0.9 * shock[:, k - 1]
            y, x = shock[:, 200:]
            left = take_out(y, {"x": x}, [])
            rejected += correlate(left.y, left.x["x"], left.columns, draw, 199).p_value <= 0.05

        assert rejected <= 20


class TestBlockOrders:
    """The permutation's orders."""

    def test_every_order_holds_every_row_once(self) -> None:
        """17 rows in blocks of 5."""
        orders = block_orders(rng(), 17, 5, 50)

        assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(17), (50, 1)))

    def test_neighbours_stay_together_inside_blocks(self) -> None:
        """Blocks of 5 of 20 rows: at least 16 of 20 neighbours follow each other on the circle."""
        orders = block_orders(rng(), 20, 5, 50)

        assert (np.sum(np.diff(orders, axis=1) % 20 == 1, axis=1) >= 16).all()

    def test_one_row_can_be_ordered(self) -> None:
        """Nothing to permute."""
        assert block_orders(rng(), 1, 3, 4).tolist() == [[0]] * 4


class TestContest:
    """Which driver wins."""

    def test_the_true_driver_wins_over_a_correlated_one(self) -> None:
        """The other is the driver plus noise."""
        x = RNG.normal(size=60)
        left = Residuals(x + 0.3 * RNG.normal(size=60), {"a": x, "b": x + RNG.normal(size=60)}, 2)

        assert contest(left, rng()).winner == ("a",)

    def test_drivers_that_are_one_form_a_class_and_win_together(self) -> None:
        """With as many slots as jobs the makespan is the longest job."""
        x = RNG.normal(size=60)
        left = Residuals(
            x + 0.3 * RNG.normal(size=60), {"longest": x, "makespan": x.copy(), "c": RNG.normal(size=60)}, 2
        )
        found = contest(left, rng())

        assert found.winner == ("longest", "makespan")
        assert found.same == (("longest", "makespan"), ("c",))

    def test_two_equally_good_drivers_have_no_winner(self) -> None:
        """Y is their sum."""
        a, b = RNG.normal(size=60), RNG.normal(size=60)

        assert contest(Residuals(a + b, {"a": a, "b": b}, 2), rng()).winner is None

    def test_a_constant_driver_does_not_run(self) -> None:
        """Its residuals are NaN."""
        x = RNG.normal(size=30)
        found = contest(Residuals(x, {"a": x, "b": np.full(30, np.nan)}, 2), rng())

        assert set(found.rho) == {"a"}

    def test_without_drivers_nobody_wins(self) -> None:
        """Empty."""
        assert contest(Residuals(RNG.normal(size=30), {}, 2), rng()).winner is None


class TestReach:
    """Detectable rho and steps needed."""

    def test_thirty_steps_see_a_half(self) -> None:
        """The worked example: 0.48 with three columns."""
        assert detectable_rho(30, 3) == pytest.approx(0.48, abs=0.005)

    def test_a_half_needs_twenty_eight_steps(self) -> None:
        """The other way round."""
        assert steps_for(0.5, 3) == 28

    def test_too_few_steps_see_nothing(self) -> None:
        """No degrees of freedom left."""
        assert detectable_rho(6, 3) is None
