"""Say which signals this machine can give.

Looks at Python, NVML and its driver, the GPUs, the installed NVML binding and the process namespace.
Works without a GPU, too, and changes nothing.
"""

from __future__ import annotations

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.capture.doctor import Binding, Checkup, GpuProbe, Processes, Signal
    from dipstick.cli.output import Talk

NAME = "doctor"
_FIX_SHADOW = "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
_MARKS = {True: "yes", False: "no", None: "?"}


def add_arguments(parser: ArgumentParser) -> None:
    """Nothing: it looks at everything."""


def run(args: Namespace, talk: Talk) -> int:
    """Examine and tell."""
    from dipstick.capture.doctor import examine_machine  # noqa: PLC0415 - --help stays light

    found = examine_machine()
    if args.json:
        answer_json(document(found))
        return EXIT_ANSWERED
    answer(told(found))
    talk.next(["dipstick", "demo"], "explains a recorded run, no GPU needed")
    return EXIT_ANSWERED


def document(found: Checkup) -> dict[str, object]:
    """The findings as plain values."""
    from dataclasses import asdict  # noqa: PLC0415 - --help stays light

    return {"schema_version": 1, **asdict(found)}


def told(found: Checkup) -> str:
    """The findings for people."""
    lines = [
        f"Python     {found.python}, {found.platform}",
        f"NVML       {_nvml(found)}",
        f"binding    {_binding(found.binding)}",
        f"processes  {_processes(found.processes)}",
    ]
    for gpu in found.gpus:
        lines += ["", *_gpu(gpu)]
    if not found.gpus:
        lines += ["", "No GPU can be seen from here. Importing and explaining recordings works all the same."]
    return "\n".join(lines)


def _clean(text: str | None) -> str:
    from dipstick.show.words import ABSENT, clean  # noqa: PLC0415 - --help stays light

    return clean(text) if text else ABSENT


def _nvml(found: Checkup) -> str:
    if found.nvml_error is not None:
        return f"can't be used: {_clean(found.nvml_error)}"
    return f"library {_clean(found.nvml)}, driver {_clean(found.driver)}"


def _binding(binding: Binding) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in binding.packages) or "not installed"
    where = f" ({binding.file})" if binding.file else ""
    text = _clean(packages + where)
    if not binding.shadowed:
        return text
    return f"{text}\n           an old pynvml hides nvidia-ml-py: signals will be missing.\n           {_FIX_SHADOW}"


def _processes(found: Processes) -> str:
    """Whether the PIDs that NVML names mean something here."""
    where = {"host": "host PID namespace", "own": "own PID namespace", "unknown": "PID namespace unknown"}
    text = f"{found.runtime or 'no container seen'}, {where[found.pid_namespace]}"
    if found.unknown:
        text += f"\n           {found.unknown} of {found.seen} GPU processes have PIDs that are unknown here: which tenant"
        return f"{text} was busy can't be told.\n           docker run --pid=host (Kubernetes: hostPID: true) mends it."
    if found.seen:
        return f"{text}; PIDs of GPU processes are known here ({found.seen} of {found.seen})"
    return f"{text}; no GPU process to check PIDs with"


def _gpu(gpu: GpuProbe) -> list[str]:
    memory = f"{gpu.mem_total_b / 2**30:z.1f} GiB" if gpu.mem_total_b else "memory unknown"
    split = ", split by MIG: states stay unknown" if gpu.mig else ""
    head = f"GPU {gpu.index}: {_clean(gpu.name)}, {memory}, {_clean(gpu.uuid)}{split}"
    return [head, *(_signal(signal) for signal in gpu.signals)]


def _signal(signal: Signal) -> str:
    lost = "" if signal.available else f" (for: {signal.good_for})"
    return f"  {signal.name:<14} {_MARKS[signal.available]:<4} {_clean(signal.detail)}{lost}"
