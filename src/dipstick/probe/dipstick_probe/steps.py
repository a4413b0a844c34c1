"""The optimizer step a process is in: one ``step`` span for each, numbered by ``global_step`` at its start."""

from __future__ import annotations

import time

from . import opened, spans
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_open: list[tuple[int, int, str | None, int | None]] = []
at_end: list[Callable[[], None]] = []
"""Called by the training thread when a step ends: what must not be done on the hot path or on our thread."""


def begin(number: int, file: str | None = None, line: int | None = None) -> None:
    """A step starts; the same number again goes on with it, another one ends the step before."""
    if _open and _open[0][0] == number:
        return
    end()
    STATE.step = number
    STATE.train_alone()
    _open.append((number, time.monotonic_ns(), file, line))


def end() -> None:
    """The step is over. What follows (logging, saving) still counts for it, until the next begins."""
    if not _open:
        return
    number, a, file, line = _open.pop()
    step = spans.Span("step", None, file, line)
    step.open()
    step.a, step.step = a, number
    step.close()
    for action in at_end:
        action()


def _running() -> list[dict[str, Any]]:
    """The step under way, for ``opened``."""
    return [
        {"n": "step", "a": a, "step": number, "f": file, "l": line} for number, a, file, line in list(_open)
    ]


opened.watched.append(_running)


def forget() -> None:
    """In a fork's child: the step is the parent's."""
    _open.clear()
