"""A simulated run seen by telemetry on another clock: what the calibration of the offset estimator draws from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.importers.offset import Series, estimate

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
    """

    steps: int = 30
    spread: float = 0.15
    period_s: float = 1.0
    margin_s: float = 60.0
    end_s: float | None = None
    noise: float = 10.0
    follows: bool = True


def draw(scene: Scene, seed: int) -> tuple[Series, FloatArray, float]:
    """Telemetry, the log's step edges (from 0), and the true offset."""
    rng = np.random.default_rng(seed)
    parts = np.array([share for share, _ in PHASES]) * 20.0
    lengths = parts * np.exp(rng.normal(0, scene.spread, (scene.steps, len(PHASES))))
    edges = np.concatenate([[0.0], np.cumsum(lengths.sum(axis=1))])
    bounds = np.concatenate([[0.0], np.cumsum(lengths)])
    offset = float(rng.uniform(1000, 2000))
    at = np.arange(
        -scene.margin_s, edges[-1] + (scene.margin_s if scene.end_s is None else scene.end_s), scene.period_s
    )
    at = at + rng.uniform(0, scene.period_s)
    window = min(scene.period_s, 1.0)
    levels = np.concatenate([[0.0], np.tile([level for _, level in PHASES], scene.steps), [0.0]])
    fine = at[:, None] - window * (np.arange(8) + 0.5) / 8
    seen = levels[np.searchsorted(bounds, fine, side="right")].mean(axis=1)
    if not scene.follows:
        seen = np.full(len(at), 50.0)
    shocks = rng.normal(0, scene.noise, len(at))
    for i in range(1, len(shocks)):
        shocks[i] = 0.5 * shocks[i - 1] + 0.866 * shocks[i]
    values = np.clip(seen + shocks, 0, 100)[:, None]
    return Series(at + offset, values, window), edges, offset


@dataclass(frozen=True)
class Tally:
    """Of many runs: told an offset, told one a step or more off, and the interval held the truth (of those told)."""

    runs: int
    told: int
    wrong: int
    covered: int


def calibrate(scene: Scene, runs: int, first: int = 0) -> Tally:
    """Estimate in so many simulated runs."""
    told = wrong = covered = 0
    for seed in range(first, first + runs):
        series, edges, truth = draw(scene, seed)
        found = estimate(series, edges, rates=(1.0,), seed=seed)
        if found.offset_s is None:
            continue
        told += 1
        wrong += abs(found.offset_s - truth) > 10
        covered += found.low_s <= truth <= found.high_s
    return Tally(runs, told, wrong, covered)


SCENES = {
    "1 s, steps vary by 15 %": Scene(),
    "1 s, all alike, idle before and after": Scene(spread=0.0),
    "1 s, vary, telemetry ends in the run": Scene(end_s=-200.0),
    "1 s, all alike, telemetry ends in the run": Scene(spread=0.0, end_s=-200.0),
    "1 s, vary, inside the run only": Scene(margin_s=-30.0),
    "1 s, all alike, inside the run only": Scene(spread=0.0, margin_s=-30.0),
    "5 s, steps vary by 15 %": Scene(period_s=5.0),
    "15 s, 30 steps": Scene(period_s=15.0),
    "12 steps": Scene(steps=12),
    "telemetry of another job": Scene(follows=False),
}

if __name__ == "__main__":
    for name, scene in SCENES.items():
        print(f"{name:40}", calibrate(scene, 20), flush=True)  # noqa: T201 - the script is its output
