"""What a run can show at all: the smallest p-value, the smallest effect, the steps that would do.

Printed beside every verdict that is not "yes", so that "not found" cannot be read as "not there".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from dipstick.analysis.shifts import Loop
    from dipstick.analysis.stats import FloatArray

POWER = 0.8
_FEWEST_STEPS, _MOST_STEPS = 8, 20_000


def p_floor(loop: Loop, tolerance: float, lags: FloatArray, draws: int) -> float:
    """The smallest p-value that means anything: ``1 / min(T / 2t, m)``, or ``(2t + lag span) / L``.

    The second form is for a loop that is periodic for our purposes (``CV x L x sqrt(N) < 2t``): each of
    its steps repeats the same comparison, so more steps add no evidence, and a free lag leaves none.

    Example: t = 3 s in 40 steps of 60 s: 6 / 2400 = 0.0025; with equal steps 6 / 60 = 0.1.
    """
    lengths = np.diff(loop.step_starts)
    window = 2 * tolerance
    wander = float(lengths.std() * np.sqrt(loop.steps)) if lengths.size else 0.0
    if wander < window:
        return min(1.0, (window + float(lags[-1] - lags[0])) / loop.step_s)
    return float(min(1.0, max(window / loop.seconds, 1 / (draws + 1))))


def critical_count(null: FloatArray, level: float) -> int:
    """The smallest count whose permutation p is at most ``level``; above any count if there is none."""
    counts = np.arange(int(null.max()) + 2)
    above = null.size - np.searchsorted(np.sort(null), counts - 0.5)
    small = np.flatnonzero((1 + above) / (null.size + 1) <= level)
    return int(small[0]) if small.size else int(np.iinfo(np.int32).max)


def detectable_effect(null: FloatArray, onsets: int, level: float) -> float | None:
    """The excess over chance that would reach ``level`` with power 0.8 (binomial hits); None if none would."""
    need = critical_count(null, level)
    if need > onsets:
        return None
    rate = float(special.betaincinv(max(1, need), onsets - max(1, need) + 1, POWER))
    return max(0.0, rate - float(null.mean()) / onsets)


def steps_needed(null: FloatArray, onsets: int, steps: int, level: float, effect: float = 0.5) -> int | None:
    """Steps at which an excess of ``effect`` reaches ``level`` with power 0.8; None above 20,000.

    The margin of the critical count over the null's mean grows with the root of the run's length.
    """
    chance = float(null.mean()) / onsets
    need = critical_count(null, level)
    if need > null.max() + 1 or chance + effect >= 1:
        return None
    tried = np.unique(np.geomspace(_FEWEST_STEPS, _MOST_STEPS, 300).astype(np.int64))
    scaled = np.maximum(1, np.rint(onsets * tried / steps))
    margin = (need - chance * onsets) * np.sqrt(tried / steps)
    least = np.ceil(chance * scaled + margin)
    power = np.where(
        least > scaled, 0.0, special.betainc(least, np.maximum(scaled - least + 1, 1e-9), chance + effect)
    )
    enough = np.flatnonzero(power >= POWER)
    return int(tried[enough[0]]) if enough.size else None
