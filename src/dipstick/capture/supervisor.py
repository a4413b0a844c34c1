"""``dipstick run``: a recording around a command. Whatever happens to the recording, the command goes on and its status comes back.

Nothing here loads Polars when it is imported: signals must be blocked before its threads are there (see ``signals``).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from dipstick.capture.child import Child, exit_status, has_terminal
from dipstick.capture.launch import PROBE, SEGMENTS, environment_for, is_disabled
from dipstick.capture.privacy import scrub
from dipstick.capture.sampler_process import SamplerProcess
from dipstick.capture.signals import Manners, SignalQueue
from dipstick.errors import DipstickError, RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dipstick.capture.finish import Captured
    from dipstick.capture.signals import Arrived
    from dipstick.recording.writer import RecordingWriter

    Say = Callable[[str], None]

LOOK_S: Final = 1.0
"""How often to look at the children besides being told by SIGCHLD."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to record, and where.

    Attributes:
        command: Program and arguments.
        run: The recording's folder.
        hz: Polls of each GPU a second.
        force: Replace a recording that is there.
        join: Add this host to a recording that another ``dipstick run`` made, or make it.
    """

    command: tuple[str, ...]
    run: Path
    hz: float = 10.0
    force: bool = False
    join: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: CMD's status as a shell would say it, and what was recorded (None: closing it failed)."""

    status: int
    captured: Captured | None


class Kid(Protocol):
    """What :func:`watch` needs of CMD."""

    own_group: bool

    def ended(self) -> int | None:
        """Wait status, None while it runs."""

    def signal(self, number: int) -> None:
        """Send a signal."""

    def kill(self, spare: frozenset[int] = frozenset()) -> None:
        """Kill everything."""


class Helper(Protocol):
    """What :func:`watch` needs of the sampler."""

    @property
    def pid(self) -> int:
        """Its pid."""

    def ended(self) -> bool:
        """Whether it is gone."""

    def trouble(self) -> str | None:
        """Why."""

    def again(self) -> bool:
        """Start another one in its place, if that makes sense."""


class Queue(Protocol):
    """What :func:`watch` needs of the signals."""

    def wait(self, seconds: float) -> Arrived | None:
        """The next one."""


def record(plan: Plan, say: Say, warn: Say) -> Outcome:
    """Run the command and record it.

    Args:
        plan: What and where.
        say: Gets lines of talk.
        warn: Gets what went wrong with the recording while CMD ran, each thing once.

    Raises:
        RecordingError: The recording can't be made; CMD was not started.
        CannotStartError: CMD can't be started; an empty recording is left behind.
    """
    host = socket.gethostname() or "localhost"
    with SignalQueue() as queue:
        writer = open_recording(plan, host)
        say(f"recording into {plan.run}")
        sampler = _start_sampler(plan, host, warn)
        began = time.time_ns()
        try:
            child = Child(
                plan.command,
                environment_for(plan.run, os.environ),
                mask=queue.mask,
                own_group=not has_terminal(),
            )
        except DipstickError:
            _give_up(sampler, writer)
            raise
        status = exit_status(watch(child, sampler, queue, say, warn))
        times = (began, time.time_ns())
        queue.let_interrupt()
        return Outcome(status, _close(plan, writer, sampler, (host, status, *times), warn))


def open_recording(plan: Plan, host: str) -> RecordingWriter:
    """The supervisor's pen, in a new folder or (``join``) in one that is there.

    Raises:
        RecordingError: The folder holds something else, or a recording and neither ``force`` nor ``join``.
    """
    from dipstick.recording.layout import MANIFEST  # noqa: PLC0415 - loads Polars: after signals are blocked
    from dipstick.recording.writer import RecordingWriter  # noqa: PLC0415 - the same

    name = f"run_{secrets.token_hex(4)}"
    if plan.join:
        try:
            return _with_segments(plan, RecordingWriter.join(plan.run, host=host, writer=name))
        except RecordingError:
            if (plan.run / MANIFEST).exists():
                raise
    try:
        made = RecordingWriter.create(
            plan.run, origin="measured", host=host, source=scrub(plan.command), force=plan.force, writer=name
        )
    except RecordingError:
        if not plan.join:
            raise
        time.sleep(1)  # another host is making it at this moment
        made = RecordingWriter.join(plan.run, host=host, writer=name)
    return _with_segments(plan, made)


def _with_segments(plan: Plan, writer: RecordingWriter) -> RecordingWriter:
    """The folder that the probes write into; ours alone, and no link."""
    folder = plan.run / SEGMENTS
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise RecordingError("a symbolic link; not writing through it.", where=str(folder))
    return writer


def _start_sampler(plan: Plan, host: str, warn: Say) -> SamplerProcess | None:
    try:
        return SamplerProcess(plan.run, host, plan.hz)
    except OSError as error:
        warn(
            f"the sampler can't be started ({error.strerror}): no GPU telemetry; the command runs all the same"
        )
        return None


def _give_up(sampler: SamplerProcess | None, writer: RecordingWriter) -> None:
    """CMD did not start: leave a closed, empty recording."""
    if sampler is not None:
        sampler.stop()
    with suppress(OSError):
        writer.close()


def watch(child: Kid, sampler: Helper | None, queue: Queue, say: Say, warn: Say) -> int:
    """Wait for CMD; pass signals on; say if the sampler ends before it, and try another one.

    Returns:
        CMD's wait status.
    """
    manners, mourned = Manners(), sampler is None
    while (status := child.ended()) is None:
        arrived = queue.wait(LOOK_S)
        spare = frozenset() if sampler is None else frozenset({sampler.pid})
        if arrived is not None:
            _answer(child, manners, arrived, spare, say)
        if sampler is not None and not mourned and sampler.ended():
            why = sampler.trouble() or "the sampler ended"
            mourned = not sampler.again()
            then = "recording of telemetry stops here" if mourned else "another one was started"
            warn(f"{why}: {then}; the command goes on")
    return status


def _answer(child: Kid, manners: Manners, arrived: Arrived, spare: frozenset[int], say: Say) -> None:
    action = manners.action(arrived, same_group=not child.own_group)
    if action == "kill":
        say("killing the command")
        child.kill(spare)
        return
    if action == "forward":
        child.signal(arrived.number)
    if manners.interrupts:
        say("waiting for the command to stop; Ctrl-C again kills it")


def _close(
    plan: Plan,
    writer: RecordingWriter,
    sampler: SamplerProcess | None,
    end: tuple[str, int, int, int],
    warn: Say,
) -> Captured | None:
    """Close the recording. Nothing that goes wrong here may change CMD's status."""
    try:
        return _finish(plan, writer, sampler, end)
    except KeyboardInterrupt:
        warn("interrupted while closing the recording: it can be explained all the same")
    except Exception as error:  # noqa: BLE001 - the command's status must come back whatever it is
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        warn(
            f"the recording could not be closed ({why}): what was flushed before can be explained all the same"
        )
    return None


def _finish(
    plan: Plan, writer: RecordingWriter, sampler: SamplerProcess | None, end: tuple[str, int, int, int]
) -> Captured:
    """Stop the sampler, then do what :mod:`dipstick.capture.finish` does."""
    from dipstick.capture.finish import Ending, Telemetry, close_recording  # noqa: PLC0415 - loads Polars

    ending = Ending(plan.command, *end)
    if sampler is None:
        return close_recording(plan.run, writer, ending, Telemetry(trouble="the sampler was not started"))
    sampler.stop()
    told = Telemetry(sampler.trouble(), tuple(sampler.gaps), tuple(sampler.lost), sampled=True)
    return close_recording(plan.run, writer, ending, told)


def probe_state() -> str | None:
    """Why no process of the run will load the probe; None if they should."""
    if is_disabled(os.environ):
        return "DIPSTICK_DISABLE is set"
    return None if (PROBE / "sitecustomize.py").is_file() else "this installation has no probe"
