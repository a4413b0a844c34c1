"""``trainer_state.json`` of HF Trainer and TRL: the log's numbers by step, without times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import check_bound
from dipstick.importers.step_clock import StepClock
from dipstick.importers.text import fitting
from dipstick.importers.training_rows import LogRow, TrainingRows

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "trainer-state"
NAME: Final = "trainer_state.json (HF Trainer, TRL)"
LARGEST: Final = 512 << 20
"""A state of a million rows is smaller."""

_MARKS: Final = ('"log_history"', '"global_step"', '"best_metric"', '"is_world_process_zero"', '"max_steps"')


def sniff(head: Head) -> float:
    """The members that HF writes; the name alone is a hint."""
    text = head.text.lstrip()
    marks = sum(mark in text for mark in _MARKS) if text.startswith("{") else 0
    return 0.95 if marks >= 2 else 0.5 if head.path.name == "trainer_state.json" and text else 0.0  # noqa: PLR2004


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - an importer's signature
    """Read ``log_history``; where it has ``step_time`` its sum is the clock.

    Raises:
        ImportFormatError: It is no JSON, has no ``log_history``, or no number in it is known.
    """
    sink.clock("relative")
    every = _every(state := _state(path))
    rows, clock, first = TrainingRows(sink, every=every), StepClock(every), True
    for entry in _history(state, str(path)):
        sink.saw(1)
        row = _row(entry)
        if row is None:
            sink.drop("entry without a number", 1)
            continue
        rows.add(LogRow(clock.at(row.step, row.values), row.step, row.values))
        first = False
    if first:
        raise ImportFormatError("its log_history has no number.", where=str(path),
                                fix="Take the trainer_state.json of a later checkpoint.")  # fmt: skip
    rows.close()
    check_bound(str(path), sink.account.bindings)
    _say(sink, clock)
    sink.progress(path.stat().st_size)


def _say(sink: Sink, clock: StepClock) -> None:
    """What its clock is, or that there is none."""
    if clock.is_running:
        sink.fact(step_time_s=clock.ns / 1e9)
        sink.note("warning", f"{sink.file}: it holds no times: the clock is the sum of step_time, which leaves out the optimizer, "
                  "evaluation, saving, logging and data loading, so it runs slow; a console log or W&B file has times")  # fmt: skip
    else:
        sink.note("warning", f"{sink.file}: it has neither times nor step_time (TRL logs it since 0.26): numbers by step only, no time axis; "
                  "a console log or a W&B or TensorBoard file has times")  # fmt: skip


def _state(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST:
        raise ImportFormatError("it is larger than any trainer state (512 MiB).", where=str(path))
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ImportFormatError(
            f"it is no whole JSON: {str(error)[:200]}.",
            where=str(path),
            fix="Copy it again, or take that of an earlier checkpoint.",
        ) from error
    return state if isinstance(state, dict) else {}


def _every(state: dict[str, Any]) -> int:
    """Steps that the first row stands for."""
    every = fitting(state.get("logging_steps"), pl.Int64)
    return every if isinstance(every, int) and every > 0 else 1


def _history(state: dict[str, Any], where: str) -> list[Any]:
    history = state.get("log_history")
    if not isinstance(history, list):
        raise ImportFormatError("it has no log_history.", where=where, fix="HF Trainer writes trainer_state.json into each checkpoint.")  # fmt: skip
    return history


def _row(entry: object) -> LogRow | None:
    """Step and numbers of an entry; None if it has none."""
    if not isinstance(entry, dict):
        return None
    step = fitting(entry.get("step"), pl.Int64)
    values = {
        str(k): v for k, x in entry.items() if k != "step" and isinstance(v := fitting(x, pl.Float64), float)
    }
    return LogRow(None, step if isinstance(step, int) else None, values) if values else None
