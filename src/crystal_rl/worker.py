"""What runs inside a modification worker: a warmed-up surrogate, one task at a time, and the planted delays.

A worker knows nothing of the others: no barrier, no lock, no collective. It is started by :mod:`crystal_rl.pool`.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from crystal_rl.lifeline import end_with
from crystal_rl.messages import Hello, Result, Task
from crystal_rl.pool import WorkerPool, now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from crystal_rl.scoring import Evaluates

GRACE_S = 5.0
"""A worker looks at the clock at each relaxation step; one that is this much over its deadline hangs."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Some tasks take longer: with ``probability`` each, by ``seconds``."""

    probability: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start the workers of one rank.

    Attributes:
        surrogate: ``chgnet``, ``sevennet``, ``fake``.
        device: ``cpu`` or ``cuda:0``.
        threads: CPU threads for torch in each worker.
        straggler_s: Seconds that worker 0 of this rank waits before each of its tasks (planted).
        tail: Slow tasks at a set rate, in every worker (planted).
        load: Makes the scorer from surrogate and device; None is :func:`crystal_rl.scoring.load_scorer`. Picklable.
    """

    surrogate: str
    device: str = "cpu"
    threads: int = 1
    straggler_s: float = 0.0
    tail: Tail | None = None
    load: Callable[[str, str], Evaluates] | None = None


@dataclass(slots=True)
class _Worker:
    """The one of this process."""

    number: int
    plan: Plan
    scorer: Evaluates


_here: list[_Worker] = []


def make_pool(plan: Plan, workers: int, *, start_limit_s: float = 300.0) -> WorkerPool:
    """The workers of one rank. Their start is under way when this returns; see :meth:`WorkerPool.wait_ready`."""
    return WorkerPool(
        workers,
        start=partial(start, plan),
        hello=hello,
        limit=partial(limit, plan),
        start_limit_s=start_limit_s,
    )


def limit(plan: Plan, task: Task) -> float:
    """The most seconds that a task may take before its worker counts as hung; planted delays are on top."""
    planted = plan.straggler_s + (plan.tail.seconds if plan.tail else 0.0)
    return task.deadline_s + planted + GRACE_S


def start(plan: Plan, number: int) -> None:
    """Runs once in each new process: load the surrogate and run it once."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the trainer ends its workers
    end_with(os.getppid())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(plan.threads)  # before torch or numpy is imported here
    scorer = (plan.load or _load)(plan.surrogate, plan.device)
    scorer.warm_up()
    _here[:] = [_Worker(number, plan, scorer)]


def _load(surrogate: str, device: str) -> Evaluates:
    from crystal_rl.scoring import load_scorer  # noqa: PLC0415 - ASE and torch: only in a worker

    return load_scorer(surrogate, device=device)


def hello() -> Hello:
    """Who this worker is, once it is warmed up."""
    me = _here[0]
    monotonic, unix = now_ns()
    return Hello(me.number, os.getpid(), me.scorer.device, me.scorer.model, monotonic, unix)


def run(task: Task) -> Result:
    """Score a task in this worker."""
    me = _here[0]
    delay = planted_delay(me.plan, me.number, task)
    if delay:
        time.sleep(delay)
    return me.scorer.evaluate(task)


def planted_delay(plan: Plan, number: int, task: Task) -> float:
    """Seconds to wait before a task: the straggler's, and the tail's, drawn from the task's id alone."""
    delay = plan.straggler_s if number == 0 else 0.0
    if plan.tail is not None and Random(task.id).random() < plan.tail.probability:  # noqa: S311 - no secret
        delay += plan.tail.seconds
    return delay
