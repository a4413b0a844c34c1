"""torch.distributed: when the host entered and left a collective, and how long the device was in it.

NCCL returns to Python before it waits, so the wait for a late rank is device time: a pair of CUDA events around the
call, read by the training thread at the end of the step (never by ours: a foreign thread that touches CUDA breaks a
graph capture). What the host saw is written at once; the device's time follows under the same number. Host side ran for real on gloo (tests/live_trl.py); docs/probe.md says what of CUDA did.
"""

from __future__ import annotations

import functools
import sys
import time
from _thread import get_ident
from collections import deque

from .. import encode, steps, trouble
from ..patch import Target
from ..state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list",
    "barrier", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "gather", "gather_object",
    "scatter", "scatter_object_list", "all_to_all", "all_to_all_single",
)  # fmt: skip
PATIENCE_NS = 60 * 10**9
"""A collective whose device time nobody has read by then stays without it."""
MOST_PENDING = 4096
OFTEN = 64
"""Collectives between two looks at the events, beside the one at each step's end."""
MOST_READ = 128
"""Device times in one row."""

_inside: set[int] = set()
_pending: deque[_Pending] = deque()
_free: deque[Any] = deque(maxlen=256)
_serial = 0


class _Pending:
    """A collective whose CUDA events have not been read."""

    __slots__ = ("first", "last", "left_ns", "number")

    def __init__(self, number: int, left_ns: int, first: Any, last: Any) -> None:
        self.number = number
        self.left_ns = left_ns
        self.first = first
        self.last = last


def _collective(original: Callable[..., Any]) -> Callable[..., Any]:
    name = original.__name__

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        me = get_ident()
        if STATE.compiling() or not STATE.on or me in _inside:  # object collectives are made of tensor ones
            return original(*args, **kwargs)
        _inside.add(me)
        first = _event(args, kwargs)
        a = time.monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            b = time.monotonic_ns()
            _inside.discard(me)
            _record({"n": name, "a": a, "b": b, "step": STATE.step}, first)

    return collective


def _record(fields: dict[str, Any], first: Any) -> None:
    global _serial  # a counter
    try:
        if first is not None:
            _serial += 1
            fields["i"] = _serial
        STATE.put((encode.line, "coll", fields))
        if first is None:
            return
        last = _recorded(_free.pop() if _free else _new_event())
        _pending.append(_Pending(fields["i"], fields["b"], first, last))
        if len(_pending) % OFTEN == 0:
            read_events()
    except Exception as error:  # fail open
        trouble.note("torch_distributed.record", error)


def _event(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A CUDA event just before the call; None on the host, in a graph capture, and where the call does not wait."""
    torch = sys.modules.get("torch")
    try:
        if (
            torch is None
            or not torch.cuda.is_initialized()
            or kwargs.get("async_op")
            or len(_pending) >= MOST_PENDING
        ):
            return None
        if not _is_on_device(args, kwargs) or torch.cuda.is_current_stream_capturing():
            return None
        return _recorded(_free.pop() if _free else _new_event())
    except Exception as error:  # fail open
        trouble.note("torch_distributed.event", error)
        return None


def _is_on_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    for value in (*args, *kwargs.values()):
        one = value[0] if type(value) in (list, tuple) and value else value
        if getattr(one, "is_cuda", False) is True:
            return True
    return False


def _new_event() -> Any:
    return sys.modules["torch"].cuda.Event(enable_timing=True)


def _recorded(event: Any) -> Any:
    event.record()
    return event


def read_events() -> None:
    """On the training thread: write the device times that are known by now."""
    torch = sys.modules.get("torch")
    if not _pending or torch is None or torch.cuda.is_current_stream_capturing():
        return
    read: list[list[float]] = []
    try:
        for _ in range(len(_pending)):
            one = _pending.popleft()
            if not one.last.query():
                _pending.appendleft(one)
                break
            read.append([one.number, one.first.elapsed_time(one.last)])
            _free.extend((one.first, one.last))
    except Exception as error:  # fail open
        trouble.note("torch_distributed.read", error)
    for start in range(0, len(read), MOST_READ):
        STATE.put((encode.line, "device", {"coll": read[start : start + MOST_READ]}))


def gather(*, final: bool) -> None:
    """On the writer's thread: forget collectives that nobody came back for. Touches no CUDA."""
    while _pending:
        try:
            one = _pending.popleft()
        except IndexError:
            return
        if not final and time.monotonic_ns() - one.left_ns < PATIENCE_NS:
            _pending.appendleft(one)
            return


def forget() -> None:
    """In a fork's child: CUDA and its events are the parent's."""
    _pending.clear()
    _free.clear()
    _inside.clear()


def _listen(module: Any) -> None:
    del module
    if read_events not in steps.at_end:
        steps.at_end.append(read_events)


TABLE: dict[str, tuple[Any, ...]] = {
    "torch.distributed.distributed_c10d": (*(Target(name, _collective) for name in NAMES), _listen),
}
