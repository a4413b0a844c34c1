"""Least squares from Gram matrices equals least squares on the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import nnls

from dipstick.analysis.gram import (
    Sums,
    condition_number,
    explained,
    inflation,
    membership,
    merge_collinear,
    nonnegative,
    solve,
    squared_error,
    step_sums,
    total_sums,
)

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray, IntArray


def samples(rows: int = 60, columns: int = 4, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """Shares that add up to 1 a row, and a noisy mix of levels."""
    rng = np.random.default_rng(seed)
    design = rng.dirichlet(np.full(columns, 0.3), rows)
    return design, design @ np.linspace(10, 90, columns) + rng.normal(0, 3, rows)


def steps_of(rows: int, each: int) -> IntArray:
    return np.repeat(np.arange(rows // each), each)


def test_unconstrained_levels_equal_least_squares() -> None:
    """Against numpy's own."""
    design, y = samples()
    sums = total_sums(design, y)

    assert solve(sums.gram, sums.cross) == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0], rel=1e-5)


def test_squared_error_equals_the_residuals_own() -> None:
    """Y'y - 2 u'X'y + u'X'X u, without touching the samples again."""
    design, y = samples()
    levels = np.array([1.0, 2.0, 3.0, 4.0])

    actual = float(squared_error(total_sums(design, y), levels))

    assert actual == pytest.approx(float(((y - design @ levels) ** 2).sum()))


def test_explained_plus_error_is_everything() -> None:
    """At the least-squares levels."""
    design, y = samples()
    sums = total_sums(design, y)

    error = float(squared_error(sums, solve(sums.gram, sums.cross)))

    assert float(explained(sums.gram, sums.cross)) + error == pytest.approx(float(y @ y))


def test_negative_levels_are_solved_as_nnls_does() -> None:
    """A column that would go below zero is held at zero, and the others adjust."""
    design, y = samples()
    y = y - 60 * design[:, 0]
    sums = total_sums(design, y)
    assert solve(sums.gram, sums.cross).min() < 0

    assert nonnegative(sums.gram, sums.cross) == pytest.approx(nnls(design, y)[0], rel=1e-4, abs=1e-4)


def test_a_batch_of_draws_is_solved_like_one_by_one() -> None:
    """Leading axes are free, and draws that need NNLS are found in the batch."""
    pairs = [samples(seed=s) for s in range(6)]
    sums = [total_sums(x, y - 60 * x[:, 0] * (s % 2)) for s, (x, y) in enumerate(pairs)]
    gram, cross = np.stack([s.gram for s in sums]), np.stack([s.cross for s in sums])

    together = nonnegative(gram.reshape(2, 3, 4, 4), cross.reshape(2, 3, 4)).reshape(6, 4)

    assert together == pytest.approx(np.array([nonnegative(s.gram, s.cross) for s in sums]), abs=1e-6)


def test_an_untouched_column_gets_level_zero() -> None:
    """Not an error, and not a huge number."""
    design, y = samples(columns=3)
    wider = np.column_stack([design, np.zeros(len(y))])
    sums = total_sums(wider, y)

    levels = solve(sums.gram, sums.cross)

    assert levels[3] == 0.0
    assert levels[:3] == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0], rel=1e-5)


@pytest.mark.parametrize("each", [2, 20])
def test_step_sums_add_up_to_the_total(each: int) -> None:
    """In both forms: few and many samples a step."""
    design, y = samples()
    steps = steps_of(60, each)

    per_step = step_sums(design, y, steps, 60 // each)
    total = total_sums(design, y)

    assert per_step.gram.sum(axis=0) == pytest.approx(total.gram)
    assert per_step.cross.sum(axis=0) == pytest.approx(total.cross)
    assert per_step.square.sum() == pytest.approx(float(total.square))


def test_weights_repeat_steps() -> None:
    """Weight 2 on the first step and 0 on the others is that step's samples twice."""
    design, y = samples()
    per_step = step_sums(design, y, steps_of(60, 20), 3)

    drawn = per_step.weighted(np.array([[2.0, 0.0, 0.0]]))
    twice = total_sums(np.tile(design[:20], (2, 1)), np.tile(y[:20], 2))

    assert drawn.gram[0] == pytest.approx(twice.gram)
    assert drawn.cross[0] == pytest.approx(twice.cross)


def test_merged_sums_are_those_of_added_columns() -> None:
    """Columns 1 and 3 together."""
    design, y = samples()
    groups = ((0,), (1, 3), (2,))

    merged: Sums = total_sums(design, y).merged(groups)
    added = total_sums(design @ membership(groups, 4), y)

    assert merged.gram == pytest.approx(added.gram)
    assert merged.cross == pytest.approx(added.cross)


def test_separate_columns_are_not_inflated() -> None:
    """Orthogonal: VIF 1 each, condition number 1."""
    gram = np.diag([5.0, 20.0])

    assert inflation(gram).tolist() == pytest.approx([1.0, 1.0])
    assert condition_number(gram) == pytest.approx(1.0)


def test_inflation_of_two_aligned_columns() -> None:
    """Cosine 0.9: 1 / (1 - 0.81)."""
    gram = np.array([[1.0, 0.9], [0.9, 1.0]])

    assert inflation(gram) == pytest.approx(np.full(2, 1 / 0.19), rel=1e-6)


def test_a_short_phase_glued_to_a_long_one_is_merged_with_it() -> None:
    """Column 2 is always a tenth of column 1; column 0 stays alone."""
    rng = np.random.default_rng(2)
    one = rng.uniform(0, 1, 80)
    design = np.column_stack([1 - one, one, one / 10 + rng.normal(0, 0.002, 80)])

    assert merge_collinear(design.T @ design, ("generate", "reward", "gather"), 10.0) == ((0,), (1, 2))


def test_parts_of_one_phase_merge_with_each_other_first() -> None:
    """A part is nearly parallel to a foreign phase too, but its sibling takes it."""
    rng = np.random.default_rng(2)
    one = rng.uniform(0, 1, 80)
    design = np.column_stack([one, one + rng.normal(0, 0.02, 80), one + rng.normal(0, 0.01, 80), 1 - one])

    groups = merge_collinear(design.T @ design, ("generate", "generate", "reward", "train"), 10.0)

    assert (0, 1) in groups or (0, 1, 2) in groups


def test_untouched_columns_are_in_no_group() -> None:
    """They have no level to report."""
    gram = np.diag([3.0, 0.0, 2.0])

    assert merge_collinear(gram, ("a", "b", "c"), 10.0) == ((0,), (2,))
