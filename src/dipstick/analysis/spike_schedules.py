"""Event schedules and their opportunities: when a spike could have been caused by what.

An **opportunity** is a hit window. It opens at the event's start minus the uncertainty t and closes at
its end plus a grace plus t (the *causal window*: a cause does not follow its effect, and with a free lag
two schedules of the same step could never be told apart). A schedule that fires in some steps only gets
an unfired opportunity in every other step, at the same anchor and offset.

Worked example (t = 0.5 s, grace 1 s): a checkpoint from 118 to 120 s in a step of 60 to 122 s has the fired
window [117.5, 121.5]; it is 2 s from the step's end, so the step 122 to 180 without a checkpoint has the
unfired window [175.5, 179.5].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from dipstick.analysis.stats import mad_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.model import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
Kind = Literal["step", "event", "clock"]

_EVERY_STEP = 0.95  # share of steps from which on a schedule counts as firing each step
_REGULAR = 0.3  # intervals this much steadier than steps make them run on a clock
_MIN_CLOCK = 12
_MIN_SPREAD = 3


@dataclass(frozen=True, slots=True)
class Schedule:
    """One suspect: event i runs from start_s[i] to end_s[i] (seconds, ascending).

    ``kind`` None is worked out by :func:`kind_of`.
    """

    name: str
    start_s: FloatArray
    end_s: FloatArray
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """How far before and after an event a spike's onset still counts for it, seconds."""

    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class Opportunities:
    """Hit windows of one schedule, in time order.

    Attributes:
        lo_s: Where a window opens (n,).
        hi_s: Where it closes (n,).
        fired: Whether the event took place (n,).
        clean: Whether no other optional event's window overlaps it (n,).
        anchor: What unfired windows were placed by (empty where there are none).
    """

    lo_s: FloatArray
    hi_s: FloatArray
    fired: BoolArray
    clean: BoolArray
    anchor: str = ""

    @property
    def clean_fired(self) -> int:
        """Fired opportunities that no other optional event touches."""
        return int(np.count_nonzero(self.fired & self.clean))


def kind_of(schedule: Schedule, edge_s: FloatArray) -> Kind:
    """Does it fire each step, on a clock, or in some steps?

    "clock" needs at least 12 firings whose intervals vary by less than 0.3 of what step-locked ones would:
    K steps apart, the interval has K times the step's variance. With steady steps nobody can tell, and
    the schedule counts as locked to the steps.

    Example: steps of 60 +- 4 s; intervals of 600 +- 12 s belong to "every 10 steps" (12.6 s expected),
    intervals of 45 +- 0.5 s to a clock (3.5 s expected).
    """
    if schedule.kind is not None:
        return schedule.kind
    step, gap = np.diff(edge_s), np.diff(schedule.start_s)
    if gap.size >= _MIN_CLOCK - 1:
        expected = float(np.std(step)) * float(np.sqrt(np.mean(gap) / np.mean(step)))
        if float(np.std(gap)) < _REGULAR * expected:
            return "clock"
    cell = step_of(schedule.start_s, _frame(schedule.start_s, edge_s))
    often = np.unique(cell[cell >= 0]).size >= min(_EVERY_STEP * step.size, max(step.size - 1, 2))
    return "step" if often else "event"


def step_of(time_s: FloatArray, edge_s: FloatArray) -> IntArray:
    """Index of the step that holds each time, -1 outside the steps."""
    step = np.searchsorted(edge_s, time_s, side="right") - 1
    return np.asarray(np.where((step >= 0) & (step < edge_s.size - 1), step, -1), dtype=np.int64)


def _frame(start_s: FloatArray, edge_s: FloatArray) -> FloatArray:
    """Cell edges for "once a step": the step edges, or the middles of steps if the events sit at the edges.

    A weight sync that begins 10 ms before or after the step's edge must not land twice in one step.
    """
    middle = np.concatenate([edge_s[:1], (edge_s[:-1] + edge_s[1:]) / 2, edge_s[-1:]])
    return edge_s if _clearance(start_s, edge_s) >= _clearance(start_s, middle[1:-1]) else middle


def _clearance(start_s: FloatArray, edge_s: FloatArray) -> float:
    """Median distance of events to the nearest edge."""
    if start_s.size == 0 or edge_s.size == 0:
        return 0.0
    after = np.clip(np.searchsorted(edge_s, start_s), 0, edge_s.size - 1)
    before = np.maximum(after - 1, 0)
    return float(np.median(np.minimum(np.abs(edge_s[after] - start_s), np.abs(edge_s[before] - start_s))))


def opportunities(
    schedule: Schedule, edge_s: FloatArray, reach: Reach, anchors: Mapping[str, FloatArray] | None = None
) -> Opportunities:
    """Fired windows, and for optional schedules the unfired ones; all marked clean for now.

    Args:
        schedule: The suspect.
        edge_s: Step edges (N + 1,): step k is [edge_s[k], edge_s[k + 1]).
        reach: Seconds before and after the event that still count.
        anchors: More places an event may hang on than step start and end: one time a step (N,), NaN if none.
    """
    kind = kind_of(schedule, edge_s)
    if kind == "clock":
        inside = (schedule.start_s >= edge_s[0]) & (schedule.end_s < edge_s[-1])
        return _windows(schedule.start_s[inside], schedule.end_s[inside], reach, edge_s)
    frame = _frame(schedule.start_s, edge_s)
    cell, start, end = _by_cell(schedule, frame)
    fired = _windows(start, end, reach, edge_s)
    if kind == "step" or cell.size == 0:
        return fired
    places = {"step_edge": edge_s}
    if frame is edge_s:
        places = {"step_start": edge_s[:-1], "step_end": edge_s[1:], **(anchors or {})}
    name, place = _anchor(cell, start, places)
    offset, length = float(np.median(start - place[cell])), float(np.median(end - start))
    at = place[np.setdiff1d(np.arange(frame.size - 1), cell)] + offset
    at = at[np.isfinite(at)]
    return _join(fired, _windows(at, at + length, reach, edge_s), name)


def _by_cell(schedule: Schedule, frame: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """One event a cell: several firings in a step (``empty_cache`` after each micro-batch) are one span."""
    cell = step_of(schedule.start_s, frame)
    start, end, cell = schedule.start_s[cell >= 0], schedule.end_s[cell >= 0], cell[cell >= 0]
    which, first = np.unique(cell, return_index=True)
    if which.size == 0:
        return which, np.empty(0), np.empty(0)
    return which, np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)


def _windows(start: FloatArray, end: FloatArray, reach: Reach, edge_s: FloatArray) -> Opportunities:
    """Hit windows around events; those that reach beyond the steps are left out (half-seen)."""
    lo, hi = start - reach.before_s, end + reach.after_s
    keep = (lo >= edge_s[0] - reach.before_s) & (hi <= edge_s[-1] + reach.after_s)
    lo, hi = lo[keep], hi[keep]
    return Opportunities(lo, hi, np.ones(lo.size, dtype=bool), np.ones(lo.size, dtype=bool))


def _anchor(cell: IntArray, start: FloatArray, places: Mapping[str, FloatArray]) -> tuple[str, FloatArray]:
    """The boundary that the event keeps the steadiest distance to (with few events: the nearest one)."""
    keys: dict[str, tuple[float, float]] = {}
    for name, place in places.items():
        offset = start - place[cell]
        if np.all(np.isfinite(offset)):
            spread = float(mad_scale(offset)) if offset.size >= _MIN_SPREAD else 0.0
            keys[name] = (round(spread, 1), abs(float(np.median(offset))))
    best = min(keys, key=lambda n: keys[n])
    return best, places[best]


def _join(fired: Opportunities, other: Opportunities, anchor: str) -> Opportunities:
    lo = np.concatenate([fired.lo_s, other.lo_s])
    hi = np.concatenate([fired.hi_s, other.hi_s])
    flag = np.concatenate([fired.fired, np.zeros(other.lo_s.size, dtype=bool)])
    order = np.argsort(lo, kind="stable")
    return Opportunities(lo[order], hi[order], flag[order], np.ones(lo.size, dtype=bool), anchor)


# -- windows as sets -------------------------------------------------------------------------------


def merged(lo: FloatArray, hi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The union of windows as disjoint ones: [0, 2], [1, 3], [5, 6] becomes [0, 3], [5, 6]."""
    if lo.size == 0:
        return lo, hi
    order = np.argsort(lo, kind="stable")
    lo, reach = lo[order], np.maximum.accumulate(hi[order])
    first = np.concatenate(([True], lo[1:] > reach[:-1]))
    last = np.append(np.flatnonzero(first)[1:] - 1, lo.size - 1)
    return lo[first], reach[last]


def measure(lo: FloatArray, hi: FloatArray) -> float:
    """Seconds covered by the union of windows."""
    a, b = merged(lo, hi)
    return float(np.sum(b - a))


def overlap(a: Opportunities, b: Opportunities) -> float:
    """J = seconds in both / seconds in either, over the fired windows of two schedules."""
    size_a, size_b = (measure(x.lo_s[x.fired], x.hi_s[x.fired]) for x in (a, b))
    either = measure(
        np.concatenate([a.lo_s[a.fired], b.lo_s[b.fired]]), np.concatenate([a.hi_s[a.fired], b.hi_s[b.fired]])
    )
    return (size_a + size_b - either) / either if either > 0 else 0.0


def touches(lo: FloatArray, hi: FloatArray, other_lo: FloatArray, other_hi: FloatArray) -> BoolArray:
    """Which windows overlap at least one of the others."""
    a, b = merged(other_lo, other_hi)
    if a.size == 0:
        return np.zeros(lo.size, dtype=bool)
    at = np.searchsorted(b, lo)
    return np.asarray((at < a.size) & (a[np.minimum(at, a.size - 1)] <= hi), dtype=bool)


def hit(onset_s: FloatArray, lo: FloatArray, hi: FloatArray) -> BoolArray:
    """Which windows hold at least one (sorted) onset."""
    return np.asarray(np.searchsorted(onset_s, hi, side="right") > np.searchsorted(onset_s, lo), dtype=bool)
