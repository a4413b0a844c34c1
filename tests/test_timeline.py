"""One exclusive phase at every instant of every rank; the nanoseconds add up to the window, always."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick import phases
from dipstick.analysis.intervals import sample
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.timeline import RankTimeline, Steps, build, clip, find_steps, paint
from records import Row, cycle, ns, span, table, times

SPAN_NAMES = [
    "step", "_prepare_inputs", "vLLM.generate", "_calculate_rewards", "compute_loss",
    "_get_per_token_logps", "backward", "evaluate", "unheard of", "teardown",
]  # fmt: skip


def built(rows: list[Row], whole: tuple[float, float]) -> tuple[list[RankTimeline], tuple[int, int]]:
    """Timelines and window of these spans in a recording of this extent (seconds)."""
    lanes, _ = read_lanes(table("spans", rows), table("processes"))
    return build(lanes, (ns(whole[0]), ns(whole[1])))


def only(*rows: Row, whole: tuple[float, float] = (0, 100)) -> RankTimeline:
    """The timeline of a run of one rank."""
    timelines, _ = built(list(rows), whole)
    assert len(timelines) == 1
    return timelines[0]


def seconds(timeline: RankTimeline) -> dict[str, float]:
    """Exclusive seconds by phase, without the phases that never occur."""
    return {phases.PHASES[i]: int(t) / 1e9 for i, t in enumerate(timeline.seconds_ns()) if t}


def phase_at(timeline: RankTimeline, second: float) -> str:
    """The phase of a rank at one instant."""
    return phases.PHASES[int(sample(timeline.edges, timeline.code, times(second), 0)[0])]


# Adding up


@st.composite
def any_spans(draw: st.DrawFn) -> list[Row]:
    """Nested, crossing, empty and duplicate spans of up to three ranks with up to three threads."""
    rows = []
    for _ in range(draw(st.integers(0, 30))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(0, 25))
        name, step = draw(st.sampled_from(SPAN_NAMES)), draw(st.sampled_from([None, -1, 0, 1, 2]))
        rank, tid = draw(st.integers(0, 2)), draw(st.sampled_from([None, 1, 2]))
        rows.append(span(name, start / 7, (start + length) / 7, rank=rank, tid=tid, step=step))
    return rows + draw(st.lists(st.sampled_from(rows), max_size=3) if rows else st.just([]))


@settings(max_examples=60)
@given(any_spans(), st.integers(0, 30), st.integers(0, 70))
def test_phase_nanoseconds_of_every_rank_add_up_to_the_window(
    rows: list[Row], start: int, length: int
) -> None:
    """To the nanosecond, whatever the spans and wherever the recording starts and ends."""
    timelines, window = built(rows, (start / 11, (start + length) / 11))

    assert [t.seconds_ns().sum() for t in timelines] == [window[1] - window[0]] * len(
        {r["rank"] for r in rows}
    )
    assert [(t.edges[0], t.edges[-1]) for t in timelines] == [window] * len(timelines)


@settings(max_examples=40)
@given(any_spans())
def test_a_running_total_ends_with_the_totals(rows: list[Row]) -> None:
    """``phase_ns_until`` never falls, adds up to the time passed, and ends where ``seconds_ns`` does."""
    timelines, window = built(rows, (0, 10))
    marks = np.unique(np.linspace(window[0], window[1], 9).astype(np.int64))

    for timeline in timelines:
        until = timeline.phase_ns_until(marks)
        assert until.sum(axis=1).tolist() == (marks - window[0]).tolist()
        assert until[-1].tolist() == timeline.seconds_ns().tolist()
        assert (np.diff(until, axis=0) >= 0).all()


def test_a_running_total_counts_times_outside_the_window_as_its_ends() -> None:
    """The docstring's example: generate on [0, 6), reward on [6, 10)."""
    timeline = only(span("generate", 0, 6), span("reward", 6, 10), whole=(0, 10))

    until = timeline.phase_ns_until(times(-5, 8, 99)) / 1e9

    assert until[:, phases.CODE["generate"]].tolist() == [0, 6, 6]
    assert until[:, phases.CODE["reward"]].tolist() == [0, 2, 4]


# Phases


def test_the_innermost_span_wins_and_containers_hold_the_remainder() -> None:
    """A TRL step: what ``_prepare_inputs`` and ``step`` hold besides their phases is unattributed."""
    timeline = only(
        span("step", 0, 20, step=0),
        span("_prepare_inputs", 0, 12, step=0),
        span("sync_weights", 0, 1, step=0),
        span("vLLM.generate", 1, 6, step=0),
        span("_calculate_rewards", 7, 11, step=0),
        span("reward.workers", 8, 10, step=0),
        span("compute_loss", 12, 15, step=0),
        span("_get_per_token_logps", 13, 14, step=0),
        span("backward", 15, 18, step=0),
        span("optimizer", 18, 19, step=0),
    )

    assert seconds(timeline) == {
        "weight_sync": 1.0, "generate": 5.0, "reward": 4.0, "forward": 3.0, "backward": 3.0, "optimizer": 1.0,
        "unattributed": 3.0,
    }  # fmt: skip


def test_an_evaluation_between_two_steps_is_eval_and_the_rest_of_the_gap_unattributed() -> None:
    """Time between steps belongs to the window; generation inside the evaluation is still generation."""
    timeline = only(
        span("step", 0, 4, step=0),
        span("evaluate", 5, 9),
        span("vLLM.generate", 6, 7),
        span("step", 10, 12, step=1),
    )

    assert seconds(timeline) == {"unattributed": 8.0, "eval": 3.0, "generate": 1.0}


def test_another_thread_fills_only_what_the_main_thread_leaves_unattributed() -> None:
    """Rewards computed in a thread of their own count where the main thread has nothing better to do."""
    timeline = only(
        span("step", 0, 10, step=0, tid=1),
        span("vLLM.generate", 0, 4, step=0, tid=1),
        span("reward", 2, 7, tid=2),
    )

    assert seconds(timeline) == {"generate": 4.0, "reward": 3.0, "unattributed": 3.0}


def test_the_main_thread_is_the_one_that_runs_the_steps() -> None:
    """Even where a background thread is busy for longer."""
    timeline = only(
        span("checkpoint", 0, 50, tid=1),
        span("step", 0, 10, step=0, tid=2),
        span("generate", 0, 10, step=0, tid=2),
    )

    assert seconds(timeline) == {"generate": 10.0}


def test_crossing_spans_of_one_thread_take_no_second_twice() -> None:
    """The later start is taken as the inner one."""
    timeline = only(span("generate", 0, 10), span("reward", 5, 15), whole=(0, 20))

    assert seconds(timeline) == {"generate": 5.0, "reward": 10.0, "unattributed": 5.0}
    assert timeline.main.nesting.crossings == 1


# The window


def test_the_window_runs_from_the_first_step_to_the_last_of_any_rank() -> None:
    """What lies before and after is start-up and teardown of the run."""
    rows = [
        span("generate", 0, 3, rank=0, step=-1),
        *(span("step", 5 + r, 15 + 2 * r, rank=r, step=0) for r in (0, 1)),
        span("checkpoint", 20, 30, rank=0),
    ]

    timelines, window = built(rows, (0, 40))

    assert window == (ns(5), ns(17))
    assert [seconds(t) for t in timelines] == [
        {"unattributed": 10.0, "teardown": 2.0},
        {"startup": 1.0, "unattributed": 11.0},
    ]


def test_without_steps_the_window_is_the_recording_and_nothing_is_startup() -> None:
    """Nobody knows where training began."""
    timelines, window = built([span("generate", 3, 5)], (0, 10))

    assert window == (0, ns(10))
    assert seconds(timelines[0]) == {"generate": 2.0, "unattributed": 8.0}


def test_a_named_phase_outside_the_rank_s_own_steps_keeps_its_name() -> None:
    """Only bare time becomes start-up: rank 1 loads a checkpoint while rank 0 steps already."""
    rows = [
        span("step", 0, 9, rank=0, step=0),
        span("checkpoint", 1, 4, rank=1),
        span("step", 6, 9, rank=1, step=0),
    ]

    timelines, _ = built(rows, (0, 9))

    assert seconds(timelines[1]) == {"startup": 3.0, "checkpoint": 3.0, "unattributed": 3.0}


def test_a_rank_without_steps_is_neither_in_startup_nor_in_teardown() -> None:
    """Its spans count inside the window of the others."""
    rows = [span("step", 2, 8, rank=0, step=0), span("reward", 0, 4, rank=1)]

    timelines, _ = built(rows, (0, 10))

    assert seconds(timelines[1]) == {"reward": 2.0, "unattributed": 4.0}


def test_no_lanes_make_no_timelines() -> None:
    """GPU samples alone: the window is the recording."""
    assert built([], (0, 10)) == ([], (0, ns(10)))


# Steps


def steps_of(*rows: Row) -> Steps:
    """The steps of the one lane that these spans make."""
    lanes, _ = read_lanes(table("spans", rows), table("processes"))
    return find_steps(lanes[0])


def test_micro_steps_of_one_number_are_one_step() -> None:
    """Gradient accumulation repeats ``step`` under one ``global_step``: first start to last end."""
    steps = steps_of(span("step", 0, 2, step=0), span("step", 3, 5, step=0), span("step", 6, 8, step=1))

    assert steps.number.tolist() == [0, 1]
    assert steps.t0.tolist() == [ns(0), ns(6)]
    assert steps.t1.tolist() == [ns(5), ns(8)]


def test_where_no_step_span_is_recorded_step_numbers_make_the_steps() -> None:
    """TRL's own profiling contexts carry numbers but no step span; -1 is before training."""
    steps = steps_of(
        span("generate", 0, 1, step=-1), span("generate", 2, 4, step=0), span("reward", 3, 7, step=0),
        span("generate", 8, 9, step=1),
    )  # fmt: skip

    assert steps.number.tolist() == [0, 1]
    assert steps.t0.tolist() == [ns(2), ns(8)]
    assert steps.t1.tolist() == [ns(7), ns(9)]


def test_step_spans_beat_the_extent_of_numbered_spans() -> None:
    """A checkpoint that carries the number of the step before it does not lengthen that step."""
    steps = steps_of(span("step", 0, 5, step=0), span("checkpoint", 5, 8, step=0))

    assert (steps.t0.tolist(), steps.t1.tolist()) == ([0], [ns(5)])


def test_steps_are_in_the_order_of_time_not_of_number() -> None:
    """A run resumed from an older checkpoint counts back."""
    steps = steps_of(span("step", 0, 5, step=7), span("step", 5, 9, step=3))

    assert steps.number.tolist() == [7, 3]


def test_spans_without_numbers_make_no_steps() -> None:
    """``dipstick.span`` alone: phases, but no steps."""
    assert len(steps_of(span("reward", 0, 5))) == 0


# Painting


def painted(start: float, end: float, *rows: Row) -> dict[str, float]:
    """Seconds by phase after painting a gather wait over one interval of a 10 s recording."""
    timeline = paint(only(*rows, whole=(0, 10)), times(start), times(end), phases.CODE["gather_wait"])
    assert timeline.seconds_ns().sum() == ns(10)
    return seconds(timeline)


def test_painting_takes_unattributed_time_only() -> None:
    """A named phase is never overridden: the wait gets what is left of [2, 6)."""
    assert painted(2, 6, span("reward", 0, 3), span("logprobs", 5, 7)) == {
        "reward": 3.0, "gather_wait": 2.0, "logprobs": 2.0, "unattributed": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize(("start", "end"), [(-4, 2), (8, 15), (-4, 15)])
def test_painting_beyond_the_window_stays_inside_it(start: float, end: float) -> None:
    """A barrier that opens after the recording ended paints up to the end."""
    inside = min(end, 10) - max(start, 0)

    assert painted(start, end, span("other", 20, 21)).get("gather_wait") == inside


def test_painting_nothing_changes_nothing() -> None:
    """A rank that never waited."""
    timeline = only(span("reward", 0, 3), whole=(0, 10))

    assert seconds(paint(timeline, times(), times(), phases.CODE["gather_wait"])) == seconds(timeline)


def test_several_waits_are_painted_in_any_order() -> None:
    """Intervals are disjoint but need not be sorted."""
    timeline = paint(
        only(*cycle(0, 0, 0, (1, 1, 7, 1))), times(6, 2), times(7, 4), phases.CODE["gather_wait"]
    )

    assert [phase_at(timeline, t) for t in (1.5, 2, 3.9, 4, 6.5, 7)] == [
        "reward", "gather_wait", "gather_wait", "unattributed", "gather_wait", "unattributed",
    ]  # fmt: skip


def test_clip_fills_what_a_step_function_leaves_open() -> None:
    """[2, 4) = reward, clipped to [0, 3): unattributed before, nothing after."""
    edges, code = clip(times(2, 4), np.array([phases.CODE["reward"]], np.uint8), (0, ns(3)))

    assert edges.tolist() == times(0, 2, 3).tolist()
    assert [phases.PHASES[c] for c in code] == ["unattributed", "reward"]
