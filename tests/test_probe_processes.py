"""Fork, spawn, exec, threads and kill -9: every process has its own segment, and what was flushed survives."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probed import FOLDER, Probed, environment, read, run_probed

HEAD = "import dipstick_probe as dipstick, os, sys, time\n"


def by_name(done: Probed) -> dict[str, int]:
    """Which process wrote each span."""
    return {row["n"]: segment.pid for segment in done.segments for row in segment.of("span")}


def test_a_forked_child_writes_its_own_segment(tmp_path: Path) -> None:
    """Made by its first row; the parent's rows stay the parent's, and both end in good order."""
    code = (
        HEAD
        + """
with dipstick.span("before"): pass
child = os.fork()
if not child:
    with dipstick.span("child"): pass
    sys.exit()
os.waitpid(child, 0)
with dipstick.span("after"): pass
"""
    )
    done = run_probed(tmp_path, code)
    assert [segment.names() for segment in done.segments] == [["before", "after"], ["child"]]
    assert done.segments[1].rows[0]["ppid"] == done.main.pid
    assert [segment.rows[-1]["k"] for segment in done.segments] == ["end", "end"]


def test_a_forked_child_that_records_nothing_leaves_no_file(tmp_path: Path) -> None:
    """Most forks exec or load data."""
    code = HEAD + "child = os.fork()\nif not child: sys.exit()\nos.waitpid(child, 0)\n"
    assert len(run_probed(tmp_path, code).segments) == 1


def test_a_span_that_is_open_at_the_fork_is_the_parents(tmp_path: Path) -> None:
    """The child leaves the same `with`, but does not write the span a second time."""
    code = (
        HEAD
        + """
with dipstick.span("open"):
    child = os.fork()
    if not child:
        with dipstick.span("inside"): pass
if child: os.waitpid(child, 0)
"""
    )
    done = run_probed(tmp_path, code)
    assert by_name(done) == {"open": done.main.pid, "inside": done.segments[1].pid}
    assert done.segments[1].span("inside")["p"] == "open"


def test_forks_of_forks_and_of_threads(tmp_path: Path) -> None:
    """Three generations, and a fork from a thread while another records: nobody hangs, nothing is lost or doubled."""
    code = (
        HEAD
        + """
import threading
done = threading.Event()
def record():
    while not done.is_set():
        with dipstick.span("busy"): time.sleep(0.001)
def fork(depth):
    child = os.fork()
    if not child:
        with dipstick.span(f"depth{depth}"): pass
        if depth < 3: fork(depth + 1)
        sys.exit()
    os.waitpid(child, 0)
recorder = threading.Thread(target=record); recorder.start()
forker = threading.Thread(target=fork, args=(1,)); forker.start(); forker.join()
done.set(); recorder.join()
"""
    )
    done = run_probed(tmp_path, code)
    names = [sorted(set(segment.names())) for segment in done.segments]
    assert (done.status, names) == (0, [["busy"], ["depth1"], ["depth2"], ["depth3"]])


def test_our_thread_causes_no_fork_warning(tmp_path: Path) -> None:
    """Python 3.12+ warns of forks in processes with threads; ours is stopped around a fork."""
    code = (
        HEAD
        + """
import warnings
warnings.simplefilter("error")
for i in range(3):
    with dipstick.span("row"): pass
    time.sleep(0.05)
    child = os.fork()
    if not child: os._exit(0)
    os.waitpid(child, 0)
print(len(os.listdir("/proc/self/task")))
"""
    )
    done = run_probed(tmp_path, code)
    assert (done.status, done.out, done.err, done.main.names()) == (0, "1\n", "", ["row"] * 3)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_end_in_good_order(tmp_path: Path, method: str) -> None:
    """They leave by ``os._exit``, which runs no ``atexit``; their segments end all the same."""
    code = (
        HEAD
        + """
import multiprocessing
def work():
    with dipstick.span("child"): pass
if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    process.start(); process.join()
"""
    )
    done = run_probed(tmp_path, code, method)
    (child,) = [segment for segment in done.segments if segment.names() == ["child"]]
    assert (child.rows[-1]["k"], child.pid != done.main.pid) == ("end", True)


def test_a_program_that_is_started_inherits_the_probe(tmp_path: Path) -> None:
    """By subprocess, from a shell: through the environment."""
    code = (
        HEAD
        + """
import subprocess
mark = "import dipstick_probe; dipstick_probe.instant('here')"
subprocess.run([sys.executable, "-c", mark], check=True)
subprocess.run(f"{sys.executable} -c \\"{mark}\\"", shell=True, check=True)
"""
    )
    done = run_probed(tmp_path, code)
    assert [segment.events() for segment in done.segments] == [[], ["here"], ["here"]]


def test_exec_starts_a_second_segment_of_the_same_process(tmp_path: Path) -> None:
    """Same pid, later start; what the first image had flushed is there."""
    code = (
        HEAD
        + """
if len(sys.argv) > 1:
    dipstick.instant("second")
else:
    dipstick.instant("first")
    time.sleep(0.8)
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
    )
    first, second = run_probed(tmp_path, code).segments
    assert (first.pid, first.events(), second.events()) == (second.pid, ["first"], ["second"])
    assert first.rows[0]["start"] < second.rows[0]["start"]


def test_a_disabled_child_is_left_alone(tmp_path: Path) -> None:
    """A sandbox gets DIPSTICK_DISABLE=1 and writes nothing, in a run that is recorded."""
    code = (
        HEAD
        + """
import subprocess
subprocess.run([sys.executable, "-c", "print(1)"], env={**os.environ, "DIPSTICK_DISABLE": "1"}, check=True)
"""
    )
    done = run_probed(tmp_path, code)
    assert (done.out, len(done.segments)) == ("1\n", 1)


def test_kill_9_loses_at_most_the_last_second(tmp_path: Path) -> None:
    """Rows that are a second old are on disk, in complete lines."""
    code = (
        HEAD
        + """
for i in range(100):
    with dipstick.span("old"): pass
time.sleep(1.0)
print("ready", flush=True)
for i in range(5):
    with dipstick.span("young"): pass
os.kill(os.getpid(), 9)
"""
    )
    done = run_probed(tmp_path, code)
    assert (done.status, done.out) == (-signal.SIGKILL, "ready\n")
    assert (done.main.names().count("old"), done.main.rows[-1]["k"] != "end") == (100, True)


def test_a_long_wait_is_flushed_too(tmp_path: Path) -> None:
    """Rows do not wait for the next row: a program that hangs in one call has shown what came before."""
    run = tmp_path / "run"
    run.mkdir()
    code = HEAD + "dipstick.instant('before')\nprint('hanging', flush=True)\ntime.sleep(60)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment(run), cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 20
        while read(run)[0].events() != ["before"] and time.monotonic() < deadline:
            os.sched_yield()
        assert read(run)[0].events() == ["before"]
    finally:
        process.kill()
        process.communicate()


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    """Eight threads, 2,000 spans each: all are there, each with its thread's id."""
    code = (
        HEAD
        + """
import threading
def work():
    for _ in range(2000):
        with dipstick.span("row"): pass
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    )
    rows = run_probed(tmp_path, code).main.of("span")
    assert (len(rows), len({row["tid"] for row in rows})) == (16_000, 8)


def test_signals_go_to_the_main_thread(tmp_path: Path) -> None:
    """Ctrl-C interrupts a sleeping main thread at once, with our thread running."""
    code = (
        HEAD
        + """
import signal, threading
dipstick.instant("starts the thread")
time.sleep(0.1)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try: time.sleep(30)
except KeyboardInterrupt: print("interrupted")
"""
    )
    done = run_probed(tmp_path, code)
    assert (done.status, done.out) == (0, "interrupted\n")


def test_a_program_that_closes_all_files(tmp_path: Path) -> None:
    """A daemon closes what it does not know and opens its own: it gets none of our lines, and we lose none."""
    code = (
        HEAD
        + """
dipstick.instant("before")
time.sleep(0.7)
os.closerange(3, 64)
theirs = [open(f"theirs{i}", "w+") for i in range(8)]
dipstick.instant("after")
time.sleep(0.7)
for file in theirs: assert file.read() == "", file.name
"""
    )
    done = run_probed(tmp_path, code)
    assert (done.status, done.err, done.main.events()) == (0, "", ["before", "after"])


def test_a_program_that_changes_folder_and_drops_the_path(tmp_path: Path) -> None:
    """Chdir and an emptied ``sys.path`` do not matter to a relative DIPSTICK_RUN_DIR."""
    (tmp_path / "run").mkdir()
    code = HEAD + "os.chdir('/')\nsys.path.clear()\ndipstick.instant('here')\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env=environment(Path("run")),
        capture_output=True,
    )
    assert (done.stderr, read(tmp_path / "run")[0].events()) == (b"", ["here"])


def other_pythons() -> list[str]:
    """Interpreters of other versions that this machine has, by pyenv or on the path."""
    known = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))]
    known += [f"/usr/bin/python3.{minor}" for minor in range(9, 16)]
    return [path for path in known if os.access(path, os.X_OK) and version(path) >= (3, 9)]


def version(path: str) -> tuple[int, ...]:
    out = subprocess.run(
        [path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return tuple(map(int, out.stdout.split())) if out.returncode == 0 else (0, 0)


@pytest.mark.parametrize("python", other_pythons() or [None])
def test_other_pythons(tmp_path: Path, python: str | None) -> None:
    """3.9 and newer: spans, a pool of spawned workers, a fork, a coroutine; no trouble and no warning."""
    if python is None:
        pytest.skip("this machine has no other Python of 3.9 or newer")
    code = (
        HEAD
        + """
import asyncio, warnings
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
async def main():
    async with dipstick.span("async"): await asyncio.sleep(0)
def work(x): return [x] * 3
if __name__ == "__main__":
    warnings.simplefilter("error")
    asyncio.run(main())
    time.sleep(0.1)
    child = os.fork()
    if not child:
        dipstick.instant("forked")
        sys.exit()
    os.waitpid(child, 0)
    with dipstick.span("reward"), ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(work, range(4))))
"""
    )
    done = run_probed(tmp_path, code, python=python)
    assert (done.status, done.err, done.out) == (0, "", f"{[[x] * 3 for x in range(4)]}\n")
    assert (len(done.jobs()), done.troubles()) == (4, [])
    assert {"async", "reward"} <= set(done.main.names())
    assert "forked" in [row["n"] for row in done.of("event")]


def test_the_probe_is_valid_python_3_9() -> None:
    """Every module compiles with the grammar of 3.9 (test_layers does so, too; this one names the rule)."""
    for path in FOLDER.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
