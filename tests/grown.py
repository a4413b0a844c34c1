"""A recording that a test lets grow, and a server that shows it: nothing happens but when the test says so."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dipstick.cli.live_feed import LiveFeed
from dipstick.cli.live_web import running
from dipstick.cli.web_board import Board
from dipstick.cli.web_server import Server
from dipstick.cli.web_updates import Updates
from dipstick.recording.live import LiveRun
from dipstick.recording.writer import RecordingWriter
from records import HOST, UNIX_NS, cycle, moved, ns, process, utilization

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "a-token-of-the-tests"  # noqa: S105 - no secret
STEP_S = 10.0


class Grown:
    """A run of two ranks on two GPUs that is recorded step by step; each step lasts 10 s.

    Attributes:
        path: The folder.
        steps: How many steps it holds.
    """

    def __init__(self, path: Path, steps: int = 0) -> None:
        self.path = path
        self.steps = 0
        self._writer = RecordingWriter.create(path, origin="measured", host=HOST, created_unix_ns=UNIX_NS)
        self._writer.append("processes", [process(900 + r, rank=r, gpu=r) for r in (0, 1)])
        self._writer.flush()
        for _ in range(steps):
            self.step()

    def __call__(self) -> int:
        """Unix time: just after the last step, and a live view's delay."""
        return UNIX_NS + ns(STEP_S * self.steps + 2.0)

    def step(self, **more: Any) -> None:
        """One more step on both ranks; ``more`` goes into its spans."""
        start = STEP_S * self.steps
        for rank in (0, 1):
            spans = cycle(rank, self.steps, start, (4, 3, 2, 1))
            self._writer.append("spans", moved(row | more for row in spans))
            percent = [95.0] * 20 + [5.0] * 15 + [95.0] * 10 + [90.0] * 5
            self._writer.append("gpu", moved(utilization(percent, gpu=rank, start=start, power_w=300.0)))
        self._writer.flush()
        self.steps += 1

    def event(self, name: str, at: float) -> None:
        """A named event of rank 0."""
        row = {"host": HOST, "rank": 0, "pid": 900, "name": name, "t0_ns": ns(at), "t1_ns": None, "step": 0}
        self._writer.append("events", moved([row]))
        self._writer.flush()

    def close(self) -> None:
        """The run has ended."""
        self._writer.close()


@dataclass
class Site:
    """A server, its board, and what makes its pages when a test says ``look``."""

    board: Board
    updates: Updates
    server: Server

    def look(self) -> int:
        """Analyse what there is; the version that is shown then."""
        self.updates.look()
        return self.board.shown.version


@contextmanager
def serving(grown: Grown) -> Iterator[Site]:
    """The site of a recording that goes on; both end with it."""
    board = Board()
    updates = Updates(str(grown.path), LiveFeed(LiveRun(grown.path, "RUN"), grown), board, 0.1)
    try:
        with running(Server(board, 0, TOKEN)) as server:
            yield Site(board, updates, server)
    finally:
        grown.close()
