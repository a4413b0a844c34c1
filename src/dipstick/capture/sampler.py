"""What the sampler does at each beat: reads every GPU, and at their own pace histories, counters, processes and the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dipstick.capture.beat import Every
from dipstick.capture.devices import CounterReading, GpuReading, ProcessReading, UtilSample
from dipstick.capture.host import HostLoad, LoadReading, ProcessUse, UseReading
from dipstick.capture.roles import Attribution, Commands, seen_processes
from dipstick.capture.window import WindowProbe

if TYPE_CHECKING:
    from dipstick.capture.devices import Clock, Devices
    from dipstick.capture.doctor import PidNamespace
    from dipstick.capture.pen import Sink
    from dipstick.capture.tree import ProcessTree

S: Final = 1_000_000_000
CLOCK: Final = 1
"""Number of the sampler's monotonic clock in its rows; 0 would mean Unix time."""

ANCHOR_NS: Final = 60 * S
COUNTERS_NS: Final = S // 5
"""As fine as the utilization counter of an H200."""
PROCESSES_NS: Final = S
HOST_NS: Final = S
STAND_IN_NS: Final = S // 5
"""CPU time of processes where there is no GPU: the kernel counts it in ticks of 10 ms, so 0.2 s resolves 5 %."""
HISTORY_NS: Final = 4 * S
HAND_OVER_NS: Final = S
"""What a kill may cost."""

_GPU_KEY: Final = ("host", "gpu")
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "gpu": (*_GPU_KEY, "source", "window_ns", "clock", *GpuReading._fields),
    "gpu_counters": (*_GPU_KEY, "clock", *CounterReading._fields),
    "gpu_process": (*_GPU_KEY, "clock", *ProcessReading._fields),
    "host_load": ("host", "clock", *LoadReading._fields),
    "host_process": ("host", "clock", *UseReading._fields),
    "gpus": (*_GPU_KEY, "name", "uuid", "mem_total_b", "util_window_ns"),
    "anchors": ("clock", "host", "pid", "mono_ns", "unix_ns"),
}
"""Columns of the tables it writes, in the order of its rows."""

_REST: Final = (None,) * (len(GpuReading._fields) - len(UtilSample._fields))


@dataclass(frozen=True, slots=True)
class Site:
    """Where and how the sampler works.

    Attributes:
        host: Name of the host in every row.
        pid: The sampler's own.
        namespace: PID namespace, as :mod:`dipstick.capture.doctor` finds it.
        period_ns: Distance of two polls.
    """

    host: str
    pid: int
    namespace: PidNamespace
    period_ns: int


class Sampler:
    """Reads devices and the host, and puts rows into a sink; the caller keeps the beat.

    Args:
        site: Where it works.
        devices: The GPUs.
        tree: The run's processes.
        sink: Gets the rows.
        clock: Both clocks of this process.
        load: Reads the host's counters.
    """

    def __init__(
        self,
        site: Site,
        devices: Devices,
        tree: ProcessTree,
        sink: Sink,
        clock: Clock,
        load: HostLoad | None = None,
    ) -> None:
        self._site = site
        self._devices = devices
        self._tree = tree
        self._sink = sink
        self._clock = clock
        self._load = load or HostLoad()
        self._use = ProcessUse(tree)
        self.attribution = Attribution(tree, site.namespace)
        self._commands = Commands(tree)
        self._windows = {g.gpu: WindowProbe(g.util_window_ns, site.period_ns) for g in devices.gpus}
        self._plan = Plan(devices, site.period_ns, clock.mono())

    def begin(self) -> None:
        """Name the GPUs and set the clock: a recording cut short can be read from here on."""
        self._anchor()
        rows = [
            (self._site.host, g.gpu, g.name, g.uuid, g.mem_total_b, g.util_window_ns)
            for g in self._devices.gpus
        ]
        self._sink.put("gpus", rows)
        self._sink.hand_over()

    def tick(self, deadline_ns: int) -> None:
        """Everything that is due at a deadline; the polls come first, for they are what must be on time."""
        plan = self._plan
        for gpu in self._windows:
            self._poll(gpu)
        for gpu in self._windows:
            if plan.counters[gpu].due(deadline_ns):
                self._put_gpu("gpu_counters", gpu, self._devices.counters(gpu))
            if plan.processes[gpu].due(deadline_ns):
                self._put_gpu(
                    "gpu_process", gpu, self.attribution.sort_out(gpu, self._devices.processes(gpu))
                )
            if plan.history[gpu].due(deadline_ns):
                self._history(gpu)
        self._host(deadline_ns)
        if plan.anchor.due(deadline_ns):
            self._anchor()
        if plan.hand_over.due(deadline_ns):
            self._sink.hand_over()

    def finish(self) -> None:
        """The driver's last samples, and a last anchor."""
        for gpu in self._windows:
            self._history(gpu)
            self._put_gpu("gpu_process", gpu, self.attribution.sort_out(gpu, self._devices.processes(gpu)))
        self._anchor()
        self._sink.hand_over()

    def seen(self) -> list[dict[str, Any]]:
        """Processes of the run and other users of the GPUs (see :func:`roles.seen_processes`)."""
        return seen_processes(self.attribution.users, self._commands.lines)

    def windows(self) -> dict[int, int | None]:
        """The utilization counter's window of each GPU, as far as it is known."""
        return {gpu: probe.window_ns for gpu, probe in self._windows.items()}

    def _poll(self, gpu: int) -> None:
        reading, window = self._devices.read(gpu), self._windows[gpu]
        window.saw_poll(reading)
        self._sink.put("gpu", [(self._site.host, gpu, "poll", window.window_ns, CLOCK, *reading)])

    def _history(self, gpu: int) -> None:
        samples, window = self._devices.history(gpu), self._windows[gpu]
        window.saw_samples([sample.t_ns for sample in samples])
        head = (self._site.host, gpu, "buffer", window.window_ns, CLOCK)
        self._sink.put("gpu", [(*head, *sample, *_REST) for sample in samples])

    def _put_gpu(self, table: str, gpu: int, readings: list[Any]) -> None:
        self._sink.put(table, [(self._site.host, gpu, CLOCK, *reading) for reading in readings])

    def _host(self, deadline_ns: int) -> None:
        """The run's processes and the machine's load."""
        if self._plan.host.due(deadline_ns):
            self._commands.look(self._tree.scan(deadline_ns))
            load = self._load.read(self._clock.mono())
            self._sink.put("host_load", [(self._site.host, CLOCK, *load)] if load is not None else [])
        if self._plan.use.due(deadline_ns):
            used = self._use.read(self._clock.mono())
            self._sink.put("host_process", [(self._site.host, CLOCK, *reading) for reading in used])

    def _anchor(self) -> None:
        mono, unix = self._clock.anchor()
        self._sink.put("anchors", [(CLOCK, self._site.host, self._site.pid, mono, unix)])


class Plan:
    """When what is due. Slow calls of several GPUs are spread over the beat, so that no tick does all of them."""

    def __init__(self, devices: Devices, period_ns: int, start_ns: int) -> None:
        gpus = devices.gpus
        count = max(1, len(gpus))

        def spread(every_ns: int) -> dict[int, Every]:
            every = max(every_ns, period_ns)
            return {g.gpu: Every(every, start_ns + every * i // count) for i, g in enumerate(gpus)}

        self.counters = {g.gpu: Every(max(COUNTERS_NS, period_ns), start_ns) for g in gpus}
        self.processes = spread(PROCESSES_NS)
        self.history = spread(history_period([g.history_ns for g in gpus]))
        self.host = Every(max(HOST_NS, period_ns), start_ns)
        self.use = Every(max(HOST_NS if gpus else STAND_IN_NS, period_ns), start_ns)
        self.anchor = Every(ANCHOR_NS, start_ns + ANCHOR_NS)
        self.hand_over = Every(max(HAND_OVER_NS, period_ns), start_ns + HAND_OVER_NS)


def history_period(reaches_ns: list[int | None]) -> int:
    """How often the driver's samples are fetched: three times within what the shortest buffer holds, 1-4 s.

    A buffer of 14 s (H200) is fetched every 4 s, one of 6 s every 2 s.
    """
    known = [reach for reach in reaches_ns if reach]
    return max(S, min([HISTORY_NS, *(reach // 3 for reach in known)]))
