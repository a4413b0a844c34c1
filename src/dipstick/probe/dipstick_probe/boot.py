"""Starting and stopping the probe in one process, and what a fork changes."""

from __future__ import annotations

import atexit
import os
import time
from _thread import get_ident

from . import hooks, process
from .segment import Segment
from .state import STATE, drop, never, nothing
from .writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEGABYTE = 1_000_000
DEFAULT_MAX_MB = 256
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class _Probe:
    """The parts that live as long as the process."""

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self.folder = ""
        self.limit = 0
        self.has_handlers = False
        self.pid = 0
        self.main_thread = 0
        self.leave: Any = None


PROBE = _Probe()


def start(run: str) -> bool:
    """Start recording; returns whether it does.

    Args:
        run: The recording's folder. ``DIPSTICK_PROBE_MAX_MB`` in the environment caps this process's share of it.
    """
    if STATE.on:
        return True
    PROBE.folder = os.path.join(os.path.abspath(run), "probe")  # pathlib would cost every start 5 ms
    PROBE.main_thread = get_ident()
    PROBE.limit = int(MEGABYTE * _max_mb())
    STATE.rank = process.rank()
    try:
        _open_segment().begin()
    except OSError:  # no such run folder, or not ours: training goes on, unrecorded
        _forget_writer()
        return False
    _go()
    return True


def stop() -> None:
    """Take every hook off, write what is left and close the segment."""
    hooks.uninstall()
    if PROBE.leave is not None and os._exit is _leave:
        os._exit = PROBE.leave
        PROBE.leave = None
    _finish()
    STATE.compiling = never


def _max_mb() -> float:
    try:
        return max(0.01, float(os.environ.get("DIPSTICK_PROBE_MAX_MB", "")))
    except ValueError:
        return DEFAULT_MAX_MB


def _open_segment() -> Writer:
    """A writer with a segment of this process's own name; no file yet."""
    start_ns = time.time_ns()
    PROBE.pid = os.getpid()
    host = "".join(c if c in SAFE else "_" for c in process.host())[:64] or "host"
    segment = Segment(PROBE.folder, f"{host}.{PROBE.pid}.{start_ns}.jsonl", PROBE.limit)
    STATE.key = f"{host}-{PROBE.pid}-{start_ns // 10**6 % 10**6}"
    PROBE.writer = Writer(segment, lambda: process.describe(start_ns), hooks.gather)
    STATE.put, STATE.put_quietly, STATE.sync = PROBE.writer.put, PROBE.writer.put_quietly, PROBE.writer.sync
    return PROBE.writer


def _go() -> None:
    STATE.on = True
    if not PROBE.has_handlers:
        PROBE.has_handlers = True
        atexit.register(_finish)
        os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    STATE.finish = _finish
    if PROBE.leave is None:
        leave: Any = _leave
        PROBE.leave, os._exit = os._exit, leave
    hooks.install()


def _leave(status: int) -> None:
    """``os._exit``, which runs no ``atexit``: scripts use it to get past an engine that hangs when it is torn down."""
    try:
        _finish()
    finally:
        PROBE.leave(status)


def _finish() -> None:
    """Write the end, once. At exit, and where ``multiprocessing`` ends a child without running ``atexit``."""
    writer = PROBE.writer
    if writer is None or not STATE.on or os.getpid() != PROBE.pid:
        return
    STATE.on = False
    try:
        writer.end()
    except Exception:  # noqa: S110 - the folder is gone; the exit status is not ours to change
        pass
    _forget_writer()


def _forget_writer() -> None:
    PROBE.writer = None
    STATE.put, STATE.put_quietly, STATE.sync = drop, drop, nothing


def _before_fork() -> None:
    """The parent's thread stops and its rows are written, so that the child inherits nothing half-done."""
    try:
        if PROBE.writer is not None and STATE.on:
            PROBE.writer.pause()
    except Exception:  # noqa: S110 - a fork must not fail for us
        pass


def _in_child() -> None:
    """A fork's child gets its own segment, made by its first row: most children exec or record nothing."""
    STATE.generation += 1
    if not STATE.on:
        return
    try:
        hooks.forget()
        STATE.roles = set()
        STATE.hook_ns = 0
        STATE.dirty = False
        if PROBE.writer is not None:
            PROBE.writer.segment.abandon()
        writer = _open_segment()
        writer.is_threadless = get_ident() != PROBE.main_thread
        STATE.put, STATE.put_quietly = _first_row(writer), writer.put_quietly
    except Exception:  # fail open
        STATE.on = False


def _first_row(writer: Writer) -> Any:
    """Begins the child's segment at its first row."""

    def put(row: Any) -> None:
        STATE.put = writer.put
        try:
            writer.begin()
        except Exception:  # the folder is gone, or the disk is full
            STATE.on = False
            _forget_writer()
        else:
            writer.put(row)

    return put
