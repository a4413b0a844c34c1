"""Schedules: which kind they are, where their hit windows lie, which of them can be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.spike_schedules import (
    Opportunities,
    Reach,
    Schedule,
    hit,
    kind_of,
    measure,
    merged,
    opportunities,
    overlap,
    step_of,
    touches,
)
from dipstick.analysis.spike_suspects import find_suspects, fired_windows, units_of

if TYPE_CHECKING:
    from dipstick.model import FloatArray

REACH = Reach(0.5, 1.5)


def uneven(steps: int, seed: int = 0) -> FloatArray:
    """Step edges: 60 +- 4 s."""
    rng = np.random.default_rng(seed)
    return np.concatenate([[0.0], np.cumsum(60 + rng.normal(0, 4, steps))])


def at(name: str, start: FloatArray, length: float = 1.0) -> Schedule:
    """A schedule of events of equal length."""
    return Schedule(name, start, start + length)


def windows_of(lo: list[float], hi: list[float]) -> Opportunities:
    """All fired, all clean."""
    flag = np.ones(len(lo), dtype=bool)
    return Opportunities(np.array(lo), np.array(hi), flag, flag)


class TestKind:
    """Each step, some steps, or a clock."""

    def test_once_in_every_step_is_a_step_schedule(self) -> None:
        """50 s into each step."""
        edges = uneven(30)

        assert kind_of(at("sync", edges[:-1] + 50), edges) == "step"

    def test_events_that_straddle_the_step_edge_still_fire_once_a_step(self) -> None:
        """10 ms before or after the edge: two land in one step and none in another, by the edges."""
        edges = uneven(30)
        wobble = np.where(np.arange(29) % 2 == 0, -0.01, 0.01)

        assert kind_of(at("sync", edges[1:-1] + wobble), edges) == "step"

    def test_every_tenth_step_is_an_event_schedule(self) -> None:
        """Its intervals of 600 +- 13 s are regular, but no more than steps make them."""
        edges = uneven(200)

        assert kind_of(at("checkpoint", edges[9:-1:10] + 58), edges) == "event"

    def test_every_45_seconds_is_a_clock_even_if_every_step_sees_it(self) -> None:
        """Cron."""
        edges = uneven(30)

        assert kind_of(at("cron", np.arange(3.0, edges[-1], 45.0)), edges) == "clock"

    def test_few_firings_are_not_called_a_clock(self) -> None:
        """Eleven of them, perfectly regular."""
        edges = uneven(200)

        assert kind_of(at("rare", np.arange(11.0) * 600.0), edges) == "event"

    def test_a_declared_kind_wins(self) -> None:
        """The caller knows."""
        edges = uneven(30)

        assert kind_of(Schedule("x", edges[:-1], edges[:-1], "clock"), edges) == "clock"


class TestOpportunities:
    """Hit windows."""

    def test_a_window_opens_before_the_event_and_closes_after_it(self) -> None:
        """The worked example: 118 to 120 s with t = 0.5 and grace 1 s."""
        edges = np.array([0.0, 60.0, 122.0, 180.0])
        found = opportunities(Schedule("checkpoint", np.array([118.0]), np.array([120.0])), edges, REACH)

        assert (found.lo_s[found.fired].tolist(), found.hi_s[found.fired].tolist()) == ([117.5], [121.5])

    def test_unfired_windows_keep_the_distance_to_the_nearest_boundary(self) -> None:
        """Fired 4 s before a step edge, so the windows at the other edges are there too."""
        edges = np.array([0.0, 60.0, 122.0, 180.0])
        found = opportunities(Schedule("checkpoint", np.array([118.0]), np.array([120.0])), edges, REACH)

        assert found.anchor == "step_edge"
        assert found.lo_s[~found.fired].tolist() == [55.5, 175.5]

    def test_the_steadiest_boundary_is_the_anchor(self) -> None:
        """Events hang on the end of generation, which wanders inside the step."""
        edges = uneven(60)
        generated = edges[:-1] + np.random.default_rng(3).uniform(20, 50, 60)
        events = at("eval", generated[::6] + 2.0)
        found = opportunities(events, edges, REACH, {"generate_end": generated})

        assert found.anchor == "generate_end"
        assert found.lo_s[~found.fired] == pytest.approx(np.delete(generated, np.arange(0, 60, 6)) + 1.5)

    def test_a_step_schedule_has_no_unfired_windows(self) -> None:
        """Nothing to compare with inside the run."""
        edges = uneven(20)

        assert opportunities(at("sync", edges[:-1] + 50), edges, REACH).fired.all()

    def test_several_firings_in_a_step_are_one_opportunity(self) -> None:
        """empty_cache after each of three micro-batches."""
        edges = uneven(20)
        start = (edges[[4, 11]][:, None] + np.array([40.0, 43.0, 46.0])).ravel()
        found = opportunities(at("cache", start, 0.1), edges, REACH)

        assert found.lo_s[found.fired] == pytest.approx(edges[[4, 11]] + 39.5)
        assert found.hi_s[found.fired] == pytest.approx(edges[[4, 11]] + 47.6)

    def test_a_clock_schedule_has_one_window_for_each_firing(self) -> None:
        """Several in one step stay apart."""
        edges = uneven(20)
        found = opportunities(at("cron", np.arange(0.0, edges[-1], 20.0), 0.0), edges, REACH)

        assert np.diff(found.lo_s) == pytest.approx(20.0)

    def test_events_outside_the_steps_are_left_out(self) -> None:
        """One before the first step, one after the last."""
        edges = uneven(20)
        found = opportunities(at("save", np.array([-5.0, edges[3] + 10, edges[-1] + 5])), edges, REACH)

        assert int(found.fired.sum()) == 1

    def test_a_schedule_that_never_fired_has_no_windows(self) -> None:
        """Empty in, empty out."""
        assert opportunities(at("never", np.empty(0)), uneven(20), REACH).lo_s.size == 0


class TestSets:
    """Windows as sets of seconds."""

    def test_overlapping_windows_merge(self) -> None:
        """[0, 2], [1, 3], [5, 6]."""
        lo, hi = merged(np.array([5.0, 0.0, 1.0]), np.array([6.0, 2.0, 3.0]))

        assert (lo.tolist(), hi.tolist()) == ([0.0, 5.0], [3.0, 6.0])

    def test_a_window_inside_another_adds_nothing(self) -> None:
        """[0, 10] and [2, 3]."""
        assert measure(np.array([0.0, 2.0]), np.array([10.0, 3.0])) == 10.0

    def test_no_windows_cover_nothing(self) -> None:
        """Empty."""
        assert measure(np.empty(0), np.empty(0)) == 0.0

    def test_overlap_is_both_over_either(self) -> None:
        """[0, 4] and [2, 6]: 2 of 6 seconds."""
        assert overlap(windows_of([0.0], [4.0]), windows_of([2.0], [6.0])) == pytest.approx(1 / 3)

    def test_empty_schedules_do_not_overlap(self) -> None:
        """No division by zero."""
        assert overlap(windows_of([], []), windows_of([], [])) == 0.0

    def test_touching_counts_shared_edges(self) -> None:
        """[0, 1] touches [1, 2]; [4, 5] touches nothing."""
        found = touches(np.array([0.0, 4.0]), np.array([1.0, 5.0]), np.array([1.0]), np.array([2.0]))

        assert found.tolist() == [True, False]

    def test_nothing_touches_an_empty_set(self) -> None:
        """No others."""
        assert touches(np.array([0.0]), np.array([1.0]), np.empty(0), np.empty(0)).tolist() == [False]

    def test_a_window_is_hit_by_an_onset_on_its_edge(self) -> None:
        """Both edges belong to the window."""
        onset = np.array([1.0, 5.0])

        assert hit(onset, np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 5.0])).tolist() == [
            True,
            False,
            True,
        ]

    def test_steps_are_half_open(self) -> None:
        """An edge belongs to the step it starts; the last edge to none."""
        assert step_of(np.array([-1.0, 0.0, 60.0, 120.0]), np.array([0.0, 60.0, 120.0])).tolist() == [
            -1,
            0,
            1,
            -1,
        ]


class TestSuspects:
    """Contamination, twins, shadows."""

    def test_an_opportunity_near_another_optional_event_is_dropped(self) -> None:
        """A cache clear 1 s after the third of four checkpoints."""
        edges = uneven(40)
        save = at("checkpoint", edges[[9, 19, 29, 38]] + 50)
        clear = at("cache", np.append(edges[[4, 14, 24]] + 20, edges[29] + 52))
        first = find_suspects([save, clear], edges, REACH, None)[0]

        assert first.opp.clean[first.opp.fired].tolist() == [True, True, False, True]

    def test_a_step_schedule_does_not_contaminate(self) -> None:
        """Weight sync is in fired and unfired steps alike."""
        edges = uneven(40)
        save = at("checkpoint", edges[[9, 19, 29]] + 50)
        sync = at("sync", edges[:-1] + 50)

        assert find_suspects([save, sync], edges, REACH, None)[0].opp.clean.all()

    def test_schedules_that_are_never_apart_are_one_class(self) -> None:
        """Checkpoint and cache clear 0.7 s apart, every time."""
        edges = uneven(40)
        save, clear = at("checkpoint", edges[[9, 19, 29]] + 50), at("cache", edges[[9, 19, 29]] + 50.7, 0.2)
        found = find_suspects([save, clear], edges, REACH, None)

        assert [s.twins for s in found] == [(0, 1), (0, 1)]
        assert units_of(found) == [(0, 1)]

    def test_a_class_is_judged_on_the_union_of_its_events(self) -> None:
        """One window from the first one's start to the second one's end."""
        edges = uneven(40)
        save, clear = at("checkpoint", edges[[9, 19, 29]] + 50), at("cache", edges[[9, 19, 29]] + 51.0)
        found = find_suspects([save, clear], edges, REACH, None)
        lo, hi = fired_windows(found, (0, 1))

        assert (hi - lo) == pytest.approx(4.0)
        assert found[0].opp.clean_fired == 3

    def test_a_rare_schedule_inside_a_frequent_one_is_shadowed_not_a_twin(self) -> None:
        """Checkpoints always on a cache clear, but most cache clears alone."""
        edges = uneven(60)
        clear = at("cache", edges[5:60:5] + 50)
        save = at("checkpoint", edges[10:60:10] + 50.5)
        rare, frequent = find_suspects([save, clear], edges, REACH, None)

        assert (rare.twins, rare.shadows) == ((0,), (1,))
        assert (frequent.twins, frequent.shadows) == ((1,), ())

    def test_two_step_schedules_in_the_same_place_are_twins(self) -> None:
        """J > 0.8."""
        edges = uneven(20)
        found = find_suspects([at("a", edges[:-1] + 50), at("b", edges[:-1] + 50.1)], edges, REACH, None)

        assert found[0].twins == (0, 1)

    def test_one_event_alone_is_not_hidden_by_anybody(self) -> None:
        """Under two events, but none of them because of the other schedule."""
        edges = uneven(40)
        once, other = at("once", edges[[9]] + 50), at("cache", edges[[4, 14, 24]] + 20)

        assert find_suspects([once, other], edges, REACH, None)[0].twins == (0,)
