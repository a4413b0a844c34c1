"""A simulated run seen by telemetry on another clock: what the calibration of the offset estimator draws from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.importers.offset import RATES, Series, estimate

if TYPE_CHECKING:
    from dipstick.model import FloatArray

PHASES = ((0.55, 95.0), (0.15, 5.0), (0.30, 60.0))
"""Share of the step and utilization of generate, reward and training."""


@dataclass(frozen=True)
class Scene:
    """One kind of run.

    Attributes:
        steps: How many.
        spread: Standard deviation of log step length; each phase varies so of its own.
        period_s: Between two samples, which average over at most the last second.
        margin_s: Idle telemetry before and after; negative: the telemetry sees only the middle of the run.
        end_s: The same after the run, where it differs.
        noise: Standard deviation of utilization, percentage points, correlated from sample to sample (0.5).
        follows: False: telemetry of another job.
        unseen: Share of a step, on average, that no timer saw: idle time at its end, lognormal, four times as long in every
            fifth step (saving). The log's edges leave it out, so the log runs slow, and not evenly.
    """

    steps: int = 30
    spread: float = 0.15
    period_s: float = 1.0
    margin_s: float = 60.0
    end_s: float | None = None
    noise: float = 10.0
    follows: bool = True
    unseen: float = 0.0


def draw(scene: Scene, seed: int) -> tuple[Series, FloatArray, float]:
    """Telemetry, the log's step edges (from 0), and the true offset."""
    rng = np.random.default_rng(seed)
    parts = np.array([share for share, _ in PHASES]) * 20.0
    lengths = parts * np.exp(rng.normal(0, scene.spread, (scene.steps, len(PHASES))))
    logged = np.concatenate([[0.0], np.cumsum(lengths.sum(axis=1))])
    spans = np.hstack([lengths, _unseen(scene, seed)])
    edges = np.concatenate([[0.0], np.cumsum(spans.sum(axis=1))])
    bounds = np.concatenate([[0.0], np.cumsum(spans)])
    offset = float(rng.uniform(1000, 2000))
    at = np.arange(
        -scene.margin_s, edges[-1] + (scene.margin_s if scene.end_s is None else scene.end_s), scene.period_s
    )
    at = at + rng.uniform(0, scene.period_s)
    window = min(scene.period_s, 1.0)
    levels = np.concatenate([[0.0], np.tile([*(level for _, level in PHASES), 0.0], scene.steps), [0.0]])
    fine = at[:, None] - window * (np.arange(8) + 0.5) / 8
    seen = levels[np.searchsorted(bounds, fine, side="right")].mean(axis=1)
    if not scene.follows:
        seen = np.full(len(at), 50.0)
    shocks = rng.normal(0, scene.noise, len(at))
    for i in range(1, len(shocks)):
        shocks[i] = 0.5 * shocks[i - 1] + 0.866 * shocks[i]
    values = np.clip(seen + shocks, 0, 100)[:, None]
    return Series(at + offset, values, window), logged, offset


def _unseen(scene: Scene, seed: int) -> FloatArray:
    """Seconds of each step that no timer saw, shape (steps, 1); they come from a generator of their own."""
    drawn = np.random.default_rng([seed, 1]).lognormal(0, 0.5, (scene.steps, 1))
    drawn[4::5] *= 4
    lost: FloatArray = scene.unseen * 20.0 * drawn / (np.exp(0.125) * 1.6)
    return lost


@dataclass(frozen=True)
class Tally:
    """Of many runs: told an offset, told one a step or more off, and the interval held the truth (of those told)."""

    runs: int
    told: int
    wrong: int
    covered: int

    def row(self, name: str) -> str:
        """A row of the table in ``docs/statistics.md``."""
        share = f"{self.covered / self.told:.0%}" if self.told else "–"
        return f"| {name} | {self.runs} | {self.told} | {self.wrong} | {self.covered} ({share}) |"


def calibrate(scene: Scene, runs: int, first: int = 0, rates: tuple[float, ...] = (1.0,)) -> Tally:
    """Estimate in so many simulated runs."""
    told = wrong = covered = 0
    for seed in range(first, first + runs):
        series, edges, truth = draw(scene, seed)
        found = estimate(series, edges, rates=rates, seed=seed)
        if found.offset_s is None:
            continue
        told += 1
        wrong += abs(found.offset_s - truth) > 10
        covered += found.low_s <= truth <= found.high_s
    return Tally(runs, told, wrong, covered)


SCENES = {
    "steps vary by 15 %": Scene(),
    "all alike": Scene(spread=0.0),
    "vary, telemetry ends in the run": Scene(end_s=-200.0),
    "all alike, telemetry ends in the run": Scene(spread=0.0, end_s=-200.0),
    "vary, seen inside the run only": Scene(margin_s=-30.0),
    "all alike, seen inside the run only": Scene(spread=0.0, margin_s=-30.0),
    "vary, a value every 5 s": Scene(period_s=5.0),
    "vary, a value every 15 s": Scene(period_s=15.0),
    "vary, 12 steps": Scene(steps=12),
    "telemetry of another job": Scene(follows=False),
}
FREE = {
    "rate free: vary": Scene(),
    "rate free: vary, 2.5 % unseen": Scene(unseen=0.025),
    "rate free: all alike, 2.5 % unseen": Scene(spread=0.0, unseen=0.025),
    "rate free: vary, 2.5 % unseen, ends in the run": Scene(unseen=0.025, end_s=-200.0),
    "rate free: vary, 2.5 % unseen, inside only": Scene(unseen=0.025, margin_s=-30.0),
    "rate free: vary, 2.5 % unseen, every 15 s": Scene(unseen=0.025, period_s=15.0),
}

if __name__ == "__main__":  # [first seed] [runs a scene] [runs a scene with the rate free]
    seed, runs, free = (int(word) for word in sys.argv[1:4])
    for name, scene in SCENES.items():
        print(calibrate(scene, runs, seed).row(name), flush=True)  # noqa: T201 - the script is its output
    for name, scene in FREE.items():
        print(calibrate(scene, free, seed, RATES).row(name), flush=True)  # noqa: T201
