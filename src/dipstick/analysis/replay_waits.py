"""Idle by synchronization: who waited, for whom, and what fixing one rank would give back (methods 2.3, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.analysis.replay import run_stages
from dipstick.analysis.stats import Estimate, binomial_p, holm, permutation_p, wilson

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Loop
    from dipstick.model import FloatArray

PERMUTATIONS: Final = 999


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """Waiting at one barrier over the run; arrays have one entry a rank, shape (R,).

    Attributes:
        name: The barrier.
        wait_gpu_s: S_b: sum of waits times the ranks' GPUs [GPU-s].
        share: S_b over all GPU-seconds of the run.
        waited_s: Each rank's own waiting [s].
        blame_gpu_s: The others' waiting while this rank was last [GPU-s]; ties split it.
        recoverable_s: Step seconds that fixing this rank alone gives back: last minus second-last arrival.
        last_count: Steps in which the rank was last; ties count as equal parts.
        imbalance: Mean over steps of (largest / mean work since the last barrier): its true price, 1 if level.
    """

    name: str
    wait_gpu_s: float
    share: float
    waited_s: FloatArray
    blame_gpu_s: FloatArray
    recoverable_s: FloatArray
    last_count: FloatArray
    imbalance: float


def blame_shares(arrive: FloatArray, clock_s: float = 0.0) -> FloatArray:
    """Each rank's part of being last, shape (K, R); every row sums to 1.

    Args:
        arrive: Arrivals at one barrier [s], shape (K, R).
        clock_s: Clock uncertainty: ranks this close to the last one share the blame equally.

    Example:
        Arrivals 10.0, 12.0 and 12.3 s: blame (0, 0, 1); with a clock good to 0.5 s (0, 0.5, 0.5).
    """
    tied = arrive >= arrive.max(axis=1, keepdims=True) - clock_s
    shares: FloatArray = tied / tied.sum(axis=1, keepdims=True)
    return shares


def barrier_waits(loop: Loop, clock_s: float = 0.0) -> tuple[BarrierWait, ...]:
    """Waiting at every barrier, from the measured phase seconds.

    Example:
        One barrier, arrivals 10 and 12 s (one GPU each), step time 12 s: rank 0 waited 2 s; blame is
        2 GPU-s on rank 1, 2 s are recoverable there; share 2 / 24; imbalance 12 / 11 = 1.09.
    """
    run = run_stages(loop, loop.seconds)
    total = float(loop.measured.sum() * loop.gpus.sum())
    rows, begin = [], run.begin[:, 0]
    for s, stage in enumerate(loop.stages):
        if stage.barrier:
            rows.append(_one_barrier(loop, stage.name, (run.arrive[:, s], begin), clock_s, total))
            begin = run.begin[:, min(s + 1, len(loop.stages) - 1)]
    return tuple(rows)


def _one_barrier(
    loop: Loop, name: str, times: tuple[FloatArray, FloatArray], clock_s: float, total: float
) -> BarrierWait:
    """One row of :func:`barrier_waits`; ``times`` are arrivals and the work's begins, each (K, R)."""
    arrive, begin = times
    wait = arrive.max(axis=1, keepdims=True) - arrive
    blame = blame_shares(arrive, clock_s)
    paid = wait * loop.gpus
    ordered = np.sort(arrive, axis=1)
    margin = ordered[:, -1] - ordered[:, -2] if loop.ranks > 1 else np.zeros(loop.steps)
    work = arrive - begin
    mean = work.mean(axis=1)
    return BarrierWait(
        name=name,
        wait_gpu_s=float(paid.sum()),
        share=float(paid.sum()) / total,
        waited_s=wait.sum(axis=0),
        blame_gpu_s=(blame * paid.sum(axis=1, keepdims=True)).sum(axis=0),
        recoverable_s=(blame * margin[:, None]).sum(axis=0),
        last_count=blame.sum(axis=0),
        imbalance=float(np.mean(work.max(axis=1)[mean > 0] / mean[mean > 0])) if (mean > 0).any() else 1.0,
    )


@dataclass(frozen=True, slots=True)
class LastArriver:
    """Is one rank last more often than chance (1 / R)? Exact, so no minimum of 20 steps applies.

    Attributes:
        rank: The rank.
        share: Share of steps in which it was last, with Wilson's interval (ties count in part).
        p: Exact binomial p, one-sided (whole steps only: ties are rounded down).
        p_holm: The same after Holm over the ranks.
        excess: (share - 1/R) / (1 - 1/R): 0 is chance, 1 is "always last"; with interval.
    """

    rank: int
    share: Estimate
    p: float
    p_holm: float
    excess: Estimate


def last_arrivers(blame: FloatArray) -> tuple[LastArriver, ...]:
    """The last-arriver test, one row a rank; empty for a single rank.

    Args:
        blame: From :func:`blame_shares`, shape (K, R).

    Example:
        Two ranks, 12 steps, rank 1 last in 11: p = 13 / 4096 = 0.0032, Holm 0.0063; share 0.917,
        excess (0.917 - 0.5) / 0.5 = 0.83.
    """
    steps, ranks = blame.shape
    if ranks < 2 or not steps:  # noqa: PLR2004  # one rank waits for nobody
        return ()
    counts = blame.sum(axis=0)
    p = np.array([binomial_p(int(np.floor(c + 1e-9)), steps, 1 / ranks) for c in counts])
    adjusted = holm(p)
    rows = []
    for r in range(ranks):
        share = wilson(float(counts[r]), steps)
        scaled = [(v - 1 / ranks) / (1 - 1 / ranks) for v in (share.value, share.low, share.high)]
        rows.append(LastArriver(r, share, float(p[r]), float(adjusted[r]), Estimate(*scaled)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Persistence:
    """Does the same rank stay last from one step to the next?

    Attributes:
        agreement: Share of steps whose last arriver is also the previous step's.
        expected: Its mean when the steps are shuffled.
        p: Permutation p, one-sided.
    """

    agreement: float
    expected: float
    p: float


def persistence(last: FloatArray, rng: np.random.Generator, draws: int = PERMUTATIONS) -> Persistence:
    """Lag-1 agreement of the last arriver against shuffled steps.

    Args:
        last: Rank that was last in each step, shape (K,), K >= 2.
        rng: Source of the shuffles.
        draws: Shuffles.

    Example:
        Last arrivers 0, 0, 0, 1, 1, 1 agree in 4 of 5 neighbours; of the 20 orders of three 0s and
        three 1s only two agree that often, so p is about 0.1: six steps can't show persistence.
    """
    observed = float(np.mean(last[1:] == last[:-1]))
    shuffled = rng.permuted(np.tile(last, (draws, 1)), axis=1)
    null = np.mean(shuffled[:, 1:] == shuffled[:, :-1], axis=1)
    return Persistence(observed, float(null.mean()), permutation_p(observed, null))
