"""dipstick names what crystal_rl plants: one rank's slow worker, and a copy between reward and training.

Run by `nox -s crystal_train`. Two gloo ranks of the tiny policy under `dipstick run`, then `dipstick explain --json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
TRAIN = (
    *(
        "train",
        "--preset",
        "tiny",
        "--surrogate",
        "fake",
        "--ranks",
        "2",
        "--completions",
        "8",
        "--tasks",
        "40",
    ),
    *("--steps", "12", "--save-steps", "0"),
)


def python(*arguments: str) -> str:
    """Run a module with our source; its stdout."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def explained(folder: Path, *planted: str) -> dict[str, Any]:
    """Train under `dipstick run`, explain."""
    train = (sys.executable, "-m", "crystal_rl", *TRAIN, "--output", str(folder / "out"), *planted)
    python("dipstick", "run", "-o", str(folder / "run"), "--", *train)
    found: dict[str, Any] = json.loads(python("dipstick", "explain", "--json", str(folder / "run")))
    return found


def test_a_planted_straggler_is_named(tmp_path: Path) -> None:
    """Rank 1's worker waits half a second before each of its tasks: it is last, and the other rank waits for it."""
    report = explained(tmp_path, "--straggler", "1:0.5")
    stragglers = report["checks"]["stragglers"]
    by_rank = {row["rank"]: row for row in stragglers["by_rank"]}
    assert by_rank[1]["last_in_steps"] >= 11
    assert by_rank[0]["waited_s"] > 10 * by_rank[1]["waited_s"]
    slowest = max(stragglers["by_worker"], key=lambda row: row["busy_s"])
    assert slowest["rank"] == 1
    assert report["run"]["steps"] == 12
