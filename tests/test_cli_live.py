"""`dipstick live`: which instant is shown, keys, the end of a run, one screen, JSON, and a real run that is watched."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from dipstick.cli import live_screen, main
from dipstick.cli.live_feed import BEHIND_NS, QUIET_NS, LiveFeed, ReplayFeed, open_feed
from dipstick.cli.live_screen import KEYS, Screen, read_key, stream, watch
from dipstick.errors import RecordingError
from dipstick.recording.live import LiveRun
from dipstick.recording.reader import open_recording
from dipstick.recording.window import Replay
from dipstick.recording.writer import RecordingWriter
from dipstick.show.look import Look
from live_windows import straggling
from records import HOST, UNIX_NS, near, ns, on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.cli.live_feed import Feed

ROOT = Path(__file__).resolve().parent.parent
S = 1_000_000_000
SAMPLE = "sample:h200x2-grpo"


class Clock:
    """A clock that a test moves; seconds since ``UNIX_NS``."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at

    def __call__(self) -> int:
        return UNIX_NS + ns(self.at)


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """Twelve seconds on disk."""
    rows = straggling(12.0)
    spans = [row for row in rows["spans"] if row["t1_ns"] is not None]
    return Replay(on_disk(tmp_path_factory.mktemp("live") / "RUN", **{**rows, "spans": spans, "jobs": []}))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordingWriter]:
    """A run that goes on: GPU 0 was polled at 1, 2 ... 9 s."""
    made = RecordingWriter.create(tmp_path / "RUN", origin="measured", host=HOST, created_unix_ns=UNIX_NS)
    polls = [
        {"host": HOST, "gpu": 0, "t_ns": UNIX_NS + ns(t), "source": "poll", "util_pct": 10.0 * t}
        for t in range(1, 10)
    ]
    made.append("gpu", polls)
    made.flush()
    yield made
    made.close()


def shown(feed: Feed) -> float:
    """The second that a feed shows."""
    return round(feed.window().t_ns / 1e9, 6)


# Which instant is shown


def test_a_live_view_is_a_moment_behind(writer: RecordingWriter) -> None:
    """By then what was under way is on disk."""
    clock = Clock(10)
    feed = LiveFeed(LiveRun(writer.path, "RUN"), clock)
    assert shown(feed) == 10 - BEHIND_NS / 1e9
    clock.at = 11
    assert (shown(feed), feed.held, feed.has_ended, feed.stays) == (11 - BEHIND_NS / 1e9, False, False, False)


def test_a_live_view_can_be_held_and_sought(writer: RecordingWriter) -> None:
    """Held it stays; back as far as rows are kept; forth beyond now is now."""
    clock = Clock(10)
    feed = LiveFeed(LiveRun(writer.path, "RUN"), clock)
    shown(feed)
    feed.toggle()
    clock.at = 12
    assert (shown(feed), feed.held) == (8.5, True)
    feed.seek(-2)
    assert shown(feed) == 6.5
    feed.seek(-100)
    assert shown(feed) == 1.0
    feed.seek(100)
    assert (shown(feed), feed.held) == (10.5, False)
    feed.toggle()
    feed.toggle()
    assert (shown(feed), feed.held) == (10.5, False)


def test_another_hosts_clock_does_not_make_a_run_look_dead(writer: RecordingWriter) -> None:
    """The run's host is 100 s behind ours: its freshest row says what time it is there."""
    clock = Clock(109)
    feed = LiveFeed(LiveRun(writer.path, "RUN"), clock, here=False)
    shown(feed)
    clock.at = 110
    assert shown(feed) == 10 - BEHIND_NS / 1e9


def test_the_end_of_the_run_is_seen(writer: RecordingWriter) -> None:
    """Its writers have closed."""
    feed = LiveFeed(LiveRun(writer.path, "RUN"), Clock(10))
    writer.close()
    assert (feed.window().mode, feed.has_ended) == ("ended", True)


def test_a_replay_runs_at_its_speed_and_stops_at_the_end(replay: Replay) -> None:
    """Twice as fast from 2 s: after 3 s it is at 8 s, and it never leaves the recording."""
    clock = Clock()
    feed = ReplayFeed(replay, 2.0, 2.0, clock)
    clock.at = 3
    assert (shown(feed), feed.has_ended) == (8.0, False)
    clock.at = 60
    assert (shown(feed), feed.has_ended, feed.stays) == (12.0, True, True)


def test_a_replay_can_be_paused_and_sought(replay: Replay) -> None:
    """Time that passes while it stands does not count."""
    clock = Clock()
    feed = ReplayFeed(replay, 5.0, 1.0, clock)
    feed.toggle()
    clock.at = 100
    assert (shown(feed), feed.held) == (5.0, True)
    feed.seek(-10)
    assert shown(feed) == 0.0
    feed.toggle()
    clock.at = 101
    assert shown(feed) == 1.0


def test_a_run_that_goes_on_is_live_and_a_closed_one_a_replay(writer: RecordingWriter) -> None:
    """Unless a second to begin at was given: that is a replay of what there is."""
    assert isinstance(open_feed(str(writer.path)), LiveFeed)
    assert shown(open_feed(str(writer.path), start=3.0, once=True)) == near(3.0, abs=1.0)
    writer.close()
    assert isinstance(open_feed(str(writer.path)), ReplayFeed)


def test_a_run_that_was_killed_is_replayed(writer: RecordingWriter) -> None:
    """Nobody closed it, and nobody has written to it for a minute."""
    for path in writer.path.rglob("*"):
        old = path.stat().st_mtime_ns - 2 * QUIET_NS
        os.utime(path, ns=(old, old))
    assert isinstance(open_feed(str(writer.path)), ReplayFeed)


def test_one_look_at_a_finished_recording_is_its_end() -> None:
    """Where the run stood when it ended; a replay to watch begins at the start."""
    end = (open_recording(SAMPLE).end_unix_ns - open_recording(SAMPLE).start_unix_ns) / 1e9
    assert shown(open_feed(SAMPLE, once=True)) == round(end, 6)
    assert shown(open_feed(SAMPLE)) < 5.0


# Drawing and keys


class Keyboard:
    """Presses keys one after the other, and moves the clock by the time that was waited."""

    def __init__(self, clock: Clock, *keys: str | None) -> None:
        self.clock = clock
        self.keys = [*keys]

    def __call__(self, seconds: float) -> str | None:
        self.clock.at += seconds
        return self.keys.pop(0) if self.keys else "quit"


def idle() -> float:
    """A process that uses no CPU."""
    return 0.0


def terminal(width: int = 80, height: int = 24) -> Screen:
    """A terminal in memory."""
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=height,
        _environ={"TERM": "xterm"},
        color_system=None,
    )
    return Screen(console, Look(width), None, None, is_terminal=True)


def drawn(screen: Screen) -> str:
    out = screen.console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def test_keys_pause_seek_and_quit(replay: Replay, capsys: pytest.CaptureFixture[str]) -> None:
    """A frame each second; paused at 6 s, ten seconds back, on, quit: the last frame stays on stdout."""
    clock = Clock()
    screen = terminal()
    watch(
        ReplayFeed(replay, 5.0, 1.0, clock),
        screen,
        1.0,
        Keyboard(clock, None, "pause", None, "back", "pause", None),
        idle,
    )
    titles = re.findall(r"replay RUN(?:  step \d)?  (\S+) s of", drawn(screen))
    assert titles == ["5.0", "6.0", "7.0", "7.0", "0", "0", "1.0"]
    assert capsys.readouterr().out.splitlines()[0].startswith("▶ replay RUN")
    assert "space go on" in drawn(screen)


def test_the_terminal_is_given_back(replay: Replay) -> None:
    """The other screen is left and the cursor shown, after an error, too."""
    clock, screen = Clock(), terminal()

    def fail(_: float) -> str | None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        watch(ReplayFeed(replay, 5.0, 1.0, clock), screen, 1.0, fail, idle)
    assert drawn(screen).rstrip().endswith("\x1b[?25h\x1b[?1049l") or "\x1b[?1049l" in drawn(screen)
    assert "\x1b[?25h" in drawn(screen)


def test_ctrl_c_leaves_as_q_does(replay: Replay, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback; the last frame stays."""

    def interrupt(_: float) -> str | None:
        raise KeyboardInterrupt

    watch(ReplayFeed(replay, 5.0, 1.0, Clock()), terminal(), 1.0, interrupt, idle)
    assert "replay RUN" in capsys.readouterr().out


def test_a_resized_terminal_is_filled(replay: Replay) -> None:
    """The size is asked for before each frame."""
    screen, clock = terminal(), Clock()
    feed = ReplayFeed(replay, 5.0, 1.0, clock)
    wide = screen.text(feed)
    screen.console.width, screen.console.height = 50, 10
    small = screen.text(feed)
    assert max(map(len, wide.splitlines())) > 50
    assert max(map(len, small.splitlines())) <= 50
    assert len(small.splitlines()) <= 10


def test_a_run_that_ends_ends_the_view(writer: RecordingWriter, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a key; its last frame says that it has ended."""
    clock, screen = Clock(10), terminal()

    def close(_: float) -> None:
        writer.close()

    watch(LiveFeed(LiveRun(writer.path, "RUN"), clock), screen, 1.0, close, idle)
    assert capsys.readouterr().out.startswith("■ ended RUN")


@pytest.mark.parametrize(("typed", "meant"), sorted(KEYS.items()))
def test_what_keys_mean(typed: bytes, meant: str) -> None:
    """As terminals send them."""
    read, write = os.pipe()
    os.write(write, typed)
    assert read_key(read, 5.0) == meant
    os.close(read)
    os.close(write)


def test_other_keys_and_no_keys_are_nothing() -> None:
    """They are passed over; the wait goes on to its end, and a terminal that is gone is the end."""
    read, write = os.pipe()
    os.write(write, b"x")
    assert read_key(read, 0.01) is None
    os.close(write)
    assert read_key(read, 5.0) == "quit"
    os.close(read)


def test_keys_are_read_unechoed_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever mode it was in before."""
    import termios  # noqa: PLC0415 - only here

    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(theirs), "r"))
    with live_screen._keys() as read:
        during = termios.tcgetattr(theirs)
        os.write(ours, b"\x1b[D")
        assert read(5.0) == "back"
    sys.stdin.close()
    assert before[3] & termios.ECHO
    assert not during[3] & termios.ECHO
    assert termios.tcgetattr(theirs)[3] == before[3]
    os.close(ours)
    os.close(theirs)


def test_a_view_that_costs_much_looks_less_often(replay: Replay) -> None:
    """A frame that took 2 CPU seconds is followed by 6 of rest: training needs the cores."""
    used = iter(range(0, 100, 2))
    waits: list[float] = []

    def wait(seconds: float) -> str | None:
        waits.append(seconds)
        return "quit" if len(waits) == 2 else None

    watch(ReplayFeed(replay, 5.0, 1.0, Clock()), terminal(), 1.0, wait, lambda: float(next(used)))
    assert waits == [6.0, 6.0]


# The verb


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["live", *words]) == status
    return capsys.readouterr().out


def test_once_prints_a_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns and 24 lines where there is no terminal; other sizes on request."""
    monkeypatch.setenv("COLUMNS", "80")
    text = said(capsys, SAMPLE, "--once", "--from", "203.9")
    assert text.splitlines()[0] == "▶ replay sample:h200x2-grpo  step 5  204 s of 546 s"
    assert "waited for: rank 1 by rank 0 (reward of step 5, in reward): 0.65 s" in text
    assert len(text.splitlines()) <= 24
    small = said(capsys, SAMPLE, "--once", "--from", "203.9", "--width", "50", "--height", "9").splitlines()
    assert (len(small), max(map(len, small)) <= 50) == (9, True)


def test_without_a_terminal_one_screen_is_printed_and_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe is not drawn on."""
    assert main(["live", SAMPLE]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("▶ replay")
    assert "stdout is no terminal" in err


def test_json_is_an_object_a_line(replay: Replay) -> None:
    """One at each look until the end of the recording."""
    clock, out = Clock(), io.StringIO()

    def sleep(seconds: float) -> None:
        clock.at += seconds

    stream(ReplayFeed(replay, 0.0, 4.0, clock), out, 1.0, sleep=sleep, spent=idle)
    assert [json.loads(line)["t_s"] for line in out.getvalue().splitlines()] == [0.0, 4.0, 8.0, 12.0]


def test_json_once_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: what the screen shows."""
    (line,) = said(capsys, SAMPLE, "--once", "--json", "--from", "203.9").splitlines()
    found = json.loads(line)
    assert (found["waits"][0]["late"], found["ranks"][1]["phase"]) == ([1], "reward")


def test_a_folder_that_is_no_recording_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What, where, what to do."""
    assert main(["live", str(tmp_path / "nothing")]) == 1
    assert "no such folder" in capsys.readouterr().err
    with pytest.raises(RecordingError):
        open_feed(str(tmp_path))


@pytest.mark.parametrize(
    "words", [["--speed", "0"], ["--speed", "nan"], ["--interval", "0"], ["--from", "inf"], ["--width", "0"]]
)
def test_numbers_that_make_no_sense_are_refused(words: list[str]) -> None:
    """Usage, before anything is read."""
    assert main(["live", SAMPLE, *words]) == 2


# A real run

LOOP = """
import os, time
from dipstick_probe import span

with span("step", step=0):
    with span("generate"):
        pass
with span("step", step=1):
    with span("generate"):
        pass
    with span("reward"):
        end = time.monotonic() + 60
        while not os.path.exists(os.environ["GO"]) and time.monotonic() < end:
            time.sleep(0.02)
"""


def test_a_real_run_is_watched_while_it_records(tmp_path: Path) -> None:
    """``dipstick run`` records a loop that stays in its rewards until the view has seen it there; then the view ends, too."""
    (tmp_path / "loop.py").write_text(LOOP)
    run, go = tmp_path / "RUN", tmp_path / "go"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "GO": str(go)}
    recording = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dipstick",
            "run",
            "-q",
            "-o",
            str(run),
            "--",
            sys.executable,
            str(tmp_path / "loop.py"),
        ],
        env=environment,
    )
    seen: list[dict[str, Any]] = []
    gone = threading.Event()
    try:
        feed = _live_feed(run, recording)
        stream(feed, _Seen(seen, go), 0.2, sleep=lambda s: _patiently(gone, s, seen))
        assert recording.wait(60) == 0
    finally:
        recording.kill()
        recording.wait()
    inside = next(found for found in seen if is_in_its_rewards(found))
    assert (inside["mode"], inside["ranks"][0]["inside"], inside["ranks"][0]["step"]) == (
        "recording",
        "reward",
        1,
    )
    assert inside["last_step"]["number"] == 0
    assert [process["rank"] for process in inside["processes"]][:1] == [0]
    assert (seen[-1]["mode"], seen[-1]["last_step"]["number"]) == ("ended", 1)


def is_in_its_rewards(found: dict[str, Any]) -> bool:
    """The only rank is, and telemetry has come."""
    return [rank["phase"] for rank in found["ranks"]] == ["reward"] and bool(found["processes"])


def _live_feed(run: Path, recording: subprocess.Popen[bytes]) -> LiveFeed:
    """The feed, as soon as the folder is there."""
    for _ in range(600):
        if (run / "manifest.json").exists():
            return LiveFeed(LiveRun(run, "RUN"))
        assert recording.poll() is None
        threading.Event().wait(0.1)
    raise AssertionError("no recording was made")


def _patiently(gone: threading.Event, seconds: float, seen: list[dict[str, Any]]) -> None:
    gone.wait(seconds)
    assert len(seen) < 600, seen[-1]


class _Seen(io.StringIO):
    """Keeps what is streamed, and lets the loop go on once it was seen in its rewards with telemetry."""

    def __init__(self, seen: list[dict[str, Any]], go: Path) -> None:
        super().__init__()
        self.seen = seen
        self.go = go

    def write(self, text: str) -> int:
        found = json.loads(text)
        self.seen.append(found)
        if is_in_its_rewards(found):
            self.go.touch()
        return len(text)
