"""The page's tracks: signals of each GPU, its states, the phases of each rank; thinned to what a page can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from dipstick.analysis.telemetry import read_signals
from dipstick.show import words
from dipstick.show.gpu_tables import gpu_label
from dipstick.show.thin import Cells, held, thin, thin_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.telemetry import Series
    from dipstick.model import FloatArray, GpuTrack, Report
    from dipstick.show.pack import Pack
    from dipstick.show.recorded import Recorded
    from dipstick.show.thin import Window

    Key = tuple[str, int]

MOST_CELLS: Final = 300_000
"""Of all signals together: deflated about 1 MB."""
MOST_CODES: Final = 120_000
"""Of all states, and of all phases."""


class Signal(NamedTuple):
    """One chart: a line a GPU.

    Attributes:
        key: Its name in the page.
        label: Its name for people; NVML's own name of the counter first.
        unit: After the numbers.
        step: Values are drawn to multiples of this.
        top: The axis goes up to this; None: as far as the values go.
        column: Column of the ``gpu`` table; empty where the analysis places the samples itself.
        scale: Column's units in one of the chart's.
    """

    key: str
    label: str
    unit: str
    step: float
    top: float | None
    column: str = ""
    scale: float = 1.0


SIGNALS: Final = (
    Signal("util", "utilization.gpu", "%", 0.1, 100),
    Signal("memory", "memory allocated", "GiB", 0.01, None, "mem_used_b", 2**30),
    Signal("access", "time accessing memory (utilization.memory)", "%", 0.1, 100),
    Signal("power", "power", "W", 1, None, "power_w"),
)
"""The three charts of the people who ask, and power; in the order of the page."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be drawn.

    Attributes:
        windows: Where every sample stays.
        most: Cells of each series; None: its share of the page.
    """

    windows: Sequence[Window]
    most: int | None = None

    def each(self, whole: int, series: int) -> int:
        """Cells of one of ``series`` series, of which ``whole`` fit in a page."""
        return max(200, whole // max(series, 1)) if self.most is None else self.most


def gpu_tracks(report: Report, recording: Recorded | None, pack: Pack, budget: Budget) -> dict[str, Any]:
    """``gpus`` (labels), ``signals`` (a line a GPU each) and ``states`` for the page's header."""
    tracks = report.tracks.gpus
    read = _read(report, recording)
    charts = [
        (signal, [read.get((signal.key, track.host, track.gpu)) for track in tracks]) for signal in SIGNALS
    ]
    known = [(signal, lines) for signal, lines in charts if any(line is not None for line in lines)]
    most = budget.each(MOST_CELLS, len(known) * len(tracks))
    codes = budget.each(MOST_CODES, len(tracks))
    states = [thin_codes(t.t0_s, t.t1_s, t.state, budget.windows, codes) for t in tracks]
    return {
        "gpus": [_gpu(track, report) for track in tracks],
        "signals": [_chart(signal, lines, pack, budget, most) for signal, lines in known],
        "states": [packed(cells, pack, 1) for cells in states],
    }


def _gpu(track: GpuTrack, report: Report) -> dict[str, Any]:
    return {"label": gpu_label(track.host, track.gpu, report.run.hosts), "gpu": track.gpu, "rank": track.rank}


Line = tuple["FloatArray", "FloatArray", "FloatArray"]


def _chart(
    signal: Signal, lines: Sequence[Line | None], pack: Pack, budget: Budget, most: int
) -> dict[str, Any]:
    drawn = [None if line is None else thin(*line, budget.windows, most) for line in lines]
    return {
        "key": signal.key, "label": signal.label, "unit": signal.unit, "step": signal.step, "top": signal.top,
        "lines": [None if cells is None else packed(cells, pack, signal.step) for cells in drawn],
        "means": [None if line is None else _mean(line) for line in lines],
    }  # fmt: skip


def _mean(line: Line) -> str:
    """Over the recorded time; for the label that a screen reader reads."""
    t0, t1, value = line
    seen = np.isfinite(value)
    weight = float((t1 - t0)[seen].sum())
    return words.number(float(np.dot((t1 - t0)[seen], value[seen])) / weight if weight else None)


def packed(cells: Cells, pack: Pack, step: float) -> dict[str, Any]:
    """Cells as numbers of arrays; ``high`` and ``mean`` are left out where they are ``low``."""
    out = {
        "t0": pack.times(cells.t0_s),
        "len": pack.times(cells.t1_s - cells.t0_s),
        "low": pack.values(cells.low, step),
        "samples": cells.samples,
        "column_s": round(cells.column_s, 4),
    }
    out |= {} if cells.high is cells.low else {"high": pack.values(cells.high, step)}
    return out if cells.mean is None else {**out, "mean": pack.values(cells.mean, step)}


def _read(report: Report, recording: Recorded | None) -> dict[tuple[str, str, int], Line]:
    """Every signal of every GPU, by (signal, host, GPU)."""
    if recording is None:
        return {("util", t.host, t.gpu): (t.t0_s, t.t1_s, t.util_pct) for t in report.tracks.gpus}
    gpu = recording.table("gpu")
    found: dict[tuple[str, str, int], Line] = {}
    for signals in read_signals(gpu, recording.table("gpu_counters")):
        for key, series in (("util", signals.util), ("access", signals.mem_util)):
            if np.isfinite(series.value).any():
                found[key, signals.host, signals.gpu] = _seconds(series)
    return found | _polled(gpu)


def _seconds(series: Series) -> Line:
    return series.t0 / 1e9, series.t1 / 1e9, series.value


def _polled(gpu: pl.DataFrame) -> dict[tuple[str, str, int], Line]:
    """What is read at an instant: it stands for the time since the read before."""
    found = {}
    for signal in SIGNALS:
        rows = gpu.filter(pl.col(signal.column).is_not_null()) if signal.column else gpu.clear()
        for (host, index), part in rows.partition_by(
            "host", "gpu", as_dict=True, maintain_order=True
        ).items():
            value = part[signal.column].cast(pl.Float64).to_numpy() / signal.scale
            found[signal.key, str(host or ""), int(index)] = held(part["t_ns"].to_numpy() / 1e9, value)
    return found


def thinned(header: dict[str, Any], pack: Pack) -> str:
    """How much was left out, in one sentence; empty where nothing was."""
    lines = [line for chart in header["signals"] for line in chart["lines"] if line]
    samples, cells = sum(line["samples"] for line in lines), sum(pack.count(line["t0"]) for line in lines)
    if cells == samples:
        return ""
    widest = max(pack.widest(line["len"]) for line in lines)
    return (
        f"The charts hold {samples:,} samples as {cells:,} columns, each with the least and the most of up to "
        f"{words.seconds(widest)}; around the receipts every sample is there."
    )
