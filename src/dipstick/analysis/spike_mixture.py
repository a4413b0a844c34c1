"""Which schedule does each spike belong to: a mixture of a background rate and one bump for each schedule.

lambda(t) = lambda0 + sum over schedules s of h_s * (density of s's fired windows at t), where h_s is the
expected number of spikes an event of s brings. Fitted by EM. It shares spikes out among overlapping
schedules and tells how many belong to none; it is displayed, and Delta BIC > 10 is asked for alongside
the exact test, never instead of it (methods, 4.3).

Worked example: a run of 1,000 s, ten 2 s windows, 9 spikes inside them and 10 elsewhere. lambda0 = 10 / 1,000
= 0.01 /s (nearly), h = 0.88; inside a window lambda = 0.01 + 0.88 / 2 = 0.45, so a spike there is background
with probability 0.01 / 0.45 = 0.02.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray

_ROUNDS = 300
_STILL = 1e-4  # expected spikes: smaller moves end the iteration


@dataclass(frozen=True, slots=True)
class Mixture:
    """The fitted rates.

    Attributes:
        background_per_s: lambda0.
        spikes_per_event: h of each schedule (S,).
        background: Posterior share of the background for each onset (n,).
        owner: Posterior share of each schedule for each onset (n, S).
        delta_bic: By how much BIC gets worse without each schedule (S,); above 10 it is needed.
        alone_bic: By how much each schedule by itself betters the plain background (S,).
    """

    background_per_s: float
    spikes_per_event: FloatArray
    background: FloatArray
    owner: FloatArray
    delta_bic: FloatArray
    alone_bic: FloatArray


def fit_mixture(
    onset_s: FloatArray, windows: Sequence[tuple[FloatArray, FloatArray]], seconds: float, steps: int
) -> Mixture:
    """Fit the mixture, and again without each schedule in turn.

    Args:
        onset_s: Spike onsets, ascending (n,).
        windows: Fired windows of each schedule: where they open and close.
        seconds: Length of the run.
        steps: Number of steps: the sample size in BIC (the step is the statistical unit).
    """
    density = np.column_stack(
        [_density(onset_s, lo, hi) for lo, hi in windows] or [np.empty((onset_s.size, 0))]
    )
    events = np.array([max(1, lo.size) for lo, _ in windows], dtype=np.float64)
    base, height, fit = _em(density, events, seconds)
    rate = base + density @ height
    plain = _em(density[:, :0], events[:0], seconds)[2]
    delta, alone = np.zeros(len(windows)), np.zeros(len(windows))
    for s in np.flatnonzero(density.any(axis=0)):
        rest = np.arange(len(windows)) != s
        delta[s] = 2 * (fit - _em(density[:, rest], events[rest], seconds)[2]) - np.log(steps)
        alone[s] = 2 * (_em(density[:, ~rest], events[~rest], seconds)[2] - plain) - np.log(steps)
    return Mixture(base, height, base / rate, density * height / rate[:, None], delta, alone)


def _density(onset_s: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Sum over the schedule's windows that hold the onset of 1 / window length, per second (n,)."""
    order = np.argsort(lo, kind="stable")
    per_s = 1.0 / np.maximum(hi - lo, 1e-9)
    opened = np.concatenate(([0.0], np.cumsum(per_s[order])))[
        np.searchsorted(lo[order], onset_s, side="right")
    ]
    order = np.argsort(hi, kind="stable")
    closed = np.concatenate(([0.0], np.cumsum(per_s[order])))[np.searchsorted(hi[order], onset_s)]
    return np.where(np.abs(opened - closed) < 1e-9 * np.maximum(1.0, opened), 0.0, opened - closed)


def _em(density: FloatArray, events: FloatArray, seconds: float) -> tuple[float, FloatArray, float]:
    """Background rate, spikes per event, log-likelihood of a Poisson process.

    At the maximum the expected count equals the observed one, so the integral is constant and left out.
    """
    n = density.shape[0]
    base, height = max(n, 1) / (2 * seconds), np.full(events.size, max(n, 1) / (2 * max(1.0, events.sum())))
    for _ in range(_ROUNDS):
        rate = base + density @ height
        base_new = max(float(np.sum(base / rate)) / seconds, 0.01 / seconds)
        height_new = height * (density.T @ (1.0 / rate)) / events
        done = abs(base_new - base) * seconds < _STILL and np.all(
            np.abs(height_new - height) * events < _STILL
        )
        base, height = base_new, height_new
        if done:
            break
    return base, height, float(np.sum(np.log(base + density @ height)))
