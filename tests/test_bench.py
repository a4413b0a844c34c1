"""The benchmark's own arithmetic, on children that do nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import run as bench

IDLE = [sys.executable, "-c", "pass"]


def result(*, ratio: float, peak_mib: float) -> bench.Result:
    return bench.Result("it", 3.0, 2.9, peak_mib, "reference", 1.0, 1.5, ratio, 5.0, 4096.0, 3)


@pytest.mark.parametrize(
    ("ratio", "peak_mib", "within"), [(5.0, 4096.0, True), (5.1, 100.0, False), (1.0, 4097.0, False)]
)
def test_limits(ratio: float, peak_mib: float, within: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A result is within its limits if neither the ratio nor the memory is over."""
    assert result(ratio=ratio, peak_mib=peak_mib).is_within is within


@pytest.mark.parametrize(("limit", "within"), [(None, True), (80.0, True), (30.0, False)])
def test_a_cost_is_judged_by_its_ratio(limit: float | None, within: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The microseconds depend on the machine."""
    assert bench.Cost("a span", "2.8 µs", "an empty call", 36.0, limit).is_within is within


def test_the_memory_is_the_childs_peak() -> None:
    """A child that held 256 MiB for a moment is charged for them; an idle one is not."""
    full = [sys.executable, "-c", "x = b'1' * (256 << 20); del x"]
    code = f"import run; print(*(run.measure(c).peak_mib for c in ({IDLE!r}, {full!r})))"
    # from a small process: Linux charges a child with its parent's pages until it is executed
    small = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(bench.__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    idle_mib, full_mib = map(float, small.stdout.split())
    assert idle_mib < 256 < full_mib < 320


def test_a_failing_child_ends_the_benchmark() -> None:
    """No figure comes from a command that failed."""
    with pytest.raises(SystemExit, match=r"failed \(3\)"):
        bench.measure([sys.executable, "-c", "raise SystemExit(3)"])


def test_subject_and_reference_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unmeasured round, then the medians of the rounds make the ratio; the highest memory counts."""
    seconds = {"subject": [99.0, 3.0, 5.0, 4.0], "reference": [99.0, 1.0, 2.0, 8.0]}
    order: list[str] = []

    def measure(command: list[str]) -> bench.Child:
        order.append(command[0])
        now = seconds[command[0]].pop(0)
        return bench.Child(now, now / 2, 10.0 * len(order))

    monkeypatch.setattr(bench, "measure", measure)
    found = bench.compare("it", ["subject"], "ref", ["reference"], rounds=3)
    assert order == ["reference", "subject"] * 4
    assert (found.seconds, found.reference_seconds, found.ratio) == (4.0, 2.0, 2.0)
    assert (found.cpu_s, found.reference_cpu_s, found.peak_mib) == (2.0, 1.0, 80.0)


def test_an_unknown_name_lists_the_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, nothing measured."""
    monkeypatch.setattr(sys, "argv", ["bench", "nope"])
    assert bench.main() == 2
    assert capsys.readouterr().err.split() == [
        "help",
        "sample",
        "reader",
        "import",
        "kineto",
        "day",
        "probe",
        "peers",
        "sampler",
    ]


def test_the_day_is_judged_in_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The analyses against a scan of the same files, and the whole against the analyses."""
    seen: list[tuple[list[str], list[str], float]] = []

    def compare(
        what: str, command: list[str], _reference: str, reference_command: list[str], **limits: float
    ) -> bench.Result:
        assert limits["peak_limit_mib"] == 4096, what
        seen.append((command, reference_command, limits["ratio_limit"]))
        return result(ratio=1.0, peak_mib=1.0)

    monkeypatch.setattr(bench, "compare", compare)
    monkeypatch.setattr(bench, "synthetic", lambda *_: "folder")
    list(bench.bench_day())
    (spine, scan, over_scan), (whole, reference, over_spine) = seen
    assert (bench.SPINE in spine, bench.SCAN in scan, over_scan) == (True, True, 15)
    assert (whole[1:3], reference, over_spine) == (["explain", "--quiet"], spine, 2)
