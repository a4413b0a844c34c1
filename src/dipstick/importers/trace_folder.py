"""Reads a trace folder: spans and jobs as JSON lines, NVML and GPM as CSV, the Trainer's log history.

=====================  ==================================================================================
file                   becomes
=====================  ==================================================================================
spans.rK.jsonl         spans (``t0``, ``t1`` Unix ns; ``pickled_bytes`` -> pickled_b), events, processes
jobs.rK.jsonl          jobs (``submitted`` 0 is null; natoms and opt_steps -> detail), processes
nvml.csv               gpu, source ``poll`` (power_mw / 1000)
buf.csv                gpu, source ``buffer`` (kind 1 utilization, 2 memory utilization; t_us * 1000)
gpm.csv                gpu_counters (window: time since the previous row of that GPU)
proc.csv               gpu_process; the GPU of each process
nvidia-smi.csv         gpus (name, memory.total)
trainer_state.json     scalars (step, name, value; the log holds no times)
=====================  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers import trace_gpu, trace_spans
from dipstick.importers.tables import ImportedTables
from dipstick.model import Note

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "trace folder (spans.rK.jsonl, jobs.rK.jsonl, nvml.csv, buf.csv, gpm.csv, proc.csv)"
HOST: Final = "host0"
"""The files name no host."""

ABSENT: Final = {
    "spans": "no spans.rK.jsonl: phases, waits and steps can't be told",
    "jobs": "no jobs.rK.jsonl: reward jobs and workers can't be told",
    "gpu": "no nvml.csv and no buf.csv: utilization, dips and states can't be told",
    "gpu_counters": "no gpm.csv: SM, DRAM and PCIe activity are unknown, so waiting is told from power alone",
    "gpu_process": "no proc.csv: the GPU of each process and its share are unknown",
}


def sniff(path: Path) -> float:
    """How sure it is, by file names: each of the folder's own names counts."""
    if not path.is_dir():
        return 0.0
    names = {entry.name for entry in path.iterdir()}
    if not names:
        return 0.0
    spans = any(trace_spans.RANK_FILE.fullmatch(name) for name in names)
    own = len(names & {"nvml.csv", "buf.csv", "gpm.csv", "proc.csv"})
    return min(1.0, 0.6 * spans + 0.3 * own)


def read(path: Path) -> ImportedTables:
    """Read every file that is there.

    Args:
        path: The folder.

    Returns:
        The tables, with a note for each kind of file that is absent and for each line that was skipped.

    Raises:
        ImportFormatError: No file holds a usable row.
    """
    notes: list[Note] = []
    tables = {**trace_spans.read(path, HOST, notes), **trace_gpu.read(path, HOST, notes)}
    tables["processes"] = trace_spans.processes(tables, HOST)
    filled = {name: frame for name, frame in tables.items() if not frame.is_empty()}
    if not {"spans", "jobs", "gpu", "gpu_counters"} & filled.keys():
        raise ImportFormatError(
            "no file in the folder holds a usable row.",
            where=str(path),
            fix="; ".join(note.text for note in notes) or "Expected spans.rK.jsonl or nvml.csv.",
        )
    notes += [Note("info", f"missing: {text}") for name, text in ABSENT.items() if name not in filled]
    return ImportedTables(filled, f"trace folder {path.resolve().name}", HOST, tuple(notes))
