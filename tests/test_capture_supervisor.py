"""The supervisor waits, passes signals on, and never lets the recording's troubles reach CMD."""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from dipstick.capture import supervisor
from dipstick.capture.sampler_main import EXIT_FAILED, EXIT_FULL
from dipstick.capture.sampler_process import SamplerProcess
from dipstick.capture.signals import Arrived
from dipstick.capture.supervisor import Plan, open_recording, record, watch
from dipstick.errors import RecordingError
from dipstick.recording.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dipstick.recording.writer import RecordingWriter

CTRL_C = Arrived(signal.SIGINT, from_terminal=True)


@dataclass
class FakeChild:
    """A CMD that ends after some looks, or at once when it is killed."""

    looks: int
    own_group: bool = True
    status: int = 0
    got: list[int] = field(default_factory=list)
    spared: frozenset[int] | None = None

    def ended(self) -> int | None:
        self.looks -= 1
        return self.status if self.looks < 0 else None

    def signal(self, number: int) -> None:
        self.got.append(number)

    def kill(self, spare: frozenset[int] = frozenset()) -> None:
        self.spared, self.looks, self.status = spare, 0, 9


@dataclass
class FakeSampler:
    """A sampler that ends after some looks."""

    looks: int = 1000
    why: str | None = None
    pid: int = 77
    lives: int = 0

    def ended(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def trouble(self) -> str | None:
        return self.why

    def again(self) -> bool:
        self.lives, self.looks, self.pid = self.lives - 1, 3, self.pid + 1
        return self.lives >= 0


class FakeQueue:
    """Signals that arrive one a look."""

    def __init__(self, *arrived: Arrived | None) -> None:
        self.arrived = list(arrived)

    def wait(self, _seconds: float) -> Arrived | None:
        return self.arrived.pop(0) if self.arrived else None


class Said:
    """What was said, and what was warned of."""

    def __init__(self) -> None:
        self.talk: list[str] = []
        self.warnings: list[str] = []

    def watch(self, child: FakeChild, sampler: FakeSampler | None = None, *arrived: Arrived | None) -> int:
        return watch(child, sampler, FakeQueue(*arrived), self.talk.append, self.warnings.append)


def test_it_waits_for_the_command_and_returns_its_status() -> None:
    """Silently."""
    said = Said()
    assert said.watch(FakeChild(5, status=768), FakeSampler()) == 768
    assert (said.talk, said.warnings) == ([], [])


def test_signals_are_passed_on() -> None:
    """Each as it comes."""
    child = FakeChild(5)
    Said().watch(child, None, Arrived(signal.SIGTERM), None, Arrived(signal.SIGUSR1))
    assert child.got == [signal.SIGTERM, signal.SIGUSR1]


def test_the_first_ctrl_c_asks_and_the_second_one_kills() -> None:
    """Everything but the sampler, which has to close the recording."""
    said, child = Said(), FakeChild(50)
    assert said.watch(child, FakeSampler(), CTRL_C, None, CTRL_C) == 9
    assert (child.got, child.spared) == ([signal.SIGINT], frozenset({77}))
    assert said.talk == ["waiting for the command to stop; Ctrl-C again kills it", "killing the command"]


def test_the_terminals_ctrl_c_is_not_sent_twice() -> None:
    """CMD in the foreground group got it from the terminal."""
    said, child = Said(), FakeChild(5, own_group=False)
    said.watch(child, None, CTRL_C)
    assert child.got == []
    assert said.talk == ["waiting for the command to stop; Ctrl-C again kills it"]


def test_a_sampler_that_dies_is_mourned_once_and_the_command_goes_on() -> None:
    """With the reason."""
    said = Said()
    sampler = FakeSampler(looks=2, why="the disk is full")
    assert said.watch(FakeChild(50), sampler) == 0
    assert said.warnings == ["the disk is full: recording of telemetry stops here; the command goes on"]


def test_a_sampler_that_was_killed_is_started_again() -> None:
    """Said once; the second one is spared when everything else is killed."""
    said, child = Said(), FakeChild(50)
    sampler = FakeSampler(looks=0, why="the sampler was killed (signal 9)", lives=1)
    said.watch(child, sampler, CTRL_C, CTRL_C)
    assert child.spared == frozenset({78})
    assert said.warnings == [
        "the sampler was killed (signal 9): another one was started; the command goes on"
    ]


def test_a_sampler_that_ends_without_a_word_is_missed_too() -> None:
    """It should not end before CMD."""
    said = Said()
    said.watch(FakeChild(50), FakeSampler(looks=0))
    assert said.warnings == ["the sampler ended: recording of telemetry stops here; the command goes on"]


# the folder


def close(writer: RecordingWriter) -> None:
    writer.close()


def plan(run: Path, **more: bool) -> Plan:
    return Plan(("python", "train.py", "--token", "abc"), run, **more)


def test_the_folder_is_private_and_has_a_place_for_segments(tmp_path: Path) -> None:
    """0700, both; the command in the manifest is scrubbed."""
    close(open_recording(plan(tmp_path / "R"), "node1"))
    assert [oct(p.stat().st_mode & 0o777) for p in (tmp_path / "R", tmp_path / "R/probe")] == ["0o700"] * 2
    assert '"source": "python train.py --token ***"' in (tmp_path / "R" / MANIFEST).read_text()


def test_a_recording_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    """And a replaced one leaves no segment of its own behind."""
    close(open_recording(plan(tmp_path / "R"), "node1"))
    (tmp_path / "R/probe/node1.5.1.jsonl").write_text("{}\n")
    with pytest.raises(RecordingError, match="already there"):
        open_recording(plan(tmp_path / "R"), "node1")
    close(open_recording(plan(tmp_path / "R", force=True), "node1"))
    assert list((tmp_path / "R/probe").iterdir()) == []


def test_several_hosts_record_into_one_folder(tmp_path: Path) -> None:
    """The first makes it, the others join; each has a writer of its own."""
    writers = [open_recording(plan(tmp_path / "R", join=True), host) for host in ("node1", "node2")]
    assert len({writer.writer for writer in writers}) == 2
    for writer in writers:
        writer.close()


def test_joining_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with other things in it, and a recording that is damaged."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    (tmp_path / "R").mkdir()
    (tmp_path / "R/notes.txt").touch()
    with pytest.raises(RecordingError):
        open_recording(plan(tmp_path / "R", join=True), "node1")
    (tmp_path / "R" / MANIFEST).write_text("{")
    with pytest.raises(RecordingError, match="damaged"):
        open_recording(plan(tmp_path / "R", join=True), "node1")


def test_a_folder_that_another_host_is_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest was not there a moment ago; a second later it is."""
    run = tmp_path / "R"
    run.mkdir()
    (run / ".manifest.json.12.tmp").touch()
    monkeypatch.setattr(
        "time.sleep",
        lambda _seconds: close(_after(run, lambda: open_recording(plan(run), "node2"))),
    )
    close(open_recording(plan(run, join=True), "node1"))
    assert len(list(run.glob("manifest.run_*.json"))) == 2


def _after(run: Path, make: Callable[[], RecordingWriter]) -> RecordingWriter:
    (run / ".manifest.json.12.tmp").unlink()
    return make()


def test_segments_are_never_written_through_a_link(tmp_path: Path) -> None:
    """A shared folder may hold a trap."""
    close(open_recording(plan(tmp_path / "R"), "node1"))
    (tmp_path / "R/probe").rmdir()
    (tmp_path / "R/probe").symlink_to(tmp_path)
    with pytest.raises(RecordingError, match="symbolic link"):
        open_recording(plan(tmp_path / "R", join=True), "node2")


# troubles


def test_a_sampler_that_cannot_be_started_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for a process: CMD runs, its status comes back, the recording is closed."""

    def refuse(*_: object) -> SamplerProcess:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(supervisor, "SamplerProcess", refuse)
    warnings: list[str] = []
    outcome = record(Plan(("/bin/sh", "-c", "exit 4"), tmp_path / "R"), print, warnings.append)
    assert outcome.status == 4
    assert warnings == [
        "the sampler can't be started (Cannot allocate memory): no GPU telemetry; the command runs all the same"
    ]
    assert outcome.captured is not None
    assert outcome.captured.trouble == "the sampler was not started"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "could not be closed (No space left on device)"),
        (RecordingError("damaged"), "could not be closed (damaged)"),
        (KeyboardInterrupt(), "interrupted while closing the recording"),
    ],
)
def test_a_recording_that_cannot_be_closed_costs_nothing_else(
    error: BaseException, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a bug, an impatient user: the status is CMD's."""

    def fail(*_: object, **__: object) -> None:
        raise error

    def refuse(*_: object) -> SamplerProcess:
        raise OSError(errno.ENOMEM, "no")

    monkeypatch.setattr(supervisor, "SamplerProcess", refuse)
    monkeypatch.setattr("dipstick.capture.finish.close_recording", fail)
    warnings: list[str] = []
    outcome = record(Plan(("/bin/sh", "-c", "exit 5"), tmp_path / "R"), print, warnings.append)
    assert (outcome.status, outcome.captured) == (5, None)
    assert words in warnings[-1]


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (0, "", None),
        (EXIT_FULL, "[Errno 28] No space left\n", "the disk is full"),
        (EXIT_FAILED, "noise\nR: no such folder.\n\n", "the sampler failed: R: no such folder."),
        (EXIT_FAILED, "", "the sampler failed: exit status 70"),
        (-9, "", "the sampler was killed (signal 9)"),
    ],
)
def test_why_a_sampler_ended(
    code: int, said: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its exit status and the last line of its stderr."""
    script = tmp_path / "python"
    end = f"kill {code} $$" if code < 0 else f"exit {code}"
    script.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf %s {said!r} | sed 's/\\\\n/\\n/g' >&2\n{end}\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    process = SamplerProcess(tmp_path, "node1", 10.0)
    assert (process.ended(), process.trouble()) == (False, None)
    process.stop()
    assert process.ended()
    assert process.trouble() == words
    process._stderr.close()
