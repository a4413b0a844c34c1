"""Functions that measure another function and are otherwise that function.

Every wrapper first asks whether it is being traced by ``torch.compile`` (then it is only the call it wraps), keeps
coroutine functions coroutine functions, keeps name and signature, and never touches arguments, results or exceptions.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time

from . import spans, trouble
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Note(Protocol):
        """Adds to a span what a call took or gave. May raise; nobody will know."""

        def __call__(  # noqa: D102 - a shape
            self, span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
        ) -> None: ...

    Maker = Callable[[Callable[..., Any]], Callable[..., Any]]


class Spec:
    """How a call is to be recorded.

    Attributes:
        name, phase: Of the span.
        event: Also an event of this name, with the span's times.
        before: Told the arguments just before the call.
        after: Told arguments and result after a call that returned.
        skip: Ends of file names that are no call site (a framework's own decorators).
        always: The notes are taken, too, where the span around the call has its name: they then go on that one.
    """

    __slots__ = ("after", "always", "before", "event", "name", "phase", "skip")

    def __init__(
        self, name: str, phase: str | None = None, *, event: str | None = None, before: Note | None = None,
        after: Note | None = None, skip: tuple[str, ...] = (), always: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.phase = phase
        self.event = event
        self.before = before
        self.after = after
        self.skip = skip
        self.always = always

    def open(self, level: int) -> spans.Span | None:
        """A span for the caller ``level`` frames up, None inside a span of the same name (``super()`` calls)."""
        current = spans.CURRENT.get()
        if current is not None and current.name.endswith(self.name) and short(current.name) == self.name:
            return None
        file, line = spans.caller(sys._getframe(level), self.skip)  # cheap; inspect.stack is not
        return spans.Span(self.name, self.phase, file, line).open()

    def close(self, span: spans.Span) -> None:
        """End it, and say the event."""
        b = time.monotonic_ns()
        span.close(b)
        if self.event is not None:
            spans.event(self.event, span.a, b, span.extra)


def timed(spec: Spec) -> Maker:
    """A maker of wrappers that record each call as ``spec`` says."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(original):
            return _async_wrapper(original, spec)
        return _sync_wrapper(original, spec)

    return make


def _sync_wrapper(original: Callable[..., Any], spec: Spec) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if STATE.compiling() or not STATE.on:
            return original(*args, **kwargs)
        span = spec.open(2)
        if span is None:
            return _inner_call(original, spec, args, kwargs)
        if spec.before is not None:
            note(spec.before, span, args, kwargs)
        try:
            result = original(*args, **kwargs)
            if spec.after is not None:
                note(spec.after, span, args, kwargs, result)
        finally:
            spec.close(span)
        return result

    return wrapper


def _async_wrapper(original: Callable[..., Any], spec: Spec) -> Callable[..., Any]:
    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        span = None if STATE.compiling() or not STATE.on else spec.open(2)
        if span is None:
            return await original(*args, **kwargs)
        note(spec.before, span, args, kwargs)
        try:
            result = await original(*args, **kwargs)
            note(spec.after, span, args, kwargs, result)
        finally:
            spec.close(span)
        return result

    return wrapper


def _inner_call(
    original: Callable[..., Any], spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call inside a span of its own name: no second span, but what it says goes on the first."""
    span = spans.CURRENT.get() if spec.always else None
    if span is None:
        return original(*args, **kwargs)
    note(spec.before, span, args, kwargs)
    result = original(*args, **kwargs)
    note(spec.after, span, args, kwargs, result)
    return result


def note(
    what: Note | None, span: spans.Span, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any = None
) -> None:
    """Call a note, on its own account: its time is booked, its errors are swallowed."""
    if what is None:
        return
    began = time.monotonic_ns()
    try:
        what(span, args, kwargs, result)
    except Exception as error:  # a note may never disturb the call it describes
        trouble.note(f"note on {span.name}", error)
    STATE.spent_since(began)


_shorts: dict[str, str] = {}


def short(name: str) -> str:
    """``GRPOTrainer.vLLM.generate`` -> ``vLLM.generate``; as ``dipstick.phases.short_name``."""
    found = _shorts.get(name)
    if found is None:
        head, dot, tail = name.partition(".")
        found = tail if dot and head.endswith("Trainer") else name
        if len(_shorts) < 4096:  # noqa: PLR2004 - names do not come in thousands
            _shorts[name] = found
    return found


def timed_function(function: Any, name: str | None, phase: str | None) -> Any:
    """``dipstick.wrap``."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return function
    label = str(name or getattr(function, "__qualname__", None) or type(function).__name__)
    return timed(Spec(label, phase))(function)


def definition(function: Any) -> tuple[str, int] | None:
    """File and line where a function is defined, through partials, methods, wrappers and callable objects."""
    for _ in range(8):
        inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
        inner = inner or getattr(function, "__func__", None)
        if inner is None:
            break
        function = inner
    call = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None) or getattr(call, "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)
