"""The report as JSON: the stable keys that scripts and agents rely on (docs: "JSON contract").

Seconds are floats since the recording's start, percent is 0-100. A key of something that does not exist
yet or could not be computed is there with ``null``; NaN and infinity become ``null``, too.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dipstick.show.receipts import as_json, run_word

if TYPE_CHECKING:
    from dipstick.judgement import Check, Claim, Receipt, Verdict
    from dipstick.model import Breakdown, Dip, GpuStates, PhaseRow, Report, RunInfo, Stragglers
    from dipstick.show.recorded import Recorded

SCHEMA_VERSION = 1


def render(report: Report, _recording: Recorded | None = None) -> str:
    """The whole document, indented, keys in the contract's order."""
    return json.dumps(document(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The same as plain dicts and lists."""
    found: dict[str, Any] = plain(
        {
            "schema_version": SCHEMA_VERSION,
            "run": _run(report.run),
            "answer": asdict(report.answer),
            "states": [_states(s) for s in report.states],
            "states_all": [_states(s) for s in report.states_all],
            "dips": [_dip(d) for d in report.dips],
            "job_dips": [_dip(d) for d in report.job_dips],
            "checks": _checks(report),
            "claims": [_claim(claim, run_word(report)) for claim in report.claims] or None,
            "tenants": [asdict(t) for t in report.tenants],
            "missing": [asdict(m) for m in report.missing],
            "notes": [asdict(n) for n in report.notes],
            "extra": report.extra,
        }
    )
    return found


def plain(value: Any) -> Any:
    """Only what JSON has: tuples become lists, keys strings, numpy numbers numbers, NaN and infinity null.

    Half surrogates in recorded strings become U+FFFD, because no UTF-8 file can hold them.
    """
    if isinstance(value, dict):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return value
    return _number(value)


def _text(value: str) -> str:
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(value: Any) -> Any:
    """Floats to a microsecond; numpy scalars and arrays by their ``tolist``; anything else as text."""
    if isinstance(value, float):
        return round(float(value), 6) if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return _text(str(value))


def _run(run: RunInfo) -> dict[str, Any]:
    keys = ("start_unix_ns", "seconds", "window_s", "gpus", "ranks", "steps", "hosts", "origin")
    sampling = {key: getattr(run.sampling, key) for key in ("period_s", "smallest_visible_dip_s")}
    return {
        "name": run.name,
        **{key: getattr(run, key) for key in keys},
        "sampling": sampling | asdict(run.sampling),
        "overhead": None if run.overhead is None else asdict(run.overhead),
        "gpu_names": run.gpu_names,
        "unused_gpus": run.unused_gpus,
    }


def _states(states: GpuStates) -> dict[str, Any]:
    return {
        "gpu": states.gpu,
        "host": states.host,
        **{f"{name}_s": value for name, value in states.seconds.items()},
        "hollow_s": states.hollow_s,
        "busy_s": states.busy_s,
        "recorded_s": states.recorded_s,
        "util_mean_pct": states.util_mean_pct,
        "used": states.used,
        "idle_power_w": states.idle_power_w,
        "method": states.method,
    }


def _dip(dip: Dip) -> dict[str, Any]:
    return asdict(dip)


_JUDGED = ("verdict", "why", "p_value", "effect", "interval", "reason", "min_detectable", "steps_needed",
           "experiment", "receipts")  # fmt: skip
"""Keys of every check and (with ``because`` for ``why``) of every claim."""

_OWN: dict[str, tuple[str, ...]] = {
    "alignment": (),
    "phases": ("rows", "totals", "waits", "longest", "paid_most_for", "critical_path", "what_if"),
    "memory_spikes": ("spikes", "candidates", "unexplained"),
    "stragglers": ("correlation", "wait_gpu_s", "driver", "slots_busy", "by_rank", "by_worker", "what_if"),
    "trends": (),
}  # fmt: skip


def _checks(report: Report) -> dict[str, Any]:
    """Every check of the contract, judged or not; what the breakdown counted stands beside what was judged."""
    run = run_word(report)
    found = {check.name: check for check in report.checks}
    counted = {"phases": _phases(report.phases), "stragglers": _stragglers(report.stragglers)}
    return {
        name: _check(found.get(name), counted.get(name, {}), _OWN.get(name, ()), run)
        for name in dict.fromkeys((*_OWN, *found))
    }


def _check(check: Check | None, counted: dict[str, Any], own: tuple[str, ...], run: str) -> dict[str, Any]:
    """Null for every key that neither was counted nor judged. ``steps`` of a test are ``steps_tested``."""
    empty = {**dict.fromkeys((*_JUDGED, *own)), **counted}
    if check is None:
        return empty
    facts = {("steps_tested" if key == "steps" else key): value for key, value in check.facts.items()}
    known = {key: value for key, value in facts.items() if value is not None or key not in counted}
    return {**empty, **_verdict(check.verdict, check.receipts, run), **known}


def _claim(claim: Claim, run: str) -> dict[str, Any]:
    judged = _verdict(claim.verdict, claim.receipts, run)
    because = judged.pop("why")
    verdict = judged.pop("verdict")
    named = {"say": claim.say, "test": claim.test, "parameters": claim.parameters}
    return {**named, "verdict": verdict, "because": because, **judged}


def _verdict(verdict: Verdict, receipts: tuple[Receipt, ...], run: str) -> dict[str, Any]:
    values = (
        str(verdict.word), verdict.because, verdict.p, verdict.effect, verdict.interval, verdict.reason and str(verdict.reason),
        verdict.min_detectable, verdict.steps_needed, verdict.cheapest_experiment or None,
        [as_json(receipt, run) for receipt in receipts],
    )  # fmt: skip
    return dict(zip(_JUDGED, values, strict=True))


def _phases(found: Breakdown | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "rows": [_phase_row(row) for row in found.rows],
        "totals": [_phase_row(row) for row in found.totals],
        "waits": [asdict(wait) for wait in found.waits],
        "longest": found.longest,
        "paid_most_for": found.paid_most_for,
        "critical_path": [{"phase": phase, "seconds": seconds} for phase, seconds in found.critical_path],
    }


def _phase_row(row: PhaseRow) -> dict[str, Any]:
    states = None if row.states is None else {f"{name}_s": s for name, s in row.states.items()}
    return asdict(row) | {"states": states}


_NO_WHAT_IF: dict[str, Any] = {"no_straggler_step_speedup": None}


def _stragglers(found: Stragglers | None) -> dict[str, Any]:
    if found is None:
        return {"what_if": _NO_WHAT_IF}
    jobs = {
        "count": found.jobs,
        "median_s": found.job_median_s,
        "p99_s": found.job_p99_s,
        "max_s": found.job_max_s,
    }
    return {
        "what_if": _NO_WHAT_IF,
        "wait_gpu_s": found.wait_gpu_s,
        "slots_busy": found.slots_busy,
        "slots": found.slots,
        "steps": found.steps,
        "by_rank": [asdict(row) for row in found.by_rank],
        "by_worker": [asdict(row) for row in found.by_worker],
        "arrivals": [asdict(row) for row in found.arrivals],
        "jobs": jobs,
    }
