"""AMD GPUs through ``amdsmi``: the same columns. Tested on hand-written answers only, never on hardware.

What amdsmi does not give stays null: no sample buffer, no profiling counters, no utilization by process (its
``engine_usage`` counts nanoseconds since the process began). States stay ``unknown`` (docs/states.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dipstick.capture.devices import GpuInfo, GpuReading, Health, ProcessReading
from dipstick.capture.devices.calls import Calls

if TYPE_CHECKING:
    from dipstick.capture.devices import Clock, CounterReading, UtilSample

_NEVER: Final = (2, 3, 10)
"""``AMDSMI_STATUS_NOT_SUPPORTED``, ``NOT_YET_IMPLEMENTED``, ``NO_PERM`` (amdsmi.h)."""
_POWER: Final = ("current_socket_power", "average_socket_power", "socket_power")
"""W. MI300 fills the first, MI200 and Navi the second; the third came with ROCm 6.4."""
HOTTEST_C: Final = 200.0
"""Beyond this the value is not in °C (some releases gave thousandths)."""


class AmdDevices:
    """Every GPU that amdsmi lists.

    Args:
        amdsmi: The binding.
        clock: Stamps the readings.

    Raises:
        Exception: The library can't be started.
    """

    name = "amdsmi"

    def __init__(self, amdsmi: Any, clock: Clock) -> None:
        amdsmi.amdsmi_init()
        self.health = Health()
        self._clock = clock
        self._calls = Calls(amdsmi, self.health, never=_NEVER, nothing=(), code_of="err_code")
        self._handles = list(amdsmi.amdsmi_get_processor_handles())
        self.gpus = tuple(self._info(gpu) for gpu in range(len(self._handles)))

    def _info(self, gpu: int) -> GpuInfo:
        ask, handle, smi = self._calls.get, self._handles[gpu], self._calls.binding
        asic = ask(gpu, "amdsmi_get_gpu_asic_info", handle) or {}
        name = str(asic.get("market_name") or "AMD GPU")
        total = ask(gpu, "amdsmi_get_gpu_memory_total", handle, smi.AmdSmiMemoryType.VRAM)
        uuid = ask(gpu, "amdsmi_get_gpu_device_uuid", handle)
        return GpuInfo(gpu, name if "AMD" in name else f"AMD {name}", uuid, _number(total))

    def read(self, gpu: int) -> GpuReading:
        """Poll it."""
        ask, handle, smi = self._calls.get, self._handles[gpu], self._calls.binding
        now = self._clock.mono()
        activity = ask(gpu, "amdsmi_get_gpu_activity", handle) or {}
        power = ask(gpu, "amdsmi_get_power_info", handle) or {}
        clock = ask(gpu, "amdsmi_get_clock_info", handle, smi.AmdSmiClkType.GFX) or {}
        kind, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        heat = _number(ask(gpu, "amdsmi_get_temp_metric", handle, kind, metric))
        return GpuReading(
            t_ns=now,
            util_pct=_number(activity.get("gfx_activity")),
            mem_util_pct=_number(activity.get("umc_activity")),
            mem_used_b=_number(ask(gpu, "amdsmi_get_gpu_memory_usage", handle, smi.AmdSmiMemoryType.VRAM)),
            power_w=next((watts for key in _POWER if (watts := _number(power.get(key)))), None),
            sm_mhz=_number(clock.get("clk", clock.get("cur_clk"))),
            temp_c=heat if heat is not None and heat <= HOTTEST_C else None,
        )

    def history(self, _gpu: int) -> list[UtilSample]:
        """There is none: amdsmi keeps no samples."""
        return []

    def counters(self, _gpu: int) -> list[CounterReading]:
        """There are none: they need rocprofiler."""
        return []

    def processes(self, gpu: int) -> list[ProcessReading]:
        """Memory by process."""
        listed = self._calls.get(gpu, "amdsmi_get_gpu_process_list", self._handles[gpu]) or []
        now = self._clock.mono()
        return [
            ProcessReading(
                now, None, p["pid"], mem_used_b=_number((p.get("memory_usage") or {}).get("vram_mem"))
            )
            for p in listed
            if isinstance(p, dict) and isinstance(p.get("pid"), int)
        ]

    def close(self) -> None:
        """Let go of the library."""
        self._calls.get(-1, "amdsmi_shut_down")


def _number(value: Any) -> Any:
    """A number, or None: amdsmi writes "N/A" for what it does not know."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
