"""Telemetry rows of any format on their way into the tables: GPUs told apart, clocks mended, missing kept missing.

What happens to a batch, in order:

1. rows without a time, or whose GPU is no number, are dropped and counted;
2. where rows name no GPU, rows of one sweep (a few milliseconds apart) are GPU 0, 1, ...;
3. where the clock went back into time that was already covered, the rows from there on are moved so that time goes on;
4. rows of one GPU with the same whole second are spread over that second;
5. rows without any value are dropped and counted: they are a gap, not zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import MEANINGS, Binding
from dipstick.importers.mend import Mender
from dipstick.importers.sweeps import Sweeps
from dipstick.importers.trace_gpu import probe_window

if TYPE_CHECKING:
    from dipstick.importers.base import Sink
    from dipstick.importers.options import Options

SECOND_NS: Final = 1_000_000_000
LARGEST_INDEX: Final = 65_535

LARGEST_B: Final = float(1 << 60)
"""No GPU has this much memory."""

# NVML averages utilization over 1/6 s to 1 s. A poll every 15 s is a probe of its last second, not a mean over 15 s:
# rows clearly further apart than that are given that one second as their window.

FAST_NS: Final = 500_000_000
"""Polling faster than this shows the utilization counter's own window."""

_TABLES: Final = ("gpu", "gpu_counters", "gpu_process")
_PROCESS: Final = {"process_mem_b": "mem_used_b"}
"""Meanings whose column has another name in the table."""


@dataclass(slots=True)
class _Gpu:
    """What describes a GPU."""

    name: str | None = None
    uuid: str | None = None
    mem_total_b: int | None = None


class Samples:
    """Takes frames with ``t_ns``, ``gpu`` (if rows name it) and columns named by ``MEANINGS``, in the tables' units.

    Args:
        sink: Where rows go.
        options: ``gpus``.
        whole_seconds: Times have no fraction.
        timeless: Times were counted, not read: nothing to mend.
        describes: Fill the table of GPUs too.
        model: Name of GPUs whose rows have none.
    """

    def __init__(
        self,
        sink: Sink,
        options: Options,
        *,
        whole_seconds: bool = False,
        timeless: bool = False,
        describes: bool = True,
        model: str | None = None,
    ) -> None:
        self._model = model
        self._describes = describes
        self._sink = sink
        self._whole = whole_seconds and not timeless
        self._timeless = timeless
        self._sweeps = Sweeps(options.gpus, whole_seconds=whole_seconds)
        self._held: pl.DataFrame | None = None
        self._mender = Mender(sink)
        self._hosts: dict[str, int] = {}
        self._uuids: dict[str, int] = {}
        self._gpus: dict[tuple[str, int], _Gpu] = {}
        self._window: int | None = None
        self._at_most: int | None = None
        self._distance: int | None = None
        self._described = 0
        self._is_probed = False

    def add(self, frame: pl.DataFrame) -> None:
        """Take one batch."""
        frame = self._usable(frame)
        if frame.is_empty():
            return
        if "gpu" not in frame.columns and "uuid" in frame.columns:
            frame = self._by_uuid(frame)
        if "gpu" not in frame.columns:
            frame = self._sweeps.number(frame, self._sink)
        frame = self._mended(frame)
        if self._whole:
            frame = self._spread(frame)
        self._write(frame)

    def finish(self) -> None:
        """Write what was held back, and the table of GPUs."""
        if self._held is not None:
            held, self._held = self._held, None
            self._write(_evenly(held))
        if self._gpus and self._describes:
            rows = [
                {"host": h, "gpu": g, "name": x.name or self._model, "uuid": x.uuid, "mem_total_b": x.mem_total_b, "util_window_ns": self._window}
                for (h, g), x in sorted(self._gpus.items())
            ]  # fmt: skip
            types = {
                "gpu": pl.UInt16,
                "name": pl.String,
                "uuid": pl.String,
                "mem_total_b": pl.Int64,
                "util_window_ns": pl.Int64,
            }
            self._sink.rows("gpus", pl.DataFrame(rows, schema_overrides=types))

    def _usable(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows that have a time and, where rows name the GPU, a GPU."""
        frame = self._without(frame, pl.col("t_ns").is_not_null(), "t_ns", "the time can't be read")
        if "gpu" not in frame.columns:
            return frame
        low, high = frame["gpu"].min(), frame["gpu"].max()
        if isinstance(low, int) and isinstance(high, int) and low >= 0 and high <= LARGEST_INDEX:
            return self._without(frame, pl.col("gpu").is_not_null(), "gpu", "the GPU's index can't be read")
        good = frame.filter(pl.col("gpu").is_between(0, LARGEST_INDEX))
        self._sink.drop("the GPU's index can't be read", frame.height - good.height)
        return good

    def _by_uuid(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows that name their GPU by UUID or bus id only: numbered in order of appearance, which is nvidia-smi's order."""
        names = frame["uuid"].fill_null("")
        if not self._uuids:
            self._sink.bind(
                Binding("(order of UUIDs)", "gpu", "", "likely", "numbered in order of appearance")
            )
        for name in names.unique(maintain_order=True).to_list():
            self._uuids.setdefault(name, len(self._uuids))
        return frame.with_columns(names.replace_strict(self._uuids, return_dtype=pl.Int64).alias("gpu"))

    def _without(self, frame: pl.DataFrame, good: pl.Expr, column: str, why: str) -> pl.DataFrame:
        """The good rows; most batches have no other, and are not copied."""
        if not frame[column].null_count():
            return frame
        kept = frame.filter(good)
        self._sink.drop(why, frame.height - kept.height)
        return kept

    def _mended(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Time that went back goes on instead."""
        if self._timeless:
            return frame
        series = frame["gpu"].cast(pl.UInt16).to_numpy()
        if "host" in frame.columns:
            names = frame["host"].fill_null("")
            codes = {
                name: self._hosts.setdefault(name, len(self._hosts)) for name in names.unique().to_list()
            }
            series = series + names.replace_strict(codes, return_dtype=pl.Int64).to_numpy() * (
                LARGEST_INDEX + 1
            )
        times = self._mender.mend(frame["t_ns"].to_numpy(), series)
        return frame.with_columns(pl.Series("t_ns", times))

    def _spread(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows with the same whole second, evenly over it; the last second waits for the next batch."""
        if self._held is not None:
            frame = pl.concat([self._held, frame], how="diagonal_relaxed")
        last = pl.col("t_ns") >= pl.col("t_ns").max() - SECOND_NS + 1
        self._held = frame.filter(last)
        return _evenly(frame.filter(~last))

    def _write(self, frame: pl.DataFrame) -> None:
        """Split the columns over the tables."""
        metrics = [c for c in frame.columns if c in MEANINGS and MEANINGS[c].table]
        known = _with_any(frame, metrics)
        self._sink.drop("no value in it (N/A)", frame.height - known.height)
        self._describe(frame)
        self._probe(known)
        for table in _TABLES:
            mine = [c for c in metrics if MEANINGS[c].table == table]
            rows = _with_any(known, mine)
            if rows.height:
                self._sink.rows(table, self._as_table(table, rows, mine))

    def _as_table(self, table: str, rows: pl.DataFrame, mine: list[str]) -> pl.DataFrame:
        keys = [
            c
            for c in ("host", "gpu", "t_ns", "window_ns", *(("pid",) if table == "gpu_process" else ()))
            if c in rows.columns
        ]
        columns = [
            pl.col(c).round().cast(pl.Int64, strict=False) if c.endswith("_b") else pl.col(c) for c in mine
        ]
        found = rows.select(*keys, *columns).rename({c: _PROCESS[c] for c in mine if c in _PROCESS})
        if table == "gpu":
            found = found.with_columns(pl.lit("poll").cast(pl.Categorical).alias("source"))
        if "window_ns" in keys or table == "gpu_process":
            return found
        if table == "gpu_counters":
            self._distance = _distance(rows) or self._distance
        window = (self._window or self._at_most) if table == "gpu" else self._distance
        return found.with_columns(pl.lit(window, dtype=pl.Int64).alias("window_ns"))

    def _describe(self, frame: pl.DataFrame) -> None:
        """Name, memory and UUID of each GPU, from its first row that has them."""
        top = int(str(frame["gpu"].max())) if frame.height else -1
        if top < self._described and "host" not in frame.columns:
            return
        self._described = max(self._described, top + 1)
        facts = [c for c in ("name", "uuid", "mem_total_b") if c in frame.columns]
        host = pl.col("host") if "host" in frame.columns else pl.lit(self._sink.host)
        firsts = frame.group_by(host.alias("host"), "gpu").agg(pl.col(c).drop_nulls().first() for c in facts)
        for row in firsts.iter_rows(named=True):
            gpu = self._gpus.setdefault((str(row["host"] or self._sink.host), int(row["gpu"])), _Gpu())
            gpu.name = gpu.name or row.get("name")
            gpu.uuid = gpu.uuid or row.get("uuid")
            total = row.get("mem_total_b")
            gpu.mem_total_b = gpu.mem_total_b or (
                round(total) if total is not None and 0 <= total < LARGEST_B else None
            )

    def _probe(self, rows: pl.DataFrame) -> None:
        """The counter's own window, where polling is fast enough to show it (first batch)."""
        if self._is_probed or rows.is_empty() or "util_pct" not in rows.columns:
            return
        self._is_probed = True
        period = rows.select(pl.col("t_ns").diff().over("gpu")).to_series().median()
        if isinstance(period, float) and period > 1.5 * SECOND_NS:
            self._at_most = SECOND_NS
        if isinstance(period, float) and 0 < period < FAST_NS and not self._timeless and not self._whole:
            memory = pl.col("mem_util_pct") if "mem_util_pct" in rows.columns else pl.lit(0.0)
            polls = rows.select("t_ns", "gpu", util=pl.col("util_pct"), mem_util=memory)
            self._window = probe_window(polls, pl.DataFrame(schema={"t_us": pl.Int64, "gpu": pl.UInt16}))


def _with_any(frame: pl.DataFrame, metrics: list[str]) -> pl.DataFrame:
    """Rows that have a value in one of the columns; not copied where one column is whole."""
    if not metrics:
        return frame.clear()
    if any(not frame[c].null_count() for c in metrics):
        return frame
    return frame.filter(pl.any_horizontal(pl.col(c).is_not_null() for c in metrics))


def _evenly(frame: pl.DataFrame) -> pl.DataFrame:
    """N rows of one GPU stamped 5 s: 5, 5 + 1/n, 5 + 2/n ... s."""
    keys = [c for c in ("host", "gpu", "pid", "t_ns") if c in frame.columns]
    many, place = pl.len().over(keys), pl.int_range(pl.len()).over(keys)
    return frame.with_columns(pl.col("t_ns") + place * SECOND_NS // many)


def _distance(rows: pl.DataFrame) -> int | None:
    """What a profiling counter averages over: the usual distance of its rows."""
    middle = rows.select(pl.col("t_ns").diff().over("gpu")).to_series().median()
    return round(middle) if isinstance(middle, float) and middle > 0 else None


def count_times(rows: int, done: int, interval_ns: int, gpus: int) -> pl.Series:
    """Times of rows without any: row k is in sweep k // gpus.

    Args:
        rows: How many.
        done: Rows before them.
        interval_ns: Distance of two sweeps.
        gpus: Rows of a sweep.
    """
    sweep = pl.int_range(done, done + rows, eager=True, dtype=pl.Int64) // gpus
    return (sweep * interval_ns).alias("t_ns")


def no_times(where: str) -> ImportFormatError:
    """The refusal of a file without times."""
    return ImportFormatError(
        "its rows have no time, so they can't be put on a time axis.", where=where,
        fix="Give the distance of its rows and the time of the first: --interval 1 --start 2026-11-30T15:42:13+01:00 "
        "(dmon: the seconds of -d, 1 if it was not given). Alone, it needs only --interval.",
    )  # fmt: skip
