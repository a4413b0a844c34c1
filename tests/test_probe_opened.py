"""What a process is inside of: told once, after a moment, innermost last, and never for a short span."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.probe.dipstick_probe import opened, spans, steps
from dipstick.probe.dipstick_probe.spans import OPEN, Span
from dipstick.probe.dipstick_probe.state import STATE, drop
from dipstick.probe.dipstick_probe.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 1_000_000


class Process:
    """A process whose clock and writer's thread the test owns."""

    def __init__(self) -> None:
        self.now = 10_000 * MS
        self.rows: list[Any] = []

    def look(self, after_ms: int = 0) -> list[dict[str, Any]]:
        """What the writer's next look tells, so much later."""
        self.now += after_ms * MS
        self.rows.clear()
        opened.gather(final=False)
        return [json.loads(row[0](row)) for row in self.rows]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    made = Process()
    monkeypatch.setattr(spans, "monotonic_ns", lambda: made.now)
    monkeypatch.setattr("dipstick.probe.dipstick_probe.steps.time.monotonic_ns", lambda: made.now)
    monkeypatch.setattr(opened, "monotonic_ns", lambda: made.now)
    monkeypatch.setattr(opened, "watched", list(opened.watched))
    STATE.on, STATE.put, STATE.put_quietly = True, drop, made.rows.append
    yield made
    STATE.on, STATE.put_quietly, STATE.step = False, drop, None
    STATE.roles, STATE.rank, STATE.dirty = set(), None, False
    steps.forget()
    opened.forget()


def names(lines: list[dict[str, Any]]) -> list[str]:
    assert {line["k"] for line in lines} <= {"open"}
    return [line["n"] for line in lines]


def test_a_long_span_is_told_once(process: Process) -> None:
    """After 0.25 s, with all that its row will have but the end; then no more."""
    made = Span("generate", "generate", "train.py", 12).open()
    assert process.look(200) == []
    assert process.look(100) == [
        {
            "k": "open", "n": "generate", "a": 10_000 * MS, "tid": made.tid, "ph": "generate", "f": "train.py", "l": 12,
        }
    ]  # fmt: skip
    assert process.look(500) == []
    made.close()


def test_short_spans_cost_no_line(process: Process) -> None:
    """A thousand steps of an optimizer are told by their own rows alone."""
    for _ in range(10):
        with Span("optimizer"):
            process.now += 100 * MS
        assert process.look(0) == []


def test_spans_around_it_come_first(process: Process) -> None:
    """Outer before inner; an inner one that opens later is told later, alone."""
    with Span("step"), Span("reward"):
        assert names(process.look(300)) == ["step", "reward"]
        with Span("judge") as judge:
            assert process.look(100) == []
            (line,) = process.look(300)
            assert (line["n"], line["p"], line["a"]) == ("judge", "reward", judge.a)
    assert OPEN == {}


def test_the_same_name_again_is_told_again(process: Process) -> None:
    """It is another span: it began later."""
    for _ in range(2):
        with Span("generate"):
            assert names(process.look(300)) == ["generate"]


def test_each_thread_has_its_own(process: Process) -> None:
    """A reward thread that opens a span does not hide what the trainer is inside of."""
    ready, done = threading.Event(), threading.Event()

    def judge() -> None:
        with Span("judge"):
            ready.set()
            done.wait(60)

    with Span("reward"):
        other = threading.Thread(target=judge)
        other.start()
        ready.wait(60)
        lines = process.look(300)
        done.set()
        other.join()
        assert sorted(names(lines)) == ["judge", "reward"]
        assert len({line["tid"] for line in lines}) == 2
        assert next(iter(OPEN.values())).name == "reward"
    assert OPEN == {}


def test_a_span_that_was_closed_out_of_order_is_not_told(process: Process) -> None:
    """A generator may close the outer one first."""
    outer, inner = Span("outer").open(), Span("inner").open()
    outer.close()
    inner.close()
    inner.close()
    assert process.look(300) == []


def test_the_step_under_way_is_told(process: Process) -> None:
    """Its row is written when the next one begins; until then nobody would know its start."""
    steps.begin(7, "train.py", 3)
    assert [(line["n"], line["step"], line["a"]) for line in process.look(300)] == [("step", 7, 10_000 * MS)]
    steps.end()
    assert process.look(300) == []


def test_a_frameworks_own_timers_are_told(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their spans are made when they stop."""
    monkeypatch.setattr("dipstick.probe.dipstick_probe.timers.time.monotonic_ns", lambda: process.now)
    timers = Timers({"gen": "generate"}, step_label="step", skip=())
    timers.start("key", "gen", None)
    assert [(line["n"], line["ph"]) for line in process.look(300)] == [("gen", "generate")]
    timers.stop("key", "gen")
    assert process.look(300) == []


def test_hundreds_of_open_spans_are_told_of_in_part(process: Process) -> None:
    """A leak of spans must not fill the disk."""
    made = [Span(str(i)).open() for i in range(3 * opened.MOST)]
    assert len(process.look(300)) == opened.MOST
    for span in reversed(made):
        span.close()


def test_nothing_is_told_at_the_end_or_while_nobody_records(process: Process) -> None:
    """The segment's last lines are its spans."""
    with Span("generate"):
        process.now += 300 * MS
        opened.gather(final=True)
        STATE.on = False
        assert (process.rows, process.look()) == ([], [])


def test_a_forks_child_is_inside_of_nothing(process: Process) -> None:
    """What is open is the parent's."""
    Span("generate").open()
    opened.forget()
    assert process.look(300) == []
