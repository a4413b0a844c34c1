"""What is paid for, in GPU-seconds, and which rows of the recording a sum of seconds comes from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dipstick.judgement import Receipt
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.analysis.pipeline import Findings, Gpu
    from dipstick.verdicts.evidence import Evidence
    from dipstick.verdicts.sql import Literal

TENTHS = 0.1
WHOLE_SECONDS = 10.0


def gpu_seconds(findings: Findings) -> dict[str, float]:
    """Seconds by phase over all ranks, times the GPUs of each rank (one where they are not known).

    Example: rank 0 generates for 4 s on two GPUs: 8.
    """
    gpus = Counter(gpu.rank for gpu in findings.gpus)
    seconds: dict[str, float] = {}
    for row in findings.breakdown.rows if findings.breakdown else ():
        seconds[row.phase] = seconds.get(row.phase, 0.0) + row.seconds * max(gpus[row.rank], 1)
    return seconds


def unit(findings: Findings) -> str:
    """What the bill counts: seconds times GPUs, or times ranks where no GPU's telemetry was recorded."""
    return "GPU-seconds" if findings.gpus else "rank-seconds"


def amount(seconds: float, whole: float) -> str:
    """GPU-seconds in a sentence, as fine as the whole they are part of asks for: "0 of 0" answers nothing.

    >>> amount(77.7, 405.0), amount(0.34, 1.23), amount(0.001, 0.006)
    ('78', '0.3', '0.001')
    """
    return f"{seconds:z.{0 if whole >= WHOLE_SECONDS else 1 if whole >= TENTHS else 3}f}"


def of_gpu(findings: Findings, host: str, gpu: int) -> dict[str, Literal]:
    """The columns that single a GPU out in a query; its host only where there is more than one."""
    hosts = {g.signals.host for g in findings.gpus}
    return {"gpu": gpu} if len(hosts) < 2 else {"gpu": gpu, "host": host or None}  # noqa: PLR2004 - one host


def gpu_columns(findings: Findings, gpu: Gpu) -> dict[str, Literal]:
    """:func:`of_gpu` of one of the findings' GPUs."""
    return of_gpu(findings, gpu.signals.host, gpu.signals.gpu)


def phase_receipts(evidence: Evidence, phase: str) -> tuple[Receipt, ...]:
    """Seconds of a phase on each rank."""
    breakdown = evidence.findings.breakdown
    return tuple(
        Receipt(
            "number",
            f"rank {row.rank}: {row.seconds:z.1f} s in {phase}, {row.count} times",
            rank=row.rank,
            value=row.seconds,
            unit="s",
            query=select("SUM(seconds)", "phase_pieces", rank=row.rank, phase=phase),
        )
        for row in (breakdown.rows if breakdown else ())
        if row.phase == phase and row.seconds > 0
    )


def utilization_receipts(evidence: Evidence, *phases: str) -> tuple[Receipt, ...]:
    """Mean utilization of some phases on each rank."""
    breakdown = evidence.findings.breakdown
    return tuple(
        Receipt(
            "number",
            f"rank {row.rank}: {row.phase} reads {row.util_mean_pct:z.1f} % on average over {row.seconds:z.1f} s",
            rank=row.rank,
            value=row.util_mean_pct,
            unit="%",
            query=select("util_mean_pct", "phase_rows", rank=row.rank, phase=row.phase),
        )
        for row in (breakdown.rows if breakdown else ())
        if row.phase in phases and row.util_mean_pct is not None
    )


def step_receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    """The steps that the statistics use: how long all of them take, and the first and the last quarter."""
    steps = evidence.steps
    if steps is None:
        return ()
    kept = evidence.kept
    quarter = max(1, len(kept) // 4)
    parts = [("all", kept), ("first", kept[:quarter]), ("last", kept[-quarter:])]
    return tuple(
        Receipt(
            "number",
            f"{name} {len(part)} steps: {steps.loop.measured[part].mean():z.2f} s on average, barrier to barrier",
            t0_s=float(steps.start_s[part[0]]),
            t1_s=float(steps.end_s[part[-1]]),
            value=float(steps.loop.measured[part].mean()),
            unit="s",
            query=select(
                "AVG(seconds)",
                "cycles",
                f"step BETWEEN {int(steps.number[part].min())} AND {int(steps.number[part].max())}",
            ),
        )
        for name, part in parts
    )
