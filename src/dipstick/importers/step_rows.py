"""Rows of a training log into the tables: numbers as scalars, seconds as spans, a clock where the log has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.importers.binding import Binding
from dipstick.importers.timings import LaidRows, binding_of, extent_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.importers.base import Sink

MOST_KEYS: Final = 100_000
MOST_NS: Final = 10**17
"""Three years of steps: where a made-up clock ends."""
_BATCH: Final = 50_000


class StepRows:
    """Takes rows in the order of the log.

    Args:
        sink: Where they go; its clock is set by whoever reads the log.
        stamped: Rows have times of their own; else the clock is the sum of the steps' seconds.
    """

    def __init__(self, sink: Sink, *, stamped: bool) -> None:
        self._sink = sink
        self._stamped = stamped
        self._laid = LaidRows(sink)
        self._keys: dict[str, None] = {}
        self._held: list[tuple[int | None, str, float, int]] = []
        self._last: int | None = None
        self._back = 0
        self.end_ns = 0

    def add(
        self, step: int | None, values: Mapping[str, float], *, t_ns: int | None = None, floor_ns: int = 0
    ) -> None:
        """One row, or all rows of one step.

        Args:
            step: The framework's step number.
            values: Finite numbers by key.
            t_ns: When it was logged; of a log without times None.
            floor_ns: Without times: the step had not ended before this (a progress bar says so).
        """
        self._sink.saw(1)
        at = t_ns if self._stamped else min(max(self.end_ns + extent_ns(values), floor_ns), MOST_NS)
        if at is None:
            self._sink.drop("no time stamp before the row", 1)
            return
        self._back += step is not None and self._last is not None and step < self._last
        self._last = self._last if step is None else step
        self.end_ns = max(self.end_ns, at)
        self._laid.add(at, step, values)
        for key, value in values.items():
            if key in self._keys or len(self._keys) < MOST_KEYS:
                self._keys[key] = None
                self._held.append((step, key, value, at))
            else:
                self._sink.drop(f"number of a key beyond the first {MOST_KEYS:,}", 1)
        if len(self._held) >= _BATCH:
            self._write()

    def close(self) -> None:
        """Write what is left, bind every key, say what clock this is and whether the run was resumed."""
        self._write()
        self._laid.close()
        bound = [binding_of(key) or Binding(key, "scalar") for key in self._keys]
        self._sink.bind(*sorted(bound, key=lambda binding: binding.meaning == "scalar"))  # spans first
        if not self._stamped:
            self._sink.note("warning", f"{self._sink.file}: its rows have no times: the clock is the sum of the steps' seconds, so time "
                            "between steps is missing where no progress bar shows it")  # fmt: skip
        if self._back:
            self._sink.note(
                "info",
                f"{self._sink.file}: step numbers go back {self._back:,} times: the run was restarted, its log goes on",
            )

    def _write(self) -> None:
        held, self._held = self._held, []
        if held:
            schema = {"step": pl.Int64, "name": pl.String, "value": pl.Float64, "t_ns": pl.Int64}
            self._sink.rows("scalars", pl.DataFrame(held, schema=schema, orient="row"))
