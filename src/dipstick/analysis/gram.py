"""Least squares from Gram matrices: per-step sums, non-negative levels, collinear columns merged.

With X'X and X'y kept per step, a bootstrap over steps is a weighted sum of small matrices, and the
squared error of a fit is ``y'y - 2 u'X'y + u'X'X u``; the samples are read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dipstick.analysis.stats import FloatArray, IntArray

_RIDGE = 1e-9
_MANY_ROWS = 16


@dataclass(frozen=True, slots=True)
class Sums:
    """X'X, X'y and y'y; the leading axes (steps, candidates, draws) are free.

    Attributes:
        gram: Shape (..., columns, columns).
        cross: Shape (..., columns).
        square: Shape (...).
    """

    gram: FloatArray
    cross: FloatArray
    square: FloatArray

    def weighted(self, weights: FloatArray) -> Sums:
        """Sums over the first axis (steps) with weights of shape (draws, steps)."""
        return Sums(
            np.tensordot(weights, self.gram, axes=1),
            np.tensordot(weights, self.cross, axes=1),
            np.tensordot(weights, self.square, axes=1),
        )

    def merged(self, groups: tuple[tuple[int, ...], ...]) -> Sums:
        """The same sums with the columns of each group added up."""
        to = membership(groups, self.cross.shape[-1])
        return Sums(to.T @ self.gram @ to, self.cross @ to, self.square)


def membership(groups: tuple[tuple[int, ...], ...], columns: int) -> FloatArray:
    """0/1 matrix, shape (columns, groups)."""
    to = np.zeros((columns, len(groups)))
    for g, members in enumerate(groups):
        to[list(members), g] = 1.0
    return to


def step_sums(design: FloatArray, y: FloatArray, step: IntArray, steps: int) -> Sums:
    """Sums per step; ``step`` holds 0..steps - 1 in ascending order, each at least once. Leading axis: steps."""
    first = np.searchsorted(step, np.arange(steps))
    cross = np.add.reduceat(design * y[:, None], first, axis=0)
    square = np.add.reduceat(y**2, first)
    if y.size >= _MANY_ROWS * steps:  # long steps: one product each beats products of all column pairs
        blocks = np.split(design, first[1:])
        return Sums(np.array([x.T @ x for x in blocks]), cross, square)
    upper, lower = np.triu_indices(design.shape[1])
    gram = np.empty((steps, design.shape[1], design.shape[1]))
    gram[:, upper, lower] = np.add.reduceat(design[:, upper] * design[:, lower], first, axis=0)
    gram[:, lower, upper] = gram[:, upper, lower]
    return Sums(gram, cross, square)


def total_sums(design: FloatArray, y: FloatArray) -> Sums:
    """Sums over all rows."""
    return Sums(design.T @ design, design.T @ y, np.asarray(y @ y))


def solve(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Unconstrained levels, batched over the leading axes; a column that is never touched gets level 0."""
    columns = gram.shape[-1]
    scale = np.trace(gram, axis1=-2, axis2=-1)[..., None, None] / columns + 1e-300
    ridge = _RIDGE * scale * np.eye(columns)
    levels: FloatArray = np.linalg.solve(gram + ridge, cross[..., None])[..., 0]
    return levels


def explained(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """``u'X'y`` of the unconstrained fit: y'y minus the squared error; batched."""
    fitted: FloatArray = (solve(gram, cross) * cross).sum(axis=-1)
    return fitted


def nonnegative(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """Levels with every level >= 0 (NNLS), batched; only the draws that need it are solved one by one."""
    levels = solve(gram, cross)
    flat, grams, crosses = levels.reshape(-1, levels.shape[-1]), _flat(gram, 2), _flat(cross, 1)
    for i in np.flatnonzero((flat < 0).any(axis=1)):
        flat[i] = _nnls(grams[i], crosses[i])
    return flat.reshape(levels.shape)


def squared_error(sums: Sums, levels: FloatArray) -> FloatArray:
    """Residual sum of squares of given levels; batched."""
    bent = np.einsum("...i,...ij,...j->...", levels, sums.gram, levels)
    error: FloatArray = sums.square - 2 * (levels * sums.cross).sum(axis=-1) + bent
    return error


def _flat(values: FloatArray, tail: int) -> FloatArray:
    return values.reshape(-1, *values.shape[values.ndim - tail :])


def _nnls(gram: FloatArray, cross: FloatArray) -> FloatArray:
    """NNLS on the Cholesky factor: the same minimum as on the samples, at the size of the columns."""
    from scipy.optimize import nnls  # noqa: PLC0415  (0.2 s to import, and often not needed)

    ridge = (_RIDGE * np.trace(gram) / gram.shape[0] + 1e-12) * np.eye(gram.shape[0])
    factor = np.linalg.cholesky(gram + ridge)
    return np.asarray(nnls(factor.T, np.linalg.solve(factor, cross))[0], dtype=np.float64)


# -- identifiability -------------------------------------------------------------------------------


def inflation(gram: FloatArray) -> FloatArray:
    """Variance inflation factor of each column (uncentred: the shares already add up to 1)."""
    scaled = correlations(gram)
    factors: FloatArray = np.clip(
        np.diag(np.linalg.inv(scaled + _RIDGE * np.eye(scaled.shape[0]))), 1.0, None
    )
    return factors


def condition_number(gram: FloatArray) -> float:
    """Condition number of the columns scaled to unit length."""
    values = np.linalg.eigvalsh(correlations(gram))
    return float(np.sqrt(values[-1] / max(values[0], 1e-15)))


def correlations(gram: FloatArray) -> FloatArray:
    """Cosines between columns."""
    length = np.sqrt(np.clip(np.diag(gram), 1e-300, None))
    scaled: FloatArray = gram / np.outer(length, length)
    return scaled


def merge_collinear(gram: FloatArray, family: tuple[str, ...], most: float) -> tuple[tuple[int, ...], ...]:
    """Groups of columns such that after adding them up no VIF exceeds ``most``.

    The worst column joins the column it is most aligned with: a sibling of the same ``family`` (parts of
    one phase) if there is one, else any. Never-touched columns are left out of every group.

    Example: a 1.2 s gather right after a 9 s reward at W = 15 s ends up as reward+gather.
    """
    groups: list[tuple[int, ...]] = [(i,) for i in range(len(family)) if gram[i, i] > 0]
    while len(groups) > 1:
        merged = Sums(gram, np.zeros(len(family)), np.zeros(())).merged(tuple(groups)).gram
        factors = inflation(merged)
        worst = int(np.argmax(factors))
        if factors[worst] <= most:
            break
        partner = _partner(correlations(merged)[worst], worst, groups, family)
        joined = tuple(sorted((*groups[worst], *groups[partner])))
        groups = [g for i, g in enumerate(groups) if i not in (worst, partner)]
        groups = sorted([*groups, joined])
    return tuple(groups)


def _partner(aligned: FloatArray, worst: int, groups: list[tuple[int, ...]], family: tuple[str, ...]) -> int:
    kin = [i for i, g in enumerate(groups) if i != worst and family[g[0]] == family[groups[worst][0]]]
    others = kin or [i for i in range(len(groups)) if i != worst]
    return max(others, key=lambda i: aligned[i])
