"""The nouns of judging: the four words, why one is open, and the receipts behind it.

Every number that a verdict prints carries a :class:`Receipt`: where in the recording (or in the code) it comes
from, and a query that derives it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Final, Literal

Word = Literal["yes", "partially", "no", "unconfirmed"]
"""The four words, the same everywhere."""

WEAKEST_FIRST: Final[tuple[Word, ...]] = ("no", "unconfirmed", "partially", "yes")


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


@dataclass(frozen=True, slots=True)
class Receipt:
    """One piece of evidence.

    Attributes:
        kind: ``interval`` (a stretch of the recording), ``count``, ``number``, ``bytes`` or ``code``.
        text: The evidence in words, numbers included.
        t0_s, t1_s: The stretch, seconds since start.
        value, unit: The number, if it is one.
        file, line: The place in the code.
        origin: ``recorded``, ``static`` (read from a checkout, not seen running) or ``reconstructed``.
        query: SQL that derives the number from the recording (``dipstick query RUN SQL``); empty for code.
    """

    kind: Literal["interval", "count", "number", "bytes", "code"]
    text: str
    gpu: int | None = None
    rank: int | None = None
    t0_s: float | None = None
    t1_s: float | None = None
    value: float | None = None
    unit: str = ""
    file: str = ""
    line: int | None = None
    origin: Literal["recorded", "static", "reconstructed"] = "recorded"
    query: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One of the checks, judged.

    Attributes:
        name: ``alignment``, ``phases``, ``memory_spikes``, ``stragglers`` or ``trends``.
        question: What the check asks, in the words of the person who looks at a sawtooth.
        facts: What else it found, ready for JSON (keys of the contract in docs/json.md).
    """

    name: str
    question: str
    verdict: Verdict
    receipts: tuple[Receipt, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the user's (or of the built-in scorecard), judged.

    Attributes:
        say: The claim as it was said.
        test: The registered test that judged it; the compiled form is ``test`` with ``parameters``.
    """

    say: str
    test: str
    parameters: dict[str, Any]
    verdict: Verdict
    receipts: tuple[Receipt, ...] = ()
