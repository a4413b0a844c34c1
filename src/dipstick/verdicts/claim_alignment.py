"""Claims about when the dips happen: tied to the step cycle, and after which phase utilization falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.judgement import Reason, Receipt, Verdict
from dipstick.verdicts import check_alignment
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.claim_phases import known_phase
from dipstick.verdicts.claims import claim_test

if TYPE_CHECKING:
    from dipstick.analysis.overlap import OverlapFit
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

YES_DROP_PCT, WEAK_DROP_PCT = 20.0, 10.0


@claim_test
def locked_to_steps(evidence: Evidence) -> Judged:
    """The dips recur with the step cycle: they start at its boundaries more often than shifted copies do."""
    judged = check_alignment.weigh(evidence)
    if judged is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "steps beside GPU telemetry were not recorded"), ()
    verdict = check_alignment.as_verdict(judged)
    receipts = check_alignment.check(evidence).receipts
    if judged.verdict == "partially" and judged.p_value is not None and judged.p_value <= judged.rules.alpha:
        # Which boundary they follow may stay open; that they are tied to the loop does not.
        return Verdict("yes", judged.why, verdict.effect, verdict.interval, verdict.p), receipts
    return verdict, receipts


@claim_test
def dips_follow(evidence: Evidence, *, phase: str) -> Judged:
    """The dips follow the start of one phase and no other boundary (anchor contest won at 0.95)."""
    judged = check_alignment.weigh(evidence)
    known_phase(phase)
    if judged is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "steps beside GPU telemetry were not recorded"), ()
    verdict = check_alignment.as_verdict(judged)
    if verdict.word == "yes" and judged.boundary != phase:
        return Verdict(
            "no",
            f"the dips follow the start of {judged.boundary}: {judged.why}",
            verdict.effect,
            verdict.interval,
            verdict.p,
        ), ()
    if verdict.word == "partially" and phase not in judged.candidates:
        return Verdict(
            "no",
            f"{phase} is not among the boundaries that remain: {judged.why}",
            verdict.effect,
            verdict.interval,
        ), ()
    return verdict, check_alignment.check(evidence).receipts


@claim_test
def drops_after(evidence: Evidence, *, phase: str) -> Judged:
    """Utilization is lower in the rest of the step than in the phase: 20 points or more, over the steps.

    Time in which a rank waits in a collective is left out: it reads 100 % and is no work.
    """
    known_phase(phase)
    fit = evidence.overlap
    if fit is None:
        return unconfirmed(Reason.MISSING_SIGNAL, "steps beside GPU telemetry were not recorded"), ()
    rest = _rest(evidence, fit, phase)
    drop = fit.drop(phase, rest) if rest else None
    if rest is None or drop is None:
        return unconfirmed(
            Reason.COARSE, f"the levels of {phase} and of what follows can't be told apart"
        ), ()
    because = f"utilization falls by {drop.value:.0f} points [{drop.low:.0f}, {drop.high:.0f}] from {phase} to {rest}, the longest of what follows"
    word = (
        "yes"
        if drop.low > YES_DROP_PCT
        else "no"
        if drop.high < WEAK_DROP_PCT
        else "partially"
        if drop.low > WEAK_DROP_PCT
        else "unconfirmed"
    )
    reason = Reason.LOW_N if word == "unconfirmed" else None
    receipts = tuple(
        Receipt("number", f"{level.name}: {level.level_pct.value:.0f} % [{level.level_pct.low:.0f}, {level.level_pct.high:.0f}]",
                value=level.level_pct.value, unit="%")
        for level in fit.levels
        if level.level_pct is not None
    )  # fmt: skip
    return Verdict(word, because, drop.value, (drop.low, drop.high), reason=reason), receipts  # type: ignore[arg-type] # literal


def _rest(evidence: Evidence, fit: OverlapFit, phase: str) -> str | None:
    """The longest phase of the rest of the step that is neither a wait nor unnamed."""
    loop = evidence.loop
    if loop is None:
        return None
    columns = np.asarray(loop.columns)
    seconds = loop.seconds.sum(axis=(0, 2))
    others = [
        name
        for name in dict.fromkeys(loop.columns)
        if name not in {phase, "unattributed"} and fit.column(name) is not None
    ]
    return max(others, key=lambda name: float(seconds[columns == name].sum()), default=None)
