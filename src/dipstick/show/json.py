"""The report as JSON: the stable keys that scripts and agents rely on (docs: "JSON contract").

Seconds are floats since the recording's start, percent is 0-100. A key of something that does not exist
yet or could not be computed is there with ``null``; NaN and infinity become ``null``, too.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dipstick.model import Breakdown, Dip, GpuStates, PhaseRow, Report, RunInfo, Stragglers

SCHEMA_VERSION = 1


def render(report: Report) -> str:
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
            "checks": {
                "alignment": dict.fromkeys(("verdict", "why", "p_value", "effect", "interval", "receipts")),
                "phases": _phases(report.phases),
                "memory_spikes": dict.fromkeys(("verdict", "spikes", "candidates", "unexplained")),
                "stragglers": _stragglers(report.stragglers),
            },
            "claims": None,
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
        "overhead": run.overhead,
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


def _phases(found: Breakdown | None) -> dict[str, Any]:
    keys = ("verdict", "rows", "totals", "waits", "longest", "paid_most_for", "critical_path", "what_if")
    empty: dict[str, Any] = dict.fromkeys(keys)
    if found is None:
        return empty
    return empty | {
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


def _stragglers(found: Stragglers | None) -> dict[str, Any]:
    keys = (
        "verdict",
        "correlation",
        "interval",
        "wait_gpu_s",
        "driver",
        "slots_busy",
        "by_rank",
        "by_worker",
    )
    empty: dict[str, Any] = dict.fromkeys(keys) | {"what_if": {"no_straggler_step_speedup": None}}
    if found is None:
        return empty
    jobs = {
        "count": found.jobs,
        "median_s": found.job_median_s,
        "p99_s": found.job_p99_s,
        "max_s": found.job_max_s,
    }
    return empty | {
        "wait_gpu_s": found.wait_gpu_s,
        "slots_busy": found.slots_busy,
        "slots": found.slots,
        "steps": found.steps,
        "by_rank": [asdict(row) for row in found.by_rank],
        "by_worker": [asdict(row) for row in found.by_worker],
        "arrivals": [asdict(row) for row in found.arrivals],
        "jobs": jobs,
    }
