"""The host beside the GPUs: load of the machine, and CPU time and memory of the run's processes, from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.capture.tree import ProcessTree

SECTOR_B: Final = 512
"""/proc/diskstats counts in these, whatever the disk's own sector size."""
NOT_A_DISK: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Devices on top of others would be counted twice."""
NOT_A_NETWORK: Final = ("lo", "veth", "docker", "br-", "virbr", "ifb", "tun", "cni", "flannel", "cali")
"""The loopback, and ends of virtual cables whose traffic also crosses a real card or never leaves the host."""


class LoadReading(NamedTuple):
    """One row of ``host_load``; bytes are those moved in the window."""

    t_ns: int
    window_ns: int
    cpu_pct: float | None
    io_wait_pct: float | None
    mem_used_b: int | None
    mem_total_b: int | None
    disk_read_b: int | None
    disk_written_b: int | None
    net_received_b: int | None
    net_sent_b: int | None


class UseReading(NamedTuple):
    """One row of ``host_process``."""

    t_ns: int
    window_ns: int
    pid: int
    cpu_ms: float
    rss_b: int


class HostLoad:
    """Counters of the whole host; each reading covers the time since the one before.

    Args:
        proc: Where /proc is.
        sys_block: Where the disks are listed; a name that is not in it is a partition.
    """

    def __init__(self, proc: Path = Path("/proc"), sys_block: Path = Path("/sys/block")) -> None:
        self._proc = proc
        self._block = sys_block
        self._before: tuple[int, dict[str, tuple[int, int]]] | None = None

    def read(self, now_ns: int) -> LoadReading | None:
        """Load since the last call; None at the first one."""
        counters = {
            "cpu": self._busy_and_all(),
            "wait": self._wait_and_all(),
            "disk": self._disk(),
            "net": self._net(),
        }
        now = {name: pair for name, pair in counters.items() if pair is not None}
        before, self._before = self._before, (now_ns, now)
        if before is None or now_ns <= before[0]:
            return None
        moved = {name: _difference(pair, before[1].get(name)) for name, pair in now.items()}
        disk, net = moved.get("disk"), moved.get("net")
        memory = self._memory()
        return LoadReading(
            t_ns=now_ns,
            window_ns=now_ns - before[0],
            cpu_pct=_share(moved.get("cpu")),
            io_wait_pct=_share(moved.get("wait")),
            mem_used_b=memory and memory[0],
            mem_total_b=memory and memory[1],
            disk_read_b=disk and disk[0],
            disk_written_b=disk and disk[1],
            net_received_b=net and net[0],
            net_sent_b=net and net[1],
        )

    def _ticks(self) -> list[int] | None:
        """``cpu  user nice system idle iowait irq softirq steal ...`` over all cores."""
        line = next(self._lines("stat"), b"").split()
        return [int(field) for field in line[1:9]] if line[:1] == [b"cpu"] and len(line) > 8 else None  # noqa: PLR2004 - fields of the line

    def _busy_and_all(self) -> tuple[int, int] | None:
        """Ticks not idle (nor waiting for a disk), and all ticks."""
        ticks = self._ticks()
        return None if ticks is None else (sum(ticks) - ticks[3] - ticks[4], sum(ticks))

    def _wait_and_all(self) -> tuple[int, int] | None:
        ticks = self._ticks()
        return None if ticks is None else (ticks[4], sum(ticks))

    def _memory(self) -> tuple[int, int] | None:
        """Bytes in use (total minus what is available to programs), and in all."""
        found = {name: int(rest.split()[0]) * 1024 for name, rest in self._pairs("meminfo") if rest.split()}
        total, free = found.get(b"MemTotal"), found.get(b"MemAvailable")
        return None if total is None or free is None else (total - free, total)

    def _disk(self) -> tuple[int, int] | None:
        """Bytes read and written by whole disks."""
        whole = {path.name for path in self._block.iterdir()} if self._block.is_dir() else set()
        rows = [line.split() for line in self._lines("diskstats")]
        mine = [
            row
            for row in rows
            if len(row) > 9 and (name := row[2].decode()) in whole and not name.startswith(NOT_A_DISK)  # noqa: PLR2004 - fields of the line
        ]
        return (
            (sum(int(r[5]) for r in mine) * SECTOR_B, sum(int(r[9]) for r in mine) * SECTOR_B)
            if mine
            else None
        )

    def _net(self) -> tuple[int, int] | None:
        """Bytes received and sent by network cards."""
        rows = [
            rest.split()
            for name, rest in self._pairs("net/dev")
            if not name.strip().decode("utf-8", "replace").startswith(NOT_A_NETWORK)
        ]
        mine = [row for row in rows if len(row) > 8 and row[0].isdigit()]  # noqa: PLR2004 - fields of the line
        return (sum(int(r[0]) for r in mine), sum(int(r[8]) for r in mine)) if mine else None

    def _pairs(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        for line in self._lines(name):
            head, colon, rest = line.partition(b":")
            if colon:
                yield head, rest

    def _lines(self, name: str) -> Iterator[bytes]:
        try:
            yield from (self._proc / name).read_bytes().splitlines()
        except OSError:
            return


def _difference(now: tuple[int, int], before: tuple[int, int] | None) -> tuple[int, int] | None:
    """What was added; None where a counter began anew (a disk or card was plugged in or out)."""
    if before is None:
        return None
    added = (now[0] - before[0], now[1] - before[1])
    return added if min(added) >= 0 else None


def _share(ticks: tuple[int, int] | None) -> float | None:
    return None if ticks is None or ticks[1] == 0 else min(100.0, 100 * ticks[0] / ticks[1])


class ProcessUse:
    """CPU time and memory of every process of the run: what stands in where there is no GPU to read.

    It is CPU time, never utilization of a GPU; that is why it has a table of its own.
    """

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._before: dict[int, tuple[int, int, float]] = {}

    def read(self, now_ns: int) -> list[UseReading]:
        """Use since the last call; a process appears with its second reading."""
        found, now = [], {}
        for pid, member in self._tree.members.items():
            stat = self._tree.stat(pid)
            if stat is None or stat.started != member.started:
                continue
            now[pid] = (now_ns, stat.started, stat.cpu_ms)
            before = self._before.get(pid)
            if before is not None and before[1] == stat.started and now_ns > before[0]:
                spent = stat.cpu_ms - before[2]
                found.append(UseReading(now_ns, now_ns - before[0], pid, spent, stat.rss_b))
        self._before = now
        return found
