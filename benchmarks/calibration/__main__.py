"""Calibration by simulation: are the checks right at the rate they claim?

    python -m benchmarks.calibration all --runs 500 --jobs 2 -o rows.jsonl
    python -m benchmarks.calibration alignment --quick

Writes one JSON row a figure (see :class:`rows.Row`) and a summary on stderr. Exit status 1 if a level is
significantly above its nominal rate, a power significantly below the methods' table, or a relation of S7 that does
not exist is found in more than 9 % of runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only fight over the cores

from . import alignment, s6_s7
from .rows import Cell, Row, above_limit, as_lines, failures, judge, rows_of

SUITES = {
    "alignment": (alignment.cells, alignment.quick_cells),
    "s6_s7": (s6_s7.cells, s6_s7.quick_cells),
    "all": (
        lambda: [*alignment.cells(), *s6_s7.cells()],
        lambda: [*alignment.quick_cells(), *s6_s7.quick_cells()],
    ),
}
"""Cells of the full and of the quick form."""

QUICK_RUNS = 60


def run_cell(cell: Cell, runs: int, seed: int) -> list[Row]:
    """One cell, timed."""
    began = time.perf_counter()
    rows = rows_of(cell, runs, seed)
    return [replace(row, seconds=round(time.perf_counter() - began, 1)) for row in rows]


def run_cells(cells: list[Cell], runs: int, seed: int, jobs: int) -> list[Row]:
    """All cells, in ``jobs`` processes, with a line a cell on stderr."""
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs) as pool:
        for cell, found in zip(
            cells, pool.map(run_cell, cells, [runs] * len(cells), [seed] * len(cells)), strict=True
        ):
            rows += found
            rates = ", ".join(f"{row.figure} {row.rate:.3f}" for row in found)
            print(f"{cell.scenario} {cell.name}: {rates} ({found[0].seconds} s)", file=sys.stderr, flush=True)
    return judge(rows)


def main(argv: list[str] | None = None) -> int:
    """Runs a suite and writes its rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument(
        "--runs", type=int, default=500, help="runs a cell (cells with costly fits take a fifth)"
    )
    parser.add_argument("--quick", action="store_true", help=f"a few cells, {QUICK_RUNS} runs each")
    parser.add_argument("--only", default="", help="cells whose name contains this, e.g. S5")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("-o", "--output", type=Path, help="file for the rows; stdout if left out")
    options = parser.parse_args(argv)
    full, quick = SUITES[options.suite]
    chosen = [c for c in (quick if options.quick else full)() if options.only in f"{c.scenario} {c.name}"]
    rows = run_cells(chosen, QUICK_RUNS if options.quick else options.runs, options.seed, options.jobs)
    if options.output:
        options.output.write_text(as_lines(rows), encoding="utf-8")
    else:
        sys.stdout.write(as_lines(rows))
    bad = [*failures(rows), *above_limit(rows)]
    for row in bad:
        print(f"{row.judgement}: {row.scenario} {row.cell}: {row.figure} {row.rate:.3f}", file=sys.stderr)
    print(f"{len(rows)} figures, {len(bad)} not as they should be", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
