"""Tables of telemetry that people write by hand, and nvidia-smi's CSV without a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import MEANINGS
from dipstick.importers.delimited import read_telemetry
from dipstick.importers.layout import find_layout, looks_like_value
from dipstick.importers.names import named

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "csv"
NAME: Final = "table of GPU telemetry (CSV, TSV, blanks)"


def sniff(head: Head) -> float:
    """A header with names of telemetry, or rows of nothing but numbers; a table that will be refused is still one."""
    if head.text.lstrip()[:1] in {"{", "["}:
        return 0.0  # JSON
    try:
        layout = find_layout(head.lines, str(head.path))
    except ImportFormatError:
        return 0.3
    if layout is None or len(layout.sample) < 1:
        return 0.0
    if not layout.has_header:
        values = [looks_like_value(cell) or cell[:1].isdigit() for row in layout.sample for cell in row]
        return 0.25 if sum(values) >= 0.9 * len(values) else 0.0
    told = [named(name) for name in layout.names]
    metric = any((n.meaning in MEANINGS and MEANINGS[n.meaning].table) or n.gpu is not None for n in told)
    open_one = any(n.sure == "ambiguous" or n.meaning == "gpu" for n in told) and any(
        n.meaning == "time" for n in told
    )
    return 0.6 if metric else 0.3 if open_one else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """See :func:`dipstick.importers.delimited.read_telemetry`."""
    read_telemetry(path, options, sink)
