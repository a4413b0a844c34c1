"""Calibration of the alignment check: scenarios S1 to S5 of methods section 6.

S1, S2: event test, levels and power.  S3: anchor contest.  S4: lag, level and window by overlap regression.
S5: regression test.  Every cell is a world with known truth from :mod:`loops`, judged by the shipped code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.contest import anchor_contest
from dipstick.analysis.design import base_name
from dipstick.analysis.lock import locked_to_loop
from dipstick.analysis.lock_regression import regression_lock
from dipstick.analysis.overlap import estimate_window, fit_overlap

from .loops import (
    UNRELATED,
    Unrelated,
    contest_onsets,
    draw_run,
    drift_of,
    locked_onsets,
    locked_telemetry,
    unrelated_onsets,
    unrelated_telemetry,
)
from .rows import Aim, Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.lock import LockResult

NO_SCAN = np.array([0.0])
TOLERANCE_S = 3.0
DRAWS = 999
REWARD_PCT = 5.2
"""Mean of reward samples: level 5, noise SD 4, cut at 0. The methods call it 5; at W = D = 1 s the 0.2 shows."""
S4_S5_CV = 0.2
"""The methods leave the phase CV of S4 and S5 open; 0.2 gives their figures back (0.05 is nearly periodic at D = 15 s)."""
LEVELS = (Aim("p1 <= 0.05", "level", 0.05), Aim("p1 <= 0.01", "level", 0.01))


def cells() -> list[Cell]:
    """All cells of the full form."""
    return [*s1_power(), *s2_levels(), *s2_scan(), *s2_families(), *s2_power(), *s3(), *s4(), *s5()]


def quick_cells() -> list[Cell]:
    """A few cells of each scenario, for CI."""
    wanted = {
        "S2 fixed lag, poisson, CV 0.05, N 20", "S2 fixed lag, L, CV 0.05, N 20",
        "S2 fixed lag, falling, CV 0.2, N 20", "S2 power W 0, hit 0.8, CV 0.05, N 20",
        "S2 family of five, lag scan, L/2, N 20", "S3 ratio 9, N 20", "S3 ratio 0.4, N 20",
        "S5 level L/2, CV 0.05, N 40", "S5 power W 15, D 15, drop 85, N 8",
    }  # fmt: skip
    return [cell for cell in cells() if f"{cell.scenario} {cell.name}" in wanted]


# -- S1 and S2: events -----------------------------------------------------------------------------


def s1_power() -> list[Cell]:
    """Power of the common shift; N = 5 of the table is below the check's minimum of 8 steps."""
    table = {0.0: {10: 0.12, 20: 0.25, 40: 0.36, 80: 0.50}, 0.05: {10: 0.95, 20: 1.0, 40: 1.0, 80: 1.0}}
    return [
        Cell(
            "S1",
            f"common shift, CV {cv:g}, N {n}",
            (Aim("p_global <= 0.05", "power", table=value),),
            partial(_common_shift, steps=n, cv=cv),
        )
        for cv, row in table.items()
        for n, value in row.items()
    ]


def s2_levels() -> list[Cell]:
    """Dips that know nothing of the loop, boundary lag known."""
    return [
        Cell(
            "S2",
            f"fixed lag, {kind}, CV {cv:g}, N {n}",
            LEVELS,
            partial(_unrelated, kind=kind, steps=n, cv=cv),
        )
        for kind in UNRELATED
        for cv in ((0.05, 0.2) if drift_of(kind) else (0.0, 0.05, 0.2))
        for n in (20, 60)
    ]


def s2_scan() -> list[Cell]:
    """The same with the lag grid scanned (41 lags)."""
    return [
        Cell(
            "S2",
            f"lag scan, {kind}, CV 0.05, N {n}",
            LEVELS,
            partial(_unrelated, kind=kind, steps=n, cv=0.05, scan=True),
        )
        for kind in UNRELATED
        for n in (20, 60)
    ]


def s2_families() -> list[Cell]:
    """Any of five boundaries after Holm, lags scanned: the chance that the check says anything at all."""
    aims = (Aim("any Holm p <= 0.05", "level", 0.05),)
    return [
        Cell(
            "S2",
            f"family of five, lag scan, {kind}, N {n}",
            aims,
            partial(_family, kind=kind, steps=n),
            cost=2.0,
        )
        for kind in UNRELATED
        for n in (20, 60)
    ]


def s2_power() -> list[Cell]:
    """The S2 power table, and the same with the lag scanned (not in the table)."""
    steps = (8, 12, 20, 40)
    table = (
        (0.0, 0.8, 0.05, (0.87, 0.99, 1.0, 1.0), (0.15, 0.59, 0.97, 1.0)),
        (5.0, 0.8, 0.05, (0.43, 0.73, 0.98, 1.0), (0.02, 0.17, 0.62, 0.99)),
        (0.0, 0.4, 0.05, (0.47, 0.82, 0.97, 1.0), (0.04, 0.24, 0.64, 0.99)),
        (0.0, 0.8, 0.10, (0.98, 1.0, 1.0, 1.0), (0.36, 0.82, 1.0, 1.0)),
    )
    return [
        Cell(
            "S2",
            f"power W {window:g}, hit {hit:g}, CV {cv:g}, N {n}",
            (Aim("p1 <= 0.05", "power", table=at5), Aim("p1 <= 0.01", "power", table=at1),
             Aim("p1 <= 0.05, lag scan", "power"), Aim("p1 <= 0.01, lag scan", "power")),
            partial(_locked, steps=n, cv=cv, hit=hit, window=window),
        )
        for window, hit, cv, all5, all1 in table
        for n, at5, at1 in zip(steps, all5, all1, strict=True)
    ]  # fmt: skip


def _common_shift(rng: np.random.Generator, steps: int, cv: float) -> Sequence[float]:
    run = draw_run(rng, steps, cv)
    onsets = locked_onsets(rng, run, 0.8)
    result = locked_to_loop(
        run.loop, {"reward": run.starts[:, 1]}, onsets, TOLERANCE_S, rng, lags=NO_SCAN, draws=DRAWS
    )
    return (result.boundaries[0].p_global <= 0.05,)


def _unrelated(
    rng: np.random.Generator, kind: Unrelated, steps: int, cv: float, *, scan: bool = False
) -> Sequence[float]:
    run = draw_run(rng, steps, cv, drift=drift_of(kind))
    result = locked_to_loop(
        run.loop, {"reward": run.starts[:, 1]}, unrelated_onsets(rng, run, kind), TOLERANCE_S, rng,
        lags=None if scan else NO_SCAN, draws=DRAWS,
    )  # fmt: skip
    return _at_levels(result)


def _at_levels(result: LockResult) -> tuple[bool, bool]:
    p = result.boundaries[0].p_value
    return p <= 0.05, p <= 0.01


def _family(rng: np.random.Generator, kind: Unrelated, steps: int) -> Sequence[float]:
    run = draw_run(rng, steps, 0.05, drift=drift_of(kind))
    onsets = unrelated_onsets(rng, run, kind)
    result = locked_to_loop(run.loop, run.boundaries, onsets, TOLERANCE_S, rng, draws=DRAWS)
    return (any(b.p_adjusted <= 0.05 for b in result.boundaries),)


def _locked(rng: np.random.Generator, steps: int, cv: float, hit: float, window: float) -> Sequence[float]:
    run = draw_run(rng, steps, cv)
    onsets = locked_onsets(rng, run, hit, window)
    tolerance = window or TOLERANCE_S
    test = partial(
        locked_to_loop, run.loop, {"reward": run.starts[:, 1]}, onsets, tolerance, rng, draws=DRAWS
    )
    return (*_at_levels(test(lags=NO_SCAN)), *_at_levels(test(lags=None)))


# -- S3: contest -----------------------------------------------------------------------------------


def s3() -> list[Cell]:
    """P(won) beside the middle of the table's range, and the wrong winners (at most 1 %)."""
    table = {
        9.0: {10: 0.31, 20: 0.97, 40: 1.0, 80: 1.0},
        3.3: {10: 0.04, 20: 0.54, 40: 0.93, 80: 1.0},
        1.05: {10: 0.005, 20: 0.02, 40: 0.18, 80: 0.42},
        0.4: {10: 0.0, 20: 0.0, 40: 0.0, 80: 0.005},
    }
    return [
        Cell(
            "S3",
            f"ratio {ratio:g}, N {n}",
            (Aim("won", "power", table=value), Aim("wrong winner", "level", 0.01)),
            partial(_contest, steps=n, ratio=ratio),
        )
        for ratio, row in table.items()
        for n, value in row.items()
    ]


def _contest(rng: np.random.Generator, steps: int, ratio: float, cv: float = 0.2) -> Sequence[float]:
    run = draw_run(rng, steps, cv)
    onsets = contest_onsets(rng, run, lag_sd=9.0 * cv / ratio)
    result = anchor_contest(run.boundaries, onsets, rng)
    return (result.winner == "reward", result.winner not in (None, "reward"))


# -- S4: estimates ---------------------------------------------------------------------------------


def s4() -> list[Cell]:
    """Lag error, level of the reward phase, interval coverage and the choice of the window."""
    table = (
        (1, 1, 40, 0.07, 5.3, 0.4), (5, 5, 40, 0.07, 4.9, 0.6), (15, 15, 10, 0.37, 3.8, 3.9),
        (15, 15, 40, 0.15, 4.5, 1.7), (1, 15, 40, 0.08, 5.2, 0.9),
    )  # fmt: skip
    return [
        Cell(
            "S4",
            f"W {window}, D {period}, N {n}",
            (Aim("lag error", "estimate", table=0.0, table_sd=lag_sd),
             Aim("reward level", "estimate", table=level, table_sd=level_sd),
             Aim("lag interval misses", "estimate", table=0.05), Aim("level interval misses", "estimate", table=0.05),
             Aim("window right", "power", table=1.0, table_runs=160)),
            partial(_estimates, steps=n, window=float(window), period=float(period)),
            cost=5.0,
        )
        for window, period, n, lag_sd, level, level_sd in table
    ]  # fmt: skip


def _estimates(rng: np.random.Generator, steps: int, window: float, period: float) -> Sequence[float]:
    run = draw_run(rng, steps, S4_S5_CV)
    skew = rng.uniform(-3.0, 3.0)
    telemetry = [locked_telemetry(rng, run, window, period, 85.0, skew)]
    fit = fit_overlap(telemetry, window, run.starts[:, 0], rng)
    chosen, _ = estimate_window(telemetry, (1.0, 5.0, 15.0), run.starts[:, 0])
    if fit is None:
        return (np.nan,) * 5
    level = next((x.level_pct for x in fit.levels if base_name(x.name).startswith("reward")), None)
    lag = fit.lag_s
    misses = not lag.low <= skew <= lag.high
    if level is None:
        return (lag.value - skew, np.nan, misses, np.nan, chosen == window)
    return (
        lag.value - skew,
        level.value,
        misses,
        not level.low <= REWARD_PCT <= level.high,
        chosen == window,
    )


# -- S5: regression --------------------------------------------------------------------------------


def s5() -> list[Cell]:
    """Levels at W = D = 15 s (the table has Poisson and L/2) and power at 0.01, skew +-2 s unknown."""
    return [*_s5_levels(), *_s5_power()]


def _s5_levels() -> list[Cell]:
    return [
        Cell(
            "S5",
            f"level {kind}, CV {cv:g}, N 40",
            LEVELS,
            partial(_unrelated_samples, kind=kind, cv=cv),
        )
        for kind in UNRELATED
        for cv in (0.05, 0.2)
    ]


def _s5_power() -> list[Cell]:
    table = (
        (8, 15, 85, 1.0), (8, 1, 85, 0.95), (8, 15, 30, 0.88), (8, 1, 30, 0.90),
        (20, 15, 85, 1.0), (20, 1, 85, 1.0), (20, 15, 30, 1.0), (20, 1, 30, 1.0),
    )  # fmt: skip
    return [
        Cell(
            "S5",
            f"power W {window}, D 15, drop {drop}, N {n}",
            (Aim("p <= 0.01", "power", table=value, table_runs=60),),
            partial(_locked_samples, steps=n, window=float(window), drop=float(drop)),
        )
        for n, window, drop, value in table
    ]


def _unrelated_samples(rng: np.random.Generator, kind: Unrelated, cv: float) -> Sequence[float]:
    run = draw_run(rng, 40, cv, drift=drift_of(kind))
    telemetry = unrelated_telemetry(rng, run, 15.0, 15.0, kind)
    result = regression_lock([telemetry], 15.0, run.loop, rng, draws=DRAWS)
    return (False, False) if result is None else (result.p_value <= 0.05, result.p_value <= 0.01)


def _locked_samples(rng: np.random.Generator, steps: int, window: float, drop: float) -> Sequence[float]:
    run = draw_run(rng, steps, S4_S5_CV)
    telemetry = locked_telemetry(rng, run, window, 15.0, drop, rng.uniform(-2.0, 2.0))
    result = regression_lock([telemetry], window, run.loop, rng, draws=DRAWS)
    return (result is not None and result.p_value <= 0.01,)
