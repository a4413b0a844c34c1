"""What a report says, cut into findings: each is a name and a value, or silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dipstick.phases import WAIT_PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dipstick.judgement import Check, Claim
    from dipstick.model import Report

CLAIMS: Final = (
    "transfers_force_waiting",
    "high_utilization_means_work",
    "phase_utilization phase=generate at_least=85",
)
"""Claims to be judged along with every scenario."""

FOUND: Final = frozenset({"yes", "partially"})
WORTH_SAYING: Final = 0.03
HANDS: Final = 3
"""Spikes without an owner that one process must be seen at before it is named."""


def read(report: Report) -> dict[str, str]:
    """Every finding's value; empty where the report is silent."""
    return {name: say(report) for name, (_, say) in FINDINGS.items()}


def _check(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def _claim(report: Report, test: str) -> Claim:
    return next(claim for claim in reversed(report.claims) if claim.test == test)


def _dips(report: Report) -> str:
    return report.answer.dips_are


def _locked(report: Report) -> str:
    return "yes" if _check(report, "alignment").verdict.word in FOUND else ""


def _rank(report: Report) -> str:
    rows = _check(report, "stragglers").facts["last_arrivers"]
    return ", ".join(f"rank {row['rank']}" for row in rows if row["verdict"] == "yes")


def _worker(report: Report) -> str:
    rows = _check(report, "stragglers").facts["slow_workers"]
    return ", ".join(f"pid {row['pid']}" for row in rows if row["verdict"] == "yes")


def _job(report: Report) -> str:
    return "yes" if _check(report, "stragglers").verdict.word == "yes" else ""


def _waits(report: Report) -> str:
    rows = report.phases.totals if report.phases else ()
    waited = sum(row.seconds for row in rows if row.phase in WAIT_PHASES)
    return "yes" if waited >= WORTH_SAYING * sum(row.seconds for row in rows) > 0 else ""


def _hollow(report: Report) -> str:
    return "yes" if _claim(report, "high_utilization_means_work").verdict.word in {"no", "partially"} else ""


def _copies(report: Report) -> str:
    return "yes" if _claim(report, "transfers_force_waiting").verdict.word in FOUND else ""


def _spikes(report: Report) -> str:
    """Events blamed for spikes; weight sync belongs to the step's anatomy and is no finding."""
    rows = _check(report, "memory_spikes").facts["candidates"] or ()
    blamed = {" or ".join(sorted([row["event"], *row["twins"]])) for row in rows if row["verdict"] in FOUND}
    return ", ".join(sorted(blamed - {"weight_sync"}))


def _unowned(report: Report) -> str:
    """Who was seen at the spikes that match nothing, besides the trainer; "nobody" if it was always alone."""
    facts = _check(report, "memory_spikes").facts
    if not facts["unexplained"]:
        return ""
    seen: dict[int, int] = {}
    for spike in facts["unexplained_spikes"]:
        for process in spike["running"]:
            if process["role"] != "trainer+engine":
                seen[process["pid"]] = seen.get(process["pid"], 0) + 1
    often = sorted(pid for pid, count in seen.items() if count >= HANDS)
    return ", ".join(f"pid {pid}" for pid in often) or "nobody"


def _drift(report: Report) -> str:
    return "yes" if _check(report, "trends").verdict.word in FOUND else ""


def _plateau(report: Report) -> str:
    return "low" if _claim(report, "phase_utilization").verdict.word == "no" else ""


def _unsure(report: Report) -> str:
    """What can't be told for want of a signal, finer samples, or steps in which two causes are apart."""
    asked: Mapping[str, Any] = {
        "copies": _claim(report, "transfers_force_waiting").verdict,
        "hollow": _claim(report, "high_utilization_means_work").verdict,
        "level": _claim(report, "phase_utilization").verdict,
        "spikes": _check(report, "memory_spikes").verdict,
        "stragglers": _check(report, "stragglers").verdict,
    }
    wanting = {"COARSE", "MISSING_SIGNAL", "SPINNING"}
    unsure = [
        f"{name} {v.reason}" for name, v in asked.items() if v.word == "unconfirmed" and v.reason in wanting
    ]
    rows = _check(report, "memory_spikes").facts["candidates"] or ()
    return ", ".join(
        unsure + [f"{row['event']} {row['reason']}" for row in rows if row["reason"] == "COLLINEAR"]
    )


FINDINGS: Final[Mapping[str, tuple[str, Callable[[Report], str]]]] = {
    "dips": ("what the dips are", _dips),
    "locked": ("the dips are tied to the step", _locked),
    "rank": ("one rank is the straggler", _rank),
    "worker": ("one reward worker is slow", _worker),
    "job": ("the longest job sets the dips", _job),
    "waits": ("ranks wait for each other", _waits),
    "hollow": ("much of what reads as busy is no work", _hollow),
    "copies": ("bus copies take the time", _copies),
    "spikes": ("an event makes memory spikes", _spikes),
    "unowned": ("spikes that match nothing, and who was there", _unowned),
    "drift": ("the run changes as it goes", _drift),
    "plateau": ("generation reads low", _plateau),
    "unsure": ("said to be untellable, and why", _unsure),
}
"""Name -> what it says, and how it is read from a report."""
