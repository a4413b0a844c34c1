"""Stub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dipstick.importers.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.importers.base import Sink


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row."""

    t_ns: int | None
    step: int | None
    values: Mapping[str, float]


class TrainingRows:
    """Stub."""

    def __init__(self, sink: Sink, *, file: str = "") -> None:
        self._sink = sink
        self._rows: list[LogRow] = []

    def add(self, row: LogRow) -> None:
        """Add."""
        self._rows.append(row)

    def close(self) -> None:
        """Flush."""
        keys = dict.fromkeys(k for r in self._rows for k in r.values)
        self._sink.bind(*(Binding(k, "scalar") for k in keys))
        flat = [
            {"t_ns": r.t_ns, "step": r.step, "name": k, "value": v}
            for r in self._rows
            for k, v in r.values.items()
        ]
        if flat:
            self._sink.rows(
                "scalars",
                pl.DataFrame(
                    flat, schema={"t_ns": pl.Int64, "step": pl.Int64, "name": pl.String, "value": pl.Float64}
                ),
            )
