"""Is one worker slower than the others of its pool, and is it so in the steps with the widest dips?

Jobs of one step and rank are exchangeable between the workers of that rank's pool as long as nobody looks at a
job's length when handing it out. So a worker's jobs are ranked among all jobs of their step and rank, and the
rank sums of all steps are added up (the stratified Wilcoxon test of van Elteren, 1960): one job of 100 s counts
no more than the longest of 2 s. In pools whose free worker takes the next job (so that a long one costs its
worker others) some equal worker got a Holm p of 0.05 or less in 4.2-5.7 % of 1,500 simulated runs a cell, and
"slow" in 1 % at most. A pool that always gives its longest job to the same worker fools the test.

Worked example: two workers with two jobs each a step, worker 1's the two longer ones: its ranks 3 and 4 sum to
2 above the expected 5, variance 2 x 2 x 5 / 12 = 1.67. Ten such steps: z = 20 / sqrt(16.7) = 4.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.analysis.stats import Estimate, holm, percentile_interval, ranks, step_draws, step_weights

if TYPE_CHECKING:
    import numpy.typing as npt

    from dipstick.analysis.replay_model import Jobs
    from dipstick.model import FloatArray, IntArray, Verdict

    BoolArray = npt.NDArray[np.bool_]

ALPHA: Final = 0.05
STRONG: Final = 1.2
"""A worker whose jobs take 1.2 times the others' (lower bound) is slow; an upper bound below it is a "no"."""
DRAWS: Final = 500
MIN_STEPS: Final = 8
UNKNOWN: Final = Estimate(float("nan"), float("-inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class SlowWorker:
    """One worker against the others of its rank.

    Attributes:
        worker: Its index in :class:`~dipstick.analysis.replay_model.Jobs`.
        rank: Position of its rank.
        steps: Steps in which a peer worked too.
        ratio: Its seconds over what as many of the peers' jobs took; step-bootstrap interval.
        deep: The same in the chosen steps; NaN without any.
        p: One-sided rank-sum p over all steps; ``p_holm`` over the workers.
        verdict: "It is slow": yes if significant and either ratio is above 1.2 for certain.
    """

    worker: int
    rank: int
    steps: int
    ratio: Estimate
    deep: Estimate
    p: float
    p_holm: float
    verdict: Verdict


def judge_workers(jobs: Jobs, deep: BoolArray, rng: np.random.Generator) -> tuple[SlowWorker, ...]:
    """Judge every worker that shares a pool; empty without workers or where each rank has one.

    Args:
        jobs: The jobs of K steps, with their workers.
        deep: (K,) the steps whose dips are widest.
        rng: Source of the bootstrap.
    """
    if jobs.worker is None or not jobs.seconds.size:
        return ()
    sums = _add_up(jobs, jobs.worker, deep.size)
    shared = np.flatnonzero(sums.beside.any(axis=0))
    if not shared.size:
        return ()
    z = sums.score[shared] / np.sqrt(np.maximum(sums.variance[shared], 1e-12))
    p_values = [0.5 * erfc(value / sqrt(2)) for value in z.tolist()]
    adjusted = holm(p_values).tolist()
    ratios, in_deep = _ratios(sums, np.arange(deep.size), rng), _ratios(sums, np.flatnonzero(deep), rng)
    steps = sums.beside.sum(axis=0)
    return tuple(
        SlowWorker(
            w, int(sums.home[w]), int(steps[w]), ratios[w], in_deep[w], p, p_holm,
            _verdict(p_holm, ratios[w], in_deep[w], int(steps[w])),
        )
        for w, p, p_holm in zip(shared.tolist(), p_values, adjusted, strict=True)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sums:
    """Steps x workers (K, W), where a peer worked too: seconds, the peers' seconds for as many jobs; scores (W,)."""

    home: IntArray
    beside: BoolArray
    own: FloatArray
    fair: FloatArray
    score: FloatArray
    variance: FloatArray


def _add_up(jobs: Jobs, worker: IntArray, steps: int) -> _Sums:
    workers, pools = int(worker.max()) + 1, int(jobs.rank.max()) + 1
    pool = jobs.step * pools + jobs.rank
    home = np.zeros(workers, np.int64)
    home[worker] = jobs.rank

    def per_worker(what: FloatArray) -> FloatArray:
        cells = np.bincount(jobs.step * workers + worker, what, steps * workers).astype(np.float64)
        return cells.reshape(steps, workers)

    def per_pool(what: FloatArray) -> FloatArray:
        cells = np.bincount(pool, what, steps * pools).astype(np.float64)
        return cells.reshape(steps, pools)[:, home]

    one = np.ones(worker.size)
    own, count = per_worker(jobs.seconds), per_worker(one)
    peers, members = per_pool(jobs.seconds) - own, per_pool(one)
    beside = (count > 0) & (members > count)
    fair = count * peers / np.maximum(members - count, 1)
    above = per_worker(_ranks_within(jobs.seconds, pool)) - count * (members + 1) / 2
    score = (above / (members + 1) * beside).sum(axis=0)
    variance = (count * (members - count) / (12 * (members + 1)) * beside).sum(axis=0)
    return _Sums(home, beside, own * beside, fair * beside, score, variance)


def _ranks_within(values: FloatArray, group: IntArray) -> FloatArray:
    """Rank of each value among its group's, 1 for the smallest; ties share the mean rank.

    Example: values 5, 7, 1, 7 in groups 0, 0, 0, 1 have ranks 2, 3, 1, 1.
    """
    overall = ranks(values)
    order = np.lexsort((overall, group))
    place = np.empty(values.size)
    place[order] = np.arange(values.size) - np.searchsorted(group[order], group[order]) + 1
    key = group * (2 * values.size + 1) + np.rint(2 * overall).astype(np.int64)
    same = np.unique(key, return_inverse=True)[1]
    mean: FloatArray = (np.bincount(same, place) / np.bincount(same))[same]
    return mean


def _ratios(sums: _Sums, chosen: IntArray, rng: np.random.Generator) -> list[Estimate]:
    """Own over fair seconds of each worker over the chosen steps, with their resamples."""
    if not chosen.size:
        return [UNKNOWN] * sums.home.size
    weights = step_weights(step_draws(rng, chosen.size, DRAWS), chosen.size)
    own, fair = sums.own[chosen], sums.fair[chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = own.sum(axis=0) / fair.sum(axis=0)
        drawn = (weights @ own) / (weights @ fair)
    return [percentile_interval(float(v), d) for v, d in zip(value, drawn.T, strict=True)]


def _verdict(p_holm: float, ratio: Estimate, deep: Estimate, steps: int) -> Verdict:
    if steps < MIN_STEPS:
        return "unconfirmed"
    if p_holm <= ALPHA and max(ratio.low, deep.low) >= STRONG:
        return "yes"
    highest = ratio.high if np.isnan(deep.value) else max(ratio.high, deep.high)
    if highest < STRONG:
        return "no"
    return "partially" if p_holm <= ALPHA and ratio.low > 1 else "unconfirmed"
