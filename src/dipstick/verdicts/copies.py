"""Copies to the device that the program tells of itself: spans of the phase ``transfer``, with their bytes.

A copy reads like work to ``utilization.gpu``, and a machine without a GPU has no counters at all. A program that
waits for its copy in ``dipstick.span("transfer", bytes_b=N)`` says when and how much.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.stats import Estimate, percentile_interval, step_draws, wilson
from dipstick.judgement import Receipt
from dipstick.verdicts.algebra import measured
from dipstick.verdicts.bill import phase_receipts
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

PHASE: Final = "transfer"
IDLE: Final = ("unattributed", *phases.WAIT_PHASES)
"""Phases in which a rank does no work of its own, besides copying."""
STRONG, WEAK = 0.5, 0.2
GIB: Final = 2.0**30
BYTES: Final = "bytes_b"
BYTES_SQL: Final = (
    "COALESCE(SUM(CAST(NULLIF(SPLIT_PART(SPLIT_PART(SPLIT_PART(detail, "
    f"""'"{BYTES}": ', 2), ',', 1), '}}', 1), '') AS BIGINT)), 0)"""
)
"""The bytes in the spans' details, which are JSON."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Recorded copies inside the analysis window.

    Attributes:
        count: Spans.
        sized: Those of them that say how many bytes.
        size_b: The bytes of these.
        seconds: The time of these.
    """

    count: int
    sized: int
    size_b: int
    seconds: float


def recorded(evidence: Evidence) -> Judged | None:
    """Do recorded copies take the time in which ranks do no work? None where none was recorded, which proves nothing.

    Without work a rank is in a transfer, in a wait for another rank, or in no phase at all.
    """
    steps = evidence.steps
    if steps is None:
        return None
    start, end = ((at[evidence.kept] * 1e9).round().astype(np.int64) for at in (steps.start_s, steps.end_s))
    timelines = evidence.findings.timelines
    copying = sum((spent_s(t, (PHASE,), start, end) for t in timelines), np.zeros(len(start)))
    if not copying.any():
        return None
    idle = sum((spent_s(t, IDLE, start, end) for t in timelines), np.zeros(len(start)))
    share, moved = share_of_lost(evidence, copying, idle), bytes_receipts(evidence)
    because = (
        f"{copying.sum():z.1f} of {copying.sum() + idle.sum():z.1f} rank-seconds without work are recorded copies to the "
        f"device ({100 * share.value:z.0f} %, at least {100 * share.low:z.0f} %); {moved[0].text}"
    )
    receipts = (*phase_receipts(evidence, PHASE), *moved)
    return measured(mostly(share), because, share, len(copying)), receipts


def _sized(found: Copies) -> str:
    """How much the copies moved, as far as they say."""
    if not found.sized:
        fix = f"dipstick.span('{PHASE}', {BYTES}=N) would tell"
        return f"{found.count} copies, their bytes were not recorded ({fix})"
    many = f"{found.count} copies" if found.sized == found.count else f"{found.sized} of {found.count} copies"
    rate = found.size_b / GIB / max(found.seconds, 1e-9)
    return f"{many} moved {found.size_b / GIB:z.1f} GiB at {rate:z.1f} GiB/s"


def found_in(evidence: Evidence) -> Copies:
    """The copies of the ranks that take part, inside the analysis window."""
    if not any(evidence.recording.has_values("spans", told, (PHASE,)) for told in ("name", "phase")):
        return Copies(0, 0, 0, 0.0)
    start, end = evidence.findings.window
    rows = evidence.recording.table("spans", columns=["rank", "t0_ns", "t1_ns", "phase", "name", "detail"])
    ranks = [int(t.rank) for t in evidence.findings.timelines]
    mine = rows.filter(
        ((pl.col("name").cast(pl.String) == PHASE) | (pl.col("phase").cast(pl.String) == PHASE))
        & pl.col("rank").is_in(ranks)
        & pl.col("t0_ns").is_between(start, end, closed="left")
    )
    sizes = [_bytes(text) for text in mine["detail"].cast(pl.String)]
    sized = [size for size in sizes if size is not None]
    ns = (mine["t1_ns"] - mine["t0_ns"]).to_list()
    seconds = sum(took for took, size in zip(ns, sizes, strict=True) if size is not None) / 1e9
    return Copies(len(sizes), len(sized), sum(sized), seconds)


def _bytes(detail: str | None) -> int | None:
    """The bytes that a span's detail tells of; None where it tells of none, or of what can be none."""
    try:
        value = json.loads(detail or "null")
    except (ValueError, RecursionError):
        return None
    size = value.get(BYTES) if isinstance(value, dict) else None
    return size if type(size) is int and size >= 0 else None


def bytes_receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    """What the recorded copies moved, in one receipt; none where no copy was recorded."""
    found = found_in(evidence)
    start, end = evidence.findings.window
    ranks = ", ".join(str(int(t.rank)) for t in evidence.findings.timelines)
    query = select(
        BYTES_SQL, "spans", f"(name = '{PHASE}' OR phase = '{PHASE}')", f"rank IN ({ranks})",
        f"t0_ns >= {start}", f"t0_ns < {end}",
    )  # fmt: skip
    receipt = Receipt("bytes", _sized(found), value=float(found.size_b), unit="B", query=query)
    return (receipt,) if found.count else ()


def spent_s(timeline: RankTimeline, names: tuple[str, ...], start: IntArray, end: IntArray) -> FloatArray:
    """Seconds that a rank spends in these phases, in each of some intervals (ns).

    Example: transfers on [1, 2) and [7, 9), intervals [0, 5) and [5, 10): 1 and 2.
    """
    spent: FloatArray = (
        timeline.phase_ns_in(start, end)[:, [phases.CODE[name] for name in names]].sum(axis=1) / 1e9
    )
    return spent


def share_of_lost(evidence: Evidence, copying: FloatArray, idle: FloatArray) -> Estimate:
    """Share of the time without work, by a bootstrap of steps; with no copy at all, Wilson's bound on the steps that had one."""
    if not copying.any():
        return replace(wilson(0, len(copying)), value=0.0, low=0.0)
    draws = step_draws(evidence.rng(6), len(copying), 999)
    sums = copying[draws].sum(axis=1)
    shares = sums / np.maximum(sums + idle[draws].sum(axis=1), 1e-12)
    return percentile_interval(float(copying.sum() / (copying.sum() + idle.sum())), shares)


def mostly(share: Estimate) -> Word:
    """Half of it and more, a fifth and more, or less."""
    if share.low >= STRONG:
        return "yes"
    if share.high < WEAK:
        return "no"
    return "partially" if share.value >= WEAK else "unconfirmed"
