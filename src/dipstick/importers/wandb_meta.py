"""What W&B notes of the machine: GPUs, version, start; only that (command lines, names and paths stay where they are)."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from dipstick.importers.protowire import Message
from dipstick.importers.unix import unix_ns
from dipstick.importers.wandb_system import Device, number_of

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.wandb_system import Run

LARGEST: Final = 1 << 20
MOST_GPUS: Final = 1024

# field numbers of wandb_internal.proto: EnvironmentRecord and GpuNvidiaInfo
_GPU_TYPE, _GPU_COUNT, _GPU_NVIDIA = 18, 19, 24
_NAME, _MEMORY, _UUID = 1, 2, 5


def from_environment(record: Message, run: Run) -> None:
    """The environment record of newer ``.wandb`` files.

    Raises:
        WireError: A GPU in it is damaged.
    """
    devices = [Message(blob) for blob in record.blobs(_GPU_NVIDIA)[:MOST_GPUS]]
    found = [Device(d.text(_NAME) or None, d.text(_UUID) or None, d.integer(_MEMORY)) for d in devices]
    many = min(max(record.integer(_GPU_COUNT) or 0, 0), MOST_GPUS)
    found = found or [Device(record.text(_GPU_TYPE) or None)] * many
    run.devices = found or run.devices


def from_metadata(path: Path, run: Run) -> None:
    """``wandb-metadata.json``, as any version writes it; what can't be read is not there."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST:
        return
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    devices = next((d for key in ("gpu_nvidia", "gpu_devices") if isinstance(d := found.get(key), list)), [])
    named = [_device(entry) for entry in devices[:MOST_GPUS] if isinstance(entry, dict)]
    many = number_of(found.get("gpu_count", found.get("gpucount"))) or 0
    name = found.get("gpu")
    same = [Device(name if isinstance(name, str) else None)] * int(min(max(many, 0), MOST_GPUS))
    run.devices = run.devices or named or same
    if run.start_ns is None:
        run.start_ns = _utc_ns(found.get("startedAt"))


def _device(entry: dict[str, Any]) -> Device:
    name, uuid = entry.get("name"), entry.get("uuid")
    memory = number_of(entry.get("memoryTotal", entry.get("memory_total")))
    return Device(name if isinstance(name, str) else None, uuid if isinstance(uuid, str) else None, memory)


def _utc_ns(text: object) -> int | None:
    """``2025-10-15T08:20:01.440191Z``; older versions leave the Z out and mean UTC all the same."""
    if not isinstance(text, str):
        return None
    try:
        when = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        return None
    return unix_ns(when)
