"""The beat: deadlines on a grid that never drifts, lateness and missed deadlines counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from dipstick.capture.beat import Beat, Every, keep_beat
from fake_nvml import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000
PERIOD = 100 * MS


def beat(work_ms: Sequence[int], oversleep_ms: float = 0.0) -> tuple[list[int], Beat]:
    """Deadlines in ms from the start, where tick i works for ``work_ms[i]``, and the counts."""
    clock, kept, start = FakeClock(), list[int](), FakeClock().now
    counts = Beat(PERIOD)

    def tick(deadline: int) -> None:
        kept.append((deadline - start) // MS)
        clock.pass_time(work_ms[len(kept) - 1] / 1000)

    def wait(seconds: float) -> bool:
        clock.pass_time(seconds + oversleep_ms / 1000)
        return len(kept) == len(work_ms)

    keep_beat(tick, PERIOD, clock.mono, wait, counts)
    return kept, counts


def test_ticks_come_at_the_deadlines() -> None:
    """Work of any length below the period does not move them."""
    kept, counts = beat([3, 90, 0, 50])
    assert kept == [0, 100, 200, 300]
    assert counts == Beat(PERIOD, ticks=4)


def test_a_sleep_that_is_too_long_does_not_add_up() -> None:
    """Each tick is 2 ms late; the thousandth is, too, and no more."""
    kept, counts = beat([1] * 1000, oversleep_ms=2.0)
    assert kept[-1] == 99_900
    assert counts == Beat(PERIOD, ticks=1000, late_ns=2000 * MS, latest_ns=2 * MS)


def test_a_long_tick_costs_the_deadlines_it_covers_and_no_more() -> None:
    """The one at 200 ms takes 250 ms: 300 is missed, 400 is 50 ms late, 500 is on the grid again."""
    kept, counts = beat([0, 0, 250, 0, 0])
    assert kept == [0, 100, 200, 400, 500]
    assert (counts.ticks, counts.missed) == (5, 1)
    assert (counts.late_ns, counts.latest_ns) == (50 * MS, 50 * MS)


def test_a_tick_that_overruns_a_little_makes_the_next_one_late_not_lost() -> None:
    """105 ms of work: the next tick starts 5 ms after its deadline, and the one after that is on time."""
    kept, counts = beat([105, 0, 0])
    assert kept == [0, 100, 200]
    assert counts == Beat(PERIOD, ticks=3, late_ns=5 * MS, latest_ns=5 * MS)


def test_stopping_before_the_first_tick() -> None:
    """Nothing is done then."""
    counts = Beat(PERIOD)
    keep_beat(lambda _deadline: None, PERIOD, FakeClock().mono, lambda _seconds: True, counts)
    assert counts == Beat(PERIOD)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50))
def test_every_deadline_is_kept_or_counted_as_missed(work_ms: list[int]) -> None:
    """Whatever the work costs: ticks and missed deadlines together are the grid up to the last tick."""
    kept, counts = beat(work_ms)
    assert all(deadline % 100 == 0 for deadline in kept)
    assert counts.ticks + counts.missed == kept[-1] // 100 + 1


def test_slower_work_is_due_once_a_period() -> None:
    """Every 300 ms from 100 ms on: at 100, 400, 700."""
    every = Every(300, 100)
    assert [t for t in range(0, 1000, 100) if every.due(t)] == [100, 400, 700]


def test_slower_work_is_postponed_by_missed_ticks_and_not_dropped() -> None:
    """Due at 400, but there is no tick between 300 and 600: it is done at 600, and next at 700 as planned."""
    every = Every(300, 100)
    assert [t for t in (0, 100, 200, 300, 600, 700, 800) if every.due(t)] == [100, 600, 700]


def test_work_that_missed_several_turns_is_done_once() -> None:
    """It does not catch up."""
    every = Every(100, 0)
    assert [every.due(t) for t in (0, 550, 560, 600)] == [True, True, False, True]
