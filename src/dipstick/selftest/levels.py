"""What the instruments read while a GPU does one thing, from runs with known loads on H200 (docs/states.md).

Columns: ``utilization.gpu`` and ``utilization.memory`` (percent), board power (W), SM, DRAM and tensor activity
(percent), PCIe receive (MiB/s). A waiting collective and a bus copy both read 100 % utilization at idle power.
"""

from __future__ import annotations

from typing import Final

SIGNALS: Final = (
    "util_pct", "mem_util_pct", "power_w", "sm_active_pct", "dram_active_pct", "tensor_active_pct", "pcie_rx_mib_s",
)  # fmt: skip

IDLE_W: Final = 121.0
GIB_50: Final = 50 * 1024.0

LEVELS: Final[dict[str, tuple[float, ...]]] = {
    "idle": (0, 0, IDLE_W, 0, 0, 0, 0.3),
    "gap": (10, 2, 150, 5, 1, 0, 20),
    "weight_sync": (48, 35, 300, 20, 30, 0, 40),
    "generate": (99, 81, 560, 70, 63, 20, 40),
    "wait": (100, 0, 127, 0.8, 0, 0, 0.4),
    "logprobs": (95, 40, 600, 80, 40, 60, 40),
    "parse": (4, 0, 130, 1, 0, 0, 20),
    "reward": (17, 3, 150, 6, 2, 0, 40),
    "transfer": (100, 2, 126, 0, 1, 0, GIB_50),
    "forward": (60, 20, 420, 50, 18, 35, 40),
    "backward": (62, 22, 430, 52, 20, 36, 40),
    "optimizer": (50, 40, 300, 30, 35, 0, 40),
    "checkpoint": (4, 0, 130, 1, 0, 0, 5),
    "cache_clear": (20, 2, 150, 2, 1, 0, 20),
}
"""By what a rank is doing (the stretches of ``dipstick.selftest.loop``)."""
