"""Sections about verdicts: the checks, what would shrink the step, the scorecard of claims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dipstick.judgement import REASONS, Reason
from dipstick.show import words
from dipstick.show.document import Column, Judged, Row, Table, Verdicts
from dipstick.show.palette import VERDICT_INKS
from dipstick.show.receipts import proof, quoted, run_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dipstick.judgement import Check, Claim, Verdict
    from dipstick.model import Report

_SHORT = {
    "alignment": "dips part of the step?",
    "phases": "one phase dominates?",
    "memory_spikes": "memory spikes explained?",
    "stragglers": "slowest job sets the dips?",
    "trends": "drift over the run?",
}
_FOUR = ("alignment", "phases", "memory_spikes", "stragglers")
_MOST_BECAUSE = 2000
_LEAST_P = 0.001
_THOUSAND = 1000

WHAT_IF_TITLE = "What would shrink the step"


def check_section(report: Report, *, brief: bool = False) -> Verdicts | None:
    """The checks, each with its verdict.

    Args:
        report: The finding.
        brief: Leave out the trends where nothing drifts.
    """
    shown = [
        c for c in report.checks if not brief or c.name in _FOUR or c.verdict.word in {"yes", "partially"}
    ]
    run = run_word(report)
    number = {4: "four ", 5: "five "}.get(len(shown), "")
    return Verdicts(f"The {number}checks", tuple(_check(c, run) for c in shown)) if shown else None


def _check(check: Check, run: str) -> Judged:
    question = words.clean(check.question, 200)
    label = _SHORT.get(check.name, words.clean(check.name.replace("_", " "), 24))
    return _judged(check.name, label, question, check, run)


def claim_section(report: Report) -> Verdicts | None:
    """The claims, numbered: the built-in ones, then the user's own."""
    run = run_word(report)
    items = tuple(
        _judged(str(i), words.clean(claim.say, 200), "", claim, run)
        for i, claim in enumerate(report.claims, 1)
    )
    return Verdicts("Scorecard", items, numbered=True) if items else None


def _judged(key: str, label: str, question: str, found: Check | Claim, run: str) -> Judged:
    verdict, receipts = found.verdict, found.receipts
    return Judged(
        words.clean(key, 24),
        VERDICT_INKS[verdict.word],
        label,
        question,
        words.clean(verdict.because, _MOST_BECAUSE),
        (*details(verdict), *_receipts(len(receipts), key, run)),
        tuple(proof(receipt, run) for receipt in receipts),
    )


def _receipts(many: int, key: str, run: str) -> list[tuple[str, str]]:
    how = f"dipstick explain {quoted(run)} --receipts {quoted(key)}"
    return [("evidence", f"{words.count(many, 'receipt')}, printed by {how}")] if many else []


def details(verdict: Verdict) -> Iterable[tuple[str, str]]:
    """The numbers behind a word, why it is open, and the cheapest thing that would settle it."""
    numbers = [_effect(verdict), _p(verdict.p), _detectable(verdict)]
    if told := "; ".join(part for part in numbers if part):
        yield "numbers", told
    if verdict.reason is not None:
        yield f"unconfirmed ({verdict.reason})", REASONS[verdict.reason].means
    if verdict.word != "yes" and verdict.cheapest_experiment:
        yield "to settle it", words.clean(verdict.cheapest_experiment, 400)


def _effect(verdict: Verdict) -> str:
    if not words.known(verdict.effect):
        return ""
    text = f"effect {figures(verdict.effect)}"
    if verdict.interval is not None and all(map(math.isfinite, verdict.interval)):
        low, high = verdict.interval
        text += f" [{figures(low)}, {figures(high)}]"
    return text


def _p(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return f"p < {_LEAST_P:g}" if value < _LEAST_P else f"p = {figures(value)}"


def _detectable(verdict: Verdict) -> str:
    parts = []
    if words.known(verdict.min_detectable):
        parts.append(f"smallest effect this run would show: {figures(verdict.min_detectable)}")
    if verdict.steps_needed is not None:
        parts.append(f"{words.count(verdict.steps_needed, 'step')} would show this one")
    return ", ".join(parts)


def figures(value: float | None) -> str:
    """Three figures: ``0.908``, ``12.3``, ``1,234``; not measured -> ``–``."""
    if value is None or not math.isfinite(value):
        return words.ABSENT
    return f"{value:z,.0f}" if abs(value) >= _THOUSAND else f"{value:.3g}"


def what_if_table(report: Report, most: int | None = None) -> Table | None:
    """Changes and how much faster the steps would be; what can't be known for sure comes last and is marked.

    Args:
        report: The finding.
        most: Rows at most; the surest and largest.
    """
    rows = sorted(_what_ifs(report), key=lambda row: (bool(row.get("reason")), -_number(row, "step_speedup")))
    if not rows:
        return None
    columns = (
        Column("change", right=False),
        Column("step"),
        Column("95 %", drop=1),
        Column("GPU-s saved" if report.run.gpus else "rank-s saved", drop=2),
        Column("", right=False),
    )
    shown = rows[:most]
    held = sorted({words.clean(str(row["held_fixed"]), 200) for row in shown if row.get("held_fixed")})
    notes = (*(f"{_capital(text)}." for text in held), *_reason_notes(shown)) if most is None else ()
    return Table(WHAT_IF_TITLE, columns, tuple(map(_what_if, shown)), notes)


def _what_ifs(report: Report) -> list[dict[str, Any]]:
    facts = next((check.facts for check in report.checks if check.name == "phases"), {})
    return list(facts.get("what_if") or ())


def _number(row: dict[str, Any], key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else -math.inf


def _what_if(row: dict[str, Any]) -> Row:
    """``1.21×  1.18 to 1.25  140``; a speed-up that may not be relied on stands in brackets."""
    speedup, saved = _number(row, "step_speedup"), _number(row, "saved_gpu_s")
    known, reason = math.isfinite(speedup), row.get("reason")
    faster = f"{speedup:z.2f}×" if known else words.ABSENT
    low, high = row.get("interval") or (None, None)
    cells = (
        words.clean(str(row.get("change", "")), 60),
        f"({faster})" if known and reason else faster,
        f"{low:z.2f} to {high:z.2f}" if known and low is not None and high is not None else words.ABSENT,
        words.number(saved, 0) if math.isfinite(saved) else words.ABSENT,
        _remark(row),
    )
    return Row(cells, "part" if reason else "body")


def _remark(row: dict[str, Any]) -> str:
    reason = row.get("reason")
    if reason:
        return f"can't tell ({words.clean(str(reason), 24)})"
    return "at most" if row.get("upper_bound") else ""


def _reason_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    codes = sorted({str(row["reason"]) for row in rows if row.get("reason")})
    return [f"{code}: {REASONS[Reason(code)].means}." for code in codes if code in Reason.__members__]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
