"""Calibration of the spike schedules (S6) and of the straggler relation (S7) of methods section 6.

    python -m benchmarks.calibration s6_s7 --runs 500 --jobs 2 -o rows.jsonl
    python -m benchmarks.calibration s6_s7 --quick

Every cell is a world with known truth from :mod:`s6_s7_worlds`, judged by the shipped code. Levels: a "yes" for
an innocent schedule, a "no" for the guilty one, a relation where there is none. Powers stand beside the methods'
table. "naive" figures show what the rules protect from. Exit status 1 as in :mod:`__main__`, or if a relation of
S7 that does not exist is found in more than 9 % of runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.spike_events import EventOptions, judge_schedules
from dipstick.analysis.spike_exposure import ExposureOptions, judge_exposure
from dipstick.analysis.stats import spearman
from dipstick.analysis.straggler_tests import StragglerOptions, judge_stragglers

from .rows import Aim, Cell
from .s6_s7_worlds import SpikeWorld, StragglerWorld, memory_samples, spike_onsets, straggler_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.analysis.spike_schedules import Schedule
    from dipstick.model import FloatArray

NOMINAL = 0.05
DRAWS, BOOT = 499, 300
S6_RUNS, S6X_RUNS, S7_RUNS = 150, 45, 275
"""Runs behind the methods' figures."""

FALSE_YES = Aim("false yes", "level", NOMINAL)
FALSE_NO = Aim("false no", "level", NOMINAL)
NAIVE_YES = Aim("naive false yes", "estimate")
NAIVE_P = Aim("naive p < .05", "estimate")
PARTIAL_P, SYNC_P = "partial p < .05", "each-step schedule p < .05"


# -- S6: which schedule explains the spikes -----------------------------------------------------------


def s6(world: SpikeWorld, *, yes: float | None = None, as_class: float | None = None) -> Cell:
    """Onsets against schedules: fired-unfired and shift tests."""
    aims = [FALSE_YES, NAIVE_YES]
    if world.cause is not None:
        aims += [FALSE_NO, Aim("yes on the cause", "power", table=yes, table_runs=S6_RUNS)]
    if world.background != "poisson":
        aims.append(Aim(SYNC_P, "level", NOMINAL))
    if as_class is not None:
        aims.append(Aim("cause named with its twin", "power", table=as_class, table_runs=S6_RUNS))
    return Cell("S6", world.name, tuple(aims), partial(_events_once, world, tuple(a.name for a in aims)))


def _events_once(world: SpikeWorld, aims: tuple[str, ...], rng: np.random.Generator) -> list[float]:
    edges, onset, schedules = spike_onsets(rng, world)
    options = EventOptions(world.window_s, draws=DRAWS, seed=int(rng.integers(2**31)))
    found = judge_schedules(onset, edges, list(schedules.values()), options).schedules
    seen = _outcomes({r.name: (r.verdict, bool(r.twins)) for r in found}, world.cause)
    seen[NAIVE_YES.name] = any(
        _naive(onset, s, world.window_s / 2) for n, s in schedules.items() if n != world.cause
    )
    seen[SYNC_P] = found[0].p_value <= NOMINAL
    return [float(seen[name]) for name in aims]


def _naive(onset: FloatArray, schedule: Schedule, tolerance: float) -> bool:
    """The rule of thumb: 70 % of the events have a spike."""
    lo, hi = schedule.start_s - tolerance, schedule.end_s + tolerance
    near = np.searchsorted(onset, hi, side="right") > np.searchsorted(onset, lo)
    return bool(near.size and near.mean() >= 0.7)


def _outcomes(found: dict[str, tuple[str, bool]], cause: str | None) -> dict[str, bool]:
    verdict, twins = found.get(cause or "", ("", False))
    return {
        FALSE_YES.name: any(v == "yes" for n, (v, _) in found.items() if n != cause),
        FALSE_NO.name: verdict == "no",
        "yes on the cause": verdict == "yes",
        "cause named with its twin": twins and verdict != "yes",
    }


def s6_cells() -> Iterator[Cell]:
    """The table's rows, cron at W = 1 s, and runs without any cause."""
    base = SpikeWorld(1.0, 20, 20, 5, None)
    yield s6(replace(base, cause="sync"), yes=1.0)
    yield s6(replace(base, cause="checkpoint"), yes=0.0)
    yield s6(replace(base, steps=40, cause="checkpoint"), yes=0.09)
    yield s6(replace(base, steps=100, cause="checkpoint"), yes=0.96)
    yield s6(replace(base, steps=100, cause="cache"), yes=1.0)
    yield s6(replace(base, steps=100, cause="cron"))
    for window in (1.0, 5.0):
        yield s6(SpikeWorld(window, 100, 10, 10, "checkpoint", twins=True), yes=0.0, as_class=1.0)
    for steps in (20, 40, 100):
        yield s6(SpikeWorld(5.0, steps, 20, 5, "sync"), yes=1.0)
    yield s6(SpikeWorld(5.0, 100, 20, 5, "cron"), yes=0.93)
    for window in (1.0, 5.0):
        for steps in (40, 100):
            yield s6(SpikeWorld(window, steps, 20, 5, None))
        for background in ("L", "L/2", "0.37L", "growing"):
            yield s6(SpikeWorld(window, 60, 20, 5, None, background=background))


# -- S6, coarse samples --------------------------------------------------------------------------------


def s6x(world: SpikeWorld, *, yes: float | None = None) -> Cell:
    """Exposure regression."""
    aims = [FALSE_YES]
    if world.cause is not None:
        aims += [FALSE_NO, Aim("yes on the cause", "power", table=yes, table_runs=S6X_RUNS)]
    return Cell(
        "S6 exposure", world.name, tuple(aims), partial(_exposure_once, world, tuple(a.name for a in aims))
    )


def _exposure_once(world: SpikeWorld, aims: tuple[str, ...], rng: np.random.Generator) -> list[float]:
    ts, value, share, edges, schedules = memory_samples(rng, world)
    options = ExposureOptions(draws=DRAWS, seed=int(rng.integers(2**31)))
    found = judge_exposure(ts, value, world.window_s, share, edges, list(schedules.values()), options)
    seen = _outcomes({r.name: (r.verdict, bool(r.twins)) for r in found}, world.cause)
    return [float(seen[name]) for name in aims]


def s6x_cells() -> Iterator[Cell]:
    """The methods' powers are without the exposure gate: where the gate forbids a "yes" they are left out."""
    for window, period, steps, figure in (
        (5.0, 5.0, 100, 0.98), (15.0, 15.0, 100, 0.80), (15.0, 15.0, 300, 1.0),
        (1.0, 15.0, 40, None), (1.0, 15.0, 100, None), (1.0, 15.0, 300, None),
    ):  # fmt: skip
        yield s6x(SpikeWorld(window, steps, 10, 5, "checkpoint", period_s=period), yes=figure)
    yield s6x(SpikeWorld(15.0, 100, 10, 5, "sync", period_s=15.0), yes=0.47)
    yield s6x(SpikeWorld(15.0, 100, 10, 5, "cache", period_s=15.0))
    for window, period in ((5.0, 5.0), (15.0, 15.0), (1.0, 15.0)):
        yield s6x(SpikeWorld(window, 100, 10, 5, None, period_s=period))


# -- S7: do dips follow the longest job ----------------------------------------------------------------


def s7(world: StragglerWorld, table: dict[str, float | None]) -> Cell:
    """A relation that exists (its powers in ``table``) or does not (two levels)."""
    aims = [Aim(name, "power", table=figure, table_runs=S7_RUNS) for name, figure in table.items()]
    if not table:
        aims.append(Aim(PARTIAL_P, "level", NOMINAL))
    if world.truth != "longest_job":
        aims.append(FALSE_YES)
    aims.append(NAIVE_P)
    return Cell("S7", world.name, tuple(aims), partial(_straggler_once, world, tuple(a.name for a in aims)))


def _straggler_once(world: StragglerWorld, aims: tuple[str, ...], rng: np.random.Generator) -> list[float]:
    run = straggler_run(rng, world)
    options = StragglerOptions(draws=DRAWS, boot=BOOT, seed=int(rng.integers(2**31)))
    found = judge_stragglers(run.width_s, run.drivers, run.covariates, world.window_s, options)
    row = found.rows[0]
    naive = float(np.arctanh(min(0.9999, spearman(run.width_s, run.drivers["longest_job"]))))
    seen = {
        PARTIAL_P: row.p_value <= NOMINAL,
        "yes": found.verdict == "yes",
        FALSE_YES.name: found.verdict == "yes",
        "total work wins": found.driver == "total_work",
        "slope interval holds 1": row.slope.low <= 1 <= row.slope.high,
        NAIVE_P.name: naive * np.sqrt((world.steps - 3) / 1.06) >= 1.645,  # one-sided, as the partial test
    }
    return [float(seen[name]) for name in aims]


def s7_cells() -> Iterator[Cell]:
    """The table's rows, 15 steps, and the series that wander or drift."""
    for window, steps, figure in (
        (1.0, 15, 1.0),
        (1.0, 30, 1.0),
        (1.0, 120, 1.0),
        (15.0, 30, 0.97),
        (15.0, 120, 1.0),
    ):
        slope = {"slope interval holds 1": 0.94, "yes": None} if steps > 15 else {}
        yield s7(StragglerWorld("longest_job", window, steps), {PARTIAL_P: figure, **slope})
    for steps, figure in ((30, 0.80), (120, 1.0)):
        table = {PARTIAL_P: figure, "total work wins": None, "slope interval holds 1": 0.0}
        yield s7(StragglerWorld("total_work", 1.0, steps), table)
    for truth in ("length", "none", "ar0.8", "ar0.95", "trend"):
        for window, steps in ((1.0, 15), (1.0, 30), (1.0, 120), (15.0, 30), (15.0, 120)):
            yield s7(StragglerWorld(truth, window, steps), {})


# -- the suite -----------------------------------------------------------------------------------------


def cells() -> list[Cell]:
    """All cells of the full form."""
    return [*s6_cells(), *s6x_cells(), *s7_cells()]


def quick_cells() -> list[Cell]:
    """A few cells of each scenario, for CI."""
    wanted = {
        "S6 W=1 N=20 K=20 M=5 cause=sync", "S6 W=1 N=100 K=20 M=5 cause=checkpoint",
        "S6 W=1 N=100 K=10 M=10 twins cause=checkpoint", "S6 W=5 N=20 K=20 M=5 cause=sync",
        "S6 W=1 N=40 K=20 M=5 cause=none", "S6 exposure W=15 D=15 N=100 K=10 M=5 cause=checkpoint",
        "S6 exposure W=15 D=15 N=100 K=10 M=5 cause=none", "S7 dip=longest_job W=1 N=30",
        "S7 dip=total_work W=1 N=30", "S7 dip=length W=1 N=30", "S7 dip=ar0.95 W=1 N=30",
    }  # fmt: skip
    return [cell for cell in cells() if f"{cell.scenario} {cell.name}" in wanted]
