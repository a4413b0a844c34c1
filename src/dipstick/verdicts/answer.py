"""The answer in two sentences: the longest phase, what is paid for, what the dips are, what reads as busy.

Rules (spine form; the tests behind ``straggler_*``, ``imbalance`` and ``transfer`` come with the checks):

- ``longest_phase``: largest share of the critical path. ``paid_most_for``: most GPU-seconds over all ranks.
- ``dips_are`` looks at the seconds of all dips, by the phase of the rank that fills each dip:
  ``none`` without dips; ``unknown`` if phases are not recorded or less than 80 % of the dip seconds lie
  in named phases; ``checkpoint`` if most lie there; ``queued_work`` if most lie in reward and the workers are
  busy for 75 % of their slots; ``step_cycle`` if one phase of the step holds most; else ``mixed``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dipstick.analysis.breakdown import NOT_A_FINDING
from dipstick.model import Answer, Breakdown, Dip, DipsAre, Stragglers
from dipstick.phases import WAIT_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dipstick.analysis.pipeline import Findings

NAMED_SHARE = 0.8
MOST = 0.5
SLOTS_BUSY = 0.75
WORTH_SAYING = 0.02
IN_WORDS = {
    "generate": "generation", "weight_sync": "weight sync", "gather_wait": "waiting at the reward gather",
    "collective_wait": "waiting at other collectives", "logprobs": "log-probabilities", "cache_clear": "cache clears",
    "forward": "the training forward pass", "backward": "backward", "optimizer": "the optimizer", "eval": "evaluation",
    "checkpoint": "checkpoints", "reward": "reward scoring",
}  # fmt: skip


def answer(findings: Findings) -> Answer:
    """The headline and its machine-readable keys."""
    are = dips_are(findings)
    breakdown = findings.breakdown
    first = _paid_sentence(findings, breakdown) if breakdown else _no_phases(findings)
    second = "; ".join(clause for clause in (_hollow_clause(findings), _dips_clause(findings, are)) if clause)
    return Answer(
        headline=f"{first} {_sentence(second)}".strip(),
        longest_phase=breakdown.longest if breakdown else None,
        paid_most_for=breakdown.paid_most_for if breakdown else None,
        dips_are=are,
    )


def dip_seconds(dips: Iterable[Dip]) -> dict[str | None, float]:
    """Seconds of dips by the phase that fills each."""
    seconds: dict[str | None, float] = {}
    for dip in dips:
        seconds[dip.phase] = seconds.get(dip.phase, 0.0) + dip.end_s - dip.start_s
    return seconds


def dips_are(findings: Findings) -> DipsAre:
    """What the dips of utilization are (of work, where utilization shows none); see the module's rules."""
    if not findings.gpus:
        return "unknown"
    chosen = [d for d in findings.dips if d.series == "utilization"] or list(findings.dips)
    if not chosen:
        return "none"
    seconds = dip_seconds(chosen)
    total = sum(seconds.values())
    named = {p: s for p, s in seconds.items() if p is not None and p not in NOT_A_FINDING}
    if not named or sum(named.values()) < NAMED_SHARE * total:
        return "unknown"
    top = max(named, key=lambda phase: named[phase])
    if named[top] < MOST * total:
        return "mixed"
    return _kind(top, findings.stragglers)


def _kind(phase: str, stragglers: Stragglers | None) -> DipsAre:
    if phase == "checkpoint":
        return "checkpoint"
    if phase == "reward" and stragglers and stragglers.slots and stragglers.slots_busy:
        return "queued_work" if stragglers.slots_busy >= SLOTS_BUSY * stragglers.slots else "step_cycle"
    return "step_cycle"


def _paid_sentence(findings: Findings, breakdown: Breakdown) -> str:
    longest, paid = breakdown.longest, breakdown.paid_most_for
    if longest is None or paid is None:
        return "No phase of the step was recorded, so nobody can say which one is paid for."
    path = dict(breakdown.critical_path)
    share = 100 * path[longest] / sum(path.values())
    bill = _bill(findings, paid)
    if longest == paid:
        return f"The longest phase is {_words(longest)} ({share:.0f} % of the critical path), and it is the one you pay for: {bill}."
    return f"The longest phase is {_words(longest)} ({share:.0f} % of the critical path), but most is paid for {_words(paid)}: {bill}."


def _bill(findings: Findings, paid: str) -> str:
    """GPU-seconds of the phase, with the wait it causes beside it."""
    seconds = _gpu_seconds(findings)
    everything = sum(seconds.values())
    text = f"{seconds[paid]:.0f} of {everything:.0f} {'GPU' if findings.gpus else 'rank'}-seconds"
    wait = seconds.get("gather_wait", 0.0)
    if paid == "reward" and wait >= WORTH_SAYING * everything:
        text += f", and {wait:.0f} more spent waiting for the slower rank's rewards"
    return text


def _gpu_seconds(findings: Findings) -> dict[str, float]:
    """Seconds by phase, times the GPUs of each rank (one where they are not known)."""
    gpus = Counter(gpu.rank for gpu in findings.gpus)
    seconds: dict[str, float] = {}
    for row in findings.breakdown.rows if findings.breakdown else ():
        seconds[row.phase] = seconds.get(row.phase, 0.0) + row.seconds * max(gpus[row.rank], 1)
    return seconds


def _hollow_clause(findings: Findings) -> str:
    """What share of "busy" is a rank waiting for another, or otherwise hollow."""
    used = [s for s in findings.states if s.used]
    busy = sum(s.busy_s for s in used)
    if busy <= 0:
        return ""
    waiting = _hollow_in_waits(findings.breakdown)
    hollow = sum(s.hollow_s for s in used)
    read = f"of the {busy:.0f} GPU-seconds that read as busy,"
    if waiting >= WORTH_SAYING * busy:
        more = hollow - waiting
        rest = f", and {100 * more / busy:.0f} % more did no work" if more >= WORTH_SAYING * busy else ""
        return f"{read} {100 * waiting / busy:.0f} % are a rank waiting for another one at full utilization{rest}"
    if hollow >= WORTH_SAYING * busy:
        return f"{read} {100 * hollow / busy:.0f} % did no work"
    if sum(s.seconds["unknown"] for s in used) >= MOST * busy:
        return f"{read} how many were work and how many waiting can't be told without power or SM counters"
    return ""


def _hollow_in_waits(breakdown: Breakdown | None) -> float:
    if breakdown is None:
        return 0.0
    return sum(row.hollow_s or 0.0 for row in breakdown.totals if row.phase in WAIT_PHASES)


def _dips_clause(findings: Findings, are: DipsAre) -> str:
    chosen = [d for d in findings.dips if d.series == "utilization"] or list(findings.dips)
    seconds = dip_seconds(chosen)
    named = {p: s for p, s in seconds.items() if p is not None and p not in NOT_A_FINDING}
    top = _words(max(named, key=lambda phase: named[phase])) if named else ""
    share = f"({100 * max(named.values()) / sum(seconds.values()):.0f} % of the dip time)" if named else ""
    return {
        "none": "no utilization dips were found",
        "unknown": "what the dips are can't be told from this recording" if findings.gpus else "",
        "checkpoint": f"the dips are checkpoints {share}",
        "queued_work": f"the dips are {top} {share}, work queued for its workers in every step",
        "step_cycle": f"the dips are the step's own {top} {share}, not a fault",
        "mixed": f"the dips have no single phase; the largest part is {top} {share}",
    }.get(are, "")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _no_phases(findings: Findings) -> str:
    if findings.gpus:
        return "No phases were recorded, so which one is paid for can't be told."
    return "No GPU telemetry and no phases were recorded: there is nothing to explain."


def _words(phase: str) -> str:
    return IN_WORDS.get(phase, phase)
