"""Framework spans as arrays per rank, with the phase that each span means.

A span takes the phase of its rule in ``dipstick.phases``; containers and unknown names inherit the phase
of the span around them, so an unknown helper inside the reward function counts as reward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import NONE, Nesting, nest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from dipstick.model import CodeArray, IntArray

INHERIT = 255
"""Marks names that mean nothing by themselves (containers, steps, unknown helpers)."""

BLOCKED_NS = 10_000_000
"""A gather that only launches a kernel returns within a millisecond (at most 0.5 ms in 86 of NCCL's)."""

RULES: tuple[phases.Rule, ...] = phases.TRL_RULES + phases.PLAIN_RULES
WORKERS = ("reward_worker", "worker")
"""Roles of processes that a rank started: they inherit its number (RANK), and their spans are not its lane."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans of one thread of one rank, sorted by start (ties longest first).

    Attributes:
        names: Distinct span names without trainer class; ``name`` indexes it.
        declared: Phase code a span was recorded with, or ``INHERIT`` where it has none.
        step: The framework's step number, -1 before training or where unknown.
        pid: The process; None where that is not known.
    """

    rank: int
    names: tuple[str, ...]
    t0: IntArray
    t1: IntArray
    name: IntArray
    declared: CodeArray
    step: IntArray
    pid: int | None = None

    def called(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """Mask of the spans with one of these short names."""
        codes = [i for i, name in enumerate(self.names) if name in wanted]
        mask: npt.NDArray[np.bool_] = np.isin(self.name, codes)
        return mask


@dataclass(frozen=True, slots=True)
class ResolvedLane:
    """A lane with its nesting, the phase of each span, and which spans open their phase."""

    lane: Lane
    nesting: Nesting
    phase: CodeArray
    opens_phase: npt.NDArray[np.bool_]

    def pieces(self) -> tuple[IntArray, CodeArray]:
        """The exclusive phases as a step function; time outside spans is ``unattributed``."""
        owner = self.nesting.owner
        code = np.where(owner == NONE, phases.UNATTRIBUTED, self.phase[owner]) if len(owner) else owner
        return self.nesting.edges, code.astype(np.uint8)


def read_lanes(spans: pl.DataFrame, processes: pl.DataFrame) -> tuple[list[Lane], int]:
    """Split the spans table into lanes; returns them and the rows whose rank nobody knows.

    Args:
        spans: Columns of the ``spans`` table (times in ns since start).
        processes: Columns ``host, pid, rank``, to fill ranks that spans lack.
    """
    spans = of_ranks(spans, processes)
    names, coded = _short_names(spans["name"])
    table = spans.select(
        _rank_column(spans, processes), "pid", "tid", "t0_ns", "t1_ns",
        pl.Series("name", coded), pl.Series("declared", _declared(spans["phase"])), pl.col("step").fill_null(-1),
    )  # fmt: skip
    known = table.filter(pl.col("rank").is_not_null())
    lanes = abreast(partial(_lane, names), _by_thread(known))
    if len({lane.rank for lane in lanes}) > 1:  # one rank has nobody to wait for
        lanes = abreast(_ended_on_arrival, lanes)
    return lanes, table.height - known.height


def of_ranks(spans: pl.DataFrame, processes: pl.DataFrame) -> pl.DataFrame:
    """The spans without those of workers; all of them where every process is called one."""
    workers = processes.filter(pl.col("role").cast(pl.String).is_in(WORKERS)).select("host", "pid").unique()
    if workers.is_empty():
        return spans
    own = spans.join(workers, on=["host", "pid"], how="anti", nulls_equal=True, maintain_order="left")
    return own if own.height else spans


def _by_thread(table: pl.DataFrame) -> Iterator[tuple[int, int | None, pl.DataFrame]]:
    parts = table.partition_by("rank", "pid", "tid", maintain_order=True, as_dict=True)
    for rank, pid, tid in sorted(parts, key=lambda key: tuple(-1 if part is None else part for part in key)):
        yield rank, pid, parts[rank, pid, tid]


def _lane(names: tuple[str, ...], thread: tuple[int, int | None, pl.DataFrame]) -> Lane:
    rank, pid, part = thread
    t0, t1 = part["t0_ns"].to_numpy(), part["t1_ns"].to_numpy()
    name, declared, step = (part[column].to_numpy() for column in ("name", "declared", "step"))
    if not ((t0[1:] > t0[:-1]) | ((t0[1:] == t0[:-1]) & (t1[1:] <= t1[:-1]))).all():
        order = np.lexsort((-t1, t0))
        t0, t1, name, declared, step = (column[order] for column in (t0, t1, name, declared, step))
    return Lane(rank, names, t0, t1, name, declared, step.astype(np.int64), pid)


def _ended_on_arrival(lane: Lane) -> Lane:
    """Rewards end where the rank arrives at their gather, also where the gather blocks until the others are there.

    NCCL returns after the launch and the wait surfaces later; gloo (and blocking NCCL) waits inside the call, so
    inside ``_calculate_rewards``. Example: scoring until 2.5, gather until 4.6 gives a reward that ends at 2.5.
    """
    rewards = np.flatnonzero(lane.called("_calculate_rewards"))
    gathers = np.flatnonzero(lane.called("gather") & (lane.t1 - lane.t0 >= BLOCKED_NS))
    if not len(rewards) or not len(gathers):
        return lane
    around = rewards[np.clip(np.searchsorted(lane.t0[rewards], lane.t0[gathers], side="right") - 1, 0, None)]
    inside = (lane.t0[around] <= lane.t0[gathers]) & (lane.t1[gathers] <= lane.t1[around])
    t1 = lane.t1.copy()
    np.minimum.at(t1, around[inside], lane.t0[gathers[inside]])
    return replace(lane, t1=t1)


def _rank_column(spans: pl.DataFrame, processes: pl.DataFrame) -> pl.Series:
    """Rank of each span: its own, else its process's, else 0 where there is only one process."""
    rank = spans["rank"].cast(pl.Int64)
    if not rank.null_count():
        return rank.alias("rank")
    known = processes.filter(pl.col("rank").is_not_null()).unique(["host", "pid"], keep="first")
    pairs = spans.select("host", "pid").join(
        known.select("host", "pid", pl.col("rank").cast(pl.Int64)),
        on=["host", "pid"], how="left", nulls_equal=True, maintain_order="left",
    )  # fmt: skip
    filled = rank.fill_null(pairs["rank"])
    if spans["pid"].n_unique() == 1 and rank.null_count() == len(rank):
        filled = filled.fill_null(0)
    return filled.alias("rank")


def encode(column: pl.Series) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Distinct strings, sorted, and for each row its index; null rows get the index after the last."""
    distinct = column.drop_nulls().unique().cast(pl.String).sort()
    codes = column.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).fill_null(len(distinct))
    return distinct.to_list(), codes.to_numpy()


def _short_names(column: pl.Series) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    distinct, codes = encode(column)
    short = [phases.short_name(name) for name in distinct] + [""]
    index = {name: i for i, name in enumerate(dict.fromkeys(short))}
    return tuple(index), np.asarray([index[name] for name in short], np.int32)[codes]


def _declared(column: pl.Series) -> CodeArray:
    distinct, codes = encode(column)
    table = [phases.CODE.get(name, INHERIT) for name in distinct] + [INHERIT]
    return np.asarray(table, np.uint8)[codes]


def resolve(lane: Lane, rules: Sequence[phases.Rule] = RULES) -> ResolvedLane:
    """Nest the lane and give every span its phase, level by level from the outside in.

    Example: ``step > compute_loss > _get_per_token_logps`` gives unattributed, forward, forward;
    the same logps span under ``_prepare_inputs`` gives logprobs.
    """
    nesting = nest(lane.t0, lane.t1)
    plain, nested = _tables(lane.names, rules)
    own = np.where(lane.declared != INHERIT, lane.declared, plain[lane.name])
    phase, around = np.zeros(len(own), np.uint8), np.zeros(len(own), np.uint8)
    inside = np.zeros((len(nested), len(own)), np.bool_)
    for depth in range(int(nesting.level.max(initial=0)) + 1):
        at = np.flatnonzero(nesting.level == depth)
        outer = nesting.parent[at]
        rooted = outer == NONE
        around[at] = np.where(rooted, phases.UNATTRIBUTED, phase[outer])
        mine = own[at]
        for row, (name, container, code) in enumerate(nested):
            inside[row, at] = ~rooted & (inside[row, outer] | (lane.name[outer] == container))
            hit = inside[row, at] & (lane.name[at] == name) & (lane.declared[at] == INHERIT)
            mine = np.where(hit, code, mine)
        phase[at] = np.where(mine == INHERIT, around[at], mine)
    return ResolvedLane(lane, nesting, phase, phase != around)


def _tables(
    names: tuple[str, ...], rules: Sequence[phases.Rule]
) -> tuple[CodeArray, list[tuple[int, int, int]]]:
    """Rules by name index: phase of each name anywhere, and (name, container, phase) for names inside others."""
    index = {name: i for i, name in enumerate(names)}
    plain = np.full(len(names), INHERIT, np.uint8)
    nested: list[tuple[int, int, int]] = []
    for rule in reversed(rules):  # the first matching rule of a name wins
        code = phases.CODE.get(rule.phase, INHERIT)
        if rule.name not in index:
            continue
        if not rule.inside:
            plain[index[rule.name]] = code
        elif rule.inside in index:
            nested.append((index[rule.name], index[rule.inside], code))
    return plain, nested
