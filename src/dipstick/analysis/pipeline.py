"""All analyses of the spine over one recording, in order; pure, and the only place that knows the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from dipstick import phases
from dipstick.analysis.abreast import abreast
from dipstick.analysis.breakdown import GpuOfRank, break_down
from dipstick.analysis.collectives import add_collectives, device_waits, match
from dipstick.analysis.job_dips import find_all
from dipstick.analysis.kernel_collectives import split, told
from dipstick.analysis.restarts import join_restarts
from dipstick.analysis.spans import of_ranks, read_lanes
from dipstick.analysis.states import Context, StateSeries, classify
from dipstick.analysis.stragglers import find_stragglers
from dipstick.analysis.telemetry import Signals, read_signals
from dipstick.analysis.timeline import RankTimeline, build
from dipstick.analysis.waits import Meetings, meet, paint_waits
from dipstick.model import STATES, Breakdown, Dip, GpuStates, Note, Stragglers

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from dipstick.analysis.collectives import DeviceWait
    from dipstick.analysis.kernel_collectives import Split
    from dipstick.model import IntArray
    from dipstick.recording.reader import Recording

    GpuKey = tuple[str, int]

COPY_PHASES = ("weight_sync", "checkpoint", "transfer")
COPY_EVENTS = ("weight_sync", "checkpoint", "sleep", "wake")
DRIVER = "driver"
"""Role of a process whose phases are the whole job's: it waits for the slowest worker in each."""
USED_MEAN_PCT = 1.0
DEVICE_WAIT_S = 0.05
"""Less is not worth a note; shown with one decimal."""
NOT_UNDERSTOOD = ("MIG", "AMD", "Instinct", "Radeon")


class Tables(Protocol):
    """What has tables as the schema names them."""

    def table(self, name: str) -> pl.DataFrame:
        """One of them, times in ns since the recording's start."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU with everything known about it."""

    signals: Signals
    states: StateSeries
    rank: int | None
    used: bool

    @property
    def key(self) -> GpuKey:
        """Host and index."""
        return self.signals.host, self.signals.gpu


@dataclass(frozen=True, slots=True)
class Findings:
    """What the analyses found; the verdicts make a report of it."""

    window: tuple[int, int]
    timelines: tuple[RankTimeline, ...]
    meetings: tuple[Meetings, ...]
    gpus: tuple[Gpu, ...]
    states: tuple[GpuStates, ...]
    states_all: tuple[GpuStates, ...]
    breakdown: Breakdown | None
    dips: tuple[Dip, ...]
    job_dips: tuple[Dip, ...]
    stragglers: Stragglers | None
    notes: tuple[Note, ...]


def analyse(recording: Recording) -> Findings:
    """Run every analysis over the recording. Missing tables make missing parts, never zeros."""
    whole = (0, recording.end_unix_ns - recording.start_unix_ns)
    processes = recording.table("processes")
    lanes, homeless = read_lanes(recording.table("spans"), processes)
    lanes, restarts = join_restarts(lanes)
    bare, window = build(lanes, whole)
    meetings = meet(bare)
    collectives = recording.table("collectives")
    calls, kernels = match(bare, collectives, processes), split(collectives, processes)
    timelines, meetings = add_collectives(paint_waits(bare, meetings), meetings, calls)
    gpus, notes = find_gpus(recording, processes, timelines, window, kernels)
    of_rank = _of_rank(gpus)
    found = break_down(timelines, meetings, of_rank) if timelines else None
    by_rank = {t.rank: t for t in timelines}
    used = [
        (gpu.signals, gpu.states, None if gpu.rank is None else by_rank[gpu.rank]) for gpu in gpus if gpu.used
    ]
    per_gpu, job = find_all(used, timelines)
    return Findings(
        window=window,
        timelines=tuple(timelines),
        meetings=tuple(meetings),
        gpus=tuple(gpus),
        states=tuple(abreast(lambda gpu: _states(gpu, window), gpus)),
        states_all=tuple(abreast(lambda gpu: _states(gpu, whole), gpus)),
        breakdown=found,
        dips=tuple(per_gpu),
        job_dips=tuple(job),
        stragglers=find_stragglers(timelines, meetings, recording.table("jobs")) if timelines else None,
        notes=(
            *recording.notes,
            *notes,
            *restarts,
            *_span_notes(timelines, homeless, processes),
            *_device_notes(device_waits(calls)),
            *(Note("info", text) for text in told(kernels)),
        ),
    )


def find_gpus(
    recording: Tables,
    processes: pl.DataFrame,
    timelines: Sequence[RankTimeline],
    window: tuple[int, int],
    kernels: Sequence[Split] = (),
) -> tuple[list[Gpu], list[Note]]:
    """Signals and states of every GPU, and which rank it belongs to.

    Args:
        recording: A recording, or a part of one.
        processes: Who runs where.
        timelines: Ranks with their waits painted in.
        window: Where idle power is learned.
        kernels: What is known of the collectives' kernels.
    """
    by_rank, ran = {one.rank: one for one in kernels}, _ran(processes)
    signals = read_signals(recording.table("gpu"), recording.table("gpu_counters"))
    if timelines and DRIVER in processes["role"].cast(pl.String).to_list():
        owner, notes = _of_driver([(s.host, s.gpu) for s in signals if _is_used(s)], timelines)
    else:
        owner, notes = _owners([(s.host, s.gpu) for s in signals], processes, timelines)
    names = {
        (host or "", gpu): name or ""
        for host, gpu, name in recording.table("gpus").select("host", "gpu", "name").iter_rows()
        if name is not None  # of several files that show a GPU, one may know its name
    }
    events = of_ranks(recording.table("events"), processes)  # a worker's save is not its rank's

    def state(signal: Signals) -> Gpu:
        rank = owner.get((signal.host, signal.gpu))
        mine = [t for t in timelines if t.rank == rank]
        copies = _joined(_pieces(mine, COPY_PHASES), _copy_events(events, rank))
        device = by_rank.get(ran.get((signal.host, signal.gpu), -1))
        split_up = {} if device is None else {"device_waits": device.waits, "transfers": device.transfers}
        context = Context(_pieces(mine, phases.WAIT_PHASES), copies, window, **split_up)
        known = not any(word in names.get((signal.host, signal.gpu), "") for word in NOT_UNDERSTOOD)
        seen = classify(signal, context, understood=known)
        return Gpu(signal, seen, rank, rank is not None or _is_used(signal))

    return abreast(state, signals), notes


def _is_used(signals: Signals) -> bool:
    """A GPU is used if it averages 1 % or more; one without any known utilization may be."""
    return not signals.util.mean() < USED_MEAN_PCT


def _of_driver(used: list[GpuKey], timelines: Sequence[RankTimeline]) -> tuple[dict[GpuKey, int], list[Note]]:
    """Every GPU that was used follows the driver's phases."""
    rank = min(t.rank for t in timelines)
    text = (f"the phases are the driver's; they were taken for all {len(used)} GPUs in use, "
            "which is not right for GPUs of engines that generate while others train")  # fmt: skip
    return dict.fromkeys(used, rank), [Note("warning", text)] if len(used) > 1 else []


def _owners(
    gpus: list[GpuKey], processes: pl.DataFrame, timelines: Sequence[RankTimeline]
) -> tuple[dict[GpuKey, int], list[Note]]:
    """Which rank runs on which GPU: from the processes table, else by order where the counts match."""
    ranks = {t.rank for t in timelines}
    owner = _ran(processes.filter(pl.col("rank").is_in(ranks)))
    if owner or not ranks or not gpus:
        return owner, []
    if len(ranks) == len(gpus):
        note = Note(
            "warning", "which rank runs on which GPU was not recorded: ranks were matched to GPUs in order"
        )
        return dict(zip(gpus, sorted(ranks), strict=True)), [note]
    return {}, [
        Note(
            "warning",
            f"{_many(ranks, 'rank')} and {_many(gpus, 'GPU')}, and no record of which runs where: GPU time per phase can't be told",
        )
    ]


def _many(items: Sized, one: str) -> str:
    return f"{len(items)} {one}{'' if len(items) == 1 else 's'}"


def _ran(processes: pl.DataFrame) -> dict[GpuKey, int]:
    """The rank of each GPU that a process names; the lowest keeps it: stray contexts of others often lie on GPU 0."""
    known = processes.filter(pl.col("rank").is_not_null() & (pl.col("gpu") >= 0))
    rows = known.select(pl.col("host").cast(pl.String), "gpu", "rank").sort("rank", descending=True)
    return {(host or "", gpu): rank for host, gpu, rank in rows.iter_rows()}


def _pieces(timelines: Sequence[RankTimeline], names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """When any of these ranks is in one of these phases."""
    wanted = [phases.CODE[name] for name in names]
    masks = [(t, np.isin(t.code, wanted)) for t in timelines]
    none = np.zeros(0, np.int64)
    starts = np.concatenate([none, *(t.edges[:-1][mask] for t, mask in masks)])
    ends = np.concatenate([none, *(t.edges[1:][mask] for t, mask in masks)])
    return starts, ends


def _copy_events(events: pl.DataFrame, rank: int | None) -> tuple[IntArray, IntArray]:
    """When the rank's events say that weights move on the device (vLLM's sleep and wake have no phase)."""
    mine = events.filter(
        (pl.col("rank") == pl.lit(rank, pl.Int32)) & pl.col("name").cast(pl.String).is_in(COPY_EVENTS)
    )
    return mine["t0_ns"].to_numpy(), mine["t1_ns"].fill_null(mine["t0_ns"]).to_numpy()


def _joined(*parts: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
    return np.concatenate([starts for starts, _ in parts]), np.concatenate([ends for _, ends in parts])


def _of_rank(gpus: Sequence[Gpu]) -> dict[int, list[GpuOfRank]]:
    found: dict[int, list[GpuOfRank]] = {}
    for gpu in gpus:
        if gpu.rank is not None:
            found.setdefault(gpu.rank, []).append(GpuOfRank(gpu.states, gpu.signals.util))
    return found


def _states(gpu: Gpu, span: tuple[int, int]) -> GpuStates:
    seconds = dict(zip(STATES, gpu.states.totals(*span).tolist(), strict=True))
    mean = gpu.signals.util.clip(*span).mean()
    return GpuStates(
        host=gpu.signals.host,
        gpu=gpu.signals.gpu,
        seconds=seconds,
        recorded_s=sum(seconds.values()),
        util_mean_pct=None if np.isnan(mean) else float(mean),
        used=gpu.used,
        idle_power_w=gpu.states.idle_power_w,
        method=gpu.states.method,
    )


def _device_notes(waits: Sequence[DeviceWait]) -> list[Note]:
    """What the devices waited inside collectives: beside the phases, since the hosts went on."""
    told = [
        f"rank {w.rank} {w.seconds:z.1f} s in {w.count} {w.name}" for w in waits if w.seconds >= DEVICE_WAIT_S
    ]
    if not told:
        return []
    text = f"GPUs waited inside collectives for the last rank ({', '.join(told)}): device time, beside the phases and in none of their sums"
    return [Note("info", text)]


def _span_notes(timelines: Sequence[RankTimeline], homeless: int, processes: pl.DataFrame) -> list[Note]:
    notes = []
    silent = sorted({*processes["rank"].drop_nulls().to_list()} - {t.rank for t in timelines})
    if timelines and silent:
        text = f"rank {', '.join(map(str, silent))} left no spans: its phases, and the waits for it, are not known"
        notes.append(Note("warning", text))
    if homeless:
        notes.append(Note("warning", f"{homeless} spans belong to no known rank and were left out"))
    crossings = sum(t.main.nesting.crossings for t in timelines)
    if crossings:
        notes.append(
            Note(
                "warning",
                f"{crossings} spans overlap a later span of their thread; the later start was taken as the inner one",
            )
        )
    stepless = [str(t.rank) for t in timelines if not len(t.steps)]
    if stepless:
        notes.append(
            Note("warning", f"no steps on rank {', '.join(stepless)}: its waits can't be worked out")
        )
    return notes
