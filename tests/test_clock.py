"""One time axis: drift is followed, steps are not, and a sample stands for an interval."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.clock import (
    MIN_ANCHOR_DISTANCE_NS,
    BackwardStep,
    ClockMap,
    ClockStep,
    covering_segments,
    detect_backward_steps,
    fit_clock,
    window_interval,
)

S = 1_000_000_000
MS = 1_000_000
EPOCH = 1_796_000_000 * S

IntArray = npt.NDArray[np.int64]


def ns(*seconds: float) -> IntArray:
    """Seconds as an array of nanoseconds."""
    return np.array([round(second * S) for second in seconds], dtype=np.int64)


def fit(mono_s: list[float], offset_s: list[float]) -> ClockMap:
    """A clock whose anchors lie at these monotonic times with these offsets above ``EPOCH``."""
    mono = ns(*mono_s)
    return fit_clock(mono, mono + EPOCH + ns(*offset_s))


# --- conversion ---


def test_one_anchor_is_a_constant_offset() -> None:
    """With a single anchor every time is shifted by the same amount, before it and after it."""
    clock = fit([10], [0.5])
    assert (clock.to_unix(ns(0, 10, 99)) - EPOCH).tolist() == ns(0.5, 10.5, 99.5).tolist()


def test_drift_between_anchors_is_followed() -> None:
    """6 ms of drift over 60 s: half of it is there after 30 s, all of it after 60 s."""
    clock = fit([0, 60], [100, 100.006])
    assert (clock.to_unix(ns(0, 30, 60)) - EPOCH).tolist() == ns(100, 130.003, 160.006).tolist()
    assert clock.steps == ()


def test_the_last_offset_holds_after_the_last_anchor_and_the_first_before_the_first() -> None:
    """Drift is not extrapolated."""
    clock = fit([60, 120], [1.0, 1.006])
    assert (clock.to_unix(ns(0, 180)) - EPOCH).tolist() == ns(1.0, 181.006).tolist()


def test_a_step_is_removed_and_reported() -> None:
    """The docstring's example: -2.996 s between 60 and 120 s is a step; the axis goes on as before it."""
    clock = fit([0, 60, 120, 180], [1000.0, 1000.006, 997.010, 997.016])
    assert clock.steps == (ClockStep(60 * S, 120 * S, EPOCH + 1_060_006 * MS, -2_996 * MS),)
    assert (clock.to_unix(ns(90, 120, 180)) - EPOCH).tolist() == ns(1090.006, 1120.006, 1180.012).tolist()


@pytest.mark.parametrize(
    ("change_ns", "steps"), [(80 * MS, 0), (80 * MS + 1, 1), (-80 * MS, 0), (-80 * MS - 1, 1)]
)
def test_the_limit_between_drift_and_step_is_50_ms_and_500_ppm(change_ns: int, steps: int) -> None:
    """Over 60 s an offset may change by 50 + 30 ms; one nanosecond more is a step."""
    mono = ns(0, 60)
    clock = fit_clock(mono, mono + EPOCH + np.array([0, change_ns]))
    assert len(clock.steps) == steps


def test_anchors_may_come_in_any_order() -> None:
    """Anchors of several flushes are sorted by monotonic time."""
    shuffled, ordered = fit([60, 0, 120], [0.006, 0, 0.012]), fit([0, 60, 120], [0, 0.006, 0.012])
    assert shuffled.unix_ns.tolist() == ordered.unix_ns.tolist()


def test_anchors_closer_than_a_second_hold_no_drift() -> None:
    """An anchor read 10 ms after another with 40 ms of noise would turn time back; it is skipped."""
    clock = fit([0, 60, 60.01], [0, 0, -0.04])
    assert clock.mono_ns.tolist() == ns(0, 60).tolist()
    assert (clock.to_unix(ns(60.02)) - EPOCH).tolist() == ns(60.02).tolist()


def test_a_clock_without_anchors_is_an_error() -> None:
    """There is nothing to convert with."""
    with pytest.raises(ValueError, match="at least one"):
        fit_clock(ns(), ns())


ANCHORS = st.lists(
    st.tuples(st.integers(0, 10**14), st.integers(-(10**12), 10**12)),
    min_size=1,
    max_size=8,
    unique_by=lambda a: a[0],
)
TIMES = st.lists(st.integers(1, 10**14), min_size=2, max_size=20)


@given(ANCHORS, TIMES)
def test_conversion_never_turns_time_back(anchors: list[tuple[int, int]], times: list[int]) -> None:
    """Whatever the anchors (steps, noise, any order): a later monotonic time is never an earlier Unix time."""
    mono = np.array([a for a, _ in anchors])
    clock = fit_clock(mono, mono + EPOCH + np.array([offset for _, offset in anchors]))
    assert (np.diff(clock.to_unix(np.sort(np.array(times)))) >= 0).all()


@given(ANCHORS, TIMES)
def test_the_inverse_is_exact_to_nanoseconds(anchors: list[tuple[int, int]], times: list[int]) -> None:
    """Pushing a time range down to raw clocks must not lose rows: the margin there is 1000 ns."""
    mono = np.array([a for a, _ in anchors])
    clock = fit_clock(mono, mono + EPOCH + np.array([offset for _, offset in anchors]))
    there = np.array(times)
    assert np.abs(clock.to_mono(clock.to_unix(there)) - there).max() <= 3


@given(ANCHORS)
def test_without_steps_kept_anchors_are_hit_exactly(anchors: list[tuple[int, int]]) -> None:
    """At an anchor the conversion gives the Unix time that was read there, as long as no step came before."""
    mono = np.array([a for a, _ in anchors])
    unix = mono + EPOCH + np.array([offset for _, offset in anchors])
    clock = fit_clock(mono, unix)
    read = dict(zip(mono.tolist(), unix.tolist(), strict=True))
    before = clock.steps[0].before_ns if clock.steps else 2**62
    fine = clock.mono_ns[clock.mono_ns < before]
    assert clock.to_unix(fine).tolist() == [read[m] for m in fine.tolist()]
    assert (np.diff(clock.mono_ns) >= MIN_ANCHOR_DISTANCE_NS).all()


# --- series that are already Unix time ---


def test_a_backward_step_is_found_and_a_gap_is_not_one() -> None:
    """12 s -> 9 s is a step of 3 s at index 3; 10 s -> 30 s is a hole in the recording."""
    assert detect_backward_steps(ns(10, 11, 12, 9, 10, 30)) == (BackwardStep(3, 12 * S, 3 * S),)


def test_equal_times_are_no_step() -> None:
    """Two rows of the same instant do not go back."""
    assert detect_backward_steps(ns(1, 1, 2)) == ()


@given(st.lists(st.integers(0, 10**18), max_size=30))
def test_a_sorted_series_has_no_backward_step(times: list[int]) -> None:
    """And the steps of any series are exactly the places where the difference is negative."""
    series = np.array(times, dtype=np.int64)
    assert detect_backward_steps(np.sort(series)) == ()
    found = {step.index: step.back_ns for step in detect_backward_steps(series)}
    assert found == {i: a - b for i, (a, b) in enumerate(pairwise(times), start=1) if b < a}


# --- what a sample stands for ---


def test_a_sample_stands_for_the_window_before_it() -> None:
    """Utilization stamped 5.0 s with a 200 ms window is about 4.8 s to 5.0 s; a window may differ by sample."""
    start, end = window_interval(ns(5.0, 6.0), ns(0.2, 1.0))
    assert (start.tolist(), end.tolist()) == (ns(4.8, 5.0).tolist(), ns(5.0, 6.0).tolist())


def test_regular_samples_tile_the_time_and_a_gap_stays_open() -> None:
    """The docstring's example: 1, 2, 3, 7 s with period 1 s cover 0-3 s and 6-7 s."""
    start, end = covering_segments(ns(1, 2, 3, 7), window_ns=S // 5)
    assert start.tolist() == ns(0, 1, 2, 6).tolist()
    assert end.tolist() == ns(1, 2, 3, 7).tolist()


def test_jitter_of_half_a_period_leaves_no_gap() -> None:
    """0.1 s polls that come 0.14 s apart once are still contiguous; 0.16 s apart they are not."""
    start, _ = covering_segments(ns(0.1, 0.2, 0.34, 0.44, 0.60), period_ns=100 * MS)
    assert start.tolist() == ns(0.0, 0.1, 0.2, 0.34, 0.50).tolist()


def test_a_window_longer_than_the_period_bridges_missing_polls() -> None:
    """10 Hz polls of a 1 s window: a poll lost for 0.9 s leaves no gap, the window saw that time."""
    start, _ = covering_segments(ns(1.0, 1.1, 2.0), window_ns=S, period_ns=100 * MS)
    assert start.tolist() == ns(0.0, 1.0, 1.1).tolist()


@pytest.mark.parametrize(("times", "expected"), [([], []), ([3.0], [2.8])])
def test_few_samples(times: list[float], expected: list[float]) -> None:
    """No sample covers nothing; one sample covers its window."""
    start, end = covering_segments(ns(*times), window_ns=S // 5)
    assert (start.tolist(), end.tolist()) == (ns(*expected).tolist(), ns(*times).tolist())


@given(
    st.lists(st.integers(0, 10**12), max_size=40).map(sorted),
    st.integers(0, 2 * S),
    st.none() | st.integers(0, 2 * S),
)
def test_segments_never_overlap_and_never_reach_too_far(
    times: list[int], window: int, period: int | None
) -> None:
    """Segments end at their samples, do not overlap, and cover at most max(window, 1.5 periods)."""
    t = np.array(times, dtype=np.int64)
    start, end = covering_segments(t, window, period)
    distance = np.diff(t)
    usual = (
        period if period is not None else (np.median(distance[distance > 0]) if (distance > 0).any() else 0)
    )
    assert (end == t).all()
    assert (start <= end).all()
    assert (start[1:] >= end[:-1]).all()
    assert (end - start <= max(window, int(1.5 * usual))).all()
