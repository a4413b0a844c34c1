"""``nvidia-smi dmon``: device monitoring, with any ``-s`` and ``-o``; GPM metrics too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.importers.whitespace import Known, header_of, read_monitor

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "dmon"
NAME: Final = "nvidia-smi dmon"

COLUMNS: Final = {
    "gpu": Known("gpu"), "pwr": Known("power_w", "W"), "gtemp": Known("temp_c", "C"), "sm": Known("util_pct", "%"),
    "mem": Known("mem_util_pct", "%"), "pclk": Known("sm_mhz", "MHz"), "fb": Known("mem_used_b", "MiB"),
    # --gpm-metrics
    "gract": Known("gr_active_pct", "%"), "smutil": Known("sm_active_pct", "%"), "smocc": Known("sm_occupancy_pct", "%"),
    "tenutil": Known("tensor_active_pct", "%"), "dramutil": Known("dram_active_pct", "%"), "drambw": Known("dram_active_pct", "%"),
    "pcietx": Known("pcie_tx_mib_s", "MiB/s"), "pcierx": Known("pcie_rx_mib_s", "MiB/s"),
    "nvltx": Known("nvlink_tx_mib_s", "MiB/s"), "nvlrx": Known("nvlink_rx_mib_s", "MiB/s"),
    "temp": Known("temp_c", "C"),
    **dict.fromkeys(("mtemp", "enc", "dec", "jpg", "ofa", "mclk", "bar1", "ccpm", "sbecc", "dbecc", "pci", "pviol", "tviol",
                     "rxpci", "txpci"), Known()),
}  # fmt: skip
"""By header, because the set of columns depends on driver and flags. ``sm`` is utilization.gpu, ``mem`` utilization.memory."""


def sniff(head: Head) -> float:
    """A ``#`` line that names gpu and a device column, and no pid."""
    names = [set(header_of(line)) for line in head.lines[:50] if line.lstrip().startswith("#")]
    device = {"sm", "pwr", "fb", "rxpci", "pclk", "gract", "smutil", "pviol", "sbecc"}
    return 0.95 if any("gpu" in n and n & device and "pid" not in n for n in names) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """See :func:`dipstick.importers.whitespace.read_monitor`."""
    read_monitor(path, options, sink, COLUMNS, "")
