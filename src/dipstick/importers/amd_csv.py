"""``rocm-smi --csv`` and ``amd-smi monitor --csv``. Written after their sources; not tested on files of real machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.delimited import read_telemetry

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "amd"
NAME: Final = "rocm-smi or amd-smi CSV (by specification, untested on real files)"

_ROCM: Final = ("gpu use (%)", "gpu memory allocated", "gpu memory use (%)", "graphics package power")
_AMD: Final = ("hotspot_temperature", "gfx_clock", "vram_used", "power_usage")


def sniff(head: Head) -> float:
    """By names that only these tools use."""
    for line in head.lines[:50]:
        low = line.lower()
        if low.startswith("device,") and any(name in low for name in _ROCM):
            return 0.95
        if "gpu" in low.split(",") and sum(name in low for name in _AMD) >= 2:  # noqa: PLR2004 - two of its own names
            return 0.95
    return 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """See :func:`dipstick.importers.delimited.read_telemetry`; rocm-smi prints no time."""
    sink.note(
        "info",
        f"{sink.file}: AMD's utilization averages over a window that is not documented; taken as unknown",
    )
    read_telemetry(path, options, sink, model="AMD GPU")
