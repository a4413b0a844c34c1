"""What share of a sample's window each phase fills, and how phases are cut and moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.design import (
    Telemetry,
    Timeline,
    base_name,
    box_shares,
    cumulative,
    move_starts,
    near,
    parts_for,
    phase_shares,
    same_columns,
    split_phase,
    within,
)

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray

NAMES = ("generate", "reward", "other")


def timeline(*pieces: tuple[str, float]) -> Timeline:
    """Phases one after the other from 0 s, given as (name, seconds)."""
    edges = np.concatenate([[0.0], np.cumsum([seconds for _, seconds in pieces])])
    return Timeline(edges, np.array([NAMES.index(name) for name, _ in pieces]), NAMES)


def two_steps() -> Timeline:
    """Two steps of 10 s: generate 6 s, reward 4 s."""
    return timeline(("generate", 6), ("reward", 4), ("generate", 6), ("reward", 4))


def at(*times: float) -> FloatArray:
    return np.array(times)


# -- shares


def test_a_window_across_a_boundary_is_shared() -> None:
    """The docstring's example: stamp 7 s, W = 2 s, boundary at 6 s."""
    assert phase_shares(two_steps(), at(7), 2.0).tolist() == [[0.5, 0.5, 0.0]]


def test_a_window_ends_at_its_stamp() -> None:
    """The sample stamped 6 s has seen generate only, although reward starts at 6 s."""
    assert phase_shares(two_steps(), at(6), 2.0).tolist() == [[1.0, 0.0, 0.0]]


def test_a_window_longer_than_a_step_holds_all_of_it() -> None:
    """Stamp 20 s, W = 20 s: 12 s of generate and 8 s of reward."""
    assert phase_shares(two_steps(), at(20), 20.0).tolist() == [[0.6, 0.4, 0.0]]


def test_shares_add_up_to_one_inside_the_log() -> None:
    """Whatever the window."""
    stamps = np.random.default_rng(1).uniform(5, 20, 50)

    assert phase_shares(two_steps(), stamps, 3.7).sum(axis=1) == pytest.approx(np.ones(50))


def test_time_outside_the_log_belongs_to_no_phase() -> None:
    """A window half before the first edge has shares that add up to a half."""
    assert phase_shares(two_steps(), at(1), 2.0).sum() == pytest.approx(0.5)
    assert phase_shares(two_steps(), at(99), 2.0).sum() == 0.0


def test_cumulative_seconds_at_the_end_are_the_phase_seconds() -> None:
    """And 0 before the start."""
    log = two_steps()

    assert cumulative(log, at(20)).tolist() == [log.seconds().tolist()] == [[12.0, 8.0, 0.0]]
    assert cumulative(log, at(-5)).tolist() == [[0.0, 0.0, 0.0]]


def test_shares_equal_a_slow_sum_over_segments() -> None:
    """Against the obvious double loop, on a random log with very short segments."""
    rng = np.random.default_rng(3)
    edges = np.concatenate([[0.0], np.cumsum(rng.exponential(0.3, 200))])
    log = Timeline(edges, rng.integers(0, 3, 200), NAMES)
    stamps = rng.uniform(2, edges[-1], 20)

    slow = np.zeros((20, 3))
    for j, end in enumerate(stamps):
        for i, code in enumerate(log.codes):
            slow[j, code] += max(0.0, min(end, edges[i + 1]) - max(end - 2.0, edges[i])) / 2.0

    assert phase_shares(log, stamps, 2.0) == pytest.approx(slow)


# -- boxes


def test_overlapping_boxes_count_once() -> None:
    """Boxes 0-4 and 2-6 s in the window 0-10 s: 0.6."""
    assert box_shares(at(2, 0), at(6, 4), at(10), 10.0) == pytest.approx([0.6])


def test_a_box_inside_another_adds_nothing() -> None:
    """0-6 holds 1-2."""
    assert box_shares(at(0, 1), at(6, 2), at(10), 10.0) == pytest.approx([0.6])


def test_a_box_is_cut_at_the_window() -> None:
    """Box 8-12 s seen by the window 0-10 s: 0.2; by 12-14 s: 0."""
    assert box_shares(at(8), at(12), at(10, 14), 10.0)[0] == pytest.approx(0.2)
    assert box_shares(at(8), at(12), at(14), 2.0) == pytest.approx([0.0])


def test_no_boxes_cover_nothing() -> None:
    """An event that never fired."""
    assert box_shares(at(), at(), at(10, 20), 5.0).tolist() == [0.0, 0.0]


# -- starts and neighbours


def test_starts_are_entries_from_another_phase() -> None:
    """Two segments of one phase in a row are one entry."""
    log = timeline(("reward", 1), ("reward", 1), ("generate", 2), ("reward", 3))

    assert log.starts("reward").tolist() == [0.0, 4.0]


def test_before_is_the_phase_that_fills_the_time_before() -> None:
    """Ten milliseconds of something else between generate and reward do not make it the neighbour."""
    log = timeline(
        ("generate", 6), ("other", 0.01), ("reward", 4), ("generate", 6), ("other", 0.01), ("reward", 4)
    )

    assert log.before("reward") == "generate"


def test_before_knows_when_nothing_comes_before() -> None:
    """The phase that opens the log, and one that never occurs."""
    log = timeline(("reward", 3), ("generate", 3))

    assert log.before("reward") is None
    assert log.before("other") is None


# -- cutting


def test_split_cuts_each_steps_time_in_equal_parts() -> None:
    """Generate 0-6 s in three parts of 2 s; the parts take the phase's place in the names."""
    cut = split_phase(two_steps(), "generate", at(0, 10), 3)

    assert cut.names == ("generate[1]", "generate[2]", "generate[3]", "reward", "other")
    assert cut.seconds().tolist() == [4.0, 4.0, 4.0, 8.0, 0.0]
    assert phase_shares(cut, at(3), 2.0)[0].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]


def test_split_counts_time_in_the_phase_not_on_the_clock() -> None:
    """An interruption of 100 s does not shift the cuts: 2 s before it, 2 s after, two parts."""
    log = timeline(("generate", 2), ("other", 100), ("generate", 2), ("reward", 1))

    cut = split_phase(log, "generate", at(0), 2)

    assert cut.seconds()[:2].tolist() == pytest.approx([2.0, 2.0])
    assert phase_shares(cut, at(2), 2.0)[0, 0] == pytest.approx(1.0)


def test_split_keeps_every_second() -> None:
    """Random log, 8 parts: the parts add up to the phase, the others are untouched."""
    rng = np.random.default_rng(5)
    edges = np.concatenate([[0.0], np.cumsum(rng.exponential(1.0, 90))])
    log = Timeline(edges, rng.integers(0, 3, 90), NAMES)

    cut = split_phase(log, "generate", edges[::9], 8)

    assert cut.seconds()[:8].sum() == pytest.approx(log.seconds()[0])
    assert cut.seconds()[8:].tolist() == pytest.approx(log.seconds()[1:].tolist())


@pytest.mark.parametrize(("phase", "parts"), [("generate", 1), ("absent", 4)])
def test_split_of_nothing_is_the_same_log(phase: str, parts: int) -> None:
    """One part, or a phase that the log does not know."""
    log = two_steps()

    assert split_phase(log, phase, at(0, 10), parts) is log


def test_the_number_of_parts_follows_what_the_sampling_can_carry() -> None:
    """33 s of generation in 60 s steps: 8 at W = D = 1 s; 2 at 15 s and 40 steps; 1 at 15 s and 10 steps."""
    log = timeline(*[("generate", 33.0), ("reward", 27.0)] * 40)
    short = timeline(*[("generate", 33.0), ("reward", 27.0)] * 10)

    def telemetry(of: Timeline, period: float) -> Telemetry:
        stamps = np.arange(period, of.edges[-1], period)
        return Telemetry(stamps, np.zeros(stamps.size), of)

    assert parts_for(telemetry(log, 1.0), "generate", 40, 1.0) == 8
    assert parts_for(telemetry(log, 15.0), "generate", 40, 15.0) == 2
    assert parts_for(telemetry(short, 15.0), "generate", 10, 15.0) == 1
    assert parts_for(telemetry(log, 15.0), "generate", 40, 60.0) == 1


@pytest.mark.parametrize(("column", "base"), [("generate[3]", "generate"), ("reward", "reward")])
def test_base_name_of_a_part(column: str, base: str) -> None:
    """The phase that a column belongs to."""
    assert base_name(column) == base


# -- moving


def test_a_later_start_lets_the_phase_before_go_on() -> None:
    """Reward 1 s later: generate 7 s, reward 3 s a step."""
    assert move_starts(two_steps(), "reward", 1.0).seconds().tolist() == [14.0, 6.0, 0.0]


def test_an_earlier_start_is_painted_over_what_came_before() -> None:
    """Reward 1 s earlier, also across a short segment between."""
    log = timeline(("generate", 6), ("other", 0.5), ("reward", 4))

    assert move_starts(log, "reward", -1.0).seconds().tolist() == [5.5, 5.0, 0.0]


def test_no_move_changes_nothing() -> None:
    """The same shares everywhere."""
    stamps = np.linspace(1, 20, 40)
    moved = move_starts(two_steps(), "reward", 0.0)

    assert phase_shares(moved, stamps, 1.0) == pytest.approx(phase_shares(two_steps(), stamps, 1.0))


def test_gpus_of_one_fit_share_their_columns() -> None:
    """Different names would silently add up different phases."""
    one, two = two_steps(), split_phase(two_steps(), "generate", at(0, 10), 2)
    empty = np.zeros(0)

    assert same_columns([Telemetry(empty, empty, one)] * 2) == NAMES
    with pytest.raises(ValueError, match="same phase names"):
        same_columns([Telemetry(empty, empty, one), Telemetry(empty, empty, two)])


def test_a_part_of_a_timeline_is_the_detail_that_one_interval_touches() -> None:
    """As with many intervals: the touched segments whole, and one of the first phase on either side."""
    rng = np.random.default_rng(3)
    log = Timeline(np.cumsum(np.append(0.0, rng.integers(1, 4, 40))), rng.integers(0, 3, 40), NAMES)

    for low, high in (
        (-9.0, 99.0),
        (3.0, 8.0),
        (3.5, 3.6),
        (-5.0, 0.0),
        (0.0, 1.0),
        (70.0, 200.0),
        (200.0, 201.0),
    ):
        part, same = within(log, low, high), near(log, at(low), at(high))
        assert (part.edges.tolist(), part.codes.tolist()) == (same.edges.tolist(), same.codes.tolist())
