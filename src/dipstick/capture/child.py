"""CMD as a process: started like a shell starts it, signalled, and in need killed with everything it started."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dipstick.capture.launch import CannotStartError, find_program
from dipstick.capture.tree import ProcessTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RESET: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a child would inherit that."""


def has_terminal() -> bool:
    """Whether there is a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Child:
    """A running CMD.

    With a terminal it stays in our process group, which is the foreground: it can read the keyboard, and Ctrl-C and
    Ctrl-Z reach it from the terminal itself, as if we were not there. Without one it gets a group of its own, and
    signals are forwarded to all of that group.

    Args:
        command: Program and arguments.
        environment: Its environment.
        mask: Signals that are to be blocked in it: those that were blocked when we were started.
        own_group: Whether it gets a group of its own.

    Raises:
        CannotStartError: There is no such program, or the system won't start it.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        mask: Iterable[int] = (),
        own_group: bool,
    ) -> None:
        program = find_program(command, environment.get("PATH"))
        self.own_group = own_group
        try:
            self.pid = _spawn(program, list(command), environment, mask, own_group=own_group)
        except OSError as error:
            raise CannotStartError(
                f"it can't be started: {error.strerror}.", where=program, exit_code=126
            ) from error

    def ended(self) -> int | None:
        """Its wait status once it has ended, None before."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return status if pid == self.pid else None

    def signal(self, number: int) -> None:
        """Send it a signal; with a group of its own, to all of the group."""
        with suppress(ProcessLookupError, PermissionError):
            if self.own_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def kill(self, spare: frozenset[int] = frozenset()) -> None:
        """Kill it and whatever descends from us, groups and sessions of their own included (torchrun's ranks).

        Args:
            spare: Our other children.
        """
        tree = ProcessTree(os.getpid(), spare)
        for _ in range(3):  # those that were being started while we looked
            tree.scan(0)
            for pid in tree.members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if self.own_group:
            self.signal(signal.SIGKILL)


def _spawn(
    program: str, command: list[str], environment: Mapping[str, str], mask: Iterable[int], *, own_group: bool
) -> int:
    """Start it; a script without ``#!`` goes to sh, as shells do."""
    group = {"setpgroup": 0} if own_group else {}
    options = {"setsigmask": tuple(mask), "setsigdef": RESET, **group}
    try:
        return os.posix_spawn(program, command, dict(environment), **options)  # type: ignore[arg-type] # options by name
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    script = program if "/" in program else str(Path(program).resolve())
    return os.posix_spawn("/bin/sh", ["sh", script, *command[1:]], dict(environment), **options)  # type: ignore[arg-type] # options by name


def exit_status(wait_status: int) -> int:
    """What a shell would report: the exit code, or 128 plus the signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code
