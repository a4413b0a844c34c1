"""Rows that a training run logged, into the tables: numbers as scalars, and as spans what their keys say was timed.

* ``profiling/Time taken: X`` (TRL): [time of logging - value, time of logging]: measured, on rank 0 only, nested.
* ``step_time`` (TRL): a mean over the steps since the last row, which end when the row was logged: reconstructed.
* ``timing_s/gen`` and the like: totals of a step, laid out by ``timings.py``: reconstructed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.importers import timings, training_keys
from dipstick.importers.binding import Binding
from dipstick.importers.timing_keys import TIMINGS
from dipstick.importers.timings import LONGEST_S, LaidRows
from dipstick.importers.training_keys import PROFILING, STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.importers.base import Sink

MOST_KEYS: Final = 100_000
MOST_STEPS: Final = 10_000
"""More steps between two rows than that are a gap in the log, not a mean."""
_BATCH: Final = 50_000
_SCALARS: Final = {"t_ns": pl.Int64, "step": pl.Int64, "name": pl.String, "value": pl.Float64}
_SPANS: Final = {
    "rank": pl.Int32, "t0_ns": pl.Int64, "t1_ns": pl.Int64, "name": pl.String, "step": pl.Int64, "origin": pl.String,
    "detail": pl.String,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row that a training run logged.

    Attributes:
        t_ns: When it was logged, in nanoseconds on the file's clock; None: not known.
        step: The trainer's step; None: not known.
        values: Numbers by key.
    """

    t_ns: int | None
    step: int | None
    values: Mapping[str, float]


class TrainingRows:
    """Takes rows in the order in which they were logged; the clock of the sink is set by whoever reads them.

    Args:
        sink: Where they go.
        file: What messages call the file; the sink's own name if empty.
        exact: A row's time is when it was logged; False: only about (progress bar, rows sent in batches), so that
            even a single call is only reconstructed.
        every: Steps that the first row stands for (``logging_steps``).
        edges: Make spans of ``step_time``; False where something better shows the steps' edges.
    """

    def __init__(
        self, sink: Sink, *, file: str = "", exact: bool = True, edges: bool = True, every: int = 1
    ) -> None:
        self._sink, self._exact, self._edges, self._every = sink, exact, edges, every
        self._file = file or sink.file
        self._keys: dict[str, None] = {}
        self._scalars: list[tuple[int | None, int | None, str, float]] = []
        self._spans: list[tuple[int, int, int, str, int | None, str, str | None]] = []
        self._laid = LaidRows(sink)
        self._placed: set[str] = set()
        self._last: int | None = None
        self._last_ns: int | None = None
        self._last_step: int | None = None
        self._calls = self._steps = self._means = self._back = self._again = 0

    def add(self, row: LogRow) -> None:
        """Take one row; numbers that are none (NaN, infinite) are counted and left out."""
        values = {key: value for key, value in row.values.items() if isfinite(value)}
        self._sink.drop("number that is NaN or infinite", len(row.values) - len(values))
        for key, value in values.items():
            if key in self._keys or len(self._keys) < MOST_KEYS:
                self._keys[key] = None
                self._scalars.append((row.t_ns, row.step, key, value))
            else:
                self._sink.drop(f"number of a key beyond the first {MOST_KEYS:,}", 1)
        if row.step is not None:
            self._again += self._last_step is not None and row.step < self._last_step
            self._last_step = row.step
        if row.t_ns is not None:
            self._timed(row.t_ns, row.step, values)
        if len(self._scalars) + len(self._spans) >= _BATCH:
            self._write()

    def _timed(self, t_ns: int, step: int | None, values: dict[str, float]) -> None:
        """Spans of a row that has a time."""
        self._back += self._last_ns is not None and t_ns < self._last_ns
        calls = [
            (m[1], v) for key, v in values.items() if (m := PROFILING.fullmatch(key)) and 0 <= v < LONGEST_S
        ]
        origin = "measured" if len(calls) == 1 and self._exact else "reconstructed"
        for name, taken in calls:  # one row a call; several in one row did not all end at its time
            self._spans.append((0, t_ns - round(taken * 1e9), t_ns, name, step, origin, None))
        self._calls += len(calls)
        seconds = next((values[key] for key in STEP_TIME if key in values), None)
        if seconds is not None and 0 < seconds < LONGEST_S and self._edges:
            self._step_edges(t_ns, step, seconds)
        elif self._laid.add(t_ns, step, values):
            self._placed |= values.keys() & TIMINGS.keys()
        self._last_ns = t_ns

    def _step_edges(self, t_ns: int, step: int | None, seconds: float) -> None:
        """The steps that a mean stands for, end to end, the last one ending when it was logged."""
        many = steps_of(step, self._last, self._every)
        length = round(seconds * 1e9)
        detail = f"mean of {many} steps" if many > 1 else None
        for back in range(many - 1, -1, -1):
            number = None if step is None else step - back
            end = t_ns - back * length
            self._spans.append((0, end - length, end, "step", number, "reconstructed", detail))
        self._steps += many
        self._means += many if many > 1 else 0
        self._last = step if step is not None else self._last

    def close(self) -> None:
        """Write what is left, bind every key, and say what the spans rest on."""
        self._write()
        self._laid.close()
        found = [self._binding(key) for key in self._keys]
        self._sink.bind(*sorted(found, key=lambda binding: not binding.meaning.startswith("span")))
        if self._calls or self._steps:
            person = {"role": ["trainer"], "rank": [0], "source": ["log"]}
            self._sink.rows("processes", pl.DataFrame(person, schema_overrides={"rank": pl.Int32}))
        self._say()

    def _binding(self, key: str) -> Binding:
        """What the key became: a part of a step that was laid out nowhere is no span."""
        if key in TIMINGS and key not in self._placed:
            return Binding(
                key, "scalar", "s", why="not laid out: step_time tells the steps, or rows have no times"
            )
        return timings.binding_of(key) or training_keys.binding_of(key)

    def _say(self) -> None:
        """What the reader must know of these spans."""
        if self._calls:
            self._sink.note("info", f"{self._file}: {self._calls:,} timed calls (profiling/*) are of rank 0 only: what other ranks did, and waits "
                            "between ranks, is missing; dipstick run records every rank")  # fmt: skip
        if self._steps:
            self._sink.note("warning", f"{self._file}: {self._steps:,} steps are reconstructed from step_time: it leaves out the optimizer, logging, "
                            "evaluation, saving and data loading, so edges are early or late by as much")  # fmt: skip
        if self._means:
            self._sink.note("warning", f"{self._file}: {self._means:,} steps have only a mean step_time (logging_steps > 1): single steps, and their "
                            "spread, can't be known; log every step (logging_steps=1)")  # fmt: skip
        if self._back:
            self._sink.note("warning", f"{self._file}: time goes back {self._back:,} times between rows: the clock was set, or the run restarted")  # fmt: skip
        if self._again:
            self._sink.note("info", f"{self._file}: step numbers go back {self._again:,} times: the run was restarted, its log goes on")  # fmt: skip

    def _write(self) -> None:
        scalars, spans = self._scalars, self._spans
        self._scalars, self._spans = [], []
        if scalars:
            frame = pl.DataFrame(scalars, schema=_SCALARS, orient="row")
            self._sink.rows("scalars", frame if frame["t_ns"].count() else frame.drop("t_ns"))
        if spans:
            self._sink.rows("spans", pl.DataFrame(spans, schema=_SPANS, orient="row"))


def steps_of(step: int | None, last: int | None, every: int = 1) -> int:
    """How many steps a row's means stand for: since the row before; the first one for ``every``, if there were as many."""
    if step is None:
        return 1
    many = min(every, step) if last is None else step - last
    return many if 1 <= many <= MOST_STEPS else 1
