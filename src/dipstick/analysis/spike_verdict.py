"""From a schedule's test to its verdict, and what the test could have seen (methods, 4.3).

yes: Holm p <= 0.05, effect >= 0.5, no twins, Delta BIC > 10. partially: significant with an effect of 0.2 to
0.5, or a class of twins with >= 0.5. no: the upper bound of the effect is below 0.2, from at least 16 clean
events (0 hits of 16 put the bound at 0.194). Everything else is unconfirmed, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis import spike_power as power

if TYPE_CHECKING:
    from dipstick.analysis.spike_schedules import Kind
    from dipstick.analysis.stats import Estimate, Reason
    from dipstick.model import Verdict

STRONG, WEAK = 0.5, 0.2
"""Effects (differences of hit rates) for "yes" and "partially": conventions, printed with the verdict."""

_NEEDED_BIC = 10.0
_MOST_COVERAGE = 0.25
_MIN_FOR_NO = 16
_TYPICAL_RATE = 0.8
_MOST_WINDOWS = 2000
_FULL = 0.99

Ruling = tuple["Verdict", tuple["Reason", ...]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Opportunities of one schedule and how many held a spike.

    ``unfired`` is 0 for each-step and clock schedules; ``contaminated`` fired ones were dropped.
    """

    fired: int
    unfired: int
    hits_fired: int
    hits_unfired: int
    contaminated: int

    @property
    def recall(self) -> float | None:
        """Share of clean events with a spike."""
        return self.hits_fired / self.fired if self.fired else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the ruling looks at.

    Attributes:
        coverage: Share of the run inside the fired windows.
        delta_bic: BIC lost without the schedule beside all others; ``alone_bic`` beside none.
        chance: Hit rate without the event.
        alone: No twins and no shadow.
        taken: A shadow of it was found guilty itself.
        steady: The first and the second half of the run do not differ in their hit rates (99 %).
        level: alpha / number of schedules.
    """

    kind: Kind
    counts: Counts
    p_adjusted: float
    effect: Estimate
    p_floor: float
    coverage: float
    delta_bic: float
    alone_bic: float
    chance: float
    alone: bool
    taken: bool
    alpha: float
    level: float
    steady: bool = True

    @property
    def significant(self) -> bool:
        """Holm-adjusted p at most alpha (never where the test could not be run)."""
        return self.p_adjusted <= self.alpha


def grade(e: Evidence) -> Ruling:
    """The rule at the top of this module."""
    if e.kind != "event" and e.coverage > _MOST_COVERAGE:
        return "unconfirmed", ("COVERAGE",)
    if e.significant and e.p_floor <= e.level:
        return _found(e)
    if e.effect.high < WEAK and not e.significant and e.counts.fired >= _MIN_FOR_NO:
        return "no", ()
    if e.p_floor > e.level:
        return "unconfirmed", ("P_FLOOR", "LOW_N") if e.kind == "event" else ("P_FLOOR",)
    return "unconfirmed", ("LOW_N",)


def _found(e: Evidence) -> Ruling:
    """Spikes do come with the events; is it these events, and how often?"""
    if not e.alone:
        blame = e.effect.value >= STRONG and not e.taken
        return ("partially" if blame else "unconfirmed"), ("COLLINEAR",)
    if e.delta_bic <= _NEEDED_BIC:  # another schedule does as well, or there are too few spikes
        return "unconfirmed", ("COLLINEAR",) if e.alone_bic > _NEEDED_BIC else ("LOW_N",)
    if not e.steady:
        return "unconfirmed", ("NONSTATIONARY",)
    if e.effect.value >= STRONG:
        return "yes", ()
    return ("partially", ()) if e.effect.value >= WEAK else ("unconfirmed", ("LOW_N",))


def detectable_rate(e: Evidence) -> float | None:
    """Smallest hit rate of fired events that would be seen with power 0.8; None if none would."""
    return power.smallest_rate(lambda rate: _power(e, rate, 1.0)) if e.counts.fired else None


def steps_needed(e: Evidence, steps: int) -> int | None:
    """Steps at which the observed rate would be seen with power 0.8 (0.8 where none stands out); None if > 64 x."""
    recall = e.counts.recall
    seen = recall if recall is not None and recall - e.chance >= WEAK else _TYPICAL_RATE
    rate = max(seen, min(1.0, e.chance + WEAK))
    growth = power.growth_needed(lambda g: _power(e, rate, g))
    return None if growth is None else int(np.ceil(steps * growth))


def _power(e: Evidence, rate: float, growth: float) -> float:
    """Power at a fired hit rate in a run ``growth`` times as long."""
    events = max(1, round(max(e.counts.fired, 1) * growth))
    chance = min(e.chance, _FULL)
    if e.kind == "event":
        return power.fisher_power(events, round(e.counts.unfired * growth), rate, chance, e.level)
    return power.excess_power(min(events, _MOST_WINDOWS), rate, chance, e.level)
