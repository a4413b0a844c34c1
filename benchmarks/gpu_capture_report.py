"""What a recording of ``gpu_load.py`` holds: rates, gaps, attribution, and the readings of each load beside the known ones.

python benchmarks/gpu_capture_report.py RUN
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import polars as pl

from dipstick.recording.reader import open_recording

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording

KNOWN = {
    "idle again": "util 0, 118-135 W (H200, context open)",
    "matmul": "util 99, mem 23, 685 W, SM 96, DRAM 16",
    "device copies": "util 99, mem 100, 463 W, SM 99, DRAM 88",
    "host copies": "util 100, mem 2, 126 W, SM 0, PCIe in 56 GiB/s",
    "tiny kernels": "util 32 (a tight stream; one at a time reads less), SM 0.1",
    "half duty": "util 49, SM 42",
}
SETTLE_NS = 500_000_000
"""Left out at both ends of a load: windows that straddle it, and power, which lags by a second."""


def rates(recording: Recording) -> list[str]:
    """How often each GPU was seen, by source, and the longest hole."""
    lines = []
    for table, keys in (
        ("gpu", ("gpu", "source")),
        ("gpu_counters", ("gpu",)),
        ("gpu_process", ("gpu", "pid")),
    ):
        if not recording.has(table):
            lines.append(f"{table}: no rows")
            continue
        gaps = pl.col("t_ns").diff() / 1e6
        grouped = recording.table(table).sort("t_ns").group_by(keys, maintain_order=True)
        stats = grouped.agg(
            pl.len().alias("rows"), gaps.median().alias("median_ms"), gaps.max().alias("longest_ms")
        )
        for row in stats.sort(keys).iter_rows(named=True):
            named = ", ".join(f"{key} {row[key]}" for key in keys)
            lines.append(
                f"{table} {named}: {row['rows']} rows, {_number(row['median_ms'])} ms apart, longest {_number(row['longest_ms'])} ms"
            )
    return lines


def readings(recording: Recording) -> list[str]:
    """Means inside each load, per GPU."""
    spans = recording.table("spans", columns=("name", "t0_ns", "t1_ns")).rows()
    lines = []
    for name, t0, t1 in spans:
        if name not in KNOWN and name != "idle":
            continue
        inside = pl.col("t_ns").is_between(t0 + SETTLE_NS, t1)
        gpu = (
            recording.table("gpu")
            .filter(inside)
            .group_by("gpu")
            .agg(pl.col("util_pct", "mem_util_pct", "power_w", "sm_mhz").mean())
        )
        counters = (
            recording.table("gpu_counters")
            .filter(inside)
            .group_by("gpu")
            .agg(pl.col("sm_active_pct", "dram_active_pct", "tensor_active_pct", "pcie_rx_mib_s").mean())
        )
        for row in gpu.join(counters, on="gpu", how="left").sort("gpu").iter_rows(named=True):
            values = ", ".join(f"{key} {_number(value)}" for key, value in row.items() if key != "gpu")
            lines.append(f"{name}, GPU {row['gpu']}: {values}")
        lines.append(f"    known: {KNOWN.get(name, 'util 0')}")
    return lines


def account(recording: Recording) -> list[str]:
    """Health, cost and processes as the sampler saw them."""
    lines = [f"health {recording.manifest.health}"]
    for key, value in recording.manifest.info.items():
        if key.startswith("sampler@") and isinstance(value, dict):
            kept = {name: v for name, v in value.items() if name != "processes"}
            lines.append(f"{key} {kept}")
    processes = recording.table("processes", columns=("pid", "role", "rank", "gpu", "source")).rows()
    return [*lines, f"processes {processes}", *(f"{note.level} {note.text}" for note in recording.notes)]


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"


def main() -> int:
    """Print it."""
    recording = open_recording(sys.argv[1])
    for title, part in (("rates", rates), ("readings", readings), ("account", account)):
        print(f"== {title}", *part(recording), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
