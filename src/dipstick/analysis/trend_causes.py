"""What explains a drift: the covariate that also moves the series from step to step.

Two things that rise together over a run correlate perfectly and need not have to do with one another. So a
covariate must pass two tests: its step-to-step changes go with the series' (rank correlation, drift and own
past taken out), and it accounts for at least half of the drift: regress y on step and covariate together;
what the step's slope loses is the covariate's part.

Worked example: y = 2 c exactly, c drifting by 10 over the run with +-1 from step to step. The slope of y
is 20 a run without c and 0 with c, share explained (20 - 0) / 20 = 1. Had y drifted on its own, the +-1 of
c would not show in y, the slope would stay 20 and the share 0, although both rise together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.rank_partial import correlate, take_out
from dipstick.analysis.stats import Estimate, block_length, holm, percentile_interval, step_draws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray

_HALF = 0.5
_FEWEST = 8
_MOST_VALUES, _FEWEST_DRAWS = 1_000_000, 199


@dataclass(frozen=True, slots=True)
class Explanation:
    """One covariate against the drift.

    Attributes:
        share: Part of the drift that goes with the covariate, block-bootstrap interval (1 = all of it).
        rho: Step-to-step rank correlation with the series, drift taken out.
        p_adjusted: Of that correlation, two-sided, Holm over covariates.
        explains: Whether it is significant and the share is at least half with an interval above 0.
    """

    name: str
    share: Estimate
    rho: Estimate
    p_adjusted: float
    explains: bool


def explain_drift(
    y: FloatArray,
    covariates: Mapping[str, FloatArray],
    rng: np.random.Generator,
    alpha: float = 0.05,
    draws: int = 999,
) -> tuple[Explanation, ...]:
    """Judge every covariate that varies, in the order given; arrays by step (N,), NaN where missing."""
    usable = {n: c for n, c in covariates.items() if np.isfinite(c).any() and np.nanstd(c) > 0}
    parts = []
    for c in usable.values():
        left = take_out(y, {"c": c}, [])
        parts.append(correlate(left.y, left.x["c"], left.columns, rng, draws, side="two-sided"))
    adjusted = holm([p.p_value for p in parts])
    out = []
    for (name, c), part, p in zip(usable.items(), parts, adjusted, strict=True):
        share = share_explained(y, c, rng)
        good = bool(p <= alpha) and share.value >= _HALF and share.low > 0
        out.append(Explanation(name, share, part.rho, float(p), good))
    return tuple(out)


def share_explained(
    y: FloatArray, covariate: FloatArray, rng: np.random.Generator, draws: int = 500
) -> Estimate:
    """(slope of y on step - the same slope beside the covariate) / slope of y on step.

    Ordinary least squares makes this exact: slope = slope beside c + coefficient of c x slope of c.
    The interval is a moving-block bootstrap over steps.
    """
    keep = np.isfinite(y) & np.isfinite(covariate)
    step = np.flatnonzero(keep).astype(np.float64)
    table = np.column_stack([step, covariate[keep], y[keep]])
    if table.shape[0] < _FEWEST:
        return Estimate(float("nan"), float("-inf"), float("inf"))
    draws = min(draws, max(_FEWEST_DRAWS, _MOST_VALUES // table.shape[0]))
    index = step_draws(rng, table.shape[0], draws, block_length(table.shape[0]))
    return percentile_interval(float(_shares(table[None])[0]), _shares(table[index]))


def _shares(tables: FloatArray) -> FloatArray:
    """The share for each of (draws, n, 3) tables of step, covariate, y."""
    centred = tables - tables.mean(axis=1, keepdims=True)
    s = np.einsum("dni,dnj->dij", centred, centred)
    alone = s[:, 0, 2] / np.maximum(s[:, 0, 0], 1e-300)
    det = s[:, 0, 0] * s[:, 1, 1] - s[:, 0, 1] ** 2
    beside = (s[:, 1, 1] * s[:, 0, 2] - s[:, 0, 1] * s[:, 1, 2]) / np.where(det > 0, det, np.nan)
    return np.asarray((alone - beside) / np.where(alone != 0, alone, np.nan))
