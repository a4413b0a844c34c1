"""What a live page's server shows now: one page for all viewers, who are told that there is a newer one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Generator

    from dipstick.show.page_range import Detail

    Now = Literal["waiting", "recording", "ended"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What viewers get.

    Attributes:
        version: Counts the pages.
        now: How the recording stands.
        said: The same in words.
        page: The whole page.
        detail: What it was made of, for who zooms in; None: there is nothing yet.
    """

    version: int
    now: Now
    said: str
    page: bytes = b""
    detail: Detail | None = None


class Board:
    """Holds the latest page; older ones are dropped, whoever has not fetched them.

    Args:
        first: Versions count up from here.
    """

    def __init__(self, first: int = 0) -> None:
        self._changed = threading.Condition()
        self._shown = Shown(first, "waiting", "")
        self._news = 0
        self._viewers = 0
        self._is_stopped = False

    @property
    def shown(self) -> Shown:
        """The latest."""
        return self._shown

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more will come."""
        return self._is_stopped

    def show(self, page: bytes, now: Now, said: str, version: int, detail: Detail | None = None) -> None:
        """Put up a newer page, and tell everybody."""
        self._put(Shown(version, now, said, page, detail))

    def say(self, now: Now, said: str) -> None:
        """Tell everybody how the recording stands; the page stays."""
        if (now, said) != (self._shown.now, self._shown.said):
            self._put(replace(self._shown, now=now, said=said))

    def _put(self, shown: Shown) -> None:
        with self._changed:
            self._shown = shown
            self._news += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let everybody go who waits."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def follow(self, beat_s: float) -> Generator[Shown | None, None, None]:
        """The latest now and whenever it changes, None after ``beat_s`` without news; ends when the board is stopped.

        Whoever is slow skips what came meanwhile: nothing is queued.
        """
        seen = -1
        self._count(1)
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(partial(self._is_news, seen), beat_s)
                    before, seen = seen, self._news
                    shown, is_stopped = self._shown, self._is_stopped
                if before != seen or not is_stopped:
                    yield shown if before != seen else None
                if is_stopped:
                    return
        finally:
            self._count(-1)

    def _is_news(self, seen: int) -> bool:
        return self._is_stopped or self._news != seen

    def _count(self, by: int) -> None:
        with self._changed:
            self._viewers += by
            self._changed.notify_all()

    def wait_for_viewer(self, most_s: float | None = None) -> bool:
        """Wait until somebody looks or the board is stopped; whether somebody does."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._viewers > 0, most_s)
            return self._viewers > 0 and not self._is_stopped

    def rest(self, seconds: float) -> bool:
        """Wait so long, or until the board is stopped; whether it goes on."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._is_stopped, seconds)
