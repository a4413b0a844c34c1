"""Check 1: do dips land on phase boundaries? The verdict over its evidence (methods, 4.1).

A verdict needs an effect, an adjusted p-value *and* identifiability. The evidence comes from
:mod:`lock` (events), :mod:`lock_regression` (utilization), :mod:`overlap` (levels) and :mod:`contest`
(which boundary); this module only weighs it, so every rule can be tested on hand-made numbers.

Worked example: reward starts, Holm p 0.005, precursor rate 0.85 against 0.10 by chance (effect 0.75),
contest won by reward at 1.0: "yes". The same with generate and gather unresolved: "partially". p 0.2 with
an effect of 0.1 [-0.05, 0.18]: "no". p 0.2 with [-0.05, 0.4]: "unconfirmed".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import Estimate, Reason, holm, normal_quantile

if TYPE_CHECKING:
    from dipstick.analysis.contest import ContestResult
    from dipstick.analysis.lock import BoundaryLock, LockResult
    from dipstick.analysis.lock_regression import RegressionLock
    from dipstick.model import Verdict

_POWER_Z = 0.8416  # normal quantile of the power 0.8


@dataclass(frozen=True, slots=True)
class Rules:
    """Declared before any result is read, printed with it (methods, section 7)."""

    alpha: float = 0.05
    yes_effect: float = 0.5
    partial_effect: float = 0.2
    yes_drop_pct: float = 20.0
    partial_drop_pct: float = 10.0


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to weigh; None for what could not be computed.

    Attributes:
        lock: The event test, one family of boundaries.
        regression: The regression test; judged in the same Holm family.
        contest: The anchor contest.
        drop_pct: Utilization before minus after the boundary in percentage points
            (:meth:`overlap.OverlapFit.drop`), of the phase whose entry is judged.
        extra: Reasons from outside (GAP, CLOCK, SPINNING ...): any of them bars "yes" and "no".
    """

    lock: LockResult | None = None
    regression: RegressionLock | None = None
    contest: ContestResult | None = None
    drop_pct: Estimate | None = None
    extra: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class AlignmentVerdict:
    """The verdict and every number it rests on.

    Attributes:
        verdict: yes, partially, no or unconfirmed.
        why: One sentence.
        p_value: The smallest Holm-adjusted p of the family that is not below its floor; None without one.
        effect: Precursor rate minus chance of the best boundary; None where events could not be tested.
        drop_pct: As given.
        boundary: The contest's winner, else the best event boundary; None if neither.
        candidates: Boundaries that remain possible (one if resolved).
        lag_s: Onset behind the boundary, from the contest.
        reasons: Codes for everything that stands in the way of "yes" or "no".
        detectable_effect: Effect found with power 0.8 in a run like this one; None if none is.
        detectable_drop_pct: The same for the drop, from the width of its interval.
        steps_needed: Steps at which an effect of 0.5 (or a drop of 20 points) is found; None if unknown.
    """

    verdict: Verdict
    why: str
    p_value: float | None
    effect: Estimate | None
    drop_pct: Estimate | None
    boundary: str | None
    candidates: tuple[str, ...]
    lag_s: Estimate | None
    reasons: tuple[Reason, ...]
    detectable_effect: float | None
    detectable_drop_pct: float | None
    steps_needed: int | None
    rules: Rules = field(default_factory=Rules)


def judge_alignment(evidence: Evidence, rules: Rules = DEFAULT_RULES) -> AlignmentVerdict:
    """Weighs the evidence by the rules of methods 4.1; never guesses where a signal is missing."""
    best, p_value = _best(evidence), _p_value(evidence, rules)
    effect = best.effect if best else None
    verdict = _verdict(evidence, rules, effect, p_value)
    reasons = _reasons(evidence, best, verdict)
    contest = evidence.contest
    return AlignmentVerdict(
        verdict=verdict,
        why=_why(evidence, rules, verdict, best, p_value),
        p_value=p_value,
        effect=effect,
        drop_pct=evidence.drop_pct,
        boundary=(contest.winner if contest else None) or (best.boundary if best else None),
        candidates=contest.unresolved if contest else (),
        lag_s=contest.lag_s if contest and contest.leader else None,
        reasons=reasons,
        detectable_effect=best.detectable_effect if best else None,
        detectable_drop_pct=_detectable_drop(evidence.drop_pct),
        steps_needed=_steps_needed(evidence, best, rules),
        rules=rules,
    )


# -- the rules -------------------------------------------------------------------------------------


def _verdict(evidence: Evidence, rules: Rules, effect: Estimate | None, p_value: float | None) -> Verdict:
    if evidence.extra or "NONSTATIONARY" in _boundary_reasons(evidence):
        return "unconfirmed"
    if p_value is not None and p_value <= rules.alpha:
        if _strong(evidence, rules, effect):
            return "yes" if evidence.contest and evidence.contest.winner else "partially"
        if _medium(evidence, rules, effect):
            return "partially"
    return "no" if _small(evidence, rules) else "unconfirmed"


def _strong(evidence: Evidence, rules: Rules, effect: Estimate | None) -> bool:
    by_drop = evidence.drop_pct is not None and evidence.drop_pct.low > rules.yes_drop_pct
    return by_drop or (effect is not None and effect.value >= rules.yes_effect)


def _medium(evidence: Evidence, rules: Rules, effect: Estimate | None) -> bool:
    by_drop = evidence.drop_pct is not None and evidence.drop_pct.low > rules.partial_drop_pct
    return by_drop or (effect is not None and effect.value >= rules.partial_effect)


def _small(evidence: Evidence, rules: Rules) -> bool:
    """Every effect that was measured is bounded below the partial threshold, and at least one was."""
    bounded = [lock.effect.high < rules.partial_effect for lock in _tested(evidence)]
    if evidence.drop_pct is not None:
        bounded.append(evidence.drop_pct.high < rules.partial_drop_pct)
    return bool(bounded) and all(bounded)


def _tested(evidence: Evidence) -> tuple[BoundaryLock, ...]:
    return evidence.lock.tested if evidence.lock else ()


def _best(evidence: Evidence) -> BoundaryLock | None:
    """The contest's winner where it was tested, else the boundary with the smallest p."""
    winner = evidence.contest.winner if evidence.contest else None
    named = [lock for lock in _tested(evidence) if lock.boundary == winner]
    if named:
        return named[0]
    return evidence.lock.best if evidence.lock else None


def _p_value(evidence: Evidence, rules: Rules) -> float | None:
    """Holm over all boundaries and the regression; only tests whose floor lets them speak can answer.

    The best boundary's own p counts (the contest chose it), or the regression's if that is smaller.
    """
    tests = [(lock.p_value, lock.p_floor, lock is _best(evidence)) for lock in _tested(evidence)]
    if evidence.regression is not None:
        tests.append((evidence.regression.p_value, evidence.regression.p_floor, True))
    adjusted = holm([p for p, _, _ in tests])
    level = rules.alpha / max(1, len(tests))
    speaking = [
        float(a) for a, (_, floor, named) in zip(adjusted, tests, strict=True) if named and floor <= level
    ]
    return min(speaking, default=None)


# -- what stands in the way ------------------------------------------------------------------------


def _boundary_reasons(evidence: Evidence) -> tuple[Reason, ...]:
    best = _best(evidence)
    return best.reasons if best else ()


def _reasons(evidence: Evidence, best: BoundaryLock | None, verdict: Verdict) -> tuple[Reason, ...]:
    found: list[Reason] = [*evidence.extra, *(best.reasons if best else ())]
    if best is None and evidence.lock is not None:
        found += [reason for lock in evidence.lock.boundaries for reason in lock.reasons]
    if evidence.regression is not None:
        found += evidence.regression.reasons
    if evidence.contest is not None:
        found += evidence.contest.reasons
    elif verdict == "partially":
        found.append("COARSE")  # no onset series to hold a contest with
    if verdict == "unconfirmed" and not found:
        found.append("LOW_N")
    return tuple(dict.fromkeys(found))


def _detectable_drop(drop: Estimate | None) -> float | None:
    """(z of the interval + z of the power) standard errors: 2.8 at 95 % and power 0.8."""
    if drop is None or not np.isfinite(drop.high - drop.low):
        return None
    z = normal_quantile(drop.level)
    return (z + _POWER_Z) * (drop.high - drop.low) / (2 * z)


def _steps_needed(evidence: Evidence, best: BoundaryLock | None, rules: Rules) -> int | None:
    """The event test's own number, else the steps at which the drop's error is small enough."""
    if best is not None and best.steps_needed is not None:
        return best.steps_needed
    detectable = _detectable_drop(evidence.drop_pct)
    if detectable is None or evidence.regression is None:
        return None
    return int(np.ceil(evidence.regression.steps * (detectable / rules.yes_drop_pct) ** 2))


# -- the sentence ----------------------------------------------------------------------------------


def _why(
    evidence: Evidence, rules: Rules, verdict: Verdict, best: BoundaryLock | None, p_value: float | None
) -> str:
    if best is None and evidence.regression is None:
        return "neither dip onsets nor utilization samples could be tested against the steps"
    facts = "; ".join(
        filter(
            None,
            [
                _event_fact(_leading(evidence) or best),
                _drop_fact(evidence),
                _p_fact(p_value),
                _which(evidence),
            ],
        )
    )
    tail = {
        "yes": "",
        "partially": "",
        "no": f"; an effect of {rules.partial_effect:g} is ruled out",
        "unconfirmed": "; not enough to say yes or no",
    }[verdict]
    return facts + tail


def _leading(evidence: Evidence) -> BoundaryLock | None:
    """The contest's leader, the boundary a reader should hear of even where several remain possible."""
    leader = evidence.contest.leader if evidence.contest else None
    return next((lock for lock in _tested(evidence) if lock.boundary == leader), None)


def _event_fact(best: BoundaryLock | None) -> str:
    if best is None:
        return ""
    return (
        f"{best.hits} of {best.onsets} dips start at the {best.boundary} boundary "
        f"({100 * best.chance_rate:z.0f} % by chance)"
    )


def _drop_fact(evidence: Evidence) -> str:
    drop = evidence.drop_pct
    if drop is None:
        return ""
    if drop.value < 0:
        return f"utilization rises by {-drop.value:z.0f} points [{-drop.high:z.0f}, {-drop.low:z.0f}]"
    return f"utilization falls by {drop.value:z.0f} points [{drop.low:z.0f}, {drop.high:z.0f}]"


def _p_fact(p_value: float | None) -> str:
    return "no p-value below its floor is possible" if p_value is None else f"p {p_value:.2g} after Holm"


def _which(evidence: Evidence) -> str:
    contest = evidence.contest
    if contest is None or contest.leader is None:
        return "which boundary is unknown"
    if contest.winner:
        return f"they follow {contest.winner} ({contest.lag_s.value:+z.2f} s)"
    return "not told apart: " + ", ".join(contest.unresolved)
