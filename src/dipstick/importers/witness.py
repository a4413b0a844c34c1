"""What is kept of each file while it is read, so that clocks can be lined up afterwards: utilization and step edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from dipstick.importers.offset import Offset, Series, estimate
from dipstick.phases import STEP

if TYPE_CHECKING:
    from dipstick.model import FloatArray

MOST_ROWS: Final = 2_000_000
"""Of each file; what comes after is not used for lining up."""

MOST_GPUS: Final = 4


@dataclass(slots=True)
class Witness:
    """Rows of one file, on its own clock.

    Attributes:
        samples: Batches of ``t_ns``, ``gpu``, ``util_pct``, ``window_ns``.
        steps: Batches of step spans, ``t0_ns`` and ``t1_ns``.
    """

    samples: list[pl.DataFrame] = field(default_factory=list)
    steps: list[pl.DataFrame] = field(default_factory=list)
    _rows: int = 0

    def saw(self, table: str, frame: pl.DataFrame) -> None:
        """Keep what may be needed of rows that go into a table."""
        if self._rows > MOST_ROWS:
            return
        if table == "gpu" and {"t_ns", "gpu", "util_pct"} <= set(frame.columns):
            window = pl.col("window_ns") if "window_ns" in frame.columns else pl.lit(0).alias("window_ns")
            kept = frame.select(
                "t_ns", pl.col("gpu").cast(pl.UInt16), pl.col("util_pct").cast(pl.Float64), window
            )
            self.samples.append(kept)
        elif table == "spans" and {"t0_ns", "t1_ns", "name"} <= set(frame.columns):
            kept = frame.filter(pl.col("name") == STEP).select("t0_ns", "t1_ns")
            self.steps.append(kept)
        else:
            return
        self._rows += kept.height

    @property
    def has_steps(self) -> bool:
        """Whether any step span was seen."""
        return any(frame.height for frame in self.steps)

    def edges_s(self) -> FloatArray:
        """Step edges in seconds on the file's clock: starts, and the last end; empty without steps."""
        if not self.steps:
            return np.zeros(0)
        spans = pl.concat(self.steps).drop_nulls().unique("t0_ns").sort("t0_ns")
        ends = spans["t1_ns"].to_numpy()[-1:]
        return np.concatenate([spans["t0_ns"].to_numpy(), ends]) / 1e9

    def series(self, origin_ns: int) -> Series | None:
        """Utilization by sweep, seconds since ``origin_ns``; GPUs that read 0 throughout are left out; None without."""
        if not self.samples:
            return None
        rows = pl.concat(self.samples, how="vertical_relaxed").drop_nulls(["t_ns", "util_pct"])
        used = (
            rows.group_by("gpu")
            .agg(pl.col("util_pct").max())
            .filter(pl.col("util_pct") > 0)["gpu"]
            .sort()[:MOST_GPUS]
        )
        if not len(used):
            return None
        usual = rows.filter(pl.col("gpu") == used[0])["t_ns"].sort().diff().median()
        distance = max(float(usual) if isinstance(usual, int | float) else 1e9, 1e6)
        sweep = ((pl.col("t_ns") - origin_ns) / distance).round().cast(pl.Int64).alias("sweep")
        wide = (
            rows.filter(pl.col("gpu").is_in(used.to_list()))
            .group_by(sweep, "gpu").agg(pl.col("t_ns").mean(), pl.col("util_pct").mean())
        )  # fmt: skip
        times = wide.group_by("sweep").agg(pl.col("t_ns").mean()).sort("sweep")
        values = [
            times.join(wide.filter(pl.col("gpu") == gpu), on="sweep", how="left", maintain_order="left")["util_pct"]
            .cast(pl.Float64).fill_null(float("nan")).to_numpy()
            for gpu in used
        ]  # fmt: skip
        window = rows["window_ns"].median()
        at = (times["t_ns"].to_numpy() - origin_ns) / 1e9
        return Series(
            at, np.stack(values, axis=1), float(window) / 1e9 if isinstance(window, int | float) else 0.0
        )


def line_up(log: Witness, telemetry: Witness, origin_ns: int) -> Offset:
    """The offset of a log's clock from the telemetry's times less ``origin_ns``, or why there is none."""
    edges, series = log.edges_s(), telemetry.series(origin_ns)
    if series is None:
        return Offset(None, why="the other file has no utilization")
    if not len(edges):
        return Offset(None, why="it has no steps to line up by")
    if (np.diff(edges) <= 0).any():
        return Offset(None, why="its steps do not follow one another")
    return estimate(series, edges)
