"""Makes the pages of a live server: one analysis at a time however many look, none while nobody does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from dipstick.analysis.live import frame
from dipstick.errors import RecordingError
from dipstick.recording.live import last_written_ns
from dipstick.recording.parts import UNREADABLE
from dipstick.recording.reader import open_recording, resolve
from dipstick.show import html, words
from dipstick.show.page_range import Detail
from dipstick.verdicts.report import explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.analysis.live_frame import Frame
    from dipstick.cli.live_feed import Feed
    from dipstick.cli.web_board import Board, Now

    Spent = Callable[[], float]

REST: Final = 3
"""After each look it rests for so many times the CPU seconds that the look took: never over a quarter of a core."""
_MOST_RANKS: Final = 4


class Updates:
    """Looks at a recording again and again, and puts what it finds on a board.

    Args:
        run: A folder or ``sample:NAME``.
        feed: Says how the run stands.
        board: Where pages go.
        interval: Seconds between two looks, at least.
        spent: CPU seconds of this process so far.
    """

    def __init__(
        self, run: str, feed: Feed, board: Board, interval: float, spent: Spent = time.process_time
    ) -> None:
        self._run = run
        self._folder = resolve(run)
        self._feed = feed
        self._board = board
        self._interval = interval
        self._spent = spent
        self._analysed_ns = -1
        self._page(b"", "waiting", "reading the recording")

    def run(self) -> None:
        """Until the run has ended or the board is stopped. What is no fault of the recording is raised, after a stop."""
        try:
            while self._board.wait_for_viewer():
                began = self._spent()
                if self.look() or not self._board.rest(max(self._interval, REST * (self._spent() - began))):
                    return
        except BaseException:
            self._board.stop()
            raise

    def look(self) -> bool:
        """Say how the run stands; analyse it if anything was written since. Whether it has ended."""
        window = self._feed.window()
        ended = self._feed.has_ended or self._feed.stays  # what stays is a replay: the recording is complete
        now: Now = "ended" if ended else "recording"
        said = "the run has ended: this is all of it" if ended else standing(frame(window))
        written = last_written_ns(self._folder)
        if written == self._analysed_ns and not ended:
            self._board.say(now, said)
            return False
        self._analyse(now, said)
        self._analysed_ns = written
        return ended

    def _analyse(self, now: Now, said: str) -> None:
        try:
            recording = open_recording(self._run)
            report = explain(recording)
            detail = Detail(report, recording)
            live = html.Live(self._board.shown.version + 1, said, detail)
            page = html.render(report, recording, live)
            recording.forget()
        except (RecordingError, *UNREADABLE) as error:
            what = error.what if isinstance(error, RecordingError) else type(error).__name__
            return self._board.say(now, f"{said}; nothing to explain yet: {words.clean(what)}")
        return self._page(page.encode("utf-8", "replace"), now, said, detail)

    def _page(self, page: bytes, now: Now, said: str, detail: Detail | None = None) -> None:
        version = self._board.shown.version + 1
        if not page:
            name = words.clean(self._run, 80)
            page = html.waiting(name, html.Live(version, said)).encode("utf-8", "replace")
        self._board.show(page, now, said, version, detail)


def standing(now: Frame) -> str:
    """Step, time, and what each of the first ranks is in: ``recording, 83 s, step 4; rank 0 reward, rank 1 reward``."""
    step = "" if now.step is None else f", step {now.step}"
    ranks = [f"rank {r.rank} {r.phase or 'between phases'}" for r in now.ranks[:_MOST_RANKS]]
    inside = f"; {', '.join(ranks)}" if ranks else ""
    more = f" and {len(now.ranks) - _MOST_RANKS} more" if len(now.ranks) > _MOST_RANKS else ""
    return f"recording, {words.span(now.t_s)}{step}{words.clean(inside)}{more}"
