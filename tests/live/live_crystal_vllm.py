"""crystal_rl with vLLM's CPU build colocated in the trainer: constrained answers, and weights that really arrive.

Run by `nox -s crystal_train`. TRL logs by how much the log-probabilities of the sampled tokens differ between the engine and
the trainer. Both have the same weights only if the sync works: then the difference is rounding, however far the policy moved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
STEPS = 3
TRAIN = (
    *(
        "train",
        "--preset",
        "tiny",
        "--surrogate",
        "fake",
        "--engine",
        "vllm",
        "--completions",
        "4",
        "--tasks",
        "20",
    ),
    *("--steps", str(STEPS), "--save-steps", "0", "--learning-rate", "0.02"),
)
DIFFERENCE = "sampling/sampling_logp_difference/mean"
NO_SYNC = """
import sys
import trl.generation.vllm_generation as generation
generation.VLLMGeneration.sync_weights = lambda self: None
from crystal_rl import rank
sys.exit(rank.main(sys.argv[1:]))
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "CUDA_VISIBLE_DEVICES": "", **more}


def history(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]


def train(output: Path, *more: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "crystal_rl", *TRAIN, "--output", str(output), *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    return history(output)


def test_synced_weights_are_the_trainers(tmp_path: Path) -> None:
    """Without the constraint (whose log-probabilities are others): below 1e-4 in each step, though the policy moves."""
    steps = train(tmp_path / "synced", "--no-constrain")
    assert len(steps) == STEPS
    assert all(step["grad_norm"] > 0 for step in steps)
    assert [step[DIFFERENCE] < 1e-4 for step in steps] == [True] * STEPS


def test_without_the_sync_the_difference_grows(tmp_path: Path) -> None:
    """The same run with the sync taken out: equal before the first update, then apart. So the test above can fail."""
    from crystal_rl import launch, options
    from crystal_rl.environment import variables
    from crystal_rl.settings import merged, preset, written

    output = tmp_path / "unsynced"
    output.mkdir()
    given = {
        "surrogate": "fake", "engine": "vllm", "completions": 4, "tasks": 20, "steps": STEPS, "save_steps": 0,
        "learning_rate": 0.02, "constrain": False, "output": str(output),
    }  # fmt: skip
    settings = launch.ready(merged(preset("tiny"), given), _Quiet())  # type: ignore[arg-type] # says nothing
    (output / "settings.json").write_text(json.dumps(written(settings)))
    assert not options.has_gpu() or os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    alone = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(launch.free_port()),
    }
    done = subprocess.run(
        [sys.executable, "-c", NO_SYNC, str(output / "settings.json")], check=False, capture_output=True, text=True,
        env=environment(**variables(has_gpu=False, is_local=True), **alone),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    differences = [step[DIFFERENCE] for step in history(output)]
    assert differences[0] < 1e-4
    assert differences[-1] > 100 * differences[0]


def test_constrained_answers_are_all_valid(tmp_path: Path) -> None:
    """Every answer parses, and the gradient is not the vanished one of a corrected constraint."""
    steps = train(tmp_path / "constrained", "--constrain")
    assert [step["crystal/valid"] for step in steps] == [1.0] * STEPS
    assert max(step["grad_norm"] for step in steps) > 1e-3


class _Quiet:
    """Stands in for the command line's talk."""

    quiet = True

    def say(self, text: str) -> None:
        """Nothing."""
