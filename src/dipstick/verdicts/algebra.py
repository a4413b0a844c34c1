"""Verdicts and how they combine: within a clause, across clauses, "X rather than Y" (methods 4.5, 5).

A claim is compiled, before any result is read, into clauses, and each clause into predicates (the
decisions of methods 4.1-4.4). Every verdict carries its numbers; an ``unconfirmed`` one always says
why (a :class:`Reason`) and what would settle it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.whatif_verdict import Decision
    from dipstick.model import Verdict as Word

WEAKEST_FIRST: Final[tuple[Word, ...]] = ("no", "unconfirmed", "partially", "yes")
CONTEST: Final = 0.95
"""Bootstrap probability at which a contest of two explanations is won."""


class Reason(StrEnum):
    """Why a verdict is ``unconfirmed`` (methods 5; ``MISSING_SIGNAL`` is ours, for design section 4)."""

    LOW_N = "LOW_N"
    P_FLOOR = "P_FLOOR"
    COVERAGE = "COVERAGE"
    COARSE = "COARSE"
    COLLINEAR = "COLLINEAR"
    CLOCK = "CLOCK"
    GAP = "GAP"
    REPLAY_MISMATCH = "REPLAY_MISMATCH"
    NO_VARIATION = "NO_VARIATION"
    NONSTATIONARY = "NONSTATIONARY"
    SPINNING = "SPINNING"
    MISSING_SIGNAL = "MISSING_SIGNAL"


@dataclass(frozen=True, slots=True)
class Explained:
    """What a reason means and the cheapest thing that would settle the question."""

    means: str
    fix: str


REASONS: Final[dict[Reason, Explained]] = {
    Reason.LOW_N: Explained(
        "fewer steps or fired events than the decision needs",
        "record a longer run, or fire the event more often (a checkpoint every 5 steps)",
    ),
    Reason.P_FLOOR: Explained(
        "the smallest p-value that this run could give is above the level asked for",
        "vary the step length or the event's period (an odd number of steps), or record more steps",
    ),
    Reason.COVERAGE: Explained(
        "the match windows cover more than a quarter of the run, so that anything would match",
        "sample at 1 s or finer, which makes the windows narrower",
    ),
    Reason.COARSE: Explained(
        "the sampling window is longer than the phase or dip, or too few samples touch it",
        "sample at 1 s for 10 minutes: dipstick run --hz 10 -- CMD",
    ),
    Reason.COLLINEAR: Explained(
        "candidates that are never apart in this run, or a contest that none of them won",
        "move one of them: put the checkpoint on an odd period, or delay the cache clear by 10 s",
    ),
    Reason.CLOCK: Explained(
        "the clocks are less certain than half the separation being judged",
        "record telemetry and spans on one clock with dipstick run, or log barrier exits on every rank",
    ),
    Reason.GAP: Explained(
        "more than 5 % of the time is in no phase",
        "put the missing part into a span: with dipstick.span('name')",
    ),
    Reason.REPLAY_MISMATCH: Explained(
        "the replay misses the measured step times by more than 5 %",
        "record jobs and barriers with dipstick run, so that the replay has every stage of the step",
    ),
    Reason.NO_VARIATION: Explained(
        "the suspected driver hardly varies over the run",
        "make it vary: another job cap or batch size in part of the run",
    ),
    Reason.NONSTATIONARY: Explained(
        "the two halves of the run disagree",
        "explain each half by itself, or record a run without the change in the middle",
    ),
    Reason.SPINNING: Explained(
        "waiting was judged from utilization alone, and a rank that waits in NCCL reads 100 %",
        "record spans, or SM activity (GPM, DCGM): dipstick run records both",
    ),
    Reason.MISSING_SIGNAL: Explained(
        "a signal that the decision needs was not recorded",
        "record the run with dipstick run, or pass --repo PATH for mechanisms that the code can settle",
    ),
}


class Support(IntEnum):
    """How well a mechanism is supported; "yes" needs ``DOSE`` (methods 4.5)."""

    NONE = 0
    ASSOCIATION = 1
    """They go together over steps."""
    ORDER = 2
    """... in the right order, with a stable lag."""
    DOSE = 3
    """... and more of the cause gives more of the effect (a slope, or fired against unfired)."""
    INTERVENTION = 4
    """... and changing the cause on purpose changed the effect (an A/B run)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of the four words, and what stands behind it.

    Attributes:
        word: ``yes``, ``partially``, ``no`` or ``unconfirmed``.
        because: The sentence that explains it.
        effect: Effect size, in the unit that ``because`` names; None where there is none.
        interval: Its 95 % interval.
        p: Adjusted p-value.
        reason: Why it is unconfirmed; required then, and only then of use.
        min_detectable: Smallest effect that this run would have shown with power 0.8.
        steps_needed: Steps that would reach it.
        experiment: The cheapest experiment that would settle it; empty takes the reason's.
        parts: The verdicts that this one was combined from.

    Raises:
        ValueError: ``unconfirmed`` without a reason, or an unknown word.
    """

    word: Word
    because: str = ""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    reason: Reason | None = None
    min_detectable: float | None = None
    steps_needed: int | None = None
    experiment: str = ""
    parts: tuple[Verdict, ...] = ()

    def __post_init__(self) -> None:
        """An answer that can't be given must say why."""
        if self.word not in WEAKEST_FIRST:
            raise ValueError(f"{self.word!r} is no verdict; use {', '.join(WEAKEST_FIRST)}")
        if self.word == "unconfirmed" and self.reason is None:
            raise ValueError("unconfirmed needs a reason")

    @property
    def rank(self) -> int:
        """0 (``no``) to 3 (``yes``)."""
        return WEAKEST_FIRST.index(self.word)

    @property
    def cheapest_experiment(self) -> str:
        """What would settle it; empty where nothing is open."""
        if self.experiment or self.reason is None:
            return self.experiment
        return REASONS[self.reason].fix


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
    if len(clauses) == 1 or len(words) == 1:
        return replace(clauses[0], parts=tuple(clauses))
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
