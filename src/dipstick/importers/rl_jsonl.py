"""Metrics as JSON lines: verl's file logger (``{"step": 1, "data": {…}}``) and prime-rl's FileMonitor (``step``, ``time``)."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.chunks import chunks
from dipstick.importers.rl_text import FIRST_S, LAST_S, PIECE
from dipstick.importers.step_clock import SAYS, StepClock
from dipstick.importers.text import json_object
from dipstick.importers.training_rows import LogRow, TrainingRows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "rl-jsonl"
NAME: Final = "verl file logger, prime-rl metrics (JSON lines with step and data, or step and time)"

_LARGEST: Final = 2**63


def sniff(head: Head) -> float:
    """The first line is such an object."""
    if head.is_dir or not head.lines or not head.text.lstrip().startswith("{"):
        return 0.0
    first = json_object(head.lines[0])
    if first is None or step_of(first) is None:
        return 0.0
    timed = time_of(first) is not None and "name" not in first
    metrics = any("/" in key and isinstance(value, int | float) for key, value in first.items())
    return 0.9 if isinstance(first.get("data"), dict) or (timed and metrics) else 0.0


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
    """Nanoseconds of its Unix time."""
    at = row.get("time")
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
            clock = StepClock(runs=True) if time_of(row) is None else None
            sink.clock("unix" if clock is None else "relative")
            rows = TrainingRows(sink)
        sink.saw(1)
        step, values = step_of(row), _metrics(row)
        at = time_of(row) if clock is None else clock.at(step, values)
        if at is None:
            sink.drop("no time stamp before the row", 1)
        else:
            rows.add(LogRow(at, step, values))
    if rows is None:
        raise ImportFormatError("no line is a row of metrics.", where=str(path),
                                fix='Rows are {"step": 1, "data": {…}} (verl) or {"step": 1, "time": …} (prime-rl).')  # fmt: skip
    rows.close()
    if clock is not None:
        sink.note("warning", f"{sink.file}: {SAYS}")


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    """Numbers of verl's ``data``, or of the row itself."""
    inner = row.get("data")
    return numbers(
        inner if isinstance(inner, dict) else {k: v for k, v in row.items() if k not in {"step", "time"}}
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
