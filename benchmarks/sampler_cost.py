"""What the sampler costs: CPU share of one core, 8 GPUs at 10 Hz, with a stand-in for NVML.

    python benchmarks/sampler_cost.py [--gpus 8] [--hz 10] [--seconds 20]

The real sampler, pen and writer run in this process on the real clock and write a real recording. CPU time is this
process's own, taken after everything is loaded, so a busy machine does not change it much. The stand-in is Python and
costs more than NVML's cheap calls and less than its slow ones: its time is measured and taken off, and what NVML
itself costs on an H200 (traces/README.md: 1-5 µs a call; samples and use by process 1.5 ms) is added as an estimate.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dipstick.capture.beat import Beat, keep_beat
from dipstick.capture.devices import Clock
from dipstick.capture.devices.nvml import NvmlDevices
from dipstick.capture.pen import Pen
from dipstick.capture.sampler import COLUMNS, Sampler, Site
from dipstick.capture.tree import ProcessTree
from dipstick.recording.writer import RecordingWriter
from fake_nvml import FakeNvml, User

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

CHEAP_S, SLOW_S = 3e-6, 1.5e-3
SLOW = ("nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization")


class TimedNvml(FakeNvml):
    """A stand-in that knows its own CPU time."""

    spent_ns = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A function of the stand-in, timed."""
        call = super().__getattr__(name)

        def timed(*arguments: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return call(*arguments)
            finally:
                self.spent_ns += time.thread_time_ns() - began

        return timed


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU shares of one core (0-1).

    Attributes:
        share: Of the whole process.
        stand_in_share: Of that, the stand-in's own part.
        nvml_share: What NVML would take for the same calls, estimated.
        missed: Deadlines missed; late_ms: mean lateness of the others.
        rows_per_s: Written.
    """

    share: float
    stand_in_share: float
    nvml_share: float
    missed: int
    late_ms: float
    rows_per_s: float

    @property
    def expected_share(self) -> float:
        """On a real machine: without the stand-in, with NVML."""
        return self.share - self.stand_in_share + self.nvml_share


class CountedPen(Pen):
    """Counts rows."""

    rows = 0

    def put(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Pass them on."""
        self.rows += len(rows)
        super().put(table, rows)


def measure(folder: Path, *, gpus: int = 8, hz: float = 10.0, seconds: float = 20.0) -> Cost:
    """Sample for that long into a new recording.

    Args:
        folder: Where the recording is made.
        gpus: How many the stand-in has, with three processes each.
        hz: Polls a second.
        seconds: How long.
    """
    users = {gpu: [User(1000 * gpu + i) for i in range(3)] for gpu in range(gpus)}
    nvml, clock = TimedNvml(gpus=gpus, users=users), Clock()
    period = round(1e9 / hz)
    creator = RecordingWriter.create(folder / "R", origin="measured", host="bench")
    pen = CountedPen(lambda: RecordingWriter.join(folder / "R", host="bench"), COLUMNS)
    devices = NvmlDevices(nvml, clock)
    site = Site("bench", os.getpid(), "host", period)
    sampler = Sampler(site, devices, ProcessTree(os.getpid()), pen, clock)
    sampler.begin()
    end, beat = clock.mono() + round(seconds * 1e9), Beat(period)
    nvml.spent_ns, calls = 0, nvml.calls.copy()
    began, wall = time.process_time(), time.monotonic()

    def wait(pause: float) -> bool:
        time.sleep(pause)
        return clock.mono() >= end

    keep_beat(sampler.tick, period, clock.mono, wait, beat)
    cpu, wall = time.process_time() - began, time.monotonic() - wall
    nvml_s = _estimate(nvml.calls - calls)
    sampler.finish()
    pen.close().close()
    creator.close()
    late = beat.late_ns / 1e6 / max(1, beat.ticks)
    return Cost(cpu / wall, nvml.spent_ns / 1e9 / wall, nvml_s / wall, beat.missed, late, pen.rows / wall)


def _estimate(calls: Counter[str]) -> float:
    """CPU seconds of NVML for these calls."""
    return sum(n * (SLOW_S if name in SLOW else CHEAP_S) for name, n in calls.items())


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description="CPU share of the sampler.")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cost = measure(Path(folder), gpus=options.gpus, hz=options.hz, seconds=options.seconds)
    shares = {
        "share_of_one_core": cost.share,
        "of_that_the_stand_in": cost.stand_in_share,
        "nvml_estimate": cost.nvml_share,
        "expected_share_of_one_core": cost.expected_share,
    }
    rest = {"missed_ticks": cost.missed, "late_mean_ms": cost.late_ms, "rows_per_s": cost.rows_per_s}
    print(json.dumps({**vars(options), **shares, **rest}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
