"""Which signals a recording lacks, what each would have settled, and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dipstick.model import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.analysis.pipeline import Findings
    from dipstick.recording.reader import Recording

COARSE_S = 2.0


def missing(recording: Recording, findings: Findings) -> tuple[Missing, ...]:
    """Everything that kept a question open, most important first."""
    return (*_telemetry(findings), *_training(recording, findings), *_mechanism(recording))


def untold_because(findings: Findings) -> str:
    """Why work and waiting can't be told apart: power that never shows an idle GPU has nothing to be compared with."""
    powers = (gpu.signals.polled["power_w"] for gpu in findings.gpus if gpu.used)
    if any(np.isfinite(power).any() for power in powers):
        return "without SM counters: power was recorded, but no idle stretch to compare it with"
    return "without power or SM counters"


def _telemetry(findings: Findings) -> Iterator[Missing]:
    if not findings.gpus:
        yield Missing(
            "GPU telemetry", "utilization, dips, states",
            "record with dipstick run, or sample beside the run (nvidia-smi --query-gpu … -lms 500) and import it with the spans",
        )  # fmt: skip
        return
    used = [gpu for gpu in findings.gpus if gpu.used] or list(findings.gpus)
    blind = all(gpu.states.method not in {"counters", "trace"} for gpu in used)
    if blind:
        yield Missing(
            "SM, DRAM and PCIe counters (GPM or DCGM)", "telling work from waiting and from bus copies for certain",
            "on Hopper or newer read GPM through NVML; elsewhere DCGM fields 1001-1010 at 1 s or finer",
        )  # fmt: skip
    if blind and all(gpu.states.idle_power_w is None for gpu in used):
        yield Missing(
            "an idle plateau of board power", "recognising waits without counters",
            "record power.draw and the SM clock beside utilization, over at least one idle stretch",
        )  # fmt: skip
    period = max(gpu.signals.period_ns for gpu in used) / 1e9
    if period > COARSE_S:
        yield Missing(
            f"utilization finer than every {period:z.0f} s", "dips shorter than that",
            "sample at 1 s or finer (W&B: x_stats_sampling_interval=1; nvidia-smi: -lms 500)",
        )  # fmt: skip


def _training(recording: Recording, findings: Findings) -> Iterator[Missing]:
    if findings.breakdown is None or findings.breakdown.longest is None:  # steps alone name no phase
        log = "a log that times the phases" if findings.timelines else "the training's own log"
        yield Missing(
            "phase spans", "which phase is longest and paid for, waits, stragglers",
            f"record the next run with dipstick run -- CMD; or import {log} together with this (docs/import.md)",
        )  # fmt: skip
    if not findings.timelines:
        return
    if not recording.has("jobs"):
        yield Missing(
            "reward jobs",
            "which worker and job end last, how busy the workers are",
            "record submit, start and end of each job with its worker pid",
        )
    if len(findings.timelines) > 1 and not findings.meetings:
        yield Missing(
            "a barrier that all ranks share",
            "waits across ranks",
            "record the end of generation and of the reward function on every rank",
        )
    if not recording.has("gpu_process"):
        yield Missing(
            "per-process utilization",
            "which tenant of a GPU works when",
            "nvmlDeviceGetProcessUtilization, outside a separate PID namespace",
        )


def _mechanism(recording: Recording) -> Iterator[Missing]:
    if not recording.has_values("spans", "file"):
        yield Missing(
            "file:line of the hooked calls",
            "receipts in the code",
            "record with hooks that note the call site",
        )
    if not recording.has_values("jobs", "payload_types") and not recording.has("handoffs"):
        yield Missing(
            "payload types (text, arrays, tensors)",
            "settling what crosses from generation to the reward workers",
            "record the types that cross each hand-over",
        )
