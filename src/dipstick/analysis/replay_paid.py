"""GPU-seconds paid for, by phase, wait, transfer and gap: they add up to G x wall time (methods 2.2).

Every GPU of a rank is paid for as long as the rank is in a phase, whatever its utilization reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dipstick.analysis.replay import run_stages
from dipstick.analysis.replay_model import GAP

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Loop
    from dipstick.model import FloatArray, IntArray

GAP_LIMIT: Final = 0.05
"""Above this share of unexplained time no phase share may be "yes" (methods 2.2)."""

Kind = Literal["phase", "wait", "transfer", "gap"]


@dataclass(frozen=True, slots=True)
class PaidRow:
    """One line of the bill.

    Attributes:
        name: Phase, or the barrier that was waited at, ``transfer`` or ``unattributed``.
        kind: What the line is; a wait is peer wait (own work ends at arrival, waiting starts there).
        gpu_s: GPU-seconds. The gap can be negative if the model overshoots the measured step times.
        share: Of all GPU-seconds.
    """

    name: str
    kind: Kind
    gpu_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Paid:
    """The bill; the rows add up to ``total_gpu_s``."""

    rows: tuple[PaidRow, ...]
    total_gpu_s: float

    @property
    def gap_share(self) -> float:
        """Unexplained share of the total."""
        return next(row.share for row in self.rows if row.kind == "gap")

    @property
    def gap_ok(self) -> bool:
        """Whether the unexplained share allows a phase share to be "yes"."""
        return abs(self.gap_share) <= GAP_LIMIT

    @property
    def most(self) -> str | None:
        """Name of the most expensive line that is not the gap; None if all are 0."""
        lines = [row for row in self.rows if row.kind != "gap" and row.gpu_s > 0]
        return max(lines, key=lambda row: row.gpu_s).name if lines else None


def waits(loop: Loop) -> FloatArray:
    """Wait of each rank at each barrier: last arrival minus its own [s], shape (K, S, R); 0 without barrier."""
    arrive = run_stages(loop, loop.seconds).arrive
    result: FloatArray = arrive.max(axis=2, keepdims=True) - arrive
    result[:, [not stage.barrier for stage in loop.stages]] = 0.0
    return result


def paid(loop: Loop) -> Paid:
    """Where each GPU-second of the run went.

    Example:
        One step of 16 s on two one-GPU ranks; generate 10 and 12 s, then a barrier; train 3 and 2 s,
        then a barrier with 0.5 s of transfer. Paid: generate 22, train 5, waits 2 (first barrier) and
        1 (second), transfer 1, unattributed 1; together 32 = 2 x 16.
    """
    total = float(loop.gpus.sum() * loop.measured.sum())
    by_phase = dict.fromkeys(loop.columns, 0.0)
    for name, seconds in zip(loop.columns, (loop.seconds @ loop.gpus).sum(axis=0), strict=True):
        by_phase[name] += float(seconds)
    by_phase.pop(GAP, None)
    lines: list[tuple[str, Kind, float]] = [(name, "phase", value) for name, value in by_phase.items()]
    waited = (waits(loop) @ loop.gpus).sum(axis=0)
    lines += [(s.name, "wait", float(w)) for s, w in zip(loop.stages, waited, strict=True) if s.barrier]
    lines.append(("transfer", "transfer", float(loop.transfer.sum() * loop.gpus.sum())))
    lines.append((GAP, "gap", total - sum(value for _, _, value in lines)))
    return Paid(tuple(PaidRow(n, k, v, v / total if total else 0.0) for n, k, v in lines), total)


def charge_overlaps(
    start: FloatArray, end: FloatArray, phase: IntArray, phases: int, first: IntArray | None = None
) -> FloatArray:
    """Seconds of one GPU per phase when spans overlap (asynchronous reward); each second is charged once.

    The timeline is cut at every span edge; in each piece the m active phases get 1/m of it, or, with
    ``first``, only the active phases among those (the GPU phases), if any is active.

    Args:
        start: Span starts [s], shape (n,).
        end: Span ends [s], shape (n,).
        phase: Phase number of each span, 0..phases-1, shape (n,).
        phases: Number of phases.
        first: Phase numbers that take all of a piece they are active in.

    Returns:
        Shape (phases,); it sums to the length of the union of the spans.

    Example:
        Generate [0, 10) and reward [6, 14): pieces [0, 6), [6, 10), [10, 14); generate 6 + 2 = 8 s,
        reward 2 + 4 = 6 s, together 14. With generate first: 10 and 4.
    """
    edges = np.unique(np.concatenate([start, end]))
    if edges.size < 2:  # noqa: PLR2004  # one edge or none bounds no piece
        return np.zeros(phases)
    change = np.zeros((phases, edges.size))
    np.add.at(change, (phase, np.searchsorted(edges, start)), 1)
    np.add.at(change, (phase, np.searchsorted(edges, end)), -1)
    active = np.cumsum(change, axis=1)[:, :-1] > 0
    if first is not None:
        mine = np.isin(np.arange(phases), first)
        active[~mine] &= ~active[mine].any(axis=0)
    share = active / np.maximum(active.sum(axis=0), 1)
    return np.asarray(share @ np.diff(edges), dtype=np.float64)
