"""Which boundary do the dips follow? The anchor contest, and the step shuffle as a diagnostic (methods, 4.1).

"Locked to the loop" is not "caused by this boundary": with a free lag a wrong boundary fits about as often
as the right one. The boundary that the dips really follow keeps the steadiest lag from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.stats import (
    Estimate,
    FloatArray,
    Reason,
    percentile_interval,
    permutation_p,
    step_draws,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

WON = 0.95
DRAWS = 500
MIN_STEPS = 8
ENOUGH_STEPS = 20
MAX_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class ContestResult:
    """The anchor contest.

    Attributes:
        winner: The anchor with the smallest dispersion in at least 95 % of the step resamples; None if none.
        leader: The anchor with the smallest dispersion in the run itself.
        probability: Share of the resamples each anchor wins; ties are nobody's.
        dispersion_s: Median |lag - median lag| over the steps.
        unresolved: The fewest anchors that together win 95 %: the winner alone, or what cannot be told apart.
        lag_s: Median lag of the onsets behind the leader, with its step-bootstrap interval.
        separation: Dispersion of the interval between the leader and the closest rival, over the leader's
            lag dispersion. From 3 upwards 40 steps decide; near 1 even 80 rarely do. None without a rival.
        steps: Steps with an onset and every anchor; ``steps_used`` of them (evenly spaced) were resampled.
    """

    winner: str | None
    leader: str | None
    probability: dict[str, float]
    dispersion_s: dict[str, float]
    unresolved: tuple[str, ...]
    lag_s: Estimate
    separation: float | None
    steps: int
    steps_used: int
    reasons: tuple[Reason, ...] = ()


def anchor_contest(
    anchors: Mapping[str, FloatArray],
    onsets: FloatArray,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
) -> ContestResult:
    """Finds the anchor with the steadiest lag to the dips.

    Args:
        anchors: Name -> time in each step, seconds, shape (steps,); NaN where a step lacks it. Give
            anchors that nearly every step has: steps without one of them are left out.
        onsets: One dip onset a step (see :func:`one_per_step`), shape (steps,); NaN for none.
        rng: Source of the step resamples.
        draws: Resamples.

    Errors:
        A wrong winner in at most 1 % of runs: none in any cell of methods S3 (benchmarks/calibration).

    Example: lags to reward start 1.0, 1.1, 0.9, 1.0 s and to generate start 30, 34, 28, 33 s: dispersions
    0.05 and 2 s, so reward start leads.
    """
    names = tuple(anchors)
    lags = onsets - np.array([anchors[n] for n in names]).reshape(len(names), onsets.size)
    lags = lags[:, np.isfinite(lags).all(axis=0)]
    steps = lags.shape[1] if names else 0
    if steps < MIN_STEPS:
        return _too_few(names, steps)
    lags = lags[:, np.unique(np.linspace(0, steps - 1, MAX_STEPS).astype(int))]
    index = step_draws(rng, lags.shape[1], draws)
    spread = np.array([dispersion(lag[index]) for lag in lags])
    won = (spread == spread.min(axis=0)) & ((spread == spread.min(axis=0)).sum(axis=0) == 1)
    return _result(names, lags, won.mean(axis=1), np.median(lags[:, index], axis=2), steps)


def _result(
    names: tuple[str, ...], lags: FloatArray, share: FloatArray, medians: FloatArray, steps: int
) -> ContestResult:
    own = dispersion(lags)
    lead = int(np.argmin(own))
    best = int(np.argmax(share))
    winner = names[best] if share[best] >= WON else None
    reasons: tuple[Reason, ...] = () if winner else ("COLLINEAR",)
    few: tuple[Reason, ...] = ("LOW_N",) if winner is None and steps < ENOUGH_STEPS else ()
    return ContestResult(
        winner=winner,
        leader=names[lead],
        probability=dict(zip(names, share.tolist(), strict=True)),
        dispersion_s=dict(zip(names, own.tolist(), strict=True)),
        unresolved=(winner,) if winner else _fewest(names, share),
        lag_s=percentile_interval(float(np.median(lags[lead])), medians[lead]),
        separation=_separation(lags, lead),
        steps=steps,
        steps_used=lags.shape[1],
        reasons=(*few, *reasons),
    )


def _too_few(names: tuple[str, ...], steps: int) -> ContestResult:
    unknown = Estimate(float("nan"), float("-inf"), float("inf"))
    return ContestResult(None, None, {}, {}, names, unknown, None, steps, 0, ("LOW_N",))


def dispersion(values: FloatArray) -> FloatArray:
    """Median absolute deviation from the median along the last axis."""
    centre = np.median(values, axis=-1, keepdims=True)
    spread: FloatArray = np.median(np.abs(values - centre), axis=-1)
    return spread


def _fewest(names: tuple[str, ...], share: FloatArray) -> tuple[str, ...]:
    """Anchors in order of their share until 95 % of the wins are covered."""
    order = np.argsort(-share, kind="stable")
    enough = int(np.searchsorted(np.cumsum(share[order]), WON * share.sum())) + 1
    return tuple(names[i] for i in order[:enough])


def _separation(lags: FloatArray, lead: int) -> float | None:
    """How much the interval to the closest rival varies, in units of the leader's own dispersion."""
    rivals = [float(dispersion(lags[lead] - lag)) for i, lag in enumerate(lags) if i != lead]
    return min(rivals) / max(float(dispersion(lags[lead])), 1e-9) if rivals else None


def one_per_step(
    step_starts: FloatArray, end: float, onsets: FloatArray, weights: FloatArray | None = None
) -> FloatArray:
    """The onset of each step's largest dip (or its first), NaN for steps without one; shape (steps,).

    The choice must not look at the anchors: taking the onset nearest to an anchor would hand it the contest.

    Args:
        step_starts: Seconds, ascending.
        end: End of the last step.
        onsets: Dip onsets of the job, ascending.
        weights: Size of each dip (deficit in GPU-seconds); the first onset of a step is taken if None.
    """
    chosen = np.full(step_starts.size, np.nan)
    size = -np.arange(onsets.size, dtype=np.float64) if weights is None else weights
    step = np.searchsorted(step_starts, onsets, side="right") - 1
    valid = (step >= 0) & (onsets < end)
    order = np.argsort(size[valid], kind="stable")
    chosen[step[valid][order]] = onsets[valid][order]
    return chosen


def step_shuffle_p(
    boundary_offsets: FloatArray,
    onset_offsets: FloatArray,
    tolerance: float,
    rng: np.random.Generator,
    draws: int = 999,
) -> float | None:
    """Null 2: do the dips follow this boundary step by step, or would any step's dip do?

    Offsets are seconds from the step's start, one a step, NaN for none. Onsets within the tolerance of the
    boundary (at the median lag) are counted, and counted again with the steps' onsets exchanged.
    Diagnostic only: a correlated neighbour passes it too. None if the boundary's offset varies by less than
    the tolerance (NO_VARIATION): then exchanging steps changes nothing.
    """
    both = np.isfinite(boundary_offsets) & np.isfinite(onset_offsets)
    boundary, onset = boundary_offsets[both], onset_offsets[both]
    if boundary.size < MIN_STEPS or boundary.std() <= tolerance:
        return None
    shuffled = rng.permuted(np.tile(onset, (draws, 1)), axis=1)
    counts = _within(shuffled - boundary, tolerance)
    return permutation_p(float(_within((onset - boundary)[None, :], tolerance)[0]), counts)


def _within(lags: FloatArray, tolerance: float) -> FloatArray:
    centre = np.median(lags, axis=1, keepdims=True)
    within: FloatArray = (np.abs(lags - centre) <= tolerance).sum(axis=1).astype(np.float64)
    return within
