"""One telemetry file of a trace folder by itself: nvml.csv, buf.csv, gpm.csv or proc.csv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers import trace_gpu
from dipstick.importers.binding import Binding

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options
    from dipstick.model import Note

FORMAT: Final = "trace-file"
NAME: Final = "telemetry file of a trace folder (nvml.csv, buf.csv, gpm.csv, proc.csv)"

HEADERS: Final = {
    "t_ns,gpu,util,mem_util": "nvml.csv", "t_us,gpu,kind,val": "buf.csv", "t_ns,gpu,gr_active,sm_util": "gpm.csv",
    "t_us,gpu,pid,sm,mem": "proc.csv",
}  # fmt: skip
"""How each one's first line begins."""

_MEANINGS: Final = {
    "nvml.csv": {"util": "util_pct", "mem_util": "mem_util_pct", "mem_used": "mem_used_b", "power_mw": "power_w",
                 "sm_mhz": "sm_mhz", "temp": "temp_c"},
    "buf.csv": {"val": "util_pct"},
    "gpm.csv": {"gr_active": "gr_active_pct", "sm_util": "sm_active_pct", "sm_occ": "sm_occupancy_pct",
                "tensor": "tensor_active_pct", "dram_bw": "dram_active_pct", "pcie_tx_mibs": "pcie_tx_mib_s",
                "pcie_rx_mibs": "pcie_rx_mib_s", "nvl_rx": "nvlink_rx_mib_s", "nvl_tx": "nvlink_tx_mib_s"},
    "proc.csv": {"sm": "sm_pct", "mem": "mem_pct"},
}  # fmt: skip


def kind_of(head: Head) -> str:
    """Which of the four it is, by its first line; empty: none."""
    first = head.lines[0] if head.lines else ""
    return next((kind for start, kind in HEADERS.items() if first.startswith(start)), "")


def sniff(head: Head) -> float:
    """By its first line."""
    return 1.0 if kind_of(head) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:  # noqa: ARG001 - the file says all there is
    """Read it as the trace folder's importer does."""
    from dipstick.importers.base import Head  # noqa: PLC0415 - typing only above

    kind = kind_of(Head(path))
    if not kind:
        raise ImportFormatError(
            "its first line is none of the four headers.", where=str(path), fix="; ".join(HEADERS)
        )
    notes: list[Note] = []
    tables = trace_gpu.read_one(path, kind, sink.host, notes)
    time = "t_ns" if kind in {"nvml.csv", "gpm.csv"} else "t_us"
    sink.bind(Binding(time, "time"), Binding("gpu", "gpu"))
    sink.bind(*(Binding(name, meaning) for name, meaning in _MEANINGS[kind].items()))
    sink.saw(sum(frame.height for name, frame in tables.items() if name != "gpus"))
    for name, frame in tables.items():
        sink.rows(name, frame)
    for note in notes:
        sink.note(note.level, note.text)
