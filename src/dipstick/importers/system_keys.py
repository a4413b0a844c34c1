"""Names of GPU metrics in W&B: ``gpu.0.gpu``, with the prefixes ``system.`` and ``system/`` and node labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

METRICS: Final = {
    "gpu": ("util_pct", "%"), "memory": ("mem_util_pct", "%"), "memoryAllocatedBytes": ("mem_used_b", "B"),
    "temp": ("temp_c", "C"), "powerWatts": ("power_w", "W"), "smClock": ("sm_mhz", "MHz"),
    "smActive": ("sm_active_pct", "%"), "smOccupancy": ("sm_occupancy_pct", "%"),
    "pipeTensorActive": ("tensor_active_pct", "%"), "dramActive": ("dram_active_pct", "%"),
}  # fmt: skip
"""By the last part of the key: meaning and unit. ``memory`` is utilization.memory, not memory in use."""

UNUSED: Final = frozenset({
    "memoryAllocated", "powerPercent", "enforcedPowerLimitWatts", "memoryClock", "fanSpeed", "correctedMemoryErrors",
    "uncorrectedMemoryErrors", "memoryReadWriteActivity", "pipeFp16Active", "pipeFp32Active", "pipeFp64Active",
    "pcieTxBytes", "pcieRxBytes", "nvlinkTxBytes", "nvlinkRxBytes", "encoderUtilization",
})  # fmt: skip
"""Known; PCIe and NVLink are left out because their unit differs (MiB/s or bytes/s) under the same name."""

_KEY: Final = re.compile(r"(?:system[./])?gpu\.(?P<gpu>\d{1,4})\.(?P<metric>\w+)(?:/l:(?P<label>.+))?")
_HOST: Final = re.compile(
    r"(?:system[./])?(?:cpu|memory|memory_percent|disk|network|proc|process|gpu\.process)\b.*"
)


@dataclass(frozen=True, slots=True)
class SystemKey:
    """A key of W&B's system metrics.

    Attributes:
        gpu: Index of the GPU (NVML's order); None: it concerns the host.
        meaning: A key of ``binding.MEANINGS``; empty: known, but not used.
        unit: Of its values.
        host: The node, where the key has a label.
    """

    gpu: int | None
    meaning: str = ""
    unit: str = ""
    host: str | None = None


def system_key(key: str) -> SystemKey | None:
    """What a key is, None if it is no system metric that is known.

    ``gpu.process.0.gpu`` repeats the values of the device and says nothing of the process: known, not used.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        return SystemKey(None) if _HOST.fullmatch(key) else None
    gpu, metric = int(match["gpu"]), match["metric"]
    if metric in METRICS:
        return SystemKey(gpu, *METRICS[metric], match["label"])
    return SystemKey(gpu, host=match["label"]) if metric in UNUSED else None
