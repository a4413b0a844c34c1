"""The ring buffer: drops are counted, a bad row costs one row, anchors come on time, a fork waits for nobody."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.probe.dipstick_probe import encode, writer
from dipstick.probe.dipstick_probe.state import STATE
from dipstick.probe.dipstick_probe.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = 60 * 10**9


class Paper:
    """A segment in memory."""

    def __init__(self) -> None:
        self.text = ""
        self.is_full = False

    def write(self, data: bytes) -> None:
        self.text += data.decode()

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in map(json.loads, self.text.splitlines()) if row["k"] == kind]


class Clock:
    """A monotonic clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 5_000

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now + 10**18

    def thread_time_ns(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(writer, "time", found)
    return found


@pytest.fixture
def paper() -> Iterator[Paper]:
    """A segment, and a process that records while the test runs."""
    STATE.on, STATE.dirty = True, False
    yield Paper()
    STATE.on, STATE.dirty = False, False


def nothing_gathered(*, final: bool) -> None:
    """No hand-overs to add up."""
    del final


def silent(paper: Paper) -> Writer:
    """A writer whose thread never starts, so that the test decides when it flushes."""
    made = Writer(paper, lambda: {"pid": 7, "role": STATE.role() or None}, nothing_gathered)  # type: ignore[arg-type] # it quacks
    made.begin()
    made._has_thread = True
    return made


def row(name: str) -> Any:
    return (encode.line, "event", {"n": name})


def test_rows_are_written_in_their_order(paper: Paper) -> None:
    """Meta and an anchor first."""
    made = silent(paper)
    for name in ("a", "b", "c"):
        made.put(row(name))
    made.flush()
    assert [json.loads(line)["k"] for line in paper.text.splitlines()] == ["meta", "anchor", *["event"] * 3]
    assert [event["n"] for event in paper.rows("event")] == ["a", "b", "c"]


def test_rows_beyond_the_ring_are_counted(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of three keeps the oldest three of ten; the number of lost ones is written, once."""
    monkeypatch.setattr(writer, "CAPACITY", 3)
    made = silent(paper)
    for i in range(9):
        made.put(row(str(i)))
    made.put_quietly(row("9"))
    made.flush()
    made.flush()
    assert ([event["n"] for event in paper.rows("event")], paper.rows("dropped")) == (
        ["0", "1", "2"], [{"k": "dropped", "count": 7}],
    )  # fmt: skip


def test_a_row_that_cannot_be_written_costs_one_row(paper: Paper) -> None:
    """The others around it are there, and it counts as dropped."""
    made = silent(paper)
    for each in (row("a"), (encode.span, "too short"), row("b")):
        made.put(each)
    made.flush()
    assert ([event["n"] for event in paper.rows("event")], paper.rows("dropped")[0]["count"]) == (
        ["a", "b"],
        1,
    )


def test_anchors_come_after_one_two_four_seconds_and_then_each_minute(paper: Paper, clock: Clock) -> None:
    """Each pairs the clocks and says what the probe has cost: also one that is killed young has said it."""
    made = silent(paper)
    for _ in range(4 * 60):
        clock.now += MINUTE // 60
        made.flush()
    anchors = paper.rows("anchor")
    seconds = [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert [((a["m"] - 5_000) // 10**9, a["u"] - a["m"]) for a in anchors] == [(s, 10**18) for s in seconds]
    assert set(anchors[0]) == {"k", "m", "u", "rows", "span_ns", "hook_ns", "writer_ns"}


def test_what_is_learned_later_is_said_again(paper: Paper) -> None:
    """A process learns its role when it trains: one more meta line, once."""
    made = silent(paper)
    STATE.add_role("trainer")
    STATE.add_role("trainer")
    made.flush()
    made.flush()
    STATE.roles.clear()
    assert paper.rows("meta") == [{"k": "meta", "pid": 7}, {"k": "meta", "pid": 7, "role": "trainer"}]


def test_a_full_segment_ends_the_recording(paper: Paper) -> None:
    """Rows are dropped from then on, and hooks see that nobody records."""
    made = silent(paper)
    paper.is_full = True
    made.put(row("late"))
    made.flush()
    assert (STATE.on, paper.rows("event"), len(made._queue)) == (False, [], 0)


def test_the_last_flush_gathers_everything(paper: Paper) -> None:
    """Hand-overs are added up between flushes; at the end the rest comes out, before the end line."""
    asked: list[bool] = []
    made = Writer(paper, dict, lambda *, final: asked.append(final))  # type: ignore[arg-type] # it quacks
    made.begin()
    made.flush()
    made.end()
    assert (asked, [json.loads(line)["k"] for line in paper.text.splitlines()[-2:]]) == (
        [False, True],
        ["anchor", "end"],
    )


def test_a_child_that_never_began_writes_nothing(paper: Paper) -> None:
    """A fork's child has no segment before its first row: pausing and ending leave no file."""
    made = Writer(paper, dict, nothing_gathered)  # type: ignore[arg-type] # it quacks
    made.pause()
    made.end()
    assert paper.text == ""


def test_a_process_that_may_have_no_thread_writes_at_once(paper: Paper) -> None:
    """Forked by a thread: every row is on disk when ``put`` returns."""
    made = Writer(paper, dict, nothing_gathered)  # type: ignore[arg-type] # it quacks
    made.begin()
    made.is_threadless = True
    made.put(row("a"))
    assert ([event["n"] for event in paper.rows("event")], made._has_thread) == (["a"], False)


def test_a_hanging_write_holds_up_nobody_for_long(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is stuck on a dead network disk: the fork goes on after the patience, and nothing is written twice."""
    monkeypatch.setattr(writer, "PATIENCE_S", 0.01)
    made = silent(paper)
    made._stop.acquire()
    made._ended.acquire()
    before = paper.text
    made.pause(final=True)
    made._stop.acquire()
    made.end()
    assert (made._has_thread, paper.text) == (True, before)


@pytest.mark.parametrize(
    ("roles", "text"),
    [
        ((), ""),
        (("trainer",), "trainer"),
        (("engine", "trainer"), "trainer+engine"),
        (("worker", "reward_worker"), "reward_worker"),
        (("worker",), "worker"),
    ],
)
def test_roles(roles: tuple[str, ...], text: str) -> None:
    """TRL's colocated engine lives in the trainer's process; a worker of rewards is no other worker."""
    STATE.roles = set(roles)
    assert STATE.role() == text
    STATE.roles = set()
