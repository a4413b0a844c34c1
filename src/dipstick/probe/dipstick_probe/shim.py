"""What travels to a worker in place of the submitted function: calls it, and times the call where it happens.

A :class:`Job` pickles as a reference to :func:`arrive` plus the function and five small fields. A worker that
inherits ``PYTHONPATH`` finds it; for any other the parent does not use it (``hooks/pools.py``).
"""

from __future__ import annotations

import os
import time
from _thread import get_ident

from . import encode, tally, trouble
from .kinds import Kinds, kinds_of
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .spans import Span

WORKERS = "workers"


class Job:
    """A submitted function on its way to a worker, and there.

    Attributes:
        function: What was submitted.
        id: Unique in the recording; of a map, the prefix of its items' ids.
        is_each: One ``Job`` serves every item of a map.
        step: ``global_step`` when it was submitted.
        submitted: Monotonic ns (one clock for all processes of a Linux host).
        source: Who hands over: ``reward``, or the span that submitted it.
        span, site: Parent only: the reward span to book bytes on, and the call's file and line.
    """

    __slots__ = ("function", "id", "is_each", "site", "source", "span", "step", "submitted")

    def __init__(
        self,
        function: Callable[..., Any],
        job_id: str,
        *,
        is_each: bool,
        step: int | None,
        submitted: int,
        source: str,
    ) -> None:
        self.function = function
        self.id = job_id
        self.is_each = is_each
        self.step = step
        self.submitted = submitted
        self.source = source
        self.span: Span | None = None
        self.site: tuple[str | None, int | None] = (None, None)

    def __reduce__(self) -> tuple[Callable[..., Job], tuple[Any, ...]]:
        return arrive, (self.function, self.id, self.is_each, self.step, self.submitted, self.source)

    def __getattr__(self, name: str) -> Any:
        """Whatever a pool asks of the function (``__name__``, a batch's size)."""
        if name in Job.__slots__:  # half-made, while it is being copied
            raise AttributeError(name)
        return getattr(self.function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function; result and exception are its own."""
        run = _begin(self, args)
        if run is None:
            return self.function(*args, **kwargs)
        try:
            result = self.function(*args, **kwargs)
        except BaseException as error:
            _end(run, type(error))
            raise
        _end(run, None, result)
        return result


def arrive(
    function: Callable[..., Any],
    job_id: str,
    is_each: bool,  # noqa: FBT001 - positional: these are the bytes that travel
    step: int | None,
    submitted: int,
    source: str,
) -> Job:
    """Unpickle a job."""
    return Job(function, job_id, is_each=is_each, step=step, submitted=submitted, source=source)


class Parcel:
    """What one message to a worker held: bytes an item, and the kinds of its arguments."""

    __slots__ = ("kinds", "size")

    def __init__(self, size: int | None, kinds: Kinds | None) -> None:
        self.size = size
        self.kinds = kinds


class _Run:
    """One job under way in this process."""

    __slots__ = ("a", "job", "parcel")

    def __init__(self, job: Job, parcel: Parcel) -> None:
        self.job = job
        self.parcel = parcel
        self.a = 0


class _Ended:
    """A job whose result has not been weighed yet."""

    __slots__ = ("kinds", "row", "source", "step")

    def __init__(self, row: encode.Open, job: Job, kinds: Kinds) -> None:
        self.row = row
        self.source = job.source
        self.step = job.step
        self.kinds = kinds


# By thread: the message that was read last, and the jobs that ended since. Both are touched by their own thread only.
parcels: dict[int, Parcel] = {}
ended: dict[int, list[_Ended]] = {}
weighed: set[int] = set()
"""Threads whose results we see leave. Any other's (joblib has a queue of its own) are written when the job ends."""
_serial = 0


def _begin(job: Job, args: tuple[Any, ...]) -> _Run | None:
    """Open a job in the worker; None where nothing is recorded."""
    if not STATE.on:
        return None
    try:
        STATE.add_role("reward_worker" if job.source == "reward" else "worker")
        if "trainer" not in STATE.roles:
            STATE.step = job.step
        parcel = parcels.get(get_ident()) or Parcel(None, kinds_of(args))
        run = _Run(job, parcel)
    except Exception as error:  # fail open
        trouble.note("job.begin", error)
        return None
    run.a = time.monotonic_ns()
    return run


def _end(run: _Run, error: type | None, result: Any = None) -> None:
    """Close a job in the worker: its row waits in the ring for the weight of its result."""
    b = time.monotonic_ns()
    try:
        job, parcel = run.job, run.parcel
        fields = {
            "step": job.step, "submitted": job.submitted, "a": run.a, "b": b, "pid": os.getpid(), "rank": STATE.rank,
            "payload_b": parcel.size, "payload_types": parcel.kinds.text if parcel.kinds else None,
            "detail": _detail(job, error),
        }  # fmt: skip
        row = encode.Open(
            "job", {"job": f"{job.id}.{os.getpid()}.{_next()}" if job.is_each else job.id}, fields
        )
        mine = ended.setdefault(get_ident(), [])
        if len(mine) < 4096:  # noqa: PLR2004 - results that nobody weighs (an unknown transport) must not pile up
            mine.append(_Ended(row, job, kinds_of((result,))))
        STATE.put(row.row())
        if get_ident() not in weighed:
            STATE.sync()
    except Exception as ours:  # fail open
        trouble.note("job.end", ours)
    STATE.spent_since(b)


def _detail(job: Job, error: type | None) -> str | None:
    """What the job raised, and how many calls joblib put into it."""
    notes = [] if error is None else [f"raised {error.__name__}"]
    calls: list[Any] = [job.function, getattr(job.function, "func", None)]
    notes += [f"joblib batch of {each._size}" for each in calls if type(each).__name__ == "BatchedCalls"]
    return "; ".join(notes) or None


def _next() -> int:
    global _serial  # a counter
    _serial += 1
    return _serial


def weigh_result(size: int, transports: tuple[str, ...]) -> None:
    """A message leaves this worker: it holds the results of the jobs that ended in this thread since the last."""
    mine = ended.pop(get_ident(), None)
    if not mine:
        return
    weighed.add(get_ident())
    each = size // len(mine)
    for one in mine:
        one.row.add(STATE.put, result_b=each)
        tally.add((WORKERS, one.source, one.step, None, None), 1, each, one.kinds, transports)
    STATE.sync()  # a job whose result arrives is recorded: pools kill their workers without warning


def found_in(function: Any, args: Any, kwargs: Any = None) -> tuple[Job, int, tuple[Any, ...]] | None:
    """The job in a call that a pool sends: it, how many items the call holds, and (some of) their arguments.

    ``Job(x)``; ``partial(_process_chunk, Job)(chunk)`` (concurrent.futures' map); ``mapstar((Job, chunk))``
    (multiprocessing's maps); ``process_chunk(Job, chunk)`` (pebble's map).
    """
    if type(function) is Job:
        named = tuple(kwargs.values()) if type(kwargs) is dict else ()
        return function, 1, (*(args if type(args) in (tuple, list) else ()), *named)
    bound = getattr(function, "args", None) if type(function).__name__ == "partial" else None
    call = [args, bound, args[0] if type(args) is tuple and args else None]
    for part, chunk in zip((call[1], call[2], call[0]), (_at(args, 0), _at(call[2], 1), _at(args, 1))):
        if type(part) is tuple and part and type(part[0]) is Job:
            items = chunk if type(chunk) in (list, tuple) else ()
            return part[0], len(items) or 1, _arguments(items)
    return None


def _at(values: Any, index: int) -> Any:
    return values[index] if type(values) is tuple and len(values) > index else None


def _arguments(items: Any) -> tuple[Any, ...]:
    """The arguments of a chunk's first items: ``[(1,), (2,)]`` and ``[1, 2]`` both give ``(1, 2)``."""
    flat: list[Any] = []
    for item in items[:4]:
        flat.extend(item if type(item) is tuple else (item,))
    return tuple(flat)


_overhead: list[int] = []


def overhead() -> int:
    """Bytes that the shim itself adds to a message; they are not the user's."""
    if not _overhead:
        import pickle  # noqa: PLC0415 - who weighs a message has it; no start should pay for it

        job = Job(len, "host-12345-67890-123", is_each=False, step=100, submitted=1 << 50, source="reward")
        _overhead.append(len(pickle.dumps(job)) - len(pickle.dumps(len)))
    return _overhead[0]


def forget() -> None:
    """In a fork's child: the messages in flight are the parent's."""
    parcels.clear()
    ended.clear()
    weighed.clear()
