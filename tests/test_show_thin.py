"""Series made short: nothing that matters is lost, and what was left out is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.show.thin import disjoint, held, inside, thin, thin_codes


def seconds(*values: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of one second each, from 0 on."""
    t = np.arange(len(values), dtype=float)
    return t, t + 1, np.array(values, float)


def test_a_short_series_stays_as_it_is() -> None:
    """Least and most are the sample itself."""
    cells = thin(*seconds(1, 9, 2, 3), [], 4)
    assert (cells.low.tolist(), cells.high is cells.low, cells.is_thinned) == ([1, 9, 2, 3], True, False)


def test_a_column_keeps_its_least_and_most() -> None:
    """The docstring's example: one column of four seconds."""
    cells = thin(*seconds(1, 9, 2, 3), [], 2)
    assert (cells.t0_s.tolist(), cells.t1_s.tolist()) == ([0], [4])
    assert (cells.low.tolist(), cells.high.tolist(), cells.samples) == ([1], [9], 4)
    assert cells.mean is not None
    assert cells.mean.tolist() == [3.75]


def test_a_window_keeps_every_sample() -> None:
    """Around a receipt nothing is merged."""
    cells = thin(*seconds(1, 9, 2, 3), [(3, 4)], 2)
    assert list(zip(cells.t0_s, cells.low, cells.high, strict=True)) == [(0, 1, 9), (3, 3, 3)]


def test_a_hole_stays_a_hole() -> None:
    """A column never bridges a gap that is wider than itself."""
    t0 = np.array([0.0, 1.0, 50.0, 51.0, 52.0, 53.0])
    cells = thin(t0, t0 + 1, np.arange(6.0), [], 4)
    assert next(zip(cells.t0_s, cells.t1_s, strict=True)) == (0, 2)
    assert 50.0 in cells.t0_s


def test_what_was_not_measured_stays_unknown() -> None:
    """NaN beside a value gives way to it; NaN alone stays NaN."""
    cells = thin(*seconds(np.nan, 5, np.nan, np.nan), [], 2)
    assert (cells.low[0], cells.high[0]) == (5, 5)
    assert cells.mean is not None
    assert cells.mean.tolist() == [5.0]
    alone = thin(*seconds(np.nan, np.nan, np.nan, np.nan), [], 2)
    assert np.isnan(alone.low).all()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.integers(2, 60))
def test_no_peak_is_lost(values: list[float], most: int) -> None:
    """Every sample lies between the least and most of a cell, and the extremes of the whole stay."""
    cells = thin(*seconds(*values), [(10, 12)], most)
    assert cells.low.min() == min(values)
    assert cells.high.max() == max(values)
    assert len(cells.t0_s) <= most + 2 + 5


def test_neighbours_of_one_code_are_one_cell() -> None:
    """States repeat for many windows."""
    t0, t1, _ = seconds(*range(5))
    cells = thin_codes(t0, t1, np.array([1, 1, 2, 2, 1], np.uint8), [], 10)
    assert list(zip(cells.t0_s, cells.t1_s, cells.low, strict=True)) == [(0, 2, 1), (2, 4, 2), (4, 5, 1)]


def test_a_column_of_codes_gets_the_one_that_covers_most() -> None:
    """3 s of code 2 against 1 s of code 1."""
    t0 = np.array([0.0, 1.0, 2.0, 3.0])
    cells = thin_codes(t0, t0 + np.array([1, 1, 1, 2]), np.array([2, 1, 2, 1], np.uint8), [], 2)
    assert cells.low.tolist() == [1]


def test_empty_series() -> None:
    """Nothing in, nothing out."""
    none = np.zeros(0)
    assert len(thin(none, none, none, [(0, 1)], 10).t0_s) == 0
    assert len(thin_codes(none, none, none.astype(np.uint8), [], 10).t0_s) == 0
    assert [len(part) for part in held(none, none)] == [0, 0, 0]


def test_inside_is_touching() -> None:
    """An end that meets a window's start does not touch it."""
    t0, t1, _ = seconds(*range(4))
    assert inside(t0, t1, [(1.5, 2.0), (3.5, 9)]).tolist() == [False, True, False, True]
    assert inside(t0, t1, []).tolist() == [False] * 4


@pytest.mark.parametrize(
    ("windows", "longest", "taken"),
    [
        ([(5, 6), (0, 2), (1, 3)], 9, [(0, 3), (5, 6)]),
        ([(5, 6), (0, 2), (1, 3)], 3.5, [(0, 2), (5, 6)]),
        ([(0, 100), (1, 2)], 5, [(1, 2)]),
        ([], 5, []),
    ],
)
def test_windows(
    windows: list[tuple[float, float]], longest: float, taken: list[tuple[float, float]]
) -> None:
    """United, in order; the first come first, and what is too long is left out."""
    assert disjoint(windows, longest) == taken


def test_instants_stand_for_the_time_before_them() -> None:
    """At most three usual distances: a hole stays a hole."""
    t0, t1, _ = held(np.array([1.0, 2, 3, 10]), np.zeros(4))
    assert list(zip(t0, t1, strict=True)) == [(0, 1), (1, 2), (2, 3), (7, 10)]
