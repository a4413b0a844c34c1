"""`dipstick live --web`: a server, the thread that makes its pages, and Ctrl-C."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dipstick.cli.output import answer, answer_json
from dipstick.cli.web_board import Board
from dipstick.cli.web_server import Server
from dipstick.cli.web_updates import Updates

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from dipstick.cli.live_feed import Feed
    from dipstick.cli.output import Talk


def serve(feed: Feed, args: Namespace, talk: Talk) -> None:
    """Until Ctrl-C. The address is the answer.

    Raises:
        DipstickError: The port is taken.
    """
    board = Board(first=int(time.time()))  # a page that outlives its server takes a later one's for newer
    updates = Updates(args.run, feed, board, args.interval)
    with running(Server(board, args.port, None if args.no_token else secrets.token_urlsafe(32))) as server:
        _tell(server, args, talk)
        failed = until_stopped(updates, board)
    if failed is not None:
        raise failed


def _tell(server: Server, args: Namespace, talk: Talk) -> None:
    if args.json:
        answer_json({"url": server.url})
    else:
        answer(server.url)
    sys.stdout.flush()
    talk.say("open it in a browser on this machine; Ctrl-C stops (the run goes on)")


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server that answers, and is stopped at the end."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="dipstick-web", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def until_stopped(updates: Updates, board: Board) -> BaseException | None:
    """Make pages until Ctrl-C or a fault of ours, which is returned."""
    found: list[BaseException] = []

    def work() -> None:
        try:
            updates.run()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that reports
            found.append(error)

    threading.Thread(target=work, name="dipstick-analysis", daemon=True).start()
    with suppress(KeyboardInterrupt):
        while board.rest(3600.0):
            pass
    return found[0] if found else None
