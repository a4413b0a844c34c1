"""What users call as ``dipstick.span``, ``instant`` and ``wrap``: their own phases and moments."""

from __future__ import annotations

import sys
from time import monotonic_ns

from .spans import CURRENT, Span, event
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

MOST_EXTRAS = 16


class UserSpan:
    """What :func:`span` returns: a context manager and a decorator, for sync and async code, reusable and nestable.

    ``with``, ``async with``, ``@span("parse")`` over a function or a coroutine function.
    """

    __slots__ = ("_extra", "_name", "_phase")

    def __init__(self, name: str, phase: str | None, extra: dict[str, Any] | None) -> None:
        self._name = name
        self._phase = phase
        self._extra = extra

    def __enter__(self) -> UserSpan:
        if STATE.on and not STATE.compiling():
            if self._extra and self._name == "step":
                self._number()
            code = sys._getframe(1)  # the only way to a caller that costs no stack walk
            made = Span(self._name, self._phase, code.f_code.co_filename, code.f_lineno, self._extra)
            made.owner = self
            made.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if STATE.on and not STATE.compiling():
            made = CURRENT.get()
            if made is None or made.owner is not self:  # left out of order, or from another context
                made = self._innermost()
            if made is not None:
                made.close()

    async def __aenter__(self) -> UserSpan:
        if STATE.on and not STATE.compiling():
            self._start(sys._getframe(1))  # as above
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _start(self, frame: FrameType) -> None:
        if self._extra and self._name == "step":
            self._number()
        made = Span(self._name, self._phase, frame.f_code.co_filename, frame.f_lineno, self._extra)
        made.owner = self
        made.open()

    def _number(self) -> None:
        """``span("step", step=3)``: a loop of the user's own numbers its steps, as a trainer does."""
        extra = dict(self._extra or {})
        number = extra.pop("step", None)
        if type(number) is int:
            STATE.step, self._extra = number, extra or None
            STATE.train_alone()

    def __call__(self, function: F) -> F:
        """Use it as a decorator."""
        return wrap(function, self._name, phase=self._phase)

    def add(self, **extra: float | str) -> None:
        """Attach numbers or short strings to the innermost open use of this span."""
        made = self._innermost()
        if made is not None:
            made.add(**_plain(extra))

    def _innermost(self) -> Span | None:
        """The span this object opened last in this thread or task."""
        found = CURRENT.get()
        while found is not None and found.owner is not self:
            found = found.parent
        return found


def span(name: str, *, phase: str | None = None, **extra: float | str) -> UserSpan:
    """Mark one of your own phases; nothing but a null check when nobody records.

    >>> with span("parse", phase="reward", molecules=64):
    ...     pass

    Args:
        name: What the report calls it. ``step`` with a ``step=`` number starts a step. A name of dipstick's vocabulary (``reward``, ``generate``, ``weight_sync``,
            ``checkpoint``, ...) is that phase; any other belongs to the span around it.
        phase: The phase, where the name is none.
        **extra: Numbers or short strings to keep with it.

    Returns:
        A context manager (``with`` and ``async with``) and decorator.
    """
    return UserSpan(str(name), phase, _plain(extra) if extra else None)


def instant(name: str, **detail: float | str) -> None:
    """Mark a moment: an event of this name in the recording.

    Args:
        name: What the report calls it.
        **detail: Numbers or short strings to keep with it.
    """
    if STATE.on and not STATE.compiling():
        event(str(name), monotonic_ns(), None, _plain(detail) if detail else None)


def wrap(function: F, name: str | None = None, *, phase: str | None = None) -> F:
    """The same function, measured: every call is a span.

    A coroutine function stays one, ``__name__`` and signature stay, results and exceptions pass through.
    A generator function is returned as it is: its caller runs between its steps, so it has no one interval.

    Args:
        function: A function, a method, a coroutine function or any callable.
        name: What the report calls it; the function's qualified name by default.
        phase: As for :func:`span`.
    """
    from .wrappers import timed_function  # noqa: PLC0415 - functools and inspect, only for those who wrap

    made: F = timed_function(function, name, phase)
    return made


def _plain(extra: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in list(extra.items())[:MOST_EXTRAS] if isinstance(value, (int, float, str))
    }
