"""Check 3: which named event explains the spikes of memory-access time, and which spikes match none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.design import Timeline
from dipstick.analysis.spike_cadence import cadence
from dipstick.analysis.spike_events import EventOptions, SpikeVerdicts, judge_schedules
from dipstick.analysis.spike_schedules import Schedule
from dipstick.analysis.spikes import Spike, SpikeOptions, SpikeSet, find_spikes, union_onsets
from dipstick.analysis.timeline import clip
from dipstick.judgement import Check, Reason, Receipt, Verdict
from dipstick.verdicts import spikes_exposed
from dipstick.verdicts.algebra import unconfirmed
from dipstick.verdicts.bill import gpu_columns
from dipstick.verdicts.seen_running import seen_running
from dipstick.verdicts.sql import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dipstick.analysis.pipeline import Gpu
    from dipstick.analysis.spike_events import ScheduleResult
    from dipstick.analysis.spike_exposure import ExposureResult
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import FloatArray
    from dipstick.model import Verdict as Word
    from dipstick.verdicts.evidence import Evidence

Number = TypeVar("Number", int, float)

CHASE = "put a span or an event around what runs at the listed times, and record again"
QUESTION = "Which named event explains each spike of memory-access time?"
BASELINE_STEPS = 5
LEAST_BASELINE_S = 60.0
COARSE_S = 3.0
EACH_STEP = "weight_sync"
FOUND = frozenset({"yes", "partially"})
FEWEST_SAMPLES = 20
"""Fewer windows say nothing about what is usual."""
SHOWN = 200
"""Spikes listed in the JSON; the rest are counted."""


def check(evidence: Evidence) -> Check:
    """Judge the spikes: ``yes`` if a phase or an event accounts for every one, ``partially`` if for most."""
    sets = spikes_by_gpu(evidence)
    if not sets:
        verdict = unconfirmed(
            Reason.MISSING_SIGNAL,
            "memory-access time (utilization.memory) was not recorded",
            "record utilization.memory beside utilization.gpu",
        )
        return Check(
            "memory_spikes",
            QUESTION,
            verdict,
            facts={"spikes": None, "candidates": None, "unexplained": None},
        )
    apart_s = max(max(gpu.signals.period_ns, gpu.signals.window_ns) for gpu, _ in sets) / 1e9
    coarse = apart_s > COARSE_S
    judged = None if coarse else schedules(evidence, sets)
    owners = _owners(evidence, sets, judged)
    facts, receipts = _facts(evidence, sets, judged, owners), tuple(_receipts(evidence, sets))
    if not coarse:
        return Check("memory_spikes", QUESTION, _verdict(sets, judged, owners), receipts, facts)
    results = _exposed(evidence, sets)
    facts |= {"candidates": spikes_exposed.facts(results) if results else None}
    return Check("memory_spikes", QUESTION, spikes_exposed.verdict_of(results, apart_s), receipts, facts)


def _exposed(evidence: Evidence, sets: Sequence[tuple[Gpu, SpikeSet]]) -> tuple[ExposureResult, ...]:
    """The events against samples that are too coarse to show single spikes."""
    edges = _edges(evidence)
    if edges is None:
        return ()
    ranks = {t.rank: t for t in evidence.findings.timelines}
    seen = [
        (gpu.signals.mem_util.clip(*evidence.close_ns), None if gpu.rank is None else ranks.get(gpu.rank))
        for gpu, _ in sets
    ]
    return spikes_exposed.exposed(seen, edges, list(_schedules(evidence, edges)))


def spikes_by_gpu(evidence: Evidence) -> list[tuple[Gpu, SpikeSet]]:
    """Spikes of every used GPU with known memory-access time, judged against its rank's phases."""
    ranks = {t.rank: t for t in evidence.findings.timelines}
    found = []
    for gpu in evidence.findings.gpus:
        series = gpu.signals.mem_util.clip(*evidence.close_ns)
        if gpu.used and not np.isnan(series.value).all():
            timeline = _timeline(ranks[gpu.rank], evidence.close_ns) if gpu.rank in ranks else None
            options = SpikeOptions(baseline_span_s=_span(evidence))
            found.append(
                (gpu, find_spikes(series.t0 / 1e9, series.t1 / 1e9, series.value, timeline, options))
            )
    return found


def _span(evidence: Evidence) -> float:
    steps = evidence.steps
    typical = float(np.median(steps.loop.measured)) if steps else 0.0
    return max(LEAST_BASELINE_S, BASELINE_STEPS * typical)


def _timeline(rank: RankTimeline, window: tuple[int, int]) -> Timeline:
    edges, code = clip(rank.edges, rank.code, window)
    return Timeline(edges / 1e9, code.astype(np.int64), phases.PHASES)


def schedules(evidence: Evidence, sets: Sequence[tuple[Gpu, SpikeSet]]) -> SpikeVerdicts | None:
    """The event schedules against the spikes that no phase accounts for; None without steps."""
    steps, edges = evidence.steps, _edges(evidence)
    if steps is None or edges is None:
        return None
    window = max(gpu.signals.window_ns for gpu, _ in sets) / 1e9
    options = EventOptions(window_s=window, clock_s=window / 2)
    onsets = union_onsets([found for _, found in sets], options.tolerance_s)
    anchors = dict(zip(steps.labels, steps.exit_s[evidence.close].T, strict=True))
    return judge_schedules(onsets, edges, list(_schedules(evidence, edges)), options, anchors)


def _edges(evidence: Evidence) -> FloatArray | None:
    """Edges (N + 1,) of the steps looked at, seconds; None with fewer than two: one has no second opportunity."""
    steps = evidence.steps
    if steps is None or len(evidence.close) < 2:  # noqa: PLR2004 - as said
        return None
    return np.append(steps.start_s[evidence.close], steps.end_s[evidence.close[-1]])


def _schedules(evidence: Evidence, edges: FloatArray) -> Iterator[Schedule]:
    """Every kind of recorded event that happens while the steps run; ranks' copies of one event are merged."""
    events = evidence.recording.table("events")
    inside = events.filter(pl.col("t0_ns").is_between(int(edges[0] * 1e9), int(edges[-1] * 1e9)))
    for name in inside["name"].drop_nulls().cast(pl.String).unique().sort():
        rows = inside.filter(pl.col("name").cast(pl.String) == name).sort("t0_ns")
        start, end = rows["t0_ns"].to_numpy() / 1e9, rows["t1_ns"].fill_null(rows["t0_ns"]).to_numpy() / 1e9
        yield Schedule(name, *_merged(start, np.maximum(start, end)))


def _merged(start: FloatArray, end: FloatArray, apart_s: float = 0.5) -> tuple[FloatArray, FloatArray]:
    """Events closer than ``apart_s`` are one: each rank reports the same checkpoint."""
    reach = np.maximum.accumulate(end)
    fresh = np.concatenate([[True], start[1:] > reach[:-1] + apart_s])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(start) - 1)
    return start[fresh], reach[last]


def _owners(
    evidence: Evidence, sets: Sequence[tuple[Gpu, SpikeSet]], judged: SpikeVerdicts | None
) -> dict[tuple[int, int], str | None]:
    """(GPU position, spike position) -> the phase, or the accepted schedule whose event it touches."""
    accepted = {s.name: _class_of(s) for s in judged.schedules if s.verdict in FOUND} if judged else {}
    start, end = (t / 1e9 for t in evidence.close_ns)
    fired = [s for s in _schedules(evidence, np.asarray([start, end])) if s.name in accepted]
    owners: dict[tuple[int, int], str | None] = {}
    for g, (_, found) in enumerate(sets):
        for i, spike in enumerate(found.spikes):
            touched = [accepted[s.name] for s in fired if _touches(s, spike, found.window_s)]
            owners[g, i] = spike.explained_by or (touched[0] if touched else _anatomy(spike, found))
    return owners


def _anatomy(spike: Spike, found: SpikeSet) -> str | None:
    """The weight sync, for a spike in it that is no higher than syncs usually read.

    It runs in each step, like generation. As a suspect it must make spikes to be accepted; where it usually
    does not stand out, one that does (in a quieter neighbourhood, say at the run's edge) is still a sync.
    """
    level = next((row.level_pct for row in found.levels if row.phase == spike.phase == EACH_STEP), None)
    usual = level is not None and spike.peak_pct <= level + found.options.min_height_pct
    return spike.phase if usual else None


def _class_of(result: ScheduleResult) -> str:
    """The event, with the twins that this run cannot tell from it: naming one of them would be a guess."""
    return " or ".join(sorted({result.name, *result.twins}))


def _touches(schedule: Schedule, spike: Spike, slack_s: float) -> bool:
    """Whether any event of the schedule overlaps the spike, give or take one telemetry window."""
    hit = (schedule.start_s <= spike.end_s + slack_s) & (schedule.end_s >= spike.start_s - slack_s)
    return bool(hit.any())


def _verdict(
    sets: Sequence[tuple[Gpu, SpikeSet]],
    judged: SpikeVerdicts | None,
    owners: dict[tuple[int, int], str | None],
) -> Verdict:
    count, samples = len(owners), sum(found.samples for _, found in sets)
    if samples < FEWEST_SAMPLES:
        return unconfirmed(Reason.LOW_N, f"{samples} samples of memory-access time don't tell what is usual")
    if not count:
        because = f"memory-access time has no spikes to explain in {samples} samples"
        return Verdict("yes", because, effect=1.0)
    named = Counter(owner for owner in owners.values() if owner)
    share = sum(named.values()) / count
    who = ", ".join(f"{n} belong to {name}" for name, n in named.most_common(3))
    rest = count - sum(named.values())
    because = (
        f"{count} {'spike' if count == 1 else 'spikes'} on {len(sets)} {'GPU' if len(sets) == 1 else 'GPUs'}: {who or 'none explained'}"
        + (f"; {rest} match nothing" if rest else "")
    )
    if judged is None and rest:
        return unconfirmed(Reason.MISSING_SIGNAL, f"{because}; without steps no schedule can be tested")
    word: Word = "yes" if not rest else "partially" if share >= 0.5 else "no"  # noqa: PLR2004 - most of them
    open_ = [s for s in judged.schedules if s.verdict == "unconfirmed"] if judged else []
    if word == "no" and open_:
        because += "; some schedules can't be judged yet"
        word = "unconfirmed"
    return Verdict(
        word,
        because,
        effect=share,
        reason=Reason.LOW_N if word == "unconfirmed" else None,
        min_detectable=_least(s.detectable for s in open_) if word != "yes" else None,
        steps_needed=_least(s.steps_needed for s in open_) if word == "unconfirmed" else None,
        experiment=CHASE if word in {"partially", "no"} else "",
    )


def _least(values: Iterable[Number | None]) -> Number | None:
    """The smallest of what is known."""
    return min((value for value in values if value is not None), default=None)


def _facts(
    evidence: Evidence,
    sets: Sequence[tuple[Gpu, SpikeSet]],
    judged: SpikeVerdicts | None,
    owners: dict[tuple[int, int], str | None],
) -> dict[str, Any]:
    rows = [
        _spike(gpu, spike, owners[g, i])
        for g, (gpu, found) in enumerate(sets)
        for i, spike in enumerate(found.spikes)
    ]
    chase = [row for row in rows if row["explained_by"] is None]
    beside = seen_running(
        evidence.recording, [(row["host"], row["gpu"], row["start_s"], row["end_s"]) for row in chase]
    )
    chase = [row | {"running": running} for row, running in zip(chase, beside, strict=True)]
    beat = cadence(
        np.asarray([row["start_s"] for row in chase]),
        (evidence.close_ns[1] - evidence.close_ns[0]) / 1e9,
        float(np.median(evidence.steps.loop.measured)) if evidence.steps else None,
    )
    return {
        "looked_at_s": [t / 1e9 for t in evidence.close_ns],
        "spikes": rows[:SHOWN],
        "spikes_in_all": len(rows),
        "candidates": [_candidate(s) for s in judged.schedules] if judged else None,
        "unexplained": len(chase),
        "unexplained_spikes": chase[:SHOWN],
        "levels": [
            {
                "host": gpu.signals.host,
                "gpu": gpu.signals.gpu,
                "phase": level.phase,
                "usual_pct": level.level_pct,
                "spikes": level.spikes,
            }
            for gpu, found in sets
            for level in found.levels
            if level.windows
        ],
        "cadence": {"period_s": beat.period_s, "p": beat.p_value, "exploratory": True},
    }


def _spike(gpu: Gpu, spike: Spike, owner: str | None) -> dict[str, Any]:
    return {
        "host": gpu.signals.host, "gpu": gpu.signals.gpu, "start_s": spike.start_s, "end_s": spike.end_s, "peak_pct": spike.peak_pct,
        "phase": spike.phase, "explained_by": owner,
    }  # fmt: skip


def _candidate(result: ScheduleResult) -> dict[str, Any]:
    known = bool(np.isfinite(result.p_adjusted))
    return {
        "event": result.name,
        "verdict": result.verdict,
        "reason": result.codes[0] if result.codes else None,
        "p_adjusted": result.p_adjusted if known else None,
        "precision": result.precision,
        "recall": result.counts.recall,
        "fired": result.counts.fired,
        "effect": result.effect.value,
        "interval": [result.effect.low, result.effect.high],
        "twins": list(result.twins),
        "detectable": result.detectable,
        "steps_needed": result.steps_needed,
    }


def _receipts(evidence: Evidence, sets: Sequence[tuple[Gpu, SpikeSet]]) -> Iterator[Receipt]:
    for gpu, found in sets:
        for spike in sorted(found.spikes, key=lambda s: (s.explained_by is not None, -s.peak_pct))[:5]:
            yield Receipt(
                kind="interval",
                text=f"GPU {gpu.signals.gpu}: {spike.peak_pct:z.0f} % for {spike.end_s - spike.start_s:z.1f} s in {spike.phase or 'no phase'}, belongs to {spike.explained_by or 'nothing known'}",
                gpu=gpu.signals.gpu,
                rank=gpu.rank,
                t0_s=spike.start_s,
                t1_s=spike.end_s,
                value=spike.peak_pct,
                unit="%",
                query=select(
                    "MAX(mem_util_pct)",
                    "samples",
                    f"t1_s > {spike.start_s!r}",
                    f"t0_s < {spike.end_s!r}",
                    **gpu_columns(evidence.findings, gpu),
                ),
            )
