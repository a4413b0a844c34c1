"""Synthetic worlds of scenarios S6 (event schedules) and S7 (straggler relation) of the methods.

Each function draws one run from a Generator and returns what the checks take. The loop is the methods' one:
60 s steps, generate / reward / gather / train / sync = 55 / 15 / 2 / 23 / 5 %, lognormal phase durations.
Where the methods leave a detail open the choice is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import Timeline, box_shares, phase_shares
from dipstick.analysis.dip_width import dip_widths
from dipstick.analysis.replay_schedule import list_schedule
from dipstick.analysis.spike_schedules import Schedule

if TYPE_CHECKING:
    from dipstick.model import FloatArray

PHASES = ("generate", "reward", "gather", "train", "sync")
SHARES = np.array([0.55, 0.15, 0.02, 0.23, 0.05])
STEP_S = 60.0
PHASE_CV = 0.15
MEMORY_PCT = np.array([20.0, 2.0, 1.0, 10.0, 10.0])
"""Memory access of the phases; sync is written as part of train (see ``judge_exposure``)."""

HIT, BACKGROUND = 0.9, 0.2
CRON_S = 45.0
NOISE_PCT = 4.0
SPIKE_PCT, SPIKE_S = 50.0, 3.0

JOBS, SLOTS, SIGMA, CAP_S, MEDIAN_S = 64, 8, 0.9, 30.0, 1.5
BASELINE_PCT, FLOOR_PCT, OVERHEAD_S = 90.0, 10.0, 2.0


@dataclass(frozen=True, slots=True)
class SpikeWorld:
    """One setting of S6: window W, period D, steps N, checkpoint every K, cache clear every M.

    ``background``: Poisson; or a process of its own with the period L (one step), L/2 or 0.37 L; or a Poisson rate
    that grows over the run.
    """

    window_s: float
    steps: int
    every_checkpoint: int
    every_cache: int
    cause: str | None
    twins: bool = False
    period_s: float | None = None
    background: str = "poisson"

    @property
    def name(self) -> str:
        """W=1 N=40 K=20 M=5 cause=sync."""
        period = "" if self.period_s is None else f" D={self.period_s:g}"
        twins = " twins" if self.twins else ""
        twins += "" if self.background == "poisson" else f" background={self.background}"
        return (
            f"W={self.window_s:g}{period} N={self.steps} K={self.every_checkpoint} M={self.every_cache}"
            f"{twins} cause={self.cause or 'none'}"
        )


def loop(rng: np.random.Generator, steps: int) -> FloatArray:
    """Edges of all phases of all steps, (5 N + 1,)."""
    sigma = np.sqrt(np.log(1 + PHASE_CV**2))
    seconds = STEP_S * SHARES * np.exp(rng.normal(-(sigma**2) / 2, sigma, (steps, 5)))
    return np.concatenate([[0.0], np.cumsum(seconds.ravel())])


def events(
    rng: np.random.Generator, edge_s: FloatArray, world: SpikeWorld, long: float
) -> dict[str, Schedule]:
    """Weight sync each step; checkpoint 3 s and cache clear 11 s before it; cron; twins 0.7 s apart.

    ``long`` is the length of the optional events: 1.5 s and 0.2 s are used for onsets, the spike's own
    length for exposure.
    """
    sync, end = edge_s[4::5], edge_s[5::5]
    step = np.arange(1, world.steps + 1)
    checkpoint = sync[step % world.every_checkpoint == 0] - (6.0 if long else 3.0)
    cache = sync[step % world.every_cache == 0] - (13.0 if long else 11.0)
    if world.twins:
        cache = checkpoint + 0.7
    cron = np.arange(rng.uniform(0, CRON_S), edge_s[-1], CRON_S)
    return {
        "sync": Schedule("sync", sync, end),
        "checkpoint": Schedule("checkpoint", checkpoint, checkpoint + (long or 1.5)),
        "cache": Schedule("cache", cache, cache + (long or 0.2)),
        "cron": Schedule("cron", cron, cron + (long or 0.5)),
    }


def spike_onsets(
    rng: np.random.Generator, world: SpikeWorld
) -> tuple[FloatArray, FloatArray, dict[str, Schedule]]:
    """Step edges, stamped onsets, schedules. A spike starts 0-0.3 s after the event.

    The stamp is the middle of the first window that the spike fills to a quarter.
    """
    edges = loop(rng, world.steps)
    schedules = events(rng, edges, world, 0.0)
    onset = _unrelated(rng, world, float(edges[-1]))
    if world.cause is not None:
        start = schedules[world.cause].start_s
        start = start[rng.random(start.size) < HIT]
        onset = np.concatenate([onset, start + rng.uniform(0, 0.3, start.size)])
    w = world.window_s
    filled = 1 - (onset / w) % 1
    stamps = np.floor(onset / w) * w + w / 2 + np.where(filled >= 0.25, 0.0, w)
    return edges[::5], np.unique(stamps), schedules


def _unrelated(rng: np.random.Generator, world: SpikeWorld, seconds: float) -> FloatArray:
    """Spikes that no schedule causes."""
    periods = {"L": STEP_S, "L/2": STEP_S / 2, "0.37L": 0.37 * STEP_S}
    if world.background in periods:
        period = periods[world.background]
        return np.arange(rng.uniform(0, period), seconds, period)
    if world.background == "growing":
        return np.asarray(seconds * np.sqrt(rng.random(rng.poisson(world.steps))))
    return rng.uniform(0, seconds, rng.poisson(BACKGROUND * world.steps))


def memory_samples(
    rng: np.random.Generator, world: SpikeWorld
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, dict[str, Schedule]]:
    """Stamps, memory access, phase shares (sync's in train), step edges, schedules with 3 s events."""
    edges = loop(rng, world.steps)
    schedules = events(rng, edges, world, SPIKE_S)
    onset = rng.uniform(0, edges[-1], rng.poisson(BACKGROUND * world.steps))
    if world.cause is not None:
        start = schedules[world.cause].start_s
        onset = np.concatenate([onset, start[rng.random(start.size) < HIT]])
    period = world.period_s or world.window_s
    ts = np.arange(rng.uniform(0, period) + world.window_s, edges[-1], period)
    share = phase_shares(Timeline(edges, np.tile(np.arange(5), world.steps), PHASES), ts, world.window_s)
    onset = np.sort(onset)
    extra = SPIKE_PCT * box_shares(onset, onset + SPIKE_S, ts, world.window_s)
    value = share @ MEMORY_PCT + extra + rng.normal(0, NOISE_PCT, ts.size)
    merged = np.column_stack([share[:, :3], share[:, 3] + share[:, 4]])
    return ts, value, merged, edges[::5], schedules


# -- S7 ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StragglerWorld:
    """One setting of S7. ``truth``: longest_job, total_work, length, none, ar0.8, ar0.95, trend."""

    truth: str
    window_s: float
    steps: int

    @property
    def name(self) -> str:
        """dip=longest_job W=1 N=30."""
        return f"dip={self.truth} W={self.window_s:g} N={self.steps}"


@dataclass(frozen=True, slots=True)
class StragglerRun:
    """What the check takes: widths, drivers, covariates."""

    width_s: FloatArray
    drivers: dict[str, FloatArray]
    covariates: dict[str, FloatArray]


def ar1(rng: np.random.Generator, steps: int, memory: float) -> FloatArray:
    """A stationary AR(1) series of unit variance."""
    shock = rng.normal(size=steps + 200)
    for k in range(1, shock.size):
        shock[k] += memory * shock[k - 1]
    return np.asarray(shock[200:] * np.sqrt(1 - memory**2))


def straggler_run(rng: np.random.Generator, world: StragglerWorld) -> StragglerRun:
    """One run through simulated telemetry.

    Completion length drifts (AR 0.9 plus a rise over the run) and scales the jobs: jobs are lognormal
    (sigma 0.9, median 1.5 s) with a 30 s cap, 64 on 8 slots. ``length``: the dip follows the length only.
    ``ar*``: length, jobs and dips wander by themselves. ``trend``: jobs and dips rise together, unrelated
    otherwise.
    """
    n = world.steps
    k = np.arange(n) / n
    wander = world.truth.startswith("ar")
    memory = float(world.truth[2:]) if wander else 0.9
    rise = 0.0 if wander else 0.3
    length = np.exp(0.1 * ar1(rng, n, 0.9) + rise * k)
    scale = (
        np.exp(0.5 * ar1(rng, n, memory)) if wander else np.exp(0.8 * k) if world.truth == "trend" else length
    )
    jobs = np.minimum(CAP_S, MEDIAN_S * scale[:, None] * rng.lognormal(0.0, SIGMA, (n, JOBS)))
    drivers = {
        "longest_job": jobs.max(axis=1),
        "total_work": jobs.sum(axis=1) / SLOTS,
        "makespan": _makespan(jobs),
        "timeouts": (jobs >= CAP_S).sum(axis=1).astype(np.float64),
    }
    dip = _dip_seconds(rng, world.truth, drivers, length, memory)
    width = _measured_width(rng, world.window_s, 30.0 * length, dip)
    return StragglerRun(width, drivers, {"completion_length": length})


def _makespan(jobs: FloatArray) -> FloatArray:
    n = jobs.shape[0]
    group = np.repeat(np.arange(n), JOBS)
    ends = list_schedule(group, jobs.ravel(), np.full(n, SLOTS))
    return np.asarray(ends.reshape(n, JOBS).max(axis=1))


def _dip_seconds(
    rng: np.random.Generator, truth: str, drivers: dict[str, FloatArray], length: FloatArray, memory: float
) -> FloatArray:
    n = length.size
    k = np.arange(n) / n
    if truth in drivers:
        return drivers[truth] + OVERHEAD_S + rng.normal(0, 0.3, n)
    own = {
        "length": 10 * length,
        "none": np.full(n, 10.0),
        "trend": 8 * np.exp(0.8 * k),
    }.get(truth)
    if own is None:
        own = 10 * np.exp(0.3 * ar1(rng, n, memory))
    return np.asarray(np.maximum(2.0, own + rng.normal(0, 1.0, n)))


def _measured_width(
    rng: np.random.Generator, window_s: float, generate_s: FloatArray, dip_s: FloatArray
) -> FloatArray:
    """Generate at 90 %, dip at 10 %, 20 s of training at 90 %, read through a boxcar with noise."""
    n = dip_s.size
    lengths = np.column_stack([generate_s, dip_s, np.full(n, 20.0)]).ravel()
    edges = np.concatenate([[0.0], np.cumsum(lengths)])
    lo, hi = edges[1::3], edges[2::3]
    ts = np.arange(window_s, edges[-1], window_s)
    share = box_shares(lo, hi, ts, window_s)
    util = BASELINE_PCT - (BASELINE_PCT - FLOOR_PCT) * share + rng.normal(0, NOISE_PCT, ts.size)
    level = np.full(n, BASELINE_PCT)
    return dip_widths(ts, np.clip(util, 0, 100), window_s, (lo, hi), level, FLOOR_PCT).width_s
