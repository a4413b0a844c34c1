"""A recording as slices, counters and flows: what every trace viewer understands. The formats decide how it is written.

Times are nanoseconds since the recording's start. Tracks form a tree: a host's GPUs with their counters, each rank with
its phases, its spans and its events, and the reward workers. A flow leads from where a job was submitted to where it ran.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from dipstick.analysis.spans import of_nobody, of_ranks
from dipstick.model import STATES
from dipstick.phases import PHASES
from dipstick.show import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dipstick.analysis.pipeline import Findings
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import CodeArray, FloatArray, IntArray
    from dipstick.show.recorded import Recorded

_MOST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Track:
    """One row of a viewer.

    Attributes:
        key: Unique, from 1.
        name: As shown.
        parent: Key of the group that it is in; 0 for a group.
        unit: Of a counter; empty for slices and groups.
        is_counter: Whether it holds values.
    """

    key: int
    name: str
    parent: int = 0
    unit: str = ""
    is_counter: bool = False


@dataclass(slots=True)
class Slice:
    """Something that took time (or, of no length, happened) on a track.

    Attributes:
        track: Its key.
        t0: Start.
        t1: End; never before ``t0``, and never after the end of the slice that it is in.
        name: As shown.
        args: Further facts.
        flows: Ids of the flows that leave or reach it; the earlier slice with an id is where the flow starts.
    """

    track: int
    t0: int
    t1: int
    name: str
    args: dict[str, Any] = field(default_factory=dict)
    flows: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counter:
    """Values of a counter track; value i holds from ``t[i]`` to ``t[i + 1]``, and NaN ends what was before it."""

    track: int
    t: IntArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything; slices of one track are in order and either nested or apart."""

    start_unix_ns: int
    tracks: tuple[Track, ...]
    slices: tuple[Slice, ...]
    counters: tuple[Counter, ...]


def trace_of(findings: Findings, recording: Recorded) -> Trace:
    """The whole recording."""
    made = _Maker()
    for gpu in findings.gpus:
        _gpu(made, gpu)
    _polled(made, recording)
    several = len({gpu.signals.host for gpu in findings.gpus}) > 1
    for timeline in findings.timelines:
        _rank(made, timeline, recording)
    _jobs(made, recording, several=several)
    _events(made, recording)
    for one in made.slices:  # the first sample stands for a time before the first row
        one.t0, one.t1 = max(one.t0, 0), max(one.t1, 0)
    slices = sorted(made.slices, key=lambda s: (s.track, s.t0, -s.t1))
    counters = [Counter(c.track, np.maximum(c.t, 0), c.value) for c in made.counters]
    return Trace(recording.start_unix_ns, tuple(made.tracks), tuple(slices), tuple(counters))


class _Maker:
    """Collects tracks under names, so that each is made once."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self.slices: list[Slice] = []
        self.counters: list[Counter] = []
        self.phases: dict[int, list[Slice]] = {}
        self._keys: dict[tuple[str, ...], int] = {}

    def track(self, group: str, name: str = "", unit: str = "", *, counter: bool = False) -> int:
        """The key of a track in a group (of the group itself, without a name)."""
        if (group, name) not in self._keys:
            parent = self.track(group) if name else 0
            self._keys[group, name] = len(self.tracks) + 1
            shown = words.clean(name or group, 80)
            self.tracks.append(Track(len(self.tracks) + 1, shown, parent, unit, counter))
        return self._keys[group, name]

    def counter(self, group: str, name: str, unit: str, t: IntArray, value: FloatArray) -> None:
        """Values, where there are any."""
        if np.isfinite(value).any():
            self.counters.append(Counter(self.track(group, name, unit, counter=True), t, value))


def _gpu_group(host: str, gpu: int) -> str:
    return f"GPU {gpu}" + (f" ({host})" if host else "")


def _gpu(made: _Maker, gpu: Any) -> None:
    """Utilization and memory access as the analysis places them, and the states."""
    group = _gpu_group(*gpu.key)
    for name, series in (("utilization.gpu", gpu.signals.util), ("utilization.memory", gpu.signals.mem_util)):
        made.counter(group, name, "%", *_with_ends(series.t0, series.t1, series.value))
    track = made.track(group, "state")
    windows = gpu.states.windows
    for t0, t1, code in _runs(windows.t0, windows.t1, gpu.states.code):
        made.slices.append(Slice(track, t0, t1, STATES[code]))


def _with_ends(t0: IntArray, t1: IntArray, value: FloatArray) -> tuple[IntArray, FloatArray]:
    """A NaN where nothing follows at once, so that a hole is no flat line."""
    ends = np.append(t1[:-1] < t0[1:], True) if len(t0) else np.zeros(0, bool)
    t = np.concatenate([t0, t1[ends]])
    values = np.concatenate([value, np.full(int(ends.sum()), np.nan)])
    order = np.argsort(t, kind="stable")
    return t[order], values[order]


def _runs(t0: IntArray, t1: IntArray, code: CodeArray) -> Iterator[tuple[int, int, int]]:
    """Neighbours of one code that touch, as one."""
    start = 0
    for i in range(1, len(t0) + 1):
        if i == len(t0) or code[i] != code[start] or t0[i] > t1[i - 1]:
            yield int(t0[start]), int(t1[i - 1]), int(code[start])
            start = i


_COUNTERS: Final = (
    ("gpu", "mem_used_b", "memory allocated", "GiB", 2**30), ("gpu", "power_w", "power", "W", 1), ("gpu", "sm_mhz", "SM clock", "MHz", 1),
    ("gpu_counters", "sm_active_pct", "SM active", "%", 1), ("gpu_counters", "tensor_active_pct", "tensor active", "%", 1),
    ("gpu_counters", "dram_active_pct", "DRAM active", "%", 1), ("gpu_counters", "pcie_rx_mib_s", "PCIe in", "MiB/s", 1),
    ("gpu_counters", "pcie_tx_mib_s", "PCIe out", "MiB/s", 1),
)  # fmt: skip


def _polled(made: _Maker, recording: Recorded) -> None:
    for table, column, name, unit, scale in _COUNTERS:
        rows = recording.table(table, columns=["host", "gpu", "t_ns", column]).drop_nulls(["gpu", column])
        parts = rows.partition_by("host", "gpu", as_dict=True, maintain_order=True)
        for (host, gpu), part in sorted(parts.items(), key=lambda item: (str(item[0][0] or ""), item[0][1])):
            value = part[column].cast(pl.Float64).to_numpy() / scale
            made.counter(_gpu_group(str(host or ""), int(gpu)), name, unit, part["t_ns"].to_numpy(), value)


def _rank(made: _Maker, timeline: RankTimeline, recording: Recorded) -> None:
    """The exclusive phases, then every span as it was recorded, a track a thread."""
    group = f"rank {timeline.rank}"
    track, edges = made.track(group, "phase"), timeline.edges
    mine = [
        Slice(track, t0, t1, PHASES[code]) for t0, t1, code in _runs(edges[:-1], edges[1:], timeline.code)
    ]
    made.phases[timeline.rank] = mine
    made.slices += mine
    spans = of_ranks(recording.table("spans"), recording.table("processes"))
    spans = spans.filter(pl.col("rank") == timeline.rank)
    for i, part in enumerate(spans.partition_by("host", "pid", "tid", maintain_order=True)):
        made.slices += nested(
            [
                _span(row, made.track(group, f"spans {i + 1}" if i else "spans"))
                for row in part.iter_rows(named=True)
            ]
        )


def _span(row: dict[str, Any], track: int) -> Slice:
    facts = {
        "file": _place(row),
        "step": row["step"],
        "origin": row["origin"],
        "pickled_bytes": row["pickled_b"],
        "jobs": row["jobs"],
        "detail": row["detail"],
    }
    return Slice(track, row["t0_ns"], row["t1_ns"], _text(row["name"]) or "span", _known(facts))


def _place(row: dict[str, Any]) -> str | None:
    if not row["file"]:
        return None
    return f"{row['file']}" + ("" if row["line"] is None else f":{row['line']}")


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts that were recorded; texts cleaned."""
    return {
        key: _text(value) if isinstance(value, str) else value
        for key, value in facts.items()
        if value not in {None, ""}
    }


def _text(text: str | None) -> str:
    return words.clean(text or "", _MOST_TEXT)


def nested(slices: Sequence[Slice]) -> list[Slice]:
    """In order, each cut at the end of the one that it is in: viewers need slices that are nested or apart.

    Worked example: [0, 10) and [5, 12) on one thread become [0, 10) and [5, 10).
    """
    out, inside = [], list[int]()
    for one in sorted(slices, key=lambda s: (s.t0, -s.t1)):
        while inside and inside[-1] <= one.t0:
            inside.pop()
        end = min(one.t1, inside[-1]) if inside else one.t1
        out.append(Slice(one.track, one.t0, max(end, one.t0), one.name, one.args, one.flows))
        inside.append(end)
    return out


def _jobs(made: _Maker, recording: Recorded, *, several: bool) -> None:
    """Reward jobs by worker; each with a flow from the phase in which it was submitted."""
    jobs = recording.table("jobs").with_columns(
        pl.col("host").cast(pl.String), pl.col("payload_types").cast(pl.String)
    )
    starts = {rank: [s.t0 for s in phases] for rank, phases in made.phases.items()}
    flow = 0
    for part in jobs.partition_by("host", "rank", "pid", maintain_order=True):
        host, rank, pid = part.select("host", "rank", "pid").row(0)
        name = (
            f"worker {pid}"
            + (f" of rank {rank}" if rank is not None else "")
            + (f" ({host})" if several and host else "")
        )
        rows = part.to_dicts()
        for row, lane in zip(rows, side_by_side([(r["t0_ns"], r["t1_ns"]) for r in rows]), strict=True):
            track = made.track("reward workers", name + (f" +{lane}" if lane else ""))
            job = Slice(
                track, row["t0_ns"], row["t1_ns"], f"job {_text(row['job'])}".strip(), _job_facts(row)
            )
            made.slices.append(job)
            sender = _at(made.phases.get(rank, []), starts.get(rank, []), row["submitted_ns"])
            if sender is not None:
                flow += 1
                sender.flows.append(flow)
                job.flows.append(flow)


def _job_facts(row: dict[str, Any]) -> dict[str, Any]:
    queued = None if row["submitted_ns"] is None else (row["t0_ns"] - row["submitted_ns"]) / 1e6
    return _known(
        {
            "step": row["step"], "queued_ms": queued, "payload_bytes": row["payload_b"], "payload_types": row["payload_types"],
            "result_bytes": row["result_b"], "detail": row["detail"],
        }
    )  # fmt: skip


def _at(slices: Sequence[Slice], starts: Sequence[int], t: int | None) -> Slice | None:
    """The slice that holds a time."""
    i = -1 if t is None else bisect_right(starts, t) - 1
    return slices[i] if t is not None and i >= 0 and t < slices[i].t1 else None


def side_by_side(spans: Sequence[tuple[int, int]]) -> list[int]:
    """A lane for each span, so that no two of one lane overlap; the lowest that is free.

    Worked example: [0, 4), [1, 2), [2, 3), [4, 5) get lanes 0, 1, 1, 0.
    """
    order = sorted(range(len(spans)), key=lambda i: spans[i])
    lanes, free, busy = [0] * len(spans), list[int](), list[tuple[int, int]]()
    for i in order:
        while busy and busy[0][0] <= spans[i][0]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        lanes[i] = lane
        heapq.heappush(busy, (spans[i][1], lane))
    return lanes


def _events(made: _Maker, recording: Recorded) -> None:
    events = recording.table("events").with_columns(pl.col("name").cast(pl.String).fill_null("event"))
    events = of_nobody(events, recording.table("processes"))
    for part in events.partition_by("rank", "name", maintain_order=True):
        rank, name = part.select("rank", "name").row(0)
        group = "events" if rank is None else f"rank {rank}"
        track = made.track(group, f"event {name}")
        rows = part.iter_rows(named=True)
        made.slices += nested([
            Slice(track, row["t0_ns"], row["t0_ns"] if row["t1_ns"] is None else row["t1_ns"], _text(name), _known({"step": row["step"], "detail": row["detail"]}))
            for row in rows
        ])  # fmt: skip
