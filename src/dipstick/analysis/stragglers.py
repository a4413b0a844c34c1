"""Who came last at the reward barrier, who waited, and which reward job and worker ended last.

First form: counts and seconds. Whether a rank *is* the straggler is a test, and comes with the verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.model import RankRow, StepArrival, Stragglers, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.timeline import RankTimeline
    from dipstick.analysis.waits import Meetings
    from dipstick.model import IntArray

REWARD = phases.CODE["reward"]


def find_stragglers(
    timelines: Sequence[RankTimeline], meetings: Sequence[Meetings], jobs: pl.DataFrame
) -> Stragglers | None:
    """Arrivals at the reward barrier and the reward jobs behind them; None without either.

    Args:
        timelines: Ranks with their waits painted in.
        meetings: All barriers; the one labelled ``reward`` is read.
        jobs: The ``jobs`` table (times in ns since start).
    """
    reward = next((m for m in meetings if m.barrier.name == "reward"), None)
    jobs = _inside(jobs, timelines)
    if reward is None and jobs.is_empty():
        return None
    final = _last_jobs(jobs)
    lengths = (jobs["t1_ns"] - jobs["t0_ns"]).to_numpy() / 1e9
    slots = _slots(jobs)
    return Stragglers(
        steps=0 if reward is None else len(reward.step),
        wait_gpu_s=None if reward is None else int(reward.waits_ns().sum()) / 1e9,
        slots_busy=_slots_busy(timelines, jobs),
        slots=slots,
        by_rank=() if reward is None else _by_rank(reward),
        by_worker=_by_worker(jobs, final),
        arrivals=() if reward is None else _arrivals(reward, final),
        jobs=jobs.height,
        job_median_s=float(np.median(lengths)) if len(lengths) else None,
        job_p99_s=float(np.percentile(lengths, 99)) if len(lengths) else None,
        job_max_s=float(lengths.max()) if len(lengths) else None,
    )


def _inside(jobs: pl.DataFrame, timelines: Sequence[RankTimeline]) -> pl.DataFrame:
    """Jobs of the analysis window with a known rank (warm-up jobs before the first step are not)."""
    if not timelines:
        return jobs.clear()
    start, end = int(timelines[0].edges[0]), int(timelines[0].edges[-1])
    return jobs.filter((pl.col("t0_ns") >= start) & (pl.col("t1_ns") <= end) & pl.col("rank").is_not_null())


def _last_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """The job that ended last, per step and rank."""
    ordered = jobs.filter(pl.col("step").is_not_null()).sort("t1_ns")
    return ordered.group_by("step", "rank", maintain_order=True).last()


def _slots(jobs: pl.DataFrame) -> int | None:
    """Worker processes per rank: the largest number that any rank used."""
    if jobs.is_empty():
        return None
    return int(jobs.group_by("rank").agg(pl.col("pid").n_unique())["pid"].to_numpy().max())


def _slots_busy(timelines: Sequence[RankTimeline], jobs: pl.DataFrame) -> float | None:
    """Mean number of busy workers of a rank while it is in its reward phase."""
    phase_s = {t.rank: int(t.seconds_ns()[REWARD]) / 1e9 for t in timelines}
    work = jobs.group_by("rank").agg((pl.col("t1_ns") - pl.col("t0_ns")).sum())
    pairs = [(ns / 1e9, phase_s[rank]) for rank, ns in work.iter_rows() if phase_s.get(rank)]
    if not pairs:
        return None
    return float(sum(busy for busy, _ in pairs) / sum(seconds for _, seconds in pairs))


def _by_rank(reward: Meetings) -> tuple[RankRow, ...]:
    waits = reward.waits_ns()
    rows = []
    for column, rank in enumerate(reward.ranks):
        last = reward.last == column
        blame = int(waits[last].sum()) / 1e9
        rows.append(RankRow(rank, int(last.sum()), int(waits[:, column].sum()) / 1e9, blame))
    return tuple(rows)


def _by_worker(jobs: pl.DataFrame, final: pl.DataFrame) -> tuple[WorkerRow, ...]:
    grouped = jobs.group_by("pid", "rank").agg(
        pl.len().alias("jobs"), (pl.col("t1_ns") - pl.col("t0_ns")).sum().alias("busy")
    )
    last = {
        (pid, rank): count for pid, rank, count in final.group_by("pid", "rank").agg(pl.len()).iter_rows()
    }
    ordered = grouped.sort("rank", "pid").iter_rows()
    return tuple(
        WorkerRow(pid, rank, count, busy / 1e9, last.get((pid, rank), 0))
        for pid, rank, count, busy in ordered
    )


def _arrivals(reward: Meetings, final: pl.DataFrame) -> tuple[StepArrival, ...]:
    ends = {
        (step, rank): row
        for step, rank, *row in final.select("step", "rank", "job", "pid", "t0_ns", "t1_ns").iter_rows()
    }
    margins = _margins(reward.arrival)
    waits = reward.waits_ns() / 1e9
    return tuple(
        _arrival(
            int(reward.step[k]), reward.ranks, int(reward.last[k]), int(margins[k]), waits[k].tolist(), ends
        )
        for k in range(len(reward.step))
    )


def _margins(arrival: IntArray) -> IntArray:
    """Last arrival minus the second last: what fixing the last rank alone would give back."""
    ordered = np.sort(arrival, axis=1)
    margin: IntArray = ordered[:, -1] - ordered[:, -2]
    return margin


def _arrival(
    step: int,
    ranks: tuple[int, ...],
    last: int,
    margin_ns: int,
    waits: list[float],
    ends: dict[tuple[int, int], list[int]],
) -> StepArrival:
    job = ends.get((step, ranks[last]))
    return StepArrival(
        step=step,
        last_rank=ranks[last],
        margin_s=margin_ns / 1e9,
        waits_s=dict(zip(ranks, waits, strict=True)),
        last_job=None if job is None else str(job[0]),
        last_job_pid=None if job is None else job[1],
        last_job_s=None if job is None else (job[3] - job[2]) / 1e9,
    )
