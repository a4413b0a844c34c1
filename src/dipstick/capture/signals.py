"""Signals as a queue: blocked while CMD runs, taken one at a time, and what each of them means for CMD."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

if TYPE_CHECKING:
    from types import TracebackType

FORWARDED: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
"""Schedulers announce the end of a job with SIGUSR1 or SIGTERM; none of these may end us before CMD."""

Action = Literal["forward", "leave", "kill"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A signal; ``from_terminal``: the terminal sent it to the whole foreground group, so CMD has it already."""

    number: int
    from_terminal: bool = False


class SignalQueue:
    """Blocks the forwarded signals and SIGCHLD while it is open. Signals that we were told to ignore stay ignored.

    Enter it before anything starts a thread (Polars does when it is loaded): a thread inherits what is blocked, and
    one that does not block a signal would take it, which ends the process.
    """

    def __init__(self) -> None:
        heeded = (number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN)
        self._numbers = {*heeded, signal.SIGCHLD}
        self.mask: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        """Block them; ``mask`` is what was blocked before."""
        self.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unblock them; those that came and were not taken are forgotten: CMD has ended, and we are about to."""
        self.forget()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def wait(self, seconds: float) -> Arrived | None:
        """The next signal but SIGCHLD; None when a child has changed or the time is up."""
        info = signal.sigtimedwait(self._numbers, seconds)
        if info is None or info.si_signo == signal.SIGCHLD or info.si_pid == os.getpid():
            return None
        return Arrived(info.si_signo, from_terminal=info.si_code > 0)

    def forget(self) -> None:
        """Drop what waits."""
        while signal.sigtimedwait(self._numbers, 0) is not None:
            pass

    def let_interrupt(self) -> None:
        """From now on Ctrl-C is KeyboardInterrupt again (CMD has ended; closing may take long)."""
        self.forget()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT} - self.mask)


class Manners:
    """What to do with each signal: the first Ctrl-C asks, the second one kills."""

    def __init__(self) -> None:
        self.interrupts = 0

    def action(self, arrived: Arrived, *, same_group: bool) -> Action:
        """What CMD needs.

        Args:
            arrived: The signal.
            same_group: CMD is in our process group, so that the terminal's signals reach it without us.
        """
        if arrived.number == signal.SIGINT:
            self.interrupts += 1
            if self.interrupts > 1:
                return "kill"
        return "leave" if arrived.from_terminal and same_group else "forward"
