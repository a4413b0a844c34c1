"""Where the clock of a training log lies on the clock of the telemetry, found from the data, or why it can't be.

At every lag the telemetry is explained by where in its step each sample lies (a free profile, one level a bin) and by
one level before and one after the run. The lag of least squared error is the offset. Steps repeat, so a lag that is off by whole
steps fits nearly as well: blocks of telemetry are resampled, and unless at least ``SURE`` of the draws agree on one
peak, the answer is no. ``docs/statistics.md`` has the simulation behind the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray, IntArray

SURE: Final = 0.95
"""Share of draws that must agree on one peak; also the level of the interval."""

NO_EDGE: Final = (
    "the telemetry shows no idle time before or after the run, and inside it the edge of a step can't be told from the "
    "other changes of utilization in a step"
)

BINS: Final = 12
"""Levels a step: half of them counted from its start, half from its end, as what varies in length lies between."""

FEWEST_STEPS: Final = 8
"""With fewer steps the telemetry is not asked (methods: regression needs 8)."""

MOST_LAGS: Final = 3000
MOST_SAMPLES: Final = 2000
RATES: Final = tuple(1 + 0.005 * i for i in range(11))
"""How much longer the run may be than the sum of its logged steps: what no timer saw (optimizer, saving) adds up."""

DRAWS: Final = 500
BLOCK_STEPS: Final = 2.0
OVERLAP: Final = 0.5
"""At least this share of the shorter of run and telemetry must lie in the other."""

IDLE: Final = 0.3
"""Outside the run the GPUs must read less than this share of what they read inside it."""

CLEAR: Final = 0.02
"""The profile must take at least this share of the variance more than the median lag does, or there is nothing to see."""


@dataclass(frozen=True, slots=True)
class Series:
    """Telemetry of one run.

    Attributes:
        t_s: Stamps, at the end of each sample's window, on the clock to place on, rising; seconds, shape (n,).
        values: Utilization in percent, NaN where missing, shape (n, GPUs).
        window_s: What each sample averages over, back from its stamp.
    """

    t_s: FloatArray
    values: FloatArray
    window_s: float


@dataclass(frozen=True, slots=True)
class Offset:
    """What was found.

    Attributes:
        offset_s: To add to the log's times; None: it can't be told.
        low_s: Lower end of the 95 % interval; NaN if not told.
        high_s: Upper end.
        rate: Seconds of telemetry a second of the log: above 1 where no timer saw a part of each step.
        share: Share of draws that agree on the best peak.
        others: Offsets of the other peaks that some draws prefer, likeliest first.
        why: Why it can't be told; empty if it can.
    """

    offset_s: float | None
    low_s: float = float("nan")
    high_s: float = float("nan")
    rate: float = 1.0
    share: float = 0.0
    others: tuple[float, ...] = ()
    why: str = ""


def estimate(series: Series, edges_s: FloatArray, *, rates: Sequence[float] = RATES, seed: int = 0) -> Offset:
    """Estimate the offset between a log's clock and the telemetry's.

    Args:
        series: The telemetry.
        edges_s: Step edges on the log's clock: step k lies in [k, k + 1); rising, shape (steps + 1,).
        rates: Factors tried on the log's seconds; the offset places its first edge.
        seed: Of the resampling.

    Returns:
        What to add to the first edge's time, with its interval, or the reason for none.
    """
    steps = len(edges_s) - 1
    if steps < FEWEST_STEPS:
        return Offset(None, why=f"{max(steps, 0)} steps are too few ({FEWEST_STEPS} are needed)")
    thin = _thinned(series)
    if len(thin.t_s) < steps:
        return Offset(None, why="the telemetry has fewer values than the log has steps")
    zeroed = edges_s - edges_s[0]
    weights = _weights(thin.t_s, zeroed, np.random.default_rng(seed))
    tables = [_table(thin, zeroed * rate, weights) for rate in rates]
    table = _Table(*(np.concatenate(parts) for parts in zip(*tables, strict=True)))
    if len(table.lags) < 3:  # noqa: PLR2004 - a profile needs neighbours
        return Offset(None, why="telemetry and log hardly overlap at any offset")
    if np.median(table.total) - table.total.min() < CLEAR * _spread(thin.values):
        return Offset(None, why="utilization does not follow the steps at any offset")
    found = _judge(
        table, float(np.median(np.diff(thin.t_s))), zeroed, np.repeat(rates, [len(t.lags) for t in tables])
    )
    if found.offset_s is not None and not _has_idle_edge(thin, zeroed * found.rate + found.offset_s):
        found = Offset(None, share=found.share, others=(found.offset_s, *found.others), why=NO_EDGE)
    return replace(
        found,
        offset_s=None if found.offset_s is None else found.offset_s - float(edges_s[0]),
        low_s=found.low_s - float(edges_s[0]), high_s=found.high_s - float(edges_s[0]),
        others=tuple(other - float(edges_s[0]) for other in found.others),
    )  # fmt: skip


def _has_idle_edge(series: Series, edges: FloatArray) -> bool:
    """Whether idle time before or after the run is seen: at least 3 samples, and half a step."""
    label = _places(series.t_s, edges, _bin_s(edges))
    levels = np.nanmean(series.values, axis=1)
    distance = float(np.median(np.diff(series.t_s)))
    least = max(3.0, 0.5 * float(np.median(np.diff(edges))) / distance)
    busy = float(levels[label > 1].mean()) if (label > 1).any() else 0.0
    sides = [levels[label == side] for side in (0, 1)]
    return any(len(side) >= least and float(side.mean()) < IDLE * busy for side in sides)


class _Table(NamedTuple):
    """Fits at many lags: squared error of all samples, and of each draw (lags, draws)."""

    lags: FloatArray
    total: FloatArray
    drawn: FloatArray


def _table(series: Series, edges_s: FloatArray, weights: FloatArray) -> _Table:
    lags = _lags(series.t_s, edges_s)
    width = _bin_s(edges_s)
    errors = np.stack([_errors(series, edges_s + lag, width) for lag in lags])
    return _Table(lags, errors.sum(axis=1), errors @ weights)


def _judge(table: _Table, period_s: float, edges_s: FloatArray, rates: FloatArray) -> Offset:
    """The peak that the draws agree on, or the peaks that they name."""
    lags = table.lags
    first = int(np.argmin(table.total))
    best = float(lags[first])
    half = 0.5 * float(np.median(np.diff(edges_s)))
    chosen = lags[np.argmin(table.drawn, axis=0)]
    near = np.abs(chosen - best) < half
    share = float(near.mean())
    others = _peaks(chosen[~near], half)
    if share < SURE:
        return Offset(None, share=share, others=(best, *others), why=_ambiguous(best, others, share))
    same = lags[rates == rates[first]]
    if best in (float(same[0]), float(same[-1])):
        return Offset(
            None,
            share=share,
            why="the best fit is the last one possible: the log may reach beyond the telemetry",
        )
    room = (
        float(same[1] - same[0]) + period_s
    )  # no finer than a sample: simulation missed the truth too often without
    low, high = np.quantile(chosen[near], [(1 - SURE) / 2, (1 + SURE) / 2])
    return Offset(
        best, min(float(low), best) - room, max(float(high), best) + room, float(rates[first]), share, others
    )


def _ambiguous(best: float, others: tuple[float, ...], share: float) -> str:
    named = ", ".join(f"{other - best:+.1f} s" for other in others[:3])
    return (
        f"steps repeat, and several offsets fit: the best in {share:.0%} of draws, others at {named} from it"
    )


def _peaks(chosen: FloatArray, half: float) -> tuple[float, ...]:
    """Centres of the groups of draws, largest group first."""
    if not len(chosen):
        return ()
    ordered = np.sort(chosen)
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > half) + 1)
    return tuple(float(np.median(group)) for group in sorted(groups, key=len, reverse=True))


def _thinned(series: Series) -> Series:
    """Rows with a value, averaged in runs if there are too many, on the middle of their windows."""
    known = np.isfinite(series.values).any(axis=1) if len(series.values) else np.zeros(0, bool)
    t_s, values = series.t_s[known] - series.window_s / 2, series.values[known]
    many = -(-len(t_s) // MOST_SAMPLES) or 1
    if many > 1:
        whole = len(t_s) // many * many
        t_s = t_s[:whole].reshape(-1, many).mean(axis=1)
        values = (
            np.ma.masked_invalid(values[:whole].reshape(-1, many, values.shape[1]))
            .mean(axis=1)
            .filled(np.nan)
        )
    return Series(t_s, values, series.window_s)


def _lags(t_s: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Every offset at which enough of the shorter one lies in the other."""
    run, seen = float(edges_s[-1] - edges_s[0]), float(t_s[-1] - t_s[0])
    spare = (1 - OVERLAP) * min(run, seen)
    low, high = sorted((float(t_s[0] - edges_s[0]), float(t_s[-1] - edges_s[-1])))
    low, high = low - spare, high + spare
    wanted = min(0.25, float(np.median(np.diff(edges_s))) / (2 * BINS))
    grid = max(wanted, (high - low) / MOST_LAGS)
    lags: FloatArray = (low + grid * np.arange(int((high - low) / grid) + 1)).astype(np.float64)
    return lags


def _bin_s(edges_s: FloatArray) -> float:
    """Width of a level, a twelfth of the usual step."""
    return float(np.median(np.diff(edges_s))) / BINS


def _errors(series: Series, edges: FloatArray, width: float) -> FloatArray:
    """Squared error of each sample at one lag, summed over the GPUs, shape (n,)."""
    label = _places(series.t_s, edges, width)
    error = np.zeros(len(label))
    for column in series.values.T:
        known = np.isfinite(column)
        count = np.bincount(label[known], minlength=BINS + 2)
        mean = np.bincount(label[known], column[known], BINS + 2) / np.maximum(count, 1)
        error[known] += (column[known] - mean[label[known]]) ** 2
    return error


def _places(t_s: FloatArray, edges: FloatArray, width: float) -> IntArray:
    """Bin of each sample: 0 before the run, 1 after it, then those of the step."""
    at = np.searchsorted(edges, t_s, side="right") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    step = np.clip(at, 0, len(edges) - 2)
    since, until = t_s - edges[step], edges[step + 1] - t_s
    nearest = np.clip(np.minimum(since, until) / width, 0, BINS // 2 - 1).astype(np.int64)
    label = 2 + np.where(since <= until, nearest, BINS // 2 + nearest)
    outside: IntArray = np.where(at < 0, 0, 1)
    return np.where(inside, label, outside)


def _weights(t_s: FloatArray, edges_s: FloatArray, rng: np.random.Generator) -> FloatArray:
    """How often each sample is in each draw of moving blocks of about two steps (they keep what is dependent), (n, draws)."""
    n = len(t_s)
    distance = max(float(np.median(np.diff(t_s))), 1e-9)
    usual = float(np.median(np.diff(edges_s)))
    size = int(np.clip(round(BLOCK_STEPS * usual / distance), 1, max(n // 4, 1)))
    starts = rng.multinomial(-(-n // size), np.full(n, 1 / n), size=DRAWS).T.astype(np.float64)
    circle = np.cumsum(np.concatenate([np.zeros((1, DRAWS)), starts[n - size + 1 :], starts]), axis=0)
    weights: FloatArray = (circle[size:] - circle[:-size]).astype(np.float64)
    return weights


def _spread(values: FloatArray) -> float:
    centred: Any = values - np.nanmean(values, axis=0)
    return float(np.nansum(centred**2))
