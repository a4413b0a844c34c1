"""The benchmark's own arithmetic, on children that do nothing."""

from __future__ import annotations

import sys

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


def test_the_memory_is_the_childs_peak() -> None:
    """A child that held 256 MiB for a moment is charged for them; an idle one is not."""
    idle = bench.measure(IDLE)
    full = bench.measure([sys.executable, "-c", "x = b'1' * (256 << 20); del x"])
    assert idle.peak_mib < 256 < full.peak_mib < 320


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
    assert capsys.readouterr().err.split() == ["help", "sample", "reader", "import", "day"]
