"""Worker processes behind :class:`concurrent.futures.Executor`: one dies or hangs, the others work on.

    with WorkerPool(2, start=partial(worker.start, spec), hello=worker.hello, limit=worker.limit) as pool:
        pool.wait_ready()                               # every worker has loaded and run its model once
        result = pool.submit(worker.run, task).result() # WorkerLostError if its worker died or hung

Each worker is a ``ProcessPoolExecutor`` of one process: its pipes and locks are its own, so that a worker killed in
the middle of a message breaks nothing for its neighbours (in a shared pool it breaks all of them, and one that dies
holding the shared lock hangs them). A thread a worker takes calls from one queue, so the free worker gets the next.
A call that exceeds its limit ends its process; the next call gets a new one, warmed up first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
STARTS_IN_A_ROW = 3
"""A worker that does not come up that often in a row is given up."""


class WorkerLostError(Exception):
    """The process that ran the call died, or was killed because the call hung. The call may be tried again."""


class WorkersBrokenError(BrokenExecutor):
    """No worker comes up any more: what the last attempt said."""


@dataclass(slots=True)
class _Call:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(slots=True)
class Tally:
    """What happened to the workers.

    Attributes:
        hellos: What each worker said when it was last ready, by its number.
        counts: ``started``, ``died``, ``hung``, ``failed_start``, since the pool was made.
    """

    hellos: dict[int, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


class WorkerPool(Executor):
    """Workers that are started at once, warmed up, and replaced when they die or hang.

    Args:
        workers: How many processes, at least 1.
        start: Called in each new process with the worker's number (0 to ``workers`` - 1); picklable.
        hello: Called in it when ``start`` is done; what it returns is kept in :attr:`tally`; picklable.
        limit: Called here with a call's arguments: the most seconds that it may run before its process is killed.
        start_limit_s: The same for ``start`` and ``hello`` together.
    """

    def __init__(
        self,
        workers: int,
        *,
        start: Callable[[int], None],
        hello: Callable[[], Any],
        limit: Callable[..., float],
        start_limit_s: float = 300.0,
    ) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers: at least 1 is needed")
        self.tally = Tally()
        self.limit = limit
        self._mp_context = get_context("spawn")  # fork after torch, vLLM or threads is not safe
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._broken: WorkersBrokenError | None = None
        self._slots = [_Slot(number, self, start, hello, start_limit_s) for number in range(workers)]
        for slot in self._slots:
            slot.thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call for the next free worker; see the class for what the future may raise."""
        call = _Call(Future(), fn, args, kwargs)
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._is_closed:
                raise RuntimeError("cannot submit to a pool that was shut down")
            self._calls.put(call)
        return call.future

    def wait_ready(self) -> tuple[Any, ...]:
        """Wait until every worker has said hello; their hellos in order.

        Raises:
            WorkersBrokenError: One does not come up.
        """
        for slot in self._slots:
            slot.is_up.wait()
        if self._broken is not None:
            raise self._broken
        return tuple(self.tally.hellos[number] for number in sorted(self.tally.hellos))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - Executor's
        """End the workers after what they run now and, unless it is cancelled, what is queued."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
        if cancel_futures:
            self._drop_queue(None)
        if is_first:
            for _ in self._slots:
                self._calls.put(None)
        if wait:
            for slot in self._slots:
                slot.thread.join()

    def give_up(self, slot: _Slot, error: WorkersBrokenError) -> None:
        """A worker does not come up: with it the pool is not what was asked for, so it ends as a whole."""
        with self._lock:
            self._broken = self._broken or error
            self._is_closed = True
        self._drop_queue(error)
        for other in self._slots:
            if other is not slot:
                self._calls.put(None)
            other.is_up.set()

    def _drop_queue(self, error: Exception | None) -> None:
        """Cancel what nobody has begun, or fail it with an error."""
        with contextlib.suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                if error is None:
                    call.future.cancel()
                elif call.future.set_running_or_notify_cancel():
                    call.future.set_exception(error)
            self._calls.put(None)  # a slot's sign to end; all calls came before it


class _Slot:
    """The place of one worker: its thread here, and whatever process serves it now."""

    def __init__(
        self,
        number: int,
        pool: WorkerPool,
        start: Callable[[int], None],
        hello: Callable[[], Any],
        start_limit_s: float,
    ) -> None:
        self.number = number
        self.pool = pool
        self.start = start
        self.hello = hello
        self.start_limit_s = start_limit_s
        self.is_up = threading.Event()
        self.executor: ProcessPoolExecutor | None = None
        self.thread = threading.Thread(target=self._serve, name=f"crystal-worker-{number}", daemon=True)

    def _serve(self) -> None:
        try:
            self._ready()
            while (call := self.pool._calls.get()) is not None:  # noqa: SLF001 - a slot is a part of its pool
                if call.future.set_running_or_notify_cancel():
                    self._run(call)
                    self._ready()  # a new one in place of a lost one now, not when the next call comes
        except WorkersBrokenError as error:
            self.pool.give_up(self, error)
        finally:
            if self.executor is not None:
                self.executor.shutdown(wait=True)

    def _run(self, call: _Call) -> None:
        """Exactly one outcome for the call's future, whatever the process does."""
        try:
            value = self._attempt(call)
        except BaseException as error:
            call.future.set_exception(error)
            if isinstance(error, WorkersBrokenError):
                raise
        else:
            call.future.set_result(value)

    def _attempt(self, call: _Call) -> Any:
        executor = self._ready()
        limit_s = self.pool.limit(*call.args, **call.kwargs)
        try:
            inner = executor.submit(call.function, *call.args, **call.kwargs)
        except BrokenExecutor:  # it died idle: not this call's doing
            self._discard("died")
            inner = self._ready().submit(call.function, *call.args, **call.kwargs)
        return self._outcome(inner, limit_s)

    def _outcome(self, inner: Future[Any], limit_s: float) -> Any:
        """What the worker returned; a dead or hung one is replaced later and becomes an error now."""
        wait([inner], limit_s)
        if not inner.done():
            self._discard("hung")
            raise WorkerLostError(f"worker {self.number} gave no answer in {limit_s:g} s and was killed")
        error = inner.exception()
        if isinstance(error, BrokenExecutor):
            self._discard("died")
            raise WorkerLostError(f"worker {self.number} died, or what it sent could not be read") from error
        if error is not None:
            raise error
        return inner.result()

    def _ready(self) -> ProcessPoolExecutor:
        """The process, warmed up; a new one if there is none."""
        failure: BaseException | None = None
        for _ in range(STARTS_IN_A_ROW):
            if self.executor is not None:
                return self.executor
            failure = self._begin()
        if self.executor is not None:
            return self.executor
        raise WorkersBrokenError(
            f"worker {self.number} did not start {STARTS_IN_A_ROW} times in a row: {failure!r}"
        ) from failure

    def _begin(self) -> BaseException | None:
        """Start a process and wait for its hello; the failure if there is none."""
        executor = ProcessPoolExecutor(1, mp_context=self.pool._mp_context)  # noqa: SLF001
        self.executor = executor
        try:  # a call rather than the executor's initializer, whose exception would not reach us
            said = executor.submit(_boot, self.start, self.hello, self.number)
            wait([said], self.start_limit_s)
            if said.done():
                self.pool.tally.hellos[self.number] = said.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told when the attempts are spent
            self._discard("failed_start")
            return error
        if not said.done():
            self._discard("failed_start")
            return TimeoutError(f"no hello in {self.start_limit_s:g} s")
        self.pool.tally.counts["started"] += 1
        self.is_up.set()
        return None

    def _discard(self, why: str) -> None:
        """Kill the process, hung or not, and let its executor end; what it may still send reaches nobody."""
        self.pool.tally.counts[why] += 1
        executor, self.executor = self.executor, None
        if executor is not None:
            kill(executor)
            executor.shutdown(wait=False, cancel_futures=True)


def _boot(start: Callable[[int], None], hello: Callable[[], Any], number: int) -> Any:
    """A new process's first call."""
    start(number)
    return hello()


def kill(executor: ProcessPoolExecutor) -> None:
    """SIGKILL to the executor's processes: a hung one answers to nothing less."""
    kill_workers = getattr(executor, "kill_workers", None)  # Python 3.14
    if kill_workers is not None:
        kill_workers()
        return
    for process in list((executor._processes or {}).values()):  # noqa: SLF001 - no public way before 3.14
        process.kill()


def now_ns() -> tuple[int, int]:
    """Monotonic and Unix nanoseconds of one moment."""
    return time.monotonic_ns(), time.time_ns()
