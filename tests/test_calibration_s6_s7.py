"""The quick form of the S6 and S7 calibration: fixed seeds, 40 runs a cell, under a minute on one core."""

from __future__ import annotations

import pytest

from calibration.rows import Row, above_limit, judge, rows_of
from calibration.s6_s7 import cells, quick_cells

RUNS, SEED = 40, 20261130


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All figures of the quick cells."""
    return judge([row for cell in quick_cells() for row in rows_of(cell, RUNS, SEED)])


def rate(rows: list[Row], cell: str, figure: str) -> float:
    """One figure."""
    return next(r.rate for r in rows if r.cell == cell and r.figure == figure)


def test_no_level_is_above_nominal(rows: list[Row]) -> None:
    """Exact binomial, Holm over the cells."""
    assert [r for r in rows if r.judgement == "above the nominal level"] == []


def test_no_power_is_below_the_methods_table(rows: list[Row]) -> None:
    """Fisher against the table at its own number of runs, Holm over the cells."""
    assert [r for r in rows if r.judgement == "below the table"] == []


def test_innocent_schedules_are_not_convicted(rows: list[Row]) -> None:
    """False "yes" at most once in the 200 runs on onsets (2 % is the limit over all cells of the full form)."""
    convicted = [r.rejections or 0 for r in rows if r.scenario == "S6" and r.figure == "false yes"]

    assert len(convicted) == 5
    assert sum(convicted) <= 1


def test_the_naive_rule_does_convict_the_twin(rows: list[Row]) -> None:
    """The contrast: "70 % of the events have a spike" says yes to the wrong twin in a good part of the runs."""
    assert rate(rows, "W=1 N=100 K=10 M=10 twins cause=checkpoint", "naive false yes") > 0.2


def test_twins_are_named_together(rows: list[Row]) -> None:
    """Never a "yes", always both names."""
    cell = "W=1 N=100 K=10 M=10 twins cause=checkpoint"

    assert rate(rows, cell, "yes on the cause") == 0.0
    assert rate(rows, cell, "cause named with its twin") == 1.0


def test_queued_work_is_told_from_a_straggler(rows: list[Row]) -> None:
    """Total work wins the contest, and the longest job never gets a "yes"."""
    assert rate(rows, "dip=total_work W=1 N=30", "total work wins") > 0.9
    assert rate(rows, "dip=total_work W=1 N=30", "false yes") == 0.0


def test_a_straggler_is_found(rows: list[Row]) -> None:
    """Most runs of 30 steps say "yes" (the slope's interval misses 1 in one of twenty)."""
    assert rate(rows, "dip=longest_job W=1 N=30", "yes") > 0.75


def test_a_shared_cause_is_seldom_taken_for_a_relation(rows: list[Row]) -> None:
    """Completion length drives both; the naive test falls for it several times as often."""
    cell = "dip=length W=1 N=30"

    assert rate(rows, cell, "partial p < .05") <= 0.15
    assert rate(rows, cell, "naive p < .05") >= 2 * rate(rows, cell, "partial p < .05")


def test_the_limit_of_nine_percent_is_checked() -> None:
    """A made-up row of 10 %."""
    row = Row("S7", "x", "partial p < .05", "level", 500, 0.10, 50)

    assert above_limit([row]) == [row]


def test_the_full_form_holds_every_row_of_the_methods_table() -> None:
    """S6 onsets, S6 exposure, S7; names are unique, so no cell is run twice."""
    names = [f"{c.scenario} {c.name}" for c in cells()]

    assert len(set(names)) == len(names)
    assert sorted({c.scenario for c in cells()}) == ["S6", "S6 exposure", "S7"]
    assert len(quick_cells()) == 11
