"""The sampler's process: ``python -P -m dipstick.capture.sampler_main``, started by the supervisor.

It runs until its standard input is closed: the supervisor holds the other end, so the sampler also ends when the
supervisor is killed. Nothing is read from it.
"""

from __future__ import annotations

import argparse
import errno
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dipstick.capture.beat import Beat, Every, keep_beat
from dipstick.capture.devices import Clock, NoDevices
from dipstick.capture.devices.choose import open_devices
from dipstick.capture.doctor import pid_namespace
from dipstick.capture.pen import Pen
from dipstick.capture.sampler import COLUMNS, Sampler, Site
from dipstick.capture.tree import ProcessTree
from dipstick.errors import DipstickError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dipstick.capture.devices import Devices
    from dipstick.recording.writer import RecordingWriter

EXIT_FULL: Final = 74
"""The disk is full (EX_IOERR of sysexits.h)."""
EXIT_FAILED: Final = 70
"""Anything else (EX_SOFTWARE); the last line of stderr says what."""
ACCOUNT_NS: Final = 10_000_000_000
"""How often the sampler says in the manifest what it has cost and how late it was: ``dipstick live`` shows it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Sample until told to stop.

    Args:
        argv: Arguments; None takes the process's own.
    """
    options = _options(argv)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the supervisor blocks signals, and a child inherits that
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)  # a terminal's signals are for CMD and the supervisor
    stop = Stop(sys.stdin.fileno())
    signal.signal(signal.SIGTERM, lambda *_: stop.ask())
    try:
        sample(options, stop)
    except (OSError, DipstickError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FULL if _is_full(error) else EXIT_FAILED
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dipstick.capture.sampler_main")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--writer", required=True)
    parser.add_argument("--hz", type=float, required=True)
    parser.add_argument("--root", type=int, required=True, help="the supervisor")
    return parser.parse_args(argv)


class Stop:
    """Whether to stop: asked to, or the other end of a pipe was closed."""

    def __init__(self, descriptor: int) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN | select.POLLHUP)
        self.asked = False

    def ask(self) -> None:
        """Stop at the next occasion."""
        self.asked = True

    def wait(self, seconds: float) -> bool:
        """Sleep, and say whether to stop; sleeps to the microsecond, where poll() alone would round to milliseconds."""
        until = time.monotonic() + seconds
        if self.asked or self._poll.poll(max(0, int(seconds * 1000) - 1)):
            return True
        time.sleep(max(0.0, until - time.monotonic()))
        return self.asked


def sample(options: argparse.Namespace, stop: Stop) -> None:
    """Keep the beat, then close the recording's piece with what was seen and what it cost.

    Raises:
        OSError: The disk is full, say.
        DipstickError: The folder is no recording.
    """
    clock, period = Clock(), round(1e9 / options.hz)
    pen = Pen(lambda: _join(options), COLUMNS)
    devices = open_devices(clock)
    tree = ProcessTree(options.root, frozenset({os.getpid()}))
    site = Site(options.host, os.getpid(), pid_namespace(Path("/")), period)
    beat, started = Beat(period), clock.mono()
    sampler = Sampler(site, devices, tree, pen, clock)

    def account() -> dict[str, Any]:
        more = {"pid_namespace": site.namespace, "start_cpu_s": pen.opened_cpu_s}
        facts = describe(devices, sampler, beat, clock.mono() - started)
        return {f"sampler@{options.host}": facts | more}

    safe = Guarded(sampler, devices, Every(ACCOUNT_NS, started + ACCOUNT_NS), lambda: pen.tell(account()))
    try:
        sampler.begin()
        keep_beat(safe.tick, period, clock.mono, lambda s: stop.wait(s) or pen.error is not None, beat)
        safe.finish()
    finally:
        writer = pen.close()
        devices.close()
    _note_health(writer, devices, beat, pen)
    writer.set_info(**account())
    writer.close()


def _join(options: argparse.Namespace) -> RecordingWriter:
    """The sampler's pen in the recording; loads Polars."""
    from dipstick.recording.writer import RecordingWriter  # noqa: PLC0415 - in the pen's thread, while samples are taken

    return RecordingWriter.join(options.run, host=options.host, writer=options.writer)


class Guarded:
    """A sampler whose own mistakes cost one tick, and are counted as a failed call named after the error.

    Args:
        sampler: Which.
        devices: Count what fails.
        when: When the account so far is due.
        account: Gives it.
    """

    def __init__(
        self,
        sampler: Sampler,
        devices: Devices,
        when: Every | None = None,
        account: Callable[[], None] = lambda: None,
    ) -> None:
        self._sampler = sampler
        self._failed = devices.health.failed
        self._when = when
        self._account = account

    def tick(self, deadline_ns: int) -> None:
        """One beat."""
        self._do(lambda: self._sampler.tick(deadline_ns))
        if self._when is not None and self._when.due(deadline_ns):
            self._do(self._account)

    def finish(self) -> None:
        """The last one."""
        self._do(self._sampler.finish)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next tick may work, and a gap is better than an end
            self._failed[f"sampler tick ({type(error).__name__}: {error})"[:200]] += 1


def _note_health(writer: RecordingWriter, devices: Devices, beat: Beat, pen: Pen) -> None:
    """Counts that add up over writers, and what the driver refused."""
    failed = sum(devices.health.failed.values())
    counts = {
        "ticks": beat.ticks,
        "missed_ticks": beat.missed,
        "failed_calls": failed,
        "dropped_rows": pen.dropped,
    }
    writer.count(**{name: count for name, count in counts.items() if count})
    for gpu, function in sorted(devices.health.refused):
        why = devices.health.refused[gpu, function]
        writer.note("info", f"GPU {gpu}: {function} is not there: {why}")
    for function, count in sorted(devices.health.failed.items()):
        writer.note("warning", f"{function} failed {count} times: those values are missing")


def describe(devices: Devices, sampler: Sampler, beat: Beat, wall_ns: int) -> dict[str, Any]:
    """What was sampled and what it cost, as plain values for the manifest."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "source": devices.name,
        "why_none": devices.why if isinstance(devices, NoDevices) else None,
        "gpus": [{"gpu": g.gpu, "name": g.name} for g in devices.gpus],
        "period_ns": beat.period_ns,
        "ticks": beat.ticks,
        "missed_ticks": beat.missed,
        "late_mean_ms": beat.late_ns / 1e6 / beat.ticks if beat.ticks else None,
        "late_max_ms": beat.latest_ns / 1e6,
        "util_window_ns": {str(gpu): window for gpu, window in sampler.windows().items()},
        "failed_calls": dict(devices.health.failed),
        "refused": [[gpu, function, why] for (gpu, function), why in sorted(devices.health.refused.items())],
        "mistaken_pids": sampler.attribution.mistaken,
        "processes": sampler.seen(),
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall_ns / 1e9,
        "rss_peak_b": used.ru_maxrss * 1024,
    }


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


if __name__ == "__main__":
    sys.exit(main())
