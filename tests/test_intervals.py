"""The interval algebra: exact, and right for any input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.analysis.intervals import (
    NONE,
    between,
    covered,
    indicator,
    integral,
    lay,
    merge_edges,
    nest,
    sample,
)

Spans = list[tuple[int, int]]


def arrays(
    spans: Spans,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Spans as sorted start and end arrays (ties longest first), as ``nest`` wants them."""
    ordered = sorted(spans, key=lambda s: (s[0], -s[1]))
    return np.array([s[0] for s in ordered], np.int64), np.array([s[1] for s in ordered], np.int64)


def innermost_by_hand(spans: Spans, t: int) -> int:
    """The latest-started span that is open at t, by looking at every span."""
    ordered = sorted(spans, key=lambda s: (s[0], -s[1]))
    open_now = [i for i, (a, b) in enumerate(ordered) if a <= t < b]
    return max(open_now, default=NONE)


def test_the_innermost_span_owns_each_instant() -> None:
    """``[0, 10)`` holding ``[2, 5)``: the outer span owns what the inner one leaves."""
    nesting = nest(*arrays([(0, 10), (2, 5)]))

    assert nesting.edges.tolist() == [0, 2, 5, 10]
    assert nesting.owner.tolist() == [0, 1, 0]
    assert nesting.parent.tolist() == [NONE, 0]
    assert nesting.level.tolist() == [1, 2]


def test_time_between_spans_belongs_to_nobody() -> None:
    """A hole stays a piece of its own, so that pieces tile the time."""
    nesting = nest(*arrays([(0, 2), (5, 6)]))

    assert nesting.edges.tolist() == [0, 2, 5, 6]
    assert nesting.owner.tolist() == [0, NONE, 1]


def test_touching_spans_are_siblings_not_parent_and_child() -> None:
    """A span that starts where another ends is beside it."""
    nesting = nest(*arrays([(0, 3), (3, 9)]))

    assert nesting.parent.tolist() == [NONE, NONE]
    assert nesting.owner.tolist() == [0, 1]


def test_crossing_spans_are_cut_where_the_later_one_starts() -> None:
    """Overlap in one thread is damage: the later start wins, and the damage is counted."""
    nesting = nest(*arrays([(0, 10), (5, 15)]))

    assert nesting.edges.tolist() == [0, 5, 15]
    assert nesting.owner.tolist() == [0, 1]
    assert nesting.crossings == 1


def test_an_empty_span_owns_nothing_and_has_no_level() -> None:
    """A span that ends where it starts takes no time from others."""
    nesting = nest(*arrays([(0, 4), (2, 2)]))

    assert nesting.owner.tolist() == [0]
    assert nesting.level.tolist() == [1, 0]


def test_no_spans_give_no_pieces() -> None:
    """Nothing in, nothing out."""
    nesting = nest(*arrays([]))

    assert len(nesting.edges) == 0
    assert len(nesting.owner) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda s: (s[0], s[0] + s[1])), max_size=25
    )
)
def test_every_instant_belongs_to_the_latest_started_open_span(spans: Spans) -> None:
    """Whatever the spans (nested, crossing, empty, equal), each instant has the owner one finds by hand."""
    nesting = nest(*arrays(spans))

    owners = sample(nesting.edges, nesting.owner, np.arange(-1, 95), NONE).tolist()

    assert owners == [innermost_by_hand(spans, t) for t in range(-1, 95)]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**15), st.integers(1, 10**13)).map(lambda s: (s[0], s[0] + s[1])),
        min_size=1,
        max_size=25,
    )
)
def test_pieces_tile_the_time_between_first_start_and_last_end(spans: Spans) -> None:
    """To the nanosecond, also for times as large as a day in nanoseconds."""
    nesting = nest(*arrays(spans))

    assert int(np.diff(nesting.edges).sum()) == max(b for _, b in spans) - min(a for a, _ in spans)
    assert (np.diff(nesting.edges) > 0).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 50)).map(lambda s: (s[0], s[0] + s[1])), max_size=15
    )
)
def test_the_union_covers_exactly_the_instants_that_any_interval_covers(spans: Spans) -> None:
    """``covered`` is disjoint, sorted, and neither loses nor adds an instant."""
    starts, ends = covered(
        np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64)
    )

    inside = {t for a, b in zip(starts.tolist(), ends.tolist(), strict=True) for t in range(a, b)}
    assert inside == {t for a, b in spans for t in range(a, b)}
    assert (starts[1:] > ends[:-1]).all()


def test_integral_of_a_step_function() -> None:
    """Rates 1 and 0.5 on [0, 10) and [10, 30): 20 in all, constant outside."""
    edges, rate = np.array([0, 10, 30], np.int64), np.array([1.0, 0.5])

    assert integral(edges, rate, np.array([-5, 0, 10, 20, 99], np.int64)).tolist() == [
        0.0,
        0.0,
        10.0,
        15.0,
        20.0,
    ]


def test_indicator_joins_touching_intervals() -> None:
    """[0, 5), [5, 8) and [10, 12) are two pieces of ones with a zero between."""
    edges, rate = indicator(np.array([5, 0, 10], np.int64), np.array([8, 5, 12], np.int64))

    assert edges.tolist() == [0, 8, 10, 12]
    assert rate.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("t", [-1, 12])
def test_a_step_function_has_its_default_outside(t: int) -> None:
    """Before the first edge and from the last edge on there is no value."""
    values = sample(np.array([0, 12], np.int64), np.array([7]), np.array([t], np.int64), -3)

    assert values.tolist() == [-3]


def test_merged_edges_are_sorted_and_unique() -> None:
    """Boundaries of several step functions become one grid."""
    assert merge_edges(np.array([5, 1]), np.array([5, 9])).tolist() == [1, 5, 9]


def test_an_integral_over_intervals_is_the_difference_of_two_instants() -> None:
    """Rates 1 and 0.5 on edges 0, 10, 30; intervals that overlap, that tile, and none."""
    edges, rate = np.array([0, 10, 30]), np.array([1.0, 0.5])
    apart, tiled = (np.array([0, 5]), np.array([10, 15])), (np.array([-5, 8, 12]), np.array([8, 12, 99]))

    assert between(edges, [rate], *apart)[0].tolist() == [10, 7.5]
    assert between(edges, [rate, 2 * rate], *tiled)[1].tolist() == [16, 6, 18]
    assert between(edges, [rate], np.zeros(0, np.int64), np.zeros(0, np.int64))[0].tolist() == []


def test_a_hole_between_windows_is_a_piece_and_touching_windows_have_none() -> None:
    """The example of the docstring, with a value in each window and 0 in the hole."""
    laid = lay(np.array([0, 2, 6]), np.array([2, 4, 7]))

    assert laid.edges.tolist() == [0, 2, 4, 6, 7]
    assert laid.piece.tolist() == [0, 1, 3]
    assert laid.rate(np.array([10.0, 20.0, 30.0])).tolist() == [10, 20, 0, 30]
    assert laid.rate(1.0).tolist() == [1, 1, 0, 1]


def test_no_windows_are_no_pieces() -> None:
    """Nothing in, nothing out."""
    laid = lay(np.zeros(0, np.int64), np.zeros(0, np.int64))

    assert (laid.edges.tolist(), laid.rate(np.zeros(0)).tolist()) == ([], [])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.floats(-9, 9)), max_size=12),
    st.lists(st.integers(-2, 50), max_size=6),
)
def test_windows_integrate_to_what_each_of_them_adds(
    rows: list[tuple[int, int, float]], times: list[int]
) -> None:
    """Whatever the holes (before each window) and the lengths, empty ones too."""
    ends = np.cumsum([hole + length for hole, length, _ in rows], dtype=np.int64)
    starts = ends - np.array([length for _, length, _ in rows], np.int64)
    values = np.array([value for _, _, value in rows])
    laid, at = lay(starts, ends), np.array(times, np.int64)
    by_hand = [
        sum(v * max(min(b, t) - a, 0) for a, b, v in zip(starts, ends, values, strict=True)) for t in times
    ]

    assert integral(laid.edges, laid.rate(values), at).tolist() == pytest.approx(by_hand)
