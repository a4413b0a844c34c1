"""A stand-in for NVML with the habits of an H200 and driver 580, for tests and for measuring the sampler without a GPU.

The load is a function of time. The utilization counter is a mean over a 200 ms grid; the driver keeps 14 s of it and
stamps each window in Unix microseconds; GPM gives means between two samples; a process that used nothing is not listed.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

S = 1_000_000_000
WINDOW_NS = S // 5
HISTORY_NS = 14 * S
UNIX_NS = 1_796_053_319 * S
NOT_SUPPORTED, NOT_FOUND, GPU_IS_LOST = 3, 6, 15


class NVMLError(Exception):
    """As the binding raises it: the code is in ``value``."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__({3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}.get(value, f"error {value}"))


@dataclass
class FakeClock:
    """Both clocks of a process, moved by hand; the wall clock can be set while it runs.

    Attributes:
        now: Monotonic nanoseconds.
        offset: Unix minus monotonic at the start.
        steps: (monotonic time, by how much) of each time that the wall clock is set.
    """

    now: int = 1000 * S
    offset: int = UNIX_NS - 1000 * S
    steps: list[tuple[int, int]] = field(default_factory=list)

    def mono(self) -> int:
        """Monotonic nanoseconds."""
        return self.now

    def unix(self) -> int:
        """Unix nanoseconds."""
        return self.unix_at(self.now)

    def unix_at(self, mono: int) -> int:
        """What the wall clock shows at a monotonic time."""
        return mono + self.offset + sum(by for at, by in self.steps if mono >= at)

    def pass_time(self, seconds: float) -> None:
        """Move on."""
        self.now += round(seconds * S)


class RealClock(FakeClock):
    """The machine's own clocks behind the same interface."""

    def mono(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def unix_at(self, mono: int) -> int:
        """What the wall clock shows at a monotonic time, if nobody sets it."""
        return mono + time.time_ns() - time.monotonic_ns()


@dataclass
class User:
    """A process on a GPU; from ``until`` on only its stale entry is left in the driver's list."""

    pid: int
    sm: int = 50
    memory_b: int | None = 2**30
    until: int = 2**63


class FakeNvml:
    """GPUs by index; each function counts its calls, and can be told to fail.

    Args:
        clock: The time; the machine's if None.
        gpus: How many.
        load: Utilization in percent of a GPU at a monotonic time.
        users: Processes by GPU.
        refuse: Error code by function.
        absent: Functions that the binding does not have.
        gpm: Whether there are profiling counters.
    """

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_GPU_UTILIZATION_SAMPLES = 1
    NVML_MEMORY_UTILIZATION_SAMPLES = 2
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(
        self,
        clock: FakeClock | None = None,
        *,
        gpus: int = 1,
        load: Callable[[int, int], int] = lambda _gpu, _time: 50,
        users: dict[int, list[User]] | None = None,
        refuse: dict[str, int] | None = None,
        absent: tuple[str, ...] = (),
        gpm: bool = True,
    ) -> None:
        self.clock = clock or RealClock()
        self.count = gpus
        self.load = load
        self.users = users or {}
        self.refuse = refuse or {}
        self.gpm = gpm
        self.value_type = 1
        self.reasons = 0
        self.calls: Counter[str] = Counter()
        table = self._functions()
        self._table = {name: function for name, function in table.items() if name not in absent}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An NVML function.

        Raises:
            AttributeError: There is none of that name.
            AssertionError: It must never be called: it takes 41 ms.
        """
        if name == "nvmlDeviceGetPcieThroughput":
            raise AssertionError(name)
        table = self.__dict__.get("_table", {})
        if name not in table:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            if name in self.refuse:
                raise NVMLError(self.refuse[name])
            return table[name](*arguments)

        return call

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda _gpu: b"NVIDIA H200",
            "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=gpu * 2**30, total=150_754_820_096),
            "nvmlDeviceGetUtilizationRates": self._rates,
            "nvmlDeviceGetPowerUsage": lambda gpu: 120_000 + 1000 * self._window(gpu, self.clock.mono()),
            "nvmlDeviceGetClockInfo": lambda _gpu, kind: {1: 1980}[kind],
            "nvmlDeviceGetTemperature": lambda gpu, _sensor: 39 + gpu,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _gpu: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _gpu: self.reasons,
            "nvmlDeviceGetSamples": self._samples,
            "nvmlDeviceGetProcessUtilization": self._use,
            "nvmlDeviceGetComputeRunningProcesses": self._running,
            "nvmlGpmQueryDeviceSupport": lambda _gpu: SimpleNamespace(isSupportedDevice=int(self.gpm)),
            "nvmlGpmSampleAlloc": lambda: SimpleNamespace(taken=None),
            "nvmlGpmSampleFree": lambda _sample: None,
            "nvmlGpmSampleGet": self._gpm_take,
            "nvmlGpmMetricsGet": self._gpm_means,
        }

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802 - the binding's name
        """An empty request."""
        slots = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(16)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=slots)

    def _window(self, gpu: int, mono: int) -> int:
        """The mean over the last complete window of the grid."""
        end = mono // WINDOW_NS * WINDOW_NS
        return self.load(gpu, end - WINDOW_NS // 2)

    def _rates(self, gpu: int) -> SimpleNamespace:
        busy = self._window(gpu, self.clock.mono())
        return SimpleNamespace(gpu=busy, memory=busy // 2)

    def _samples(self, gpu: int, kind: int, since_us: int) -> tuple[int, list[SimpleNamespace]]:
        last = self.clock.mono() // WINDOW_NS
        ends = [k * WINDOW_NS for k in range(last - HISTORY_NS // WINDOW_NS, last + 1)]
        late = 4 * (kind == self.NVML_MEMORY_UTILIZATION_SAMPLES)
        found = []
        for end in ends:
            stamp, busy = self.clock.unix_at(end) // 1000 + late, self._window(gpu, end)
            value = busy if kind == self.NVML_GPU_UTILIZATION_SAMPLES else busy // 2
            held = SimpleNamespace(uiVal=value, dVal=float(value), ullVal=value)
            found.append(SimpleNamespace(timeStamp=stamp, sampleValue=held))
        newer = [sample for sample in found if sample.timeStamp > since_us]
        if not newer:
            raise NVMLError(NOT_FOUND)
        return self.value_type, newer

    def _use(self, gpu: int, since_us: int) -> list[SimpleNamespace]:
        """The latest entry of each process; that of one that ended is repeated for ever, whatever ``since_us`` says."""
        end = self.clock.mono() // S * S
        listed = [
            SimpleNamespace(
                pid=user.pid,
                timeStamp=self.clock.unix_at(min(end, user.until)) // 1000,
                smUtil=user.sm,
                memUtil=user.sm // 2,
            )
            for user in self.users.get(gpu, ())
        ]
        found = [
            e
            for e, u in zip(listed, self.users.get(gpu, ()), strict=True)
            if e.timeStamp > since_us or u.until < end
        ]
        if not found:
            raise NVMLError(NOT_FOUND)
        return found

    def _running(self, gpu: int) -> list[SimpleNamespace]:
        now = self.clock.mono()
        users = [user for user in self.users.get(gpu, ()) if user.until > now]
        return [SimpleNamespace(pid=user.pid, usedGpuMemory=user.memory_b) for user in users]

    def _gpm_take(self, gpu: int, sample: SimpleNamespace) -> SimpleNamespace:
        sample.taken, sample.gpu = self.clock.mono(), gpu
        return sample

    def _gpm_means(self, query: SimpleNamespace) -> SimpleNamespace:
        """Every metric is its own number plus the load half-way between the samples; NVLink has no value."""
        between = (query.sample1.taken + query.sample2.taken) // 2
        for slot in query.metrics[: query.numMetrics]:
            slot.nvmlReturn = NOT_SUPPORTED if slot.metricId >= 60 else 0
            slot.value = slot.metricId + self.load(query.sample1.gpu, between)
        return query
