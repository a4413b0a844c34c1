"""The worker pool: whatever a worker does, each call ends once, and the others do not notice."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import crystal_fakes as fakes
from crystal_rl import dispatch, worker
from crystal_rl.messages import Hello, Result, Task
from crystal_rl.pool import WorkerLostError, WorkerPool, WorkersBrokenError, kill
from crystal_rl.worker import GRACE_S, Plan, Tail, limit, make_pool, planted_delay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK_S = 1.0
PLAN = Plan("fake", load=fakes.load_fake)


def seconds(task: Task) -> float:
    return task.deadline_s


def pool_of(workers: int, **more: Any) -> WorkerPool:
    given: dict[str, Any] = {"start": fakes.start, "hello": fakes.hello, "limit": seconds, **more}
    return WorkerPool(workers, **given)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Two workers that most tests share: what one test does to them must not hurt the next."""
    with pool_of(2) as made:
        yield made


def score(
    pool: WorkerPool, run: Callable[[Task], Any], *names: str, deadline_s: float = 60.0
) -> list[Result]:
    return dispatch.score_all([fakes.task(name, deadline_s=deadline_s) for name in names], pool, run=run)


def test_results_come_in_the_order_of_the_tasks(pool: WorkerPool) -> None:
    """Ten tasks over two workers, one result each, in order, with their own rewards."""
    tasks = [fakes.task(f"t{i}", percent=i) for i in range(10)]
    results = dispatch.score_all(tasks, pool, run=fakes.good)
    assert [(r.id, r.reward) for r in results] == [(f"t{i}", i / 10) for i in range(10)]


def test_every_worker_says_hello_before_the_first_task(pool: WorkerPool) -> None:
    """Workers are numbered processes of their own, up before anything is asked of them."""
    said = pool.wait_ready()
    assert [number for number, _ in said] == [0, 1]
    assert len({pid for _, pid in said} | {os.getpid()}) == 3


@pytest.mark.parametrize("trick", [fakes.die, fakes.leave, fakes.poison], ids=lambda t: t.__name__)
def test_a_dead_worker_costs_one_retry(
    pool: WorkerPool, tmp_path: Path, trick: Callable[[Task], Any]
) -> None:
    """Killed, a silent exit, an answer that cannot be read: the task is run again and scored as it deserves."""
    died = pool.tally.counts["died"]
    once = fakes.Once(trick, tmp_path / "m")
    assert [r.reward for r in score(pool, once, "a", "b", "c")] == [0.1, 0.1, 0.1]
    assert pool.tally.counts["died"] == died + 3


@pytest.mark.parametrize("trick", [fakes.hang, fakes.freeze], ids=lambda t: t.__name__)
def test_a_silent_worker_is_killed_at_its_limit(
    pool: WorkerPool, tmp_path: Path, trick: Callable[[Task], Any]
) -> None:
    """Deaf to SIGTERM or stopped altogether: killed, replaced, the task run again."""
    hung = pool.tally.counts["hung"]
    once = fakes.Once(trick, tmp_path / "m")
    (result,) = score(pool, once, "a", deadline_s=QUICK_S)
    assert (result.ok, result.reward) == (True, 0.1)
    assert pool.tally.counts["hung"] == hung + 1


@pytest.mark.parametrize(
    "trick",
    [fakes.die, fakes.fail, fakes.nonsense, fakes.other_id, fakes.not_finite, fakes.unpicklable],
    ids=lambda t: t.__name__,
)
def test_a_task_that_fails_twice_is_lost_without_a_reward(
    pool: WorkerPool, trick: Callable[[Task], Any]
) -> None:
    """Never a wrong score: no reward, the code ``worker_lost``, and a message that says why."""
    (result,) = score(pool, trick, "a")
    assert (result.id, result.ok, result.reward, result.code) == ("a", False, None, "worker_lost")
    assert result.message is not None
    assert result.message.startswith("2 attempts: ")


def test_a_worker_that_dies_leaves_its_neighbour_alone(pool: WorkerPool) -> None:
    """One task kills its worker each time; the other tasks never fail, whoever runs them."""
    tasks = [fakes.task(f"t{i}") for i in range(6)]
    futures: list[Future[Any]] = [
        pool.submit(fakes.die if i == 2 else fakes.good, t) for i, t in enumerate(tasks)
    ]
    outcomes = [type(future.exception()) for future in futures]
    assert outcomes == [WorkerLostError if i == 2 else type(None) for i in range(6)]


def test_workers_killed_while_idle_lose_no_task() -> None:
    """All of them at once, between two steps: the next tasks are scored as ever, by new processes."""
    with pool_of(2) as pool:
        old = [pid for _, pid in pool.wait_ready()]
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        assert [r.reward for r in score(pool, fakes.good, "a", "b", "c", "d")] == [0.1] * 4
        assert pool.submit(_who, fakes.task("e")).result()[1] not in old


def test_noise_on_stdout_is_no_answer_and_no_harm(pool: WorkerPool) -> None:
    """Messages travel over a pipe of their own."""
    assert [r.reward for r in score(pool, fakes.shout, "a")] == [0.1]


def test_an_error_of_the_function_is_the_futures(pool: WorkerPool) -> None:
    """As with every executor; the worker lives on."""
    started = pool.tally.counts["started"]
    with pytest.raises(MemoryError, match="out of memory"):
        pool.submit(fakes.fail, fakes.task("a")).result()
    assert pool.tally.counts["started"] == started


def test_a_late_answer_reaches_nobody() -> None:
    """The worker of a call that ran out of time is dead before the call is told, so it cannot answer afterwards."""
    with pool_of(1) as pool:
        ((_, pid),) = pool.wait_ready()
        with pytest.raises(WorkerLostError, match="gave no answer in 1 s"):
            pool.submit(fakes.hang, fakes.task("a", deadline_s=QUICK_S)).result()
        assert pool.submit(_who, fakes.task("b")).result()[1] != pid


def _who(task: Task) -> tuple[int, int]:
    del task
    return fakes.hello()


def test_a_worker_that_cannot_start_ends_the_pool_and_says_why() -> None:
    """Three tries, then every call fails with the reason: nothing waits for ever, nothing is masked in silence."""
    with pool_of(2, start=fakes.start_broken) as pool:
        queued = pool.submit(fakes.good, fakes.task("a"))
        with pytest.raises(WorkersBrokenError, match=r"did not start 3 times in a row: OSError\('no weights"):
            pool.wait_ready()
        with pytest.raises(WorkersBrokenError):
            queued.result()
        with pytest.raises(WorkersBrokenError):
            dispatch.score_all([fakes.task("b")], pool, run=fakes.good)


def test_a_start_that_never_ends_is_a_failure_too() -> None:
    """Its limit is its own, and longer than a task's."""
    with (
        pool_of(1, start=fakes.start_silent, start_limit_s=0.5) as pool,
        pytest.raises(WorkersBrokenError, match=r"no hello in 0\.5 s"),
    ):
        pool.wait_ready()


def test_shutdown_cancels_what_is_queued_and_refuses_more() -> None:
    """What runs is finished; the rest is cancelled; a new call is an error."""
    pool = pool_of(1)
    pool.wait_ready()
    futures = [pool.submit(fakes.good, fakes.task(f"t{i}")) for i in range(50)]
    pool.shutdown(cancel_futures=True)
    assert {future.cancelled() or future.result().reward == 0.1 for future in futures} == {True}
    assert futures[-1].cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(fakes.good, fakes.task("late"))


def test_no_worker_outlives_the_pool() -> None:
    """After shutdown the processes are gone."""
    with pool_of(2) as pool:
        pids = [pid for _, pid in pool.wait_ready()]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_pool_needs_a_worker() -> None:
    """Zero workers would wait for ever."""
    with pytest.raises(ValueError, match="0 workers"):
        pool_of(0)


def test_killing_ends_the_processes_of_an_executor() -> None:
    """The one place that reaches into the standard library's executor."""
    with ProcessPoolExecutor(1) as executor:
        pid = executor.submit(os.getpid).result()
        process = executor._processes[pid]
        kill(executor)
        process.join()
        assert process.exitcode == -signal.SIGKILL


# --- dispatch over any executor ----------------------------------------------------------------------------------


def test_any_executor_serves() -> None:
    """Threads do as well: a later pool needs nothing but ``submit``."""
    with ThreadPoolExecutor(2) as threads:
        results = dispatch.score_all([fakes.task("a"), fakes.task("b", percent=5)], threads, run=fakes.good)
    assert [r.reward for r in results] == [0.1, 0.5]


def test_two_tasks_of_one_id_are_refused() -> None:
    """Exactly one result a task needs ids that differ."""
    with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match="same id"):
        dispatch.score_all([fakes.task("a"), fakes.task("a")], threads, run=fakes.good)


def test_serial_submits_one_task_at_a_time() -> None:
    """The shape of a pipeline that scores single points one after the other."""
    seen: list[str] = []
    answered: list[int] = []

    def run(task: Task) -> Result:
        seen.append(task.id)
        return fakes.good(task)

    class Watching(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            answered.append(len(seen))
            return super().submit(fn, *args, **kwargs)

    with Watching(4) as threads:
        results = dispatch.score_all(
            [fakes.task(f"t{i}") for i in range(6)], threads, run=run, is_serial=True
        )
    assert [r.id for r in results] == seen == [f"t{i}" for i in range(6)]
    assert answered == [0, 1, 2, 3, 4, 5]


# --- modification workers ----------------------------------------------------------------------------------------


def test_a_modification_worker_says_what_it_loaded() -> None:
    """The hello names worker, pid, device and model, and maps its clock to Unix time."""
    with make_pool(PLAN, 1) as pool:
        (said,) = pool.wait_ready()
        assert isinstance(said, Hello)
        assert (said.worker, said.device, said.model) == (0, "cpu", "fake-1")
        assert said.pid != os.getpid()
        (result,) = dispatch.score_all([fakes.task("a", percent=3)], pool)
    assert result == Result("a", ok=True, reward=0.3, value=2.0, steps=3)


def test_the_planted_straggler_is_worker_0() -> None:
    """Its delay comes before each of its tasks, and nobody else's."""
    plan = Plan("fake", straggler_s=0.5)
    assert [planted_delay(plan, number, fakes.task("a")) for number in (0, 1)] == [0.5, 0.0]


def test_the_planted_tail_depends_on_the_task_alone() -> None:
    """About one task in four is slow, the same ones in each run and on each worker."""
    plan = Plan("fake", tail=Tail(probability=0.25, seconds=2.0))
    delays = [planted_delay(plan, 0, fakes.task(f"t{i}")) for i in range(400)]
    assert delays == [planted_delay(plan, 1, fakes.task(f"t{i}")) for i in range(400)]
    assert 70 < delays.count(2.0) < 130
    assert set(delays) == {0.0, 2.0}


def test_a_planted_delay_is_not_taken_for_a_hang() -> None:
    """The limit grows with it."""
    plan = Plan("fake", straggler_s=7.0, tail=Tail(probability=0.1, seconds=20.0))
    assert limit(plan, fakes.task("a", deadline_s=30.0)) == 30.0 + 7.0 + 20.0 + GRACE_S


def test_a_worker_of_a_killed_trainer_ends() -> None:
    """Else it would wait for tasks for ever and hold its share of the GPU."""
    with ProcessPoolExecutor(1) as trainer:
        pid = trainer.submit(_pool_pid).result()
        kill(trainer)
    fd = os.pidfd_open(pid) if _is_alive(pid) else None
    if fd is not None:
        import select  # noqa: PLC0415 - here only

        assert select.select([fd], [], [], 30)[0] == [fd]
        os.close(fd)


def _pool_pid() -> int:
    pool = make_pool(PLAN, 1)
    return int(pool.wait_ready()[0].pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_run_in_parallel_on_their_own_devices() -> None:
    """The plan's device reaches the scorer."""
    start = partial(worker.start, Plan("fake", device="cuda:3", load=fakes.load_fake))
    with WorkerPool(1, start=start, hello=worker.hello, limit=partial(limit, PLAN)) as pool:
        assert pool.wait_ready()[0].device == "cuda:3"
