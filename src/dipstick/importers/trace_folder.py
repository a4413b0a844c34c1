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
from dipstick.importers.base import HOST
from dipstick.model import Note

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "trace-folder"
NAME: Final = "trace folder (spans.rK.jsonl, jobs.rK.jsonl, nvml.csv, buf.csv, gpm.csv, proc.csv)"
ABSENT: Final = {
    "spans": "no spans.rK.jsonl: phases, waits and steps can't be told",
    "jobs": "no jobs.rK.jsonl: reward jobs and workers can't be told",
    "gpu": "no nvml.csv and no buf.csv: utilization, dips and states can't be told",
    "gpu_counters": "no gpm.csv: SM, DRAM and PCIe activity are unknown, so waiting is told from power alone",
    "gpu_process": "no proc.csv: the GPU of each process and its share are unknown",
}


def sniff(head: Head) -> float:
    """How sure it is, by file names: each of the folder's own names counts."""
    spans = any(trace_spans.RANK_FILE.fullmatch(name) for name in head.names)
    own = len(head.names & {"nvml.csv", "buf.csv", "gpm.csv", "proc.csv"})
    return min(1.0, 0.6 * spans + 0.3 * own)


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - the files say all there is
    """Read every file that is there.

    Args:
        path: The folder.
        options: Not needed.
        sink: Gets the tables, and a note for each kind of file that is absent and for lines that were skipped.

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
    sink.saw(
        sum(frame.height for name, frame in filled.items() if name not in {"processes", "gpus", "events"})
    )
    for name, frame in filled.items():
        sink.rows(name, frame)
    for note in notes:
        sink.note(note.level, note.text)
