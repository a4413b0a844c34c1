"""Verdicts and how they combine: within a clause, across clauses, "X rather than Y" (methods 4.5, 5).

A claim is compiled, before any result is read, into clauses, and each clause into predicates (the
decisions of methods 4.1-4.4). Every verdict carries its numbers; an ``unconfirmed`` one always says
why (a :class:`Reason`) and what would settle it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dipstick.judgement import REASONS, Reason, Support, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.stats import Estimate
    from dipstick.analysis.whatif_verdict import Decision
    from dipstick.model import Verdict as Word

CONTEST: Final = 0.95
"""Bootstrap probability at which a contest of two explanations is won."""
FEWEST_STEPS: Final = 8
"""A bootstrap over fewer steps gives intervals that are too short: no firm answer (methods 4.1)."""
_HALF_WIDTH_Z, _DETECTABLE_Z = 1.96, 2.8


def from_decision(decision: Decision, because: str) -> Verdict:
    """A decision of the analysis layer as a verdict."""
    effect = decision.effect
    return Verdict(
        word=decision.verdict,
        because=because,
        effect=effect.value,
        interval=(effect.low, effect.high),
        p=decision.p,
        reason=Reason(decision.reason) if decision.reason else None,
        min_detectable=decision.min_detectable,
        steps_needed=decision.steps_needed,
    )


def measured(word: Word, because: str, effect: Estimate, steps: int, p: float | None = None) -> Verdict:
    """A verdict on a bootstrapped number: open below 8 steps, with what the run could have shown.

    Example: "yes" from 3 steps is ``unconfirmed: LOW_N``.
    """
    known = math.isfinite(effect.value)
    value, interval = (effect.value, (effect.low, effect.high)) if known else (None, None)
    if steps < FEWEST_STEPS or not known:
        word = "unconfirmed"
    reason = Reason.LOW_N if word == "unconfirmed" else None
    seen = None if word == "yes" else detectable(interval)
    return Verdict(word, because, value, interval, p, reason, seen)


def detectable(interval: tuple[float, float] | None) -> float | None:
    """The smallest effect seen with power 0.8: 2.8 standard errors of a 95 % interval; None without one.

    Example: [0.4, 0.6] has a standard error of 0.051: 0.143.
    """
    if interval is None or not all(map(math.isfinite, interval)):
        return None
    return (interval[1] - interval[0]) / 2 / _HALF_WIDTH_Z * _DETECTABLE_Z


def unconfirmed(reason: Reason, because: str = "", experiment: str = "") -> Verdict:
    """Can't tell, and why; the sentence defaults to what the reason means."""
    return Verdict("unconfirmed", because or REASONS[reason].means, reason=reason, experiment=experiment)


def clause(predicates: Sequence[Verdict]) -> Verdict:
    """All predicates of a clause are necessary: the weakest decides, and its numbers are the clause's.

    Of equally weak ones the first decides.

    Raises:
        ValueError: No predicates.

    Example:
        yes, partially, unconfirmed: unconfirmed. With a no among them: no.
    """
    if not predicates:
        raise ValueError("a clause needs at least one predicate")
    return replace(min(predicates, key=lambda verdict: verdict.rank), parts=tuple(predicates))


def claim(clauses: Sequence[Verdict]) -> Verdict:
    """Clauses of one claim are separate statements: agreement keeps the word, disagreement is partial.

    All yes: yes. All no: no. Yes (or partially) beside no: partially. Else unconfirmed if any clause
    is, and partially for what remains (yes beside partially).

    Raises:
        ValueError: No clauses.

    Example:
        The seed's "large memory moves force compute to pause": memory pressure yes, moved by the
        structure hand-off no: partially.
    """
    if not clauses:
        raise ValueError("a claim needs at least one clause")
    words = {verdict.word for verdict in clauses}
    if len(words) == 1:
        because = "; ".join(dict.fromkeys(verdict.because for verdict in clauses))
        return replace(clauses[0], because=because, parts=tuple(clauses))
    if "no" in words and words & {"yes", "partially"}:
        return _listed("partially", clauses)
    if "unconfirmed" in words:
        open_one = next(verdict for verdict in clauses if verdict.word == "unconfirmed")
        return replace(open_one, parts=tuple(clauses))
    return _listed("partially", clauses)


def _listed(word: Word, clauses: Sequence[Verdict]) -> Verdict:
    """A verdict whose sentence lists the clauses' own."""
    because = "; ".join(f"{verdict.word}: {verdict.because}" for verdict in clauses)
    return Verdict(word, because, parts=tuple(clauses))


def rather_than(this: Verdict, that: Verdict, contest: float | None = None) -> Verdict:
    """Settle "X rather than Y": X must hold, and Y must not, or X must have won the contest.

    Args:
        this: X.
        that: Y.
        contest: Bootstrap probability that X explains better than Y; None if none was held.

    Returns:
        X's verdict if Y is ``no`` or the contest was won (>= 0.95); ``no`` if X is ``no`` or Y won the
        contest; else ``unconfirmed``: X's own reason, or ``COLLINEAR`` where both may hold.

    Example:
        Reward rather than transfer: yes and no give yes; yes and unconfirmed give
        ``unconfirmed: COLLINEAR``; yes and yes with a contest at 0.97 give yes.
    """
    parts = (this, that)
    if this.word in {"no", "unconfirmed"}:
        return replace(this, parts=parts)
    if that.word == "no" or (contest is not None and contest >= CONTEST):
        return replace(this, parts=parts)
    if contest is not None and contest <= 1 - CONTEST:
        return Verdict("no", f"the other explanation won: {that.because}", parts=parts)
    because = f"{this.because}; but the other explanation is not ruled out: {that.because}"
    return replace(unconfirmed(Reason.COLLINEAR, because), parts=parts)


def graded(verdict: Verdict, support: Support) -> Verdict:
    """A causal "yes" without dose-response is only ``partially``: going together is not causing.

    Example:
        Dips follow every reward boundary (association, order) but no slope was shown: partially.
    """
    if verdict.word != "yes" or support >= Support.DOSE:
        return verdict
    because = f"{verdict.because} (support: {support.name.lower()}; yes needs dose-response)"
    return replace(verdict, word="partially", because=because)
