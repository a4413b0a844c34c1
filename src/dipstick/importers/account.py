"""The account of one imported file: how many rows, which GPUs, from when to when, how fine, and what was dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from dipstick.importers.binding import Binding
    from dipstick.model import FloatArray, IntArray, Note

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

    def add(self, values: FloatArray) -> None:
        """Add those that are known."""
        known = values[np.isfinite(values)]
        if len(known):
            self.total += float(known.sum())
            self.count += len(known)
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))

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
    _gaps: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    _kept: int = 0
    _longest: int = 0
    _by_key: dict[tuple[str, str, int], list[IntArray]] = field(default_factory=dict)
    _usual: int | None = None

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
        for host, rows in _by_host(frame):
            gpus, times = rows["gpu"].cast(pl.UInt16).to_numpy(), rows["t_ns"].to_numpy()
            values = (
                rows[_SERIES[table]].cast(pl.Float64).to_numpy() if _SERIES[table] in rows.columns else None
            )
            order = np.argsort(gpus, kind="stable")
            for part in np.split(order, np.flatnonzero(np.diff(gpus[order])) + 1):
                key = (table, host, int(gpus[part[0]]))
                level = self.levels.setdefault(key[1:], Level())
                if values is not None:
                    level.add(values[part])
                if table == next(iter(self.tables)):
                    self._distances_of(key, times[part])

    def _distances_of(self, key: tuple[str, str, int], times: IntArray) -> None:
        before = self._last.get(key)
        distances = np.diff(times if before is None else np.concatenate([[before], times]))
        self._last[key] = int(times[-1])
        if not len(distances):
            return
        self._longest = max(self._longest, int(distances.max()))
        if self._kept < KEPT_DISTANCES:
            self._by_key.setdefault(key, []).append(distances)
            self._kept += len(distances)
            self._usual = None
        elif (usual := self.interval_ns) is not None:
            self._gaps[key] += int((distances > GAP_FACTOR * usual).sum())

    @property
    def interval_ns(self) -> int | None:
        """The usual distance of two rows of one GPU."""
        if self._kept and self._usual is None:
            self._usual = round(
                float(np.median(np.concatenate([d for parts in self._by_key.values() for d in parts])))
            )
        return self._usual

    @property
    def gaps(self) -> int:
        """How often the next row came later than ``GAP_FACTOR`` times the usual distance, on the worst GPU."""
        usual = self.interval_ns
        if not usual:
            return 0
        kept = {
            key: int((np.concatenate(parts) > GAP_FACTOR * usual).sum())
            for key, parts in self._by_key.items()
        }
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


def _by_host(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each host; most files have one."""
    hosts = [str(host) for host in frame["host"].unique().to_list()]
    if len(hosts) == 1:
        return [(hosts[0], frame)]
    return [(host, frame.filter(pl.col("host").cast(pl.String) == host)) for host in sorted(hosts)]
