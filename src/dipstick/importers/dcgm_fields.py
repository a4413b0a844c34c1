"""DCGM's fields: names in the exporter and Prometheus, old and new; short names of ``dcgmi dmon``; values for blank."""

from __future__ import annotations

from typing import Final

FIELDS: Final = {
    "DCGM_FI_DEV_GPU_UTIL": ("util_pct", "%"), "DCGM_FI_DEV_GPU_UTIL_RATIO": ("util_pct", "?"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("mem_util_pct", "%"), "DCGM_FI_DEV_MEM_COPY_UTIL_RATIO": ("mem_util_pct", "?"),
    "DCGM_FI_DEV_FB_USED": ("mem_used_b", "MiB"), "DCGM_FI_DEV_FB_TOTAL": ("mem_total_b", "MiB"),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", "W"), "DCGM_FI_DEV_BOARD_POWER_WATTS": ("power_w", "W"),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_mhz", "MHz"), "DCGM_FI_DEV_GPU_TEMP": ("temp_c", "C"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gr_active_pct", "?"), "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": ("gr_active_pct", "?"),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", "?"), "DCGM_FI_PROF_SM_UTIL_RATIO": ("sm_active_pct", "?"),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_pct", "?"), "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": ("sm_occupancy_pct", "?"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", "?"), "DCGM_FI_PROF_TENSOR_UTIL_RATIO": ("tensor_active_pct", "?"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_pct", "?"), "DCGM_FI_PROF_DRAM_UTIL_RATIO": ("dram_active_pct", "?"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_mib_s", "B/s"), "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_mib_s", "B/s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_mib_s", "B/s"), "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_mib_s", "B/s"),
}  # fmt: skip
"""Meaning and unit; ``?``: percent or ratio, decided from the values (NVIDIA is renaming them, not all at once)."""

SHORT: Final = {
    "GPUTL": "DCGM_FI_DEV_GPU_UTIL", "MCUTL": "DCGM_FI_DEV_MEM_COPY_UTIL", "GRACT": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "SMACT": "DCGM_FI_PROF_SM_ACTIVE", "SMOCC": "DCGM_FI_PROF_SM_OCCUPANCY", "TENSO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DRAMA": "DCGM_FI_PROF_DRAM_ACTIVE", "PCITX": "DCGM_FI_PROF_PCIE_TX_BYTES", "PCIRX": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "NVLTX": "DCGM_FI_PROF_NVLINK_TX_BYTES", "NVLRX": "DCGM_FI_PROF_NVLINK_RX_BYTES", "FBUSD": "DCGM_FI_DEV_FB_USED",
    "FBTTL": "DCGM_FI_DEV_FB_TOTAL", "POWER": "DCGM_FI_DEV_POWER_USAGE", "SMCLK": "DCGM_FI_DEV_SM_CLOCK",
    "TMPTR": "DCGM_FI_DEV_GPU_TEMP",
}  # fmt: skip
"""Columns of ``dcgmi dmon -e``."""

FP64_BLANK: Final = 140_737_488_355_328.0
INT32_BLANK: Final = 0x7FFFFFF0
INT32_BLANKS: Final = 4


def is_blank(value: float) -> bool:
    """DCGM's numbers for *no value*: 2**63 - 16 + k, 2**31 - 16 + k, 2**47 + k."""
    return value >= FP64_BLANK or INT32_BLANK <= value < INT32_BLANK + INT32_BLANKS
