"""Claims about mechanisms: what crosses from generation to the workers, who waits for whom, what copies cost.

Graphs can't arbitrate between stories that fit them equally well. Payload types come from the recording's
hand-overs, or from the code (``--repo``); copies from the counters; waits from the barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.model import STATES
from dipstick.phases import WAIT_PHASES
from dipstick.verdicts import repo_facts
from dipstick.verdicts.algebra import claim, measured, unconfirmed
from dipstick.verdicts.bill import amount, gpu_columns, gpu_seconds, of_gpu, unit
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.copies import WEAK, bytes_receipts, mostly, recorded, share_of_lost
from dipstick.verdicts.missing import untold_because
from dipstick.verdicts.sql import select, within

if TYPE_CHECKING:
    from dipstick.model import FloatArray
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

HOW_TO_TELL = (
    "dipstick explain RUN --repo PATH reads it from the training code; a recording made with hooks notes it"
)
WORTH_NAMING = 0.02
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
    query = select("COALESCE(SUM(payload_b), 0)", "jobs", "payload_types IS NOT NULL")
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


def _pickled_bytes(evidence: Evidence) -> pl.Series:
    """Of each hand-over to a pool; a day of spans is not loaded to find that none was recorded."""
    if not evidence.recording.has_values("spans", "pickled_b"):
        return pl.Series("pickled_b", [], pl.Int64)
    return evidence.recording.table("spans", columns=["pickled_b"])["pickled_b"].drop_nulls()


def _pickled(evidence: Evidence) -> str:
    spans = _pickled_bytes(evidence).to_numpy()
    return f"; the pool pickled {float(spans.mean()):z.0f} bytes a step on average" if len(spans) else ""


def _pickle_receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    spans = _pickled_bytes(evidence)
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
    if breakdown is None or not evidence.findings.meetings:
        return unconfirmed(Reason.MISSING_SIGNAL, "no barrier that all ranks share was recorded"), ()
    bill = gpu_seconds(evidence.findings)
    seconds, everything = sum(bill.get(phase, 0.0) for phase in WAIT_PHASES), sum(bill.values())
    because = f"ranks wait {seconds:z.0f} of {everything:z.0f} {unit(evidence.findings)} for each other at collectives"
    receipts = tuple(
        Receipt("number", f"rank {w.rank} waited {w.seconds:z.1f} s at {w.barrier}, {w.count} times, peer in {w.because}", rank=w.rank,
                value=w.seconds, unit="s", query=select("SUM(wait_s)", "waits", barrier=w.barrier, rank=w.rank, because=w.because))
        for w in breakdown.waits[:4]
    )  # fmt: skip
    return Verdict("yes" if seconds >= WORTH_NAMING * everything else "no", because, effect=seconds), receipts


@claim_test
def transfers_force_waiting(evidence: Evidence) -> Judged:
    """Bus transfers (PCIe or NVLink at 5 GiB/s or more without SM work) take the time in which no work is done.

    Without counters the program's own spans of the phase transfer count, beside waits and time in no phase.
    """
    return evidence.once("transfers", _transfers)


def _transfers(evidence: Evidence) -> Judged:
    gpus = [gpu for gpu in evidence.findings.gpus if gpu.used]
    if not gpus or any(gpu.states.method != "counters" for gpu in gpus):
        because = "a host-to-device copy reads 100 % utilization like work does; SM and PCIe counters were not recorded"
        fix = "read GPM (Hopper or newer) or DCGM profiling fields beside utilization"
        return recorded(evidence) or (unconfirmed(Reason.MISSING_SIGNAL, because, fix), ())
    copying, idle = _per_step(evidence)
    if not len(copying):
        return unconfirmed(Reason.MISSING_SIGNAL, "no steps were recorded"), ()
    lost = float(copying.sum() + idle.sum())
    share = share_of_lost(evidence, copying, idle)
    bus = (*_busiest_bus(evidence), *bytes_receipts(evidence))
    text = f"{copying.sum():z.1f} of {lost:z.0f} GPU-seconds without work are bus copies ({100 * share.value:z.1f} %, at most {100 * share.high:z.0f} %)"
    because = "; ".join([text, *(receipt.text for receipt in bus)])
    return measured(mostly(share), because, share, len(copying)), (*_copy_receipts(evidence), *bus)


def _copy_receipts(evidence: Evidence) -> tuple[Receipt, ...]:
    """Seconds of bus copies of each used GPU, over the kept steps."""
    steps = evidence.steps
    assert steps is not None  # noqa: S101 - there are steps to sum over
    start, end = float(steps.start_s[evidence.kept[0]]), float(steps.end_s[evidence.kept[-1]])
    found = []
    for gpu in (g for g in evidence.findings.gpus if g.used):
        at = np.asarray([round(start * 1e9)], np.int64), np.asarray([round(end * 1e9)], np.int64)
        seconds = float(gpu.states.seconds(STATES.index("copying_bus"), *at)[0])
        query = within(
            "busy_s", "states", (start, end), state="copying_bus", **gpu_columns(evidence.findings, gpu)
        )
        text = f"GPU {gpu.signals.gpu}: {seconds:z.2f} s in state copying_bus"
        found.append(
            Receipt("number", text, gpu.signals.gpu, gpu.rank, start, end, seconds, "GPU-s", query=query)
        )
    return tuple(found)


def _per_step(evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """GPU-seconds of bus copies, and of idle or other hollow time, in each kept step."""
    steps = evidence.steps
    if steps is None:
        return np.zeros(0), np.zeros(0)
    start = (steps.start_s[evidence.kept] * 1e9).astype(np.int64)
    end = (steps.end_s[evidence.kept] * 1e9).astype(np.int64)
    copying, idle = np.zeros(len(start)), np.zeros(len(start))
    for gpu in (g for g in evidence.findings.gpus if g.used):
        copying += gpu.states.seconds(STATES.index("copying_bus"), start, end)
        idle += sum(
            gpu.states.seconds(STATES.index(name), start, end)
            for name in ("idle", "spinning", "waiting_or_bus_copy")
        )
    return copying, idle


def _busiest_bus(evidence: Evidence) -> tuple[Receipt, ...]:
    """The fastest window of the PCIe bus, towards the GPU."""
    rows = evidence.recording.table("gpu_counters", columns=["t_ns", "pcie_rx_mib_s"])
    inside = pl.col("t_ns").is_between(*evidence.findings.window)
    seen = rows.filter(inside)["pcie_rx_mib_s"].drop_nulls().drop_nans().to_numpy()
    if not len(seen):
        return ()
    start, end = evidence.findings.window
    query = select("MAX(pcie_rx_mib_s)", "gpu_counters", f"t_ns BETWEEN {start} AND {end}")
    top = float(seen.max())
    return (
        Receipt(
            "number",
            f"the busiest window took {top:z.0f} MiB/s over PCIe",
            value=top,
            unit="MiB/s",
            query=query,
        ),
    )


@claim_test
def memory_is_under_pressure(evidence: Evidence, *, at_least: float = 50.0) -> Judged:
    """Several tenants share the GPU and hold at least this share of its memory (percent)."""
    fullest = _fullest(evidence)
    if fullest is None:
        return unconfirmed(
            Reason.MISSING_SIGNAL, "memory.used or the board's memory size was not recorded"
        ), ()
    held, tenants = fullest.value or 0.0, _tenants(evidence)
    beside = {0: "", 1: ", by one process"}.get(tenants, f", {tenants} processes on a GPU")
    because = f"{held:z.0f} % of the memory is allocated{beside}"
    shared = tenants != 1  # where processes were not recorded, nobody says that there is only one
    return Verdict("yes" if shared and held >= at_least else "no", because, effect=held), (fullest,)


def _tenants(evidence: Evidence) -> int:
    """The most processes that were seen on one GPU; 0 where processes were not recorded."""
    seen = evidence.recording.table("gpu_process", columns=["host", "gpu", "pid"]).unique()
    return int(seen.group_by("host", "gpu").len()["len"].to_numpy().max()) if seen.height else 0


def _fullest(evidence: Evidence) -> Receipt | None:
    """The GPU whose memory is fullest at any time, percent of its own; None where either number is missing."""
    used = evidence.recording.table("gpu", columns=["host", "gpu", "t_ns", "mem_used_b"])
    boards = evidence.recording.table("gpus").filter(pl.col("mem_total_b") > 0)
    sizes = boards.group_by("host", "gpu").agg(pl.col("mem_total_b").max())
    most = used.drop_nulls("mem_used_b").group_by("host", "gpu").agg(pl.col("mem_used_b").max())
    shares = most.join(sizes, on=["host", "gpu"], nulls_equal=True).sort("host", "gpu")
    if shares.is_empty():
        return None
    host, gpu, top, size = max(shares.iter_rows(), key=lambda row: row[2] / row[3])
    query = select(
        f"CAST(MAX(mem_used_b) AS DOUBLE) * 100 / {int(size)}",
        "gpu",
        **of_gpu(evidence.findings, host or "", gpu),
    )
    text = f"GPU {gpu}: {top / 2**30:z.1f} of {size / 2**30:z.1f} GiB allocated at most"
    return Receipt("number", text, gpu=gpu, value=100 * top / size, unit="%", query=query)


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
        because = f"work and waiting can't be told apart {untold_because(evidence.findings)}"
        return unconfirmed(Reason.SPINNING, because), ()
    share = 100 * hollow / busy
    because = f"{amount(hollow, busy)} of {amount(busy, busy)} GPU-seconds that read as busy ({share:z.0f} %) are waits or copies without SM work"
    word: Word = "yes" if share < hollow_below else "partially" if share < WEAK * 100 else "no"
    start, end = (t / 1e9 for t in evidence.findings.window)
    receipts = tuple(
        Receipt("number", f"GPU {s.gpu}: {s.hollow_s:z.1f} of {s.busy_s:z.1f} busy seconds are hollow", s.gpu, None, start, end, s.hollow_s,
                "GPU-s", query=within("hollow_s", "states", (start, end), **of_gpu(evidence.findings, s.host, s.gpu)))
        for s in used
    )  # fmt: skip
    return Verdict(word, because, effect=share), receipts
