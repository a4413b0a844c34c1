"""Waiting and transfer inside collective kernels, from traces of several ranks (Kineto, Nsight Systems).

A collective's kernel starts on a rank when that rank is there and ends on all of them together. Until the last rank's has
started (the release, methods 2.1) the others wait; from then on data moves. So the last one's length is transfer, and what
others are longer is waiting. The k-th kernel of a name, size and process group on one rank is the k-th on the others.

Each kernel's nanoseconds are waiting, transfer, or not told apart; the three add up. Nothing is told where the ranks' counts
differ, kernels that should be one call don't run at the same time, or only one rank was traced. Where ranks of the group
are missing from the import, waiting is still waiting (at least so much), and the rest is not told apart.

Clocks of one host agree. Between hosts, ends of the same calls give the offset (methods 3.1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dipstick.model import IntArray

    Intervals = tuple[IntArray, IntArray]

KERNEL: Final = "kernel"
"""``source`` of rows that are kernels on the device; calls of the host have none."""
APART: Final = 0.5
"""Ranks that end further apart than this share of the longest kernel were not in one call."""
MET: Final = 0.9
"""If fewer of a kind's calls run at the same time on all ranks, the k-th is not the k-th."""
FEWEST_SHARED: Final = 3
"""Calls that give the offset between two hosts."""
KEY: Final = ("name", "group", "elements", "members")

ALONE: Final = "only one rank's trace was imported"
PARTNERS: Final = "point-to-point: the partner is not recorded"
COUNTS: Final = "the ranks have different numbers of them"
UNMET: Final = "they don't run at the same time on all ranks"
CLOCKS: Final = "too few calls are shared to align the hosts' clocks"
ABSENT: Final = "transfer, or waiting for ranks that were not imported"


@dataclass(frozen=True, slots=True)
class Split:
    """One rank's collective kernels. Times are on the rank's own clock (ns).

    Attributes:
        kernels: How many.
        whole_ns: Sum of their lengths; kernels on two streams count twice.
        waiting_ns, transfer_ns, untold_ns: What that consists of.
        waits, transfers: Starts and ends of both.
        why: Nanoseconds not told apart, by reason.
    """

    rank: int
    kernels: int
    whole_ns: int
    waiting_ns: int
    transfer_ns: int
    untold_ns: int
    waits: Intervals
    transfers: Intervals
    why: Mapping[str, int]

    def __post_init__(self) -> None:
        """The parts add up."""
        parts = (self.waiting_ns, self.transfer_ns, self.untold_ns)
        assert min(parts) >= 0 and sum(parts) == self.whole_ns, "a collective's parts do not add up"  # noqa: S101, PT018 - asserted promise
        assert sum(self.why.values()) == self.untold_ns, "time not told apart lacks a reason"  # noqa: S101 - asserted promise


@dataclass(frozen=True, slots=True)
class _Kind:
    """Kernels of one name, size and group: K calls, R ranks; ``row`` (K, R) is where they stand in the table."""

    row: IntArray
    start: IntArray
    end: IntArray
    hosts: tuple[str, ...]
    is_whole: bool


def split(collectives: pl.DataFrame, processes: pl.DataFrame) -> tuple[Split, ...]:
    """Split every rank's collective kernels, by rank; empty where no trace of kernels was imported.

    Args:
        collectives: The recorded table (times in ns since start).
        processes: The recorded table: says which rank a process is where the kernel does not.
    """
    rows = _kernels(collectives, processes)
    start, end = (rows[c].to_numpy().astype(np.int64) for c in ("entered_ns", "left_ns"))
    waited, moved = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    why = np.full(len(start), "", object)
    kinds = list(_kinds(rows, why))
    offsets = _offsets(kinds)
    for kind in kinds:
        _tell(kind, offsets, waited, moved, why)
    parts = rows["rank"].to_numpy()
    return tuple(
        _split(int(rank), start[at], end[at], waited[at], moved[at], why[at])
        for rank in np.unique(parts)
        for at in [parts == rank]
    )


def _kernels(collectives: pl.DataFrame, processes: pl.DataFrame) -> pl.DataFrame:
    """Kernels with a rank, in time order."""
    rows = collectives.filter(pl.col("source").cast(pl.String) == KERNEL).drop_nulls(
        ["entered_ns", "left_ns"]
    )
    known = (
        processes.drop_nulls(["pid", "rank"])
        .unique(["host", "pid"], keep="first", maintain_order=True)
        .select("host", "pid", pl.col("rank").alias("_rank"))
    )
    rows = rows.join(known, on=["host", "pid"], how="left", maintain_order="left")
    rows = rows.with_columns(
        pl.coalesce("rank", "_rank").alias("rank"), pl.col("name", "host").cast(pl.String)
    )
    return rows.filter(pl.col("rank").is_not_null() & (pl.col("left_ns") >= pl.col("entered_ns"))).sort(
        "entered_ns", "left_ns", maintain_order=True
    )


def _kinds(rows: pl.DataFrame, why: Any) -> Iterator[_Kind]:
    """Kinds whose calls can be paired; the others' rows get the reason."""
    everyone = rows["rank"].n_unique()
    numbered = rows.with_row_index("row").select("row", "rank", "host", "entered_ns", "left_ns", *KEY)
    for key, part in numbered.group_by(*KEY, maintain_order=True):
        ranks = part["rank"].unique().sort().to_list()
        reason = _refusal(str(key[0]), key[1] is not None, len(ranks), everyone, part)
        if reason:
            why[part["row"].to_numpy()] = reason
            continue
        table = part.sort("rank", "entered_ns", maintain_order=True)
        row, start, end = (table[c].to_numpy().astype(np.int64).reshape(len(ranks), -1).T for c in ("row", "entered_ns", "left_ns"))  # fmt: skip
        hosts = tuple(table["host"].fill_null("").to_list()[:: len(row)])
        yield _Kind(row, start, end, hosts, key[3] is None or int(key[3]) <= len(ranks))


def _refusal(name: str, grouped: bool, ranks: int, everyone: int, part: pl.DataFrame) -> str:  # noqa: FBT001 - private
    """Why calls of a kind can't be paired; empty if they can."""
    if everyone == 1:
        return ALONE
    if "sendrecv" in name.lower():
        return PARTNERS
    if ranks == 1 and grouped:
        return ABSENT
    counts = part.group_by("rank").len()["len"]
    return COUNTS if counts.n_unique() > 1 or (not grouped and ranks < everyone) else ""


def _offsets(kinds: Sequence[_Kind]) -> dict[str, int]:
    """By how much each host's clock is ahead of the first one's; hosts that share too few calls with it are absent.

    The median over calls of the difference of ends, on each host the middle of its ranks'.
    """
    hosts = sorted({host for kind in kinds for host in kind.hosts})
    found = dict.fromkeys(hosts[:1], 0)
    for host in hosts[1:]:
        shared = [
            np.median(kind.end[:, _of(kind, host)], axis=1)
            - np.median(kind.end[:, _of(kind, hosts[0])], axis=1)
            for kind in kinds
            if {host, hosts[0]} <= {*kind.hosts}
        ]
        if sum(map(len, shared)) >= FEWEST_SHARED:
            found[host] = round(float(np.median(np.concatenate(shared))))
    return found


def _of(kind: _Kind, host: str) -> list[int]:
    return [column for column, other in enumerate(kind.hosts) if other == host]


def _tell(kind: _Kind, offsets: Mapping[str, int], waited: IntArray, moved: IntArray, why: Any) -> None:
    """Write the kernels' waits and transfers, or the reason why not."""
    if len({*kind.hosts}) > 1 and not {*kind.hosts} <= {*offsets}:
        why[kind.row] = CLOCKS
        return
    ahead = np.asarray([offsets.get(host, 0) if len({*kind.hosts}) > 1 else 0 for host in kind.hosts])
    start, end = kind.start - ahead, kind.end - ahead
    release, length = start.max(axis=1, keepdims=True), end - start
    spread = end.max(axis=1) - end.min(axis=1)
    met = (end.min(axis=1) >= release[:, 0]) & (spread <= APART * length.max(axis=1))
    if met.mean() < MET:
        met[:] = False
    why[kind.row[~met]] = UNMET
    wait = (release - start)[met]
    waited[kind.row[met]] = wait
    if kind.is_whole:
        moved[kind.row[met]] = length[met] - wait
    else:
        why[kind.row[met]] = ABSENT


def _split(rank: int, start: IntArray, end: IntArray, waited: IntArray, moved: IntArray, why: Any) -> Split:
    length = end - start
    untold = length - waited - moved
    reasons = Counter[str]()
    for reason, ns in zip(why[untold > 0], untold[untold > 0].tolist(), strict=True):
        reasons[reason] += ns
    waits, moves = waited > 0, moved > 0
    return Split(
        rank=rank, kernels=len(start), whole_ns=int(length.sum()), waiting_ns=int(waited.sum()),
        transfer_ns=int(moved.sum()), untold_ns=int(untold.sum()), waits=(start[waits], (start + waited)[waits]),
        transfers=((end - moved)[moves], end[moves]), why=dict(reasons.most_common()),
    )  # fmt: skip


def told(splits: Sequence[Split]) -> Iterator[str]:
    """A sentence a rank: its seconds in collectives, and what they are."""
    for one in splits:
        text = (f"rank {one.rank}'s GPU spent {one.whole_ns / 1e9:z.3f} s in {one.kernels} communication kernels: "
                f"{one.waiting_ns / 1e9:z.3f} s waiting for the last rank, {one.transfer_ns / 1e9:z.3f} s transfer, "
                f"{one.untold_ns / 1e9:z.3f} s can't tell")  # fmt: skip
        reasons = "; ".join(f"{ns / 1e9:z.3f} s: {reason}" for reason, ns in one.why.items())
        fix = "; import all ranks' traces together" if {ALONE, ABSENT} & {*one.why} else ""
        yield f"{text} ({reasons}{fix})" if reasons else text
