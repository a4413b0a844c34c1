"""Check 3: which event schedule explains the memory spikes (methods, 4.3).

For a schedule that fires in some steps, spikes at its fired events are compared with the same place of
the steps where it did not fire (Fisher, one-sided). A schedule that fires each step or on a clock has no
unfired places; its windows are compared with shifted spikes (:mod:`dipstick.analysis.spike_null`).
Holm over all schedules tried. Who can be told from whom: :mod:`dipstick.analysis.spike_suspects`.

What no test here can do: tell a scheduled clock event from an unlogged process of exactly the same period
that happens to run in phase with it. Against such a process (45 s, random phase, 150 runs each) the clock
schedule was called guilty in 4-7 % of runs at W = 1 s and in 12-15 % at W = 5 s, about window / period; at 44,
90 or 22.5 s in none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.spike_mixture import Mixture, fit_mixture
from dipstick.analysis.spike_null import hit_test
from dipstick.analysis.spike_schedules import Kind, Reach, Schedule, hit, measure, touches
from dipstick.analysis.spike_suspects import Suspect, find_suspects, fired_windows, units_of
from dipstick.analysis.spike_verdict import Counts, Evidence, detectable_rate, grade, steps_needed
from dipstick.analysis.stats import Estimate, Reason, excess, fisher_greater, holm, newcombe, wilson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.analysis.spike_schedules import BoolArray
    from dipstick.model import FloatArray, Verdict

_NONE_ABOVE, _ASSIGNED_BELOW = 0.8, 0.2
_BEATS = 3
_HALF, _HALF_LEVEL = 8, 0.99


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Conventions of the test (methods, section 7).

    Attributes:
        window_s: Telemetry window W.
        clock_s: Clock uncertainty between telemetry and log; t = W/2 + clock.
        grace_s: How long after the event's end a spike may still start.
        alpha: Family-wise level.
        draws: Null draws of the shift tests.
        seed: Seed of the shifts.
    """

    window_s: float
    clock_s: float = 0.0
    grace_s: float = 1.0
    alpha: float = 0.05
    draws: int = 999
    seed: int = 0

    @property
    def tolerance_s(self) -> float:
        """t: how far a spike's stamp can be from the instant it began."""
        return self.window_s / 2 + self.clock_s


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The verdict on one schedule.

    Attributes:
        twins: Other schedules that this run cannot tell from it.
        counts: Opportunities and hits.
        chance: Hit rate without the event: the unfired rate, or the shift null's mean.
        effect: Hit rate fired minus chance, Newcombe interval.
        p_value: Fisher, or the larger of the two shifts; NaN if the test could not be run.
        p_adjusted: After Holm.
        p_floor: Smallest p-value this run can give.
        delta_bic: How much the mixture needs the schedule (or its class).
        precision: Share of all spikes inside its fired windows.
        recall: Share of its clean events with a spike; None without events.
        detectable: Smallest fired hit rate seen with power 0.8; None if none would be.
        steps_needed: Steps at which the observed rate (or 0.8) would be seen with power 0.8; None if unknown.
    """

    name: str
    kind: Kind
    verdict: Verdict
    codes: tuple[Reason, ...]
    twins: tuple[str, ...]
    counts: Counts
    chance: float
    effect: Estimate
    p_value: float
    p_adjusted: float
    p_floor: float
    delta_bic: float
    precision: float
    recall: float | None
    detectable: float | None = None
    steps_needed: int | None = None


@dataclass(frozen=True, slots=True)
class SpikeCause:
    """One spike and whom it belongs to.

    ``background`` is the posterior share of "no schedule": above 0.8 it matches none (label ``none``), below
    0.2 it is ``assigned`` to ``schedule``, between it is ``ambiguous`` (``schedule`` is the likeliest).
    """

    onset_s: float
    background: float
    schedule: str | None
    label: str


@dataclass(frozen=True, slots=True)
class SpikeVerdicts:
    """All schedules and all spikes of one series.

    Attributes:
        chance_matches: Matches expected if spikes had nothing to do with the schedules
            (coverage of all fired windows x spikes).
        unmatched: Share of spikes that match no schedule, Wilson interval.
        steps: Steps in the test.
        tolerance_s: t.
    """

    schedules: tuple[ScheduleResult, ...]
    spikes: tuple[SpikeCause, ...]
    chance_matches: float
    unmatched: Estimate
    steps: int
    tolerance_s: float

    @property
    def unexplained(self) -> tuple[SpikeCause, ...]:
        """The spikes worth chasing: they match no schedule."""
        return tuple(s for s in self.spikes if s.label == "none")


@dataclass(frozen=True, slots=True)
class _Tested:
    """One suspect's test, before Holm and the verdict."""

    counts: Counts
    p_value: float
    p_floor: float
    chance: float
    effect: Estimate
    coverage: float
    steady: bool


@dataclass(frozen=True, slots=True)
class _Scene:
    """What every test of a run shares."""

    onset_s: FloatArray
    edge_s: FloatArray
    opt: EventOptions
    suspects: tuple[Suspect, ...]
    rng: np.random.Generator = field(repr=False)

    @property
    def steps(self) -> int:
        return self.edge_s.size - 1

    @property
    def seconds(self) -> float:
        return float(self.edge_s[-1] - self.edge_s[0])


def judge_schedules(
    onset_s: FloatArray,
    edge_s: FloatArray,
    schedules: Sequence[Schedule],
    options: EventOptions,
    anchors: Mapping[str, FloatArray] | None = None,
) -> SpikeVerdicts:
    """Which schedule explains the spikes?

    Args:
        onset_s: Spike onsets (n,), one unit (one GPU, or the union over GPUs), seconds.
        edge_s: Step edges (N + 1,) of that rank, seconds; drop warm-up steps before.
        schedules: The suspects. All of them are in the family that Holm corrects for.
        options: Window, tolerances, level, seed.
        anchors: Places inside the step that optional events may hang on (see ``opportunities``).

    Returns:
        A verdict for each schedule in the order given, and an owner for each spike.
    """
    onset = np.sort(onset_s[(onset_s >= edge_s[0]) & (onset_s < edge_s[-1])])
    reach = Reach(options.tolerance_s, options.tolerance_s + options.grace_s)
    suspects = find_suspects(schedules, edge_s, reach, anchors)
    scene = _Scene(onset, edge_s, options, suspects, np.random.default_rng(options.seed))
    tested = [_test(scene, s) for s in suspects]
    adjusted = holm([t.p_value for t in tested])
    units = units_of(suspects)
    windows = [fired_windows(suspects, unit) for unit in units]
    mixture = fit_mixture(onset, windows, scene.seconds, scene.steps)
    done: dict[int, ScheduleResult] = {}
    for i in sorted(range(len(suspects)), key=lambda k: len(suspects[k].shadows)):  # the shadowed ones last
        unit = next(u for u, members in enumerate(units) if i in members)
        bic = (float(mixture.delta_bic[unit]), float(mixture.alone_bic[unit]))
        done[i] = _result(scene, i, tested[i], float(adjusted[i]), bic, done)
    causes = _causes(onset, mixture, ["+".join(suspects[m].name for m in unit) for unit in units])
    covered = measure(*(np.concatenate(side) for side in zip(*windows, strict=True))) if windows else 0.0
    unmatched = wilson(sum(c.label == "none" for c in causes), len(causes))
    results = tuple(done[i] for i in range(len(suspects)))
    chance = covered / scene.seconds * onset.size
    return SpikeVerdicts(results, causes, chance, unmatched, scene.steps, options.tolerance_s)


def _test(scene: _Scene, suspect: Suspect) -> _Tested:
    """Hits, rates and the p-value of one suspect."""
    opp = suspect.opp
    hits = hit(scene.onset_s, opp.lo_s, opp.hi_s)
    fired, unfired = opp.fired & opp.clean, ~opp.fired & opp.clean
    n, m = int(fired.sum()), int(unfired.sum())
    a, b = int(np.sum(hits & fired)), int(np.sum(hits & unfired))
    counts = Counts(n, m, a, b, int(np.sum(opp.fired & ~opp.clean)))
    covered = measure(opp.lo_s[opp.fired], opp.hi_s[opp.fired]) / scene.seconds
    steady = same_in_both_halves(hits[fired])
    if suspect.kind == "event":
        p = fisher_greater(a, n, b, m) if n and m else float("nan")
        floor = fisher_greater(n, n, 0, m) if n and m else 1.0
        return _Tested(counts, p, floor, b / m if m else 0.0, newcombe(a, n, b, m), covered, steady)
    opt = scene.opt
    edges = off_beat(scene.edge_s, opp.lo_s) if suspect.kind == "clock" else scene.edge_s
    inside = fired & (opp.hi_s <= edges[-1]) if suspect.kind == "clock" else fired
    windows = (opp.lo_s[inside], opp.hi_s[inside])
    shift = hit_test(scene.onset_s, windows, edges, scene.rng, opt.draws, 3 * opt.tolerance_s)
    p = shift.p_value if n else float("nan")
    floor = _shift_floor(scene, suspect)
    return _Tested(counts, p, floor, shift.chance, excess(a, n, shift.chance), covered, steady)


def same_in_both_halves(hits: BoolArray) -> bool:
    """Do the first and the second half of the events differ in their hit rates, at the 1 % level?

    True below 8 events a half. The literal rule ("the 95 % interval of one half excludes the other's
    estimate") fires in one of six perfectly steady runs.
    """
    cut = hits.size // 2
    if cut < _HALF:
        return True
    gap = newcombe(int(hits[:cut].sum()), cut, int(hits[cut:].sum()), hits.size - cut, _HALF_LEVEL)
    return gap.low <= 0 <= gap.high


def off_beat(edge_s: FloatArray, firing_s: FloatArray) -> FloatArray:
    """Step edges cut so that the run is a whole number of clock periods and a half.

    On a circle of a whole number of periods a shift by one period is no shift at all, and the smallest
    p-value would be window / period whatever the evidence. The cut depends on the schedule only, so the
    test stays valid; what it can't see is a process of exactly the same period (see the module's top).

    Example: a clock of 45 s in steps up to 6,000 s: cut at 5,962.5 = 132.5 periods.
    """
    if firing_s.size < _BEATS:
        return edge_s
    period = float(np.median(np.diff(firing_s)))
    end = edge_s[-1] - (edge_s[-1] - edge_s[0] - period / 2) % period
    return np.append(edge_s[edge_s < end], end)


def _shift_floor(scene: _Scene, suspect: Suspect) -> float:
    """Smallest p-value a shift test can give: one window in the run, or in one step if steps are periodic."""
    opp = suspect.opp
    if opp.lo_s.size == 0:
        return 1.0
    width = float(np.mean(opp.hi_s - opp.lo_s))
    length = np.diff(scene.edge_s)
    room = scene.seconds
    if suspect.kind == "step" and float(np.std(length)) * np.sqrt(scene.steps) < width:
        room = float(length.mean())
    return max(width / room, 1.0 / (scene.opt.draws + 1))


def _result(
    scene: _Scene,
    i: int,
    t: _Tested,
    adjusted: float,
    bic: tuple[float, float],
    done: Mapping[int, ScheduleResult],
) -> ScheduleResult:
    suspect, opp = scene.suspects[i], scene.suspects[i].opp
    twins = tuple(scene.suspects[j].name for j in (*suspect.twins, *suspect.shadows) if j != i)
    evidence = Evidence(
        kind=suspect.kind, counts=t.counts, p_adjusted=adjusted, effect=t.effect, p_floor=t.p_floor,
        coverage=t.coverage, delta_bic=bic[0], alone_bic=bic[1], chance=t.chance, alone=not twins,
        taken=any(done[j].verdict in {"yes", "partially"} for j in suspect.shadows if j in done),
        alpha=scene.opt.alpha, level=scene.opt.alpha / len(scene.suspects), steady=t.steady,
    )  # fmt: skip
    verdict, codes = grade(evidence)
    inside = touches(scene.onset_s, scene.onset_s, opp.lo_s[opp.fired], opp.hi_s[opp.fired])
    return ScheduleResult(
        suspect.name, suspect.kind, verdict, codes, twins, t.counts, t.chance, t.effect, t.p_value, adjusted,
        t.p_floor, bic[0], float(np.mean(inside)) if inside.size else 0.0, t.counts.recall,
        None if verdict == "yes" else detectable_rate(evidence),
        None if verdict == "yes" else steps_needed(evidence, scene.steps),
    )  # fmt: skip


def _causes(onset: FloatArray, mixture: Mixture, names: Sequence[str]) -> tuple[SpikeCause, ...]:
    """Label each spike by its posterior share of the background."""
    out = []
    for t, back, owner in zip(onset, mixture.background, mixture.owner, strict=True):
        label = "none" if back > _NONE_ABOVE else "assigned" if back < _ASSIGNED_BELOW else "ambiguous"
        best = names[int(np.argmax(owner))] if owner.size and owner.max() > 0 and label != "none" else None
        out.append(SpikeCause(float(t), float(back), best, label))
    return tuple(out)
