"""Frameworks that time themselves with labels (verl, SkyRL, NeMo-RL, slime): their labels become spans.

The labels of one framework are one table: label -> phase. A timer around a whole update (forward, backward and
optimizer in one) counts as ``backward``; the label is kept as the span's name.
"""

from __future__ import annotations

import functools
import sys
import time

from . import encode, opened, spans, steps, trouble
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from types import FrameType
    from typing import Any

MOST_RUNNING = 1024


class Timers:
    """Labels under way.

    Args:
        phases: Phase by label; None is a container. Unknown labels take the phase of the span around them.
        step_label: The label of a whole step.
        events: Event by label.
        skip: Ends of file names that are the framework's own timer.
    """

    def __init__(
        self, phases: Mapping[str, str | None], *, step_label: str, skip: tuple[str, ...],
        events: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._phases = phases
        self._events = events or {}
        self._step_label = step_label
        self._skip = skip
        self._running: dict[Hashable, tuple[str, int, str | None, int | None]] = {}
        self._step = 0
        opened.watched.append(self._under_way)

    def _under_way(self) -> list[dict[str, Any]]:
        """Labels that have not stopped, for ``opened``."""
        return [
            {"n": name, "a": a, "step": STATE.step, "ph": self._phases.get(name), "f": file, "l": line}
            for name, a, file, line in list(self._running.values())
        ]

    def start(self, key: Hashable, label: str, frame: FrameType | None) -> None:
        """A label starts."""
        file, line = spans.caller(frame, self._skip)
        if label == self._step_label:
            steps.begin(self._step, file, line)
        elif len(self._running) < MOST_RUNNING:
            self._running[key] = (label, time.monotonic_ns(), file, line)

    def stop(self, key: Hashable, label: str) -> None:
        """A label stops; one that nobody started is ignored."""
        if label == self._step_label:
            self._step += 1
            steps.end()
            return
        found = self._running.pop(key, None)
        if found is None:
            return
        name, a, file, line = found
        b = time.monotonic_ns()
        emit(name, self._phases.get(name), a, b, file, line)
        event = self._events.get(name)
        if event is not None:
            spans.event(event, a, b, None)

    def forget(self) -> None:
        """In a fork's child."""
        self._running.clear()


def labelled(timers: Timers, *, starts: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A maker for ``Timer.start(self, label, ...)`` and its end.

    The original goes first: it raises for a label that runs already, or that does not.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def edge(self: Any, label: str, *args: Any, **kwargs: Any) -> Any:
            result = original(self, label, *args, **kwargs)
            try:
                if STATE.on and starts:
                    timers.start((id(self), label), label, sys._getframe(1))
                elif STATE.on:
                    timers.stop((id(self), label), label)
            except Exception as error:  # fail open
                trouble.note("timers", error)
            return result

        return edge

    return make


def emit(
    name: str,
    phase: str | None,
    a: int,
    b: int,
    file: str | None,
    line: int | None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Hand over a span whose start was noted elsewhere."""
    current = spans.CURRENT.get()
    parent = None if current is None else current.name
    tid = spans.thread_id()
    STATE.put((encode.span, name, a, b, tid, STATE.step, parent, phase, file, line, extra))
