"""Reward workers: what is submitted to a process pool travels as a :class:`~..shim.Job`.

``concurrent.futures``, ``multiprocessing.pool``, pebble, joblib/loky. A worker that cannot find the shim (its
environment was emptied) gets the bare function, and the job's times are the parent's: submitted and done.

An executor of the user's own that queues calls and hands them to one of these from a thread of its own: the job is
submitted when, where and in the phase in which the user submitted it (:class:`_Promise`).
"""

from __future__ import annotations

import functools
import os
import sys
import time

from .. import encode, patch, spans, trouble
from ..kinds import kinds_of
from ..patch import Target
from ..shim import Job
from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..wrappers import Maker

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # as in sitecustomize
INTERNAL = (
    "concurrent/futures/process.py", "concurrent/futures/_base.py", "multiprocessing/pool.py", "asyncio/base_events.py", "pebble/pool/process.py",
    "joblib/parallel.py", "joblib/_parallel_backends.py", "loky/reusable_executor.py", "loky/process_executor.py",
)  # fmt: skip
"""Ends of file names that are no call site of the user's."""

KNOWN = ("concurrent", "joblib", "loky", "pebble")
"""Packages whose executors are wrapped by name, or run threads."""

_serial = 0


def _hands_over(keyword: str, *, is_each: bool = False) -> Maker:
    """A maker for methods whose first argument (or ``keyword``) is the function that workers will run."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not STATE.on:
                return original(self, *args, **kwargs)
            offer = _offer(self, args, kwargs, keyword, is_each=is_each)
            if offer is None:
                return original(self, *args, **kwargs)
            result = original(self, *offer.args, **offer.kwargs)
            offer.submitted(result)
            return result

        return method

    return make


class _Offer:
    """A call with the function replaced by a job, and what the parent says about it."""

    __slots__ = ("args", "job", "kwargs", "row")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], job: Job | None, row: dict[str, Any]
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.job = job
        self.row = row

    def submitted(self, result: Any) -> None:
        """The pool took it. Items of a map have their rows from the worker alone."""
        try:
            if self.job is None:
                _watch(result, self.row)
            elif not self.job.is_each:
                STATE.put((encode.line, "job", self.row))
        except Exception as error:  # fail open: the pool has the job
            trouble.note("pools.submitted", error)


def _offer(
    pool: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keyword: str, *, is_each: bool
) -> _Offer | None:
    """What to call the pool's method with, or None to leave the call alone."""
    began = time.monotonic_ns()
    try:
        function = args[0] if args else kwargs.get(keyword)
        if function is None or _is_internal(function, args, kwargs) or _is_of_threads(pool):
            return None
        return _made(pool, function, args, kwargs, keyword, began, is_each=is_each)
    except Exception as error:  # fail open
        trouble.note("pools.offer", error)
        return None
    finally:
        STATE.spent_since(began)


def _made(
    pool: Any,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    keyword: str,
    began: int,
    *,
    is_each: bool,
) -> _Offer | None:
    said = _promises.pop(_key(function, args[1:]), None) or _Promise(began, sys._getframe(3))
    job = Job(function, _next_id(), is_each=is_each, step=said.step, submitted=said.at, source=said.source)
    row = {"job": job.id, "step": job.step, "submitted": said.at, "rank": STATE.rank}
    if not _workers_know_us(pool):
        if is_each:
            return None
        row["payload_types"] = kinds_of(args[1:]).text
        return _Offer(args, kwargs, None, row)
    job.site, job.span = said.site, said.span
    if args:
        return _Offer((job, *args[1:]), kwargs, job, row)
    return _Offer(args, {**kwargs, keyword: job}, job, row)


class _Promise:
    """Who submits what, when and where: noted in the thread that does.

    Attributes:
        held: The function and its arguments, kept so that their ids stay theirs.
    """

    __slots__ = ("at", "held", "site", "source", "span", "step")

    def __init__(self, at: int, frame: Any, held: tuple[Any, ...] = ()) -> None:
        self.at = at
        self.step = STATE.step
        self.source = _source()
        self.span = _reward_span()
        self.site = spans.caller(frame, INTERNAL)
        self.held = held


_promises: dict[tuple[int, ...], _Promise] = {}


def _key(function: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(map(id, (function, *args)))


def _executors(module: ModuleType) -> None:
    """Watch ``submit`` of every executor class that somebody else makes from now on."""

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:  # noqa: N807 - it stands for one
        super(module.Executor, cls).__init_subclass__(**kwargs)
        submit = vars(cls).get("submit")
        if STATE.on and callable(submit) and cls.__module__.partition(".")[0] not in KNOWN:
            patch.replace(cls, "submit", _promises_to(submit))

    patch.replace(module.Executor, "__init_subclass__", classmethod(__init_subclass__))


def _promises_to(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (STATE.on and args):
            return original(self, *args, **kwargs)
        key = _key(args[0], args[1:])
        try:
            _promises[key] = _Promise(time.monotonic_ns(), sys._getframe(1), args)
        except Exception as error:  # fail open
            trouble.note("pools.promise", error)
        result = original(self, *args, **kwargs)
        if callable(getattr(result, "add_done_callback", None)):
            result.add_done_callback(lambda _: _promises.pop(key, None))
        else:
            _promises.pop(key, None)
        return result

    return submit


def _is_internal(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """A map that submits its chunks itself: its function is a job already."""
    bound = getattr(function, "args", ()) if type(function).__name__ == "partial" else ()
    given = (
        args[1] if len(args) > 1 else kwargs.get("args")
    )  # pebble's map hands its function on as an argument
    nested = given if type(given) is tuple else ()
    return type(function) is Job or any(type(one) is Job for one in (*bound, *nested))


def _is_of_threads(pool: Any) -> bool:
    """``ThreadPool`` is a ``Pool``; nothing crosses there."""
    return any(base.__name__ == "ThreadPool" for base in type(pool).__mro__)


def _workers_know_us(pool: Any) -> bool:
    """Whether a worker can import the shim: it is a fork of this process, or it inherits ``PYTHONPATH``."""
    context = getattr(pool, "_mp_context", None) or getattr(pool, "_ctx", None)
    manager = getattr(getattr(pool, "_pool_manager", None), "worker_manager", None)  # pebble
    method = getattr(context or getattr(manager, "mp_context", None), "get_start_method", None)
    if method is not None and method() == "fork":
        return True
    on_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return FOLDER in on_path and not (sys.flags.ignore_environment or sys.flags.isolated)


def _source() -> str:
    """Who hands over: ``reward`` inside a reward span, else the innermost span, else the program."""
    if _reward_span() is not None:
        return "reward"
    current = spans.CURRENT.get()
    return "main" if current is None else current.name


def _reward_span() -> spans.Span | None:
    found = spans.CURRENT.get()
    while found is not None and found.phase != "reward" and found.name != "reward":
        found = found.parent
    return found


def _watch(result: Any, row: dict[str, Any]) -> None:
    """The parent's times of a job whose worker does not know us: from submission to the future's end."""

    def done(_: Any) -> None:
        ended = time.monotonic_ns()
        seen = {"pid": 0, "a": row["submitted"], "b": ended, "detail": "queue and run: seen from the parent"}
        STATE.put((encode.line, "job", {**row, **seen}))  # pid 0: some worker, not this process

    if callable(getattr(result, "add_done_callback", None)):
        result.add_done_callback(done)
    else:
        STATE.put((encode.line, "job", row))


def _next_id() -> str:
    global _serial  # a counter
    _serial += 1
    return f"{STATE.key}.{_serial}"


_MAP = functools.partial(_hands_over, is_each=True)
_POOL = [("apply_async", False)] + [
    (name, True) for name in ("map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered")
]
_LOKY = (Target("ProcessPoolExecutor.submit", _hands_over("fn"), ("fn",)),)
TABLE: dict[str, tuple[Any, ...]] = {
    "concurrent.futures._base": (_executors,),
    "concurrent.futures.process": (
        Target("ProcessPoolExecutor.submit", _hands_over("fn"), ("fn",)),
        Target("ProcessPoolExecutor.map", _MAP("fn"), ("fn",)),
    ),
    "multiprocessing.pool": tuple(
        Target(f"Pool.{name}", _hands_over("func", is_each=is_each), ("func",)) for name, is_each in _POOL
    ),
    "pebble.pool.process": (
        Target("ProcessPool.schedule", _hands_over("function"), ("function",)),
        Target("ProcessPool.map", _MAP("function"), ("function",)),
    ),
    "joblib.externals.loky.process_executor": _LOKY,
    "loky.process_executor": _LOKY,
}
