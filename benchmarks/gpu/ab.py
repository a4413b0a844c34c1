"""Seed-paired A/B: the same training recorded and not, in turns, and the ratio of their times with its interval.

    python benchmarks/gpu/ab.py [--pairs 3] [--until 480] [--work DIR] --json FILE -- COMMAND…

COMMAND gets ``--output FOLDER`` and must leave a Trainer's ``trainer_state.json`` there. Runs of a pair have the same
seed and follow each other; who goes first changes from pair to pair. The first step of each run, which compiles and warms
up, is left out of step times. The interval is Student's over the pairs' log ratios: with three pairs, 2 degrees of freedom.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.special import stdtrit

if TYPE_CHECKING:
    from collections.abc import Iterator

    Pair = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Recorded over not recorded.

    Attributes:
        what: Which time.
        pairs: How many.
        ratio: Geometric mean.
        low: Lower end of the 95 % interval; None with fewer than two pairs.
        high: Upper end.
    """

    what: str
    pairs: int
    ratio: float
    low: float | None
    high: float | None


def ratio(what: str, recorded: list[float], bare: list[float]) -> Ratio:
    """The mean ratio of pairs, and its 95 % interval.

    With ``recorded`` 2, 8 and ``bare`` 1, 1: ratio 4; logs ln 2 and ln 8 have a standard error of ln 2, so the interval
    is 4 times or divided by 2^12.706.

    Args:
        what: Which time.
        recorded: One time a pair [s].
        bare: Likewise, the same pairs.

    Raises:
        ValueError: There is no pair.
    """
    logs = [math.log(a / b) for a, b in zip(recorded, bare, strict=True)]
    if not logs:
        raise ValueError("no pair was completed")
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(what, 1, math.exp(mean), None, None)
    half = float(stdtrit(len(logs) - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(what, len(logs), math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def times(state: dict[str, Any]) -> dict[str, Any]:
    """What a Trainer's state says of one run: seconds of each step, of the training, and the losses and rewards."""
    steps = [row for row in state["log_history"] if "step_time" in row]
    (whole,) = [row["train_runtime"] for row in state["log_history"] if "train_runtime" in row]
    return {
        "step_s": [row["step_time"] for row in steps],
        "steps_s": sum(row["step_time"] for row in steps[1:]),
        "train_s": whole,
        "loss": [row.get("loss") for row in steps],
        "reward": [row.get("reward") for row in steps],
        "length": [row.get("completions/mean_length") for row in steps],
    }


def one(command: list[str], work: Path, name: str, *, recorded: bool) -> dict[str, Any]:
    """Run it once.

    Raises:
        SystemExit: It failed; the end of its output is told.
    """
    out = work / name
    front = [sys.executable, "-m", "dipstick", "run", "--hz", "10", "--force", "-o", str(out / "run"), "--"]
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    done = subprocess.run(
        [*(front if recorded else []), *command, "--output", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    wall = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{name} failed ({done.returncode}):\n{done.stdout[-3000:]}")
    found = {"name": name, "recorded": recorded, "wall_s": wall}
    found |= times(json.loads((out / "trainer_state.json").read_text()))
    print(
        f"{name}: {found['steps_s']:.2f} s in steps, {found['train_s']:.2f} s in training, {wall:.1f} s in all"
    )
    return found


def paired(command: list[str], work: Path, pairs: int, until: float) -> Iterator[Pair]:
    """Pairs of (recorded, bare) runs, as many as fit into the time."""
    began, longest = time.monotonic(), 0.0
    for pair in range(pairs):
        start = time.monotonic()
        if start - began + longest > until:
            print(f"stopped after {pair} pairs: {until:.0f} s are nearly up")
            return
        first = pair % 2 == 0
        runs = [one(command, work, f"pair{pair}-{'AB'[not r]}", recorded=r) for r in (first, not first)]
        longest = max(longest, time.monotonic() - start)
        yield (runs[0], runs[1]) if first else (runs[1], runs[0])


def told(found: list[Pair]) -> dict[str, Any]:
    """Print what the pairs so far say; the same as plain values."""
    keys = {"steps_s": "steps, without the first", "train_s": "the whole training"}
    ratios = [
        ratio(what, [a[key] for a, _ in found], [b[key] for _, b in found]) for key, what in keys.items()
    ]
    for r in ratios:
        interval = "no interval" if r.low is None else f"95 % interval {r.low:.4f} to {r.high:.4f}"
        print(f"recorded / not recorded, {r.what}: {r.ratio:.4f}, {interval}, {r.pairs} pairs")
    same = [a["reward"] == b["reward"] and a["loss"] == b["loss"] for a, b in found]
    print(f"losses and rewards equal within a pair: {sum(same)} of {len(same)}")
    return {"ratios": [asdict(r) for r in ratios], "pairs": found, "same_numbers": same}


def main() -> int:
    """Run, print and keep: after each pair, so that running out of time loses one at most."""
    parser = argparse.ArgumentParser(description="Seed-paired A/B.")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--until", type=float, default=480)
    parser.add_argument("--work", type=Path, default=Path("out/ab"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    wanted = parser.parse_args()
    command = wanted.command[1:] if wanted.command[:1] == ["--"] else wanted.command
    found: list[Pair] = []
    for pair in paired(command, wanted.work, wanted.pairs, wanted.until):
        found.append(pair)
        wanted.json.write_text(json.dumps(told(found), indent=1))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
