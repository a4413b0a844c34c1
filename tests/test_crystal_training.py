"""Real training runs of the tiny policy: two gloo ranks, equal when repeated, none lost when killed.

They need torch, TRL and ASE, and are skipped where these are not: `nox -s crystal_train` has an environment for them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from crystal_rl import journal

ROOT = Path(__file__).resolve().parent.parent
STEPS = 4
TRAIN = (
    *("--preset", "tiny", "--surrogate", "fake", "--ranks", "2", "--completions", "4", "--tasks", "40"),
    *("--steps", str(STEPS), "--save-steps", "1", "--learning-rate", "0.01", "--seed", "5"),
)

MISSING = [name for name in ("torch", "trl", "peft", "ase") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def command(output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "crystal_rl", "train", *TRAIN, "--output", str(output), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}


def train(output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(output, *more), check=False, capture_output=True, text=True, env=environment()
    )


def history(output: Path) -> list[tuple[int, float, float]]:
    """Step, reward and gradient of each step; whoever changes one of them is not the same run."""
    return [
        (line["step"], line["reward"], line["grad_norm"]) for line in journal.read(output / journal.HISTORY)
    ]


def answers(output: Path) -> list[list[Any]]:
    """What each rank wrote: step, completion and reward."""
    return [
        [
            (line["step"], line["completion"], line["reward"])
            for line in journal.read(journal.samples(output, rank))
        ]
        for rank in (0, 1)
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks, from start to end."""
    output = tmp_path_factory.mktemp("train") / "whole"
    done = train(output, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == STEPS
    return output


def test_two_ranks_share_a_group(finished: Path) -> None:
    """Two of the four completions of each step on either rank, to the same question; the reward is of all four."""
    by_rank = answers(finished)
    assert [[step for step, _, _ in rows] for rows in by_rank] == [[0, 0, 1, 1, 2, 2, 3, 3]] * 2
    problems = [
        [line["problem"] for line in journal.read(journal.samples(finished, rank))] for rank in (0, 1)
    ]
    assert problems[0] == problems[1]
    for step, reward, _ in history(finished):
        rewards = [r for rows in by_rank for s, _, r in rows if s == step - 1]
        assert reward == pytest.approx(sum(rewards) / 4, abs=1e-5)


def test_a_run_leaves_an_adapter_and_its_settings(finished: Path) -> None:
    """What is needed to use it, and to repeat it."""
    assert (finished / "final" / "adapter_model.safetensors").is_file()
    assert json.loads((finished / journal.SETTINGS).read_text())["seed"] == 5


def test_a_killed_run_resumes_without_losing_a_step_and_ends_the_same(finished: Path, tmp_path: Path) -> None:
    """The launcher is killed -9 after step 2; ranks and workers end with it; resumed, all is as if nothing had been."""
    output = tmp_path / "killed"
    with subprocess.Popen(command(output), stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("step 2/"):
                os.kill(running.pid, signal.SIGKILL)
                break
        running.stderr.read()  # to its end: nobody holds the pipe any more
    done = train(output, "--resume")
    assert done.returncode == 0, done.stderr
    assert history(output) == history(finished)
    assert answers(output) == answers(finished)


def test_a_second_run_into_the_same_folder_is_refused(finished: Path) -> None:
    """In words, without a traceback, before anything is loaded."""
    done = train(finished)
    assert done.returncode == 1
    assert "there is a run in this folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_that_do_not_start_end_the_run_with_the_reason(tmp_path: Path) -> None:
    """The rank's error, not a page of someone else's traceback."""
    done = train(tmp_path / "none", "--surrogate", "no_such_package:load")
    assert done.returncode == 1
    assert "no_such_package" in done.stderr
