"""Claims about when the dips happen: tied to the step cycle, and after which phase utilization falls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.judgement import Reason, Verdict
from dipstick.verdicts import check_alignment
from dipstick.verdicts.algebra import measured, unconfirmed
from dipstick.verdicts.bill import utilization_receipts
from dipstick.verdicts.claim_phases import known_phase
from dipstick.verdicts.claims import claim_test

if TYPE_CHECKING:
    from dipstick.analysis.alignment import AlignmentVerdict
    from dipstick.analysis.overlap import OverlapFit
    from dipstick.analysis.stats import Estimate
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.claims import Judged
    from dipstick.verdicts.evidence import Evidence

YES_DROP_PCT, WEAK_DROP_PCT = 20.0, 10.0


@claim_test
def locked_to_steps(evidence: Evidence) -> Judged:
    """The dips recur with the step cycle: they start at its boundaries more often than shifted copies do."""
    judged = check_alignment.weigh(evidence)
    if judged is None:
        return check_alignment.missing(evidence), ()
    verdict = check_alignment.as_verdict(judged)
    receipts = check_alignment.check(evidence).receipts
    if judged.verdict == "partially" and _strong(judged):
        # Which boundary they follow may stay open; that they are tied to the loop does not.
        return Verdict("yes", judged.why, verdict.effect, verdict.interval, verdict.p), receipts
    return verdict, receipts


def _strong(judged: AlignmentVerdict) -> bool:
    """Whether only the boundary is open: a weak effect stays "partially", however small its p (methods 4.1)."""
    rules, effect, drop = judged.rules, judged.effect, judged.drop_pct
    by_events = effect is not None and effect.value >= rules.yes_effect
    return by_events or (drop is not None and drop.low > rules.yes_drop_pct)


@claim_test
def dips_follow(evidence: Evidence, *, phase: str) -> Judged:
    """The dips follow the start of one phase and no other boundary (anchor contest won at 0.95)."""
    judged = check_alignment.weigh(evidence)
    known_phase(phase)
    if judged is None:
        return check_alignment.missing(evidence), ()
    verdict = check_alignment.as_verdict(judged)
    receipts = check_alignment.check(evidence).receipts
    if verdict.word == "yes" and judged.boundary != phase:
        because = f"the dips follow the start of {judged.boundary}: {judged.why}"
        return replace(verdict, word="no", because=because, min_detectable=judged.detectable_effect), receipts
    if verdict.word == "partially" and judged.candidates and phase not in judged.candidates:
        because = f"{phase} is not among the boundaries that remain: {judged.why}"
        return replace(verdict, word="no", because=because, experiment="", steps_needed=None), receipts
    return verdict, receipts


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
    because = f"{_in_words(drop)} from {phase} to {rest}, the longest of what follows"
    verdict = measured(_dropped(drop), because, drop, len(evidence.kept))
    return verdict, utilization_receipts(evidence, phase, rest)


def _in_words(drop: Estimate) -> str:
    if drop.value >= 0:
        return f"utilization falls by {drop.value:z.0f} points [{drop.low:z.0f}, {drop.high:z.0f}]"
    return f"utilization rises by {-drop.value:z.0f} points [{-drop.high:z.0f}, {-drop.low:z.0f}]"


def _dropped(drop: Estimate) -> Word:
    """The thresholds of methods 7: 20 points for certain, 10 for certain, or less than 10."""
    if drop.low > YES_DROP_PCT:
        return "yes"
    if drop.high < WEAK_DROP_PCT:
        return "no"
    return "partially" if drop.low > WEAK_DROP_PCT else "unconfirmed"


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
