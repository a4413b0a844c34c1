"""A whole synthetic job with planted truth goes through writer, reader, analyses and report, and comes out as planted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import synthetic
from dipstick.recording.reader import open_recording
from dipstick.verdicts.report import explain
from synthetic import GATHER_WAIT, LENGTHS_WAIT, Size

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.model import Report

SIZE = Size(gpus=4, hours=0.1, spans=6_000, micro_steps=8, counters_hz=5.0)


@pytest.fixture(scope="module")
def truth_and_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Report]:
    folder = tmp_path_factory.mktemp("synthetic") / "run"
    truth = synthetic.write(SIZE, folder)
    return truth, explain(open_recording(folder))


def seconds_of(report: Report, rank: int) -> dict[str, float]:
    assert report.phases is not None
    return {row.phase: row.seconds for row in report.phases.rows if row.rank == rank and row.seconds}


@pytest.mark.parametrize("rank", range(SIZE.gpus))
def test_exclusive_seconds_come_out_as_planted(
    truth_and_report: tuple[dict[str, Any], Report], rank: int
) -> None:
    """Every phase of every rank, to the microsecond; waits are not in the spans and are found all the same."""
    truth, report = truth_and_report
    planted = {phase: seconds for phase, seconds in truth["seconds"][rank].items() if seconds}
    found = seconds_of(report, rank)
    found.pop("teardown", None)  # the rank whose last step ended sooner waits for the window's end
    assert found == pytest.approx(planted, abs=1e-6)


def test_last_arrivals_come_out_as_planted(truth_and_report: tuple[dict[str, Any], Report]) -> None:
    """How often each rank came last to the reward barrier."""
    truth, report = truth_and_report
    assert report.stragglers is not None
    assert [row.last_in_steps for row in report.stragglers.by_rank] == truth["last_in_steps"]


def test_the_window_runs_from_first_step_to_last(truth_and_report: tuple[dict[str, Any], Report]) -> None:
    """Start-up, and the rest of the recording, stay outside."""
    truth, report = truth_and_report
    first_row_s = (
        1 / SIZE.hz if SIZE.hz > SIZE.counters_hz else 1 / SIZE.counters_hz
    )  # t = 0 is the first poll
    assert np.asarray(report.run.window_s) + first_row_s == pytest.approx(truth["window_s"], abs=1e-3)
    assert report.run.steps == truth["steps"]


def test_waiting_reads_as_busy_and_is_called_hollow(truth_and_report: tuple[dict[str, Any], Report]) -> None:
    """Hollow seconds are the planted waits, less at most one 0.2 s counter window for each of the two a step."""
    truth, report = truth_and_report
    waits = np.asarray([rank["gather_wait"] + rank["collective_wait"] for rank in truth["seconds"]])
    hollow = np.asarray([gpu.hollow_s for gpu in report.states])
    assert ((waits - 2 * truth["steps"] * 0.2 <= hollow) & (hollow <= waits)).all()


def test_the_generator_keeps_its_own_promises() -> None:
    """Stretches are never negative, ranks leave a barrier together, and the hours are met."""
    loop = synthetic.plan(SIZE)
    assert np.diff(loop.edges, axis=2).min() >= 0
    for wait in (LENGTHS_WAIT, GATHER_WAIT):
        released = loop.edges[:, :, wait + 1]
        assert (released == released[0]).all()
    assert loop.edges.max() == pytest.approx(SIZE.hours * 3600e9, abs=1e6)


def test_the_truth_lies_beside_the_recording(tmp_path: Path) -> None:
    """Benchmarks reuse a recording only when its truth, written last, is there."""
    size = Size(gpus=2, hours=0.01, spans=200, micro_steps=2)
    truth = synthetic.write(size, tmp_path / "run")
    assert json.loads((tmp_path / "run.truth.json").read_text()) == truth
