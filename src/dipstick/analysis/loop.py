"""From timelines to the replay's loop: seconds per step, stage and rank between the ranks' meeting points.

A step runs from one last-backward to the next. Its stages end where generation ends (``lengths``), where the
rewards are complete (``reward``) and at the last backward of the step (``backward``: the gradient
all-reduce). A framework that lacks one of them has one stage less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.replay_model import GAP, Jobs, Loop, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray

STAGE_ENDS: tuple[tuple[str, str], ...] = (
    ("lengths", "generate"),
    ("reward", "reward"),
    ("backward", "backward"),
)
"""(label, phase whose last end in the step is the rank's arrival)."""
LEFT_OUT = (*phases.WAIT_PHASES, "unattributed", "startup", "teardown")
MOST_WITH_JOBS = 0.9
"""Share of (step, rank) pairs that must have reward jobs; the others (no completion was valid) count as 0 s."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A loop and where its steps lie in the recording.

    Attributes:
        loop: The arrays that replay and what-ifs work on.
        number: (K,) the framework's step numbers.
        labels: The barriers at the stages' ends, in order.
        start_s, end_s: (K,) last-barrier exit before, and of, each step (s since start).
        arrive_s: (K, S, R) when each rank arrived at each of them; the latest is the exit.
        ranks: (R,) the framework's number of each rank: a rank without steps has no place here.
        workers: (rank, pid) of each worker that ``loop.jobs`` knows by its position here, in the order of pids.
    """

    loop: Loop
    number: IntArray
    labels: tuple[str, ...]
    start_s: FloatArray
    end_s: FloatArray
    arrive_s: FloatArray
    ranks: tuple[int, ...] = ()
    workers: tuple[tuple[int, int], ...] = ()

    @property
    def exit_s(self) -> FloatArray:
        """(K, S) latest arrivals: when each barrier opens."""
        latest: FloatArray = self.arrive_s.max(axis=2)
        return latest


def build_loop(
    timelines: Sequence[RankTimeline], jobs: pl.DataFrame, gpus: Mapping[int, int]
) -> Steps | None:
    """The loop of the steps that every rank completed; None where there are fewer than two.

    Steps that end before an earlier one does (numbers that start again after a restart) are left out. A phase
    that comes back after its barrier (generation of an evaluation) moves what follows into its stage.

    Args:
        timelines: Ranks with their waits painted in.
        jobs: The ``jobs`` table.
        gpus: GPUs of each rank; a rank without known GPUs counts as one.
    """
    present = [t for t in timelines if len(t.steps)]
    found = [(label, *_ends(present, phase)) for label, phase in STAGE_ENDS] if present else []
    stages = [(label, number, at) for label, number, at in found if len(number) > 1]
    if not stages:
        return None
    number = stages[0][1]
    for _, other, _ in stages[1:]:
        number = np.intersect1d(number, other)
    if len(number) < 2:  # noqa: PLR2004 - one step has no step before it
        return None
    found_at = np.stack([at[np.searchsorted(have, number)] for _, have, at in stages], axis=1)
    arrive: IntArray = np.maximum.accumulate(found_at, axis=1)
    later = _later(arrive[:, -1].max(axis=1), _first_start(present))
    if later.sum() < 2:  # noqa: PLR2004 - as above
        return None
    return _assemble(present, [label for label, _, _ in stages], number[later], arrive[later], jobs, gpus)


def _later(end: IntArray, start: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which ends lie after all ends before them (and after the start)."""
    before = np.maximum.accumulate(np.concatenate([[start], end[:-1]]))
    return np.asarray(end > before)


def _ends(timelines: Sequence[RankTimeline], phase: str) -> tuple[IntArray, IntArray]:
    """Steps that all ranks share, and (K, R) when each rank's last span of the phase ends in each."""
    each = [_last_ends(t, phases.CODE[phase]) for t in timelines]
    common = each[0][0]
    for number, _ in each[1:]:
        common = np.intersect1d(common, number)
    return common, np.stack([end[np.searchsorted(number, common)] for number, end in each], axis=1)


def _last_ends(timeline: RankTimeline, code: int) -> tuple[IntArray, IntArray]:
    lane, resolved = timeline.main.lane, timeline.main
    inside = (lane.t0 >= timeline.edges[0]) & (lane.t1 <= timeline.edges[-1])
    mask = resolved.opens_phase & (resolved.phase == code) & (lane.step >= 0) & inside
    number = np.unique(lane.step[mask])
    end = np.zeros(len(number), np.int64)
    np.maximum.at(end, np.searchsorted(number, lane.step[mask]), lane.t1[mask])
    return number, end


def _assemble(
    timelines: Sequence[RankTimeline],
    labels: Sequence[str],
    number: IntArray,
    arrive: IntArray,
    jobs: pl.DataFrame,
    gpus: Mapping[int, int],
) -> Steps:
    """Seconds of each column: phases inside [own arrival before, own arrival], GAP for what is left."""
    exits = arrive.max(axis=2)
    before_exit = np.concatenate([[_first_start(timelines)], exits[:-1, -1]])
    opens = np.concatenate([before_exit[:, None], exits[:, :-1]], axis=1)
    spent = np.stack([_spent(t, arrive[:, :, r]) for r, t in enumerate(timelines)], axis=3)
    kept = [code for code, name in enumerate(phases.PHASES) if name not in LEFT_OUT]
    stages, columns = [], []
    for s, label in enumerate(labels):
        used = [code for code in kept if spent[:, s, code].any()]
        own = (arrive[:, s] - opens[:, s, None]) / 1e9
        parts = [spent[:, s, code] for code in used]
        stages.append(Stage(label, (*(phases.PHASES[code] for code in used), GAP)))
        columns += [*parts, own - np.sum(parts, axis=0)]
    seconds = np.stack(columns, axis=1)
    loop = Loop(
        stages=tuple(stages),
        seconds=seconds,
        transfer=np.zeros((len(number), len(stages))),
        gap=np.zeros(len(number)),
        measured=(exits[:, -1] - before_exit) / 1e9,
        gpus=np.asarray([max(gpus.get(t.rank, 1), 1) for t in timelines], np.int64),
    )
    ranks = tuple(t.rank for t in timelines)
    steps = Steps(loop, number, tuple(labels), before_exit / 1e9, exits[:, -1] / 1e9, arrive / 1e9, ranks)
    return _with_jobs(steps, timelines, jobs)


def _first_start(timelines: Sequence[RankTimeline]) -> int:
    return min(int(t.steps.t0.min()) for t in timelines)


def _spent(timeline: RankTimeline, arrive: IntArray) -> FloatArray:
    """(K, S, phases) seconds of one rank between its neighbouring arrivals."""
    flat = np.concatenate([[max(int(timeline.steps.t0.min()), int(timeline.edges[0]))], arrive.ravel()])
    ordered = np.maximum.accumulate(flat)
    times, back = np.unique(ordered, return_inverse=True)
    until = timeline.phase_ns_until(times)[back]
    spent: FloatArray = np.diff(until, axis=0).reshape(*arrive.shape, -1) / 1e9
    return spent


def _with_jobs(steps: Steps, timelines: Sequence[RankTimeline], jobs: pl.DataFrame) -> Steps:
    """The same with the reward jobs of its steps, if nearly every step and rank has some."""
    number, ranks = steps.number, list(steps.ranks)
    mine = jobs.filter(pl.col("step").is_in(number.tolist()) & pl.col("rank").is_in(ranks))
    rows = mine.drop_nulls(["submitted_ns", "t0_ns", "t1_ns", "pid"])
    row = rows.with_columns(
        pl.Series("k", np.searchsorted(number, rows["step"].to_numpy()), pl.Int64),
        pl.Series("r", [ranks.index(rank) for rank in rows["rank"].to_list()], pl.Int64),
    ).sort("k", "r", "submitted_ns", maintain_order=True)
    group = (row["k"] * len(ranks) + row["r"]).to_numpy()
    if (
        len(np.unique(group)) < MOST_WITH_JOBS * len(number) * len(ranks)
        or "reward" not in steps.loop.columns
    ):
        return steps  # jobs of rewards that run beside the loop are no part of a step
    reward = np.stack([_reward_s(t, number) for t in timelines], axis=1)
    found, workers = _as_jobs(row, group, reward)
    named = tuple((ranks[r], pid) for r, pid in workers)
    return replace(steps, loop=replace(steps.loop, jobs=found), workers=named)


def _as_jobs(row: pl.DataFrame, group: IntArray, reward: FloatArray) -> tuple[Jobs, list[tuple[int, int]]]:
    """The jobs in submission order, and (position of the rank, pid) of each worker."""
    sent, begun, ended = (row[c].to_numpy() for c in ("submitted_ns", "t0_ns", "t1_ns"))
    first, last = np.full(reward.size, np.iinfo(np.int64).max), np.zeros(reward.size, np.int64)
    np.minimum.at(first, group, sent)
    np.maximum.at(last, group, ended)
    spread = np.where(np.bincount(group, minlength=reward.size) > 0, last - first, 0) / 1e9
    pair, worker = np.unique(row.select("pid", "r").to_numpy(), axis=0, return_inverse=True)
    jobs = Jobs(
        step=row["k"].to_numpy(),
        rank=row["r"].to_numpy(),
        seconds=(ended - begun) / 1e9,
        slots=np.maximum(np.bincount(pair[:, 1], minlength=reward.shape[1]), 1),
        outside=np.maximum(reward - spread.reshape(reward.shape), 0.0),
        submitted=(sent - first[group]) / 1e9,
        worker=worker.ravel().astype(np.int64),
    )
    return jobs, [(int(r), int(pid)) for pid, r in pair]


def _reward_s(timeline: RankTimeline, number: IntArray) -> FloatArray:
    """(K,) seconds of the reward spans of each step."""
    lane, resolved = timeline.main.lane, timeline.main
    mask = resolved.opens_phase & (resolved.phase == phases.CODE["reward"]) & np.isin(lane.step, number)
    total = np.zeros(len(number))
    np.add.at(total, np.searchsorted(number, lane.step[mask]), (lane.t1[mask] - lane.t0[mask]) / 1e9)
    return total
