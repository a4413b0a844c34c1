"""From timelines to the replay's loop: seconds per step, stage and rank between the ranks' meeting points.

A step runs from one last-backward to the next. Its stages end where generation ends (``lengths``), where the
rewards are complete (``reward``) and at the last backward of the step (``backward``: the gradient
all-reduce). A framework that lacks one of them has one stage less.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Steps:
    """A loop and where its steps lie in the recording.

    Attributes:
        loop: The arrays that replay and what-ifs work on.
        number: (K,) the framework's step numbers.
        labels: The barriers at the stages' ends, in order.
        start_s, end_s: (K,) last-barrier exit before, and of, each step (s since start).
        arrive_s: (K, S, R) when each rank arrived at each of them; the latest is the exit.
    """

    loop: Loop
    number: IntArray
    labels: tuple[str, ...]
    start_s: FloatArray
    end_s: FloatArray
    arrive_s: FloatArray

    @property
    def exit_s(self) -> FloatArray:
        """(K, S) latest arrivals: when each barrier opens."""
        latest: FloatArray = self.arrive_s.max(axis=2)
        return latest


def build_loop(
    timelines: Sequence[RankTimeline], jobs: pl.DataFrame, gpus: Mapping[int, int]
) -> Steps | None:
    """The loop of the steps that every rank completed; None where there are fewer than two.

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
    arrive = np.stack([at[np.searchsorted(have, number)] for _, have, at in stages], axis=1)
    return _assemble(present, [label for label, _, _ in stages], number, arrive, jobs, gpus)


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
        jobs=_jobs(timelines, number, jobs),
    )
    return Steps(loop, number, tuple(labels), before_exit / 1e9, exits[:, -1] / 1e9, arrive / 1e9)


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


def _jobs(timelines: Sequence[RankTimeline], number: IntArray, jobs: pl.DataFrame) -> Jobs | None:
    """The reward jobs of the kept steps, in submission order; None unless every step and rank has some."""
    ranks = [t.rank for t in timelines]
    rows = jobs.filter(pl.col("step").is_in(number.tolist()) & pl.col("rank").is_in(ranks)).drop_nulls(
        ["submitted_ns", "t0_ns", "t1_ns", "pid"]
    )
    row = rows.with_columns(
        pl.Series("k", np.searchsorted(number, rows["step"].to_numpy()), pl.Int64),
        pl.Series("r", [ranks.index(rank) for rank in rows["rank"].to_list()], pl.Int64),
    ).sort("k", "r", "submitted_ns", maintain_order=True)
    group = (row["k"] * len(ranks) + row["r"]).to_numpy()
    if len(np.unique(group)) < len(number) * len(ranks):
        return None
    return _as_jobs(timelines, number, row, group)


def _as_jobs(timelines: Sequence[RankTimeline], number: IntArray, row: pl.DataFrame, group: IntArray) -> Jobs:
    sent, begun, ended = (row[c].to_numpy() for c in ("submitted_ns", "t0_ns", "t1_ns"))
    groups = len(number) * len(timelines)
    first = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(first, group, sent)
    last = np.zeros(groups, np.int64)
    np.maximum.at(last, group, ended)
    shape = (len(number), len(timelines))
    reward = np.stack([_reward_s(t, number) for t in timelines], axis=1)
    slots = row.group_by("r").agg(pl.col("pid").n_unique()).sort("r")["pid"].to_numpy().astype(np.int64)
    return Jobs(
        step=row["k"].to_numpy(),
        rank=row["r"].to_numpy(),
        seconds=(ended - begun) / 1e9,
        slots=slots,
        outside=np.maximum(reward - ((last - first) / 1e9).reshape(shape), 0.0),
        submitted=(sent - first[group]) / 1e9,
        worker=np.unique(row["pid"].to_numpy(), return_inverse=True)[1].astype(np.int64),
    )


def _reward_s(timeline: RankTimeline, number: IntArray) -> FloatArray:
    """(K,) seconds of the reward spans of each step."""
    lane, resolved = timeline.main.lane, timeline.main
    mask = resolved.opens_phase & (resolved.phase == phases.CODE["reward"]) & np.isin(lane.step, number)
    total = np.zeros(len(number))
    np.add.at(total, np.searchsorted(number, lane.step[mask]), (lane.t1[mask] - lane.t0[mask]) / 1e9)
    return total
