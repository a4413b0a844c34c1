"""A recording played again through the device interface: GPU behaviour without a GPU."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, TypeVar

import polars as pl

from dipstick.capture.devices import (
    CounterReading,
    GpuInfo,
    GpuReading,
    Health,
    ProcessReading,
    UtilSample,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.capture.devices import Clock
    from dipstick.recording.reader import Recording

Row = TypeVar("Row", GpuReading, UtilSample, CounterReading, ProcessReading)
HISTORY_NS: Final = 14_000_000_000
"""As far back as the driver's samples reach on an H200."""


class ReplayDevices:
    """Plays one host's telemetry; the recording's time ``start_ns`` is when it is made.

    Args:
        recording: Any recording with GPU rows.
        clock: Says what time it is now; the readings are stamped with it.
        start_ns: Where in the recording to begin.
        host: Which host; None takes the first.
    """

    name = "replay"

    def __init__(
        self, recording: Recording, clock: Clock, *, start_ns: int = 0, host: str | None = None
    ) -> None:
        self.health = Health()
        self._clock = clock
        shift = clock.mono() - start_ns
        gpu = recording.table("gpu")
        named = gpu["host"].drop_nulls().cast(pl.String).unique().sort().to_list()
        self._host = host if host is not None or not named else named[0]
        history = pl.col("source").cast(pl.String) == "buffer"
        polls = self._mine(gpu.filter(~history.fill_null(value=False)))
        self._polls = _by_gpu(polls, GpuReading, shift)
        self._history = _Played(_by_gpu(self._mine(gpu.filter(history)), UtilSample, shift))
        self._counters = _Played(_by_gpu(self._mine(recording.table("gpu_counters")), CounterReading, shift))
        self._users = _Played(_by_gpu(self._mine(recording.table("gpu_process")), ProcessReading, shift))
        self._first_ns = clock.mono()
        self.gpus = self._infos(self._mine(recording.table("gpus")), gpu)

    def _mine(self, table: pl.DataFrame) -> pl.DataFrame:
        """This host's rows."""
        return table.filter(pl.col("host").cast(pl.String).eq_missing(pl.lit(self._host)))

    def _infos(self, named: pl.DataFrame, gpu: pl.DataFrame) -> tuple[GpuInfo, ...]:
        """One for each GPU that has rows."""
        window = gpu["window_ns"].drop_nulls()
        known = {row["gpu"]: row for row in named.iter_rows(named=True)}
        return tuple(
            GpuInfo(
                index,
                known.get(index, {}).get("name"),
                known.get(index, {}).get("uuid"),
                known.get(index, {}).get("mem_total_b"),
                int(window[0]) if len(window) else None,
                HISTORY_NS if index in self._history.rows else None,
            )
            for index in sorted({*self._polls, *self._history.rows})
        )

    def read(self, gpu: int) -> GpuReading:
        """What the latest poll said; nothing before the first one."""
        now = self._clock.mono()
        rows = self._polls.get(gpu, [])
        at = bisect_right(rows, now, key=_time) - 1
        return rows[at]._replace(t_ns=now) if at >= 0 else GpuReading(now)

    def history(self, gpu: int) -> list[UtilSample]:
        """Samples since the last call."""
        return self._history.until(gpu, self._clock.mono(), self._first_ns)

    def counters(self, gpu: int) -> list[CounterReading]:
        """Counter rows since the last call."""
        return self._counters.until(gpu, self._clock.mono(), self._first_ns)

    def processes(self, gpu: int) -> list[ProcessReading]:
        """Process rows since the last call."""
        return self._users.until(gpu, self._clock.mono(), self._first_ns)

    def close(self) -> None:
        """There is nothing to let go of."""


def _time(row: Any) -> int:
    return int(row.t_ns)


class _Played:
    """Rows of one kind by GPU, handed out once, in order."""

    def __init__(self, rows: dict[int, list[Any]]) -> None:
        self.rows = rows
        self._at: dict[int, int] = {}

    def until(self, gpu: int, now: int, first: int) -> list[Any]:
        """Rows after the last call (at first: after ``first``) up to now."""
        rows = self.rows.get(gpu, [])
        begin = self._at.get(gpu, bisect_right(rows, first, key=_time))
        end = max(begin, bisect_right(rows, now, key=_time))
        self._at[gpu] = end
        return rows[begin:end]


def _by_gpu(table: pl.DataFrame, kind: type[Row], shift: int) -> dict[int, list[Row]]:
    """Rows as readings, by GPU, their times moved."""
    fields: Sequence[str] = kind._fields
    moved = table.with_columns(pl.col("t_ns") + shift)
    parts = moved.sort("t_ns", maintain_order=True).partition_by("gpu", as_dict=True)
    chosen = {int(str(gpu)): rows for (gpu,), rows in parts.items() if gpu is not None}
    return {
        gpu: [kind(*row) for row in rows.select(_columns(rows, fields)).iter_rows()]
        for gpu, rows in chosen.items()
    }


def _columns(rows: pl.DataFrame, fields: Sequence[str]) -> list[pl.Expr]:
    """The reading's fields, Categoricals as text."""
    return [
        pl.col(name).cast(pl.String) if rows.schema[name] == pl.Categorical else pl.col(name)
        for name in fields
    ]
