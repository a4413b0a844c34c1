"""Answers a live page that is zoomed in: four whole numbers in, packed tracks out. Nothing in a request names a file or a track."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

from dipstick.errors import RecordingError
from dipstick.recording.parts import UNREADABLE
from dipstick.show.page_range import LEAST_POINTS, MOST_POINTS

if TYPE_CHECKING:
    from dipstick.cli.web_board import Shown

_WHOLE: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_PATIENCE_S: Final = 30.0


class Asked(NamedTuple):
    """A stretch of time.

    Attributes:
        version: Of the page that asks: its times and sites are that page's.
        start: Milliseconds since the recording's start.
        end: The same.
        points: Of each track at most.
    """

    version: int
    start: int
    end: int
    points: int


NAMES: Final = ("version", "from", "to", "points")


def asked(query: str) -> Asked | None:
    """What the query asks for; None unless it is each of ``NAMES`` once, in whole numbers that make sense."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(NAMES))
    except ValueError:
        return None
    given = dict(pairs)
    if len(pairs) != len(NAMES) or set(given) != set(NAMES) or not all(map(_WHOLE.fullmatch, given.values())):
        return None
    found = Asked(*(int(given[name]) for name in NAMES))
    return found if found.start < found.end and LEAST_POINTS <= found.points <= MOST_POINTS else None


class Ranges:
    """Reads for one viewer after the other, so that many cost no more than one.

    Args:
        patience_s: Whoever has waited so long for the others is sent away.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._turn = threading.Lock()

    def answer(self, query: str, shown: Shown) -> tuple[int, str]:
        """Status and text."""
        wanted = asked(query)
        if wanted is None:
            numbers = f"whole numbers, from before to, points {LEAST_POINTS} to {MOST_POINTS}"
            return 400, f"Ask for version, from and to (ms) and points: {numbers}.\n"
        detail = shown.detail
        if detail is None or wanted.version != shown.version:
            return 409, "That is not the page that is shown now.\n"
        if wanted.end - wanted.start > 1000 * detail.longest_s:
            return 400, f"At most {detail.longest_s:z.0f} s at a time.\n"
        if not self._turn.acquire(timeout=self._patience_s):
            return 503, "Others are being answered.\n"
        try:
            return 200, detail.text(wanted.start / 1000, wanted.end / 1000, wanted.points)
        except (RecordingError, *UNREADABLE):
            return 503, "The recording cannot be read any more.\n"
        finally:
            self._turn.release()
