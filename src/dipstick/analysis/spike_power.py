"""What a test of a schedule could have found: exact power and the smallest hit rate it would see.

Power is a sum over two binomials, so no simulation is needed.
Example (methods, 4.3): hit rate 0.8 fired, 0.1 unfired, level 0.01: 5 fired + 40 unfired has power 0.80.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from dipstick.analysis.stats import binomial_pmf

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.model import FloatArray

POWER = 0.8
"""The power at which a minimum detectable effect is quoted."""

_MOST_FIRED, _MOST_UNFIRED = 200, 400  # beyond this more steps barely change the smallest visible rate
_MOST_GROWTH = 64
_RATE_STEP = 0.01  # a rate is printed with two digits
_GROWTH_STEP = 1 / 16


def fisher_power(fired: int, unfired: int, rate_fired: float, rate_unfired: float, level: float) -> float:
    """Probability that the one-sided Fisher test rejects at ``level``."""
    fired, unfired = min(fired, _MOST_FIRED), min(unfired, _MOST_UNFIRED)
    if fired == 0 or unfired == 0:
        return 0.0
    reject = _fisher_table(fired, unfired) <= level
    return float(binomial_pmf(fired, rate_fired) @ reject @ binomial_pmf(unfired, rate_unfired))


def excess_power(windows: int, rate: float, chance: float, level: float) -> float:
    """Probability that ``windows`` hit at ``rate`` are too many for ``chance`` (binomial stand-in for a shift null)."""
    tail = np.cumsum(binomial_pmf(windows, chance)[::-1])[::-1]
    return float(binomial_pmf(windows, rate)[tail <= level].sum())


def _fisher_table(fired: int, unfired: int) -> FloatArray:
    """One-sided p-values of every outcome, shape (fired + 1, unfired + 1)."""
    a = np.arange(fired + 1.0)[:, None]
    b = np.arange(unfired + 1.0)[None, :]
    log_term = _log_choose(fired, a) + _log_choose(unfired, b) - _log_choose(fired + unfired, a + b)
    table = np.exp(log_term)
    for row in range(fired - 1, -1, -1):  # the same number of hits, one more of them fired
        table[row, 1:] += table[row + 1, :-1]
    return np.asarray(table, dtype=np.float64)


def _log_choose(n: int, k: FloatArray) -> FloatArray:
    value: FloatArray = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return value


def smallest_rate(power_at: Callable[[float], float]) -> float | None:
    """The lowest hit rate that ``power_at`` gives power 0.8, to 0.01; None if even 1.0 does not reach it."""
    if power_at(1.0) < POWER:
        return None
    low, high = 0.0, 1.0
    while high - low > _RATE_STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(middle) >= POWER else (middle, high)
    return high


def growth_needed(power_at: Callable[[float], float]) -> float | None:
    """How many times longer the run must be for power 0.8, to 6 %; None beyond 64 times.

    ``power_at(g)`` is the power of a run g times as long.
    """
    growth = 1.0
    while power_at(growth) < POWER:
        growth *= 2
        if growth > _MOST_GROWTH:
            return None
    low = growth / 2
    while growth - low > _GROWTH_STEP * growth:
        middle = (low + growth) / 2
        low, growth = (low, middle) if power_at(middle) >= POWER else (middle, growth)
    return growth
