"""Which GPUs a host has: the first maker whose driver answers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dipstick.capture.devices import NoDevices
from dipstick.capture.devices.amd import AmdDevices
from dipstick.capture.devices.nvml import NvmlDevices

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.capture.devices import Clock, Devices


def open_devices(clock: Clock, load: Callable[[str], Any] = import_module) -> Devices:
    """The GPUs of this host: NVIDIA's, else AMD's, else none (with the reasons).

    Args:
        clock: Stamps the readings.
        load: Imports a binding by module name; tests hand in their own.
    """
    tries: tuple[tuple[str, Callable[[Any, Clock], Devices]], ...] = (
        ("pynvml", NvmlDevices),
        ("amdsmi", AmdDevices),
    )
    reasons = []
    for module, kind in tries:
        try:
            devices = kind(load(module), clock)
        except Exception as error:  # noqa: BLE001 - a binding without its library raises anything, KeyError and OSError included
            reasons.append(f"{module}: {str(error) or type(error).__name__}")
            continue
        if devices.gpus:
            return devices
        devices.close()
        reasons.append(f"{module}: no GPU")
    return NoDevices("; ".join(reasons))
