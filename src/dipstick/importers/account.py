"""The account of one imported file: how many rows, which GPUs, from when to when, how fine, and what was dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

if TYPE_CHECKING:
    from dipstick.importers.binding import Binding
    from dipstick.model import Note

GAP_FACTOR: Final = 1.8
"""Two rows of one GPU further apart than this many usual distances have a gap between them."""

KEPT_DISTANCES: Final = 1_000_000
"""Medians are taken over the first so many distances: the account of a file of any size is small."""

_SERIES: Final = {"gpu": "util_pct", "gpu_counters": "gr_active_pct"}
"""Tables that are sampled in time, and their utilization."""


@dataclass(slots=True)
class Level:
    """Utilization of one GPU: sum, count and range, for mean, minimum and maximum."""

    total: float = 0.0
    count: int = 0
    low: float = float("inf")
    high: float = float("-inf")

    def plain(self) -> dict[str, float] | None:
        """None if no value was known."""
        if not self.count:
            return None
        return {"mean": self.total / self.count, "min": self.low, "max": self.high}


@dataclass(slots=True)
class Account:
    """What became of one file.

    Attributes:
        file: Its name.
        format: Which importer read it.
        host: Host of its rows.
        clock: ``unix`` (absolute), ``local`` (wall time without zone) or ``relative``.
        resolution_ns: Times are known to this; 0 if as fine as they are written.
        rows_read: Data rows that the file holds.
        tables: Rows that went into each table.
        dropped: Rows that did not, by reason.
        bindings: What its columns are.
        notes: What else to know.
        first_ns: Earliest time, on its own clock.
        last_ns: Latest time.
    """

    file: str
    format: str
    host: str
    clock: str = "unix"
    resolution_ns: int = 0
    rows_read: int = 0
    tables: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    bindings: list[Binding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None
    levels: dict[tuple[str, int], Level] = field(default_factory=dict)
    _last: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _distances: list[pl.Series] = field(default_factory=list)
    _gaps: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    _kept: int = 0
    _longest: int = 0
    _by_key: dict[tuple[str, str, int], list[pl.Series]] = field(default_factory=dict)

    def saw(self, table: str, frame: pl.DataFrame, times: tuple[str, ...]) -> None:
        """Count rows that go into a table (``times``: its time columns that the frame has)."""
        self.tables[table] += frame.height
        for column in times:
            low, high = frame[column].min(), frame[column].max()
            if isinstance(low, int) and isinstance(high, int):
                self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
                self.last_ns = high if self.last_ns is None else max(self.last_ns, high)
        if table in _SERIES and frame.height and "gpu" in frame.columns:
            self._saw_series(table, frame)

    def _saw_series(self, table: str, frame: pl.DataFrame) -> None:
        """Levels and distances of each GPU; a distance reaches back over the border of two batches."""
        value = _SERIES[table]
        known = [value] if value in frame.columns else []
        for (host, gpu), rows in frame.partition_by("host", "gpu", as_dict=True, maintain_order=True).items():
            key = (str(host), int(str(gpu)))
            level = self.levels.setdefault(key, Level())
            for column in known:
                _add(level, rows[column])
            if table == next(iter(self.tables)):
                self._saw_times((table, *key), rows["t_ns"])

    def _saw_times(self, key: tuple[str, str, int], times: pl.Series) -> None:
        before = self._last.get(key)
        whole = times if before is None else pl.concat([pl.Series([before], dtype=pl.Int64), times])
        self._last[key] = whole[-1]
        distances = whole.diff().drop_nulls()
        longest = distances.max()
        self._longest = max(self._longest, longest if isinstance(longest, int) else 0)
        if self._kept < KEPT_DISTANCES:
            self._distances.append(distances)
            self._by_key.setdefault(key, []).append(distances)
            self._kept += len(distances)
        elif (usual := self.interval_ns) is not None:
            self._gaps[key] += int((distances > GAP_FACTOR * usual).sum())

    @property
    def interval_ns(self) -> int | None:
        """The usual distance of two rows of one GPU."""
        middle = pl.concat(self._distances).median() if self._kept else None
        return round(middle) if isinstance(middle, float) else None

    @property
    def gaps(self) -> int:
        """How often the next row came later than ``GAP_FACTOR`` times the usual distance, on the worst GPU."""
        usual = self.interval_ns
        if not usual:
            return 0
        kept = {key: int((pl.concat(d) > GAP_FACTOR * usual).sum()) for key, d in self._by_key.items()}
        return max(many + self._gaps[key] for key, many in kept.items())

    def plain(self) -> dict[str, Any]:
        """As it is stored in the manifest and printed with ``--json``; seconds as floats."""
        usual = self.interval_ns
        span = None if self.first_ns is None or self.last_ns is None else (self.last_ns - self.first_ns) / 1e9
        return {
            "file": self.file, "format": self.format, "host": self.host, "clock": self.clock,
            "resolution_s": self.resolution_ns / 1e9, "rows_read": self.rows_read, "tables": dict(self.tables),
            "dropped": dict(self.dropped), "span_s": span,
            "interval_s": None if usual is None else usual / 1e9,
            "longest_interval_s": self._longest / 1e9 if self._kept else None, "gaps": self.gaps,
            "gpus": [{"host": h, "gpu": g, "util_pct": level.plain()} for (h, g), level in sorted(self.levels.items())],
            "bindings": [binding.plain() for binding in self.bindings], **self.facts,
        }  # fmt: skip


def _add(level: Level, values: pl.Series) -> None:
    """Add the values that are known."""
    known = values.cast(pl.Float64).drop_nulls().drop_nans()
    low, high = known.min(), known.max()
    if isinstance(low, float) and isinstance(high, float):
        level.total += float(known.sum())
        level.count += len(known)
        level.low, level.high = min(level.low, low), max(level.high, high)
