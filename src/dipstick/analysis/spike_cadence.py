"""Do the unexplained spikes keep a beat? Exploratory: a period is a hint where to look, never a cause.

Two estimates, because each has a blind spot: the Rayleigh statistic on a grid of frequencies (Z = how much
the onsets bunch at one phase of the period; needs no equal spacing, tolerates missed beats) and the median
gap between neighbours. A run of T seconds can't tell two periods apart unless |1/P1 - 1/P2| > 1/T, which is
the interval given; 58 s and 60 s need 29 minutes. Anything locked to the steps peaks at 1 / step time.

Worked example: onsets at 0, 420, 840, 1260 s in a run of 1,300 s: all at the same phase of P = 420 s, so
Z = n R^2 = 4; but four points bunch that well at one frequency by chance with e^-4 = 0.018, and with half
a dozen independent frequencies looked at that is nothing: "about every 7 minutes" is not established.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dipstick.model import FloatArray

_OVERSAMPLE = 8
_TRIALS = 3  # a maximum over the oversampled grid is worth about three independent looks each
_CELLS_PER_PERIOD = 8
_MOST_CELLS = 1 << 19
_MIN_ONSETS = 4
_LEVEL = 0.10
_HARMONIC = 0.8


@dataclass(frozen=True, slots=True)
class Cadence:
    """The best period of a set of onsets.

    Attributes:
        period_s: The period; None without enough spikes.
        low_s: 1 / (1/P + 1/2T): a shorter period than this could be told apart.
        high_s: 1 / (1/P - 1/2T); infinite if the run holds less than half a beat.
        z: Rayleigh statistic n R^2 at that period.
        p_value: Chance of as much bunching anywhere on the grid (Bonferroni over independent frequencies).
        credible: Whether that is at most 10 %. Still exploratory.
        step_locked: The period is a step, or a fraction or multiple of it that T can resolve.
        median_gap_s: Median distance of neighbouring spikes.
        onsets: How many spikes.
        seconds: T.
    """

    period_s: float | None
    low_s: float
    high_s: float
    z: float
    p_value: float
    credible: bool
    step_locked: bool
    median_gap_s: float | None
    onsets: int
    seconds: float


def cadence(
    onset_s: FloatArray, seconds: float, step_s: float | None = None, shortest_s: float | None = None
) -> Cadence:
    """Look for a period.

    Args:
        onset_s: Onsets (n,), seconds.
        seconds: Length T of the run.
        step_s: Mean step time, to say whether the beat is the step's.
        shortest_s: Shortest period looked for; half the 10 % quantile of the gaps by default.
    """
    onset = np.sort(onset_s)
    gaps = np.diff(onset)
    gap = float(np.median(gaps)) if gaps.size else None
    if onset.size < _MIN_ONSETS:
        return Cadence(None, 0.0, float("inf"), 0.0, 1.0, False, False, gap, int(onset.size), seconds)
    shortest = max(shortest_s or float(np.quantile(gaps, 0.1)) / 2, seconds * _CELLS_PER_PERIOD / _MOST_CELLS)
    frequency, z = rayleigh(onset - onset[0], seconds, shortest)
    if frequency.size == 0:
        return Cadence(None, 0.0, float("inf"), 0.0, 1.0, False, False, gap, int(onset.size), seconds)
    best = int(np.argmax(z >= _HARMONIC * z.max()))  # P/2, P/3 ... bunch as well as P: take the lowest
    best += int(np.argmax(z[best : best + _OVERSAMPLE]))
    period, half = float(1 / frequency[best]), 1 / (2 * seconds)
    p = min(1.0, _TRIALS * seconds / shortest * float(np.exp(-z[best])))
    high = 1 / (1 / period - half) if 1 / period > half else float("inf")
    return Cadence(
        period, 1 / (1 / period + half), high, float(z[best]), p, p <= _LEVEL,
        _locked(period, step_s, seconds), gap, int(onset.size), seconds,
    )  # fmt: skip


def rayleigh(onset_s: FloatArray, seconds: float, shortest_s: float) -> tuple[FloatArray, FloatArray]:
    """Frequencies from 2/T to 1/shortest in steps of about 1/16T to 1/8T, and Z = n R^2 = |sum exp(2 pi i f t)|^2 / n at each.

    By FFT of the onsets on a grid of an eighth of the shortest period. Z is about exponential(1) for
    unrelated onsets.
    """
    cell = shortest_s / _CELLS_PER_PERIOD
    cells = int(np.ceil(seconds / cell)) + 1
    count = np.bincount((onset_s / cell).astype(np.int64), minlength=cells)
    size = 1 << (_OVERSAMPLE * cells - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(count, n=size)) ** 2 / onset_s.size
    frequency = np.fft.rfftfreq(size, cell)
    keep = (frequency >= 2 / seconds) & (frequency <= 1 / shortest_s)
    return np.asarray(frequency[keep], dtype=np.float64), spectrum[keep]


def _locked(period: float, step_s: float | None, seconds: float) -> bool:
    """Is the period m steps (or a step m periods), where T can tell m from m + 1?"""
    if not step_s:
        return False
    many = max(1, round(max(period / step_s, step_s / period)))
    beat = 1 / (many * step_s) if period >= step_s else many / step_s
    apart = 1 / (many * step_s) - 1 / ((many + 1) * step_s) if period >= step_s else 1 / step_s
    return abs(1 / period - beat) <= 1 / seconds < apart
