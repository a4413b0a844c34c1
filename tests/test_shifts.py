"""The shift null: circular tables, sums over blocks, and p-values that hold their level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.shifts import (
    Loop,
    circular,
    correlate_circular,
    fast_length,
    in_chunks,
    shift_test,
    spread,
    table_sums,
)

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray, IntArray


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_loop_lengths() -> None:
    """Four steps in 0-50 s: 12.5 s each."""
    loop = Loop(np.array([2.0, 10.0, 25.0, 40.0]), (0.0, 50.0))

    assert (loop.steps, loop.seconds, loop.step_s) == (4, 50.0, 12.5)


@pytest.mark.parametrize(("steps", "blocks"), [(5, 1), (8, 1), (11, 1), (12, 2), (20, 2), (40, 5), (60, 8)])
def test_blocks_are_of_about_eight_steps(steps: int, blocks: int) -> None:
    """round(N / 8), at least one."""
    loop = Loop(np.arange(steps, dtype=np.float64), (0.0, float(steps)))

    assert loop.blocks().size - 1 == blocks


def test_blocks_fill_the_run_and_begin_with_steps() -> None:
    """First and last edge are the run's; the others are step starts."""
    loop = Loop(np.arange(1.0, 21.0), (0.0, 30.0))

    assert loop.blocks().tolist() == [0.0, 11.0, 30.0]


def test_a_long_run_is_spread_over_evenly_spaced_blocks() -> None:
    """The first and the last are among them; a short run keeps all."""
    edges = np.arange(1001.0)

    few = spread(edges, 5)

    assert few == [(0.0, 1.0), (249.0, 250.0), (499.0, 500.0), (749.0, 750.0), (999.0, 1000.0)]
    assert spread(np.array([0.0, 3.0, 7.0]), 128) == [(0.0, 3.0), (3.0, 7.0)]


def test_circular_correlation_counts_matches_at_every_offset() -> None:
    """Impulses at 1 and 4, window at 3 in 6 cells: offset 2 brings 1 to 3, offset 5 brings 4 to 3."""
    impulses, mask = np.zeros(6), np.zeros(6)
    impulses[[1, 4]] = 1
    mask[3] = 1

    assert np.rint(correlate_circular(impulses, mask)).tolist() == [0, 0, 1, 0, 0, 1]


def test_correlation_works_on_several_columns_at_once() -> None:
    """Each column as if alone."""
    impulses, mask = rng().random(7), rng(2).random((7, 3))

    together = correlate_circular(impulses, mask)

    for column in range(3):
        assert together[:, column] == pytest.approx(correlate_circular(impulses, mask[:, column]))


def test_table_sums_look_up_shift_minus_lag_in_each_block() -> None:
    """Blocks of 3 and 4 cells; shifts 1 and 2, lags 0 and 1."""
    tables = (np.array([10.0, 11.0, 12.0]), np.array([20.0, 21.0, 22.0, 23.0]))

    sums = table_sums(tables, np.array([[1, 2], [0, 0]]), np.array([0, 1]))

    assert sums.tolist() == [[11 + 22, 10 + 21], [10 + 20, 12 + 23]]


def test_features_are_summed_before_they_are_scored() -> None:
    """Tables with two features a cell keep their last axis."""
    tables = (np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(3, 2) * 10)

    sums = table_sums(tables, np.array([[0, 1]]), np.array([0]))

    assert sums.tolist() == [[[0 + 20, 1 + 30]]]


def test_chunks_give_the_same_answer() -> None:
    """Draw by draw or all together."""
    shifts = np.arange(10).reshape(10, 1)

    def double(part: IntArray) -> FloatArray:
        return 2.0 * part[:, 0].astype(np.float64)

    assert in_chunks(double, shifts, 10**9).tolist() == in_chunks(double, shifts, 1).tolist()


def test_a_peak_at_no_shift_has_the_smallest_p() -> None:
    """Observed 9, every other offset 0."""
    table = np.zeros(500)
    table[0] = 9.0

    test = shift_test((table,), np.array([0]), circular((table,), rng(), 999, exclude=5))

    assert (test.p_value, test.observed, test.lag_cell) == (0.001, 9.0, 0)


def test_the_best_lag_is_found_and_paid_for() -> None:
    """The peak is at lag 3 (offset -3); the null may use every lag too."""
    table = np.zeros(500)
    table[-3 % 500] = 9.0
    lags = np.arange(-5, 6)

    test = shift_test((table,), lags, circular((table,), rng(), 999, exclude=0))

    assert test.lag_cell == 3
    assert test.p_value == pytest.approx(11 / 500, abs=0.02)


def test_equal_lags_are_answered_by_the_middle_one() -> None:
    """A plateau of matches from lag 2 to 6 is lag 4."""
    table = np.zeros(100)
    table[[-2, -3, -4, -5, -6]] = 1.0

    test = shift_test((table,), np.arange(10), circular((table,), rng(), 99))

    assert test.lag_cell == 4


def test_a_flat_statistic_rejects_nothing() -> None:
    """All offsets equal: p = 1."""
    tables = (np.ones(50), np.ones(70))

    assert shift_test(tables, np.array([0]), circular(tables, rng(), 200)).p_value == 1.0


def test_p_is_uniform_when_no_shift_is_special() -> None:
    """Random tables, 400 of them: about 5 % below 0.05 (2.5 to 8 %)."""
    generator = rng(11)
    below = 0
    for _ in range(400):
        tables = tuple(generator.random(n) for n in (90, 110))
        below += shift_test(tables, np.array([0, 1]), circular(tables, generator, 199)).p_value <= 0.05

    assert 0.025 <= below / 400 <= 0.08


def test_long_grids_are_cut_into_a_length_that_ffts_take_quickly() -> None:
    """A prime of 20,011 cells becomes 20,250 = 2 x 3^4 x 5^3 at most; a short grid stays as it is."""
    actual = fast_length(20_011)

    assert 20_011 <= actual <= 20_250
    assert fast_length(19_997) == 19_997
