"""Spikes of memory-access time: when device memory was busier than it usually is.

A series is judged twice, because "usual" has two meanings:

* against its **neighbourhood** (the running lower quartile over about a minute): these are the spikes a
  person sees in the graph. Decode at 81 % memory access after a quiet reward phase is one, each step;
* against its **phase** (the time-weighted mix of the usual levels of the phases inside the sample's
  window): what is left here is not the anatomy of the step, and only this is handed to the tests of
  event schedules (:mod:`dipstick.analysis.spike_events`).

A neighbourhood spike whose height the phase mix accounts for *belongs to* that phase. Without the
distinction the decode of every step would be "explained" by the weight sync that precedes it.

Worked example (H200 trace, W = 0.2 s, quiet level 0, generate 81, logprobs 23): the window
[126.66, 126.86) holds 9 ms of generate and 191 ms of logprobs, mix 0.045 x 81 + 0.955 x 23 = 25.6;
it reads 25, so nothing is left over, and the run of windows at 80-84 before it belongs to generate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.spike_levels import (
    PhaseLevel,
    PhaseMix,
    Windows,
    mix_phases,
    noise_sd,
    running_quartile,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.analysis.design import Timeline
    from dipstick.model import FloatArray, IntArray

_HOLE = 3.0  # a window this many sampling periods after the one before it does not follow it

Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SpikeOptions:
    """Thresholds of the detection, all in percentage points unless named otherwise.

    Attributes:
        min_height_pct: Lowest height over the usual level that counts.
        noise_factor: Height must also exceed this many noise SDs (robust, from first differences).
        phase_factor: Excess over the phase mix must also exceed this many SDs of that phase's own level.
        leave_share: A spike ends where the height falls below this share of the entry threshold.
        baseline_span_s: Width of the running quartile (the caller passes about five steps, >= 60 s).
        slack_s: Uncertainty of the phase edges against the samples.
    """

    min_height_pct: float = 15.0
    noise_factor: float = 6.0
    phase_factor: float = 4.0
    leave_share: float = 0.5
    baseline_span_s: float = 60.0
    slack_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Spike:
    """One excursion of one series.

    Attributes:
        start_s: Start of the first window of the excursion.
        end_s: End of its last window.
        peak_pct: Highest window mean.
        baseline_pct: Running lower quartile, mean over the spike.
        excess_pct: Highest value minus the phase mix; None without phases.
        phase: Phase that covers most of it; None without phases.
        explained_by: The phase whose usual level accounts for it, else None.
    """

    start_s: float
    end_s: float
    peak_pct: float
    baseline_pct: float
    excess_pct: float | None
    phase: str | None
    explained_by: str | None


@dataclass(frozen=True, slots=True)
class SpikeSet:
    """All spikes of one series, in time order.

    Attributes:
        levels: The phases' usual levels and how often a spike belongs to each; empty without phases.
        noise_pct: Robust SD of a single window.
        window_s: Median window length: shorter spikes are diluted by it.
        samples: Windows that were judged (missing ones are left out, not read as 0).
    """

    spikes: tuple[Spike, ...]
    levels: tuple[PhaseLevel, ...]
    noise_pct: float
    window_s: float
    samples: int
    options: SpikeOptions = field(default_factory=SpikeOptions)

    @property
    def unexplained(self) -> tuple[Spike, ...]:
        """The spikes that no phase accounts for: input of the schedule tests."""
        return tuple(s for s in self.spikes if s.explained_by is None)


def find_spikes(
    t0_s: FloatArray,
    t1_s: FloatArray,
    value_pct: FloatArray,
    phases: Timeline | None = None,
    options: SpikeOptions | None = None,
) -> SpikeSet:
    """Find the spikes of one series (``utilization.memory``, or DRAM activity from GPM).

    Args:
        t0_s: Window starts (n,), seconds.
        t1_s: Window ends (n,), ascending; the sample is the mean over [t0, t1).
        value_pct: Percent (n,); NaN is missing.
        phases: The phases of the GPU's rank; None judges against the neighbourhood only.
        options: Thresholds.

    Returns:
        The spikes with the phase each belongs to, the phases' usual levels, and the noise.
    """
    opt = options or SpikeOptions()
    keep = np.isfinite(value_pct)
    t0, t1, value = t0_s[keep], t1_s[keep], value_pct[keep]
    if value.size == 0:
        return SpikeSet((), (), 0.0, 0.0, 0, opt)
    noise = noise_sd(value)
    floor = max(opt.min_height_pct, opt.noise_factor * noise)
    windows = Windows(t0, t1, value, running_quartile(t1, value, opt.baseline_span_s))
    window_s = float(np.median(t1 - t0))
    if phases is None:
        runs = _runs(windows, value - windows.base, np.full(value.size, floor), opt)
        found = tuple(_spikes(windows, runs))
        return SpikeSet(found, (), noise, window_s, int(value.size), opt)
    mix = mix_phases(windows, phases, opt.slack_s)
    found = _judge_twice(windows, mix, floor, opt)
    return SpikeSet(found, _count(found, mix.levels, phases, windows), noise, window_s, int(value.size), opt)


def union_onsets(sets: Sequence[SpikeSet], tolerance_s: float) -> FloatArray:
    """Onsets of unexplained spikes of several GPUs, one for each group closer than ``tolerance_s``.

    GPUs of a barrier-synchronised job are copies: counting each one's spike would multiply the evidence
    (methods, S1). An onset is the middle of the spike's first window.
    """
    times = np.sort([s.start_s + g.window_s / 2 for g in sets for s in g.unexplained])
    if times.size == 0:
        return np.empty(0)
    return np.asarray(times[np.concatenate(([True], np.diff(times) > tolerance_s))], dtype=np.float64)


def runs_above(height: FloatArray, enter: FloatArray, leave_share: float, follows: FloatArray) -> list[Run]:
    """Index runs [i, j) that stay above ``leave_share * enter`` and reach ``enter`` at least once.

    ``follows`` is 0 where a window does not follow the one before it: a hole ends a run.

    Example: height 0, 8, 16, 9, 2 with enter 15 and leave_share 0.5 gives the run [1, 4).
    """
    stay = np.concatenate(([False], height >= leave_share * enter, [False]))
    link = stay[1:-1] & stay[:-2] & (follows > 0)
    start = np.flatnonzero(stay[1:-1] & ~link)
    stop = np.flatnonzero(stay[1:-1] & ~np.append(link[1:], False)) + 1
    reached = np.concatenate(([0], np.cumsum(height >= enter)))
    hit = reached[stop] > reached[start]
    return [(int(a), int(b)) for a, b in zip(start[hit], stop[hit], strict=True)]


def _runs(w: Windows, height: FloatArray, enter: FloatArray, opt: SpikeOptions) -> list[Run]:
    step = np.diff(w.t1)
    period = float(np.median(step)) if step.size else 0.0
    follows = np.concatenate(([0.0], (step <= _HOLE * period).astype(np.float64)))
    return runs_above(height, enter, opt.leave_share, follows)


def _judge_twice(w: Windows, mix: PhaseMix, floor: float, opt: SpikeOptions) -> tuple[Spike, ...]:
    """What stands out of the phases is unexplained; what only stands out of the neighbourhood has an owner."""
    beyond = _runs(w, w.value - mix.high, np.maximum(floor, opt.phase_factor * mix.sd), opt)
    seen = _runs(w, w.value - w.base, np.full(w.value.size, floor), opt)
    extra = _overlap(seen, beyond)
    owners = _owners(w, seen, mix, extra)
    found = _spikes(w, beyond, mix)
    for spike, owner, has_extra in zip(_spikes(w, seen, mix), owners, extra, strict=True):
        if owner is not None or not has_extra:
            found.append(replace(spike, explained_by=owner))
    return tuple(sorted(found, key=lambda s: (s.start_s, s.end_s)))


def _overlap(runs: Sequence[Run], others: Sequence[Run]) -> list[bool]:
    """Which runs share a window with one of the others (both in order, none overlapping its own kind)."""
    if not runs or not others:
        return [False] * len(runs)
    (first, stop), (other_first, other_stop) = np.array(runs).T, np.array(others).T
    shared: list[bool] = (
        np.searchsorted(other_first, stop) > np.searchsorted(other_stop, first, side="right")
    ).tolist()
    return shared


def _sums(values: FloatArray, runs: Sequence[Run]) -> FloatArray:
    """Sum of the values over each run; values (n,) or (n, k)."""
    padded = np.concatenate([values, np.zeros_like(values[:1])])  # the last run may end at n
    sums: FloatArray = np.add.reduceat(padded, np.array(runs).ravel(), axis=0)[::2]
    return sums


def _owners(w: Windows, runs: Sequence[Run], mix: PhaseMix, extra: Sequence[bool]) -> list[str | None]:
    """The phase whose usual level adds most to each run.

    Where part of a run stands out of its phase (``extra``), the usual levels must still make up half of
    the run's area over the neighbourhood; otherwise the excess is the whole story and the run has no owner.
    """
    if not runs:
        return []
    usual = np.array([-np.inf if r.usual_pct is None else r.usual_pct for r in mix.levels])
    adds = _sums(mix.share * np.maximum(0.0, usual - w.base[:, None]), runs)
    area = _sums(w.value - w.base, runs)
    told = _sums(np.minimum(w.value, mix.high) - w.base, runs)
    best = np.argmax(adds, axis=1)
    owned = (adds[np.arange(len(runs)), best] > 0) & ((told >= area / 2) | ~np.array(extra))
    return [mix.levels[p].phase if yes else None for p, yes in zip(best, owned, strict=True)]


def _spikes(w: Windows, runs: Sequence[Run], mix: PhaseMix | None = None) -> list[Spike]:
    """The runs as spikes, without owners."""
    if not runs:
        return []
    bounds = np.array(runs)
    first, length = bounds[:, 0], np.diff(bounds, axis=1)[:, 0]
    base = _sums(w.base, runs) / length
    peak = _peaks(w.value, bounds)
    excess = _peaks(w.value - mix.high, bounds) if mix is not None else None
    phase = np.argmax(_sums(mix.share, runs), axis=1) if mix is not None else None
    return [
        Spike(
            float(w.t0[first[i]]), float(w.t1[first[i] + length[i] - 1]), float(peak[i]), float(base[i]),
            None if excess is None else float(excess[i]),
            None if phase is None or mix is None else mix.levels[phase[i]].phase, None,
        )
        for i in range(len(runs))
    ]  # fmt: skip


def _peaks(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Highest value of each run."""
    padded = np.append(values, -np.inf)
    return np.asarray(np.maximum.reduceat(padded, bounds.ravel())[::2])


def _count(
    found: Sequence[Spike], levels: Sequence[PhaseLevel], phases: Timeline, w: Windows
) -> tuple[PhaseLevel, ...]:
    """Fill in how many occurrences of each phase show a spike that belongs to it."""
    rows = []
    for p, row in enumerate(levels):
        mine = [s for s in found if s.explained_by == row.phase]
        seg = (phases.codes == p) & (phases.edges[1:] > w.t0[0]) & (phases.edges[:-1] < w.t1[-1])
        starts, ends = np.array([s.start_s for s in mine]), np.array([s.end_s for s in mine])
        before = np.searchsorted(starts, phases.edges[1:][seg])
        gone = np.searchsorted(ends, phases.edges[:-1][seg], side="right")
        rows.append(replace(row, with_spike=int(np.count_nonzero(before > gone)), spikes=len(mine)))
    return tuple(rows)
