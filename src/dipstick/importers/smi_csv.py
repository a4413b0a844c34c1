"""``nvidia-smi --query-gpu=… --format=csv``, in all its shapes: with and without header, units, index; looped by a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.delimited import read_telemetry
from dipstick.importers.layout import find_layout
from dipstick.importers.names import named

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "nvidia-smi"
NAME: Final = "nvidia-smi query CSV"


def sniff(head: Head) -> float:
    """By the names that nvidia-smi gives its columns."""
    if not any(
        "utilization." in line or "memory." in line or "power.draw" in line for line in head.lines[:200]
    ):
        return 0.0
    try:
        layout = find_layout(head.lines, str(head.path))
    except ImportFormatError:
        return 0.3  # a header that does not fit its rows: refused when read
    if layout is None or not layout.has_header:
        return 0.0
    certain = [name for name in layout.names if named(name).sure == "certain" and "." in name]
    return 0.95 if certain else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """See :func:`dipstick.importers.delimited.read_telemetry`."""
    read_telemetry(path, options, sink)
