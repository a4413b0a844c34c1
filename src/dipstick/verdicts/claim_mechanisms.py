"""Claims about mechanisms: what crosses from generation to the workers, who waits for whom, what copies cost.

Graphs can't arbitrate between stories that fit them equally well. Payload types come from the recording's
hand-overs, or from the code (``--repo``); copies from the counters; waits from the barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick.analysis.stats import percentile_interval, step_draws, wilson
from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.phases import WAIT_PHASES
from dipstick.verdicts import repo_facts
from dipstick.verdicts.algebra import claim, unconfirmed
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.model import FloatArray
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

HOW_TO_TELL = (
    "dipstick explain RUN --repo PATH reads it from the training code; a recording made with hooks notes it"
)
STRONG, WEAK = 0.5, 0.2
FULL_MEMORY = 0.5
TENSOR_WORDS = ("Tensor", "cuda", "ndarray[cuda]")


def _hand_overs(evidence: Evidence) -> tuple[list[str], tuple[Receipt, ...]]:
    """Payload types that the recording itself noted, on the way to the workers."""
    jobs = evidence.recording.table("jobs", columns=["payload_types", "payload_b"])
    known = jobs.filter(pl.col("payload_types").is_not_null())
    types = known["payload_types"].cast(pl.String).unique().sort().to_list()
    if not types:
        return [], ()
    total = known["payload_b"].sum()
    text = f"{known.height} jobs carried {', '.join(types[:5])}, {total or 0} bytes in all"
    query = (
        select("payload_types, COUNT(*), SUM(payload_b)", "jobs", "payload_types IS NOT NULL")
        + " GROUP BY payload_types"
    )
    return types, (Receipt("bytes", text, value=float(total or 0), unit="B", query=query),)


def _from_repo(fact: repo_facts.Fact) -> Judged:
    return fact.verdict, tuple(repo_facts.receipt(f) for f in fact.receipts)


@claim_test
def workers_get_tensors(evidence: Evidence) -> Judged:
    """Generation hands tensors (rather than text and pickled structures) to the reward workers."""
    types, receipts = _hand_overs(evidence)
    if types:
        tensors = [t for t in types if any(word in t for word in TENSOR_WORDS)]
        because = f"payload types seen: {', '.join(types[:5])}"
        return Verdict("yes" if tensors else "no", because), receipts
    if evidence.repo is None:
        because = f"payload types were not recorded{_pickled(evidence)}"
        return unconfirmed(Reason.MISSING_SIGNAL, because, HOW_TO_TELL), _pickle_receipts(evidence)
    facts = [
        repo_facts.generation_hands_over_tensors(evidence.repo),
        repo_facts.pool_payload_has_tensors(evidence.repo),
    ]
    judged = [_from_repo(fact) for fact in facts]
    return claim([verdict for verdict, _ in judged]), tuple(
        r for _, rs in judged for r in rs
    ) + _pickle_receipts(evidence)


def _pickled(evidence: Evidence) -> str:
    spans = evidence.recording.table("spans", columns=["pickled_b"])["pickled_b"].drop_nulls().to_numpy()
    return f"; the pool pickled {float(spans.mean()):.0f} bytes a step on average" if len(spans) else ""


def _pickle_receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    spans = evidence.recording.table("spans", columns=["pickled_b"])["pickled_b"].drop_nulls()
    if not len(spans):
        return ()
    total = int(spans.sum())
    text = f"{len(spans)} hand-overs to the pool, {total} pickled bytes in all"
    return (Receipt("bytes", text, value=float(total), unit="B", query=select("SUM(pickled_b)", "spans")),)


@claim_test
def synchronizing_workers_cause_dips(evidence: Evidence) -> Judged:
    """Workers that synchronize cause dips: do ranks wait for each other, and do the workers themselves?"""
    gather = _gather_waits(evidence)
    if evidence.repo is None:
        mine: Judged = (
            unconfirmed(
                Reason.MISSING_SIGNAL, "whether workers wait for each other is in their code", HOW_TO_TELL
            ),
            (),
        )
    else:
        mine = _from_repo(repo_facts.workers_synchronise(evidence.repo))
    return claim([gather[0], mine[0]]), gather[1] + mine[1]


def _gather_waits(evidence: Evidence) -> Judged:
    """Clause: a synchronization exists, and costs GPU-seconds: the cross-rank gather."""
    breakdown = evidence.findings.breakdown
    rows = [row for row in breakdown.totals if row.phase in WAIT_PHASES] if breakdown else []
    if breakdown is None or not evidence.findings.meetings:
        return unconfirmed(Reason.MISSING_SIGNAL, "no barrier that all ranks share was recorded"), ()
    seconds = sum(row.seconds for row in rows)
    everything = sum(row.seconds for row in breakdown.totals)
    because = f"ranks wait {seconds:.0f} of {everything:.0f} GPU-seconds for each other at collectives"
    receipts = tuple(
        Receipt("number", f"rank {w.rank} waited {w.seconds:.1f} s at {w.barrier}, {w.count} times, peer in {w.because}", rank=w.rank,
                value=w.seconds, unit="s", query=select("SUM(wait_s)", "waits", barrier=w.barrier, rank=w.rank, because=w.because))
        for w in breakdown.waits[:4]
    )  # fmt: skip
    return Verdict("yes" if seconds >= 0.02 * everything else "no", because, effect=seconds), receipts


@claim_test
def transfers_force_waiting(evidence: Evidence) -> Judged:
    """Bus transfers (PCIe or NVLink at 5 GiB/s or more without SM work) take the time in which no work is done."""
    gpus = [gpu for gpu in evidence.findings.gpus if gpu.used]
    if not gpus or any(gpu.states.method != "counters" for gpu in gpus):
        because = "a host-to-device copy reads 100 % utilization like work does; SM and PCIe counters were not recorded"
        return unconfirmed(
            Reason.MISSING_SIGNAL,
            because,
            "read GPM (Hopper or newer) or DCGM profiling fields beside utilization",
        ), ()
    copying, idle = _per_step(evidence)
    if not len(copying):
        return unconfirmed(Reason.MISSING_SIGNAL, "no steps were recorded"), ()
    lost = float(copying.sum() + idle.sum())
    share = float(copying.sum()) / lost if lost > 0 else 0.0
    low, high = _share_interval(evidence, copying, idle)
    busiest = _busiest_bus(evidence)
    because = f"{copying.sum():.1f} of {lost:.0f} GPU-seconds without work are bus copies ({100 * share:.1f} %, at most {100 * high:.0f} %){busiest}"
    word = (
        "yes" if low >= STRONG else "no" if high < WEAK else "partially" if share >= WEAK else "unconfirmed"
    )
    reason = Reason.LOW_N if word == "unconfirmed" else None
    receipt = Receipt("number", f"{copying.sum():.2f} GPU-seconds in state copying_bus", value=float(copying.sum()), unit="GPU-s",
                      query=select("SUM(busy_s)", "states", state="copying_bus"))  # fmt: skip
    return Verdict(word, because, share, (low, high), reason=reason), (receipt,)  # type: ignore[arg-type] # literal


def _per_step(evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """GPU-seconds of bus copies, and of idle or other hollow time, in each kept step."""
    steps = evidence.steps
    if steps is None:
        return np.zeros(0), np.zeros(0)
    start = (steps.start_s[evidence.kept] * 1e9).astype(np.int64)
    end = (steps.end_s[evidence.kept] * 1e9).astype(np.int64)
    copying, idle = np.zeros(len(start)), np.zeros(len(start))
    for gpu in (g for g in evidence.findings.gpus if g.used):
        copying += gpu.states.seconds(_state("copying_bus"), start, end)
        idle += sum(
            gpu.states.seconds(_state(name), start, end)
            for name in ("idle", "spinning", "waiting_or_bus_copy")
        )
    return copying, idle


def _state(name: str) -> int:
    from dipstick.model import STATES  # noqa: PLC0415 - a name to a code

    return STATES.index(name)


def _share_interval(evidence: Evidence, copying: FloatArray, idle: FloatArray) -> tuple[float, float]:
    """Step-bootstrap interval of the share; with no copy at all, Wilson's bound on the steps that had one."""
    if not copying.any():
        return 0.0, wilson(0, len(copying)).high
    draws = step_draws(evidence.rng(6), len(copying), 999)
    sums = copying[draws].sum(axis=1)
    shares = sums / np.maximum(sums + idle[draws].sum(axis=1), 1e-12)
    estimate = percentile_interval(float(copying.sum() / (copying.sum() + idle.sum())), shares)
    return estimate.low, estimate.high


def _busiest_bus(evidence: Evidence) -> str:
    rows = evidence.recording.table("gpu_counters", columns=["t_ns", "pcie_rx_mib_s"])
    inside = (
        rows.filter(pl.col("t_ns").is_between(*evidence.findings.window))["pcie_rx_mib_s"]
        .drop_nulls()
        .to_numpy()
    )
    return f"; the busiest window took {float(inside.max()):.0f} MiB/s over PCIe" if len(inside) else ""


@claim_test
def memory_is_under_pressure(evidence: Evidence, *, at_least: float = 50.0) -> Judged:
    """Several tenants share the GPU and hold at least this share of its memory (percent)."""
    held = _memory_share(evidence)
    if held is None:
        return unconfirmed(
            Reason.MISSING_SIGNAL, "memory.used or the board's memory size was not recorded"
        ), ()
    seen = evidence.recording.table("gpu_process", columns=["gpu", "pid"]).unique()
    tenants = int(seen.group_by("gpu").len()["len"].to_numpy().max()) if seen.height else 0
    because = f"{100 * held:.0f} % of the memory is allocated" + (
        f", {tenants} processes on a GPU" if tenants else ""
    )
    receipt = Receipt("number", because, value=100 * held, unit="%", query=select("MAX(mem_used_b)", "gpu"))
    return Verdict("yes" if 100 * held >= at_least else "no", because, effect=100 * held), (receipt,)


def _memory_share(evidence: Evidence) -> float | None:
    used = evidence.recording.table("gpu", columns=["t_ns", "mem_used_b"])["mem_used_b"].drop_nulls()
    total = evidence.recording.table("gpus")["mem_total_b"].drop_nulls()
    if not len(used) or not len(total):
        return None
    return float(used.to_numpy().max() / total.to_numpy().max())


@claim_test
def large_moves_force_waiting(evidence: Evidence) -> Judged:
    """Large memory moves make compute wait: is memory under pressure, and do transfers take the time without work?"""
    pressure, moves = memory_is_under_pressure(evidence), transfers_force_waiting(evidence)
    return claim([pressure[0], moves[0]]), pressure[1] + moves[1]


@claim_test
def high_utilization_means_work(evidence: Evidence, *, hollow_below: float = 10.0) -> Judged:
    """What reads as busy is work: hollow seconds are under this share of the busy ones (percent)."""
    used = [s for s in evidence.findings.states if s.used]
    busy, hollow = sum(s.busy_s for s in used), sum(s.hollow_s for s in used)
    unknown = sum(s.seconds["unknown"] for s in used)
    if busy <= 0 or unknown > 0.1 * busy:
        because = "work and waiting can't be told apart without power or SM counters"
        return unconfirmed(Reason.SPINNING, because), ()
    share = 100 * hollow / busy
    because = f"{hollow:.0f} of {busy:.0f} GPU-seconds that read as busy ({share:.0f} %) are waits or copies without SM work"
    word = "yes" if share < hollow_below else "partially" if share < WEAK * 100 else "no"
    receipts = tuple(
        Receipt("number", f"GPU {s.gpu}: {s.hollow_s:.1f} of {s.busy_s:.1f} busy seconds are hollow", gpu=s.gpu, value=s.hollow_s,
                unit="GPU-s", query=select("SUM(hollow_s)", "states", gpu=s.gpu))
        for s in used
    )  # fmt: skip
    return Verdict(word, because, effect=share), receipts  # type: ignore[arg-type] # literal
