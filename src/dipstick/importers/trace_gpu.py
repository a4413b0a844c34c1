"""The GPUs' side of a trace folder: NVML polls, the driver's sample buffer, GPM, per-process utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.text import read_csv
from dipstick.model import Note

if TYPE_CHECKING:
    from pathlib import Path

_NVML: Final = {
    "t_ns": pl.Int64, "gpu": pl.UInt16, "util": pl.Float32, "mem_util": pl.Float32, "mem_used": pl.Int64,
    "power_mw": pl.Float32, "sm_mhz": pl.Float32, "temp": pl.Float32,
}  # fmt: skip
_BUF: Final = {"t_us": pl.Int64, "gpu": pl.UInt16, "kind": pl.Int64, "val": pl.Float32}
_GPM: Final = {
    "t_ns": pl.Int64, "gpu": pl.UInt16, "gr_active": pl.Float32, "sm_util": pl.Float32, "sm_occ": pl.Float32,
    "tensor": pl.Float32, "dram_bw": pl.Float32, "pcie_tx_mibs": pl.Float32, "pcie_rx_mibs": pl.Float32,
    "nvl_rx": pl.Float32, "nvl_tx": pl.Float32,
}  # fmt: skip
_PROC: Final = {"t_us": pl.Int64, "gpu": pl.UInt16, "pid": pl.Int64, "sm": pl.Float32, "mem": pl.Float32}
_COUNTERS: Final = {
    "gr_active": "gr_active_pct", "sm_util": "sm_active_pct", "sm_occ": "sm_occupancy_pct",
    "tensor": "tensor_active_pct", "dram_bw": "dram_active_pct", "pcie_tx_mibs": "pcie_tx_mib_s",
    "pcie_rx_mibs": "pcie_rx_mib_s", "nvl_rx": "nvlink_rx_mib_s", "nvl_tx": "nvlink_tx_mib_s",
}  # fmt: skip

_UTIL, _MEM_UTIL = 1, 2
"""``kind`` in buf.csv."""

MIN_CHANGES: Final = 20
"""Fewer changes of a polled value than this do not show how often the counter updates."""


def read(folder: Path, host: str, notes: list[Note]) -> dict[str, pl.DataFrame]:
    """Read the telemetry files that are there.

    Args:
        folder: The trace folder.
        host: Host of every row.
        notes: Gets a note a file with rows that were skipped, and one on the counter's window.

    Returns:
        ``gpu``, ``gpu_counters``, ``gpu_process`` and ``gpus``; empty where the files are absent.
    """
    paths = {name: folder / name for name in ("nvml.csv", "buf.csv", "gpm.csv", "proc.csv")}
    return _read(paths, folder / "nvidia-smi.csv", host, notes)


def read_one(path: Path, kind: str, host: str, notes: list[Note]) -> dict[str, pl.DataFrame]:
    """Read one of these files by itself, whatever it is called.

    Args:
        path: The file.
        kind: Which one it is: ``nvml.csv``, ``buf.csv``, ``gpm.csv`` or ``proc.csv``.
        host: Host of every row.
        notes: See :func:`read`.

    Returns:
        As :func:`read`.
    """
    return _read({kind: path}, path.with_name("nvidia-smi.csv"), host, notes)


def _read(paths: dict[str, Path], smi: Path, host: str, notes: list[Note]) -> dict[str, pl.DataFrame]:
    polls = _file(paths.get("nvml.csv"), _NVML, ("t_ns", "gpu"), notes)
    samples = _buffer(_file(paths.get("buf.csv"), _BUF, ("t_us", "gpu", "kind"), notes))
    window = probe_window(polls, samples)
    if window is None and not (polls.is_empty() and samples.is_empty()):
        notes.append(
            Note("info", "the utilization counter's own window can't be seen in the data; taken as unknown")
        )
    tables = {
        "gpu": _gpu(polls, samples, window),
        "gpu_counters": _counters(_file(paths.get("gpm.csv"), _GPM, ("t_ns", "gpu"), notes)),
        "gpu_process": _process(_file(paths.get("proc.csv"), _PROC, ("t_us", "gpu", "pid"), notes)),
    }
    named = {name: frame.with_columns(pl.lit(host).alias("host")) for name, frame in tables.items()}
    return {**named, "gpus": _gpus(smi, tables, window, host)}


def _file(
    path: Path | None, columns: dict[str, Any], required: tuple[str, ...], notes: list[Note]
) -> pl.DataFrame:
    """One CSV, empty if it is absent or of another form (then with a note)."""
    if path is None or not path.is_file():
        return pl.DataFrame(schema=columns)
    name = path.name
    try:
        frame, skipped = read_csv(path, columns, required)
    except ImportFormatError as error:
        notes.append(Note("warning", f"{name}: {error.what}"))
        return pl.DataFrame(schema=columns)
    if skipped:
        notes.append(Note("warning", f"{name}: {skipped} rows could not be read; skipped"))
    return frame


def _buffer(rows: pl.DataFrame) -> pl.DataFrame:
    """The driver's samples, utilization and memory utilization side by side.

    The two histories are stamped separately, up to 7 us apart in the H200 traces, so that equal times miss 3 %
    of the pairs: the nearest within 1 ms is the same sample. A sample without partner keeps its row.
    """
    rows = rows.with_row_index("row").sort("t_us", maintain_order=True)
    util = rows.filter(pl.col("kind") == _UTIL).select("t_us", "gpu", "row", pl.col("val").alias("util"))
    memory = rows.filter(pl.col("kind") == _MEM_UTIL).select(
        "t_us", "gpu", pl.col("val").alias("mem_util"), pl.col("row").alias("pair")
    )
    joined = util.join_asof(
        memory, on="t_us", by="gpu", strategy="nearest", tolerance=1000, check_sortedness=False
    )
    alone = memory.filter(~pl.col("pair").is_in(joined["pair"].drop_nulls().implode()))
    both = pl.concat([joined.drop("pair"), alone.rename({"pair": "row"})], how="diagonal")
    return both.sort("row").drop("row")


def probe_window(polls: pl.DataFrame, samples: pl.DataFrame) -> int | None:
    """The utilization counter's own averaging window, learned from the data.

    The driver keeps one sample a window, so the median distance of its samples is the window (199,988 us ->
    200 ms). Without them: a polled value changes at most once a window. At 10 Hz on an H200 the change distances
    are 199, 200, 398, 201 ms ...: the first quartile, averaged with what lies within 25 % of it, is 200 ms. Where
    that is no more than 1.4 poll periods, polling is too slow to tell.

    Args:
        polls: ``t_ns, gpu, util, mem_util``.
        samples: ``t_us, gpu``.

    Returns:
        Nanoseconds, rounded to a millisecond; None if it can't be told.
    """
    if samples.height > MIN_CHANGES:
        return _round(samples.select(_distance("t_us") * 1000).to_series().median())
    period = polls.select(_distance("t_ns")).to_series().median()
    changed = pl.any_horizontal(pl.col("util", "mem_util").diff().over("gpu") != 0)
    distance = polls.filter(changed).select(_distance("t_ns")).to_series().drop_nulls()
    quartile = distance.quantile(0.25)
    if (
        len(distance) < MIN_CHANGES
        or quartile is None
        or not isinstance(period, float)
        or quartile <= 1.4 * period
    ):
        return None
    return _round(distance.filter(distance.is_between(0.75 * quartile, 1.25 * quartile)).mean())


def _distance(time: str) -> pl.Expr:
    """Distance to the previous row of the same GPU."""
    return pl.col(time).diff().over("gpu")


def _round(value: object) -> int | None:
    """To whole milliseconds, in nanoseconds."""
    return round(value / 1e6) * 1_000_000 if isinstance(value, float) else None


def _gpu(polls: pl.DataFrame, samples: pl.DataFrame, window: int | None) -> pl.DataFrame:
    """Polls, then samples, each in file order."""
    share = {"util": "util_pct", "mem_util": "mem_util_pct"}
    power = (pl.col("power_mw") / 1000).alias("power_w")
    names = {**share, "mem_used": "mem_used_b", "temp": "temp_c"}
    polled = polls.with_columns(power, pl.lit("poll").alias("source")).drop("power_mw").rename(names)
    sampled = samples.with_columns((pl.col("t_us") * 1000).alias("t_ns"), pl.lit("buffer").alias("source"))
    both = pl.concat([polled, sampled.drop("t_us").rename(share)], how="diagonal")
    return both.with_columns(pl.lit(window, dtype=pl.Int64).alias("window_ns"))


def _counters(rows: pl.DataFrame) -> pl.DataFrame:
    """GPM means over the time since the previous row of that GPU.

    A GPU's first row has no previous one: GPM reports zeros and a NaN there, which are no measurement; it is
    left out.
    """
    window = rows.with_columns(_distance("t_ns").alias("window_ns")).drop_nulls("window_ns")
    return window.filter(pl.col("window_ns") > 0).rename(_COUNTERS)


def _process(rows: pl.DataFrame) -> pl.DataFrame:
    """Per-process utilization; the driver reports only processes that were active since the last sample.

    A row stands for the time since that process's previous row, but after a pause only for the usual distance
    (1 s in the H200 traces).
    """
    since = (pl.col("t_us").diff().over("gpu", "pid") * 1000).alias("window_ns")
    timed = rows.with_columns(since, (pl.col("t_us") * 1000).alias("t_ns"))
    usual = timed["window_ns"].median()
    typical = pl.lit(None, dtype=pl.Int64) if usual is None else pl.lit(round(float(str(usual))))
    window = pl.when(pl.col("window_ns") <= 1.5 * typical).then(pl.col("window_ns")).otherwise(typical)
    return timed.with_columns(window).drop("t_us").rename({"sm": "sm_pct", "mem": "mem_pct"})


def _gpus(smi: Path, tables: dict[str, pl.DataFrame], window: int | None, host: str) -> pl.DataFrame:
    """One row a GPU that any file shows; name and memory from ``nvidia-smi.csv``."""
    seen = pl.concat([tables["gpu"].select("gpu"), tables["gpu_counters"].select("gpu")]).unique().sort("gpu")
    named = _smi(smi)
    return seen.join(named, on="gpu", how="left", maintain_order="left").with_columns(
        pl.lit(host).alias("host"), pl.lit(window, dtype=pl.Int64).alias("util_window_ns")
    )


def _smi(path: Path) -> pl.DataFrame:
    """``gpu, name, mem_total_b`` from ``nvidia-smi --query-gpu ... --format=csv``; empty if it does not say."""
    columns = {"index": pl.UInt16, "name": pl.String, "memory.total [mib]": pl.String}
    schema = {"gpu": pl.UInt16, "name": pl.String, "mem_total_b": pl.Int64}
    if not path.is_file():
        return pl.DataFrame(schema=schema)
    try:
        rows, _ = read_csv(path, columns, ("index", "name"))
    except ImportFormatError:
        return pl.DataFrame(schema=schema)
    total = pl.col("memory.total [mib]").str.strip_suffix(" MiB").cast(pl.Int64, strict=False) * 2**20
    return rows.unique("index", keep="first").select(
        pl.col("index").alias("gpu"), "name", total.alias("mem_total_b")
    )
