"""GPU telemetry as windows: what each sample stands for, and all signals on one set of windows per GPU.

An NVML sample is a mean over the past: it stands for ``[t - window, t]``, not for the instant t. Three
clocks meet here, and each has its own lag (measured against the phases of our H200 recordings):

- the driver's sample buffer stamps its windows itself: +20 ms;
- a *poll* returns the last window that was complete, on average half a window old (+100-140 ms seen with
  200 ms windows): polled samples are moved back by half their window;
- GPM rows come about 100-140 ms late: the lag is estimated from the data, by where the counters agree best
  with utilization, before the two are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dipstick import clock
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import lay

if TYPE_CHECKING:
    import numpy.typing as npt

    from dipstick.model import FloatArray, IntArray

COUNTERS: tuple[str, ...] = (
    "gr_active_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct",
    "pcie_rx_mib_s", "pcie_tx_mib_s", "nvlink_rx_mib_s", "nvlink_tx_mib_s",
    "kernel_work_pct", "copy_device_pct", "copy_bus_pct", "comm_alone_pct",
)  # fmt: skip
TRACED: str = "kernel_work_pct"
"""The counter that is there where a window comes from a trace of every kernel: its clock is the kernels' own."""
POLLED: tuple[str, ...] = ("mem_util_pct", "power_w", "sm_mhz")

LAGS_NS = range(0, 320_000_000, 20_000_000)
LAG_WINDOWS = 20_000
LAG_CORRELATION = 0.5
BUFFER_COVERAGE = 0.95
"""The driver's sample buffer is used where it covers this share of what the poll covers."""


@dataclass(frozen=True, slots=True)
class Series:
    """A piecewise signal: value i holds on [t0[i], t1[i]); gaps are gaps, NaN is not measured."""

    t0: IntArray
    t1: IntArray
    value: FloatArray

    @property
    def recorded_ns(self) -> int:
        """Nanoseconds that samples cover."""
        return int((self.t1 - self.t0).sum())

    def mean_over(self, t0: IntArray, t1: IntArray) -> FloatArray:
        """Mean of the signal over each interval's covered part; NaN where nothing is covered.

        Example: 100 on [0, 2) and 0 on [2, 4) has mean 50 over [1, 3) and 100 over [-5, 1).
        """
        known = self.known()
        covered, total = lay(known.t0, known.t1).sums(known.value, t0, t1)
        mean: FloatArray = np.divide(total, covered, out=np.full(len(t0), np.nan), where=covered > 0)
        return mean

    def known(self) -> Series:
        """The part that was measured."""
        measured = ~np.isnan(self.value)
        return self if measured.all() else Series(self.t0[measured], self.t1[measured], self.value[measured])

    def mean(self) -> float:
        """Mean over the covered time; NaN where nothing is known."""
        known = ~np.isnan(self.value)
        width = (self.t1 - self.t0)[known]
        return float(np.dot(self.value[known], width) / width.sum()) if width.sum() else float("nan")

    def clip(self, start: int, end: int) -> Series:
        """The part inside [start, end)."""
        at = np.flatnonzero((self.t1 > start) & (self.t0 < end) & (self.t1 > self.t0) & (start < end))
        part = (
            slice(at[0], at[-1] + 1) if len(at) and at[-1] - at[0] < len(at) else at
        )  # no copy of the usual run
        return Series(np.maximum(self.t0[part], start), np.minimum(self.t1[part], end), self.value[part])


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything known of one GPU.

    Attributes:
        util: ``utilization.gpu`` in percent, each value over the time it stands for.
        mem_util: ``utilization.memory`` in percent (time in which device memory was accessed), from the
            same samples; NaN where it is not known.
        windows: The classification windows with the mean utilization (percent) of each: the counters'
            windows where there are counters, else the utilization's own.
        counters: Per window, the signals of ``COUNTERS`` (NaN where absent).
        polled: Per window, memory utilization (percent), power (W), SM clock (MHz).
        source: ``buffer``, ``poll`` or ``counters`` (graphics-engine active stands in for utilization).
        period_ns: Median distance of two utilization samples; window_ns: the counter's own window.
        gaps_ns: Lengths of the holes in the utilization's time axis.
        counter_lag_ns: By how much the counters' time stamps were found to be late, and were moved back.
    """

    host: str
    gpu: int
    util: Series
    mem_util: Series
    windows: Series
    counters: dict[str, FloatArray]
    polled: dict[str, FloatArray]
    source: str
    period_ns: int
    window_ns: int
    gaps_ns: IntArray
    counter_lag_ns: int


def read_signals(gpu: pl.DataFrame, counters: pl.DataFrame) -> list[Signals]:
    """Signals of every GPU that has any utilization (or, failing that, graphics-engine active)."""
    rows, profiles = _by_gpu(gpu), _by_gpu(counters)
    found = abreast(
        lambda key: _signals(key, rows.get(key, gpu.clear()), profiles.get(key, counters.clear())),
        sorted({*rows, *profiles}),
    )
    return [signals for signals in found if signals is not None]


def _by_gpu(table: pl.DataFrame) -> dict[tuple[str, int], pl.DataFrame]:
    """The rows of each GPU; a missing host name is the empty one, rows without a GPU are nobody's."""
    known = table.filter(pl.col("gpu").is_not_null())
    parts = known.partition_by("host", "gpu", maintain_order=True, as_dict=True)
    return {(str(host or ""), int(index)): rows for (host, index), rows in parts.items()}


def _signals(key: tuple[str, int], rows: pl.DataFrame, profile: pl.DataFrame) -> Signals | None:
    source, chosen = _utilization_rows(rows, profile)
    if chosen.is_empty():
        return None
    t, values = chosen["t_ns"].to_numpy(), _floats(chosen, "util_pct")
    period, window = _period(t), _window(chosen, t)
    age = window // 2 if source == "poll" and chosen["window_ns"].null_count() < chosen.height else 0
    util = Series(*clock.covering_segments(t - age, window, period), values)
    usable, lag = _in_step(profile, util)
    windows, columns = _classification_windows(util, usable)
    polled = _polled(rows, windows.t1, slack=max(2 * period, window))
    holes = util.t0[1:] - util.t1[:-1]
    memory = _floats(chosen, "mem_util_pct") if "mem_util_pct" in chosen.columns else np.full(len(t), np.nan)
    accessed = Series(util.t0, util.t1, memory)
    return Signals(
        *key, util, accessed, windows, columns, polled, source, period, window, holes[holes > 0], lag
    )


def _utilization_rows(rows: pl.DataFrame, profile: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """The best utilization there is: the driver's own buffer, else the poll, else graphics-engine active."""
    known = rows.filter(pl.col("util_pct").is_not_null())
    buffer, poll = (
        known.filter(pl.col("source") == "buffer"),
        known.filter(pl.col("source").ne_missing("buffer")),
    )
    if not buffer.is_empty() and _covered_ns(buffer) >= BUFFER_COVERAGE * _covered_ns(poll):
        return "buffer", buffer
    if not poll.is_empty():
        return "poll", poll
    engine = profile.filter(pl.col("gr_active_pct").is_not_null())
    return "counters", engine.select("t_ns", "window_ns", pl.col("gr_active_pct").alias("util_pct"))


def _covered_ns(rows: pl.DataFrame) -> int:
    """How long these samples speak for, gaps left out."""
    t = rows["t_ns"].to_numpy()
    start, end = clock.covering_segments(t, _window(rows, t), _period(t))
    return int((end - start).sum())


def _floats(table: pl.DataFrame, column: str) -> FloatArray:
    return table[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _period(t: IntArray) -> int:
    return int(np.median(np.diff(t))) if len(t) > 1 else 0


def _window(rows: pl.DataFrame, t: IntArray) -> int:
    """The counter's window; where it was never probed (or is no length), the sampling period stands in."""
    known = rows["window_ns"].drop_nulls()
    known = known.filter(known > 0)
    return int(known.to_numpy()[0]) if len(known) else _period(t)


def _in_step(profile: pl.DataFrame, util: Series) -> tuple[pl.DataFrame, int]:
    """Counter rows that have a window, moved back by the lag at which they agree best with utilization."""
    traced = pl.col(TRACED).is_not_null()
    usable = profile.filter(
        pl.col("window_ns").is_not_null() & (pl.col("sm_active_pct").is_not_null() | traced)
    )
    if usable[TRACED].null_count() < usable.height:
        return usable, 0
    some = usable.head(LAG_WINDOWS)
    column = "gr_active_pct" if some["gr_active_pct"].null_count() < some.height else "sm_active_pct"
    t1, reference = some["t_ns"].to_numpy(), _floats(some, column)
    if not len(t1):
        return usable, 0
    t0 = t1 - some["window_ns"].to_numpy()
    near = util.clip(int(t0[0]) - LAGS_NS.stop, int(t1[-1]))
    scores = [_agreement(reference, near.mean_over(t0 - lag, t1 - lag)) for lag in LAGS_NS]
    best = int(np.argmax(scores))
    lag = LAGS_NS[best] if scores[best] >= LAG_CORRELATION else 0
    return usable.with_columns(pl.col("t_ns") - lag), lag


def _agreement(a: FloatArray, b: FloatArray) -> float:
    """Correlation over the windows that both know; 0 where it is not defined."""
    known = ~(np.isnan(a) | np.isnan(b))
    a, b = a[known], b[known]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:  # noqa: PLR2004 - two points always agree
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _classification_windows(util: Series, usable: pl.DataFrame) -> tuple[Series, dict[str, FloatArray]]:
    """The counters' windows, and the utilization's own windows where no counter covers them.

    Where utilization has a gap, graphics-engine active gives the share; where that is missing too, nothing
    says how busy the GPU was, and the time counts as not recorded.
    """
    if usable.is_empty():
        known = util.known()
        return known, dict.fromkeys(COUNTERS, np.broadcast_to(np.nan, len(known.t0)))
    t1 = usable["t_ns"].to_numpy()
    t0 = np.maximum(t1 - usable["window_ns"].to_numpy(), np.concatenate([[np.iinfo(np.int64).min], t1[:-1]]))
    rest = _outside(util, t0, t1)
    at0, at1 = np.concatenate([t0, rest.t0]), np.concatenate([t1, rest.t1])
    mean = util.mean_over(t0, t1)
    engine = _floats(usable, "gr_active_pct")
    exact = np.isnan(mean) | usable[TRACED].is_not_null().to_numpy()
    share = np.concatenate([np.where(exact, engine, mean), rest.value])
    order = np.argsort(at0, kind="stable")
    order = order[~np.isnan(share[order])]
    columns = {
        name: np.concatenate([_floats(usable, name), np.full(len(rest.t0), np.nan)])[order]
        for name in COUNTERS
    }
    return Series(at0[order], at1[order], share[order]), columns


def _outside(util: Series, t0: IntArray, t1: IntArray) -> Series:
    """The pieces of the utilization that no counter window touches the middle of."""
    if not len(t0):
        return util
    holes0 = np.concatenate([[np.iinfo(np.int64).min], t1])
    holes1 = np.concatenate([t0, [np.iinfo(np.int64).max]])
    real = holes1 > holes0
    holes0, holes1 = holes0[real], holes1[real]
    first = np.searchsorted(holes1, util.t0, side="right")
    last = np.searchsorted(holes0, util.t1, side="left")
    count = np.maximum(last - first, 0)
    piece = np.repeat(np.arange(len(util.t0)), count)
    hole = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Series(
        np.maximum(util.t0[piece], holes0[hole]), np.minimum(util.t1[piece], holes1[hole]), util.value[piece]
    )


def _polled(rows: pl.DataFrame, times: IntArray, slack: int) -> dict[str, FloatArray]:
    """Last known values at each time, if not older than ``slack`` ns; NaN otherwise. Whole columns share the look-up."""
    whole = _latest(rows["t_ns"].to_numpy(), times, slack)
    found = {}
    for name in POLLED:
        known = rows.filter(pl.col(name).is_not_null()) if rows[name].null_count() else rows
        at, fresh = whole if known is rows else _latest(known["t_ns"].to_numpy(), times, slack)
        values = _floats(known, name)
        found[name] = np.where(fresh, values[at], np.nan) if len(values) else np.full(len(times), np.nan)
    return found


def _latest(t: IntArray, times: IntArray, slack: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """For each time the last row at or before it, and whether that is there and no older than ``slack`` ns."""
    at = np.searchsorted(t, times, side="right") - 1
    last = np.clip(at, 0, None)
    return last, (at >= 0) & (times - t[last] <= slack) if len(t) else at >= 0
