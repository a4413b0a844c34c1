"""NVIDIA GPUs through NVML (``nvidia-ml-py``). Fields: docs.nvidia.com/deploy/nvml-api.

``nvmlDeviceGetPcieThroughput`` is never called: it takes 41 ms. GPM gives PCIe for nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dipstick.capture.devices import GpuInfo, GpuReading, Health, ProcessReading, UtilSample
from dipstick.capture.devices.calls import Calls
from dipstick.capture.devices.gpm import Gpm
from dipstick.capture.devices.stamps import Stamps
from dipstick.capture.doctor import spacing

if TYPE_CHECKING:
    from dipstick.capture.devices import Clock, CounterReading

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NO_FUNCTION, NO_DATA = 3, 4, 6, 13, 21
OTHER_VERSION, DEPRECATED = 25, 26
_NEVER: Final = (NOT_SUPPORTED, NO_PERMISSION, NO_FUNCTION, OTHER_VERSION, DEPRECATED)
_NOTHING: Final = (NOT_FOUND, NO_DATA)
"""``Not Found`` of a sample buffer or process list means that there is nothing in it."""

_VALUE: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of ``nvmlValue_t`` by ``nvmlValueType_t``."""

REASONS: Final[dict[int, str]] = {
    0x1: "idle", 0x2: "app_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clocks",
}  # fmt: skip
"""``nvmlClocksEventReason*``, in our words."""

PAIR_NS: Final = 1_000_000
"""The two histories are stamped separately, a few microseconds apart: nearer than this is one sample."""
LONGEST_USUAL_NS: Final = 1_500_000_000
"""A process's sample stands for the time since its last one, if that is not longer ago than this."""


class NvmlDevices:
    """Every GPU that NVML lists.

    Args:
        nvml: The binding: a module like ``pynvml``.
        clock: Stamps the readings.

    Raises:
        Exception: NVML can't be started (its own error, with its own words).
    """

    name = "NVML"

    def __init__(self, nvml: Any, clock: Clock) -> None:
        nvml.nvmlInit()
        self.health = Health()
        self._clock = clock
        self._calls = Calls(nvml, self.health, never=_NEVER, nothing=_NOTHING, code_of="value")
        self._handles = self._open(nvml.nvmlDeviceGetCount())
        self.gpus = tuple(self._info(gpu) for gpu in self._handles)
        self._stamps = Stamps(clock)
        self._start = self._stamps.now
        self._seen = dict.fromkeys(self._handles, self._start)
        self._last: dict[tuple[int, str], tuple[int, int]] = {}
        self._processes: dict[tuple[int, int], int] = {}
        self._gpm = {gpu: Gpm(self._calls, gpu, handle, clock) for gpu, handle in self._handles.items()}
        self._reasons = self._reasons_function()

    def _open(self, count: int) -> dict[int, Any]:
        handles = {gpu: self._calls.get(gpu, "nvmlDeviceGetHandleByIndex", gpu) for gpu in range(count)}
        return {gpu: handle for gpu, handle in handles.items() if handle is not None}

    def _info(self, gpu: int) -> GpuInfo:
        ask, handle = self._calls.get, self._handles[gpu]
        memory = ask(gpu, "nvmlDeviceGetMemoryInfo", handle)
        name, uuid = ask(gpu, "nvmlDeviceGetName", handle), ask(gpu, "nvmlDeviceGetUUID", handle)
        window, reach = self._probe_window(gpu)
        return GpuInfo(gpu, _text(name), _text(uuid), getattr(memory, "total", None), window, reach)

    def _probe_window(self, gpu: int) -> tuple[int | None, int | None]:
        """The counter's window (the driver keeps one sample a window) and how far its samples reach back."""
        kind = self._calls.binding.NVML_GPU_UTILIZATION_SAMPLES
        got = self._calls.get(gpu, "nvmlDeviceGetSamples", self._handles[gpu], kind, 0)
        stamps = [sample.timeStamp for sample in got[1]] if got else []
        step = spacing(stamps)
        if step is None:
            return None, None
        return round(step * 1e3) * 1_000_000, (max(stamps) - min(stamps)) * 1000

    def _reasons_function(self) -> str:
        """Newer bindings have another name for the same call."""
        newer = "nvmlDeviceGetCurrentClocksEventReasons"
        return newer if hasattr(self._calls.binding, newer) else "nvmlDeviceGetCurrentClocksThrottleReasons"

    def read(self, gpu: int) -> GpuReading:
        """Poll it: seven calls of 1-5 µs."""
        ask, handle, nvml = self._calls.get, self._handles[gpu], self._calls.binding
        now = self._clock.mono()
        rates = ask(gpu, "nvmlDeviceGetUtilizationRates", handle)
        milliwatts = ask(gpu, "nvmlDeviceGetPowerUsage", handle)
        reasons = ask(gpu, self._reasons, handle)
        return GpuReading(
            t_ns=now,
            util_pct=None if rates is None else rates.gpu,
            mem_util_pct=None if rates is None else rates.memory,
            mem_used_b=getattr(ask(gpu, "nvmlDeviceGetMemoryInfo", handle), "used", None),
            power_w=None if milliwatts is None else milliwatts / 1000,
            sm_mhz=ask(gpu, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            temp_c=ask(gpu, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            throttle=None if reasons is None else reason_words(reasons),
        )

    def counters(self, gpu: int) -> list[CounterReading]:
        """GPM means since the last call."""
        reading = self._gpm[gpu].read()
        return [] if reading is None else [reading]

    def history(self, gpu: int) -> list[UtilSample]:
        """The driver's sample buffer: utilization and memory utilization, each sample once."""
        self._stamps.refresh()
        nvml, after = self._calls.binding, self._seen[gpu]
        busy = self._samples(gpu, "gpu", nvml.NVML_GPU_UTILIZATION_SAMPLES, after)
        memory = self._samples(gpu, "memory", nvml.NVML_MEMORY_UTILIZATION_SAMPLES, after)
        found = pair(busy, memory)
        if found:
            self._seen[gpu] = found[-1].t_ns
        return found

    def _samples(self, gpu: int, name: str, kind: int, after_ns: int) -> list[tuple[int, float]]:
        """(time, value) of each sample after a time, in order."""
        since = self._since(gpu, name)
        got = self._calls.get(gpu, "nvmlDeviceGetSamples", self._handles[gpu], kind, since)
        if got is None or not got[1]:
            return []
        member = _VALUE[got[0]] if 0 <= got[0] < len(_VALUE) else "uiVal"
        timed = [(self._stamps.mono(s.timeStamp, after_ns), s) for s in got[1]]
        known = [(time, sample.timeStamp, sample) for time, sample in timed if time is not None]
        found = sorted(known, key=lambda each: each[:2])
        if found:
            self._last[gpu, name] = (found[-1][1], self._stamps.steps)
        return [(time, float(getattr(sample.sampleValue, member))) for time, _, sample in found]

    def _since(self, gpu: int, name: str) -> int:
        """The driver's stamp of the last sample; 0 (all of them) after a step of the wall clock."""
        stamp, steps = self._last.get((gpu, name), (0, 0))
        return stamp if steps == self._stamps.steps else 0

    def processes(self, gpu: int) -> list[ProcessReading]:
        """Utilization by process since the last call (1.5 ms), and memory by process now."""
        self._stamps.refresh()
        since = self._since(gpu, "process")
        busy = self._calls.get(gpu, "nvmlDeviceGetProcessUtilization", self._handles[gpu], since) or []
        readings = [reading for sample in busy if (reading := self._use(gpu, sample)) is not None]
        if busy:
            self._last[gpu, "process"] = (max(sample.timeStamp for sample in busy), self._stamps.steps)
        now = self._clock.mono()
        running = self._calls.get(gpu, "nvmlDeviceGetComputeRunningProcesses", self._handles[gpu]) or []
        return readings + [
            ProcessReading(now, None, p.pid, mem_used_b=_memory(p.usedGpuMemory)) for p in running
        ]

    def _use(self, gpu: int, sample: Any) -> ProcessReading | None:
        """One process's share; the driver repeats old entries (even ones of processes that ended long ago)."""
        last = self._processes.get((gpu, sample.pid))
        time = self._stamps.mono(sample.timeStamp, self._start if last is None else last)
        if time is None:
            return None
        self._processes[gpu, sample.pid] = time
        window = None if last is None or time - last > LONGEST_USUAL_NS else time - last
        return ProcessReading(time, window, sample.pid, _percent(sample.smUtil), _percent(sample.memUtil))

    def close(self) -> None:
        """Free GPM's samples and NVML."""
        for gpm in self._gpm.values():
            gpm.close()
        self._calls.get(-1, "nvmlShutdown")


def pair(busy: list[tuple[int, float]], memory: list[tuple[int, float]]) -> list[UtilSample]:
    """Samples of both histories side by side; one without a partner within ``PAIR_NS`` stays alone.

    ``[(200 ms, 99)], [(200.004 ms, 20), (400 ms, 30)]`` gives (200 ms, 99, 20) and (400 ms, None, 30).
    """
    found, rest = [], list(memory)
    for time, value in busy:
        partner = next((m for m in rest if abs(m[0] - time) <= PAIR_NS), None)
        if partner is not None:
            rest.remove(partner)
        found.append(UtilSample(time, value, None if partner is None else partner[1]))
    return sorted([*found, *(UtilSample(time, None, value) for time, value in rest)])


@cache
def reason_words(bits: int) -> str:
    """``nvmlClocksEventReason*`` bits as words: 0x24 is ``sw_power_cap+sw_thermal``; 0 is the empty string."""
    known = [word for bit, word in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return "+".join([*known, hex(rest)] if rest else known)


def _percent(value: int) -> float | None:
    """A share; the driver's "not a value" is beyond what a percentage can be."""
    return float(value) if 0 <= value <= 110 else None  # noqa: PLR2004 - as recording.clean


def _memory(value: int | None) -> int | None:
    """Bytes; all ones means that the driver won't say."""
    return None if value is None or value >= 2**63 else value


def _text(value: Any) -> str | None:
    """Old bindings return bytes where new ones return text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
