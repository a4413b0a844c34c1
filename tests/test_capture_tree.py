"""The run's processes, and the host's load, read from a /proc made by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.capture.host import HostLoad, LoadReading, ProcessUse, UseReading
from dipstick.capture.tree import MANY, PAGE, RESCAN_NS, TICKS, Member, ProcessTree, Stat, parse_stat

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
SUPERVISOR, SAMPLER = 10, 11


class FakeProc:
    """A /proc with processes: ``put(12, 10)`` is process 12, child of 10."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "proc"
        self.path.mkdir()
        self.put(1, 0)
        self.put(SUPERVISOR, 1)
        self.put(SAMPLER, SUPERVISOR)

    def put(
        self, pid: int, ppid: int, *, started: int = 5, ticks: int = 0, pages: int = 0, name: str = "python"
    ) -> None:
        folder = self.path / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        rest = ["S", ppid, *[0] * 9, ticks, 0, *[0] * 6, started, 0, pages]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, rest))}\n")

    def command(self, pid: int, *words: str) -> None:
        (self.path / str(pid) / "cmdline").write_bytes("\0".join(words).encode() + b"\0")

    def opens(self, pid: int, target: str) -> None:
        (self.path / str(pid) / "fd" / "3").symlink_to(target)

    def end(self, pid: int) -> None:
        folder = self.path / str(pid)
        (folder / "stat").unlink()
        for path in (folder / "fd").iterdir():
            path.unlink()
        (folder / "cmdline").unlink(missing_ok=True)
        (folder / "fd").rmdir()
        folder.rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Init, the supervisor and the sampler."""
    return FakeProc(tmp_path)


def tree(proc: FakeProc) -> ProcessTree:
    return ProcessTree(SUPERVISOR, frozenset({SAMPLER}), proc.path)


def test_whoever_descends_from_the_supervisor_is_a_member(proc: FakeProc) -> None:
    """Children and grandchildren; not the sampler, not the supervisor, not anybody else's."""
    proc.put(20, SUPERVISOR)
    proc.put(30, 20)
    proc.put(40, 1)
    proc.put(12, SAMPLER)
    found = tree(proc)
    assert {member.pid for member in found.scan(0)} == {20, 30}
    assert [found.owns(pid) for pid in (20, 30, 40, 12, SAMPLER, SUPERVISOR, 1)] == [True, True] + [False] * 5


def test_a_scan_tells_who_is_new(proc: FakeProc) -> None:
    """Once each."""
    proc.put(20, SUPERVISOR)
    found = tree(proc)
    assert found.scan(0) == [Member(20, SUPERVISOR, 5)]
    proc.put(5, 20)
    assert found.scan(S) == [Member(5, 20, 5)]
    assert found.scan(2 * S) == []


def test_a_process_stays_ours_when_its_parent_ends(proc: FakeProc) -> None:
    """A rank whose launcher was killed belongs to init then, and still to the run."""
    proc.put(20, SUPERVISOR)
    proc.put(30, 20)
    found = tree(proc)
    found.scan(0)
    proc.end(20)
    proc.put(30, 1)
    found.scan(S)
    assert (30 in found.members, 20 in found.members, found.owns(20)) == (True, False, True)
    found.scan(2 * RESCAN_NS)
    assert 30 in found.members


def test_a_pid_that_was_given_away_is_not_ours_any_more(proc: FakeProc) -> None:
    """The start time tells; it is compared at least every minute."""
    proc.put(20, SUPERVISOR)
    found = tree(proc)
    found.scan(0)
    proc.put(20, 1, started=99)
    found.scan(RESCAN_NS)
    assert found.members == {}


def test_a_pid_of_another_may_become_ours(proc: FakeProc) -> None:
    """Seen at the next full look, or as soon as it was gone for one scan."""
    proc.put(20, 1)
    found = tree(proc)
    found.scan(0)
    proc.put(20, SUPERVISOR, started=99)
    assert found.scan(S) == []
    assert found.scan(RESCAN_NS) == [Member(20, SUPERVISOR, 99)]


def test_only_new_processes_are_looked_at(proc: FakeProc) -> None:
    """Two thousand kernel threads cost one directory listing."""
    for pid in range(1000, 1100):
        proc.put(pid, 2)
    found = tree(proc)
    found.scan(0)
    looked: list[int] = []
    stat = found.stat

    def watched(pid: int) -> Stat | None:
        looked.append(pid)
        return stat(pid)

    found.stat = watched  # type: ignore[method-assign] # to count
    proc.put(20, SUPERVISOR)
    found.scan(S)
    assert looked == [20]


def test_not_every_process_that_ever_was_is_remembered(proc: FakeProc) -> None:
    """A build starts thousands of compilers."""
    found = tree(proc)
    found.former = {pid: Member(pid, 1, 1) for pid in range(100_000, 100_000 + MANY)}
    proc.put(20, SUPERVISOR)
    found.scan(0)
    proc.end(20)
    found.scan(S)
    assert len(found.former) == MANY


@pytest.mark.parametrize("name", ["python", "a) S 1 (b", "with blank", ""])
def test_names_in_stat_can_hold_anything(name: str, proc: FakeProc) -> None:
    """The fields are counted from the last parenthesis."""
    proc.put(20, SUPERVISOR, started=7, ticks=TICKS, pages=3, name=name)
    assert tree(proc).stat(20) == Stat(SUPERVISOR, 7, 1000.0, 3 * PAGE)


@pytest.mark.parametrize("text", [b"", b"20 (x", b"20 (x) S 1 2", b"20 (x) S a " + b"b " * 30])
def test_a_stat_that_makes_no_sense_is_none(text: bytes) -> None:
    """Cut, empty, not numbers."""
    assert parse_stat(text) is None


def test_a_process_that_is_gone_answers_nothing(proc: FakeProc) -> None:
    """Between listing and reading it may end."""
    found = tree(proc)
    assert (found.stat(99), found.command(99), found.holds_gpu(99)) == (None, [], False)


def test_command_lines_are_split_and_bounded(proc: FakeProc) -> None:
    """As the kernel has them, with bytes that are no UTF-8 replaced; a kernel thread has none."""
    proc.put(20, SUPERVISOR)
    proc.command(20, "python", "t.py", "a b")
    (proc.path / "10" / "cmdline").write_bytes(b"\xff\0")
    (proc.path / "1" / "cmdline").write_bytes(b"")
    found = tree(proc)
    assert [found.command(pid) for pid in (20, 10, 1)] == [["python", "t.py", "a b"], ["\ufffd"], []]


@pytest.mark.parametrize(
    ("target", "holds"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidiactl", True),
        ("/dev/kfd", True),
        ("/dev/null", False),
        ("pipe:[7]", False),
    ],
)
def test_a_process_with_a_gpu_open_can_be_told(target: str, holds: object, proc: FakeProc) -> None:
    """By its file descriptors: in a container that is what makes a pid trustworthy."""
    proc.opens(SUPERVISOR, target)
    assert tree(proc).holds_gpu(SUPERVISOR) is holds


def test_it_finds_a_real_child() -> None:
    """On this machine, against the real /proc."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "mark"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        found = ProcessTree(os.getpid())
        assert child.pid in {member.pid for member in found.scan(0)}
        assert found.command(child.pid)[-1] == "mark"
        child.communicate()


# CPU time and memory of the run's processes


def test_use_is_the_difference_of_two_looks(proc: FakeProc) -> None:
    """50 ticks in 2 s are half a second of CPU; a process appears with its second look."""
    proc.put(20, SUPERVISOR, ticks=100, pages=10)
    found = tree(proc)
    use = ProcessUse(found)
    found.scan(0)
    assert use.read(10 * S) == []
    proc.put(20, SUPERVISOR, ticks=150, pages=20)
    assert use.read(12 * S) == [UseReading(12 * S, 2 * S, 20, 50 * 1000 / TICKS, 20 * PAGE)]


def test_a_process_that_ended_or_was_replaced_has_no_reading(proc: FakeProc) -> None:
    """Its CPU time is not somebody else's."""
    proc.put(20, SUPERVISOR, ticks=100)
    proc.put(30, SUPERVISOR, ticks=100)
    found = tree(proc)
    use = ProcessUse(found)
    found.scan(0)
    use.read(S)
    proc.end(20)
    proc.put(30, 1, started=99, ticks=1)
    assert use.read(2 * S) == []


# the host


STAT = "cpu  {busy} 0 0 {idle} {wait} 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
DISKS = """\
   8       0 sda 10 0 {read} 0 5 0 {written} 0 0 0 0
   8       1 sda1 10 0 {read} 0 5 0 {written} 0 0 0 0
   7       0 loop0 10 0 999999 0 5 0 0 0 0 0 0
 253       0 dm-0 10 0 999999 0 5 0 0 0 0 0 0
"""
NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999999 9 0 0 0 0 0 0 999999 9 0 0 0 0 0 0
  eth0: {received} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0
veth12: 999999 9 0 0 0 0 0 0 999999 9 0 0 0 0 0 0
"""
MEMORY = "MemTotal:       2000 kB\nMemFree: 100 kB\nMemAvailable:    500 kB\nHugePages_Total:       0\n"


def host(folder: Path, **values: Any) -> HostLoad:
    """A host's counters as files, and its reader."""
    (folder / "proc/net").mkdir(parents=True, exist_ok=True)
    for name in ("sda", "loop0", "dm-0"):
        (folder / "block" / name).mkdir(parents=True, exist_ok=True)
    write_host(folder, **values)
    return HostLoad(folder / "proc", folder / "block")


def write_host(
    folder: Path,
    *,
    busy: int = 0,
    idle: int = 0,
    wait: int = 0,
    read: int = 0,
    written: int = 0,
    net: int = 0,
) -> None:
    (folder / "proc/stat").write_text(STAT.format(busy=busy, idle=idle, wait=wait))
    (folder / "proc/meminfo").write_text(MEMORY)
    (folder / "proc/diskstats").write_text(DISKS.format(read=read, written=written))
    (folder / "proc/net/dev").write_text(NET.format(received=net, sent=2 * net))


def test_load_is_what_was_added_since_the_last_look(tmp_path: Path) -> None:
    """30 of 100 ticks busy, 20 waiting for a disk; 512-byte sectors; memory that is not available is in use."""
    load = host(tmp_path, busy=1000, idle=1000, wait=1000, read=100, written=100, net=5000)
    assert load.read(S) is None
    write_host(tmp_path, busy=1030, idle=1050, wait=1020, read=102, written=105, net=5600)
    assert load.read(3 * S) == LoadReading(
        t_ns=3 * S,
        window_ns=2 * S,
        cpu_pct=30.0,
        io_wait_pct=20.0,
        mem_used_b=1500 * 1024,
        mem_total_b=2000 * 1024,
        disk_read_b=2 * 512,
        disk_written_b=5 * 512,
        net_received_b=600,
        net_sent_b=1200,
    )


def test_a_counter_that_begins_anew_is_missing_once(tmp_path: Path) -> None:
    """A network card that was plugged out and in: not a negative number of bytes."""
    load = host(tmp_path, busy=10, idle=10, net=5000)
    load.read(S)
    write_host(tmp_path, busy=20, idle=20, net=100)
    reading = load.read(2 * S)
    assert reading is not None
    assert (reading.net_received_b, reading.cpu_pct) == (None, 50.0)


def test_what_a_host_does_not_have_is_null(tmp_path: Path) -> None:
    """A sandbox without diskstats and network, even without /proc."""
    load = host(tmp_path)
    (tmp_path / "proc/diskstats").unlink()
    (tmp_path / "proc/net/dev").unlink()
    (tmp_path / "proc/meminfo").write_text("nonsense\n")
    load.read(S)
    assert load.read(2 * S) == LoadReading(2 * S, S, None, None, None, None, None, None, None, None)
    empty = HostLoad(tmp_path / "nowhere", tmp_path / "nowhere")
    empty.read(S)
    assert empty.read(2 * S) == LoadReading(2 * S, S, None, None, None, None, None, None, None, None)


def test_two_looks_at_one_instant_give_nothing(tmp_path: Path) -> None:
    """A rate over no time is no rate."""
    load = host(tmp_path)
    load.read(S)
    assert load.read(S) is None


def test_this_host_can_be_read() -> None:
    """The real /proc: shares are shares, memory is not more than there is."""
    load = HostLoad()
    load.read(1)
    reading = load.read(2)
    assert reading is not None
    assert reading.mem_used_b is None or (reading.mem_total_b or 0) >= reading.mem_used_b > 0
    assert reading.cpu_pct is None or 0 <= reading.cpu_pct <= 100
