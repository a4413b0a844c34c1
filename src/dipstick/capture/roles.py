"""Which process is which: trainer, engine, reward worker, someone else's, or can't be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from dipstick.capture.privacy import scrub
from dipstick.capture.tree import MANY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dipstick.capture.devices import ProcessReading
    from dipstick.capture.doctor import PidNamespace
    from dipstick.capture.tree import Member, ProcessTree

Whose = Literal["ours", "foreign", "unattributable"]
OTHER: Final = "other"
"""A process of the run that no probe spoke for: a launcher, a compiler, a data loader."""


@dataclass
class GpuUser:
    """A process that the driver named.

    Attributes:
        pid: As the driver names it.
        whose: ``unattributable``: the driver's pids are another namespace's, so it may be anybody.
        memory: Largest memory in bytes, by GPU.
        seen: Readings, by GPU.
    """

    pid: int
    whose: Whose
    memory: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    @property
    def gpu(self) -> int | None:
        """The GPU it mostly uses: most memory, then most readings, then the lowest index."""
        return max(self.seen, key=lambda g: (self.memory.get(g, 0), self.seen[g], -g), default=None)


class Attribution:
    """Whose the pids are that the driver names.

    In the host's PID namespace a pid is ours if it descends from the supervisor. In a namespace of its own (a
    container) the driver may name the host's pids, and one of those can equal a pid of ours by chance: there a pid
    is ours only if that process also has a GPU open; any other can't be told.
    """

    def __init__(self, tree: ProcessTree, namespace: PidNamespace) -> None:
        self._tree = tree
        self._namespace = namespace
        self.users: dict[int, GpuUser] = {}
        self.mistaken = 0
        """Readings left out, because the driver's pid is that of another process here."""

    def sort_out(self, gpu: int, readings: Iterable[ProcessReading]) -> list[ProcessReading]:
        """Note who uses a GPU.

        Returns:
            The readings to keep: all but those whose pid means a different process of ours.
        """
        kept = []
        for reading in readings:
            user = self.users.get(reading.pid)
            if user is None or user.whose != "ours":
                user = self._meet(reading.pid)
            if user.whose == "unattributable" and self._tree.owns(reading.pid):
                self.mistaken += 1
                continue
            user.seen[gpu] = user.seen.get(gpu, 0) + 1
            if reading.mem_used_b is not None:
                user.memory[gpu] = max(reading.mem_used_b, user.memory.get(gpu, 0))
            kept.append(reading)
        return kept

    def _meet(self, pid: int) -> GpuUser:
        """Look again at a pid that was not ours so far: it may have started after the last scan."""
        user = self.users.setdefault(pid, GpuUser(pid, "foreign"))
        user.whose = self._whose(pid)
        return user

    def _whose(self, pid: int) -> Whose:
        if self._namespace == "host":
            return "ours" if self._tree.owns(pid) else "foreign"
        return "ours" if self._tree.owns(pid) and self._tree.holds_gpu(pid) else "unattributable"


class Commands:
    """Scrubbed command lines of the run's processes.

    Each is read twice, at first sight and a scan later: between fork and exec a process still shows its parent's.
    """

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._again: list[int] = []
        self.lines: dict[int, str] = {}

    def look(self, new: Iterable[Member]) -> None:
        """Read those of new members, and those of the last call's again."""
        fresh = [member.pid for member in new]
        for pid in (*self._again, *fresh):
            words = self._tree.command(pid)
            if words and (pid in self.lines or len(self.lines) < MANY):
                self.lines[pid] = scrub(words)
        self._again = fresh


def seen_processes(users: Mapping[int, GpuUser], commands: Mapping[int, str]) -> list[dict[str, Any]]:
    """What the sampler knows of processes, for the manifest: the run's own with their command lines, others without.

    Args:
        users: Who the driver named.
        commands: Scrubbed command lines of the run's processes.
    """
    ours = {pid for pid, user in users.items() if user.whose == "ours"} | commands.keys()
    rows = [(pid, "ours", commands.get(pid)) for pid in sorted(ours)]
    rows += [(pid, user.whose, None) for pid, user in sorted(users.items()) if pid not in ours]
    return [
        {"pid": pid, "whose": whose, "gpu": users[pid].gpu if pid in users else None, "cmdline": line}
        for pid, whose, line in rows
    ]
