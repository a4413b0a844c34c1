"""Which reward worker is slow, by process id, and whether the widest dips wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dipstick.analysis.slow_worker import SlowWorker, judge_workers
from dipstick.errors import UsageError
from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.dip_series import reward_dips
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.model import IntArray
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

WIDEST = 0.25
"""Share of the steps that count as the widest dips."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process.

    Attributes:
        last_in_widest: Of the ``widest`` steps, those whose last reward job ran on it.
    """

    pid: int
    rank: int
    test: SlowWorker
    last_in_widest: int
    widest: int

    @property
    def because(self) -> str:
        """The finding in words."""
        deep, ratio = self.test.deep, self.test.ratio
        text = f"jobs of worker {self.pid} (rank {self.rank}) take {ratio.value:z.2f} times the other workers' [{ratio.low:z.2f}, {ratio.high:z.2f}]"
        if self.widest:
            text += f", {deep.value:z.2f} times in the {self.widest} widest dips, of which {self.last_in_widest} end with it"
        return f"{text} (rank sums, p = {self.test.p_holm:.2g} after Holm over the workers)"

    @property
    def verdict(self) -> Verdict:
        """On "it is slow"."""
        reason = Reason.LOW_N if self.test.verdict == "unconfirmed" else None
        ratio = self.test.ratio
        return Verdict(
            self.test.verdict, self.because, ratio.value, (ratio.low, ratio.high), self.test.p_holm, reason
        )


def workers(evidence: Evidence) -> tuple[Worker, ...]:
    """Every worker that shares a rank's pool, slowest first; empty without jobs."""
    return evidence.once("slow_workers", _workers)


def the_slow_one(evidence: Evidence) -> Worker | None:
    """The slowest worker, if it is slow beyond doubt."""
    return next((worker for worker in workers(evidence) if worker.test.verdict == "yes"), None)


def _workers(evidence: Evidence) -> tuple[Worker, ...]:
    loop, steps = evidence.loop, evidence.steps
    if loop is None or loop.jobs is None or steps is None:
        return ()
    widest = _widest(evidence)
    ended = _last_pids(evidence, steps.number[evidence.kept[widest]])
    deep = np.zeros(loop.steps, np.bool_)
    deep[widest] = True
    found = [
        Worker(pid, rank, test, ended.get((rank, pid), 0), len(widest))
        for test in judge_workers(loop.jobs, deep, evidence.rng(20))
        for rank, pid in (steps.workers[test.worker],)
    ]
    return tuple(sorted(found, key=lambda worker: -worker.test.ratio.value))


def _last_pids(evidence: Evidence, steps: IntArray) -> dict[tuple[int, int], int]:
    """How many of these steps' rewards ended with a job of each (rank, pid): two hosts may have the same pid."""
    jobs = evidence.recording.table("jobs", columns=["rank", "pid", "step", "t1_ns"]).drop_nulls()
    last = jobs.filter(pl.col("step").is_in(steps.tolist())).sort("t1_ns").group_by("step").last()
    return {(rank, pid): count for rank, pid, count in last.group_by("rank", "pid").len().iter_rows()}


def _widest(evidence: Evidence) -> IntArray:
    """Rows of the kept steps with the widest reward dips; none where dips or their widths are not known."""
    dips = reward_dips(evidence)
    if dips is None or not np.isfinite(dips.width_s).any():
        return np.zeros(0, np.int64)
    count = max(1, round(WIDEST * len(dips.width_s)))
    order = np.argsort(-np.nan_to_num(dips.width_s, nan=-1.0), kind="stable")
    return np.sort(order[:count])


def facts(evidence: Evidence) -> list[dict[str, Any]]:
    """Ready for the JSON."""
    return [
        {
            "pid": w.pid, "rank": w.rank, "verdict": w.test.verdict,
            "ratio": w.test.ratio.value, "interval": [w.test.ratio.low, w.test.ratio.high],
            "ratio_in_widest_dips": w.test.deep.value, "last_in_widest_dips": w.last_in_widest,
            "widest_dips": w.widest, "p_adjusted": w.test.p_holm,
        }
        for w in workers(evidence)
    ]  # fmt: skip


@claim_test
def straggler_worker(evidence: Evidence, *, pid: int) -> Judged:
    """The jobs of one reward worker take 1.2 times the other workers' or more, in all steps or in the widest dips."""
    known = workers(evidence)
    if not known:
        because = "no reward jobs of two workers that share a rank were recorded"
        return unconfirmed(Reason.MISSING_SIGNAL, because), ()
    mine = next((w for w in known if w.pid == pid), None)
    if mine is None:
        raise UsageError(f"there is no worker {pid}", fix=f"workers: {', '.join(str(w.pid) for w in known)}")
    return mine.verdict, tuple(_receipt(evidence, worker) for worker in known if worker.rank == mine.rank)


def _receipt(evidence: Evidence, worker: Worker) -> Receipt:
    """How long a worker's jobs take on average."""
    mine = (pl.col("pid") == worker.pid) & (pl.col("rank") == worker.rank) & (pl.col("step") >= 0)
    jobs = evidence.recording.table("jobs").filter(mine).drop_nulls(["t0_ns", "t1_ns"])
    seconds = float((jobs["t1_ns"] - jobs["t0_ns"]).to_numpy().mean()) / 1e9
    text = f"worker {worker.pid}: {jobs.height} jobs of {seconds:z.2f} s on average"
    query = select("AVG(t1_ns - t0_ns) / 1e9", "jobs", "step >= 0", pid=worker.pid, rank=worker.rank)
    return Receipt("number", text, rank=worker.rank, value=seconds, unit="s", query=query)
