"""The ring buffer and the thread that empties it into the segment twice a second.

Hooks append tuples to a deque (atomic, no lock, some 50 ns); the thread turns them into JSON lines. It is started by
the first row, so a helper process that records nothing has no thread, and it is stopped around a fork, so a child
never inherits a half-done write (and Python 3.12+ does not warn of a thread that is only ours).
"""

from __future__ import annotations

import time
from _collections import deque  # type: ignore[import-not-found] # the C type: collections costs a start 2 ms
from _thread import RLock, allocate_lock, start_new_thread

from . import encode
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .segment import Segment

PERIOD_S = 0.5
CAPACITY = 200_000
"""Rows the ring holds: at 0.5 s a period, 400,000 rows a second before any is lost."""
BATCH = 5_000
"""Rows turned to text at a time: what the thread holds in memory, and about 10 ms of its work."""
FIRST_ANCHOR_NS = 10**9
"""The second anchor comes a second after the first, and each later one after twice the pause before it, ..."""
ANCHOR_PERIOD_NS = 60 * 10**9
"""... up to a minute: a process that is killed young has said what its probe cost."""
PATIENCE_S = 5.0
"""How long a fork or the exit waits for a write in progress (a network disk that hangs must not hang training)."""


class Writer:
    """One process's recorder.

    Attributes:
        is_threadless: Every row is written at once. For a process that was forked by a thread: it ends when its only
            thread does, without an exit of the interpreter, and a thread of ours would keep it alive for ever.

    Args:
        segment: Where the lines go.
        describe: The fields of the ``meta`` line, asked again whenever the state is dirty.
        gather: Called before each flush on the writer's thread, and with ``final=True`` at the end; adds rows that
            are gathered between flushes.
    """

    def __init__(
        self, segment: Segment, describe: Callable[[], dict[str, Any]], gather: Callable[..., None]
    ) -> None:
        self.segment = segment
        self.has_begun = False
        self.is_threadless = False
        self.rows = 0
        self.writer_ns = 0
        self.span_ns = 0
        self._describe = describe
        self._gather = gather
        self._queue: deque[Any] = deque()
        self._dropped = 0
        self._drop_lock = RLock()  # reentrant: the garbage collector may put a row while one is being counted
        self._starting = allocate_lock()
        self._pausing = allocate_lock()
        self._flushing = allocate_lock()
        self._stop = allocate_lock()
        self._ended = allocate_lock()
        self._has_thread = False
        self._anchored_ns = 0
        self._pause_ns = FIRST_ANCHOR_NS

    def put(self, row: Any) -> None:
        """Take a row; starts the thread at the first."""
        if len(self._queue) < CAPACITY:
            self._queue.append(row)
        else:
            self._count_drop()
        if self.is_threadless:
            self.sync(0)
        elif not self._has_thread:
            self._start_thread()

    def put_quietly(self, row: Any) -> None:
        """Take a row where no thread may be started: inside the garbage collector."""
        if len(self._queue) < CAPACITY:
            self._queue.append(row)
        else:
            self._count_drop()

    def begin(self) -> None:
        """Write who this process is and the first anchor. Raises OSError where the run folder is unusable."""
        self.has_begun = True
        self.segment.write((self._meta() + self._anchor()).encode())

    def pause(self, *, final: bool = False) -> None:
        """Stop the thread and write what is there; the next row starts it again. Two threads may fork at once."""
        if not self.has_begun or not self._pausing.acquire(True, PATIENCE_S):
            return
        try:
            if self._has_thread:
                self._stop.release()
                self._has_thread = not self._ended.acquire(True, PATIENCE_S)
            if not self._has_thread:
                self.flush(final=final)
        finally:
            self._pausing.release()

    def end(self) -> None:
        """The process ends in good order: everything is written, with a last anchor."""
        self.pause(final=True)
        if self._has_thread or not self.has_begun:
            return  # a write hangs, or a forked child has recorded nothing
        self.segment.write((self._anchor() + encode.line((None, "end", {}))).encode())

    def flush(self, *, final: bool = False, patience_s: float = PATIENCE_S) -> None:
        """Write what is in the ring, and an anchor when it is due."""
        if not self._flushing.acquire(True, patience_s):
            return
        try:
            began = time.thread_time_ns()
            self._gather(final=final)
            while self._queue and not self.segment.is_full:
                self.segment.write(self._batch().encode())
            self._write_notes()
            if self.segment.is_full:
                STATE.on = False
                self._queue.clear()
            self.writer_ns += time.thread_time_ns() - began
        finally:
            self._flushing.release()

    def sync(self, patience_s: float = PATIENCE_S) -> None:
        """Write what is in the ring now, on the caller's thread: before a message that may be the last."""
        if self.has_begun and STATE.on:
            try:
                self.flush(patience_s=patience_s)
            except OSError:
                STATE.on = False

    def _batch(self) -> str:
        """Up to ``BATCH`` rows as text; a row that cannot be written counts as dropped."""
        lines: list[str] = []
        take = self._queue.popleft
        for _ in range(min(len(self._queue), BATCH)):
            row = take()
            try:
                lines.append(row[0](row))
            except Exception:  # one bad row must not end the recording
                self._count_drop()
        self.rows += len(lines)
        return "".join(lines)

    def _write_notes(self) -> None:
        notes = ""
        if self._dropped:
            with self._drop_lock:
                count, self._dropped = self._dropped, 0
            notes += encode.line((None, "dropped", {"count": count}))
        if STATE.dirty:
            STATE.dirty = False
            notes += self._meta()
        if time.monotonic_ns() - self._anchored_ns >= self._pause_ns:
            self._pause_ns = min(2 * self._pause_ns, ANCHOR_PERIOD_NS)
            notes += self._anchor()
        if notes:
            self.segment.write(notes.encode())

    def _meta(self) -> str:
        return encode.line((None, "meta", self._describe()))

    def _anchor(self) -> str:
        """The closest of three (monotonic, Unix) pairs, and what the probe itself has cost so far."""
        pairs = []
        for _ in range(3):
            before = time.monotonic_ns()
            unix = time.time_ns()
            after = time.monotonic_ns()
            pairs.append((after - before, (before + after) // 2, unix))
        _, mono, unix = min(pairs)
        self._anchored_ns = mono
        cost = {
            "rows": self.rows,
            "span_ns": self.span_ns,
            "hook_ns": STATE.hook_ns,
            "writer_ns": self.writer_ns,
        }
        return encode.line((None, "anchor", {"m": mono, "u": unix, **cost}))

    def _count_drop(self) -> None:
        with self._drop_lock:
            self._dropped += 1

    def _start_thread(self) -> None:
        """Start the thread unless somebody is at it. At interpreter exit there can be none; the exit flushes."""
        if not self._starting.acquire(False):
            return
        try:
            if not self._has_thread:
                self._stop.acquire(False)
                self._ended.acquire(False)
                start_new_thread(self._run, ())
                self._has_thread = True
        except RuntimeError:
            pass
        finally:
            self._starting.release()

    def _run(self) -> None:
        """The thread: flush every period until asked to stop."""
        try:
            _leave_signals_to_the_main_thread()
            self.span_ns = self.span_ns or _cost_of_a_span()
            while not self._stop.acquire(True, PERIOD_S):
                self.flush()
        except Exception:  # an unusable folder or an error of ours ends the recording, not training
            STATE.on = False
            self._queue.clear()
        finally:
            self._ended.release()


def _leave_signals_to_the_main_thread() -> None:
    try:
        from _signal import (  # type: ignore[import-not-found] # noqa: PLC0415 - builtin; absent on few systems
            SIG_BLOCK,
            pthread_sigmask,
            valid_signals,
        )

        pthread_sigmask(SIG_BLOCK, valid_signals())
    except (ImportError, OSError, ValueError):
        pass


def _cost_of_a_span() -> int:
    """CPU nanoseconds of opening and closing one span on this machine, the median of a few rounds."""
    from .spans import probe_cost  # noqa: PLC0415 - spans imports us

    return probe_cost()
