"""What the parts of the probe share in one process. A leaf: imports nothing of ours."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PACKAGE = __package__


def never() -> bool:
    """Stands for ``torch.compiler.is_compiling`` until torch is imported."""
    return False


class State:
    """One process's switches and counters.

    Attributes:
        on: Whether rows are recorded. Off before the start, after :func:`boot.stop`, and after a fatal error.
        put: Takes one row ``(encoder, *fields)``; never blocks and never raises.
        put_quietly: The same, but starts no thread: for callers inside the garbage collector.
        compiling: ``torch.compiler.is_compiling``; a hook that finds it true is being traced and stands down.
        key: Unique to this process in the recording; job ids start with it.
        step: The framework's ``global_step`` at the step's start, None before the first.
        roles: What this process is known to do: ``trainer``, ``engine``, ``reward_worker``, ``worker``.
        rank: From the launcher's environment or the trainer; None where nobody said.
        sync: Writes what is in the ring now, on this thread.
        finish: Ends the segment in good order.
        generation: Grows with every fork, so that a span opened by the parent is not closed by the child.
        hook_ns: Time spent by hooks that do more than read a clock (describing what crosses, counting tokens).
        versions: Packages seen, by name.
        dirty: Whether roles, rank or versions changed since the last ``meta`` line.
    """

    __slots__ = (
        "compiling", "dirty", "finish", "generation", "hook_ns", "key", "on", "put", "put_quietly", "rank", "roles",
        "step", "sync", "versions",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on = False
        self.put: Callable[[Any], None] = drop
        self.put_quietly: Callable[[Any], None] = drop
        self.compiling: Callable[[], bool] = never
        self.step: int | None = None
        self.roles: set[str] = set()
        self.rank: int | None = None
        self.key = ""
        self.sync: Callable[[], None] = nothing
        self.finish: Callable[[], None] = nothing
        self.generation = 0
        self.hook_ns = 0
        self.versions: dict[str, str] = {}
        self.dirty = False

    def add_role(self, role: str) -> None:
        """Note what this process does; the next flush writes it."""
        if role not in self.roles:
            self.roles.add(role)
            self.dirty = True

    def train_alone(self) -> None:
        """This process trains; without a launcher's word it is rank 0."""
        self.add_role("trainer")
        if self.rank is None:
            self.rank, self.dirty = 0, True

    def role(self) -> str:
        """``trainer+engine`` for a trainer with a colocated engine, empty while unknown."""
        order = ("trainer", "engine", "reward_worker", "worker")
        known = [role for role in order if role in self.roles]
        return "+".join(known if "reward_worker" not in known else [r for r in known if r != "worker"])

    def spent_since(self, began_ns: int) -> None:
        """Book a hook's own time."""
        self.hook_ns += time.monotonic_ns() - began_ns


def drop(row: Any) -> None:
    """Where rows go while nothing is recorded."""


def nothing() -> None:
    """What there is to do while nothing is recorded."""


STATE = State()
