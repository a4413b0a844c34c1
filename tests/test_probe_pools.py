"""Reward workers: what is submitted comes back unchanged, and every job is in the recording, timed where it ran."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from probed import Probed, run_probed

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("fork", "spawn", "forkserver")
HEAD = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
import dipstick_probe as dipstick
def double(x): return 2 * x
def pid(x): time.sleep(0.02); return os.getpid()
def fail(x): raise ValueError(f"no {x}")
def big(n): return bytes(n)
CONTEXT = multiprocessing.get_context(sys.argv[1] if len(sys.argv) > 1 else "fork")
"""


def pool_script(body: str) -> str:
    """A script whose main part is guarded, as spawn needs it."""
    return (
        HEAD
        + "if __name__ == '__main__':\n"
        + "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    )


def run_pool(tmp_path: Path, body: str, *arguments: str, **extra: str) -> Probed:
    """Run it; the probe must not have had any trouble of its own."""
    done = run_probed(tmp_path, pool_script(body), *arguments, **extra)
    assert done.troubles() == []
    return done


@pytest.mark.parametrize("method", METHODS)
def test_an_executor(tmp_path: Path, method: str) -> None:
    """Three calls and a failing one: results and exception as without us; four jobs, by the workers' pids, inside `reward`."""
    done = run_pool(
        tmp_path,
        """
with dipstick.span("reward"), ProcessPoolExecutor(2, mp_context=CONTEXT) as pool:
    futures = [pool.submit(pid, x) for x in range(3)]
    print(len({f.result() for f in futures} - {os.getpid()}) > 0)
    error = pool.submit(fail, 7).exception()
    print(type(error).__name__, error)
print(*sorted({f.result() for f in futures}))
""",
        method,
    )
    jobs = done.jobs()
    lines = done.out.splitlines()
    assert lines[:2] == ["True", "ValueError no 7"]
    assert (len(jobs), done.status) == (4, 0)
    assert {str(job["pid"]) for job in jobs.values() if "detail" not in job} == set(lines[2].split())
    assert [job["detail"] for job in jobs.values() if "detail" in job] == ["raised ValueError"]
    assert all(job["submitted"] <= job["a"] <= job["b"] for job in jobs.values())
    assert all(job["b"] - job["a"] >= 20_000_000 for job in jobs.values() if "detail" not in job)
    roles = {
        segment.of("meta")[-1].get("role")
        for segment in done.segments
        if segment.of("job") and segment is not done.main
    }
    assert roles == {"reward_worker"}


CALLS = {
    "pool.map(double, range(7), chunksize=2)": 7,
    "pool.map_async(double, range(3)).get()": 3,
    "pool.starmap(divmod, [(7, 2), (9, 4)])": 2,
    "pool.starmap_async(divmod, [(7, 2)]).get()": 1,
    "list(pool.imap(double, range(5), chunksize=2))": 5,
    "sorted(pool.imap_unordered(double, range(4)))": 4,
    "pool.apply_async(double, (4,)).get()": 1,
    "pool.apply(double, args=(4,))": 1,
    "pool.apply_async(func=double, args=(4,)).get()": 1,
}
"""Every way to hand work to a ``multiprocessing.Pool``, and how many jobs it is."""


@pytest.mark.parametrize("method", METHODS)
def test_a_multiprocessing_pool(tmp_path: Path, method: str) -> None:
    """One job an item, whatever the call and its chunks; ``with Pool`` kills its workers at the end, and no job is lost by it."""
    body = "with CONTEXT.Pool(2) as pool:\n" + "\n".join(f"    print({call})" for call in CALLS)
    done = run_pool(tmp_path, body, method)
    doubled = [str([2 * x for x in range(n)]) for n in (7, 3, 5, 4)]
    values = [doubled[0], doubled[1], "[(3, 1), (2, 1)]", "[(3, 1)]", doubled[2], doubled[3], "8", "8", "8"]
    by_call = Counter(int(re.findall(r"-\d+-\d+\.(\d+)", job)[0]) for job in done.jobs())
    assert done.out.splitlines() == values
    assert [by_call[call] for call in sorted(by_call)] == list(CALLS.values())


def test_a_map_of_an_executor_is_one_job_an_item(tmp_path: Path) -> None:
    """Whatever the chunks; each with the time of the map's submission and its share of the chunk's bytes."""
    body = "with ProcessPoolExecutor(2) as pool: print(list(pool.map(double, range(7), chunksize=3)))"
    done = run_pool(tmp_path, body)
    jobs = done.jobs().values()
    assert (done.out, len(jobs), len({job["submitted"] for job in jobs})) == (
        "[0, 2, 4, 6, 8, 10, 12]\n",
        7,
        1,
    )


def test_bytes_both_ways(tmp_path: Path) -> None:
    """The payload is what pickle makes of the call (within 5 %, and 100 bytes for the pool's own envelope), the result likewise."""
    body = """
with ProcessPoolExecutor(1) as pool:
    print(len(pool.submit(big, 1_000_000).result()), len(pool.submit(len, b"x" * 300_000).__class__.__name__))
"""
    jobs = list(run_pool(tmp_path, body).jobs().values())
    sizes = [(job["payload_b"], job["result_b"]) for job in jobs]
    assert [(round(a, -5), round(b, -5)) for a, b in sizes] == [(0, 1_000_000), (300_000, 0)]
    assert sizes[0][0] <= len(pickle.dumps((big_stand_in, 1_000_000))) + 100


def big_stand_in(n: int) -> bytes:
    """As long a name as the script's ``big``, more or less: what its pickle weighs."""
    return bytes(n)


def test_a_large_result_arrives_whole(tmp_path: Path) -> None:
    """16 MiB, more than any pipe holds."""
    body = "with ProcessPoolExecutor(1) as pool: print(len(pool.submit(big, 1 << 24).result()))"
    done = run_pool(tmp_path, body)
    assert (done.out, [job["result_b"] >> 20 for job in done.jobs().values()]) == ("16777216\n", [16])


def test_what_the_reward_handed_over(tmp_path: Path) -> None:
    """One hand-over a step and call site: count, kinds, bytes, file and line; the reward's span holds the sums, too."""
    body = """
with dipstick.span("reward"):
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(len, ["text"] * n) for n in range(1, 6)]
        print([job.result() for job in jobs])
"""
    done = run_pool(tmp_path, body)
    (row,) = [row for row in done.main.of("handoff") if row["to"] == "workers"]
    assert (row["from"], row["count"], row["types"], row["device"], row["transport"]) == (
        "reward", 5, "list[str]", "host", "pickle",
    )  # fmt: skip
    assert (row["f"], row["bytes"]) == (
        str(tmp_path / "script.py"),
        sum(job["payload_b"] for job in done.jobs().values()),
    )
    span = done.main.span("reward")
    assert (span["x"]["jobs"], span["x"]["pickled_b"]) == (5, row["bytes"])
    back = [r for segment in done.segments[1:] for r in segment.of("handoff")]
    assert (sum(r["count"] for r in back), {(r["from"], r["to"], r["types"]) for r in back}) == (
        5,
        {("workers", "reward", "int")},
    )


def test_work_that_is_no_reward(tmp_path: Path) -> None:
    """Outside any span it is the program's own, and its worker is just a worker."""
    done = run_pool(tmp_path, "with ProcessPoolExecutor(1) as pool: print(pool.submit(double, 1).result())")
    roles = [segment.of("meta")[-1].get("role") for segment in done.segments[1:]]
    assert ([row["from"] for row in done.main.of("handoff")], roles) == (["main"], ["worker"])


def test_asyncio_hands_over_through_an_executor(tmp_path: Path) -> None:
    """``run_in_executor`` submits; the call site is the user's line."""
    body = """
import asyncio
async def main():
    with dipstick.span("reward"):
        with ProcessPoolExecutor(1) as pool:
            return await asyncio.get_running_loop().run_in_executor(pool, double, 21)
print(asyncio.run(main()))
"""
    done = run_pool(tmp_path, body)
    (row,) = done.main.of("handoff")
    assert (done.out, row["f"], len(done.jobs())) == ("42\n", str(tmp_path / "script.py"), 1)


def test_threads_are_no_workers(tmp_path: Path) -> None:
    """A ThreadPool is a Pool, but nothing crosses: its calls are left alone."""
    body = """
from multiprocessing.pool import ThreadPool
from concurrent.futures import ThreadPoolExecutor
with ThreadPool(2) as pool: print(pool.map(double, range(3)))
with ThreadPoolExecutor(2) as pool: print(list(pool.map(double, range(3))))
"""
    done = run_pool(tmp_path, body)
    assert (done.out, done.of("job")) == ("[0, 2, 4]\n[0, 2, 4]\n", [])


def test_workers_without_the_probe_run_the_bare_function(tmp_path: Path) -> None:
    """PYTHONPATH emptied before the pool starts: results are the same, and the times are the parent's."""
    body = """
os.environ.pop("PYTHONPATH")
with ProcessPoolExecutor(1, mp_context=CONTEXT) as pool:
    print(pool.submit(double, 21).result(), list(pool.map(double, range(3))))
"""
    done = run_pool(tmp_path, body, "spawn")
    jobs = list(done.jobs().values())
    assert (done.status, done.out, done.err) == (0, "42 [0, 2, 4]\n", "")
    assert {(job["pid"], job["payload_types"], job["detail"]) for job in jobs[:1]} == {
        (0, "int", "queue and run: seen from the parent")
    }
    assert all(job["a"] == job["submitted"] <= job["b"] for job in jobs)


def test_disabled_workers_run_the_bare_function(tmp_path: Path) -> None:
    """DIPSTICK_DISABLE=1 for the workers alone: they unpickle the job, run it and say nothing."""
    body = """
os.environ["DIPSTICK_DISABLE"] = "1"
with ProcessPoolExecutor(1, mp_context=CONTEXT) as pool: print(pool.submit(double, 21).result())
"""
    done = run_pool(tmp_path, body, "spawn")
    assert (done.out, len(done.segments), done.jobs()) == ("42\n", 1, {})


def test_hostile_payloads(tmp_path: Path) -> None:
    """Objects that raise in ``__repr__``, lie about themselves or cannot be pickled: the program sees what it would without us."""
    body = """
class Loud:
    def __repr__(self): raise SystemExit("repr ran")
    __str__ = __len__ = __iter__ = __bool__ = __eq__ = __repr__
    __hash__ = None
class Torn:
    def __reduce__(self): raise RuntimeError("torn")
with dipstick.span("reward"), ProcessPoolExecutor(1) as pool:
    print(type(pool.submit(type, Loud()).result()).__name__)
    for bad in (lambda: 1, ):
        print(type(pool.submit(bad).exception()).__name__)
    print(type(pool.submit(double, Torn()).exception()).__name__)
    print(pool.submit(double, 21).result())
try:
    pool.submit(double, 1)
except RuntimeError as error:
    print(error)
try:
    pool.submit()
except TypeError as error:
    print("TypeError")
"""
    done, bare = (
        run_probed(tmp_path, pool_script(body), **extra) for extra in ({}, {"DIPSTICK_DISABLE": "1"})
    )
    assert (done.out, done.status) == (bare.out, bare.status)
    assert done.out.splitlines()[-3:] == ["42", "cannot schedule new futures after shutdown", "TypeError"]
    assert done.troubles() == []


def test_a_worker_that_is_killed_breaks_the_pool_as_it_would(tmp_path: Path) -> None:
    """The job that killed it has no end; the ones before it are recorded."""
    body = """
with ProcessPoolExecutor(1) as pool:
    print(pool.submit(double, 1).result())
    print(type(pool.submit(os._exit, 3).exception()).__name__)
"""
    done = run_pool(tmp_path, body)
    assert (done.out, len(done.jobs()), len({row["job"] for row in done.of("job")})) == (
        "2\nBrokenProcessPool\n",
        1,
        2,
    )


def test_shared_memory_crosses_as_a_handle(tmp_path: Path) -> None:
    """The pickle weighs next to nothing, and the hand-over names the other way."""
    body = """
from multiprocessing.shared_memory import SharedMemory
block = SharedMemory(create=True, size=1_000_000)
with dipstick.span("reward"), ProcessPoolExecutor(1) as pool:
    print(pool.submit(size_of, block).result())
block.close(); block.unlink()
"""
    code = pool_script(body).replace(
        "CONTEXT =", "def size_of(block): return block.size >= 1_000_000\nCONTEXT ="
    )
    done = run_probed(tmp_path, code)
    (row,) = [row for row in done.main.of("handoff") if row["to"] == "workers"]
    assert (done.out, row["transport"], row["bytes"] < 1000) == ("True\n", "pickle+shared_memory", True)


def test_a_job_knows_the_step_of_its_submission(tmp_path: Path) -> None:
    """The worker has no steps of its own: it takes the trainer's."""
    body = """
from dipstick_probe import steps
with ProcessPoolExecutor(1) as pool:
    for number in (3, 4):
        steps.begin(number)
        pool.submit(double, number).result()
        steps.end()
"""
    done = run_pool(tmp_path, body)
    assert [job["step"] for job in done.jobs().values()] == [3, 4]
    assert [(row["n"], row["step"]) for row in done.main.of("span")] == [("step", 3), ("step", 4)]


def test_hooks_off_the_pool_is_as_it_was(tmp_path: Path) -> None:
    """After ``stop`` the methods are the standard library's own objects."""
    body = """
import inspect
from multiprocessing.reduction import ForkingPickler
from multiprocessing.pool import Pool
from dipstick_probe import boot
wrapped = [f.__wrapped__ is not None for f in (ProcessPoolExecutor.submit, Pool.map)]
boot.stop()
print(wrapped, [hasattr(f, "__wrapped__") for f in (ProcessPoolExecutor.submit, Pool.map, ForkingPickler.dumps, ForkingPickler.loads)])
with ProcessPoolExecutor(1) as pool: print(pool.submit(double, 2).result())
"""
    done = run_pool(tmp_path, body)
    assert done.out == "[True, True] [False, False, False, False]\n4\n"
    assert (done.main.rows[-1]["k"], done.jobs()) == ("end", {})


def test_results_are_what_they_are_without_us(tmp_path: Path) -> None:
    """The same seeded work, recorded and not, gives the same bytes."""
    body = """
import hashlib, random
def scores(seed): return [random.Random(seed).random() for _ in range(1000)]
"""
    code = HEAD + body + (
        "if __name__ == '__main__':\n"
        "    with CONTEXT.Pool(2) as pool, ProcessPoolExecutor(2, mp_context=CONTEXT) as other:\n"
        "        found = pool.map(scores, range(20)) + list(other.map(scores, range(20)))\n"
        "    print(hashlib.sha256(repr(found).encode()).hexdigest())\n"
    )  # fmt: skip
    digests: list[Any] = [
        run_probed(tmp_path, code, **extra).out for extra in ({}, {"DIPSTICK_DISABLE": "1"})
    ]
    assert digests[0] == digests[1] != ""


OWN_EXECUTOR = """
import threading, queue
from concurrent.futures import Executor, Future
class Mine(Executor):
    def __init__(self):
        self.calls, self.inner = queue.SimpleQueue(), ProcessPoolExecutor(1, mp_context=CONTEXT)
        self.thread = threading.Thread(target=self.serve); self.thread.start()
    def serve(self):
        while (call := self.calls.get()) is not None:
            future, fn, args = call
            future.set_result(self.inner.submit(fn, *args).result())
    def submit(self, fn, /, *args):
        future = Future(); self.calls.put((future, fn, args)); return future
    def shutdown(self, wait=True, **_):
        self.calls.put(None); self.thread.join(); self.inner.shutdown()
"""


def test_an_executor_of_the_users_own(tmp_path: Path) -> None:
    """It queues for a known pool from a thread of its own: submitted when and in the phase where the user did."""
    done = run_pool(
        tmp_path,
        OWN_EXECUTOR
        + """
with Mine() as pool:
    with dipstick.span("reward"):
        futures = [pool.submit(pid, x) for x in range(4)]
        print(len([f.result() for f in futures]))
    print(pool.submit(double, 21).result(), len(sys.modules["dipstick_probe.hooks.pools"]._promises))
""",
        "spawn",
    )
    assert done.out.splitlines() == ["4", "42 0"]
    jobs = sorted(done.jobs().values(), key=lambda job: int(job["a"]))
    first = jobs[:4]
    assert (
        max(job["submitted"] for job in first) < first[0]["b"] < first[1]["b"] < first[2]["b"] < first[3]["b"]
    )
    assert len({job["pid"] for job in jobs}) == 1
    roles = {s.of("meta")[-1].get("role") for s in done.segments if s.of("job") and s is not done.main}
    assert roles == {"reward_worker"}
