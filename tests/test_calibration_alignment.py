"""The quick form of the alignment calibration: fixed seeds, 60 runs a cell, about 15 s on one core.

The full form (500 runs a cell) is ``python -m benchmarks.calibration alignment``; its results are in the docs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from calibration.alignment import cells, quick_cells
from calibration.loops import PHASES, SHARES, STEP_S, UNRELATED, draw_run, drift_of, unrelated_onsets
from calibration.rows import Aim, Cell, Row, as_lines, failures, judge, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS, SEED = 60, 20261130


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All quick cells, run once and judged together."""
    return judge([row for cell in quick_cells() for row in rows_of(cell, RUNS, SEED)])


def test_no_level_is_significantly_above_its_nominal_rate(rows: list[Row]) -> None:
    """S2, S3 (wrong winners) and S5: exact binomial, Holm over the cells."""
    levels = [row for row in rows if row.kind == "level"]

    assert len(levels) == 11
    assert [(row.cell, row.rate) for row in levels if row.judgement != "ok"] == []


def test_no_power_is_significantly_below_the_table(rows: list[Row]) -> None:
    """S2, S3 and S5 beside the methods' figures."""
    powers = [row for row in rows if row.kind == "power" and row.table is not None]

    assert len(powers) == 5
    assert [(row.cell, row.rate, row.table) for row in powers if row.judgement == "below the table"] == []


def test_no_wrong_anchor_ever_wins(rows: list[Row]) -> None:
    """Zero of 60 in both contest cells."""
    assert [row.rejections for row in rows if row.figure == "wrong winner"] == [0, 0]


def test_the_quick_cells_are_cells_of_the_full_form() -> None:
    """Nine of them, each found under its name; the names of the full form are unique."""
    full = [f"{c.scenario} {c.name}" for c in cells()]

    assert len(quick_cells()) == 9
    assert len(full) == len(set(full))


# -- the generator


def test_phases_have_their_shares_of_a_minute() -> None:
    """55 / 15 / 2 / 23 / 5 % on average over 4,000 steps, and a CV as asked."""
    run = draw_run(rng(), 4000, 0.2)
    lengths = np.diff(np.append(run.starts.ravel(), run.end)).reshape(-1, len(PHASES))

    assert lengths.mean(axis=0) == pytest.approx(SHARES * STEP_S, rel=0.02)
    assert lengths.std(axis=0) / lengths.mean(axis=0) == pytest.approx(np.full(5, 0.2), rel=0.05)


def test_drifting_worlds_drift_in_steps_and_in_dips() -> None:
    """Falling: the second half has fewer dips and longer steps."""
    run = draw_run(rng(), 400, 0.05, drift=drift_of("falling"))
    onsets = unrelated_onsets(rng(2), run, "falling")

    assert (onsets < run.end / 2).mean() > 0.65
    assert run.starts[200, 0] < 0.45 * run.end


@pytest.mark.parametrize("kind", UNRELATED)
def test_unrelated_dips_lie_inside_the_run(kind: str) -> None:
    """About one a step, two at half the period, 2.7 at 0.37 of it."""
    run = draw_run(rng(), 200, 0.05)
    onsets = unrelated_onsets(rng(3), run, kind)  # type: ignore[arg-type]
    per_step = {"L/2": 2.0, "0.37L": 1 / 0.37}.get(kind, 1.0)

    assert 0 <= onsets.min() < onsets.max() < run.end
    assert onsets.size / 200 == pytest.approx(per_step, rel=0.2)


# -- the judgement


def counted(kind: str, hits: int, runs: int, **aim: float) -> Row:
    """A cell that says yes in the first ``hits`` of ``runs`` runs."""
    answers = iter([1.0] * hits + [0.0] * (runs - hits))

    def once(_: np.random.Generator) -> Sequence[float]:
        return (next(answers),)

    cell = Cell("T", "made up", (Aim("figure", kind, **aim),), once)  # type: ignore[arg-type]
    return judge(rows_of(cell, runs, SEED))[0]


def test_a_level_well_above_its_nominal_rate_fails() -> None:
    """45 of 500 at 5 %: binomial p 0.0001. 30 of 500 (6 %) is noise."""
    above, noise = counted("level", 45, 500, nominal=0.05), counted("level", 30, 500, nominal=0.05)

    assert (above.judgement, above.rejections, above.rate) == ("above the nominal level", 45, 0.09)
    assert noise.judgement == "ok"
    assert failures([above, noise]) == [above]


def test_a_power_is_judged_against_the_runs_behind_the_table() -> None:
    """0.80 of 500 against a table's 0.95 of 200 is below; 0.93 is noise; 0.99 is above and no failure."""
    low, same, high = (counted("power", hits, 500, table=0.95) for hits in (400, 465, 499))

    assert [row.judgement for row in (low, same, high)] == [
        "below the table",
        "within noise",
        "above the table",
    ]
    assert failures([low, same, high]) == [low]


def test_a_figure_without_a_table_is_only_reported() -> None:
    """Power with the lag scanned is not in the methods."""
    assert counted("power", 5, 10).judgement == "reported"


def test_estimates_have_a_mean_and_an_sd() -> None:
    """And no rejections; NaN runs are left out."""
    values = iter([1.0, 3.0, float("nan")])
    cell = Cell("T", "made up", (Aim("lag", "estimate", table=0.0),), lambda _: (next(values),))

    row = rows_of(cell, 3, SEED)[0]

    assert (row.runs, row.rate, row.sd, row.rejections) == (2, 2.0, 1.0, None)


def test_costly_cells_take_fewer_runs() -> None:
    """A cost of 5: a fifth."""
    cell = Cell("T", "made up", (Aim("x", "estimate"),), lambda _: (1.0,), cost=5.0)

    assert rows_of(cell, 50, SEED)[0].runs == 10


def test_a_cell_gives_the_same_rows_whatever_ran_before() -> None:
    """Seeds come from the cell's name: order and processes do not matter."""
    cell = quick_cells()[0]

    assert rows_of(cell, 5, SEED) == rows_of(cell, 5, SEED)


def test_rows_are_written_one_json_object_a_line() -> None:
    """Every field by name."""
    lines = as_lines([counted("level", 1, 20, nominal=0.05)] * 2).splitlines()

    assert len(lines) == 2
    assert json.loads(lines[0])["figure"] == "figure"
    assert json.loads(lines[0])["nominal"] == 0.05
