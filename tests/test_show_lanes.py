"""Tracks cut into columns."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import empty_report, gpus_only_report, stragglers, tiny_report
from dipstick.model import STATES, Report, StepArrival
from dipstick.phases import CODE
from dipstick.show import lanes

if TYPE_CHECKING:
    from dipstick.model import FloatArray


def cut(t0: list[float], t1: list[float], edges: list[float]) -> lanes.Cut:
    return lanes.cut(np.array(t0), np.array(t1), np.array(edges))


def pieces(found: lanes.Cut) -> list[tuple[int, int, float]]:
    rows = zip(found.window, found.column, found.seconds, strict=True)
    return [(int(w), int(c), round(float(s), 9)) for w, c, s in rows]


def test_windows_are_cut_at_column_edges() -> None:
    """The worked example of the docstring."""
    assert pieces(cut([0, 1], [1, 4], [0, 2, 4])) == [(0, 0, 1.0), (1, 0, 1.0), (1, 1, 2.0)]


def test_a_window_longer_than_the_columns_fills_each_of_them() -> None:
    """One window over three columns gives three pieces."""
    assert pieces(cut([0], [10], [2, 4, 6, 8])) == [(0, 0, 2.0), (0, 1, 2.0), (0, 2, 2.0)]


def test_windows_outside_and_empty_ones_give_nothing() -> None:
    """Before, after, and of no length."""
    assert pieces(cut([0, 5, 6, 20], [1, 5, 7, 30], [2, 8, 14])) == [(2, 0, 1.0)]
    assert pieces(cut([], [], [0, 1])) == []


def test_where_windows_overlap_the_earlier_keeps_the_time() -> None:
    """No second is counted twice."""
    assert pieces(cut([0, 1, 1.5], [3, 2, 4], [0, 4])) == [(0, 0, 3.0), (2, 0, 1.0)]


def coverage_by_hand(t0: FloatArray, t1: FloatArray, low: float, high: float) -> float:
    return float(sum(max(0.0, min(b, high) - max(a, low)) for a, b in zip(t0, t1, strict=True)))


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 3)), min_size=1, max_size=30),
    st.floats(-2, 20),
    st.floats(0.1, 30),
    st.integers(1, 12),
)
def test_the_pieces_of_a_column_add_up_to_what_covers_it(
    steps: list[tuple[float, float]], start: float, length: float, columns: int
) -> None:
    """For windows with gaps, any range and any number of columns; checked against a plain sum."""
    t0 = np.cumsum([gap + (0 if i == 0 else steps[i - 1][1]) for i, (gap, _) in enumerate(steps)])
    t1 = t0 + np.array([width for _, width in steps])
    edges = np.linspace(start, start + length, columns + 1)
    found = lanes.cut(t0, t1, edges)
    covered = np.bincount(found.column, found.seconds, columns)
    expected = [coverage_by_hand(t0, t1, a, b) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(covered, expected, atol=1e-9)


def test_a_mean_is_weighted_by_time() -> None:
    """100 for one second and 0 for half a second: 66.7; then zeros; then nothing at all."""
    windows = cut([0, 1], [1, 2], [0, 1.5, 3, 4.5])
    found = lanes.mean_of(windows, np.array([100.0, 0.0]))
    np.testing.assert_allclose(found, [100 / 1.5, 0.0, np.nan])


def test_nan_counts_as_not_covered() -> None:
    """A failed read neither raises nor lowers the mean."""
    windows = cut([0, 1], [1, 2], [0, 2])
    np.testing.assert_allclose(lanes.mean_of(windows, np.array([np.nan, 40.0])), [40.0])
    np.testing.assert_allclose(lanes.mean_of(windows, np.array([np.nan, np.nan])), [np.nan])


def test_a_column_gets_the_code_that_covers_most_of_it() -> None:
    """Three windows of 4 beat one longer window of 2; nothing is -1; a tie goes to the lower code."""
    windows = cut([0, 1, 2, 4, 6, 7], [1, 2, 4, 5, 7, 8], [0, 5, 6, 8])
    codes = np.array([4, 4, 2, 4, 3, 1], dtype=np.uint8)
    assert lanes.most_of(windows, codes).tolist() == [4, -1, 1]


def test_runs_of_equal_codes() -> None:
    """First column, one past the last, code."""
    assert lanes.runs(np.array([4, 4, 5])) == [(0, 2, 4), (2, 3, 5)]
    assert lanes.runs(np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize(
    ("t0", "t1", "most", "times", "step"),
    [
        (40.1, 92.3, 6, [50.0, 60.0, 70.0, 80.0, 90.0], 10.0),
        (0.0, 0.2, 4, [0.0, 0.05, 0.1, 0.15, 0.2], 0.05),
        (0.0, 86_400.0, 4, [0.0, 21_600.0, 43_200.0, 64_800.0, 86_400.0], 21_600.0),
        (5.0, 5.0, 3, [5.0], 0.0001),
    ],
)
def test_ticks_are_round(t0: float, t1: float, most: int, times: list[float], step: float) -> None:
    """From milliseconds to days."""
    assert lanes.ticks(t0, t1, most) == (times, step)


def with_steps(*lengths: float) -> Report:
    """A report whose steps have these lengths and start at 1 s."""
    base = tiny_report(stragglers=None)
    edges = np.cumsum([1.0, *lengths])
    run = replace(base.run, window_s=(1.0, float(edges[-1])), steps=len(lengths))
    return replace(base, run=run, tracks=replace(base.tracks, step_start_s=edges[:-1]))


def test_the_typical_steps_are_those_closest_to_the_median() -> None:
    """The worked example of the docstring: of 20, 13, 12, 14, 13 the pair from step 1 on."""
    found = lanes.typical(with_steps(20, 13, 12, 14, 13), 40)
    assert (found.first_step, found.last_step, found.t0, found.t1) == (1, 2, 21.0, 46.0)
    assert found.typical


def test_a_wider_screen_shows_more_steps_but_never_more_than_four() -> None:
    """One step for each 20 columns, two at least."""
    report = with_steps(*[10.0] * 30)
    shown = [len(lanes.typical(report, columns).steps) for columns in (10, 40, 66, 80, 500)]
    assert shown == [2, 2, 3, 4, 4]


def test_few_steps_are_shown_whole() -> None:
    """Two steps on a screen for three: no zoom."""
    found = lanes.typical(with_steps(10, 10), 66)
    assert (found.typical, found.t0, found.t1) == (False, 1.0, 21.0)


def test_steps_carry_the_numbers_of_the_framework_where_they_are_known() -> None:
    """A resumed run's steps begin at 100."""
    arrivals = tuple(StepArrival(100 + i, 0, 0.0, {}, None, None, None) for i in range(2))
    report = tiny_report(stragglers=replace(stragglers(), arrivals=arrivals))
    assert lanes.step_starts(report) == [(100, 1.0), (101, 11.0)]
    assert lanes.step_starts(replace(report, stragglers=None)) == [(0, 1.0), (1, 11.0)]


def test_a_range_can_be_asked_for() -> None:
    """Half open ends take the window's; only steps that start inside are marked."""
    report = tiny_report()
    assert lanes.between(report, 10.0, None) == lanes.Range(10.0, 21.0, steps=((1, 11.0),))
    assert lanes.between(report, None, 3.0) == lanes.Range(1.0, 3.0, steps=((0, 1.0),))


def test_lanes_of_a_report() -> None:
    """Twenty columns of a second: the cycle of the hand-made report comes out as it was put in."""
    first, second = lanes.lanes(tiny_report(), lanes.whole(tiny_report()), 20)
    assert first.util[:10].tolist() == [100] * 4 + [15] * 3 + [100] * 2 + [60]
    assert [STATES[c] for c in first.state[6:10]] == ["light", "spinning", "spinning", "compute"]
    assert second.phase is not None
    assert second.phase[:10].tolist() == [CODE["generate"]] * 5 + [CODE["reward"]] * 4 + [CODE["backward"]]


def test_a_gpu_without_rank_takes_the_rank_that_lists_it() -> None:
    """An engine's second GPU shows its rank's phases; one that no rank lists shows none."""
    base = tiny_report()
    unnamed = tuple(replace(track, rank=None) for track in base.tracks.gpus)
    only_first = (base.tracks.ranks[0],)
    report = replace(base, tracks=replace(base.tracks, gpus=unnamed, ranks=only_first))
    assert [lane.rank for lane in lanes.lanes(report, lanes.whole(report), 5)] == [0, None]


def test_without_gpus_there_are_no_lanes() -> None:
    """Nothing to draw is an empty tuple, not an error."""
    assert lanes.lanes(empty_report(), lanes.whole(empty_report()), 10) == ()
    assert [lane.phase for lane in lanes.lanes(gpus_only_report(), lanes.whole(gpus_only_report()), 10)] == [
        None,
        None,
    ]
