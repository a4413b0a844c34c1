"""The critical path: walk back from the last release, at each barrier to the rank that came last (methods 2.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.replay import run_stages
from dipstick.analysis.replay_model import GAP
from dipstick.analysis.stats import percentile_interval
from dipstick.analysis.whatif_boot import DRAWS, block_sums

if TYPE_CHECKING:
    from dipstick.analysis.replay_model import Loop
    from dipstick.analysis.stats import Estimate
    from dipstick.model import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PathRow:
    """One phase's part of the critical path.

    Attributes:
        phase: Phase name.
        seconds: Seconds on the path, all steps.
        share: f_p: seconds over the measured run time, with its 95 % block-bootstrap interval.
        lead: f_p minus the largest other share, with its interval from the same draws (shares move
            together); positive for the longest phase only.
        removal_bound: First-order bound on the speed-up if the phase took no time: 1 / (1 - f_p).
    """

    phase: str
    seconds: float
    share: Estimate
    lead: Estimate
    removal_bound: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Shares of the run's time; rows, transfer and gap sum to 1.

    Attributes:
        rows: Phases, largest share first.
        transfer_share: Barrier exits after the last arrival.
        gap_share: Time that no phase explains; negative where the model overshoots.
        longest: Phase with the largest share; None without phases.
        last_rank: The rank followed at each barrier, shape (K, barriers).
        steps: K.
    """

    rows: tuple[PathRow, ...]
    transfer_share: float
    gap_share: float
    longest: str | None
    last_rank: IntArray
    steps: int

    def row(self, phase: str) -> PathRow:
        """The row of one phase.

        Raises:
            KeyError: The loop has no such phase.
        """
        for row in self.rows:
            if row.phase == phase:
                return row
        raise KeyError(phase)


def path_seconds(loop: Loop) -> tuple[FloatArray, IntArray]:
    """Seconds of each column on the path, shape (K, P), and the rank followed, shape (K, barriers).

    Ranks that tie are resolved to the lowest: their path lengths are equal anyway.
    """
    arrive = run_stages(loop, loop.seconds).arrive
    on_path = np.zeros(loop.seconds.shape[:2])
    steps = np.arange(loop.steps)
    pending: list[slice] = []
    followed: list[IntArray] = []
    for s, (stage, columns) in enumerate(zip(loop.stages, loop.stage_columns(), strict=True)):
        pending.append(columns)
        if stage.barrier:
            last = arrive[:, s].argmax(axis=1)
            for part in pending:
                on_path[:, part] = loop.seconds[steps, part, last]
            followed.append(last)
            pending = []
    return on_path, np.stack(followed, axis=1)


def _by_phase(loop: Loop, on_path: FloatArray) -> tuple[tuple[str, ...], FloatArray]:
    """Columns of the same phase added up, the gap's left out: names and shape (K, phases)."""
    names = tuple(dict.fromkeys(name for name in loop.columns if name != GAP))
    merged = [on_path[:, loop.columns_of(name)].sum(axis=1) for name in names]
    return names, np.stack(merged, axis=1) if merged else np.zeros((loop.steps, 0))


def _lead(shares: FloatArray) -> FloatArray:
    """Each share minus the largest other one; the share itself if it is alone. Shape as given."""
    if shares.shape[-1] == 1:
        return shares
    top = np.sort(shares, axis=-1)
    best, second = top[..., -1:], top[..., -2:-1]
    return shares - np.where(shares == best, second, best)


def critical_path(loop: Loop, rng: np.random.Generator, draws: int = DRAWS) -> CriticalPath:
    """Which phase the run's time went to, following the last arrival at each barrier.

    Example:
        One step of 16 s, two ranks: generate 10 and 12 s (barrier), train 3 and 2 s (barrier, 0.5 s of
        transfer). The path is rank 1's generate (12), then rank 0's train (3): shares 12/16 = 0.75 and
        3/16 = 0.1875, transfer 0.03125, gap 0.03125. Generate is longest; removing it gives at most
        1 / (1 - 0.75) = 4x.
    """
    on_path, last = path_seconds(loop)
    names, seconds = _by_phase(loop, on_path)
    total = float(loop.measured.sum())
    sums = block_sums(np.column_stack([seconds, loop.measured]), rng, draws)
    drawn = sums[:, :-1] / sums[:, -1:]
    shares = seconds.sum(axis=0) / total
    leads, drawn_leads = _lead(shares), _lead(drawn)
    rows = [
        PathRow(
            phase=name,
            seconds=float(seconds[:, i].sum()),
            share=percentile_interval(float(shares[i]), drawn[:, i]),
            lead=percentile_interval(float(leads[i]), drawn_leads[:, i]),
            removal_bound=1 / (1 - float(shares[i])) if shares[i] < 1 else float("inf"),
        )
        for i, name in enumerate(names)
    ]
    rows.sort(key=lambda row: -row.share.value)
    transfer = float(loop.transfer.sum()) / total
    gap = 1 - transfer - float(shares.sum())
    return CriticalPath(tuple(rows), transfer, gap, rows[0].phase if rows else None, last, loop.steps)
