"""Which signals can this machine give? Asks NVML, the Python packages and /proc; changes nothing.

Every answer can be "can't tell": a call that NVML refuses is kept with NVML's own words. Field names are
those of NVML (docs.nvidia.com/deploy/nvml-api); what they are good for is in design.md section 2.
"""

from __future__ import annotations

import importlib.util
import platform
import re
from dataclasses import dataclass
from importlib import import_module, metadata
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PidNamespace = Literal["host", "own", "unknown"]

_HOST_PID_NAMESPACE = 4026531836
"""Inode of the first PID namespace (PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h)."""
_OWN_BINDING = "nvidia-ml-py"
_OLD_BINDING = "pynvml"
_FIRST_HARMLESS = 12
"""From release 12 on the PyPI package `pynvml` ships no module `pynvml` of its own any more."""
_RUNTIMES = ("docker", "kubepods", "containerd", "libpod", "lxc", "slurm")


@dataclass(frozen=True, slots=True)
class Signal:
    """One kind of measurement on one GPU.

    Attributes:
        name: What it is called here.
        available: Whether it can be read; None if that can't be told now.
        detail: What was seen, or why it can't be read.
        good_for: What dipstick learns from it.
    """

    name: str
    available: bool | None
    detail: str
    good_for: str


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """One GPU and the signals it gives.

    Attributes:
        index: NVML's index.
        name: Product name; None if NVML refuses.
        uuid: Its UUID.
        mem_total_b: Memory.
        mig: Whether it is split into MIG slices; None if it has no such mode.
        util_window_s: Averaging window of ``utilization.gpu``, from the spacing of the driver's samples.
        signals: In a fixed order.
    """

    index: int
    name: str | None
    uuid: str | None
    mem_total_b: int | None
    mig: bool | None
    util_window_s: float | None
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """Which Python package answers for ``import pynvml``.

    Attributes:
        file: Of the module; None if there is none.
        packages: (name, version) of those installed that could have brought it.
        shadowed: An old ``pynvml`` hides NVIDIA's ``nvidia-ml-py``.
    """

    file: str | None
    packages: tuple[tuple[str, str], ...]
    shadowed: bool


@dataclass(frozen=True, slots=True)
class Processes:
    """Whether GPU processes can be told apart by PID here.

    Attributes:
        runtime: Container runtime or scheduler, by its traces in /proc; None if there are none.
        pid_namespace: ``own``: NVML may name PIDs that mean nothing here.
        seen: Processes that NVML lists on the GPUs.
        unknown: Those of them that /proc does not have.
    """

    runtime: str | None
    pid_namespace: PidNamespace
    seen: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Checkup:
    """Everything that was found."""

    python: str
    platform: str
    nvml: str | None
    driver: str | None
    nvml_error: str | None
    binding: Binding
    processes: Processes
    gpus: tuple[GpuProbe, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned, or the words it was refused with."""

    value: Any
    refusal: str | None

    @property
    def ok(self) -> bool:
        """Whether it returned."""
        return self.refusal is None


def ask(call: Callable[..., Any], *arguments: Any) -> Answer:
    """Call NVML; a refusal is an answer, too (``Not Supported``, ``Insufficient Permissions``)."""
    try:
        return Answer(_text(call(*arguments)), None)
    except Exception as refusal:  # noqa: BLE001 - NVMLError has a class per code, and old bindings raise AttributeError
        return Answer(None, str(refusal) or type(refusal).__name__)


def call(nvml: Any, function: str, *arguments: Any) -> Answer:
    """Call an NVML function by name: one that an old binding does not have is refused like any other."""
    return ask(lambda: getattr(nvml, function)(*arguments))


def _text(value: Any) -> Any:
    """Old bindings return bytes where new ones return text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def examine_machine() -> Checkup:
    """Examine the machine that this runs on."""
    found = ask(import_module, "pynvml")
    names = (_OWN_BINDING, _OLD_BINDING)
    installed = {name: version for name in names if (version := ask(metadata.version, name).value)}
    spec = ask(importlib.util.find_spec, "pynvml").value
    return examine(found.value, Path("/"), installed, spec.origin if spec else None, found.refusal)


def examine(
    nvml: Any, root: Path, packages: dict[str, str], module_file: str | None, import_error: str | None = None
) -> Checkup:
    """Examine a machine through what is handed in.

    Args:
        nvml: The binding (a module like ``pynvml``), or None if it can't be imported.
        root: Where /proc is found.
        packages: Versions of the installed packages that could bring ``pynvml``, by name.
        module_file: File of the module that ``import pynvml`` finds.
        import_error: Why the binding can't be imported.
    """
    started = Answer(None, import_error or "no NVML binding") if nvml is None else call(nvml, "nvmlInit")
    alive = started.ok
    count = call(nvml, "nvmlDeviceGetCount").value if alive else None
    handles = [call(nvml, "nvmlDeviceGetHandleByIndex", i).value for i in range(count or 0)]
    pids = {pid for handle in handles for pid in _pids(nvml, handle)}
    found = Checkup(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        nvml=call(nvml, "nvmlSystemGetNVMLVersion").value if alive else None,
        driver=call(nvml, "nvmlSystemGetDriverVersion").value if alive else None,
        nvml_error=started.refusal,
        binding=check_binding(packages, module_file),
        processes=_processes(root, sorted(pids)),
        gpus=tuple(_probe(nvml, i, handle) for i, handle in enumerate(handles) if handle is not None),
    )
    if alive:
        call(nvml, "nvmlShutdown")
    return found


def check_binding(packages: dict[str, str], module_file: str | None) -> Binding:
    """Whether the old ``pynvml`` hides NVIDIA's own binding.

    ``nvidia-ml-py`` is one file, ``pynvml.py``; ``pynvml`` before release 12 is a folder of the same name,
    and Python prefers the folder.
    """
    old = packages.get(_OLD_BINDING)
    major = re.match(r"\d+", old) if old else None
    is_old = bool(major and int(major.group()) < _FIRST_HARMLESS)
    is_folder = module_file is not None and Path(module_file).name == "__init__.py"
    return Binding(module_file, tuple(sorted(packages.items())), is_old or is_folder)


def _probe(nvml: Any, index: int, handle: Any) -> GpuProbe:
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    mig = ask(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]))
    samples = _samples(nvml, handle, "NVML_GPU_UTILIZATION_SAMPLES")
    window = spacing(samples.value) if samples.ok else None
    return GpuProbe(
        index=index,
        name=call(nvml, "nvmlDeviceGetName", handle).value,
        uuid=call(nvml, "nvmlDeviceGetUUID", handle).value,
        mem_total_b=memory.value,
        mig=mig.value,
        util_window_s=window,
        signals=_signals(nvml, handle, samples, window),
    )


def _signals(nvml: Any, handle: Any, samples: Answer, window: float | None) -> tuple[Signal, ...]:
    power_samples = _samples(nvml, handle, "NVML_TOTAL_POWER_SAMPLES")
    return (
        _utilization(nvml, handle, window),
        _signal(
            "sample buffer", samples, _buffer_words(samples, power_samples), "no window is lost between polls"
        ),
        _counters(nvml, handle),
        _per_process(nvml, handle),
        _power(nvml, handle),
    )


def _signal(name: str, answer: Answer, seen: str, good_for: str) -> Signal:
    return Signal(name, answer.ok, seen if answer.ok else answer.refusal or "", good_for)


def _utilization(nvml: Any, handle: Any, window: float | None) -> Signal:
    rates = call(nvml, "nvmlDeviceGetUtilizationRates", handle)
    seen = f"{rates.value.gpu} % now, memory access {rates.value.memory} %" if rates.ok else ""
    if window is not None:
        seen += f"; each value is a mean over {window:z.2f} s"
    return _signal("utilization", rates, seen, "dips, and how busy each phase reads")


def _samples(nvml: Any, handle: Any, kind: str) -> Answer:
    """The driver's own history of one signal: (microseconds, value) of each sample."""
    return ask(
        lambda: tuple(s.timeStamp for s in nvml.nvmlDeviceGetSamples(handle, getattr(nvml, kind), 0)[1])
    )


def _buffer_words(utilization: Answer, power: Answer) -> str:
    parts = [
        f"{name} {_history(a.value)}" for name, a in (("utilization", utilization), ("power", power)) if a.ok
    ]
    return "; ".join(parts)


def _history(stamps: Sequence[int]) -> str:
    """``14.0 s at 5.0 Hz``: how far the buffer reaches back and how fine it is."""
    step = spacing(stamps)
    if step is None:
        return "empty now"
    return f"{(max(stamps) - min(stamps)) / 1e6:z.1f} s at {1 / step:z.1f} Hz"


def spacing(stamps: Sequence[int]) -> float | None:
    """Median distance of the samples in seconds, None for fewer than three.

    Worked example: 0, 200_000, 400_100, 600_100 µs -> 0.2 s. The counter averages over the same time: on an
    H200 a 0.1 s pulse reads about half in one of these windows (traces/README.md).
    """
    ordered = sorted(stamps)
    gaps = [b - a for a, b in pairwise(ordered) if b > a]
    return median(gaps) / 1e6 if len(gaps) > 1 else None


def _counters(nvml: Any, handle: Any) -> Signal:
    support = ask(lambda: bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice))
    available = support.value if support.ok else False
    seen = (
        "GPM: SM, tensor, DRAM, PCIe and NVLink activity"
        if available
        else support.refusal or "no GPM (Hopper or newer has it)"
    )
    return Signal("counters", available, seen, "work told from waiting and from bus copies")


def _per_process(nvml: Any, handle: Any) -> Signal:
    """NVML says ``Not Found`` where no process used the GPU lately: that is not a refusal."""
    found = ask(lambda: len(nvml.nvmlDeviceGetProcessUtilization(handle, 0)))
    name, use = "per process", "which tenant (trainer, engine, reward worker) was busy"
    if not found.ok and "not found" in (found.refusal or "").lower():
        return Signal(name, None, "no process used the GPU lately, so it can't be told", use)
    return _signal(name, found, f"{found.value} samples at hand", use)


def _power(nvml: Any, handle: Any) -> Signal:
    watts = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    return _signal(
        "power",
        watts,
        f"{watts.value:z.0f} W now" if watts.ok else "",
        "waiting guessed from idle power without counters",
    )


def _pids(nvml: Any, handle: Any) -> list[int]:
    found = ask(lambda: [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)])
    return found.value or []


def _processes(root: Path, pids: Sequence[int]) -> Processes:
    unknown = [pid for pid in pids if not (root / "proc" / str(pid)).exists()]
    return Processes(_runtime(root), pid_namespace(root), len(pids), len(unknown))


def pid_namespace(root: Path) -> PidNamespace:
    """Whether processes are numbered as on the host, by what /proc under ``root`` says."""
    link = ask((root / "proc/self/ns/pid").readlink)
    inode = re.search(r"\d+", str(link.value)) if link.ok else None
    if inode is None:
        return "unknown"
    return "host" if int(inode.group()) == _HOST_PID_NAMESPACE else "own"


def _runtime(root: Path) -> str | None:
    for name, mark in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (root / mark).exists():
            return name
    groups = ask((root / "proc/1/cgroup").read_text).value or ""
    return next((name for name in _RUNTIMES if name in groups), None)
