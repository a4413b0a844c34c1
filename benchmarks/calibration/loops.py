"""Synthetic loops with known truth for the alignment check (methods, section 6).

Each function draws one run from a Generator and returns what the check takes. The loop is the methods' one:
60 s steps, generate / reward / gather / train / sync = 55 / 15 / 2 / 23 / 5 %, lognormal phase durations.
Where the methods leave a detail open, the value here was chosen so that the rates of their tables come
back (S1 and S2: phase CV as labelled, lag SD 0.55 s, half a background dip a step, t = 3 s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dipstick.analysis.design import Telemetry, Timeline, box_shares, phase_shares
from dipstick.analysis.shifts import Loop

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray

PHASES = ("generate", "reward", "gather", "train", "sync")
SHARES = np.array([0.55, 0.15, 0.02, 0.23, 0.05])
STEP_S = 60.0
LAG_SD_S = 0.55
BACKGROUND = 0.5
BASELINE_PCT, NOISE_PCT = 90.0, 4.0
DIP_S, DIP_PCT = 9.0, 85.0

Unrelated = Literal["poisson", "rising", "falling", "L", "L/2", "0.37L"]
UNRELATED: tuple[Unrelated, ...] = ("poisson", "rising", "falling", "L", "L/2", "0.37L")
_PERIOD = {"L": 1.0, "L/2": 0.5, "0.37L": 0.37}


@dataclass(frozen=True, slots=True)
class Run:
    """Phase starts of every step, shape (steps, phases), and the end of the last step (seconds)."""

    starts: FloatArray
    end: float

    @property
    def loop(self) -> Loop:
        """Steps and run as the check takes them."""
        return Loop(self.starts[:, 0], (0.0, self.end))

    @property
    def boundaries(self) -> dict[str, FloatArray]:
        """Start times by phase."""
        return {name: self.starts[:, i] for i, name in enumerate(PHASES)}

    @property
    def timeline(self) -> Timeline:
        """The rank's phases."""
        codes = np.tile(np.arange(len(PHASES)), self.starts.shape[0])
        return Timeline(np.append(self.starts.ravel(), self.end), codes, PHASES)


def draw_run(rng: np.random.Generator, steps: int, cv: float, *, drift: float = 0.0) -> Run:
    """A run whose phases have coefficient of variation ``cv``; step length drifts by +-``drift``."""
    variance = np.log1p(cv * cv)
    noise = np.exp(rng.normal(0.0, np.sqrt(variance), (steps, len(PHASES))) - variance / 2)
    trend = np.linspace(1 - drift, 1 + drift, steps)[:, None]
    edges = np.concatenate([[0.0], np.cumsum((SHARES * STEP_S * noise * trend).ravel())])
    return Run(edges[:-1].reshape(steps, len(PHASES)), float(edges[-1]))


def drift_of(kind: Unrelated) -> float:
    """The drifting-rate scenarios also drift in step length, 40 % either way."""
    return 0.4 if kind in ("rising", "falling") else 0.0


def unrelated_onsets(rng: np.random.Generator, run: Run, kind: Unrelated) -> FloatArray:
    """Dips that know nothing of the loop: one a step on average, or strictly periodic at a random phase."""
    steps = run.starts.shape[0]
    if kind in _PERIOD:
        period = _PERIOD[kind] * run.end / steps
        return np.arange(rng.uniform(0.0, period), run.end, period)
    if kind == "poisson":
        return np.sort(rng.uniform(0.0, run.end, rng.poisson(steps)))
    onsets = np.sort(rng.uniform(0.0, run.end, rng.poisson(2 * steps)))
    rate = onsets / run.end if kind == "rising" else 1 - onsets / run.end
    return onsets[rng.random(onsets.size) < 0.1 + 0.9 * rate]


def locked_onsets(rng: np.random.Generator, run: Run, hit: float, window: float = 0.0) -> FloatArray:
    """Dips at reward start in a share ``hit`` of the steps, and half a background dip a step.

    ``window``: the onset is known to +-W/2 only (the middle of the sample window that shows it).
    """
    reward = run.starts[:, 1]
    true = (reward + rng.normal(0.0, LAG_SD_S, reward.size))[rng.random(reward.size) < hit]
    stray = rng.uniform(0.0, run.end, rng.poisson(BACKGROUND * reward.size))
    seen = np.concatenate([true, stray])
    return np.sort(seen + rng.uniform(-window / 2, window / 2, seen.size))


def contest_onsets(rng: np.random.Generator, run: Run, lag_sd: float, stray: float = 0.15) -> FloatArray:
    """One dip a step, 1 s after reward start with spread ``lag_sd``; a share ``stray`` anywhere in the step."""
    following = np.append(run.starts[1:, 0], run.end)
    onsets = run.starts[:, 1] + 1.0 + rng.normal(0.0, lag_sd, following.size)
    lost = rng.random(following.size) < stray
    return np.where(lost, rng.uniform(run.starts[:, 0], following), onsets)


def locked_telemetry(
    rng: np.random.Generator, run: Run, window: float, period: float, drop: float, skew: float
) -> Telemetry:
    """Utilization that falls by ``drop`` points in reward and gather; stamps run ``skew`` seconds late."""
    ts = _stamps(rng, run, window, period)
    levels = BASELINE_PCT - drop * np.array([0.0, 1.0, 1.0, 0.0, 0.0])
    clean = phase_shares(run.timeline, ts, window) @ levels
    return Telemetry(ts + skew, _noisy(rng, clean), run.timeline)


def unrelated_telemetry(
    rng: np.random.Generator, run: Run, window: float, period: float, kind: Unrelated
) -> Telemetry:
    """Utilization with 9 s dips of 85 points that know nothing of the loop."""
    onsets = unrelated_onsets(rng, run, kind)
    ts = _stamps(rng, run, window, period)
    clean = BASELINE_PCT - DIP_PCT * box_shares(onsets, onsets + DIP_S, ts, window)
    return Telemetry(ts, _noisy(rng, clean), run.timeline)


def _stamps(rng: np.random.Generator, run: Run, window: float, period: float) -> FloatArray:
    return np.arange(window + rng.uniform(0.0, period), run.end, period)


def _noisy(rng: np.random.Generator, clean: FloatArray) -> FloatArray:
    return np.clip(clean + rng.normal(0.0, NOISE_PCT, clean.size), 0.0, 100.0)
