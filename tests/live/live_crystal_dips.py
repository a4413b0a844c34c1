"""dipstick names what crystal_rl plants: one rank's slow worker, and a copy between reward and training.

Run by `nox -s crystal_train`. Two gloo ranks of the tiny policy under `dipstick run`, then `dipstick explain --json`.
Where there is a GPU the copy crosses the bus, and the counters judge it: two ranks on two GPUs, else one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
STEPS = 12
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
TRAIN = (
    *("train", "--preset", "tiny", "--surrogate", "fake", "--completions", "8", "--tasks", "40"),
    *("--steps", str(STEPS), "--save-steps", "0"),
)
COPIES = "a copy to the device stalls the loop: transfers_force_waiting"


def python(*arguments: str, devices: str) -> str:
    """Run a module with our source; its stdout."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "CUDA_VISIBLE_DEVICES": devices}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def explained(folder: Path, *planted: str, ranks: int = 2, devices: str = "") -> dict[str, Any]:
    """Train under `dipstick run`, explain."""
    train = (sys.executable, "-m", "crystal_rl", *TRAIN, "--ranks", str(ranks), "--output", str(folder / "out"), *planted)  # fmt: skip
    python("dipstick", "run", "-o", str(folder / "run"), "--", *train, devices=devices)
    told = python("dipstick", "explain", "--json", "--claim", COPIES, str(folder / "run"), devices=devices)
    found: dict[str, Any] = json.loads(told)
    return found


def of_copies(report: dict[str, Any]) -> dict[str, Any]:
    """The judged claim."""
    (claim,) = [claim for claim in report["claims"] if claim["test"] == "transfers_force_waiting"]
    return dict(claim)


def test_a_planted_straggler_is_named(tmp_path: Path) -> None:
    """Rank 1's worker waits half a second before each of its tasks: it is last, and the other rank waits for it."""
    report = explained(tmp_path, "--straggler", "1:0.5")
    stragglers = report["checks"]["stragglers"]
    by_rank = {row["rank"]: row for row in stragglers["by_rank"]}
    assert by_rank[1]["last_in_steps"] >= STEPS - 1
    assert by_rank[0]["waited_s"] > 10 * by_rank[1]["waited_s"]
    slowest = max(stragglers["by_worker"], key=lambda row: row["busy_s"])
    assert slowest["rank"] == 1
    assert report["run"]["steps"] == STEPS
    assert of_copies(report)["verdict"] == "unconfirmed"


def test_a_planted_transfer_is_named(tmp_path: Path) -> None:
    """8 GiB a step and rank: yes, with the seconds of each rank and every byte, and a phase of its own."""
    report = explained(tmp_path, "--transfer", "8192")
    claim = of_copies(report)
    assert claim["verdict"] == "yes", claim
    receipts = {(receipt["unit"], receipt["rank"]): receipt["value"] for receipt in claim["receipts"]}
    assert receipts[("B", None)] == 2 * STEPS * 8192 * 2**20
    assert min(receipts[("s", rank)] for rank in (0, 1)) > 0
    assert report["run"]["steps"] == STEPS


@pytest.mark.skipif(GPUS == 0, reason="no GPU: the copy has no bus to cross")
def test_a_planted_transfer_is_named_by_the_counters(tmp_path: Path) -> None:
    """256 GiB a step over the bus: the dips are copies, by SM and PCIe counters; the bytes are the program's."""
    ranks = min(GPUS, 2)
    devices = ",".join(map(str, range(ranks)))
    report = explained(tmp_path, "--transfer", "262144", ranks=ranks, devices=devices)
    claim = of_copies(report)
    assert claim["verdict"] == "yes", claim
    assert "GPU-seconds without work are bus copies" in claim["because"]
    assert sum(r["value"] for r in claim["receipts"] if r["unit"] == "B") == ranks * STEPS * 2**38
    assert report["answer"]["dips_are"] == "transfer"
