"""Check 4: do the dips follow the longest reward job, or something else (methods, 4.4)?

Four drivers compete for the width of each step's dip: the longest job (a straggler), total work / slots
(queued work), the makespan of list scheduling (how the jobs happened to pack) and the number of timeouts.
The straggler's "yes" needs all of: partial rho >= 0.5 with p <= 0.05, one second of dip for one second of
job (slope interval holds 1), and the longest job winning the contest. Correlation alone never says "yes":
total work correlates with the longest job, but with a slope near 1/slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.rank_partial import (
    Contest,
    Partial,
    Residuals,
    contest,
    correlate,
    detectable_rho,
    steps_for,
    take_out,
)
from dipstick.analysis.stats import Estimate, Reason, Slope, holm, normal_quantile, pearson, theil_sen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray, Verdict

LONGEST, TOTAL, MAKESPAN, TIMEOUTS = "longest_job", "total_work", "makespan", "timeouts"
"""Names of the drivers, as in the JSON contract."""

_FINE_S, _MIN_FINE, _MIN_COARSE = 5.0, 15, 30
_SPREAD = 2.0
_HALF_STEPS, _HALF_LEVEL = 20, 0.99
_NEGLIGIBLE = 0.2
_SLOPE_ONE = (0.95, 1.05)
_LINE = 3
_NO_LINE = Slope(Estimate(float("nan"), float("-inf"), float("inf")), float("nan"), 0, 0)


@dataclass(frozen=True, slots=True)
class StragglerOptions:
    """Conventions of the check (methods, 4.4 and 7)."""

    alpha: float = 0.05
    strong: float = 0.5
    weak: float = 0.2
    none_below: float = 0.3
    slope: tuple[float, float] = (0.5, 1.5)
    level: float = 0.95
    draws: int = 999
    boot: int = 500
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DriverRow:
    """One driver against the dips.

    Attributes:
        rho: Partial rank correlation, with interval.
        p_value: One-sided block permutation. ``p_adjusted``: Holm over the drivers.
        slope: Theil-Sen slope, dip units for each driver unit, on the raw series.
        intercept: The dip that remains without the driver.
        share: Bootstrap probability of winning (its class's, if drivers coincide).
        spread: p90 / p10 of the driver over the steps.
    """

    name: str
    rho: Estimate
    p_value: float
    p_adjusted: float
    slope: Estimate
    intercept: float
    share: float
    spread: float


@dataclass(frozen=True, slots=True)
class StragglerTest:
    """The verdict on "dips follow the longest reward job".

    Attributes:
        driver: The driver that wins: one of the names, "none" (nothing to follow) or "unresolved".
        rows: The drivers, in the order given.
        same: Drivers that are one and the same in this run.
        steps: Steps in the test.
        detectable_rho: Smallest partial rho seen with power 0.8.
        steps_needed: Steps at which rho 0.5 would be seen with power 0.8 (never below the check's minimum).
        halves: rho of the two halves of the run; None if too short to split.
    """

    verdict: Verdict
    codes: tuple[Reason, ...]
    driver: str
    rows: tuple[DriverRow, ...]
    same: tuple[tuple[str, ...], ...]
    steps: int
    detectable_rho: float | None
    steps_needed: int
    halves: tuple[float, float] | None

    def row(self, name: str) -> DriverRow | None:
        """The row of a driver, None if it was not given."""
        return next((r for r in self.rows if r.name == name), None)


def judge_stragglers(
    dip: FloatArray,
    drivers: Mapping[str, FloatArray],
    covariates: Mapping[str, FloatArray],
    window_s: float,
    options: StragglerOptions | None = None,
) -> StragglerTest:
    """Test the longest job, and name the driver.

    Args:
        dip: Equivalent width [s] or deficit [GPU-s] of the reward-attached dip, by step (N,).
        drivers: ``longest_job`` [s] and any of ``total_work`` (work / slots) [s], ``makespan`` [s],
            ``timeouts`` [count], by step (N,).
        covariates: Shared causes by step (mean completion length); the step index is always taken out.
        window_s: Telemetry window W (sets the least number of steps).
        options: Levels, thresholds, draws, seed.
    """
    opt = options or StragglerOptions()
    rng = np.random.default_rng(opt.seed)
    left = take_out(dip, drivers, list(covariates.values()))
    partials = {name: correlate(left.y, x, left.columns, rng, opt.draws) for name, x in left.x.items()}
    race = contest(left, rng, opt.boot, opt.level)
    rows = _rows(dip, drivers, partials, race, rng)
    least = _MIN_FINE if window_s <= _FINE_S else _MIN_COARSE
    steps = int(np.isfinite(np.column_stack([dip, *drivers.values()])).all(axis=1).sum())
    halves = _halves(left)
    driver = _driver(rows, race, opt)
    longest = next((r for r in rows if r.name == LONGEST), None)
    verdict, codes = _verdict(longest, driver, steps, least, opt)
    if verdict in {"yes", "partially"} and halves is not None and _disagree(halves, left):
        verdict, codes = "unconfirmed", ("NONSTATIONARY",)
    return StragglerTest(
        verdict, codes, driver, rows, race.same, steps, detectable_rho(left.y.size, left.columns, opt.alpha),
        max(least, steps_for(opt.strong, left.columns, opt.alpha)), halves,
    )  # fmt: skip


def _rows(
    dip: FloatArray,
    drivers: Mapping[str, FloatArray],
    partials: Mapping[str, Partial],
    race: Contest,
    rng: np.random.Generator,
) -> tuple[DriverRow, ...]:
    adjusted = holm([partials[n].p_value for n in drivers])
    rows = []
    for (name, x), p in zip(drivers.items(), adjusted, strict=True):
        keep = np.isfinite(x) & np.isfinite(dip)
        line = theil_sen(x[keep], dip[keep], rng) if keep.sum() >= _LINE else _NO_LINE
        share = next((s for group, s in race.share.items() if name in group), 0.0)
        part = partials[name]
        rows.append(
            DriverRow(
                name, part.rho, part.p_value, float(p), line.slope, line.intercept, share, spread(x[keep])
            )
        )
    return tuple(rows)


def spread(x: FloatArray) -> float:
    """p90 / p10: 1 for a constant, infinite if a tenth of the steps are at 0, NaN without steps."""
    if x.size == 0:
        return float("nan")
    low, high = np.quantile(x, [0.1, 0.9])
    if low <= 0:
        return float("inf") if high > low else 1.0
    return float(high / low)


def _driver(rows: tuple[DriverRow, ...], race: Contest, opt: StragglerOptions) -> str:
    """The winner by name; a class that holds both straggler and queue stays unresolved."""
    if race.winner is not None:
        found = [r for r in rows if r.name in race.winner and r.p_adjusted <= opt.alpha]
        if found and not {LONGEST, TOTAL} <= set(race.winner):
            order = [LONGEST, TOTAL, MAKESPAN, TIMEOUTS]
            names = sorted(race.winner, key=lambda n: order.index(n) if n in order else len(order))
            return names[0]
    known = [r for r in rows if np.isfinite(r.rho.value)]
    quiet = known and all(r.rho.high < opt.none_below for r in known)
    return "none" if quiet else "unresolved"


def _verdict(
    row: DriverRow | None, driver: str, steps: int, least: int, opt: StragglerOptions
) -> tuple[Verdict, tuple[Reason, ...]]:
    """The rule of methods 4.4, after what makes the data unfit for it."""
    if row is None or steps < least:
        return "unconfirmed", ("LOW_N",)
    if not row.spread >= _SPREAD or not np.isfinite(row.rho.value):
        return "unconfirmed", ("NO_VARIATION",)
    if row.p_value <= opt.alpha and row.rho.value >= opt.weak:
        return _follows(row, driver, opt)
    return ("no", ()) if row.rho.high < opt.none_below else ("unconfirmed", ("LOW_N",))


def _follows(row: DriverRow, driver: str, opt: StragglerOptions) -> tuple[Verdict, tuple[Reason, ...]]:
    """Dips rise with the longest job: is it the job itself, second for second?"""
    other = driver not in {LONGEST, "none", "unresolved"}
    if row.rho.value < opt.strong or other or not _is_one(row.slope):
        return "partially", ()
    if driver != LONGEST:
        return "unconfirmed", ("COLLINEAR",)
    fits = opt.slope[0] <= row.slope.low and row.slope.high <= opt.slope[1]
    return ("yes", ()) if fits else ("unconfirmed", ("LOW_N",))


def _is_one(slope: Estimate) -> bool:
    """Whether the interval holds 1, give or take 5 %: a long run without noise tells 1.01 from 1."""
    return slope.low <= _SLOPE_ONE[1] and slope.high >= _SLOPE_ONE[0]


def _halves(left: Residuals) -> tuple[float, float] | None:
    """Correlation in the first and in the second half; None below 20 steps each."""
    x, n = left.x.get(LONGEST), left.y.size
    if x is None or n < 2 * _HALF_STEPS:
        return None
    return pearson(x[: n // 2], left.y[: n // 2]), pearson(x[n // 2 :], left.y[n // 2 :])


def _disagree(halves: tuple[float, float], left: Residuals) -> bool:
    """Do the halves differ at the 1 % level, and by enough to change an answer?

    The literal rule ("one half's 95 % interval excludes the other's estimate") fires in 17 % of perfectly
    stationary runs; comparing the two on the z scale at 99 % fires in 1 %. On that scale 0.999 and 0.98 are
    far apart, and both say the same.
    """
    if np.isnan(halves).any() or abs(halves[0] - halves[1]) <= _NEGLIGIBLE:
        return False
    z = np.arctanh(np.clip(halves, -0.9999, 0.9999))
    width = float(np.sqrt(2 * 1.06 / max(1, left.y.size // 2 - 3)))
    return bool(abs(z[0] - z[1]) > normal_quantile(_HALF_LEVEL) * width)
