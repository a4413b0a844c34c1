"""Collective waits from the ranks' arrivals: who waits, how long, for whom, and why the other was late."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick import phases
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.timeline import RankTimeline, build
from dipstick.analysis.waits import Meetings, critical_path, meet, paint_waits, wait_rows
from dipstick.model import WaitRow
from records import Row, cycle, near, ns, span, table


def ranks(*rows: list[Row], whole: float = 100) -> list[RankTimeline]:
    """Timelines of the ranks, before any wait is known."""
    lanes, _ = read_lanes(table("spans", [row for part in rows for row in part]), table("processes"))
    return build(lanes, (0, ns(whole)))[0]


def seconds(timeline: RankTimeline) -> dict[str, float]:
    """Exclusive seconds by phase, without the phases that never occur."""
    return {phases.PHASES[i]: int(t) / 1e9 for i, t in enumerate(timeline.seconds_ns()) if t}


def waited(meetings: list[Meetings]) -> dict[str, list[list[float]]]:
    """Seconds waited by barrier: one row a meeting, one column a rank."""
    return {m.barrier.name: (m.waits_ns() / 1e9).tolist() for m in meetings}


def row(rank: int, seconds: float, **changes: object) -> WaitRow:
    """One wait at the reward gather for the other rank's rewards."""
    base = {
        "barrier": "reward",
        "because": "reward",
        "late_rank": 1 - rank,
        "phase": "gather_wait",
        "count": 1,
    }
    return WaitRow(rank=rank, seconds=seconds, **({"longest_s": seconds} | base | changes))  # type: ignore[arg-type]


# Two ranks


def test_the_first_to_finish_its_rewards_waits_for_the_other() -> None:
    """Both generate until 4; rank 0 has its rewards at 7, rank 1 at 9: rank 0 waits 2 s because of reward."""
    timelines = ranks(cycle(0, 0, 0, (4, 3, 2, 1)), cycle(1, 0, 0, (4, 5, 0, 1)))

    meetings = meet(timelines)

    assert waited(meetings) == {"lengths": [[0, 0]], "reward": [[2, 0]]}
    assert wait_rows(meetings) == (row(0, 2.0),)


def blocking(rank: int, scored: float, gathered: float, *, step: int = 0) -> list[Row]:
    """A step whose gather waits inside ``_calculate_rewards``, as gloo's does: generate [0, 4), forward from 10."""
    outer = [
        span("step", 0, 11, rank=rank, step=step),
        span("GRPOTrainer._prepare_inputs", 0, 10, rank=rank, step=step),
    ]
    return [
        *outer,
        span("GRPOTrainer.vLLM.generate", 0, 4, rank=rank, step=step),
        span("GRPOTrainer._calculate_rewards", 4, gathered, rank=rank, step=step),
        span("GRPOTrainer.modification_reward", 4, scored, rank=rank, step=step, phase="reward"),
        span("gather", scored, gathered, rank=rank, step=step),
        span("backward", 10, 11, rank=rank, step=step),
    ]


def test_a_gather_that_blocks_is_a_wait_and_no_reward() -> None:
    """gloo: rank 0 scores until 6 and is in the gather until rank 1 comes at 9. It waited 3 s; it did not score."""
    timelines = ranks(blocking(0, 6, 9.002), blocking(1, 9, 9.002))

    meetings = meet(timelines)

    assert waited(meetings)["reward"] == [[3.002, 0]]
    assert wait_rows(meetings)[0].late_rank == 1
    assert seconds(paint_waits(timelines, meetings)[0])["reward"] == 2.0


def test_a_gather_of_one_rank_waits_for_nobody() -> None:
    """Its seconds stay with the rewards."""
    assert seconds(ranks(blocking(0, 6, 9))[0])["reward"] == 5.0


def test_waits_become_phases_and_the_seconds_still_add_up() -> None:
    """The wait takes the unattributed time between rewards and backward, and nothing else."""
    timelines = ranks(cycle(0, 0, 0, (4, 3, 2, 1)), cycle(1, 0, 0, (4, 5, 0, 1)))

    painted = paint_waits(timelines, meet(timelines))

    assert [seconds(t) for t in painted] == [
        {"generate": 4.0, "reward": 3.0, "gather_wait": 2.0, "backward": 1.0},
        {"generate": 4.0, "reward": 5.0, "backward": 1.0},
    ]


def test_a_wait_ends_where_the_rank_s_own_next_span_starts() -> None:
    """Rank 0 resumes at 8 although rank 1 arrives at 9: after 8 it was not waiting for anybody."""
    timelines = ranks(cycle(0, 0, 0, (4, 3, 1, 2)), cycle(1, 0, 0, (4, 5, 0, 1)))

    assert waited(meet(timelines))["reward"] == [[1, 0]]


def test_a_rank_that_goes_on_at_once_did_not_wait() -> None:
    """Rewards follow generation without a pause on both ranks: nobody waited at the lengths gather."""
    timelines = ranks(cycle(0, 0, 0, (4, 5, 0, 1)), cycle(1, 0, 0, (6, 3, 0, 1)))

    assert waited(meet(timelines)) == {"lengths": [[0, 0]], "reward": [[0, 0]]}


def test_a_wait_never_overrides_a_named_phase() -> None:
    """A damaged lane: rank 0's rewards end at 7 inside a checkpoint that runs to 9. It was not waiting then."""
    damaged = [*cycle(0, 0, 0, (4, 3, 5, 1)), span("checkpoint", 6, 9, rank=0, step=0)]
    timelines = ranks(damaged, cycle(1, 0, 0, (4, 8, 0, 1)))

    meetings = meet(timelines)
    painted = paint_waits(timelines, meetings)

    assert seconds(painted[0])["checkpoint"] == 3.0
    assert sum(r.seconds for r in wait_rows(meetings)) == seconds(painted[0]).get("gather_wait", 0.0)


def test_waits_of_all_steps_are_summed_by_cause() -> None:
    """Rank 0 waits in steps 0 and 2, rank 1 in step 1; the longest of rank 0's two is 3 s."""
    timelines = ranks(
        [*cycle(0, 0, 0, (4, 3, 2, 1)), *cycle(0, 1, 10, (4, 4, 1, 1)), *cycle(0, 2, 20, (4, 1, 4, 1))],
        [*cycle(1, 0, 0, (4, 5, 0, 1)), *cycle(1, 1, 10, (4, 3, 2, 1)), *cycle(1, 2, 20, (4, 4, 1, 1))],
    )

    assert wait_rows(meet(timelines)) == (row(0, 5.0, count=2, longest_s=3.0), row(1, 1.0))


def test_the_wait_behind_a_checkpoint_is_named_after_it() -> None:
    """Rank 0 saves for 2 s at the start of step 1; rank 1 waits for its completions, not for its rewards."""
    saving = [span("checkpoint", 10, 12, rank=0, step=1)]
    late = [span("step", 10, 23, rank=0, step=1), *cycle(0, 1, 12, (4, 3, 2, 2))[1:]]
    early = [
        span("step", 10, 23, rank=1, step=1),
        span("vLLM.generate", 10, 14, rank=1, step=1),
        span("_calculate_rewards", 16, 21, rank=1, step=1),
        span("backward", 21, 23, rank=1, step=1),
    ]
    timelines = ranks(cycle(0, 0, 0, (4, 5, 0, 1)) + saving + late, cycle(1, 0, 0, (4, 5, 0, 1)) + early)

    assert wait_rows(meet(timelines)) == (
        row(1, 2.0, barrier="lengths", because="checkpoint", phase="collective_wait"),
        row(0, 2.0),
    )


def test_the_cause_counts_since_the_ranks_last_met() -> None:
    """Rank 1 generated 2 s longer but the ranks met after that: only its rewards explain the second wait."""
    timelines = ranks(
        [
            span("step", 0, 12, rank=0, step=0), span("vLLM.generate", 0, 3, rank=0, step=0),
            span("_calculate_rewards", 5, 7, rank=0, step=0), span("backward", 8, 12, rank=0, step=0),
        ],
        [
            span("step", 0, 12, rank=1, step=0), span("vLLM.generate", 0, 5, rank=1, step=0),
            span("_calculate_rewards", 5, 8, rank=1, step=0), span("backward", 8, 12, rank=1, step=0),
        ],
    )  # fmt: skip

    assert wait_rows(meet(timelines)) == (
        row(0, 2.0, barrier="lengths", because="generate", phase="collective_wait"),
        row(0, 1.0),
    )


# Three ranks


def three() -> list[RankTimeline]:
    """Rewards at 7, 9 and 8 of a step that all leave at 9."""
    return ranks(cycle(0, 0, 0, (4, 3, 2, 1)), cycle(1, 0, 0, (4, 5, 0, 1)), cycle(2, 0, 0, (4, 4, 1, 1)))


def test_everybody_waits_for_the_last() -> None:
    """Rank 0 waits 2 s and rank 2 waits 1 s, both for rank 1."""
    assert waited(meet(three()))["reward"] == [[2, 0, 1]]


def test_rows_of_three_ranks_name_the_late_one() -> None:
    """Longest first; ``late_rank`` is the rank that came last."""
    assert wait_rows(meet(three())) == (row(0, 2.0, late_rank=1), row(2, 1.0, late_rank=1))


def test_no_single_late_rank_where_it_changes() -> None:
    """Rank 0 waits for rank 1 in one step and for rank 2 in the next: one row, nobody to blame."""
    timelines = ranks(
        [*cycle(0, 0, 0, (4, 3, 2, 1)), *cycle(0, 1, 10, (4, 3, 2, 1))],
        [*cycle(1, 0, 0, (4, 5, 0, 1)), *cycle(1, 1, 10, (4, 3, 2, 1))],
        [*cycle(2, 0, 0, (4, 3, 2, 1)), *cycle(2, 1, 10, (4, 5, 0, 1))],
    )

    rows = wait_rows(meet(timelines))

    assert rows[0] == row(0, 4.0, count=2, longest_s=2.0, late_rank=None)


# What can't be matched


def test_one_rank_has_nobody_to_wait_for() -> None:
    """No meetings, no waits."""
    assert meet(ranks(cycle(0, 0, 0, (4, 3, 2, 1)))) == []


def test_steps_that_one_rank_lacks_are_left_out() -> None:
    """Rank 1's spans of step 1 were lost: step 0 and step 2 are still matched, by number."""
    timelines = ranks(
        [*cycle(0, 0, 0, (4, 3, 2, 1)), *cycle(0, 1, 10, (4, 3, 2, 1)), *cycle(0, 2, 20, (4, 3, 2, 1))],
        [*cycle(1, 0, 0, (4, 5, 0, 1)), *cycle(1, 2, 20, (4, 4, 1, 1))],
    )

    reward = next(m for m in meet(timelines) if m.barrier.name == "reward")

    assert reward.step.tolist() == [0, 2]
    assert (reward.waits_ns() / 1e9).tolist() == [[2, 0], [1, 0]]


def test_a_rank_without_steps_takes_no_part() -> None:
    """The two ranks with steps are matched as if the third were not there."""
    timelines = ranks(
        cycle(0, 0, 0, (4, 3, 2, 1)), [span("reward", 0, 3, rank=1)], cycle(2, 0, 0, (4, 5, 0, 1))
    )

    meetings = meet(timelines)

    assert [m.ranks for m in meetings] == [(0, 2), (0, 2)]
    assert wait_rows(meetings) == (row(0, 2.0, late_rank=2),)
    assert seconds(paint_waits(timelines, meetings)[1]) == {"reward": 3.0, "unattributed": 7.0}


def test_a_barrier_that_no_rank_passes_is_no_meeting() -> None:
    """Spans of another framework: the reward gather can't be found, and nothing is made up."""
    rows = [[span("step", 0, 9, rank=r, step=0), span("reward", 1, 4 + r, rank=r, step=0)] for r in (0, 1)]

    assert meet(ranks(*rows)) == []


def test_a_barrier_that_one_rank_lacks_is_no_meeting() -> None:
    """Server mode: only rank 0 calls ``vLLM.generate``; the reward gather is matched all the same."""
    bare = [r for r in cycle(1, 0, 0, (4, 5, 0, 1)) if r["name"] != "GRPOTrainer.vLLM.generate"]

    assert waited(meet(ranks(cycle(0, 0, 0, (4, 3, 2, 1)), bare))) == {"reward": [[2, 0]]}


def test_two_generations_in_a_step_meet_in_their_order() -> None:
    """Two rounds of generation in step 0: the first meets the first, the second the second."""

    def twice(rank: int, first: float, second: float) -> list[Row]:
        return [
            span("step", 0, 20, rank=rank, step=0),
            span("vLLM.generate", 0, first, rank=rank, step=0),
            span("vLLM.generate", 10, second, rank=rank, step=0),
        ]

    assert waited(meet(ranks(twice(0, 3, 15), twice(1, 5, 11)))) == {"lengths": [[2, 0], [0, 4]]}


# The critical path


def path_of(timelines: list[RankTimeline]) -> dict[str, float]:
    """Seconds of the critical path by phase, over timelines with their waits painted in."""
    meetings = meet(timelines)
    path = critical_path(paint_waits(timelines, meetings), meetings)
    return {phases.PHASES[i]: int(t) / 1e9 for i, t in enumerate(path) if t}


def test_the_critical_path_follows_the_last_to_arrive() -> None:
    """Step 0 is bound by rank 1's rewards, step 1 by rank 0's: no wait lies on the path."""
    timelines = ranks(
        [*cycle(0, 0, 0, (4, 3, 2, 1)), *cycle(0, 1, 10, (4, 5, 0, 1))],
        [*cycle(1, 0, 0, (4, 5, 0, 1)), *cycle(1, 1, 10, (4, 3, 2, 1))],
    )

    assert path_of(timelines) == {"generate": 8.0, "reward": 10.0, "backward": 2.0}


def test_the_path_of_one_rank_is_its_own_time() -> None:
    """Nobody else decides anything."""
    assert path_of(ranks(cycle(0, 0, 0, (4, 3, 2, 1)))) == {
        "generate": 4.0, "reward": 3.0, "unattributed": 2.0, "backward": 1.0,
    }  # fmt: skip


def test_after_the_last_barrier_the_path_follows_the_last_to_finish() -> None:
    """Both leave the gather at 9; rank 0 trains until 12."""
    timelines = ranks(cycle(0, 0, 0, (4, 3, 2, 3)), cycle(1, 0, 0, (4, 5, 0, 1)))

    assert path_of(timelines) == {"generate": 4.0, "reward": 5.0, "backward": 3.0}


@pytest.mark.parametrize("ranks_count", [2, 3])
@settings(max_examples=15)
@given(st.data())
def test_waits_and_the_critical_path_add_up_for_any_lengths(ranks_count: int, data: st.DataObject) -> None:
    """Whatever each rank's lengths: the path spans the window, and each rank's wait rows are its painted waits."""
    lengths = st.tuples(*[st.integers(1, 30).map(lambda tenths: tenths / 10)] * 4)
    timelines = ranks(
        *(
            cycle(r, step, 12.5 * step + r / 7, data.draw(lengths))
            for r in range(ranks_count)
            for step in range(2)
        )
    )

    meetings = meet(timelines)
    painted = paint_waits(timelines, meetings)

    window = timelines[0].edges[-1] - timelines[0].edges[0]
    assert critical_path(painted, meetings).sum() == window
    assert [t.seconds_ns().sum() for t in painted] == [window] * len(painted)
    for timeline in painted:
        found = seconds(timeline)
        told = sum(r.seconds for r in wait_rows(meetings) if r.rank == timeline.rank)
        assert told == near(found.get("gather_wait", 0) + found.get("collective_wait", 0), abs=1e-8)


def test_painting_waits_leaves_every_named_phase_as_it_was() -> None:
    """Only unattributed time turns into waits, on each of three ranks."""
    bare = three()
    waits = {"unattributed", *phases.WAIT_PHASES}

    def named(timeline: RankTimeline) -> dict[str, float]:
        return {phase: s for phase, s in seconds(timeline).items() if phase not in waits}

    painted = paint_waits(bare, meet(bare))

    assert [named(t) for t in painted] == [named(t) for t in bare]


def test_the_last_to_arrive_never_waits() -> None:
    """Its own wait is exactly 0 at every meeting."""
    for meeting in meet(three()):
        own = np.take_along_axis(meeting.waits_ns(), meeting.last[:, None], axis=1)
        assert own.tolist() == [[0]] * len(meeting.step)
