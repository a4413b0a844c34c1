"""W&B's system metrics on their way into telemetry rows, whichever file they come from.

W&B up to 0.17.8 wrote the mean of 15 samples every 30 s, stamped at the end; later versions write one sample every 10 s,
then 15 s. Newer files have one record a resource and moment: what belongs to one GPU within a second is one row.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from dipstick.importers.binding import MEANINGS, Binding, factor
from dipstick.importers.samples import Samples
from dipstick.importers.system_keys import METRICS, SystemKey, system_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dipstick.importers.base import Sink
    from dipstick.importers.options import Options

SECOND_NS: Final = 1_000_000_000
JOIN_NS: Final = SECOND_NS
"""Records of one GPU this close, without a metric in common, are one row."""

MEAN_NS: Final = 30 * SECOND_NS
POINTS_SINCE: Final = (0, 17, 9)
GPM_SINCE: Final = (0, 26)
GPM_NS: Final = 200_000_000
DCGM_NS: Final = 5 * SECOND_NS
"""Profiling counters come from one pair of samples 200 ms apart (GPM), before 0.26 from DCGM, which watches 5 s."""

BATCH: Final = 20_000
MOST_KEYS: Final = 4096
"""Keys beyond these are not looked at: eight nodes of eight GPUs have a thousand."""

_COUNTERS: Final = tuple(m for m, _ in METRICS.values() if MEANINGS[m].table == "gpu_counters")
_FACTS: Final = {"name": pl.String, "uuid": pl.String, "mem_total_b": pl.Float64}

Key = tuple[str | None, int]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Device:
    """What the run says of one of its GPUs."""

    name: str | None = None
    uuid: str | None = None
    mem_total_b: float | None = None


@dataclass(slots=True)
class Run:
    """What the files say of the run; filled in while they are read.

    Attributes:
        version: Of W&B, ``(0, 21, 0)``; empty: unknown.
        start_ns: When it began; None: unknown.
        devices: Its GPUs, in NVML's order.
    """

    version: tuple[int, ...] = ()
    start_ns: int | None = None
    devices: list[Device] = field(default_factory=list)

    def is_version(self, text: str) -> None:
        """Note the version: ``0.19.7``, ``0.19.7+a856885``, ``0.17.0.dev1``; the first word counts."""
        found = re.match(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text)
        if found and not self.version:
            self.version = tuple(int(part or 0) for part in found.groups())


class SystemRows:
    """Takes system metrics as they were logged.

    Args:
        sink: Where rows go.
        options: For :class:`Samples`.
        run: What is known of the run; may be filled in while rows arrive.
        whole_seconds: Times have no fraction (before 2022).
    """

    def __init__(self, sink: Sink, options: Options, run: Run, *, whole_seconds: bool = False) -> None:
        self._sink, self._run = sink, run
        self._samples = Samples(sink, options, whole_seconds=whole_seconds)
        self._counters = Samples(sink, options, whole_seconds=whole_seconds, describes=False)
        self._keys: dict[str, SystemKey | None] = {}
        self._open: dict[Key, Row] = {}
        self._done: list[Row] = []
        self._last: dict[Key, int] = {}
        self._are_means: bool | None = None
        self._strange: Counter[str] = Counter()

    def add(self, t_ns: int, values: Mapping[str, float]) -> None:
        """Take the values of one moment, by W&B's keys."""
        found: dict[Key, Row] = {}
        for key, value in values.items():
            known = self._known(key)
            if known is not None and known.gpu is not None and known.meaning:
                row = found.setdefault((known.host, known.gpu), {})
                row[known.meaning] = value * factor(Binding("", known.meaning, known.unit))
        for gpu, row in found.items():
            self._join(gpu, t_ns, row)
        if len(self._done) >= BATCH:
            self._flush()

    def close(self) -> None:
        """Write what is left, and say what each key is."""
        self._done += self._open.values()
        self._open = {}
        self._flush()
        self._samples.finish()
        self._counters.finish()
        self._sink.bind(*_bindings(self._keys))
        if self._strange:
            self._sink.drop("value under one key too many", self._strange.total())
        if self._last:
            self._say_window()

    def _known(self, key: str) -> SystemKey | None:
        if key not in self._keys:
            if len(self._keys) >= MOST_KEYS:
                self._strange["key"] += 1
                return None
            self._keys[key] = system_key(key)
        return self._keys[key]

    def _join(self, gpu: Key, t_ns: int, row: Row) -> None:
        """Into the GPU's open row, or a new one."""
        before = self._open.get(gpu)
        if before is not None and abs(t_ns - before["t_ns"]) < JOIN_NS and not before.keys() & row.keys():
            before.update(row)
            return
        if before is not None:
            self._done.append(before)
        self._open[gpu] = {"host": gpu[0], "gpu": gpu[1], "t_ns": t_ns, **row}

    def _flush(self) -> None:
        rows, self._done = self._done, []
        if not rows:
            return
        if self._are_means is None:
            self._are_means = self._find_means(rows)
        for row in rows:
            self._place(row)
        metrics = [m for m in MEANINGS if any(m in row for row in rows)]
        columns = ["host", "gpu", "t_ns", "window_ns", *metrics, *_FACTS]
        types = {"host": pl.String, "gpu": pl.Int64, "t_ns": pl.Int64, "window_ns": pl.Int64, **_FACTS}
        frame = pl.DataFrame(
            {c: pl.Series(c, [row.get(c) for row in rows], dtype=types.get(c, pl.Float64)) for c in columns}
        )
        counters = [m for m in metrics if m in _COUNTERS]
        telemetry = frame.drop(counters)
        self._samples.add(telemetry if self._are_means else telemetry.drop("window_ns"))
        window = GPM_NS if self._run.version >= GPM_SINCE or not self._run.version else DCGM_NS
        if counters:
            self._counters.add(
                frame.select("host", "gpu", "t_ns", pl.lit(window, dtype=pl.Int64).alias("window_ns"), *counters)
                .filter(pl.any_horizontal(pl.col(c).is_not_null() for c in counters))
            )  # fmt: skip

    def _find_means(self, rows: list[Row]) -> bool:
        """By the version; without one, a fraction of a percent shows that utilization was averaged."""
        if self._run.version:
            return self._run.version < POINTS_SINCE
        return any(not float(row.get("util_pct", 0)).is_integer() for row in rows)

    def _place(self, row: Row) -> None:
        """The window that the row averages over, and what its GPU is."""
        gpu, t_ns = (row["host"], row["gpu"]), row["t_ns"]
        before = self._last.get(gpu, self._run.start_ns)
        since = MEAN_NS if before is None else t_ns - before
        row["window_ns"] = since if 0 < since < MEAN_NS else MEAN_NS
        self._last[gpu] = t_ns
        if gpu[0] is None and gpu[1] < len(self._run.devices):
            device = self._run.devices[gpu[1]]
            row.update(name=device.name, uuid=device.uuid, mem_total_b=device.mem_total_b)

    def _say_window(self) -> None:
        """What a value stands for."""
        how = (
            "its version"
            if self._run.version
            else "fractions of a percent"
            if self._are_means
            else "whole percents"
        )
        if self._are_means:
            text = f"each value is the mean of the 30 s before it (by {how}): short dips are averaged away"
        else:
            text = (
                f"each value is one sample of at most the last second (by {how}); what is between is not seen"
            )
        self._sink.note("info", f"{self._sink.file}: {text}. All GPUs of the node are in it, used or not.")
        self._sink.fact(values_are="means of 30 s" if self._are_means else "samples")


def _bindings(keys: Mapping[str, SystemKey | None]) -> Iterable[Binding]:
    """One a kind of key: the GPU's index is N, the node's label L."""
    found: dict[str, Binding] = {}
    for key, known in keys.items():
        name = re.sub(r"\bgpu\.(process\.)?\d+", r"gpu.\1N", key)
        name = name.partition("/l:")[0] + ("/l:L" if "/l:" in name else "")
        if known is None:
            found[name] = Binding(name, sure="unrecognised")
        elif known.meaning:
            found[name] = Binding(name, known.meaning, known.unit)
        else:
            found.setdefault(name, Binding(name, sure="not used"))
    return found.values()


def number_of(value: object) -> float | None:
    """A finite number, from JSON text (``1.76e+09``) or a JSON value; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def stamp_ns(seconds: float | None) -> int | None:
    """Unix seconds as nanoseconds, to the microsecond that a double holds; None if no run was logged then."""
    if seconds is None or not 0 < seconds < 1 << 33:
        return None
    return int(np.rint(seconds * 1e6)) * 1000
