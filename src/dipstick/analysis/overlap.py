"""Overlap regression: utilization explained by what each sample's window overlaps (methods, 3.2).

``y_j = sum over p of X[j, p] * U_p + error`` with X the shares of ``[ts_j - delta - W, ts_j - delta]``
inside each phase, levels ``U_p >= 0``, and the lag ``delta`` found where the squared error is smallest.
Intervals resample whole steps: GPUs of one step are copies of one another, samples of one step are not
independent. Everything is computed from per-step Gram matrices, so a bootstrap draw is a weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import base_name, same_columns
from dipstick.analysis.gram import condition_number, inflation, membership, merge_collinear, nonnegative
from dipstick.analysis.overlap_rows import (
    GRID_S,
    REFINE_S,
    Near,
    Rows,
    cut_drain,
    moved_start,
    nearest,
    profile,
    refine,
    select_rows,
)
from dipstick.analysis.stats import (
    Estimate,
    FloatArray,
    IntArray,
    Reason,
    benjamini_hochberg,
    percentile_interval,
    robust_z,
    step_draws,
    step_weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.design import Telemetry

LAG_GRID = np.arange(-5.0, 5.0 + GRID_S / 2, GRID_S)
DRAWS = 500
MAX_VIF = 10.0
MIN_EXPOSED_SAMPLES = 8
MIN_EXPOSED_STEPS = 5
MAX_ROWS = 40_000
PROFILE_ROWS = 8_000
_TOUCHED = 0.01


@dataclass(frozen=True, slots=True)
class PhaseLevel:
    """Mean utilization of one column.

    Attributes:
        name: The phase, a part of it (``generate[8]``), or a union that could not be told apart
            (``reward+gather_wait``).
        level_pct: Percent with its step-bootstrap interval; None where ``reasons`` says why.
        vif: Variance inflation factor after merging (1 = as if alone).
        exposed_samples: Samples whose window touches the column.
        exposed_steps: Steps with such a sample.
    """

    name: str
    level_pct: Estimate | None
    vif: float
    exposed_samples: int
    exposed_steps: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class OverlapFit:
    """Levels per phase, the common lag and how well they explain the samples.

    Attributes:
        levels: One a column, in the timeline's order; last those that no sample touches.
        lag_s: The lag delta of the telemetry behind the log, with its step-bootstrap interval. Only the
            sum of clock skew and true lag can be seen.
        at_grid_edge: The lag is the first or last of the grid: a bound, not an estimate.
        r2: Share of the samples' variance that the phases explain.
        residual_sd_pct: Percentage points.
        condition: Condition number of the scaled columns after merging.
        window_s: The averaging window W that was used.
        samples_used: Rows in the fit; ``samples`` were there.
        draws: Bootstrap levels, shape (draws, columns), for differences of levels.
        residual_z: Robust z of each used sample, shape (samples_used,), with its stamp in ``residual_ts``.
    """

    levels: tuple[PhaseLevel, ...]
    lag_s: Estimate
    at_grid_edge: bool
    r2: float
    residual_sd_pct: float
    condition: float
    window_s: float
    steps: int
    samples: int
    samples_used: int
    draws: FloatArray
    residual_ts: FloatArray
    residual_z: FloatArray

    def column(self, phase: str, *, last: bool = False) -> int | None:
        """Index of the column that holds ``phase`` (its first part, or its last); None if it was left out."""
        at = [
            i for i, level in enumerate(self.levels) if phase in [base_name(n) for n in level.name.split("+")]
        ]
        return (at[-1] if last else at[0]) if at else None

    def drop(self, before: str, after: str) -> Estimate | None:
        """Level of ``before`` (its last part) minus level of ``after`` (its first), in percentage points.

        None where the two are one merged column or either has no level.
        """
        i, j = self.column(before, last=True), self.column(after)
        if i is None or j is None or i == j:
            return None
        one, two = self.levels[i].level_pct, self.levels[j].level_pct
        if one is None or two is None:
            return None
        return percentile_interval(one.value - two.value, self.draws[:, i] - self.draws[:, j])


# -- public ----------------------------------------------------------------------------------------


def fit_overlap(
    telemetry: Sequence[Telemetry],
    window: float,
    step_starts: FloatArray,
    rng: np.random.Generator,
    *,
    lags: FloatArray = LAG_GRID,
    split: str | None = "generate",
    draws: int = DRAWS,
) -> OverlapFit | None:
    """Fits levels and lag, with step-bootstrap intervals.

    Args:
        telemetry: One entry a GPU; the timelines share their phase names. All GPUs share the levels.
        window: The averaging window W in seconds (see :func:`estimate_window`).
        step_starts: Seconds, ascending.
        rng: Source of the bootstrap draws.
        lags: Candidate lags in seconds.
        split: The phase that is cut into 4-8 parts because it drains gradually.
        draws: Bootstrap draws.

    Returns:
        None if no sample's window lies inside the log. More than 40,000 samples are thinned to evenly
        spaced steps; ``samples_used`` says so.

    Errors:
        The 95 % intervals cover 92-97 % at 20-40 steps, W = 1 or 15 s (benchmarks/calibration, S4).
    """
    cut = cut_drain(telemetry, split, step_starts, window)
    ends = (float(lags.min()), float(lags.max()))
    reach = (ends[0] - REFINE_S, ends[1] + REFINE_S)
    rows = select_rows(cut, window, step_starts, reach, MAX_ROWS)
    if rows.y.size == 0:
        return None
    errors = profile(select_rows(cut, window, step_starts, reach, PROFILE_ROWS), window, lags)
    lag = float(lags[np.argmin(errors)])
    weights = step_weights(step_draws(rng, rows.steps, draws), rows.steps)
    near = refine(rows, window, lag, np.concatenate([np.ones((1, rows.steps)), weights]))
    return _levels(rows, window, near, edge=lag in ends)


def estimate_window(
    telemetry: Sequence[Telemetry],
    candidates: Sequence[float],
    step_starts: FloatArray,
    *,
    lags: FloatArray = LAG_GRID,
    split: str | None = "generate",
) -> tuple[float, dict[float, float]]:
    """The averaging window W that fits best, and the residual mean square of each candidate.

    The window is not the sampling period: a 15 s scrape of a 1 s average differs from a 15 s average.
    """
    longest = max(candidates)
    span = (float(lags.min()), float(lags.max()) + longest - min(candidates))
    errors = {}
    for window in candidates:
        cut = cut_drain(telemetry, split, step_starts, longest)
        rows = select_rows(cut, window, step_starts, span, PROFILE_ROWS)
        errors[window] = float(min(profile(rows, window, lags)) / max(1, rows.y.size))
    return min(errors, key=errors.__getitem__), errors


def phase_lag(
    telemetry: Sequence[Telemetry],
    window: float,
    step_starts: FloatArray,
    phase: str,
    lag: float,
    rng: np.random.Generator,
    *,
    reach: float = 3.0,
) -> Estimate | None:
    """How much later than the log the GPU enters ``phase``, given the common lag (anchored elsewhere).

    The start of the phase is moved by up to ``reach`` seconds and the squared error profiled.
    A result at +-``reach`` is a bound. At W = D = 15 s the result is not better than about 1 s (methods, 3.2). None without usable samples.
    """
    moves = np.arange(-reach, reach + GRID_S / 2, GRID_S)
    cut = cut_drain(telemetry, "generate", step_starts, window)
    rows = select_rows(cut, window, step_starts, (lag - reach, lag + reach), MAX_ROWS)
    if rows.y.size == 0:
        return None
    first = next(n for n in same_columns(cut) if base_name(n) == phase)
    designs = [moved_start(rows, first, by).design(window, lag) for by in moves]
    weights = step_weights(step_draws(rng, rows.steps, DRAWS), rows.steps)
    near = nearest(designs, rows, np.concatenate([np.ones((1, rows.steps)), weights]), moves)
    return near.estimate()


def unexplained(
    fit: OverlapFit, *, z: float = 4.0, rate: float = 0.10
) -> tuple[tuple[float, float, float], ...]:
    """Groups of samples that the phases do not explain: (first stamp, last stamp, extreme z).

    Samples beyond ``z`` robust SDs, neighbours grouped, Benjamini-Hochberg at ``rate`` over all samples.
    """
    from scipy.special import ndtr  # noqa: PLC0415  (only here)

    order = np.argsort(fit.residual_ts, kind="stable")
    stamps, scores = fit.residual_ts[order], fit.residual_z[order]
    adjusted = benjamini_hochberg(2 * ndtr(-np.abs(scores)))
    at = np.flatnonzero((np.abs(scores) > z) & (adjusted <= rate))
    if at.size == 0:
        return ()
    groups = np.split(at, np.flatnonzero(np.diff(stamps[at]) > 2 * fit.window_s) + 1)
    return tuple(
        (float(stamps[g[0]]), float(stamps[g[-1]]), float(scores[g[np.argmax(np.abs(scores[g]))]]))
        for g in groups
    )


def _levels(rows: Rows, window: float, near: Near, *, edge: bool) -> OverlapFit:
    """Merges what cannot be told apart, then levels with intervals, each draw at its own lag."""
    names = same_columns(rows.telemetry)
    groups = merge_collinear(near.sums.gram[0], tuple(base_name(n) for n in names), MAX_VIF)
    merged = near.sums.merged(groups)
    fitted = nonnegative(merged.gram, merged.cross)
    levels, draws, total = fitted[0], fitted[1:], merged.gram[0]
    columns = rows.design(window, float(near.at[0])) @ membership(groups, len(names))
    factors = inflation(total)
    rest = rows.y - columns @ levels
    return OverlapFit(
        levels=tuple(
            _level(
                _union(names, g),
                levels[i],
                draws[:, i],
                float(factors[i]),
                _exposure(columns[:, i], rows.step),
            )
            for i, g in enumerate(groups)
        )
        + _untouched(rows, names, groups),
        lag_s=near.estimate(),
        at_grid_edge=edge,
        r2=1 - float(rest @ rest) / max(1e-12, float(((rows.y - rows.y.mean()) ** 2).sum())),
        residual_sd_pct=float(np.sqrt(rest @ rest / rows.y.size)),
        condition=condition_number(total),
        window_s=window,
        steps=rows.steps,
        samples=rows.available,
        samples_used=rows.y.size,
        draws=draws,
        residual_ts=rows.stamps,
        residual_z=robust_z(rest),
    )


def _untouched(
    rows: Rows, names: tuple[str, ...], groups: tuple[tuple[int, ...], ...]
) -> tuple[PhaseLevel, ...]:
    """Phases that took time but fell between the samples: said, not left out."""
    seconds = np.sum([t.timeline.seconds() for t in rows.telemetry], axis=0)
    seen = {i for group in groups for i in group}
    missed = [n for i, n in enumerate(names) if i not in seen and seconds[i] > 0]
    return tuple(PhaseLevel(n, None, float("nan"), 0, 0, ("COARSE",)) for n in missed)


def _union(names: tuple[str, ...], group: tuple[int, ...]) -> str:
    """All parts of a phase are the phase; anything else is joined by +."""
    bases = [base_name(names[i]) for i in group]
    whole = [b for b in dict.fromkeys(bases) if bases.count(b) == sum(base_name(n) == b for n in names)]
    return "+".join(dict.fromkeys(b if b in whole else names[i] for i, b in zip(group, bases, strict=True)))


def _exposure(column: FloatArray, step: IntArray) -> tuple[int, int]:
    touched = column > _TOUCHED
    return int(touched.sum()), int(np.unique(step[touched]).size)


def _level(name: str, value: float, draws: FloatArray, vif: float, exposure: tuple[int, int]) -> PhaseLevel:
    """The exposure gate: a column that few samples touch has no level, its bootstrap would degenerate."""
    samples, steps = exposure
    if samples < MIN_EXPOSED_SAMPLES or steps < MIN_EXPOSED_STEPS:
        return PhaseLevel(name, None, vif, samples, steps, ("COARSE",))
    reasons: tuple[Reason, ...] = ("COLLINEAR",) if "+" in name else ()
    level = percentile_interval(float(value), draws)
    inside = replace(
        level, value=min(level.value, 100.0), low=min(level.low, 100.0), high=min(level.high, 100.0)
    )
    return PhaseLevel(name, inside, vif, samples, steps, reasons)
