"""The answer in two sentences: the longest phase, what is paid for, what reads as busy, what the dips are.

``longest_phase`` has the largest share of the critical path, ``paid_most_for`` the most GPU-seconds over all
ranks; they can differ, and then the sentence says so. ``dips_are`` follows ``dipstick.verdicts.dips_are``.
Where phases, telemetry or counters are missing the sentence says what can't be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.model import Answer, Breakdown
from dipstick.phases import WAIT_PHASES
from dipstick.verdicts.bill import amount, gpu_seconds, unit
from dipstick.verdicts.check_stragglers import gather, straggler_rank
from dipstick.verdicts.dips_are import Kind, dips_are
from dipstick.verdicts.missing import untold_because
from dipstick.verdicts.slow_workers import workers

if TYPE_CHECKING:
    from dipstick.analysis.pipeline import Findings
    from dipstick.verdicts.evidence import Evidence

MOST = 0.5
WORTH_SAYING = 0.02
IN_WORDS = {
    "generate": "generation", "weight_sync": "weight sync", "gather_wait": "waiting at the reward gather",
    "collective_wait": "waiting at other collectives", "logprobs": "log-probabilities", "cache_clear": "cache clears",
    "forward": "the training forward pass", "backward": "backward", "optimizer": "the optimizer", "eval": "evaluation",
    "checkpoint": "checkpoints", "reward": "reward scoring", "transfer": "copies to the device",
}  # fmt: skip


def answer(evidence: Evidence) -> Answer:
    """The headline and its machine-readable keys."""
    findings, kind = evidence.findings, dips_are(evidence)
    breakdown = findings.breakdown
    first = _paid_sentence(evidence, breakdown) if breakdown else _no_phases(findings)
    clauses = (_hollow_clause(findings), _dips_clause(evidence, kind), _worker_clause(evidence, kind))
    second = "; ".join(clause for clause in clauses if clause)
    return Answer(
        headline=f"{first} {_sentence(second)}".strip(),
        longest_phase=breakdown.longest if breakdown else None,
        paid_most_for=breakdown.paid_most_for if breakdown else None,
        dips_are=kind.word,
    )


def _paid_sentence(evidence: Evidence, breakdown: Breakdown) -> str:
    longest, paid = breakdown.longest, breakdown.paid_most_for
    if longest is None or paid is None:
        return "No phase of the step was recorded, so nobody can say which one is paid for."
    path = dict(breakdown.critical_path)
    share = 100 * path[longest] / sum(path.values())
    bill = _bill(evidence, paid)
    if longest == paid:
        return f"The longest phase is {_words(longest)} ({share:z.0f} % of the critical path), and it is the one you pay for: {bill}."
    return f"The longest phase is {_words(longest)} ({share:z.0f} % of the critical path), but most is paid for {_words(paid)}: {bill}."


def _bill(evidence: Evidence, paid: str) -> str:
    """GPU-seconds of the phase, with the wait it causes beside it; a rank is named where the exact test finds one."""
    findings = evidence.findings
    seconds = gpu_seconds(findings)
    everything = sum(seconds.values())
    text = f"{amount(seconds[paid], everything)} of {amount(everything, everything)} {unit(findings)}"
    wait = seconds.get("gather_wait", 0.0)
    if paid == "reward" and wait >= WORTH_SAYING * everything:
        text += f", and {amount(wait, everything)} more spent waiting for {_slower(evidence)}'s rewards"
    return text


def _slower(evidence: Evidence) -> str:
    found, met = straggler_rank(evidence), gather(evidence)
    is_one = found is not None and met is not None and found[1].word == "yes"
    return f"rank {met.ranks[found[0].rank]}" if is_one and found and met else "the slower rank"


def _hollow_clause(findings: Findings) -> str:
    """What share of "busy" is a rank waiting for another, or otherwise hollow."""
    used = [s for s in findings.states if s.used]
    busy = sum(s.busy_s for s in used)
    if busy <= 0:
        return ""
    waiting = _hollow_in_waits(findings.breakdown)
    hollow = sum(s.hollow_s for s in used)
    read = f"of the {amount(busy, busy)} GPU-seconds that read as busy,"
    if waiting >= WORTH_SAYING * busy:
        more = hollow - waiting
        rest = f", and {100 * more / busy:z.0f} % more did no work" if more >= WORTH_SAYING * busy else ""
        return f"{read} {100 * waiting / busy:z.0f} % are a rank waiting for another one at full utilization{rest}"
    if hollow >= WORTH_SAYING * busy:
        return f"{read} {100 * hollow / busy:z.0f} % did no work"
    if sum(s.seconds["unknown"] for s in used) >= MOST * busy:
        return f"{read} how many were work and how many waiting can't be told {untold_because(findings)}"
    return ""


def _hollow_in_waits(breakdown: Breakdown | None) -> float:
    if breakdown is None:
        return 0.0
    return sum(row.hollow_s or 0.0 for row in breakdown.totals if row.phase in WAIT_PHASES)


def _dips_clause(evidence: Evidence, kind: Kind) -> str:
    top = _words(kind.phase) if kind.phase else ""
    share = f"({100 * kind.share:z.0f} % of what they cost)" if kind.phase else ""
    return {
        "none": "no utilization dips were found",
        "unknown": "what the dips are can't be told from this recording" if evidence.findings.gpus else "",
        "checkpoint": f"the dips are checkpoints {share}",
        "queued_work": f"the dips are {top} {share}, work queued for its workers in every step",
        "straggler_job": f"the dips are {top} {share}, and they last as long as the longest job",
        "straggler_rank": f"the dips are {top} {share}, and {_late_rank(evidence)}",
        "imbalance": f"the dips are {top} {share}, uneven over the ranks with no single rank to blame",
        "transfer": "the dips are bus transfers: copies without SM work",
        "step_cycle": f"the dips are the step's own {top} {share}, not a fault",
        "mixed": f"the dips have no single phase; the largest part is {top} {share}",
    }.get(kind.word, "")


def _worker_clause(evidence: Evidence, kind: Kind) -> str:
    """The slow worker that half of the widest reward dips end with; one that others outlast is not to blame."""
    known = [w for w in workers(evidence) if w.test.verdict == "yes"] if kind.phase == "reward" else []
    slow = max(known, key=lambda worker: worker.last_in_widest, default=None)
    if slow is None or not slow.widest or slow.last_in_widest < MOST * slow.widest:
        return ""
    return (
        f"the widest wait for worker {slow.pid} of rank {slow.rank}, "
        f"whose jobs take {slow.test.deep.value:z.1f} times the others' there"
    )


def _late_rank(evidence: Evidence) -> str:
    found = straggler_rank(evidence)
    return found[1].because if found else "one rank comes last"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _no_phases(findings: Findings) -> str:
    if findings.gpus:
        return "No phases were recorded, so which one is paid for can't be told."
    return "No GPU telemetry and no phases were recorded: there is nothing to explain."


def _words(phase: str) -> str:
    return IN_WORDS.get(phase, phase)
