"""Tasks out, results back: exactly one a task, in order, over any :class:`concurrent.futures.Executor`.

A worker that dies, hangs, raises or answers nonsense costs the task one retry. A second time the task ends as
``worker_lost`` without a reward: nothing is known about its chemistry, so it is never scored as bad.
"""

from __future__ import annotations

import math
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from typing import TYPE_CHECKING

from crystal_rl import worker
from crystal_rl.errors import rejected
from crystal_rl.messages import Result, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

ATTEMPTS = 2


def score_all(
    tasks: Sequence[Task],
    executor: Executor,
    *,
    run: Callable[[Task], Result] = worker.run,
    is_serial: bool = False,
) -> list[Result]:
    """Score tasks.

    Args:
        tasks: With ids that differ.
        executor: Whose workers run them; what its futures raise is taken for a lost worker.
        run: What to submit.
        is_serial: Submit a task only when the one before has its result: one worker works, the others wait.

    Returns:
        The results in the order of the tasks.

    Raises:
        BrokenExecutor: The executor takes no more calls.
        ValueError: Two tasks have one id.
    """
    if len({task.id for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same id")
    if is_serial:
        return [result for task in tasks for result in _score([task], executor, run)]
    return _score(tasks, executor, run)


def _score(tasks: Sequence[Task], executor: Executor, run: Callable[[Task], Result]) -> list[Result]:
    results: dict[str, Result] = {}
    waiting: dict[Future[Result], tuple[Task, int]] = {
        executor.submit(run, task): (task, 1) for task in tasks
    }
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            task, attempt = waiting.pop(future)
            result, why = _read(future, task)
            if result is None and attempt < ATTEMPTS:
                waiting[executor.submit(run, task)] = (task, attempt + 1)
            else:
                results[task.id] = result or rejected(task.id, "worker_lost", f"{ATTEMPTS} attempts: {why}")
    return [results[task.id] for task in tasks]


def _read(future: Future[Result], task: Task) -> tuple[Result | None, str]:
    """The result, or None and what is wrong with it."""
    try:
        result = future.result()
    except BrokenExecutor:  # all workers are gone for good: an error of the run, not of a task
        raise
    except Exception as error:  # noqa: BLE001 - whatever a worker raises, the task is told
        return None, f"{type(error).__name__}: {error}"
    return (result, "") if is_sound(result, task) else (None, f"an answer that is none: {result!r:.200}")


def is_sound(result: object, task: Task) -> bool:
    """Whether this can be the result of the task: of its id, with a finite reward between -1 and 1."""
    return (
        isinstance(result, Result)
        and result.id == task.id
        and isinstance(result.reward, float)
        and math.isfinite(result.reward)
        and -1.0 <= result.reward <= 1.0
    )
