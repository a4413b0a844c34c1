"""Four instruments saw the same run (traces/h200x2-grpo): what is imported of each agrees with the others."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np
import pytest

import dipstick
from dipstick.analysis.telemetry import Series, read_signals
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from dipstick.recording.reader import Recording, open_recording
from dipstick.show import markdown

if TYPE_CHECKING:
    from pathlib import Path

VIEWS = ("nvml.csv", "nvidia-smi.csv", "dmon.txt", "buf.csv")
S = 1_000_000_000
WITHIN_S = {"nvml.csv": 2.3, "nvidia-smi.csv": 2.1, "dmon.txt": 2.2, "buf.csv": 1.6}
"""The 1 s bins of the comparison, and the view's own sampling: 0.1 s, 1 s, 1 s in whole seconds, 0.2 s."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Each file by itself; nvidia-smi and dmon write local time, and the host's clock was UTC."""
    from conftest import ROOT  # noqa: PLC0415 - only here

    trace = ROOT.parent / "shared" / "traces" / "h200x2-grpo"
    if not trace.is_dir():
        pytest.skip(f"needs the real trace in {trace}")
    folder = tmp_path_factory.mktemp("views")
    return {
        name: open_recording(import_files([trace / name], folder / name, Options(tz=UTC)).path)
        for name in VIEWS
    }


def shared(recordings: dict[str, Recording]) -> tuple[int, int]:
    """The Unix time that all four cover."""
    return max(r.start_unix_ns for r in recordings.values()), min(r.end_unix_ns for r in recordings.values())


def utilization(recording: Recording, start: int) -> dict[int, Series]:
    """Each GPU's utilization on an axis that begins at ``start``."""
    moved = recording.start_unix_ns - start
    signals = read_signals(recording.table("gpu"), recording.table("gpu_counters"))
    return {s.gpu: Series(s.util.t0 + moved, s.util.t1 + moved, s.util.value) for s in signals}


def test_mean_utilization_agrees_within_one_and_a_half_points(recordings: dict[str, Recording]) -> None:
    """Over the time that all four cover, on each GPU."""
    start, end = shared(recordings)
    means = np.array(
        [
            [u.clip(0, end - start).mean() for _, u in sorted(utilization(r, start).items())]
            for r in recordings.values()
        ]
    )
    assert means.shape == (4, 2)
    assert np.ptp(means, axis=0).max() <= 1.5


def clean_dips(u: Series, length: int) -> list[tuple[int, int]]:
    """Dips of 4 s or more between plateaus of 3 s or more, in whole seconds: those that nobody can miss."""
    grid = np.arange(0, length, S)
    low = u.mean_over(grid, grid + S) < 50
    edges = np.flatnonzero(np.diff(low)) + 1
    runs = np.diff(edges)
    return [
        (int(a), int(b))
        for a, b, before, after in zip(edges[1:-2], edges[2:-1], runs[:-2], runs[2:], strict=True)
        if low[a] and b - a >= 4 and before >= 3 and after >= 3
    ]


def low_around(u: Series, at_s: float) -> tuple[float, float] | None:
    """The stretch of samples below 50 % around a time; None if the sample there is not low."""
    low = u.value < 50
    i = int(np.searchsorted(u.t1 / S, at_s))
    if not low[i]:
        return None
    high = np.flatnonzero(~low)
    before, after = high[high < i], high[high > i]
    first = before[-1] + 1 if len(before) else 0
    last = after[0] - 1 if len(after) else len(low) - 1
    return float(u.t0[first] / S), float(u.t1[last] / S)


@pytest.mark.parametrize("view", VIEWS)
def test_dips_lie_at_the_same_times_within_the_sampling(recordings: dict[str, Recording], view: str) -> None:
    """22 dips of 4 to 13 s on both GPUs: their edges agree; a view may miss one that a spike cuts in half."""
    start, end = shared(recordings)
    reference, seen = utilization(recordings["nvml.csv"], start), utilization(recordings[view], start)
    dips = [(gpu, a, b) for gpu, u in reference.items() for a, b in clean_dips(u, end - start)]
    found = [(a, b, low_around(seen[gpu], (a + b) / 2)) for gpu, a, b in dips]
    off = [abs(edge - true) for a, b, at in found if at for edge, true in zip(at, (a, b), strict=True)]
    assert len(dips) >= 20
    assert len(off) >= 2 * (len(dips) - 1)
    assert max(off) <= WITHIN_S[view]


def test_explaining_telemetry_alone_says_what_it_can_not_see(recordings: dict[str, Recording]) -> None:
    """No phase, step or job is claimed; every check that needs them is unconfirmed, with the way to get them."""
    report = dipstick.explain(recordings["nvidia-smi.csv"])
    assert (report.run.ranks, report.run.steps, report.answer.longest_phase) == (0, 0, None)
    assert "No phases were recorded" in report.answer.headline
    verdicts = {check.name: check.verdict.word for check in report.checks}
    assert {verdicts[name] for name in ("alignment", "phases", "stragglers")} == {"unconfirmed"}
    missing = {m.signal: m.how_to_get_it for m in report.missing}
    assert "dipstick run" in missing["phase spans"]
    assert "SM, DRAM and PCIe counters (GPM or DCGM)" in missing


def test_a_probe_every_ten_seconds_is_not_called_a_mean(traces: Path, tmp_path: Path) -> None:
    """NVML averages over a second at most: nine of ten seconds are not seen, and the report says so."""
    real = traces.parent / "real-files" / "smi-csv-v100s-10s.log"
    report = dipstick.explain(open_recording(import_files([real], tmp_path / "run").path))
    seen = report.run.sampling
    assert (seen.counter_window_s, round(seen.smallest_visible_dip_s or 0)) == (1.0, 20)
    assert "one utilization value every 10.0 s, each of at most the last 1.0 s only" in markdown.render(
        report
    )
    assert any("finer than every 10 s" in m.signal for m in report.missing)
