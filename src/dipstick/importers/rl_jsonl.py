"""Metrics as JSON lines: verl's file logger, prime-rl's FileMonitor, and what HF's and TRL's users write themselves.

``{"step": 1, "data": {…}}``; ``{"step": 1, "time": …, "time/step": …}``; ``{"step": 1, "loss": …}``, with a time under one of
several names, or none.
"""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.chunks import chunks
from dipstick.importers.rl_text import FIRST_S, LAST_S, PIECE
from dipstick.importers.step_clock import SAYS, StepClock
from dipstick.importers.text import json_object
from dipstick.importers.training_keys import binding_of
from dipstick.importers.training_rows import LogRow, TrainingRows
from dipstick.importers.unix import unix_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "rl-jsonl"
NAME: Final = "metrics as JSON lines (verl file logger, prime-rl, HF and TRL: step, and data or numbers)"

_LARGEST: Final = 2**63
_TIMES: Final = ("time", "timestamp", "_timestamp")
_OWN: Final = frozenset({"name", "event", "phase", "job", "t0", "start"})
"""Members of spans, events and jobs: those lines are somebody's own records."""


def sniff(head: Head) -> float:
    """The first line is such an object."""
    if head.is_dir or not head.lines or not head.text.lstrip().startswith("{"):
        return 0.0
    first = json_object(head.lines[0])
    if first is None or step_of(first) is None:
        return 0.0
    if isinstance(first.get("data"), dict):
        return 0.9
    told = () if _OWN & first.keys() else _metrics(first)
    if time_of(first) is not None and any("/" in key for key in told):
        return 0.9
    return 0.7 if any(binding_of(key).sure != "unrecognised" for key in told) else 0.0


def step_of(row: dict[str, Any]) -> int | None:
    """The step number, None if there is none that can be one."""
    step = row.get("step")
    is_number = (
        isinstance(step, int | float)
        and not isinstance(step, bool)
        and isfinite(min(max(step, -_LARGEST), _LARGEST))
    )
    return (
        int(step) if is_number and step is not None and 0 <= step < _LARGEST and int(step) == step else None
    )


def time_of(row: dict[str, Any]) -> int | None:
    """Nanoseconds of its Unix time, a number or ISO 8601 (without a zone: UTC); None if there is none that can be one."""
    at = next((row[key] for key in _TIMES if key in row), None)
    if isinstance(at, str):
        try:
            ns = unix_ns(datetime.fromisoformat(at))
        except (ValueError, OverflowError):
            return None
        return ns if FIRST_S <= ns / 1e9 < LAST_S else None
    if isinstance(at, bool) or not isinstance(at, int | float) or not FIRST_S <= at < LAST_S:
        return None
    return round(at * 1e9)


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """Finite numbers among its members."""
    found = ((key, float(value)) for key, value in row.items()
             if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1000)  # fmt: skip
    return {key: value for key, value in found if isfinite(value) and len(key) <= 300}  # noqa: PLR2004 - a key


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - every importer is given them
    """Read every line; times are prime-rl's own, verl's are the sum of the steps.

    Raises:
        ImportFormatError: No line is such a row.
    """
    rows: TrainingRows | None = None
    clock: StepClock | None = None
    for row in _rows(path, sink):
        if rows is None:
            clock = StepClock(runs="data" in row) if time_of(row) is None else None
            sink.clock("unix" if clock is None else "relative")
            rows = TrainingRows(sink)
        sink.saw(1)
        step, values = step_of(row), _metrics(row)
        at = time_of(row) if clock is None else clock.at(step, values)
        if at is None and clock is None:
            sink.drop("no time stamp before the row", 1)
        else:
            rows.add(LogRow(at, step, values))
    if rows is None:
        raise ImportFormatError("no line is a row of metrics.", where=str(path),
                                fix='Rows are {"step": 1, "data": {…}} or {"step": 1, "loss": …}, with a "time" if there is one.')  # fmt: skip
    rows.close()
    if clock is not None:
        none = "it has neither times nor step_time: numbers by step only, no time axis"
        sink.note("warning", f"{sink.file}: {SAYS if clock.is_running else none}")


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    """Numbers of verl's ``data``, or of the row itself."""
    inner = row.get("data")
    return numbers(
        inner if isinstance(inner, dict) else {k: v for k, v in row.items() if k not in {"step", *_TIMES}}
    )


def _rows(path: Path, sink: Sink) -> Iterator[dict[str, Any]]:
    """Objects that have a step; others are counted."""
    for data, done in chunks(
        path, size=PIECE, damage=lambda why: sink.note("warning", f"{sink.file}: {why}")
    ):
        for line in data.split(b"\n"):
            row = json_object(line) if line.strip() else None
            if row is not None and step_of(row) is not None:
                yield row
            elif line.strip():
                sink.saw(1)
                sink.drop("no JSON object with a step on the line", 1)
        sink.progress(done)
