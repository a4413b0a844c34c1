"""What a sample stands for: windows, gaps, late clocks, and which signal is believed."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis.telemetry import Series, Signals, read_signals
from records import Row, boxcar, counters, near, ns, table, times, utilization

NAN = float("nan")


def signals(gpu: list[Row], profile: list[Row] | None = None) -> Signals:
    """The one GPU of these rows."""
    found = read_signals(table("gpu", gpu), table("gpu_counters", profile or []))
    assert len(found) == 1
    return found[0]


def windows(series: Series) -> list[tuple[float, float, float]]:
    """Each window: start and end in seconds, value."""
    t0, t1 = (series.t0 / 1e9).tolist(), (series.t1 / 1e9).tolist()
    return [(a, b, near(v, nan_ok=True)) for a, b, v in zip(t0, t1, series.value.tolist(), strict=True)]


def series(*pieces: tuple[float, float, float]) -> Series:
    """Pieces (start, end, value) in seconds."""
    return Series(
        times(*(a for a, _, _ in pieces)),
        times(*(b for _, b, _ in pieces)),
        np.array([v for _, _, v in pieces]),
    )


# Covering


def test_a_sample_stands_for_the_time_before_it() -> None:
    """5 Hz samples stamped 0.2, 0.4, 0.6 cover [0, 0.2), [0.2, 0.4), [0.4, 0.6)."""
    found = signals(utilization([10, 20, 30]))

    assert windows(found.util) == [(0, 0.2, 10), (0.2, 0.4, 20), (0.4, 0.6, 30)]
    assert (found.period_ns, found.window_ns, found.source) == (ns(0.2), ns(0.2), "buffer")


def test_a_hole_in_the_samples_is_a_gap_and_not_a_long_sample() -> None:
    """Samples until 0.6 and again from 5.0: [0.6, 4.8) is not recorded."""
    rows = [*utilization([50, 50, 50]), *utilization([50, 50, 50], start=4.8)]

    found = signals(rows)

    assert found.gaps_ns.tolist() == [ns(4.2)]
    assert found.util.recorded_ns == ns(1.2)


def test_a_sample_without_a_value_leaves_a_gap() -> None:
    """Missing is never zero: the windows beside it keep their own width."""
    found = signals(utilization([50, 50, None, None, 50, 50]))  # type: ignore[list-item]

    assert windows(found.util) == [(0, 0.2, 50), (0.2, 0.4, 50), (0.8, 1.0, 50), (1.0, 1.2, 50)]
    assert found.gaps_ns.tolist() == [ns(0.4)]


def test_coarse_samples_of_a_short_counter_cover_their_whole_period() -> None:
    """One sample each 2 s of a 0.2 s counter: it is all there is, so it stands for the 2 s."""
    rows = utilization([100, 0], period=2.0)

    assert windows(signals([r | {"window_ns": ns(0.2)} for r in rows]).util) == [(0, 2, 100), (2, 4, 0)]


def test_without_a_known_counter_window_the_period_stands_in() -> None:
    """Imported CSVs rarely know the counter's window."""
    found = signals([r | {"window_ns": None, "source": None} for r in utilization([1, 2, 3], period=1.0)])

    assert (found.window_ns, found.period_ns) == (ns(1), ns(1))
    assert windows(found.util) == [(0, 1, 1), (1, 2, 2), (2, 3, 3)]


def test_one_sample_has_no_period() -> None:
    """It covers its own window."""
    found = signals(utilization([70]))

    assert found.period_ns == 0
    assert windows(found.util) == [(0, 0.2, 70)]


# Means over intervals


@pytest.mark.parametrize(
    ("start", "end", "mean"),
    [(1, 3, 50), (-5, 1, 100), (0, 4, 50), (2, 4, 0), (3, 9, 0), (4, 9, NAN), (2, 2, NAN)],
)
def test_the_mean_over_an_interval_counts_its_covered_part(start: float, end: float, mean: float) -> None:
    """100 on [0, 2) and 0 on [2, 4): what lies outside is unknown, not zero."""
    found = series((0, 2, 100), (2, 4, 0)).mean_over(times(start), times(end))

    assert found.tolist() == near([mean], nan_ok=True)


def test_the_mean_steps_over_gaps_and_unmeasured_pieces() -> None:
    """100 on [0, 1), a gap, NaN on [2, 3), 40 on [3, 4): the mean over [0, 4) is 70."""
    found = series((0, 1, 100), (2, 3, NAN), (3, 4, 40)).mean_over(times(0, 1), times(4, 3))

    assert found.tolist() == near([70, NAN], nan_ok=True)


def test_clipping_cuts_windows_at_the_borders() -> None:
    """Windows outside vanish, those on a border are shortened and keep their value."""
    assert windows(series((0, 2, 1), (2, 4, 2), (4, 6, 3)).clip(ns(1), ns(3))) == [(1, 2, 1), (2, 3, 2)]


# Which signal


def poll(percent: list[float], **changes: object) -> list[Row]:
    """The same counter read by polling."""
    return [r | {"source": "poll"} | changes for r in utilization(percent)]


def test_a_poll_is_moved_back_by_half_its_window() -> None:
    """A poll returns the last complete window, on average half a window old: 0.1 s of 0.2 s."""
    assert windows(signals(poll([10, 20])).util) == [(-0.1, 0.1, 10), (0.1, 0.3, 20)]


def test_a_poll_of_a_counter_with_unknown_window_stays_where_it_is() -> None:
    """How old it is can't be told, so nothing is moved."""
    assert windows(signals(poll([10, 20], window_ns=None)).util) == [(0, 0.2, 10), (0.2, 0.4, 20)]


def test_the_driver_s_own_buffer_is_preferred_to_the_poll() -> None:
    """Its windows carry their own time stamps; both tell the same story otherwise."""
    found = signals([*poll([99] * 10), *utilization([50] * 10)])

    assert found.source == "buffer"
    assert set(found.util.value.tolist()) == {50.0}


def test_a_buffer_that_covers_too_little_is_not_preferred() -> None:
    """Half of the run in the buffer, all of it in the poll."""
    assert signals([*poll([99] * 20), *utilization([50] * 10)]).source == "poll"


def test_a_buffer_with_a_hole_in_the_middle_is_not_preferred() -> None:
    """It starts and ends with the poll, but lost what lies between."""
    torn = [*utilization([50] * 3), *utilization([50] * 3, start=9.4)]

    assert signals([*poll([99] * 50), *torn]).source == "poll"


def test_graphics_engine_active_stands_in_where_there_is_no_utilization() -> None:
    """DCGM alone."""
    found = signals([], counters([40, 40, 40], gr_active_pct=[80.0, 60.0, 90.0]))

    assert found.source == "counters"
    assert windows(found.windows) == [(0, 0.2, 80), (0.2, 0.4, 60), (0.4, 0.6, 90)]


def test_a_gpu_without_any_utilization_is_no_gpu_we_can_speak_of() -> None:
    """Memory and power alone say nothing about busy or idle."""
    rows = utilization([None, None], power_w=120.0)  # type: ignore[list-item]

    assert read_signals(table("gpu", rows), table("gpu_counters")) == []


def test_rows_that_name_no_gpu_are_nobody_s() -> None:
    """They belong to no GPU, and do not stop the others from being read."""
    rows = [*utilization([10, 20]), {"t_ns": ns(0.2), "util_pct": 5.0, "source": "poll"}]

    assert signals(rows).util.value.tolist() == [10, 20]


def test_gpus_are_told_apart_by_host_and_index() -> None:
    """Two hosts with a GPU 0 each, and a GPU 1."""
    rows = [
        *utilization([10, 10], gpu=1, host="b"), *utilization([20, 20], host="a"), *utilization([30, 30], host="b"),
    ]  # fmt: skip

    found = read_signals(table("gpu", rows), table("gpu_counters"))

    assert [(s.host, s.gpu, s.util.value[0]) for s in found] == [("a", 0, 20), ("b", 0, 30), ("b", 1, 10)]


def test_no_rows_are_no_gpus() -> None:
    """An empty table is no error."""
    assert read_signals(table("gpu"), table("gpu_counters")) == []


# Counters


def random_load(seconds: float = 60, seed: int = 1) -> list[tuple[float, float]]:
    """Busy intervals of 0.3-2 s with pauses of 0.3-2 s."""
    rng = np.random.default_rng(seed)
    marks = np.cumsum(rng.uniform(0.3, 2.0, int(2 * seconds)))
    return [(float(a), float(b)) for a, b in marks.reshape(-1, 2) if b < seconds]


@pytest.mark.parametrize("lag_ms", [0, 100, 240])
def test_counters_that_come_late_are_moved_back(lag_ms: int) -> None:
    """GPM rows stamped 100 ms late on a random on/off load: found, and taken back."""
    late = lag_ms / 1000
    busy = random_load()
    shifted = [(a + late, b + late) for a, b in busy]
    seen = boxcar(shifted, 60)

    found = signals(utilization(boxcar(busy, 60)), counters([v * 0.9 for v in seen], gr_active_pct=seen))

    assert found.counter_lag_ns == near(ns(late), abs=ns(0.02))
    assert found.windows.t1[20] == ns(0.2 * 21) - found.counter_lag_ns


def test_the_lag_of_a_constant_load_can_t_be_told_and_is_left_alone() -> None:
    """Nothing moves, so nothing can be late."""
    assert signals(utilization([99] * 50), counters([90] * 50, gr_active_pct=99.0)).counter_lag_ns == 0


def test_counters_that_disagree_with_utilization_are_left_where_they_are() -> None:
    """Two unrelated loads have no lag."""
    profile = counters(boxcar(random_load(seed=2), 60))

    assert signals(utilization(boxcar(random_load(seed=3), 60)), profile).counter_lag_ns == 0


def test_windows_are_the_counters_and_utilization_fills_the_rest() -> None:
    """Counters on [0.4, 1.0) of 1.4 s, in windows of 0.3 s."""
    found = signals(utilization([10, 20, 30, 40, 50, 60, 70]), counters([5, 6], start=0.4, period=0.3))

    assert windows(found.windows) == [
        (0, 0.2, 10), (0.2, 0.4, 20), (0.4, 0.7, (30 * 0.2 + 40 * 0.1) / 0.3), (0.7, 1.0, (40 * 0.1 + 50 * 0.2) / 0.3),
        (1.0, 1.2, 60), (1.2, 1.4, 70),
    ]  # fmt: skip
    assert found.counters["sm_active_pct"].tolist() == near([NAN, NAN, 5, 6, NAN, NAN], nan_ok=True)


def test_a_utilization_window_is_cut_where_a_counter_window_starts_inside_it() -> None:
    """[0, 1) with a counter on [0.3, 0.6): three windows, none of them twice."""
    found = signals(utilization([50, 50], period=1.0), counters([7], start=0.3, period=0.3))

    assert windows(found.windows) == [(0, 0.3, 50), (0.3, 0.6, 50), (0.6, 1.0, 50), (1.0, 2.0, 50)]


@pytest.mark.parametrize("lost", [range(10, 20), range(30), range(20, 30)])
def test_windows_never_overlap_and_cover_what_was_recorded(lost: range) -> None:
    """Whichever counter rows are lost, the windows tile the utilization's time."""
    profile = [row for i, row in enumerate(counters([50] * 30, start=0.07)) if i not in lost]

    found = signals(utilization([50] * 30), profile)

    assert (found.windows.t0[1:] >= found.windows.t1[:-1]).all()
    assert found.windows.clip(0, ns(6)).recorded_ns == ns(6)


def test_graphics_engine_active_fills_in_where_utilization_has_a_gap() -> None:
    """The poll stalled for a second, the counters went on: their own active share is used there."""
    rows = [row for i, row in enumerate(utilization([80] * 15)) if i not in range(5, 10)]

    found = signals(rows, counters([40] * 15, gr_active_pct=60.0))

    assert found.windows.value.tolist() == [80] * 5 + [60] * 5 + [80] * 5


def test_counters_without_any_active_share_do_not_count_as_recorded_time() -> None:
    """SM activity alone does not say for how long the GPU was busy: that second is a gap, not busy and not idle."""
    rows = [row for i, row in enumerate(utilization([80] * 15)) if i not in range(5, 10)]

    found = signals(rows, counters([40] * 15))

    assert found.windows.recorded_ns == ns(2)
    assert found.gaps_ns.tolist() == [ns(1)]


def test_counter_rows_written_twice_count_once() -> None:
    """A second row of the same instant has no time of its own."""
    profile = [row for row in counters([50] * 4) for _ in range(2)]

    assert signals(utilization([80] * 4), profile).windows.recorded_ns == ns(0.8)


# Polled values


def test_power_is_the_last_reading_that_is_not_too_old() -> None:
    """Power read once, at 0.2 s; after two periods it is not believed any more."""
    found = signals(utilization([50] * 5, power_w=[120.0, None, None, None, None]))

    assert found.polled["power_w"].tolist() == near([120, 120, 120, NAN, NAN], nan_ok=True)


def test_polled_values_come_from_any_row_of_the_gpu() -> None:
    """Utilization from the buffer, memory utilization and power from the poll beside it."""
    slow = [r | {"source": "poll", "util_pct": None, "power_w": 300.0} for r in utilization([0] * 5)]

    found = signals([*slow, *utilization([50] * 5, mem_util_pct=7.0)])

    assert found.source == "buffer"
    assert found.polled["power_w"].tolist() == [300] * 5
    assert found.polled["mem_util_pct"].tolist() == [7] * 5
