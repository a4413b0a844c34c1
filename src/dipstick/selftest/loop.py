"""A GRPO loop with planted truth: what every rank did, to the nanosecond.

A step of a rank is a row of stretches (``COLUMNS``). Ranks meet where their completion lengths and their rewards
are gathered; whoever is early waits. Spans, jobs and telemetry are all read off these stretches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray, IntArray

MICRO_STEPS: Final = 4
COLUMNS: Final = (
    "gap", "weight_sync", "generate", "lengths_wait", "logprobs", "parse", "score", "gather_wait", "transfer", "gap",
    *("forward", "backward") * MICRO_STEPS, "optimizer", "checkpoint", "cache_clear", "gap",
)  # fmt: skip
AT: Final = {name: COLUMNS.index(name) for name in COLUMNS}
LEVEL_OF: Final = {"lengths_wait": "wait", "gather_wait": "wait", "score": "reward"}
"""Stretches whose instruments read like something of another name."""

STARTUP_S, END_S = 8.0, 4.0
OWN_SPREAD, TRAIN_SPREAD = 0.01, 0.03


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Reward jobs of a rank and step; W workers take them in order, whoever is free first.

    Attributes:
        count: Jobs.
        seconds: Median length; ``spread`` is the SD of its logarithm.
        long_s: Length of one more job a step, on a rank drawn at random; 0 for none. ``long_spread`` as above.
        mix_spread: SD of the logarithm of a factor that all jobs of one rank and step share (an uneven mix).
        slow: (rank, worker) -> how many times longer its jobs take.
        slow_rank: Rank -> how many times longer its jobs take.
        slow_every: The slow ones are slow in every n-th step only.
        fixed: Jobs are dealt to the workers in turn beforehand; else each takes the next when it is free.
    """

    count: int = 8
    seconds: float = 0.3
    spread: float = 0.05
    workers: int = 2
    long_s: float = 0.0
    long_spread: float = 0.0
    mix_spread: float = 0.0
    slow: Mapping[tuple[int, int], float] = field(default_factory=dict)
    slow_rank: Mapping[int, float] = field(default_factory=dict)
    slow_every: int = 1
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Seconds are means; 0 and ``every`` 0 mean that it does not happen.

    Attributes:
        generate_spread: SD of the logarithm of the generation time of a step (shared by the ranks).
        growth: The last step generates this many times longer than the first.
        saving_rank_only: Checkpoints are rank 0's; the others meet it at the next barrier.
        barriers: Whether ranks wait for each other; if not, each runs its own loop, rank r by ``drift`` slower.
    """

    steps: int = 48
    ranks: int = 2
    generate_s: float = 5.0
    generate_spread: float = 0.1
    growth: float = 1.0
    logprobs_s: float = 0.9
    parse_s: float = 0.4
    transfer_s: float = 0.0
    forward_s: float = 0.22
    backward_s: float = 0.42
    weight_sync_s: float = 0.25
    checkpoint_s: float = 0.8
    checkpoint_every: int = 0
    cache_clear_s: float = 0.3
    cache_clear_every: int = 0
    cache_clear_at: int = 0
    barriers: bool = True
    drift: float = 0.0
    jobs: JobPlan = field(default_factory=JobPlan)


@dataclass(frozen=True, slots=True)
class Loop:
    """What happened. R ranks, K steps, C stretches, J jobs of a rank and step.

    Attributes:
        edges: (R, K, C + 1) start of each stretch and end of the last, ns.
        job_start, job_end: (R, K, J) ns; ``job_worker`` (R, K, J) which worker. A job of length 0 is none.
    """

    plan: Plan
    edges: IntArray
    job_start: IntArray
    job_end: IntArray
    job_worker: IntArray

    def start(self, column: str) -> IntArray:
        """(R, K) start of a stretch, ns."""
        return self.edges[:, :, AT[column]]

    def end(self, column: str) -> IntArray:
        """(R, K) its end."""
        return self.edges[:, :, AT[column] + 1]

    @property
    def end_ns(self) -> int:
        """When the recording ends."""
        return int(self.edges.max() + END_S * 1e9)

    def waited_s(self) -> float:
        """Planted waits at both barriers, summed over ranks."""
        waits = [self.end(c) - self.start(c) for c in ("lengths_wait", "gather_wait")]
        return float(np.sum(waits)) / 1e9


def draw(plan: Plan, rng: np.random.Generator) -> Loop:
    """Draw every stretch and job, and let the early ranks wait."""
    start, end, worker = schedule(plan, rng)
    seconds = _stretches(plan, end.max(axis=2, initial=0.0), rng)
    nanoseconds = np.rint(seconds * 1e9).astype(np.int64)
    edges = _edges(nanoseconds, barriers=plan.barriers) + int(STARTUP_S * 1e9)
    origin = edges[:, :, AT["score"], None]
    begun, ended = (np.rint(t * 1e9).astype(np.int64) + origin for t in (start, end))
    return Loop(plan, edges, begun, ended, worker)


def schedule(plan: Plan, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, IntArray]:
    """Start and end of each job since the first could start (s), and its worker; (R, K, J) each.

    Example: 2 workers, jobs of 3, 1, 1 and 4 s: worker 0 takes the first, worker 1 the next three (0-6 s).
    """
    seconds = _job_seconds(plan, rng)
    ranks, steps, count = seconds.shape
    factor = _worker_factors(plan)
    free = np.zeros((ranks, steps, plan.jobs.workers))
    start, worker = np.zeros(seconds.shape), np.zeros(seconds.shape, np.int64)
    for j in range(count):
        mine = np.full((ranks, steps), j % plan.jobs.workers) if plan.jobs.fixed else free.argmin(axis=2)
        at = mine[:, :, None]
        start[:, :, j], worker[:, :, j] = np.take_along_axis(free, at, axis=2)[:, :, 0], mine
        seconds[:, :, j] *= np.take_along_axis(factor, at, axis=2)[:, :, 0]
        np.put_along_axis(free, at, (start + seconds)[:, :, j, None], axis=2)
    return start, start + seconds, worker


def _job_seconds(plan: Plan, rng: np.random.Generator) -> FloatArray:
    """Lengths before any slowness (R, K, J). A long job is among the first of each worker: it starts at once."""
    jobs, shape = plan.jobs, (plan.ranks, plan.steps)
    usual = jobs.seconds * np.exp(rng.normal(0, jobs.spread, (*shape, jobs.count)))
    usual *= np.exp(rng.normal(0, jobs.mix_spread, (*shape, 1)))
    if not jobs.long_s:
        return usual
    length = jobs.long_s * np.exp(rng.normal(0, jobs.long_spread, plan.steps))
    there = np.arange(plan.ranks)[:, None] == rng.integers(plan.ranks, size=plan.steps)
    place = rng.integers(jobs.workers, size=(*shape, 1))
    at = np.arange(jobs.count + 1)
    shifted = np.take_along_axis(usual, np.minimum(at - (at > place), jobs.count - 1), axis=2)
    return np.where(at == place, (length * there)[:, :, None], shifted)


def _worker_factors(plan: Plan) -> FloatArray:
    """(R, K, W) how many times longer a worker's jobs take."""
    factor = np.ones((plan.ranks, plan.steps, plan.jobs.workers))
    slow_steps = slice(plan.jobs.slow_every - 1, None, plan.jobs.slow_every)
    for rank, times in plan.jobs.slow_rank.items():
        factor[rank, slow_steps] *= times
    for (rank, worker), times in plan.jobs.slow.items():
        factor[rank, slow_steps, worker] *= times
    return factor


def _stretches(plan: Plan, makespan: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Seconds of every stretch (R, K, C), waits still 0. Training is data-parallel: the ranks share its time."""
    shape = (plan.ranks, plan.steps)
    pace = 1 + plan.drift * np.arange(plan.ranks)[:, None]
    own = np.exp(rng.normal(0, OWN_SPREAD, (*shape, len(COLUMNS))))
    seconds = np.zeros((*shape, len(COLUMNS)))
    growth = np.linspace(1.0, plan.growth, plan.steps)
    length = np.exp(rng.normal(0, plan.generate_spread, plan.steps)) * growth * plan.generate_s
    drawn = {"generate": length * pace, "weight_sync": plan.weight_sync_s, "logprobs": plan.logprobs_s,
             "parse": plan.parse_s, "transfer": plan.transfer_s}  # fmt: skip
    for name, mean in drawn.items():
        seconds[:, :, AT[name]] = mean * own[:, :, AT[name]]
    seconds[:, :, AT["score"]] = makespan
    for i, name in enumerate(COLUMNS):
        if name in {"forward", "backward", "optimizer"}:
            mean = {"forward": plan.forward_s, "backward": plan.backward_s}.get(name, 0.03)
            seconds[:, :, i] = mean * np.exp(rng.normal(0, TRAIN_SPREAD, plan.steps))
        elif name == "gap":
            seconds[:, :, i] = 0.01
    _optional(plan, seconds, own)
    return seconds


def _optional(plan: Plan, seconds: FloatArray, own: FloatArray) -> None:
    """Checkpoints and cache clears, at the end of every n-th step."""
    for name, every, at, length in (
        ("checkpoint", plan.checkpoint_every, 0, plan.checkpoint_s),
        ("cache_clear", plan.cache_clear_every, plan.cache_clear_at, plan.cache_clear_s),
    ):
        if every:
            fired = np.arange(plan.steps) % every == (every - 1 + at) % every
            ranks = slice(0, 1) if name == "checkpoint" else slice(None)
            seconds[ranks, :, AT[name]] = (length * own[:, :, AT[name]] * fired)[ranks]


def _edges(stretches: IntArray, *, barriers: bool) -> IntArray:
    """Edges of all stretches, with the waits filled in where ranks meet.

    From one barrier to the next takes as long as the slowest rank needs: both are cumulative sums of maxima.
    """
    full = stretches.copy()
    if barriers:
        lengths, gather = AT["lengths_wait"], AT["gather_wait"]
        after = stretches[:, :, gather + 1 :].sum(axis=2)
        to_lengths = stretches[:, :, :lengths].sum(axis=2) + np.pad(after[:, :-1], ((0, 0), (1, 0)))
        to_gather = stretches[:, :, lengths + 1 : gather].sum(axis=2)
        full[:, :, lengths] = to_lengths.max(axis=0) - to_lengths
        full[:, :, gather] = to_gather.max(axis=0) - to_gather
    ends = np.cumsum(full.reshape(len(full), -1), axis=1).reshape(full.shape)
    starts = np.concatenate([np.zeros((len(full), 1), np.int64), ends[:, :-1, -1]], axis=1)
    return np.concatenate([starts[:, :, None], ends], axis=2)
