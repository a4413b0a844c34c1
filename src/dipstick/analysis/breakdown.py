"""Seconds per phase and rank that add up to the window, with the GPU's states inside each phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.intervals import lay
from dipstick.analysis.waits import critical_path, wait_rows
from dipstick.model import HOLLOW_STATES, STATES, Breakdown, PhasePart, PhaseRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from dipstick.analysis.spans import ResolvedLane
    from dipstick.analysis.states import StateSeries
    from dipstick.analysis.telemetry import Series
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.analysis.waits import Meetings
    from dipstick.model import FloatArray, IntArray

KINDS = len(phases.PHASES)
NOT_A_FINDING = ("unattributed", "startup", "teardown")
"""Never named as the longest phase or the one paid for."""


@dataclass(frozen=True, slots=True)
class GpuOfRank:
    """One GPU that a rank runs on: its states and its utilization."""

    states: StateSeries
    util: Series


@dataclass(frozen=True, slots=True)
class _Load:
    """Sums over a rank's GPUs by phase: GPU-seconds by state (S, P), utilization x s, seconds seen."""

    states: FloatArray
    util: FloatArray
    seen: FloatArray


def break_down(
    timelines: Sequence[RankTimeline], meetings: Sequence[Meetings], gpus: Mapping[int, Sequence[GpuOfRank]]
) -> Breakdown:
    """Where the window's seconds went, per rank and over all ranks.

    Args:
        timelines: Ranks with their waits painted in.
        meetings: The barriers those waits come from.
        gpus: The GPUs of each rank; a rank without telemetry is left out.
    """
    rows: list[PhaseRow] = []
    pooled: dict[str, list[IntArray]] = {}

    def of_rank(timeline: RankTimeline) -> tuple[list[PhaseRow], list[IntArray]]:
        durations = _durations(timeline, meetings)
        return _rank_rows(timeline, meetings, durations, gpus.get(timeline.rank, ())), durations

    for mine, durations in abreast(of_rank, timelines):
        rows += mine
        for code, lengths in enumerate(durations):
            pooled.setdefault(phases.PHASES[code], []).append(lengths)
    totals = _totals(rows, {phase: np.concatenate(lengths) for phase, lengths in pooled.items()})
    path = critical_path(timelines, meetings)
    paid = {row.phase: _gpu_seconds(rows, row.phase, gpus) for row in totals}
    named = {phases.PHASES[code]: int(ns) / 1e9 for code, ns in enumerate(path) if ns}
    ordered = tuple(sorted(named.items(), key=lambda item: -item[1]))
    return Breakdown(tuple(rows), totals, wait_rows(meetings), _top(named), _top(paid), ordered)


def _gpu_seconds(rows: Sequence[PhaseRow], phase: str, gpus: Mapping[int, Sequence[GpuOfRank]]) -> float:
    """Seconds times GPUs; a rank without known GPUs counts as one."""
    mine = (row for row in rows if row.phase == phase and row.rank is not None)
    return sum(row.seconds * max(len(gpus.get(row.rank or 0, ())), 1) for row in mine)


def _top(seconds: Mapping[str, float]) -> str | None:
    named = {phase: value for phase, value in seconds.items() if phase not in NOT_A_FINDING and value > 0}
    return max(named, key=lambda phase: named[phase]) if named else None


def _rank_rows(
    timeline: RankTimeline,
    meetings: Sequence[Meetings],
    durations: Sequence[IntArray],
    gpus: Sequence[GpuOfRank],
) -> list[PhaseRow]:
    ns = timeline.seconds_ns()
    load = _load(timeline, gpus)
    window = int(timeline.edges[-1] - timeline.edges[0])
    parts = _parts(timeline, meetings)
    return [
        _row(timeline.rank, code, int(ns[code]), window, durations[code], load, parts)
        for code in range(KINDS)
        if ns[code] or len(durations[code])
    ]


def _row(
    rank: int,
    code: int,
    ns: int,
    window: int,
    durations: IntArray,
    load: _Load | None,
    parts: Mapping[int, list[PhasePart]],
) -> PhaseRow:
    median, p90 = _typical_s(durations)
    states = None  # where no sample fell into the phase: not known, not zero
    if load is not None and load.states[:, code].sum() > 0:
        states = {name: float(load.states[i, code]) for i, name in enumerate(STATES)}
    return PhaseRow(
        rank=rank,
        phase=phases.PHASES[code],
        seconds=ns / 1e9,
        share=ns / window if window else 0.0,
        count=len(durations),
        median_s=median,
        p90_s=p90,
        util_mean_pct=_ratio(load, code),
        states=states,
        hollow_s=None if states is None else sum(states[s] for s in HOLLOW_STATES),
        parts=tuple(parts.get(code, ())),
    )


def _typical_s(durations: IntArray) -> tuple[float | None, float | None]:
    """Median and 90th percentile, seconds."""
    if not len(durations):
        return None, None
    median, p90 = np.percentile(durations, [50, 90]).tolist()
    return median / 1e9, p90 / 1e9


def _ratio(load: _Load | None, code: int) -> float | None:
    if load is None or load.seen[code] <= 0:
        return None
    return float(load.util[code] / load.seen[code])


def _load(timeline: RankTimeline, gpus: Sequence[GpuOfRank]) -> _Load | None:
    """What the rank's GPUs did in each phase; None without telemetry."""
    if not gpus:
        return None
    code = timeline.code
    states = np.zeros((len(STATES), KINDS))
    util, seen = np.zeros(KINDS), np.zeros(KINDS)
    for gpu in gpus:
        for state, seconds in gpu.states.seconds_between(timeline.edges):
            states[state] += np.bincount(code, seconds, KINDS)
        total, covered = _utilization(gpu.util, timeline.edges)
        util += np.bincount(code, total, KINDS)
        seen += np.bincount(code, covered, KINDS)
    return _Load(states, util, seen)


def _utilization(util: Series, times: IntArray) -> tuple[FloatArray, FloatArray]:
    """Integral of utilization (percent x s) and covered seconds between neighbouring instants."""
    known = util.known()
    covered, total = lay(known.t0, known.t1).sums(known.value, times[:-1], times[1:])
    return total / 1e9, covered / 1e9


def _durations(timeline: RankTimeline, meetings: Sequence[Meetings]) -> list[IntArray]:
    """Per phase, how long each occurrence took (ns): spans that open the phase, waits, or bare stretches."""
    window = (int(timeline.edges[0]), int(timeline.edges[-1]))
    found = opened(timeline.main, window)
    for meeting in meetings:
        if timeline.rank in meeting.ranks:
            waited = meeting.waits_ns()[:, meeting.ranks.index(timeline.rank)]
            code = phases.CODE[meeting.barrier.wait_phase]
            found[code] = np.concatenate([found[code], waited[waited > 0]])
    for name in NOT_A_FINDING:
        found[phases.CODE[name]] = _stretches(timeline, phases.CODE[name])
    return found


def opened(resolved: ResolvedLane, window: tuple[int, int]) -> list[IntArray]:
    """By phase, durations (ns, inside the window) of the spans that open it: nested ones count once."""
    lane = resolved.lane
    at = np.flatnonzero(resolved.opens_phase & (lane.t1 > window[0]) & (lane.t0 < window[1]))
    lengths = np.minimum(lane.t1[at], window[1]) - np.maximum(lane.t0[at], window[0])
    code = resolved.phase[at]
    return [lengths[code == wanted] for wanted in range(KINDS)]


def _stretches(timeline: RankTimeline, code: int) -> IntArray:
    mask = timeline.code == code
    padded = np.concatenate([[False], mask, [False]])
    change = np.flatnonzero(padded[1:] != padded[:-1])
    lengths: IntArray = timeline.edges[change[1::2]] - timeline.edges[change[0::2]]
    return lengths


def _parts(timeline: RankTimeline, meetings: Sequence[Meetings]) -> dict[int, list[PhasePart]]:
    """Named shares of a phase: the framework's own (reward: parse, score) and the waits by barrier and cause."""
    parts: dict[int, list[PhasePart]] = {}
    lane, window = timeline.main.lane, timeline.edges[[0, -1]]
    for rule in (rule for rule in phases.TRL_RULES if rule.part):
        mask = _part_of(timeline.main, rule) & (lane.t1 > window[0]) & (lane.t0 < window[1])
        if mask.any():
            ns = np.minimum(lane.t1[mask], window[1]) - np.maximum(lane.t0[mask], window[0])
            part = PhasePart(rule.part, int(ns.sum()) / 1e9, int(mask.sum()))
            parts.setdefault(phases.CODE[rule.phase], []).append(part)
    for row in wait_rows(meetings):
        if row.rank == timeline.rank:
            name = f"at {row.barrier}, peer in {row.because}"
            parts.setdefault(phases.CODE[row.phase], []).append(PhasePart(name, row.seconds, row.count))
    return parts


def _part_of(resolved: ResolvedLane, rule: phases.Rule) -> npt.NDArray[np.bool_]:
    """Spans of the rule's name that mean its phase where they stand (a ``gather`` elsewhere is no reward)."""
    mask: npt.NDArray[np.bool_] = resolved.lane.called(rule.name) & (
        resolved.phase == phases.CODE[rule.phase]
    )
    return mask


def _totals(rows: Sequence[PhaseRow], pooled: Mapping[str, IntArray]) -> tuple[PhaseRow, ...]:
    """Rows over all ranks: seconds summed, in the order of the most seconds; ``unattributed`` last."""
    names = {row.phase: [r for r in rows if r.phase == row.phase] for row in rows}
    everything = sum(row.seconds for row in rows)
    totals = [_total(same, everything, pooled[name]) for name, same in names.items()]
    return tuple(sorted(totals, key=lambda row: (row.phase == "unattributed", -row.seconds)))


def _total(same: Sequence[PhaseRow], everything: float, durations: IntArray) -> PhaseRow:
    seconds = sum(row.seconds for row in same)
    measured = [row for row in same if row.util_mean_pct is not None and row.seconds > 0]
    weight = sum(row.seconds for row in measured)
    states = [row.states for row in same if row.states is not None]
    median, p90 = _typical_s(durations)
    return PhaseRow(
        rank=None,
        phase=same[0].phase,
        seconds=seconds,
        share=seconds / everything if everything else 0.0,
        count=sum(row.count for row in same),
        median_s=median,
        p90_s=p90,
        util_mean_pct=sum((r.util_mean_pct or 0.0) * r.seconds for r in measured) / weight
        if weight
        else None,
        states={name: sum(s[name] for s in states) for name in STATES} if states else None,
        hollow_s=sum(r.hollow_s for r in same if r.hollow_s is not None) if states else None,
    )
