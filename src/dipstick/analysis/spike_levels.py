"""What a memory-access series usually reads: near a window in time, and in the phases inside the window.

Two references for :mod:`dipstick.analysis.spikes`. The neighbourhood is the running lower quartile; the
phase mix weighs each phase's usual level by its share of the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.design import cumulative
from dipstick.analysis.stats import mad_scale

if TYPE_CHECKING:
    from dipstick.analysis.design import Timeline
    from dipstick.model import FloatArray

EVENT_PHASES = frozenset({"weight_sync", "checkpoint", "cache_clear", "eval", "unattributed"})
"""Phases that never count as "usual": they are the suspects (or nothing is known about them)."""

_PURE = 0.95  # a window this full of one phase tells that phase's level
_MIN_PURE = 5
_MIN_OCCURRENCES = 3
_LEAST_NOISE = 0.5  # NVML reports whole percents: a quiet series has differences of exactly 0
_ROBUST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PhaseLevel:
    """The usual level of one phase, and how often a spike belonged to it.

    Attributes:
        level_pct: Median of the windows that lie inside the phase; None below 5 windows or 3 occurrences.
        sd_pct: Robust SD of those windows.
        windows: How many there were.
        occurrences: Segments of the phase inside the samples' time.
        with_spike: Segments that a spike explained by this phase overlaps.
        spikes: Spikes explained by this phase.
    """

    phase: str
    level_pct: float | None
    sd_pct: float | None
    windows: int
    occurrences: int
    with_spike: int = 0
    spikes: int = 0

    @property
    def recall(self) -> float | None:
        """Share of the phase's occurrences that show the spike."""
        return self.with_spike / self.occurrences if self.occurrences else None

    @property
    def usual_pct(self) -> float | None:
        """The level, unless the phase is a suspect."""
        return None if self.phase in EVENT_PHASES else self.level_pct


@dataclass(frozen=True, slots=True)
class Windows:
    """The samples that are there: sample i is the mean ``value`` over [t0, t1), ``base`` its neighbourhood."""

    t0: FloatArray
    t1: FloatArray
    value: FloatArray
    base: FloatArray


@dataclass(frozen=True, slots=True)
class PhaseMix:
    """What the phases predict for each window.

    Attributes:
        high: Highest prediction within the slack of the phase edges (n,).
        sd: How far windows of those phases usually are from their level (n,).
        share: Share of each window inside each phase (n, phases).
        levels: One row a phase.
    """

    high: FloatArray
    sd: FloatArray
    share: FloatArray
    levels: tuple[PhaseLevel, ...]


def running_quartile(t_s: FloatArray, value: FloatArray, span_s: float) -> FloatArray:
    """Lower quartile over [t - span/2, t + span/2), taken every span/2 and interpolated between.

    The quartile, not the median: a phase that takes half of the step would make the median jump between
    its level and the quiet one. Example: a series that is 0 for 60 % of the time and 80 for the rest, in
    turns shorter than the span, has the quartile 0 everywhere.
    """
    hops = max(1, int(np.ceil((t_s[-1] - t_s[0]) / (span_s / 2))))
    centre = np.linspace(t_s[0], t_s[-1], hops + 1)
    lo = np.searchsorted(t_s, centre - span_s / 2)
    hi = np.searchsorted(t_s, centre + span_s / 2, side="right")
    seen = hi > lo
    quarter = (hi - lo - 1) // 4  # no interpolation between two samples: np.quantile costs ten times as much
    parts = zip(lo[seen], hi[seen], quarter[seen], strict=True)
    quartile = [np.partition(value[a:b], q)[q] for a, b, q in parts]
    return np.interp(t_s, centre[seen], np.asarray(quartile, dtype=np.float64))


def noise_sd(value: FloatArray) -> float:
    """Robust SD of a single window from first differences (levels cancel); never below 0.5 points."""
    steps = np.diff(value)
    if steps.size == 0:
        return _LEAST_NOISE
    return max(_LEAST_NOISE, float(mad_scale(np.concatenate([steps, -steps]))) / float(np.sqrt(2)))


def mix_phases(w: Windows, phases: Timeline, slack_s: float) -> PhaseMix:
    """Predict each window from its phases; suspects and phases of unknown level count as the neighbourhood.

    The edges of phases are known to ``slack_s`` only: the highest of three predictions is kept, so that a
    window at the edge of decode is not a spike because it was cut 50 ms too early.
    """
    share = window_shares(w.t0, w.t1, phases)
    rows = _levels(w, share, phases)
    level = np.array([r.usual_pct or 0.0 for r in rows])
    known = np.array([float(r.usual_pct is not None) for r in rows])
    sd = np.array([r.sd_pct or 0.0 for r in rows])
    high = share @ level + (1 - share @ known) * w.base
    for d in (-slack_s, slack_s):
        told, covered = (_mean_of(w.t0 + d, w.t1 + d, phases, per_phase) for per_phase in (level, known))
        high = np.maximum(high, told + (1 - covered) * w.base)
    return PhaseMix(high, share @ (sd * known), share, tuple(rows))


def _mean_of(t0_s: FloatArray, t1_s: FloatArray, phases: Timeline, per_phase: FloatArray) -> FloatArray:
    """Mean over each window of a value that each phase has: one integral, whatever the number of phases."""
    spent = np.concatenate(([0.0], np.cumsum(np.diff(phases.edges) * per_phase[phases.codes])))
    seconds = np.interp(t1_s, phases.edges, spent) - np.interp(t0_s, phases.edges, spent)
    return seconds / np.maximum(t1_s - t0_s, 1e-9)


def window_shares(t0_s: FloatArray, t1_s: FloatArray, phases: Timeline) -> FloatArray:
    """Share of each window [t0, t1) inside each phase, shape (windows, phases)."""
    return (cumulative(phases, t1_s) - cumulative(phases, t0_s)) / np.maximum(t1_s - t0_s, 1e-9)[:, None]


def _levels(w: Windows, share: FloatArray, phases: Timeline) -> list[PhaseLevel]:
    """The median over windows that lie (to 95 %) inside each phase; the short phases by least squares."""
    rows = []
    for p, name in enumerate(phases.names):
        pure = w.value[share[:, p] >= _PURE]
        inside = (phases.codes == p) & (phases.edges[1:] > w.t0[0]) & (phases.edges[:-1] < w.t1[-1])
        occurrences = int(inside.sum())
        known = pure.size >= _MIN_PURE and occurrences >= _MIN_OCCURRENCES
        level = float(np.median(pure)) if known else None
        sd = float(mad_scale(pure)) if known else None
        rows.append(PhaseLevel(name, level, sd, int(pure.size), occurrences))
    return _fit_short(w.value, share, rows)


def _fit_short(value: FloatArray, share: FloatArray, rows: list[PhaseLevel]) -> list[PhaseLevel]:
    """Levels of phases that have time but no whole window of their own (backward of 0.15 s at W = 0.2 s).

    Least squares over the windows they touch, the known phases taken off first, outliers weighed down.
    """
    seconds = share.sum(axis=0)
    short = [
        p
        for p, r in enumerate(rows)
        if r.level_pct is None and r.occurrences >= _MIN_OCCURRENCES and seconds[p] >= _MIN_PURE
    ]
    if not short:
        return rows
    use = share[:, short].sum(axis=1) > 0
    x = share[use][:, short]
    y = value[use] - share[use] @ np.array([r.level_pct or 0.0 for r in rows])
    weight = np.ones(y.size)
    for _ in range(_ROBUST_ROUNDS):
        fit = np.linalg.lstsq(x * weight[:, None], y * weight, rcond=None)[0]
        rest = y - x @ fit
        weight = np.sqrt(1.0 / np.maximum(1.0, np.abs(rest) / max(1.5 * float(mad_scale(rest)), 1.0)))
    for p, found in zip(short, fit, strict=True):
        level = float(np.clip(found, 0.0, 100.0))
        rows[p] = replace(rows[p], level_pct=level, sd_pct=float(mad_scale(rest)))
    return rows
