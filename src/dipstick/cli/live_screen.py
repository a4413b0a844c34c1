"""Frames to a terminal, to a pipe, or as JSON; keys back."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dipstick.analysis.live import frame
from dipstick.cli.live_feed import SEEK_S
from dipstick.cli.output import answer
from dipstick.show.json import plain
from dipstick.show.live import document, render
from dipstick.show.look import Look, detect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dipstick.cli.live_feed import Feed

    Wait = Callable[[float], str | None]
    Spent = Callable[[], float]

KEYS: Final = {b"q": "quit", b"Q": "quit", b"\x03": "quit", b" ": "pause", b"\x1b[D": "back", b"\x1b[C": "forth",
               b"\x1bOD": "back", b"\x1bOC": "forth"}  # fmt: skip
"""Arrow keys come as CSI or, in application mode, SS3 sequences."""
HINT: Final = "q quit  space {pause}  left/right 10 s"
LINES: Final = 24
REST: Final = 3
"""Between two frames the view rests for so many times the CPU seconds that one took: never over a quarter of a core."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where frames go.

    Attributes:
        console: Asked for its size before each frame, so that a resized terminal is filled.
        look: Colours and characters.
        width, height: Asked for by the user; None takes the terminal's.
        is_terminal: Whether it can be drawn on again and again.
    """

    console: Console
    look: Look
    width: int | None
    height: int | None
    is_terminal: bool

    @classmethod
    def of(cls, stream: TextIO, *, color: bool, width: int | None, height: int | None) -> Screen:
        """The screen of a stream."""
        look = detect(stream, color=color, width=width)
        console = Console(
            file=stream, color_system=look.color, no_color=look.color is None, highlight=False, emoji=False
        )
        drawable = console.is_terminal and not console.is_dumb_terminal and stream.isatty()
        return cls(console, look, width, height, drawable)

    def text(self, feed: Feed, hint: str = "") -> str:
        """The frame of now as text that fits."""
        size = self.console.size
        look = replace(self.look, width=self.width or max(size.width, 1))
        height = self.height or (size.height if self.is_terminal else LINES)
        return render(frame(feed.window()), look, height, hint)


def print_once(feed: Feed, screen: Screen) -> None:
    """One frame to stdout."""
    answer(screen.text(feed))


def stream(
    feed: Feed,
    out: TextIO,
    interval: float,
    *,
    once: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    spent: Spent = time.process_time,
) -> None:
    """One JSON object a line and look, until the run has ended."""
    with suppress(KeyboardInterrupt):
        while True:
            began = spent()
            out.write(json.dumps(plain(document(frame(feed.window()))), allow_nan=False) + "\n")
            out.flush()
            if once or feed.has_ended:
                return
            sleep(max(interval, REST * (spent() - began)))


def watch(
    feed: Feed, screen: Screen, interval: float, wait: Wait | None = None, spent: Spent = time.process_time
) -> None:
    """Draw until ``q``, Ctrl-C, or the end of a run that was being recorded; the last frame stays on the terminal.

    Args:
        feed: What to show.
        screen: Where.
        interval: Seconds between two frames, at least.
        wait: Waits for a key for so many seconds; None reads the terminal's.
        spent: CPU seconds of this process so far.
    """
    text = ""
    with (
        suppress(KeyboardInterrupt),
        _keys() if wait is None else _given(wait) as read,
        _drawing(screen) as live,
    ):
        while True:
            began = spent()
            text = screen.text(feed, HINT.format(pause="go on" if feed.held else "pause"))
            live.update(Text.from_ansi(text, no_wrap=True, overflow="crop"), refresh=True)
            if feed.has_ended and not feed.stays:
                break
            if not _obey(read(max(interval, REST * (spent() - began))), feed):
                break
    answer(text)


def _obey(key: str | None, feed: Feed) -> bool:
    """Whether to go on."""
    if key == "pause":
        feed.toggle()
    elif key in {"back", "forth"}:
        feed.seek(-SEEK_S if key == "back" else SEEK_S)
    return key != "quit"


@contextmanager
def _drawing(screen: Screen) -> Iterator[Live]:
    """The terminal's other screen, given back at the end whatever happens."""
    with Live(
        console=screen.console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield live


@contextmanager
def _given(wait: Wait) -> Iterator[Wait]:
    yield wait


@contextmanager
def _keys() -> Iterator[Wait]:
    """Keys from stdin, unechoed; without a terminal there are none, and the wait is a sleep."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import termios  # noqa: PLC0415 - only where there is a terminal
    import tty  # noqa: PLC0415 - as above

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: read_key(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_key(descriptor: int, seconds: float) -> str | None:
    """The next key that means something, None after ``seconds``; other keys are ignored."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return None
        typed = os.read(descriptor, 64)
        if not typed:
            return "quit"  # the terminal is gone
        found = next((KEYS[k] for k in sorted(KEYS, key=len, reverse=True) if typed.startswith(k)), None)
        if found is not None:
            return found
    return None
