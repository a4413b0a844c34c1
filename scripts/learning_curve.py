"""Does it learn? Trains the tiny policy on several seeds, tests first against last quarter, writes JSON and SVG into docs/.

    PYTHONPATH=src python scripts/learning_curve.py run --steps 60 --seeds 1 2 3 --output /tmp/curve [crystal-rl flags]
    PYTHONPATH=src python scripts/learning_curve.py draw --output /tmp/curve     docs/crystal_rl_learning.{json,svg}

A seed passes if the 95 % interval of the difference of mean rewards (last quarter minus first, 10,000 bootstrap
resamples of steps within each quarter) lies above zero, and the share of valid answers does not fall by more than its noise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from crystal_rl import journal

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESAMPLES = 10_000
COLOURS = ("#1b6ca8", "#c2571a", "#3a7d44", "#7a4988", "#8a6d00")
WIDTH, HEIGHT, LEFT, TOP = 720, 300, 56, 24


def quarters(values: list[float]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """First and last quarter of a run's steps."""
    size = len(values) // 4
    return np.array(values[:size]), np.array(values[-size:])


def gain(values: list[float], seed: int = 0) -> dict[str, Any]:
    """Difference of the quarters' means with its 95 % bootstrap interval."""
    first, last = quarters(values)
    dice = np.random.default_rng(seed)
    differences = [
        dice.choice(last, len(last)).mean() - dice.choice(first, len(first)).mean() for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(differences, [2.5, 97.5])
    return {
        "first": round(float(first.mean()), 4),
        "last": round(float(last.mean()), 4),
        "gain": round(float(last.mean() - first.mean()), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
    }


def verdict(folder: Path) -> dict[str, Any]:
    """What one run says."""
    lines = list(journal.read(folder / journal.HISTORY))
    reward = [float(line["reward"]) for line in lines]
    valid = [float(line["crystal/valid"]) for line in lines]
    settings = json.loads((folder / journal.SETTINGS).read_text())
    found = {"seed": settings["seed"], "steps": len(lines), "reward": gain(reward), "valid": gain(valid)}
    found["learns"] = found["reward"]["interval"][0] > 0
    found["valid_falls"] = found["valid"]["interval"][1] < 0
    return {**found, "rewards": [round(r, 4) for r in reward], "valids": [round(v, 4) for v in valid]}


def smooth(values: list[float], span: int = 5) -> list[float]:
    """Mean of up to ``span`` steps around each."""
    return [float(np.mean(values[max(0, i - span // 2) : i + span // 2 + 1])) for i in range(len(values))]


def draw(runs: list[dict[str, Any]]) -> str:
    """An SVG: one line a seed, its steps as dots."""
    every = [r for run in runs for r in run["rewards"]]
    low, high = min(every), max(every)
    most = max(run["steps"] for run in runs)

    def x(step: float) -> float:
        return float(LEFT + (WIDTH - LEFT - 16) * step / max(1, most - 1))

    def y(value: float) -> float:
        return float(TOP + (HEIGHT - TOP - 40) * (high - value) / ((high - low) or 1.0))

    parts = [_axes(low, high, most, x, y)]
    for colour, run in zip(COLOURS, runs, strict=False):
        parts += [
            f'<circle cx="{x(i):.1f}" cy="{y(r):.1f}" r="1.6" fill="{colour}" opacity="0.35"/>'
            for i, r in enumerate(run["rewards"])
        ]
        line = " ".join(f"{x(i):.1f},{y(r):.1f}" for i, r in enumerate(smooth(run["rewards"])))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    names = "".join(
        f'<text x="{LEFT + 8 + 90 * i}" y="16" fill="{colour}">seed {run["seed"]}</text>'
        for i, (colour, run) in enumerate(zip(COLOURS, runs, strict=False))
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    return (
        "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, names, "</svg>"]) + "\n"
    )


def _axes(low: float, high: float, most: int, x: Any, y: Any) -> str:
    ticks = np.linspace(low, high, 5)
    rows = [
        f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>'
        for v in ticks
    ]
    columns = [
        f'<text x="{x(s):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{s}</text>' for s in range(0, most, 10)
    ]
    title = f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">step; mean reward of its completions</text>'
    return "\n".join([*rows, *columns, title])


def run(output: Path, seeds: list[int], steps: int, flags: list[str]) -> None:
    """One training run a seed, one after the other; a run that is there already is left alone."""
    for seed in seeds:
        folder = output / f"seed{seed}"
        if (folder / "final").exists():
            continue
        command = [sys.executable, "-m", "crystal_rl", "train", "--preset", "tiny", "--seed", str(seed)]
        more = ["--steps", str(steps), "--output", str(folder), *(["--resume"] if folder.exists() else [])]
        subprocess.run([*command, *more, *flags], check=True)  # noqa: S603 - ourselves


def main() -> int:
    """Run or draw; the status says whether every seed learns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "draw"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=60)
    args, flags = parser.parse_known_args()
    if args.what == "run":
        run(args.output, args.seeds, args.steps, flags)
        return 0
    found = [verdict(folder) for folder in sorted(args.output.glob("seed*"))]
    summary = {"resamples": RESAMPLES, "runs": found}
    (args.docs / "crystal_rl_learning.json").write_text(json.dumps(summary, indent=1) + "\n")
    (args.docs / "crystal_rl_learning.svg").write_text(draw(found))
    for each in found:
        print({name: each[name] for name in ("seed", "steps", "reward", "valid", "learns", "valid_falls")})
    return 0 if all(each["learns"] and not each["valid_falls"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
