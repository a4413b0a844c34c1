"""Spans, events and numbers as hooks make them; ``marks`` puts users' own on top.

The parent of a span is the innermost open one of the same context: threads start with none, asyncio tasks with
that of the code that made them (a ``ContextVar`` does both).
"""

from __future__ import annotations

import time
from _contextvars import ContextVar  # the C type, without the package's start cost
from _thread import _local, get_native_id
from time import monotonic_ns

from . import encode
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

CURRENT: ContextVar[Span | None] = ContextVar("dipstick_span", default=None)
"""The innermost open span of this thread or task."""


class _Thread(_local):
    """This thread's native id: asked once (0.1-0.6 µs), and again in a fork's child."""

    tid = 0
    generation = -1


_THREAD = _Thread()

_SPAN = encode.span
HERE = __file__.rpartition("spans.py")[0]


OPEN: dict[int, Span] = {}
"""The innermost open span of each thread, for the writer's thread to tell what takes long (see ``opened``)."""


class Span:
    """One interval. Times are ``time.monotonic_ns``; nothing here raises into the code it measures.

    Attributes:
        name: As it stands in the recording.
        phase: A phase of dipstick's vocabulary, None where the name decides.
        file, line: Of the call that opened it.
        extra: Numbers and short strings; None until there are some.
        a: When it was opened; 0 before.
        parent: The span around it.
        step: ``global_step`` when it was opened.
        owner: The ``marks.UserSpan`` that opened it, None for hooks.
        tid: The thread that opened it.
    """

    __slots__ = (
        "_generation", "_token", "a", "extra", "file", "line", "name", "owner", "parent", "phase", "step",
        "tid",
    )  # fmt: skip

    def __init__(
        self, name: str, phase: str | None = None, file: str | None = None, line: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.phase = phase
        self.file = file
        self.line = line
        self.extra = extra
        self.owner: object = None
        self.a = 0

    def open(self) -> Span:
        """Start the clock and become the current span."""
        state = STATE
        self.parent = CURRENT.get()
        self.step = state.step
        self._generation = generation = state.generation
        self._token: Any = CURRENT.set(self)
        here = _THREAD
        self.tid = tid = here.tid if here.generation == generation else thread_id()
        OPEN[tid] = self
        self.a = monotonic_ns()
        return self

    def close(self, b: int = 0) -> None:
        """Stop the clock, hand over the row, and make the parent current again."""
        b = b or monotonic_ns()
        parent = self.parent
        try:
            CURRENT.reset(self._token)
        except (
            ValueError,
            TypeError,
            RuntimeError,
        ):  # closed in another context, or twice: generators and callbacks may
            CURRENT.set(parent)
        self._token = None
        tid = self.tid
        if parent is not None and parent.tid == tid:
            OPEN[tid] = parent
        else:
            OPEN.pop(tid, None)
        put = (
            STATE.put if self._generation == STATE.generation else _forget
        )  # a fork's child drops its parent's
        put((
            _SPAN, self.name, self.a, b, tid, self.step,
            parent.name if parent is not None else None, self.phase, self.file, self.line, self.extra,
        ))  # fmt: skip

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed."""
        return self.a != 0 and self._token is not None

    def add(self, **extra: Any) -> None:
        """Attach numbers; they are written with the span."""
        self.extra = {**(self.extra or {}), **extra}

    def __enter__(self) -> Span:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def event(
    name: str, a: int, b: int | None, detail: dict[str, Any] | str | None, *, quietly: bool = False
) -> None:
    """Hand over an event row; ``b`` None is an instant."""
    text = encode.dumps(detail) if isinstance(detail, dict) else detail
    fields = {"n": name, "a": a, "b": b, "step": STATE.step, "detail": text}
    (STATE.put_quietly if quietly else STATE.put)((encode.line, "event", fields))


def scalar(name: str, value: float, *, step: int | None = None, at_ns: int | None = None) -> None:
    """Hand over one number, by default of now and the current step."""
    fields = {
        "step": STATE.step if step is None else step,
        "n": name,
        "v": value,
        "t": at_ns or monotonic_ns(),
    }
    STATE.put((encode.line, "scalar", fields))


_internal: dict[tuple[str, ...], dict[str, bool]] = {(): {}}


def caller(frame: FrameType | None, skip: tuple[str, ...] = ()) -> tuple[str | None, int | None]:
    """File and line of the nearest frame outside the probe, contextlib and the files that end in ``skip``."""
    seen = _internal.get(skip)
    if seen is None:
        seen = _internal[skip] = {}
    for _ in range(8):
        if frame is None:
            return None, None
        file = frame.f_code.co_filename
        known = seen.get(file)
        if known is None:
            known = file.startswith(HERE) or file.endswith(("contextlib.py", *skip))
            if len(seen) < 4096:  # noqa: PLR2004 - files made in a loop (notebooks, exec) must not pile up
                seen[file] = known
        if not known:
            return file, frame.f_lineno
        frame = frame.f_back
    return None, None


def inside(phase: str) -> bool:
    """Whether an open span of this context, or one around it, has this phase."""
    found = CURRENT.get()
    while found is not None:
        if phase in (found.phase, found.name):
            return True
        found = found.parent
    return False


def thread_id() -> int:
    """The native id of this thread; the process's id in its main thread."""
    if _THREAD.generation != STATE.generation:
        _THREAD.generation = STATE.generation
        _THREAD.tid = get_native_id()
    return _THREAD.tid


def _forget(row: Any) -> None:
    """Where a span goes that is not this process's."""


def probe_cost(rounds: int = 5, spans: int = 40) -> int:
    """CPU nanoseconds of opening and closing one span in this process: the median of a few rounds."""
    costs = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(spans):
            made = Span("", None, "", 0)
            made.open()
            made._generation = -1  # measured, not recorded
            made.close()
        costs.append((time.thread_time_ns() - began) // spans)
    return sorted(costs)[rounds // 2]
