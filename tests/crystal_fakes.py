"""Workers and tasks of the crystal_rl tests: no ASE, no torch, and every way a worker can misbehave.

A module of its own because spawned workers import it by name.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from crystal_rl.messages import Result, Strain, Structure, Target, Task

if TYPE_CHECKING:
    from collections.abc import Callable

CELL = ((4.0, 0.0, 0.0), (0.0, 4.0, 0.0), (0.0, 0.0, 4.0))
SALT = Structure(numbers=(11, 17), cell=CELL, positions=((0.0, 0.0, 0.0), (2.0, 2.0, 2.0)))
FOREVER_S = 3600.0


def task(name: str, *, percent: float = 1.0, deadline_s: float = 60.0) -> Task:
    """Strain a crystal of two atoms; the fake's reward is ``percent`` / 10."""
    return Task(name, SALT, (Strain("all", percent),), Target("density", 2.0, 1.0), deadline_s=deadline_s)


class FakeScorer:
    """Scores without chemistry: the reward is the strain / 10."""

    model = "fake-1"

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def evaluate(self, task: Task, beat: Callable[[int, float], None] | None = None) -> Result:
        """A good result of the task."""
        del beat
        edit = task.edits[0]
        assert isinstance(edit, Strain)
        return Result(task.id, ok=True, reward=edit.percent / 10, value=2.0, steps=3)


def load_fake(surrogate: str, device: str) -> FakeScorer:
    """What a :class:`crystal_rl.worker.Plan` loads in a test."""
    assert surrogate == "fake"
    return FakeScorer(device)


# --- raw workers for the pool's own tests ------------------------------------------------------------------------


def start(number: int) -> None:
    """A worker that needs no start, and remembers its number."""
    os.environ["CRYSTAL_FAKE_WORKER"] = str(number)


def start_broken(number: int) -> NoReturn:
    """A worker that cannot start."""
    raise OSError(f"no weights for worker {number}")


def start_silent(number: int) -> None:
    """A worker whose start never ends."""
    del number
    time.sleep(FOREVER_S)


def hello() -> tuple[int, int]:
    """The worker's number and pid."""
    return int(os.environ["CRYSTAL_FAKE_WORKER"]), os.getpid()


def is_first(marker: str) -> bool:
    """Whether this is the first call with this file: it is made now."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def good(task: Task) -> Result:
    """What every misbehaviour gives up for once its marker is there."""
    return FakeScorer().evaluate(task)


def die(task: Task) -> NoReturn:
    """``kill -9`` in the middle of a task."""
    del task
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def hang(task: Task) -> NoReturn:
    """Stop answering, deaf to SIGTERM too."""
    del task
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(FOREVER_S)


def freeze(task: Task) -> NoReturn:
    """A stopped process: no Python code of it runs any more."""
    del task
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError("unreachable")


def leave(task: Task) -> NoReturn:
    """``os._exit`` with a good status, as some libraries do."""
    del task
    os._exit(0)


def shout(task: Task) -> Result:
    """Write noise to stdout, as libraries do; the answer is sound."""
    sys.stdout.write("}{ not a message\n")
    return good(task)


class Poison:
    """An answer that breaks whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _explode, ()


def _explode() -> NoReturn:
    raise ValueError("unpickled")


def poison(task: Task) -> Any:
    """Send what cannot be read."""
    del task
    return Poison()


def unpicklable(task: Task) -> Any:
    """Return what cannot be sent."""
    del task
    return lambda: None


def nonsense(task: Task) -> Any:
    """Return what is no result."""
    del task
    return {"reward": 1.0}


def other_id(task: Task) -> Result:
    """Return the result of another task: what a late answer would look like."""
    return Result(f"{task.id}.late", ok=True, reward=1.0)


def not_finite(task: Task) -> Result:
    """Return a reward that is no number."""
    return Result(task.id, ok=True, reward=float("nan"))


def fail(task: Task) -> NoReturn:
    """An error of the surrogate."""
    del task
    raise MemoryError("out of memory")


class Once:
    """Misbehave the first time, then answer; the marker file is shared by all workers."""

    def __init__(self, trick: Callable[[Task], Any], marker: Path) -> None:
        self.trick = trick
        self.marker = marker

    def __call__(self, task: Task) -> Any:
        """Run in a worker."""
        return self.trick(task) if is_first(f"{self.marker}.{task.id}") else good(task)


class Announce:
    """Say through a FIFO which process runs the task, and never answer; the second attempt does."""

    def __init__(self, fifo: Path) -> None:
        self.fifo = fifo

    def __call__(self, task: Task) -> Result:
        """Run in a worker."""
        if not is_first(f"{self.fifo}.{task.id}"):
            return good(task)
        self.fifo.write_text(f"{os.getpid()}\n")  # until somebody reads
        while True:
            time.sleep(FOREVER_S)


class Block:
    """Answer when the FIFO is written to, and leave a mark of having been run."""

    def __init__(self, fifo: Path) -> None:
        self.fifo = fifo

    def __call__(self, task: Task) -> Result:
        """Run in a worker."""
        Path(f"{self.fifo}.{task.id}").touch()
        self.fifo.read_text()
        return good(task)


class Mark:
    """Leave a mark of having been run, and answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, task: Task) -> Result:
        """Run in a worker."""
        (self.folder / task.id).touch()
        return good(task)
