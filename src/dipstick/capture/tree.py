"""The processes of the run: everything that descends from the supervisor, also after its parent has ended.

Reads /proc and nothing else. A scan looks only at processes that are new since the last one, so that a host with
thousands of processes costs a directory listing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

RESCAN_NS: Final = 60_000_000_000
"""A pid may be given to another process between two scans; everything is looked at anew this often."""
MANY: Final = 4096
"""Processes that are remembered after they ended (a build can start thousands of compilers)."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """What /proc/PID/stat says."""

    ppid: int
    started: int
    cpu_ms: float
    rss_b: int


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the run; ``started`` (ticks since boot) tells it from a later one with the same pid."""

    pid: int
    ppid: int
    started: int


class ProcessTree:
    """Which processes are ours.

    Args:
        root: The supervisor's pid; not a member itself.
        not_ours: Pids of its children that are not part of the run (the sampler).
        proc: Where /proc is.
    """

    def __init__(self, root: int, not_ours: frozenset[int] = frozenset(), proc: Path = Path("/proc")) -> None:
        self.members: dict[int, Member] = {}
        self.former: dict[int, Member] = {}
        self._root = root
        self._not_ours = not_ours
        self._proc = proc
        self._others: set[int] = set()
        self._rescan_ns: int | None = None

    def scan(self, now_ns: int) -> list[Member]:
        """Look for new processes and drop those that ended.

        Returns:
            The members that were not there at the last scan.
        """
        listed = {int(name) for name in _names(self._proc) if name.isdigit()}
        for pid in self.members.keys() - listed:
            self._retire(pid)
        if self._rescan_ns is None or now_ns >= self._rescan_ns:
            self._rescan_ns = now_ns + RESCAN_NS
            self._others.clear()
            self._drop_replaced()
        self._others &= listed
        fresh = listed - self._others - self.members.keys() - self._not_ours - {self._root}
        return self._sort_in({pid: stat for pid in fresh if (stat := self.stat(pid)) is not None})

    def _drop_replaced(self) -> None:
        """Members whose pid now belongs to a process that started later."""
        for pid, member in list(self.members.items()):
            stat = self.stat(pid)
            if stat is None or stat.started != member.started:
                self._retire(pid)

    def _sort_in(self, waiting: dict[int, Stat]) -> list[Member]:
        """Members among the new ones: a child may be listed before its parent, so look until nothing changes."""
        found: list[Member] = []
        while ours := [
            p for p, stat in waiting.items() if stat.ppid == self._root or stat.ppid in self.members
        ]:
            for pid in ours:
                stat = waiting.pop(pid)
                self.members[pid] = Member(pid, stat.ppid, stat.started)
                found.append(self.members[pid])
        self._others |= waiting.keys()
        return found

    def _retire(self, pid: int) -> None:
        if len(self.former) < MANY:
            self.former[pid] = self.members[pid]
        del self.members[pid]

    def owns(self, pid: int) -> bool:
        """Whether the pid is, or was, a process of the run."""
        return pid in self.members or pid in self.former

    def stat(self, pid: int) -> Stat | None:
        """CPU time and memory; None where the process has ended or may not be read."""
        try:
            text = (self._proc / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        return parse_stat(text)

    def command(self, pid: int) -> list[str]:
        """Program and arguments, empty where they can't be read."""
        try:
            raw = (self._proc / str(pid) / "cmdline").read_bytes()[:65_536]
        except OSError:
            return []
        return raw.decode("utf-8", "replace").rstrip("\0").split("\0") if raw else []

    def holds_gpu(self, pid: int) -> bool:
        """Whether it has a GPU's device file open: then it is the process that the driver means."""
        folder = self._proc / str(pid) / "fd"
        return any(_opens_gpu(folder / name) for name in _names(folder))


def _opens_gpu(link: Path) -> bool:
    try:
        target = str(link.readlink())
    except OSError:
        return False
    return target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/"))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - thousands of names a second; Path objects cost ten times that
    except OSError:
        return []


def parse_stat(text: bytes) -> Stat | None:
    """The line of /proc/PID/stat; the name in it may hold anything, also ``)`` and blanks.

    ``7 (a) b) S 1 ...``: parent 1. CPU time is user plus system, in ticks of 10 ms as a rule.
    """
    fields = text[text.rfind(b")") + 2 :].split()
    try:
        cpu = (int(fields[11]) + int(fields[12])) * 1000 / TICKS
        return Stat(int(fields[1]), int(fields[19]), cpu, int(fields[21]) * PAGE)
    except (IndexError, ValueError):
        return None
