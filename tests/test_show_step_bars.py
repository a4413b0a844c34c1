"""Stacked bars that add up, the waiting matrix, the spikes and their events."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from builders import breakdown, empty_report, gpus_only_report, hostile_report, tiny_report
from dipstick.judgement import Check, Reason, Verdict
from dipstick.model import RankTrack, WaitRow
from dipstick.phases import CODE
from dipstick.show import step_bars
from dipstick.show.wait_tables import spike_tables, wait_matrix

GENERATE, REWARD = CODE["generate"], CODE["reward"]


def test_a_bar_adds_up_to_its_step() -> None:
    """The docstring's example: a phase that crosses a step's edge is cut there."""
    track = RankTrack(0, (), np.array([0.0, 4, 9]), np.array([GENERATE, REWARD], np.uint8))
    table = step_bars.seconds_of(track, np.array([0.0, 5, 9]))
    assert (table[:, GENERATE].tolist(), table[:, REWARD].tolist()) == ([4, 0], [1, 4])
    assert table.sum(axis=1).tolist() == [5, 4]


def test_the_bars_of_the_tiny_report_add_up_to_its_window() -> None:
    """20 s for each rank."""
    report = tiny_report()
    edges = np.array([1.0, 11.0, 21.0])
    sums = [step_bars.seconds_of(track, edges).sum() for track in report.tracks.ranks]
    assert sums == pytest.approx([20.0, 20.0])


def test_the_drawing_names_seconds_and_steps() -> None:
    """A hover text a stretch; the caption says what adds up."""
    made = step_bars.step_bars(tiny_report())
    assert made is not None
    caption, drawing = made
    assert (
        caption
        == "Seconds of each step by phase and rank; the highest bar is 10.0 s, and a rank's bars add up to 20.0 s"
    )
    assert "<title>generate: 4.0 s of 10.0 s, from 1.0 s</title>" in drawing
    assert ">step 0</text>" in drawing


def test_many_steps_are_grouped() -> None:
    """500 steps: 100 bars of five steps, one path a phase."""
    base = tiny_report()
    starts = np.linspace(1.0, 21.0, 500, endpoint=False)
    made = step_bars.step_bars(replace(base, tracks=replace(base.tracks, step_start_s=starts)))
    assert made is not None
    assert "each 5 steps" in made[0]
    assert len(re.findall('<path class="p-generate"', made[1])) == 2


@pytest.mark.parametrize("make", [empty_report, gpus_only_report])
def test_without_ranks_there_are_no_bars(make: object) -> None:
    """Nothing is drawn of nothing."""
    assert callable(make)
    assert step_bars.step_bars(make()) is None


def test_the_matrix_adds_up() -> None:
    """A row's cells are its waits by the rank waited for; waits for several have their own column."""
    waits = (
        WaitRow(0, "reward", "reward", 1, "gather_wait", 4.0, 2, 3.0), WaitRow(0, "lengths", "generate", 1, "collective_wait", 1.0, 2, 1.0),
        WaitRow(1, "reward", "reward", None, "gather_wait", 2.0, 1, 2.0), WaitRow(1, "reward", "reward", 0, "gather_wait", 0.5, 1, 0.5),
    )  # fmt: skip
    table = wait_matrix(replace(breakdown(), waits=waits))
    assert table is not None
    assert [c.title for c in table.columns] == ["waited, s", "for rank 0", "for rank 1", "for several", "all"]
    assert [r.cells for r in table.rows] == [
        ("rank 0", "", "5.000", "", "5.000"),
        ("rank 1", "0.500", "", "2.000", "2.500"),
    ]


def test_the_matrix_of_many_ranks_shows_the_costliest() -> None:
    """Sixteen, and how many more there are."""
    waits = tuple(WaitRow(r, "reward", "reward", 39, "gather_wait", float(r + 1), 1, 1.0) for r in range(39))
    table = wait_matrix(replace(breakdown(), waits=waits))
    assert table is not None
    assert (len(table.rows), table.rows[-1].cells[0]) == (16, "rank 39")
    assert table.notes == ("24 more ranks waited, or made others wait, less.",)


def test_no_waits_no_matrix() -> None:
    """One rank waits for nobody."""
    assert wait_matrix(replace(breakdown(), waits=())) is None


def test_spikes_by_owner_with_the_unexplained_last() -> None:
    """Counts, seconds, the highest; candidates with their verdicts and the corrected p."""
    spikes = [
        {"gpu": 0, "start_s": 1.0, "end_s": 1.5, "peak_pct": 80.0, "explained_by": None},
        {"gpu": 0, "start_s": 2.0, "end_s": 4.0, "peak_pct": 60.0, "explained_by": "weight_sync"},
        {"gpu": 1, "start_s": 2.0, "end_s": 3.0, "peak_pct": float("nan"), "explained_by": "weight_sync"},
    ]
    candidates = [{"event": "weight_sync", "verdict": "yes", "reason": None, "fired": 20, "precision": 0.85, "recall": 1.0, "p_adjusted": 0.0123},
                  {"event": "gc", "verdict": "unconfirmed", "reason": "LOW_N", "fired": 1, "precision": None, "recall": None, "p_adjusted": None}]  # fmt: skip
    check = Check(
        "memory_spikes", "?", Verdict("partially"), facts={"spikes": spikes, "candidates": candidates}
    )
    tried, owners = spike_tables(tiny_report(checks=(check,)))
    assert [r.cells for r in owners.rows] == [
        ("weight sync", "2", "3.0", "60 %"),
        ("nothing known", "1", "0.5", "80 %"),
    ]
    assert [r.cells for r in tried.rows] == [
        ("weight sync", "✓ yes", "20", "85 %", "100 %", "0.012"), ("gc", "? can't tell (LOW_N)", "1", "–", "–", "–"),
    ]  # fmt: skip


def test_spikes_that_were_not_judged_have_no_tables() -> None:
    """Nor do hostile facts break them."""
    assert spike_tables(tiny_report()) == []
    assert spike_tables(hostile_report()) == []
    open_ = Check(
        "memory_spikes",
        "?",
        Verdict("unconfirmed", reason=Reason.LOW_N),
        facts={"spikes": [], "candidates": []},
    )
    assert spike_tables(tiny_report(checks=(open_,))) == []
