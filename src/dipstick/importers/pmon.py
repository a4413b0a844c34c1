"""``nvidia-smi pmon``: one row a process; a GPU without one has a row of dashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.whitespace import Known, header_of, read_monitor

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "pmon"
NAME: Final = "nvidia-smi pmon"

COLUMNS: Final = {
    "gpu": Known("gpu"), "pid": Known("pid"), "sm": Known("sm_pct", "%"), "mem": Known("mem_pct", "%"),
    "fb": Known("process_mem_b", "MiB"),
    **dict.fromkeys(("type", "enc", "dec", "jpg", "ofa", "ccpm", "command", "name"), Known()),
}  # fmt: skip
"""By header: jpg, ofa, fb and ccpm depend on driver and flags."""


def sniff(head: Head) -> float:
    """A ``#`` line that names gpu and pid."""
    names = [set(header_of(line)) for line in head.lines[:50] if line.lstrip().startswith("#")]
    return 0.95 if any({"gpu", "pid"} <= n for n in names) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """See :func:`dipstick.importers.whitespace.read_monitor`."""
    read_monitor(path, options, sink, COLUMNS, "command")
