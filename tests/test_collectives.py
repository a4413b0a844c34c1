"""Waits at recorded collectives: by the hosts where they block, by the devices where they don't; each second once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick import phases
from dipstick.analysis.collectives import DeviceWait, add_collectives, device_waits, host_meetings, match
from dipstick.analysis.pipeline import analyse
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.timeline import RankTimeline, build
from dipstick.analysis.waits import Meetings, critical_path, meet, paint_waits, wait_rows
from dipstick.model import WaitRow
from records import HOST, Row, cycle, memory, near, ns, process, span, table

if TYPE_CHECKING:
    from collections.abc import Sequence


def call(
    rank: int,
    entered: float,
    left: float,
    name: str = "barrier",
    *,
    ms: float | None = None,
    pid: int | None = None,
) -> Row:
    """A collective of a rank's main process."""
    times = {"entered_ns": ns(entered), "left_ns": ns(left), "device_ms": ms}
    return {"host": HOST, "rank": rank, "pid": 900 + rank if pid is None else pid, "name": name, **times}


def step(rank: int, *inner: Row, end: float = 10, number: int = 0) -> list[Row]:
    """A step [0, end) of a rank with these spans inside."""
    return [span("step", 0, end, rank=rank, step=number), *inner]


def timelines(spans: Sequence[Row], whole: float = 100) -> list[RankTimeline]:
    return build(read_lanes(table("spans", spans), table("processes"))[0], (0, ns(whole)))[0]


def found(
    spans: Sequence[Row], calls: Sequence[Row], processes: Sequence[Row] = ()
) -> tuple[list[RankTimeline], list[Meetings]]:
    """What the pipeline makes of spans and collectives."""
    bare = timelines(spans)
    meetings = meet(bare)
    matched = match(bare, table("collectives", calls), table("processes", processes))
    return add_collectives(paint_waits(bare, meetings), meetings, matched)


def seconds(timeline: RankTimeline) -> dict[str, float]:
    return {phases.PHASES[i]: int(t) / 1e9 for i, t in enumerate(timeline.seconds_ns()) if t}


SAVING = [
    *step(0, span("checkpoint", 2, 8, rank=0, step=0)),
    *step(1, span("checkpoint", 2, 8, rank=1, step=0)),
]
"""Both ranks are in a checkpoint from 2 to 8."""


# The hosts wait


def test_a_rank_in_a_barrier_of_its_checkpoint_is_not_saving() -> None:
    """Rank 0 writes until 7; rank 1 has been in the barrier since 3. It saved for 2 s and waited for 4."""
    ranks, meetings = found(SAVING, [call(0, 7, 7.001), call(1, 3, 7.001)])

    assert seconds(ranks[0]) == {"checkpoint": 6.0, "unattributed": 4.0}
    assert seconds(ranks[1]) == {"checkpoint": 2.0, "collective_wait": 4.0, "unattributed": 4.0}
    assert wait_rows(meetings) == (
        WaitRow(1, "barrier", "checkpoint", 0, "collective_wait", 4.0, 1, 4.0),
    )  # fmt: skip


def test_the_late_rank_s_work_is_the_reason() -> None:
    """Rank 0 generates until 6, rank 1 until 2 and then gathers objects: it waits because of generation."""
    spans = [
        *step(0, span("generate", 0, 6, rank=0, step=0)),
        *step(1, span("generate", 0, 2, rank=1, step=0)),
    ]

    _, meetings = found(spans, [call(0, 6, 6.01, "all_gather_object"), call(1, 2, 6.01, "all_gather_object")])

    (row,) = wait_rows(meetings)
    assert (row.rank, row.late_rank, row.barrier, row.because, row.seconds) == (
        1,
        0,
        "all_gather_object",
        "generate",
        4.0,
    )


def test_exits_far_apart_are_no_barrier() -> None:
    """1 s between the arrivals and 0.6 s between the exits: that these two met isn't shown."""
    _, meetings = found(
        [*step(0), *step(1)], [call(0, 3, 6, "all_gather_object"), call(1, 4, 6.6, "all_gather_object")]
    )

    assert meetings == []


def test_a_long_transfer_leaves_the_wait_as_it_was() -> None:
    """Rank 0 comes at 1, rank 1 at 4; both leave at 6 after 2 s of transfer: rank 0 waited for 3 s."""
    ranks, meetings = found(
        [*step(0), *step(1)], [call(0, 1, 6, "all_gather_object"), call(1, 4, 6, "all_gather_object")]
    )

    assert [(r.rank, r.seconds) for r in wait_rows(meetings)] == [(0, 3.0)]
    assert seconds(ranks[0])["collective_wait"] == 3.0


def blocking(rank: int, scored: float, gathered: float) -> list[Row]:
    """gloo: rewards from 4 to ``scored``, then the gather, inside ``_calculate_rewards``, until ``gathered``."""
    return step(
        rank,
        span("GRPOTrainer.vLLM.generate", 0, 4, rank=rank, step=0),
        span("GRPOTrainer._calculate_rewards", 4, gathered, rank=rank, step=0),
        span("gather", scored, gathered, rank=rank, step=0),
    )


def test_a_wait_that_the_spans_show_is_counted_once() -> None:
    """The gather inside the rewards is a barrier of the spans and a recorded collective: 3 s, not 6."""
    spans = [*blocking(0, 6, 9), *blocking(1, 9, 9.0001)]
    calls = [call(0, 6, 9.0001, "all_gather"), call(1, 9, 9.0001, "all_gather")]

    ranks, meetings = found(spans, calls)

    assert sum(r.seconds for r in wait_rows(meetings)) == near(3.0, abs=1e-3)
    assert seconds(ranks[0]) | {"unattributed": 0} == {
        "generate": 4.0, "reward": 2.0, "gather_wait": near(3.0, abs=1e-3), "unattributed": 0,
    }  # fmt: skip


def test_the_part_that_the_spans_do_not_show_is_added() -> None:
    """Rank 0's own reward ends at 7, its host sits in a barrier [7, 12); the spans' wait ends at 9 with rank 1's rewards."""
    spans = [*cycle(0, 0, 0, (4, 3, 5, 1)), *cycle(1, 0, 0, (4, 5, 3, 1))]
    calls = [call(0, 7, 12), call(1, 11.5, 12)]

    ranks, meetings = found(spans, calls)

    told = {(r.rank, r.barrier): r.seconds for r in wait_rows(meetings)}
    assert told == {(0, "reward"): 2.0, (0, "barrier"): 2.5}
    assert seconds(ranks[0])["gather_wait"] == 2.0
    assert seconds(ranks[0])["collective_wait"] == 2.5


def test_the_path_follows_the_rank_that_opens_the_barrier() -> None:
    """Rank 0 saves until 7 while rank 1 waits: 5 s of the checkpoint are on the critical path, the wait isn't."""
    ranks, meetings = found(SAVING, [call(0, 7, 7.001), call(1, 3, 7.001)])

    path = critical_path(ranks, meetings)

    assert path[phases.CODE["checkpoint"]] == ns(6)
    assert path[phases.CODE["collective_wait"]] == 0


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 800), st.integers(0, 800), st.integers(0, 800)), min_size=1, max_size=4)
)
def test_seconds_add_up_whatever_the_arrivals(arrivals: list[tuple[int, int, int]]) -> None:
    """Three ranks, a barrier a second: each rank's window is whole, and its rows are what was painted."""
    spans = [row for r in range(3) for row in step(r, span("checkpoint", 1, 3, rank=r, step=0))]
    calls = [
        call(r, k + ms[r] / 1000, k + max(ms) / 1000 + 0.0001)
        for k, ms in enumerate(arrivals)
        for r in range(3)
    ]

    ranks, meetings = found(spans, calls)

    for timeline in ranks:
        told = sum(r.seconds for r in wait_rows(meetings) if r.rank == timeline.rank)
        assert timeline.seconds_ns().sum() == ns(10)
        assert told == near(seconds(timeline).get("collective_wait", 0.0), abs=1e-8)


# What is no such wait


def test_a_call_that_only_launches_is_no_wait_of_the_host() -> None:
    """NCCL: rank 0's all_reduce returns after a millisecond, rank 1 launches a second later. No host waited."""
    ranks, meetings = found(
        [*step(0), *step(1)], [call(0, 3, 3.001, "all_reduce"), call(1, 4, 4.001, "all_reduce")]
    )

    assert meetings == []
    assert "collective_wait" not in seconds(ranks[0])


def test_a_gather_to_one_rank_is_left_out() -> None:
    """Rank 1 sends and leaves, rank 0 stays for rank 2: the recording doesn't say who collects, so nobody is blamed."""
    spans = [row for r in range(3) for row in step(r)]
    calls = [
        call(0, 1, 5, "gather_object"),
        call(1, 2, 2.1, "gather_object"),
        call(2, 5, 5.001, "gather_object"),
    ]

    assert found(spans, calls)[1] == []


def test_two_groups_that_do_not_leave_together_are_no_meeting() -> None:
    """Ranks 0 and 1 meet at 5, ranks 2 and 3 at 9: a match of all four would blame rank 3 for rank 0's wait."""
    spans = [row for r in range(4) for row in step(r)]
    calls = [call(0, 1, 5), call(1, 4.9, 5), call(2, 4, 9), call(3, 4.95, 9)]

    assert found(spans, calls)[1] == []


def test_calls_that_one_rank_makes_more_often_are_not_matched() -> None:
    """Rank 1 is in a second barrier that rank 0 has no part in: which is which, nobody knows."""
    assert found([*step(0), *step(1)], [call(0, 3, 5), call(1, 1, 2), call(1, 4, 5)])[1] == []


def test_other_names_of_that_step_are_matched_all_the_same() -> None:
    """The barrier's count differs, the object gather's does not."""
    calls = [call(0, 8, 9), call(0, 2, 5, "all_gather_object"), call(1, 4, 5, "all_gather_object")]

    assert [m.barrier.name for m in found([*step(0), *step(1)], calls)[1]] == ["all_gather_object"]


def test_a_call_during_another_is_of_a_thread_that_nobody_knows() -> None:
    """A checkpoint's thread enters a barrier while the main thread is in another call: left out on that rank, so on all."""
    calls = [call(0, 1, 6, "all_reduce"), call(0, 2, 5), call(1, 4, 5), call(1, 5.5, 6, "all_reduce")]

    assert [m.barrier.name for m in found([*step(0), *step(1)], calls)[1]] == ["all_reduce"]


def test_a_reward_worker_s_collective_is_not_its_rank_s() -> None:
    """A worker inherits RANK=0; its barrier at 2 is no arrival of rank 0."""
    worker = [
        process(5000, rank=0, gpu=None, role="reward_worker"),
        process(900, rank=0, gpu=0),
        process(901, rank=1, gpu=1),
    ]
    calls = [call(0, 2, 5, pid=5000), call(0, 4, 5), call(1, 1, 5)]

    _, meetings = found([*step(0), *step(1)], calls, worker)

    assert [(r.rank, r.late_rank, r.seconds) for r in wait_rows(meetings)] == [(1, 0, 3.0)]


@pytest.mark.parametrize("when", [-1.0, 10.5])
def test_calls_outside_the_window_do_not_count(when: float) -> None:
    """Before the first step and after the last the ranks start up and tear down."""
    calls = [call(0, when, when + 0.4), call(1, when + 0.3, when + 0.4)]

    assert found([*step(0), *step(1)], calls)[1] == []


def test_one_rank_meets_nobody() -> None:
    """Its barriers are its own time."""
    assert match(timelines(step(0)), table("collectives", [call(0, 1, 2)]), table("processes")) == []


def test_the_last_to_arrive_waits_for_nobody() -> None:
    """Exactly 0 for it, in each of two barriers with another last rank."""
    bare = timelines([*step(0), *step(1)])
    calls = match(
        bare,
        table("collectives", [call(0, 1, 3), call(1, 3, 3), call(0, 6, 6), call(1, 4, 6)]),
        table("processes"),
    )

    (meeting,) = host_meetings(bare, calls)

    assert meeting.waits_ns().tolist() == [[ns(2), 0], [0, ns(2)]]
    assert np.asarray(meeting.ranks)[meeting.last].tolist() == [1, 0]


# The devices wait


def reduced(*pairs: tuple[float | None, float | None]) -> tuple[DeviceWait, ...]:
    """Device waits of all_reduces that rank 1 launches a second after rank 0; (rank 0's ms, rank 1's ms) each."""
    rows = [
        call(r, k + r / 2, k + r / 2 + 0.0001, "all_reduce", ms=ms)
        for k, pair in enumerate(pairs)
        for r, ms in enumerate(pair)
    ]
    return device_waits(
        match(timelines([*step(0), *step(1)]), table("collectives", rows), table("processes"))
    )


def test_a_device_waits_for_what_it_takes_longer_than_the_quickest() -> None:
    """1,000 and 2 ms: 2 ms are the transfer, rank 0's GPU waited 0.998 s."""
    assert reduced((1000.0, 2.0)) == (DeviceWait(0, "all_reduce", near(0.998), 1),)


def test_device_waits_are_summed_by_rank() -> None:
    """Rank 0 waits twice, rank 1 once; a difference under a millisecond is none."""
    assert reduced((1000.0, 2.0), (500.0, 2.0), (3.0, 203.0), (2.0, 2.5)) == (
        DeviceWait(0, "all_reduce", near(1.496), 2),
        DeviceWait(1, "all_reduce", near(0.2), 1),
    )


def test_a_device_time_that_is_missing_is_not_zero() -> None:
    """Rank 1's time was never read: rank 0's wait is not known."""
    assert reduced((1000.0, None)) == ()


def test_a_wait_of_the_host_is_not_told_again_as_the_device_s() -> None:
    """Blocking NCCL: host and device wait the same second."""
    rows = [call(0, 1, 3, ms=2000.0), call(1, 3, 3.0001, ms=1.0)]
    assert (
        device_waits(match(timelines([*step(0), *step(1)]), table("collectives", rows), table("processes")))
        == ()
    )


# In the report


def test_the_analysis_reads_them() -> None:
    """The breakdown has the wait, still adds up, and says what the devices waited beside it."""
    calls = [
        call(0, 7, 7.001), call(1, 3, 7.001),
        call(0, 8, 8.0001, "all_reduce", ms=500.0), call(1, 8.5, 8.5001, "all_reduce", ms=1.0),
    ]  # fmt: skip
    findings = analyse(memory(spans=SAVING, collectives=calls))

    assert findings.breakdown is not None
    waits = {(r.rank, r.barrier): r.seconds for r in findings.breakdown.waits}
    rows = {(r.rank, r.phase): r for r in findings.breakdown.rows}
    assert waits == {(1, "barrier"): 4.0}
    assert rows[1, "collective_wait"].seconds == 4.0
    assert sum(r.seconds for r in findings.breakdown.rows if r.rank == 1) == near(10.0)
    assert [n.text for n in findings.notes if "inside collectives" in n.text] == [
        "GPUs waited inside collectives for the last rank (rank 0 0.5 s in 1 all_reduce): device time, beside the phases and in none of their sums"
    ]
