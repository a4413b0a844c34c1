"""What crosses between processes weighs: ``ForkingPickler`` (every pool of the standard library, and pebble) and loky.

Parent: a message with a :class:`~..shim.Job` in it is weighed for the hand-over and the reward span. Worker: the
message that was just read is the payload of the next job, the next message that leaves holds its result.
Tensors do not cross inside the pickle but as shared memory or CUDA handles; torch's own reduction says so.
"""

from __future__ import annotations

import functools
import time
from _thread import get_ident

from .. import shim, tally, trouble
from ..kinds import kinds_of
from ..patch import Target
from ..shim import Job, Parcel, ended, found_in, overhead, parcels, weigh_result
from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

tensors: dict[int, set[str]] = {}
"""By thread: how the tensors of the message that is being pickled cross."""


def _dumps(original: Callable[..., Any]) -> Callable[..., Any]:
    """``ForkingPickler.dumps(cls, obj, protocol)``, loky's ``dumps(obj, reducers, protocol)``."""
    at = 1 if "cls" in original.__code__.co_varnames[:1] else 0

    @functools.wraps(original)
    def dumps(*args: Any, **kwargs: Any) -> Any:
        if not STATE.on:
            return original(*args, **kwargs)
        tensors.pop(get_ident(), None)
        data = original(*args, **kwargs)
        began = time.monotonic_ns()
        try:
            _weigh(args[at], getattr(data, "nbytes", None) or len(data))
        except Exception as error:  # fail open: the message goes out as it is
            trouble.note("pickles.dumps", error)
        STATE.spent_since(began)
        return data

    return dumps


def _loads(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def loads(data: Any, *args: Any, **kwargs: Any) -> Any:
        message = original(data, *args, **kwargs)
        if STATE.on:
            began = time.monotonic_ns()
            try:
                _arrived(message, len(data))
            except Exception as error:  # fail open
                trouble.note("pickles.loads", error)
            STATE.spent_since(began)
        return message

    return loads


def _reduce_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.multiprocessing.reductions.reduce_tensor(tensor)``: called for every tensor that crosses."""

    @functools.wraps(original)
    def reduce_tensor(tensor: Any) -> Any:
        if STATE.on:
            tensors.setdefault(get_ident(), set()).add("cuda_ipc" if tensor.is_cuda else "shared_memory")
        return original(tensor)

    return reduce_tensor


def _call_in(message: Any) -> tuple[Job, int, tuple[Any, ...]] | None:
    """The job in a pool's message: a ``_CallItem``, a task tuple of ``multiprocessing.Pool``, pebble's ``WorkerTask``."""
    if type(message) is tuple and len(message) == 5:  # noqa: PLR2004 - (job, i, func, args, kwds)
        return found_in(message[2], message[3], message[4])
    name = type(message).__name__
    if name == "_CallItem":
        return found_in(message.fn, message.args, message.kwargs)
    if name in ("WorkerTask", "NewTask"):
        return found_in(message.payload.function, message.payload.args, message.payload.kwargs)
    return None


def _weigh(message: Any, size: int) -> None:
    """A message leaves this process."""
    found = _call_in(message)
    transports = ("pickle", *tensors.pop(get_ident(), ()))
    if found is None:
        if get_ident() in ended:
            weigh_result(size, transports)
        return
    job, items, arguments = found
    net = max(size - overhead(), 0)
    kinds = kinds_of(arguments)
    transports += ("shared_memory",) if kinds.is_shared else ()
    tally.add((job.source, "workers", job.step, *job.site), items, net, kinds, transports)
    if job.span is not None:
        extra = job.span.extra = job.span.extra or {}
        extra["jobs"] = extra.get("jobs", 0) + items
        extra["pickled_b"] = extra.get("pickled_b", 0) + net


def _arrived(message: Any, size: int) -> None:
    """A message has come into this process."""
    found = _call_in(message)
    if found is None:
        return
    ended.pop(get_ident(), None)
    _, items, arguments = found
    parcels[get_ident()] = Parcel(max(size - overhead(), 0) // items, kinds_of(arguments))


def forget() -> None:
    """In a fork's child: the messages in flight are the parent's."""
    tensors.clear()
    shim.forget()
    tally.forget()


gather = tally.gather
TABLE = {
    "multiprocessing.reduction": (
        Target("ForkingPickler.dumps", _dumps),
        Target("ForkingPickler.loads", _loads),
    ),
    "torch.multiprocessing.reductions": (Target("reduce_tensor", _reduce_tensor, ("tensor",)),),
    "joblib.externals.loky.backend.reduction": (Target("dumps", _dumps, ("obj",)),),
    "loky.backend.reduction": (Target("dumps", _dumps, ("obj",)),),
}
