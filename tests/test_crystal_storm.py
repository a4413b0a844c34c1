"""Chaos in the worker pool: many workers misbehaving at once, killed from outside, and every schedule of failures.

Whatever happens: exactly one result a task, in order; never a wrong score; one retry; the pool serves on.
"""

from __future__ import annotations

import math
import os
import random
import signal
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crystal_fakes as fakes
from crystal_rl import dispatch
from crystal_rl.messages import Result, Task
from crystal_rl.pool import WorkerPool
from crystal_rl.worker import Plan, make_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONCE = (fakes.die, fakes.leave, fakes.poison, fakes.nonsense, fakes.other_id, fakes.not_finite, fakes.fail)
ALWAYS = (fakes.die, fakes.fail, fakes.nonsense)


def seconds(task: Task) -> float:
    return task.deadline_s


def pool_of(workers: int) -> WorkerPool:
    return WorkerPool(workers, start=fakes.start, hello=fakes.hello, limit=seconds)


class Weather:
    """What each task does to its worker: picklable, one for all tasks."""

    def __init__(self, tricks: dict[str, Callable[[Task], Any]]) -> None:
        self.tricks = tricks

    def __call__(self, task: Task) -> Any:
        """Run in a worker."""
        return self.tricks.get(task.id, fakes.good)(task)


# --- storms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_storm_each_task_still_ends_once_and_rightly(tmp_path: Path, seed: int) -> None:
    """Of 24 tasks over three workers 7 misbehave once, one of them by hanging, and 3 always: only these are lost."""
    dice = random.Random(seed)  # noqa: S311 - the same storm each time
    names = [f"t{i}" for i in range(24)]
    unlucky = dice.sample(names, 11)
    once, always, hangs = unlucky[:7], unlucky[7:10], unlucky[10]
    tricks: dict[str, Callable[[Task], Any]] = {
        name: fakes.Once(dice.choice(ONCE), tmp_path / "m") for name in once
    }
    tricks |= {name: dice.choice(ALWAYS) for name in always} | {hangs: fakes.Once(fakes.hang, tmp_path / "m")}
    tasks = [
        fakes.task(name, percent=i % 10, deadline_s=1.0 if name == hangs else 60.0)
        for i, name in enumerate(names)
    ]
    with pool_of(3) as pool:
        results = dispatch.score_all(tasks, pool, run=Weather(tricks))
        after = dispatch.score_all([fakes.task(f"u{i}") for i in range(6)], pool, run=fakes.good)

    assert [r.id for r in results] == names
    assert {r.id for r in results if r.code == "worker_lost"} == set(always)
    wanted = [None if name in always else i % 10 / 10 for i, name in enumerate(names)]
    assert [r.reward for r in results] == wanted
    assert [r.reward for r in after] == [0.1] * 6
    assert pool.tally.counts["hung"] == 1
    assert pool.tally.counts["started"] == 3 + pool.tally.counts["died"] + pool.tally.counts["hung"]


def test_all_workers_dying_at_once_and_again_lose_nothing_that_can_be_done(tmp_path: Path) -> None:
    """Each of the first tasks takes its worker with it; the second attempts are answered."""
    with pool_of(3) as pool:
        run = fakes.Once(fakes.die, tmp_path / "m")
        for round_ in range(2):
            results = dispatch.score_all([fakes.task(f"r{round_}.{i}") for i in range(3)], pool, run=run)
            assert [r.reward for r in results] == [0.1] * 3
        assert pool.tally.counts["died"] == 6


def test_only_lost_tasks_are_without_a_reward_and_say_why() -> None:
    """The message names the last thing that went wrong, once; the code is stable."""
    tricks = {"a": fakes.fail, "b": fakes.nonsense, "c": fakes.other_id, "d": fakes.not_finite}
    with ThreadPoolExecutor(2) as threads:
        results = dispatch.score_all([fakes.task(n) for n in "abcde"], threads, run=Weather(dict(tricks)))
    assert [r.code for r in results] == ["worker_lost"] * 4 + [None]
    messages = [r.message or "" for r in results]
    assert messages[0] == "2 attempts: MemoryError: out of memory"
    assert messages[1] == "2 attempts: an answer that is none: {'reward': 1.0}"
    assert all("an answer that is none: Result(id=" in message for message in messages[2:4])
    assert max(map(len, messages)) < 300


# --- from outside ------------------------------------------------------------------------------------------------


def announced(pool: WorkerPool, fifo: Path, deadline_s: float = 60.0) -> tuple[Future[Any], int]:
    """A task under way, and the process that runs it."""
    os.mkfifo(fifo)
    future: Future[Any] = pool.submit(fakes.Announce(fifo), fakes.task("a", deadline_s=deadline_s))
    return future, int(fifo.read_text())


def test_a_worker_killed_from_outside_in_the_middle_of_a_task(tmp_path: Path) -> None:
    """The kernel's out-of-memory killer, an operator: the task runs again, in another process."""
    with pool_of(1) as pool, ThreadPoolExecutor(1) as trainer:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        run = fakes.Announce(fifo)
        scoring = trainer.submit(dispatch.score_all, [fakes.task("a", percent=7)], pool, run=run)
        pid = int(fifo.read_text())
        os.kill(pid, signal.SIGKILL)
        assert [r.reward for r in scoring.result()] == [0.7]
        assert pool.tally.hellos[0][1] != pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_however_a_worker_ends_it_counts_as_dead(tmp_path: Path, number: signal.Signals) -> None:
    """A fault in native code, a polite end: the future says so and the next task is served."""
    with pool_of(1) as pool:
        future, pid = announced(pool, tmp_path / "fifo")
        os.kill(pid, number)
        assert "died" in str(future.exception())
        assert pool.submit(fakes.good, fakes.task("b")).result().reward == 0.1


def test_a_worker_stopped_from_outside_is_replaced_at_its_limit(tmp_path: Path) -> None:
    """SIGSTOP: alive for the system, dead for us; what it would say after SIGCONT reaches nobody."""
    with pool_of(1) as pool:
        future, pid = announced(pool, tmp_path / "fifo", deadline_s=0.5)
        os.kill(pid, signal.SIGSTOP)
        assert "gave no answer in 0.5 s" in str(future.exception())
        assert pool.submit(fakes.good, fakes.task("b")).result().id == "b"
        assert pid not in children()


def test_ctrl_c_reaches_the_group_and_the_worker_works_on(tmp_path: Path) -> None:
    """A modification worker ignores SIGINT: the trainer ends it in its own time."""
    with make_pool(Plan("fake", load=fakes.load_fake), 1) as pool:
        (said,) = pool.wait_ready()
        os.kill(said.pid, signal.SIGINT)
        (result,) = dispatch.score_all([fakes.task("a")], pool, run=fakes.Mark(tmp_path))
        assert (result.reward, pool.tally.counts["died"]) == (0.1, 0)


# --- as an executor ----------------------------------------------------------------------------------------------


def test_a_call_that_was_cancelled_in_the_queue_is_never_run(tmp_path: Path) -> None:
    """One worker: the first call holds it, the second is cancelled, the third runs."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pool_of(1) as pool:
        first = pool.submit(fakes.Block(fifo), fakes.task("a"))
        second, third = (pool.submit(fakes.Mark(tmp_path), fakes.task(name)) for name in ("b", "c"))
        assert second.cancel()
        fifo.write_text("go")
        assert (first.result().id, third.result().id) == ("a", "c")
    assert not (tmp_path / "b").exists()


def test_a_plain_shutdown_finishes_what_was_queued() -> None:
    """As the standard library's: only ``cancel_futures`` drops calls."""
    pool = pool_of(2)
    futures = [pool.submit(fakes.good, fakes.task(f"t{i}", percent=i)) for i in range(8)]
    pool.shutdown()
    assert [future.result().reward for future in futures] == [i / 10 for i in range(8)]


def test_a_shutdown_can_be_repeated() -> None:
    """By the with statement after an explicit one, or in a finally."""
    with pool_of(1) as pool:
        pool.wait_ready()
        pool.shutdown(cancel_futures=True)
        pool.shutdown()


def test_threads_may_share_a_pool() -> None:
    """Four of them, ten tasks each: everybody gets the answers to their own."""
    with pool_of(2) as pool, ThreadPoolExecutor(4) as threads:

        def ask(who: int) -> list[tuple[str, float | None]]:
            tasks = [fakes.task(f"{who}.{i}", percent=i) for i in range(10)]
            return [(r.id, r.reward) for r in dispatch.score_all(tasks, pool, run=fakes.good)]

        found = list(threads.map(ask, range(4)))
    assert found == [[(f"{who}.{i}", i / 10) for i in range(10)] for who in range(4)]


def test_a_replaced_worker_keeps_its_number_and_says_hello_again(tmp_path: Path) -> None:
    """So that what a worker is asked to be (a straggler, say) survives its death."""
    with pool_of(2) as pool:
        before = {number: pid for number, (_, pid) in enumerate(pool.wait_ready())}
        run = fakes.Once(fakes.die, tmp_path / "m")
        dispatch.score_all([fakes.task(f"t{i}") for i in range(4)], pool, run=run)
    after = pool.tally.hellos
    assert sorted(after) == [0, 1]
    assert [number for number, _ in after.values()] == list(after)
    assert {pid for _, pid in after.values()} != set(before.values())


# --- every schedule of failures, without processes ---------------------------------------------------------------

OUTCOMES: dict[str, Callable[[Task], Any]] = {
    "ok": fakes.good,
    "bad chemistry": lambda task: Result(task.id, ok=False, reward=-0.6, code="too_close"),
    "raises": fakes.fail,
    "nonsense": fakes.nonsense,
    "another's": fakes.other_id,
    "nan": fakes.not_finite,
    "infinite": lambda task: Result(task.id, ok=True, reward=math.inf),
    "too good": lambda task: Result(task.id, ok=True, reward=1.01),
    "too bad": lambda task: Result(task.id, ok=False, reward=-1.5),
    "no number": lambda task: Result(task.id, ok=True, reward="1"),  # type: ignore[arg-type]
    "whole number": lambda task: Result(task.id, ok=True, reward=1),
    "none": lambda task: Result(task.id, ok=True, reward=None),
    "silence": lambda _: None,
}
SOUND = {"ok", "bad chemistry"}


class Scripted(Executor):
    """Runs at once; the n-th attempt at a task ends as the script of that task says."""

    def __init__(self, script: dict[str, tuple[str, ...]]) -> None:
        self.script = script
        self.attempts: dict[str, int] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future is done already."""
        del fn, kwargs
        (task,) = args
        number = self.attempts[task.id] = self.attempts.get(task.id, 0) + 1
        future: Future[Any] = Future()
        try:
            future.set_result(OUTCOMES[self.script[task.id][number - 1]](task))
        except Exception as error:  # noqa: BLE001 - whatever the script raises
            future.set_exception(error)
        return future


@pytest.mark.parametrize(("first", "second"), list(product(OUTCOMES, OUTCOMES)))
def test_one_retry_and_never_a_wrong_score(first: str, second: str) -> None:
    """The first sound answer counts; a second unsound one ends the task without a reward; nobody is asked thrice."""
    executor = Scripted({"a": (first, second)})
    (result,) = dispatch.score_all([fakes.task("a")], executor)

    answered = first if first in SOUND else second
    assert executor.attempts["a"] == (1 if first in SOUND else 2)
    if answered in SOUND:
        assert result == OUTCOMES[answered](fakes.task("a"))
    else:
        assert (result.id, result.ok, result.reward, result.code) == ("a", False, None, "worker_lost")


scripts = st.lists(
    st.tuples(st.sampled_from(sorted(OUTCOMES)), st.sampled_from(sorted(OUTCOMES))), max_size=8
)


@given(scripts, st.booleans())
def test_results_keep_the_order_of_the_tasks_whoever_fails(
    script: list[tuple[str, str]],
    is_serial: bool,  # noqa: FBT001 - drawn
) -> None:
    """One each, under the task's own id; serial or not makes no difference to what is found."""
    executor = Scripted({f"t{i}": pair for i, pair in enumerate(script)})
    tasks = [fakes.task(f"t{i}") for i in range(len(script))]
    results = dispatch.score_all(tasks, executor, is_serial=is_serial)

    assert [r.id for r in results] == [task.id for task in tasks]
    assert [r.reward is None for r in results] == [not SOUND & set(pair) for pair in script]
    assert sum(executor.attempts.values()) == sum(1 if first in SOUND else 2 for first, _ in script)


def test_an_executor_that_is_broken_for_good_ends_the_run() -> None:
    """Not a task's fault: it would mask every sample from now on without a word."""

    class Broken(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            del fn, args, kwargs
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor("no worker comes up"))
            return future

    with pytest.raises(BrokenExecutor, match="no worker comes up"):
        dispatch.score_all([fakes.task("a")], Broken())


def test_no_tasks_no_results() -> None:
    """A step whose answers all failed to parse asks the workers nothing."""
    assert dispatch.score_all([], Scripted({})) == []


@pytest.fixture(autouse=True)
def nobody_is_left_behind() -> Iterator[None]:
    """After each of these tests no child of ours is alive: a leaked worker would hold its share of a GPU."""
    before = children()
    yield
    assert children() - before == set()


def children() -> set[int]:
    """Processes whose parent we are, but for the resource tracker that multiprocessing keeps."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if int(parent) == os.getpid() and state != "Z" and b"resource_tracker" not in command:
            found.add(int(stat.parent.name))
    return found
