"""A large file as `nvidia-smi --query-gpu=… --format=csv -lms 100` writes it, 8 GPUs: the same bytes for the same size.

python benchmarks/telemetry_csv.py FILE SWEEPS
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

GPUS = 8
PIECE = 100_000
HEADER = "timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.total [MiB], memory.used [MiB], power.draw [W]\n"


def piece(first: int, sweeps: int, chance: np.random.Generator) -> str:
    """Some sweeps, 100 ms apart; the GPUs of a sweep within 2 ms."""
    rows = sweeps * GPUS
    gpu = np.tile(np.arange(GPUS), sweeps)
    ms = np.repeat(np.arange(first, first + sweeps) * 100, GPUS) + gpu % 3
    frame = pl.DataFrame({
        "at": pl.Series(ms * 1000 + 1_796_053_333_000_000).cast(pl.Datetime("us")), "gpu": gpu,
        "util": chance.integers(0, 101, rows), "memory": chance.integers(0, 80, rows),
        "used": chance.integers(0, 100_000, rows), "power": chance.uniform(80, 680, rows).round(2),
    })  # fmt: skip
    line = pl.format(
        "{}, {}, NVIDIA H200, {} %, {} %, 143771 MiB, {} MiB, {} W",
        pl.col("at").dt.strftime("%Y/%m/%d %H:%M:%S%.3f"), "gpu", "util", "memory", "used", "power",
    )  # fmt: skip
    return "\n".join(frame.select(line).to_series().to_list()) + "\n"


def main(path: Path, sweeps: int) -> None:
    """Write the file."""
    chance = np.random.default_rng(7)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as out:
        out.write(HEADER)
        for first in range(0, sweeps, PIECE):
            out.write(piece(first, min(PIECE, sweeps - first), chance))
    temporary.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
