"""Where telemetry comes from: one interface, several makers of GPUs, and recordings that are played again.

A device answers at once and never raises: what it can't read is None (missing is never zero), and each failed
call is counted. All times are nanoseconds of the sampler's monotonic clock.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of a process; injected, so that tests own the time.

    Attributes:
        mono: Monotonic nanoseconds.
        unix: Unix nanoseconds; may be set while we run.
    """

    mono: Callable[[], int] = time.monotonic_ns
    unix: Callable[[], int] = time.time_ns

    def anchor(self) -> tuple[int, int]:
        """Both at one instant: monotonic is read before and after, and the middle counts."""
        before, unix, after = self.mono(), self.unix(), self.mono()
        return (before + after) // 2, unix


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """One GPU.

    Attributes:
        gpu: Index in the driver's order, whatever CUDA_VISIBLE_DEVICES says.
        name: Product name.
        uuid: Its UUID.
        mem_total_b: Memory.
        util_window_ns: Averaging window of the utilization counter, probed when opened; None if it can't be told yet.
        history_ns: How far back the driver's own samples reach; None if it keeps none.
    """

    gpu: int
    name: str | None = None
    uuid: str | None = None
    mem_total_b: int | None = None
    util_window_ns: int | None = None
    history_ns: int | None = None


class GpuReading(NamedTuple):
    """One poll of one GPU: the columns of the ``gpu`` table that it fills."""

    t_ns: int
    util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_used_b: int | None = None
    power_w: float | None = None
    sm_mhz: float | None = None
    temp_c: float | None = None
    throttle: str | None = None


class UtilSample(NamedTuple):
    """One sample of the driver's own history, stamped by the driver at the end of its window."""

    t_ns: int
    util_pct: float | None
    mem_util_pct: float | None


class CounterReading(NamedTuple):
    """Profiling counters: means over ``[t_ns - window_ns, t_ns]``."""

    t_ns: int
    window_ns: int
    gr_active_pct: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    nvlink_tx_mib_s: float | None = None


class ProcessReading(NamedTuple):
    """One process on one GPU; ``pid`` as the driver names it, which may be another namespace's."""

    t_ns: int
    window_ns: int | None
    pid: int
    sm_pct: float | None = None
    mem_pct: float | None = None
    mem_used_b: int | None = None


@dataclass
class Health:
    """What a device could not do.

    Attributes:
        failed: Failed calls, by function.
        refused: Why a function will never answer on a GPU, by (GPU, function).
    """

    failed: Counter[str] = field(default_factory=Counter)
    refused: dict[tuple[int, str], str] = field(default_factory=dict)


class Devices(Protocol):
    """All GPUs of a host."""

    name: str
    """Where the numbers come from: ``NVML``, ``amdsmi``, ``replay``, ``none``."""
    gpus: tuple[GpuInfo, ...]
    health: Health

    def read(self, gpu: int) -> GpuReading:
        """Poll it now: microseconds."""

    def history(self, gpu: int) -> list[UtilSample]:
        """Samples that the driver took since the last call, oldest first; empty where it keeps none."""

    def counters(self, gpu: int) -> list[CounterReading]:
        """Counter means since the last call; empty where there are none."""

    def processes(self, gpu: int) -> list[ProcessReading]:
        """Who used it since the last call."""

    def close(self) -> None:
        """Let go of the driver."""


class NoDevices:
    """A host without a GPU that can be read; ``why`` says what was tried."""

    name = "none"
    gpus: tuple[GpuInfo, ...] = ()

    def __init__(self, why: str) -> None:
        self.why = why
        self.health = Health()

    def read(self, gpu: int) -> GpuReading:
        """There is nothing to read."""
        raise IndexError(gpu)

    def history(self, _gpu: int) -> list[UtilSample]:
        """There is none."""
        return []

    def counters(self, _gpu: int) -> list[CounterReading]:
        """There are none."""
        return []

    def processes(self, _gpu: int) -> list[ProcessReading]:
        """There are none."""
        return []

    def close(self) -> None:
        """There is nothing to let go of."""
