"""The JSON contract of design.md section 5: scripts and agents rely on every key."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from builders import empty_report, gpus_only_report, hostile_report, judged_report, many_report, tiny_report
from dipstick.show.json import document, plain, render

NUMBER = (int, float)
TEXT = str
NULL = type(None)


def maybe(*kinds: type) -> tuple[type, ...]:
    return (*kinds, NULL)


INTERVAL = {
    "run": {
        "start_unix_ns": int, "seconds": NUMBER, "window_s": [NUMBER], "gpus": int, "ranks": int, "steps": int, "hosts": int,
        "origin": TEXT, "sampling": {"period_s": maybe(*NUMBER), "smallest_visible_dip_s": maybe(*NUMBER)},
        "overhead": maybe(dict),
    },
}  # fmt: skip
STATES = {
    "gpu": int, "compute_s": NUMBER, "light_s": NUMBER, "spinning_s": NUMBER, "copying_bus_s": NUMBER,
    "copying_device_s": NUMBER, "waiting_or_bus_copy_s": NUMBER, "idle_s": NUMBER, "unknown_s": NUMBER, "hollow_s": NUMBER,
}  # fmt: skip
PHASE_ROW = {
    "rank": maybe(int), "phase": TEXT, "seconds": NUMBER, "share": NUMBER, "count": int, "util_mean_pct": maybe(*NUMBER),
    "hollow_s": maybe(*NUMBER), "parts": [{"name": TEXT, "seconds": NUMBER, "count": int}],
}  # fmt: skip
CONTRACT: dict[str, Any] = {
    "schema_version": int,
    **INTERVAL,
    "answer": {"headline": TEXT, "longest_phase": maybe(TEXT), "paid_most_for": maybe(TEXT), "dips_are": TEXT},
    "states": [STATES],
    "states_all": [STATES],
    "dips": [{
        "gpu": maybe(int), "start_s": NUMBER, "end_s": NUMBER, "depth_pct": NUMBER, "phase": maybe(TEXT),
        "boundary_lag_s": maybe(*NUMBER), "series": TEXT,
    }],
    "checks": {
        "trends": {"verdict": maybe(TEXT), "why": maybe(TEXT), "receipts": maybe(list)},
        "alignment": {
            "verdict": maybe(TEXT), "why": maybe(TEXT), "p_value": maybe(*NUMBER), "effect": maybe(*NUMBER),
            "interval": maybe(list), "receipts": maybe(list),
        },
        "phases": {
            "verdict": maybe(TEXT), "rows": [PHASE_ROW], "longest": maybe(TEXT),
            "critical_path": [{"phase": TEXT, "seconds": maybe(*NUMBER)}], "what_if": maybe(list),
        },
        "memory_spikes": {
            "verdict": maybe(TEXT), "spikes": maybe(list), "candidates": maybe(list), "unexplained": maybe(int),
        },
        "stragglers": {
            "verdict": maybe(TEXT), "correlation": maybe(*NUMBER), "interval": maybe(list), "wait_gpu_s": maybe(*NUMBER),
            "driver": maybe(TEXT), "slots_busy": maybe(*NUMBER),
            "by_rank": [{"rank": int, "last_in_steps": int, "waited_s": NUMBER}],
            "by_worker": [{"pid": int, "rank": int, "jobs": int, "busy_s": NUMBER, "last_in_steps": int}],
            "what_if": {"no_straggler_step_speedup": maybe(*NUMBER)},
        },
    },
    "claims": maybe(list),
    "tenants": [{"gpu": int, "pid": int, "role": TEXT, "util_mean_pct": maybe(*NUMBER), "mem_used_b": maybe(int)}],
    "missing": [{"signal": TEXT, "needed_for": TEXT, "how_to_get_it": TEXT}],
}  # fmt: skip


def breaches(value: Any, contract: Any, path: str = "") -> list[str]:
    """Where a document departs from a contract: missing keys and wrong types. A list may be null."""
    if isinstance(contract, dict):
        if not isinstance(value, dict):
            return [f"{path}: no object"]
        absent = [f"{path}.{key}: missing" for key in contract if key not in value]
        inner = (
            breaches(value[key], part, f"{path}.{key}") for key, part in contract.items() if key in value
        )
        return [*absent, *(breach for found in inner for breach in found)]
    if isinstance(contract, list):
        if value is None:
            return []
        return [b for i, item in enumerate(value) for b in breaches(item, contract[0], f"{path}[{i}]")]
    return [] if isinstance(value, contract) else [f"{path}: {type(value).__name__}"]


@pytest.mark.parametrize(
    "make", [tiny_report, judged_report, empty_report, gpus_only_report, hostile_report, many_report]
)
def test_every_key_of_the_contract_is_there(make: object) -> None:
    """Also where there is nothing to say: then with null."""
    assert callable(make)
    assert breaches(json.loads(render(make())), CONTRACT) == []


def test_the_contract_check_sees_a_missing_key_and_a_wrong_type() -> None:
    """A test of the test: it can fail."""
    found = json.loads(render(tiny_report()))
    del found["checks"]["phases"]["rows"][0]["share"]
    found["claims"] = 3
    assert breaches(found, CONTRACT) == [".checks.phases.rows[0].share: missing", ".claims: int"]


def test_what_was_not_judged_is_null() -> None:
    """Present, so that a script can ask for it; null, because nobody has computed it."""
    found = document(tiny_report())
    for name in ("alignment", "memory_spikes", "trends"):
        assert set(found["checks"][name].values()) == {None}
    assert found["checks"]["phases"]["what_if"] is None
    assert found["checks"]["stragglers"]["driver"] is None
    assert found["checks"]["stragglers"]["what_if"] == {"no_straggler_step_speedup": None}
    assert found["claims"] is None


def test_without_spans_the_phases_and_stragglers_are_null_but_their_keys_are_there() -> None:
    """A GPU log alone."""
    checks = document(gpus_only_report())["checks"]
    assert checks["phases"]["rows"] is None
    assert checks["stragglers"]["by_rank"] is None


def test_the_values_are_those_of_the_report() -> None:
    """Seconds, GPU-seconds, percent 0 to 100."""
    found = document(tiny_report())
    assert found["run"]["window_s"] == [1.0, 21.0]
    assert found["states"][0]["spinning_s"] == found["states"][0]["hollow_s"] == 4.0
    assert found["states"][0]["busy_s"] == 14.0
    assert found["dips"][1] == {
        "host": "node1", "gpu": 1, "start_s": 6.2, "end_s": 10.2, "depth_pct": 84.0, "baseline_pct": 99.0,
        "deficit_gpu_s": 2.5, "phase": "reward", "boundary": "reward", "boundary_lag_s": 0.2, "series": "utilization",
        "scope": "job",
    }  # fmt: skip
    assert found["job_dips"][0]["gpu"] is None
    assert found["checks"]["phases"]["critical_path"][0] == {"phase": "generate", "seconds": 10.0}
    assert found["checks"]["phases"]["waits"][0]["because"] == "reward"
    assert found["checks"]["stragglers"]["by_rank"][1] == {
        "rank": 1, "last_in_steps": 2, "waited_s": 0.0, "blame_s": 4.0,
    }  # fmt: skip
    assert found["checks"]["stragglers"]["jobs"] == {
        "count": 64,
        "median_s": 0.12,
        "p99_s": 1.8,
        "max_s": 1.9,
    }


def test_nan_and_infinity_are_null() -> None:
    """JSON has neither; a parser that is strict must not fail."""
    text = render(hostile_report())
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert document(hostile_report())["dips"][0]["boundary_lag_s"] is None


def test_the_text_is_ascii_so_that_any_terminal_and_file_can_hold_it() -> None:
    """Half a surrogate pair in a recorded string becomes U+FFFD."""
    text = render(hostile_report())
    assert text.isascii()
    assert json.loads(text)["run"]["name"].endswith("\ufffd")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1.0, np.nan]), [1.0, None]),
        (float("-inf"), None),
        (0.123456789, 0.123457),
        ((1, {2: "x"}), [1, {"2": "x"}]),
        ("half \ud83d", "half \ufffd"),
        (None, None),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_plain_values(value: Any, expected: Any) -> None:
    """Whatever an analysis puts into `extra` can be written."""
    assert plain(value) == expected
