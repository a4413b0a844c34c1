"""Hand-overs, added up per step and place in the code: what crossed, how much of it, by which way.

One row a job would say the same thing hundreds of times; one row a step and call site says it once.
"""

from __future__ import annotations

import time
from _thread import RLock

from . import encode
from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .kinds import Kinds

    Key = tuple[str, str, "int | None", "str | None", "int | None"]

MOST_TYPES = 16


class Tally:
    """Hand-overs of one kind from one place in one step."""

    __slots__ = ("at_ns", "bytes", "count", "devices", "is_fresh", "transports", "types")

    def __init__(self) -> None:
        self.at_ns = time.monotonic_ns()
        self.count = 0
        self.bytes: int | None = None
        self.types: dict[str, None] = {}
        self.devices: set[str] = set()
        self.transports: set[str] = set()
        self.is_fresh = True

    def add(self, count: int, size: int | None, kinds: Kinds | None, transports: tuple[str, ...]) -> None:
        """Add what crossed; a size of None is not known."""
        self.count += count
        self.is_fresh = True
        self.transports.update(transports)
        if size is not None:
            self.bytes = (self.bytes or 0) + size
        if kinds is not None:
            self.devices |= kinds.devices
            if len(self.types) < MOST_TYPES:
                self.types[kinds.text] = None

    def fields(self, key: Key) -> dict[str, Any]:
        """The ``handoff`` line."""
        source, target, step, file, line = key
        devices = [name for name in ("host", "cuda", "shared_memory") if name in self.devices]
        return {
            "from": source, "to": target, "t": self.at_ns, "types": " | ".join(self.types), "count": self.count,
            "bytes": self.bytes, "device": "+".join(devices) or None, "transport": "+".join(sorted(self.transports)),
            "f": file, "l": line, "step": step,
        }  # fmt: skip


_lock = RLock()  # reentrant: a signal handler may hand over work, too
_tallies: dict[Key, Tally] = {}


def add(key: Key, count: int, size: int | None, kinds: Kinds | None, transports: tuple[str, ...]) -> None:
    """Add to the hand-overs of this key: ``(from, to, step, file, line)``."""
    with _lock:
        tally = _tallies.get(key)
        if tally is None:
            tally = _tallies[key] = Tally()
        tally.add(count, size, kinds, transports)


def gather(*, final: bool) -> None:
    """Write the hand-overs that have been quiet since the last look, or all at the end."""
    if not _tallies:
        return
    with _lock:
        for key, tally in list(_tallies.items()):
            if tally.is_fresh and not final:
                tally.is_fresh = False
            else:
                del _tallies[key]
                STATE.put_quietly((encode.line, "handoff", tally.fields(key)))


def forget() -> None:
    """In a fork's child: what the parent was counting is the parent's."""
    global _lock  # another thread of the parent may have held it
    _lock = RLock()
    _tallies.clear()
