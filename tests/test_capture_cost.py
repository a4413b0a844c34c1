"""The benchmark of the sampler's cost measures what it says (its numbers are for docs/performance.md, not for a test)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sampler_cost
from dipstick.recording.reader import open_recording

if TYPE_CHECKING:
    from pathlib import Path


def test_cost_is_measured_on_a_real_recording(tmp_path: Path) -> None:
    """Two GPUs for half a second at 20 Hz: shares of one core, and the rows are on disk."""
    cost = sampler_cost.measure(tmp_path, gpus=2, hz=20.0, seconds=0.5)
    assert 0 < cost.stand_in_share < cost.share
    assert cost.expected_share == cost.share - cost.stand_in_share + cost.nvml_share
    assert cost.rows_per_s > 0
    gpu = open_recording(tmp_path / "R").table("gpu")
    assert set(gpu["gpu"]) == {0, 1}


def test_nvmls_own_time_is_estimated_from_the_calls() -> None:
    """Microseconds for most calls, 1.5 ms for samples and use by process."""
    calls = Counter({"nvmlDeviceGetPowerUsage": 1000, "nvmlDeviceGetSamples": 2})
    assert sampler_cost._estimate(calls) == 1000 * 3e-6 + 2 * 1.5e-3
