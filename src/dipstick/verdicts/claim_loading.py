"""Claims about data on its way to the GPU: is the loop waiting for a loader, and whose are the recorded copies?

"Data loading" is the first guess of every profiler that knows supervised training. In an RL loop the batch is a
few prompts. Spans and counts bound what it can cost: a loader can hide only before the first phase of a step,
and a copy takes no longer than the phase that it lies in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.stats import Estimate, percentile_interval, step_draws
from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.verdicts.algebra import claim, detectable, unconfirmed
from dipstick.verdicts.bill import phase_receipts
from dipstick.verdicts.claim_mechanisms import transfers_force_waiting
from dipstick.verdicts.claim_phases import known_phase
from dipstick.verdicts.claims import claim_test
from dipstick.verdicts.copies import spent_s
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray, IntArray
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

MINOR = 0.2
"""A share of the step whose upper bound lies below this is no bottleneck (methods 4.2, as for any phase)."""
FEWEST_STEPS = 8
LEAST_S = 1e-9
ALL_BUT_STRAYS, MOST = 0.95, 0.5
ON_DEVICE = "cuda|gpu|device"


@claim_test
def data_loading_is_the_bottleneck(evidence: Evidence) -> Judged:
    """Data loading or a periodic copy to the GPU holds the loop up: time in no phase at a step's start, and copies."""
    judged = [_loading(evidence), _copies(evidence)]
    parts = [verdict for verdict, _ in judged]
    verdict = claim(parts)
    if all(part.word == "no" for part in parts):
        because = "; ".join(part.because for part in parts)
        verdict = replace(parts[0], because=because, parts=tuple(parts))
    return verdict, tuple(receipt for _, receipts in judged for receipt in receipts)


def _loading(evidence: Evidence) -> Judged:
    """Clause: what passes before the first phase of each step, on the rank where it is most."""
    ranks = [
        (t.rank, before_first_phase(t) / 1e9, _length_s(t))
        for t in evidence.findings.timelines
        if len(t.steps)
    ]
    if not ranks:
        return unconfirmed(*evidence.no_steps), ()
    rank, before, length = max(ranks, key=lambda row: float(row[1].sum() / row[2].sum()))
    share = _share(evidence, before, length)
    because = (
        f"a loader could take {before.sum():z.1f} of {length.sum():z.0f} s: what passes before the first phase of rank "
        f"{rank}'s steps ({100 * share.value:z.1f} %, at most {100 * share.high:z.1f} %)"
    )
    fix = "put the loader into a span: with dipstick.span('data_loading')"
    receipts = tuple(r for r in phase_receipts(evidence, "unattributed") if r.rank == rank)
    return _bounded(share, len(before), because, Reason.GAP, fix), receipts


def _copies(evidence: Evidence) -> Judged:
    """Clause: bus copies by the counters; without these, recorded copies cost at most the phases they lie in."""
    by_counters = transfers_force_waiting(evidence)
    found = holders(evidence)
    ranks = [
        (t.rank, spent_s(t, tuple(found), t.steps.t0, t.steps.t1), _length_s(t))
        for t in evidence.findings.timelines
        if len(t.steps)
    ]
    if by_counters[0].word != "unconfirmed" or not found or not ranks:
        return by_counters
    _, spent, length = max(ranks, key=lambda row: float(row[1].sum() / row[2].sum()))
    share = _share(evidence, spent, length)
    count, size = (sum(row[i] for row in found.values()) for i in (0, 1))
    because = (
        f"{count} copies to the GPU ({size / 1e9:z.1f} GB) lie in {', '.join(sorted(found))}, "
        f"which take {spent.sum():z.0f} of {length.sum():z.0f} s as a whole ({100 * share.value:z.1f} %, at most {100 * share.high:z.1f} %)"
    )
    fix = "read PCIe counters (GPM or DCGM) beside utilization"
    return _bounded(share, len(spent), because, Reason.MISSING_SIGNAL, fix), (_bytes_receipt(evidence, size),)


def _bytes_receipt(evidence: Evidence, size: int) -> Receipt:
    """Bytes of the recorded copies to a GPU, inside the analysis window."""
    start, end = evidence.findings.window
    ranks = ", ".join(str(int(t.rank)) for t in evidence.findings.timelines)
    on_device = " OR ".join(f"device LIKE '%{word}%'" for word in ON_DEVICE.split("|"))
    query = select(
        "COALESCE(SUM(bytes_b), 0)", "handoffs", f"({on_device})", f"rank IN ({ranks})", f"t_ns >= {start}", f"t_ns < {end}"
    )  # fmt: skip
    return Receipt("bytes", f"{size} bytes copied to the GPU", value=float(size), unit="B", query=query)


def _bounded(share: Estimate, steps: int, because: str, reason: Reason, fix: str) -> Verdict:
    """An upper bound can rule out, never prove."""
    ruled_out = steps >= FEWEST_STEPS and share.high < MINOR
    interval = (share.low, share.high)
    seen = detectable(interval)
    if ruled_out:
        return Verdict("no", because, share.value, interval, min_detectable=seen)
    why = reason if steps >= FEWEST_STEPS else Reason.LOW_N
    return Verdict(
        "unconfirmed", because, share.value, interval, reason=why, min_detectable=seen, experiment=fix
    )


def _share(evidence: Evidence, part: FloatArray, whole: FloatArray) -> Estimate:
    """Part over whole, with the step-bootstrap interval."""
    draws = step_draws(evidence.rng(30), len(part), 999)
    drawn = part[draws].sum(axis=1) / np.maximum(whole[draws].sum(axis=1), LEAST_S)
    return percentile_interval(float(part.sum() / max(whole.sum(), LEAST_S)), drawn)


def _length_s(timeline: RankTimeline) -> FloatArray:
    length: FloatArray = (timeline.steps.t1 - timeline.steps.t0) / 1e9
    return length


def before_first_phase(timeline: RankTimeline) -> IntArray:
    """Nanoseconds from each step's start to its first named phase (to its end if it has none).

    Example: a step from 0 to 20 s whose weight sync starts at 0.5 s: 0.5e9.
    """
    start, end = timeline.steps.t0, timeline.steps.t1
    named = timeline.code != phases.UNATTRIBUTED
    at = np.clip(np.searchsorted(timeline.edges, start, side="right") - 1, 0, len(named) - 1)
    begins = np.append(timeline.edges[:-1][named], np.iinfo(np.int64).max)
    first = begins[np.searchsorted(begins, start)]
    waited: IntArray = np.where(named[at], 0, np.minimum(first, end) - start)
    return waited


def holders(evidence: Evidence) -> dict[str, tuple[int, int]]:
    """Phase -> (copies, bytes) of the recorded hand-overs to a GPU that happened in it; empty if none was recorded."""
    rows = evidence.recording.table("handoffs", columns=["rank", "t_ns", "bytes_b", "device"])
    rows = rows.filter(pl.col("device").cast(pl.String).str.contains(ON_DEVICE))
    found: dict[str, tuple[int, int]] = {}
    for timeline in evidence.findings.timelines:
        mine = rows.filter(pl.col("rank") == timeline.rank)
        t, size = mine["t_ns"].to_numpy(), mine["bytes_b"].fill_null(0).to_numpy()
        inside = (t >= timeline.edges[0]) & (t < timeline.edges[-1])
        code = timeline.code[np.searchsorted(timeline.edges, t[inside], side="right") - 1]
        for name in (phases.PHASES[c] for c in np.unique(code)):
            here = code == phases.CODE[name]
            count, total = found.get(name, (0, 0))
            found[name] = count + int(here.sum()), total + int(size[inside][here].sum())
    return found


@claim_test
def copies_belong_to(evidence: Evidence, *, phase: str) -> Judged:
    """The recorded copies to the GPU happen inside one phase: the enclosing span explains them (95 % or more)."""
    known_phase(phase)
    found = holders(evidence)
    total = sum(count for count, _ in found.values())
    if not total:
        fix = "record the hand-overs (from, to, bytes, device)"
        return unconfirmed(Reason.MISSING_SIGNAL, "no copy to a GPU was recorded", fix), ()
    count, size = found.get(phase, (0, 0))
    because = f"{count} of {total} copies to the GPU lie in {phase} ({size / 1e9:z.1f} GB)"
    receipt = _bytes_receipt(evidence, sum(row[1] for row in found.values()))
    share = count / total
    if share < MOST:
        return Verdict("no", because, share), (receipt,)
    return Verdict("yes" if share >= ALL_BUT_STRAYS else "partially", because, share), (receipt,)
