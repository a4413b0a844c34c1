"""Processes that share a rank's number: its workers, and the one that takes over after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.analysis.pipeline import analyse
from dipstick.analysis.restarts import join_restarts
from dipstick.analysis.spans import read_lanes
from records import Row, memory, process, span, table

if TYPE_CHECKING:
    from dipstick.analysis.pipeline import Findings
    from dipstick.analysis.spans import Lane


def steps(pid: int, *numbers: int, start: float, rank: int = 0) -> list[Row]:
    """Steps of 2 s: 1.5 s of generation, 0.5 s of backward."""
    rows = []
    for i, number in enumerate(numbers):
        at = start + 2 * i
        rows += [
            span("step", at, at + 2, pid=pid, rank=rank, step=number),
            span("generate", at, at + 1.5, pid=pid, rank=rank, step=number),
            span("backward", at + 1.5, at + 2, pid=pid, rank=rank, step=number),
        ]
    return rows


def found(rows: list[Row], processes: list[Row]) -> Findings:
    return analyse(memory(spans=rows, processes=processes))


def seconds(findings: Findings, rank: int = 0) -> dict[str, float]:
    assert findings.breakdown is not None
    return {row.phase: round(row.seconds, 3) for row in findings.breakdown.rows if row.rank == rank}


# workers


def test_a_workers_spans_are_not_the_ranks() -> None:
    """A reward worker inherits RANK; its spans fill no gap of the rank's timeline, as a second trainer's would."""
    rows = [
        span("step", 0, 4, pid=11, step=0), span("generate", 0, 1, pid=11, step=0),
        span("reward", 1, 4, pid=12, step=0, phase="reward"),
    ]  # fmt: skip
    trainer = process(11, rank=0, gpu=None)
    for role in ("reward_worker", "worker"):
        findings = found(rows, [trainer, process(12, rank=0, gpu=None, role=role)])
        assert seconds(findings) == {"generate": 1.0, "unattributed": 3.0}
    assert seconds(found(rows, [trainer])) == {"generate": 1.0, "reward": 3.0}


def test_spans_of_workers_alone_are_shown_rather_than_nothing() -> None:
    """The trainer left none: there is no lane that they could be mistaken for."""
    rows = [span("reward", 1, 4, pid=12, phase="reward")]
    lanes, _ = read_lanes(
        table("spans", rows), table("processes", [process(12, rank=0, gpu=None, role="worker")])
    )
    assert [lane.pid for lane in lanes] == [12]


def test_a_worker_is_known_by_host_and_pid() -> None:
    """The same pid on another host is a trainer."""
    rows = [span("generate", 0, 1, pid=11, host="a"), span("generate", 0, 1, pid=11, rank=1, host="b")]
    roles = [process(11, rank=0, gpu=None, host="a"), process(11, rank=1, gpu=None, host="b", role="worker")]
    lanes, _ = read_lanes(table("spans", rows), table("processes", roles))
    assert [lane.rank for lane in lanes] == [0]


# restarts


def joined(*rows: list[Row]) -> tuple[list[Lane], list[str]]:
    lanes, _ = read_lanes(table("spans", [row for part in rows for row in part]), table("processes"))
    kept, notes = join_restarts(lanes)
    return kept, [note.text for note in notes]


def test_a_restarted_rank_is_one_lane_and_named() -> None:
    """Process 11 is killed in step 3; 22 resumes at step 2: steps 0 and 1 are 11's, 2 to 4 are 22's, and all the time counts."""
    first = [*steps(11, 0, 1, 2, start=0), span("generate", 6, 7, pid=11, step=3)]
    findings = found([*first, *steps(22, 2, 3, 4, start=10)], [])
    (timeline,) = findings.timelines
    assert list(zip(timeline.steps.number.tolist(), (timeline.steps.t0 / 1e9).tolist(), strict=True)) == [
        (0, 0.0), (1, 2.0), (2, 10.0), (3, 12.0), (4, 14.0),
    ]  # fmt: skip
    assert seconds(findings) == {"generate": 10.0, "backward": 3.0, "unattributed": 3.0}
    assert [note.text for note in findings.notes if "restarted" in note.text] == [
        "rank 0 was restarted: pid 11 (steps 0–2), then pid 22 (steps 2–4); 1 of them were done twice, and the later ones count"
    ]


def test_a_restart_that_repeats_nothing_says_so() -> None:
    """Three processes, each going on where the one before stopped."""
    lanes, notes = joined(steps(11, 0, start=0), steps(22, 1, start=5), steps(33, 2, 3, start=9))
    assert [lane.step.max() for lane in lanes] == [3]
    assert notes == ["rank 0 was restarted: pid 11 (steps 0), then pid 22 (steps 1), then pid 33 (steps 2–3)"]


def test_two_processes_of_one_rank_at_once_are_named_and_left_alone() -> None:
    """Two jobs that were recorded into one folder, say."""
    lanes, notes = joined(steps(11, 0, 1, start=0), steps(22, 0, 1, 2, start=1))
    assert len(lanes) == 2
    assert notes == [
        "processes 11, 22 all say that they are rank 0, at the same time: only the steps of the one with most are counted"
    ]


def test_other_ranks_and_threads_stay_as_they_are() -> None:
    """Rank 1 was not restarted; a second thread without steps is no process that took over."""
    other = [span("async_reward", 0, 1, pid=11, tid=5)]
    lanes, notes = joined(steps(11, 0, start=0), other, steps(901, 0, start=0, rank=1))
    assert sorted((lane.rank, lane.pid) for lane in lanes) == [(0, 11), (0, 11), (1, 901)]
    assert notes == []
