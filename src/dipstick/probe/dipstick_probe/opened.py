"""What a process is inside of, said before it ends: ``dipstick live`` shows it, and a kill -9 leaves it behind.

A span is written when it closes. One that takes longer than a moment is announced by an ``open`` line as well, once,
by the writer's thread: the hot path pays for a dictionary entry, and short spans cost no line.
"""

from __future__ import annotations

from time import monotonic_ns

from . import encode, spans
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Fields = dict[str, Any]

LONG_NS = 250_000_000
MOST = 64
"""Open spans that are told of at one look."""

watched: list[Callable[[], Iterable[Fields]]] = []
"""Others that know what is open: the steps, and timers that make their spans when they end."""

_told: set[tuple[str, int]] = set()


def gather(*, final: bool) -> None:
    """On the writer's thread, before each flush: announce what has been open for a moment and was not announced yet."""
    global _told
    if final or not STATE.on:
        return
    before = monotonic_ns() - LONG_NS
    told = set()
    for fields in _open(before):
        key = fields["n"], fields["a"]
        if key not in told and key not in _told:
            STATE.put_quietly((encode.line, "open", fields))
        told.add(key)
    _told = told


def _open(before: int) -> Iterator[Fields]:
    """What was opened before that time and is still open, outer ones first."""
    count = 0
    for read in watched:
        for fields in read():
            if fields["a"] <= before and count < MOST:
                count += 1
                yield fields
    for innermost in list(spans.OPEN.values()):
        for span in reversed(list(_chain(innermost))):
            if span.a <= before and count < MOST:
                count += 1
                yield _fields(span)


def _chain(span: spans.Span | None) -> Iterator[spans.Span]:
    """A span and those around it, as far as they are open."""
    for _ in range(MOST):
        if span is None:
            return
        if span.is_open:
            yield span
        span = span.parent


def _fields(span: spans.Span) -> Fields:
    parent = span.parent
    return {
        "n": span.name, "a": span.a, "tid": span.tid, "step": span.step, "p": None if parent is None else parent.name,
        "ph": span.phase, "f": span.file, "l": span.line,
    }  # fmt: skip


def forget() -> None:
    """In a fork's child: what is open is the parent's."""
    _told.clear()
    spans.OPEN.clear()
