"""Check 2: which phase is longest, is it the one you pay for, and what would shrink the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dipstick.analysis.whatif_verdict import phase_dominates, split_half_noise
from dipstick.judgement import Check, Receipt, Verdict
from dipstick.verdicts.algebra import from_decision, unconfirmed
from dipstick.verdicts.bill import unit
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.analysis.whatif import WhatIf, WhatIfs
    from dipstick.verdicts.evidence import Evidence

QUESTION = "Which phase is longest, and is it the one you pay for?"
OPTIONAL_EVENTS = ("checkpoint", "cache_clear")
LONG_JOB_PERCENTILE = 95.0


def check(evidence: Evidence) -> Check:
    """Judge the breakdown: ``yes`` if one phase dominates the critical path and is also the one paid for."""
    breakdown, path, whatifs = evidence.findings.breakdown, evidence.path, evidence.whatifs
    if breakdown is None or path is None or whatifs is None or path.longest is None:
        verdict = unconfirmed(*evidence.no_steps)
        return Check("phases", QUESTION, verdict, facts={"what_if": None})
    decision = phase_dominates(path, path.longest, whatifs.gate)
    share, paid = decision.effect, breakdown.paid_most_for
    because = (
        f"{path.longest} is {100 * share.value:z.0f} % of the critical path "
        f"[{100 * share.low:z.0f}, {100 * share.high:z.0f}] over {path.steps} steps; most {unit(evidence.findings)} go to {paid}"
    )
    verdict = from_decision(decision, because)
    if verdict.word == "yes" and paid != path.longest:
        verdict = Verdict("partially", because, verdict.effect, verdict.interval)
    edits = list(what_ifs(evidence, whatifs, path.longest))
    facts = {
        "what_if": [_as_fact(edit) for edit in edits],
        "replay": _gate(whatifs),
        "noise_band": split_half_noise(whatifs.loop.measured, evidence.rng(22)).band,
    }
    return Check("phases", QUESTION, verdict, tuple(_receipts(evidence, path.longest, paid)), facts)


def what_ifs(evidence: Evidence, whatifs: WhatIfs, longest: str) -> Iterator[WhatIf]:
    """The edits worth showing for any run: half the longest phase, and each lever that the recording knows."""
    yield whatifs.faster(longest, 2)
    if whatifs.loop.jobs is not None:
        yield whatifs.more_slots(1)
        long_s = float(np.percentile(whatifs.loop.jobs.seconds, LONG_JOB_PERCENTILE))
        if long_s > 0:
            yield whatifs.cap_jobs(float(f"{long_s:.2g}"))  # a cap that rounds to 0 s would be no cap
        yield whatifs.overlap_reward()
    if whatifs.loop.ranks > 1 and evidence.synchronous:
        yield whatifs.balance()
    for event in OPTIONAL_EVENTS:
        fired = steps_with(evidence, event)
        if fired.any():
            yield whatifs.drop_event(event, fired)


def steps_with(evidence: Evidence, phase: str) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Kept steps that hold a noticeable part of a phase: 5 % of its longest step, on any rank."""
    loop = evidence.loop
    if loop is None or phase not in loop.columns:
        return np.zeros(0, np.bool_)
    columns = [i for i, name in enumerate(loop.columns) if name == phase]
    seconds = loop.seconds[:, columns].sum(axis=1).max(axis=1)
    noticeable: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = seconds > 0.05 * seconds.max()
    return noticeable


def _as_fact(edit: WhatIf) -> dict[str, Any]:
    known = bool(np.isfinite(edit.speedup.value))
    return {
        "change": edit.change,
        "step_speedup": edit.speedup.value if known else None,
        "interval": [edit.speedup.low, edit.speedup.high] if known else None,
        "saved_gpu_s": edit.saved_gpu_s.value if known else None,
        "steps": edit.steps,
        "reason": edit.reason or None,
        "upper_bound": edit.upper_bound,
        "held_fixed": edit.held_fixed,
    }


def _gate(whatifs: WhatIfs) -> dict[str, Any]:
    gate = whatifs.gate
    return {"median_error": gate.median, "p90_error": gate.p90, "passed": gate.passed}


def _receipts(evidence: Evidence, longest: str, paid: str | None) -> Iterator[Receipt]:
    breakdown = evidence.findings.breakdown
    for row in breakdown.rows if breakdown else ():
        if row.phase in {longest, paid}:
            yield Receipt(
                kind="number",
                text=f"rank {row.rank}: {row.seconds:z.1f} s in {row.phase}, {row.count} times",
                rank=row.rank,
                value=row.seconds,
                unit="s",
                query=select("SUM(seconds)", "phase_pieces", rank=row.rank, phase=row.phase),
            )
