"""The step loop as this recording shows it: phases in order, what crosses between them, who waits, what runs where.

Nothing here knows a framework: the order is when each phase first occurs in a step (the median over steps), the
seconds are those of the breakdown. Ranks that do different things (a server's rollouts, an asynchronous trainer)
become bands of their own, side by side in time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from dipstick.phases import CODE, WAIT_PHASES
from dipstick.show import words
from dipstick.show.palette import PHASE_INKS, phase_ink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dipstick.model import Breakdown, RankTrack, Report, Stragglers, WaitRow
    from dipstick.show.palette import Ink
    from dipstick.show.recorded import Recorded

_WORTH: Final = 0.01
"""Phases below this share of a band's time are one stage, the last."""
_TRAIN: Final = frozenset({"logprobs", "forward", "backward", "optimizer"})
_OUTSIDE: Final = frozenset({"startup", "teardown"})
_MOST_WAITS: Final = 2
_KILO: Final = 1000


@dataclass(frozen=True, slots=True)
class Callout:
    """A remark under a stage: what crosses there, which processes work there, who waits."""

    kind: Literal["crossing", "processes", "wait"]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One phase of a band.

    Attributes:
        ink: Its colour.
        label: Its name for people.
        seconds: Mean over steps and ranks.
        share: Of the band's time, 0 to 1.
        times: How often a step and rank it comes back (the micro-steps of training).
        callouts: Remarks.
    """

    ink: Ink
    label: str
    seconds: float
    share: float
    times: int = 1
    callouts: tuple[Callout, ...] = ()

    @property
    def is_wait(self) -> bool:
        """Whether its ranks wait for others in it."""
        return self.ink.key in WAIT_PHASES


@dataclass(frozen=True, slots=True)
class Band:
    """Ranks that do the same things in the same order."""

    title: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """The picture in words; no bands where no phases were recorded."""

    title: str
    bands: tuple[Band, ...]
    note: str = ""


def loop_of(report: Report, recording: Recorded | None) -> Loop:
    """The loop of a recording.

    Worked example: two steps of one rank, generate 4 s, reward 3 s, backward 1 s in each: one band of three stages
    with 4, 3 and 1 s, shares 50, 37.5 and 12.5 %.
    """
    found = report.phases
    if found is None or not report.tracks.ranks:
        return Loop(
            "No phases were recorded, so there is no loop to draw: record the run with dipstick run", ()
        )
    steps = max(len(report.tracks.step_start_s), 1)
    known = _Known(report, recording, steps)
    groups = _alike(found)
    bands = tuple(_band(ranks, found, known) for ranks in groups)
    note = "The bands run at the same time." if len(bands) > 1 else ""
    return Loop(_title(report, steps), bands, note)


def _title(report: Report, steps: int) -> str:
    window = report.run.window_s[1] - report.run.window_s[0]
    if not len(report.tracks.step_start_s):
        return f"The whole of {words.span(window)}: no steps were recorded"
    lengths = np.diff([*report.tracks.step_start_s, report.run.window_s[1]])
    length = words.seconds(float(np.mean(lengths)))
    return f"One step: {length} on average over {words.count(steps, 'step')} and {words.count(report.run.ranks, 'rank')}"


def _alike(found: Breakdown) -> list[list[int]]:
    """Ranks by what they do: generate, score, train; in the order of the lowest rank."""
    does: dict[int, set[str]] = defaultdict(set)
    for row in found.rows:
        if row.rank is not None and row.share > _WORTH:
            does[row.rank].add("train" if row.phase in _TRAIN else row.phase)
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for rank in sorted({row.rank for row in found.rows if row.rank is not None}):
        groups[frozenset(does[rank] & {"generate", "reward", "train"})].append(rank)
    return sorted(groups.values())


class _Known:
    """What the recording says beside the phases."""

    def __init__(self, report: Report, recording: Recorded | None, steps: int) -> None:
        self.report = report
        self.recording = recording
        self.steps = steps
        self.crossings = _crossings(recording)

    def between(self, source: str, target: str, ranks: Sequence[int]) -> tuple[str, ...]:
        """``64 str, 212 kB a step (pickle, host)`` for each kind that crossed; empty where nothing was recorded."""
        mine = [
            c for c in self.crossings if (c[0], c[1]) == (source, target) and (c[2] is None or c[2] in ranks)
        ]
        kinds: dict[tuple[str, str, str], list[tuple[int | None, int | None]]] = defaultdict(list)
        for _, _, _, types, transport, device, count, size in mine:
            kinds[types, transport, device].append((count, size))
        return tuple(self._kind(kind, rows, len(ranks)) for kind, rows in sorted(kinds.items()))

    def _kind(
        self, kind: tuple[str, str, str], rows: Sequence[tuple[int | None, int | None]], ranks: int
    ) -> str:
        types, transport, device = kind
        each = self.steps * max(ranks, 1)
        counts, sizes = [c for c, _ in rows if c is not None], [s for _, s in rows if s is not None]
        what = [f"{words.number(sum(counts) / each, 0)} × {types}" if counts else types]
        what += [f"{size_words(sum(sizes) / each)} a step and rank" if sizes else "size not recorded"]
        how = ", ".join(part for part in (transport, device) if part)
        return ", ".join(what) + (f" ({how})" if how else "")


Crossing = tuple[str, str, "int | None", str, str, str, "int | None", "int | None"]


def _crossings(recording: Recorded | None) -> list[Crossing]:
    rows = None if recording is None else recording.table("handoffs")
    if rows is None or rows.is_empty():
        return []
    text = [
        pl.col(name).cast(pl.String).fill_null("") for name in ("from", "to", "types", "transport", "device")
    ]
    keys = ("from", "to", "rank", "types", "transport", "device")
    grouped = (
        rows.with_columns(text)
        .group_by(*keys)
        .agg(
            pl.when(pl.col("count").count() > 0).then(pl.col("count").sum()).alias("items"),
            pl.when(pl.col("bytes_b").count() > 0).then(pl.col("bytes_b").sum()).alias("bytes"),
        )
    )
    return [
        (source, target, rank, words.clean(types, 40) or "types not recorded", words.clean(transport, 20), words.clean(device, 20), items, size)
        for source, target, rank, types, transport, device, items, size in grouped.sort(*keys).iter_rows()
    ]  # fmt: skip


def size_words(size: float) -> str:
    """``212 kB``, in powers of 1000: ``950 B``, ``1.2 MB``, ``24.9 GB``."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while size >= _KILO and power < len(units) - 1:
        size, power = size / _KILO, power + 1
    return f"{size:z.{1 if power > 1 else 0}f} {units[power]}"


def _band(ranks: Sequence[int], found: Breakdown, known: _Known) -> Band:
    seconds: dict[str, float] = defaultdict(float)
    times: dict[str, float] = defaultdict(float)
    for row in found.rows:
        if row.rank in ranks and row.phase not in _OUTSIDE:
            seconds[row.phase] += row.seconds / (len(ranks) * known.steps)
            times[row.phase] += row.count / (len(ranks) * known.steps)
    whole = sum(seconds.values()) or 1.0
    first = _first_times([t for t in known.report.tracks.ranks if t.rank in ranks], known.report)
    worth = [name for name, value in seconds.items() if value / whole >= _WORTH and name != "unattributed"]
    order = sorted(worth, key=lambda name: (first.get(name, np.inf), name))
    stages = [
        replace(
            _stage(name, ranks, known, order),
            seconds=seconds[name],
            share=seconds[name] / whole,
            times=round(times[name]),
        )
        for name in order
    ]
    rest = sum(value for name, value in seconds.items() if name not in worth)
    small = [name for name in seconds if name not in worth]
    if rest / whole > _WORTH / 10:
        label = f"{len(small)} others" if len(small) > 1 else phase_ink(small[0]).label
        stages.append(Stage(PHASE_INKS["unattributed"], label, rest, rest / whole))
    return Band(_band_title(ranks, known), tuple(stages))


def _first_times(tracks: Sequence[RankTrack], report: Report) -> dict[str, float]:
    """When each phase starts, in seconds after its step's start: the median over steps and ranks."""
    starts = np.asarray(report.tracks.step_start_s, float)
    starts = starts if len(starts) else np.array([report.run.window_s[0]])
    found: dict[str, list[float]] = defaultdict(list)
    for track in tracks:
        begin = track.edge_s[:-1]
        step = np.maximum(np.searchsorted(starts, begin + 1e-9, "right") - 1, 0)
        for name, code in CODE.items():
            mine = track.code == code
            _, at = np.unique(step[mine], return_index=True)
            found[name] += (begin[mine][at] - starts[step[mine][at]]).tolist()
    return {name: float(np.median(values)) for name, values in found.items() if values}


def _band_title(ranks: Sequence[int], known: _Known) -> str:
    """``ranks 0–1 · trainer+engine · GPUs 0–1``."""
    roles = sorted({role for rank, role in _roles(known.recording) if rank in ranks})
    gpus = sorted(
        {gpu for track in known.report.tracks.ranks if track.rank in ranks for _, gpu in track.gpus}
    )
    parts = [_span_words("rank", ranks), " / ".join(roles), _span_words("GPU", gpus)]
    return " · ".join(part for part in parts if part)


def _span_words(what: str, numbers: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0–7``, ``ranks 0, 2, 4``."""
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    dense = numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{what}s {numbers[0]}–{numbers[-1]}" if dense else f"{what}s {', '.join(map(str, numbers[:8]))}"


def _roles(recording: Recorded | None) -> list[tuple[int | None, str]]:
    """Rank and role of each process that trains or generates."""
    rows = None if recording is None else recording.table("processes", columns=["rank", "role"])
    if rows is None:
        return []
    told = [
        (rank, words.clean(str(role or ""), 24))
        for rank, role in rows.with_columns(pl.col("role").cast(pl.String)).iter_rows()
    ]
    return [(rank, role) for rank, role in told if "trainer" in role or "engine" in role]


def _stage(name: str, ranks: Sequence[int], known: _Known, order: Sequence[str]) -> Stage:
    """The stage with its remarks; its numbers are filled in by the band."""
    remarks = {"generate": _generating, "reward": _scoring, "weight_sync": _syncing}.get(name)
    callouts = tuple(remarks(ranks, known, order)) if remarks else ()
    if name in WAIT_PHASES:
        callouts = tuple(_waiting(name, ranks, known))
    ink = phase_ink(name)
    return Stage(ink, words.clean(ink.label, 24), 0.0, 0.0, callouts=callouts)


def _generating(ranks: Sequence[int], known: _Known, order: Sequence[str]) -> Iterable[Callout]:
    engines = [t for t in known.report.tenants if t.role == "engine"]
    if engines:
        where = sorted({t.gpu for t in engines})
        yield Callout(
            "processes",
            (
                f"{words.count(len({t.pid for t in engines}), 'engine process', 'engine processes')} of their own",
                f"on {_span_words('GPU', where)}",
            ),
        )
    crossed = known.between("generate", "reward", ranks)
    if crossed:
        yield Callout("crossing", ("to reward:", *crossed))
    elif "reward" in order:
        yield Callout("crossing", ("to reward:", "what crosses was not recorded"))


def _scoring(ranks: Sequence[int], known: _Known, _order: Sequence[str]) -> Iterable[Callout]:
    found = known.report.stragglers
    if found is None or not found.jobs:
        yield Callout(
            "processes", ("no reward jobs recorded:", "scored by the ranks themselves, as far as seen")
        )
        return
    yield Callout("processes", _worker_lines(found, ranks, known))


def _worker_lines(found: Stragglers, ranks: Sequence[int], known: _Known) -> tuple[str, ...]:
    each = found.jobs / known.steps / max(len(known.report.tracks.ranks), 1)
    lines = [
        f"{words.count(len(found.by_worker), 'reward worker')}, {words.number(each, 0)} jobs a step and rank",
        f"a job: median {words.seconds(found.job_median_s)}, longest {words.seconds(found.job_max_s)}",
    ]
    if words.known(found.slots_busy) and found.slots:
        lines.append(f"{words.number(found.slots_busy)} of {found.slots} slots a rank busy")
    there = known.between("reward", "workers", ranks)
    back = known.between("workers", "reward", ranks)
    return (
        *lines,
        *(f"there: {text}" for text in there or _pickled(known)),
        *(f"back: {text}" for text in back),
    )


def _pickled(known: _Known) -> tuple[str, ...]:
    """Pickled bytes that spans or jobs carry, where no hand-over says more."""
    spans = None if known.recording is None else known.recording.table("spans", columns=["pickled_b"])
    total = 0 if spans is None else int(spans["pickled_b"].sum() or 0)
    each = known.steps * max(len(known.report.tracks.ranks), 1)
    return (
        (f"{size_words(total / each)} pickled, types not recorded",)
        if total
        else ("what crosses was not recorded",)
    )


def _syncing(ranks: Sequence[int], known: _Known, _order: Sequence[str]) -> Iterable[Callout]:
    crossed = [*known.between("weight_sync", "engine", ranks), *known.between("trainer", "engine", ranks)]
    yield Callout("crossing", ("weights to the engine:", *(crossed or ["size not recorded"])))


def _waiting(name: str, ranks: Sequence[int], known: _Known) -> Iterable[Callout]:
    waits = [] if known.report.phases is None else known.report.phases.waits
    mine = sorted(
        (w for w in waits if w.phase == name and w.rank in ranks), key=lambda w: (-w.seconds, w.rank)
    )
    if mine:
        more = len(mine) - _MOST_WAITS
        rest = (f"and {words.count(more, 'more kind')} of wait",) if more > 0 else ()
        yield Callout("wait", (*(_wait_words(w) for w in mine[:_MOST_WAITS]), *rest))


def _wait_words(wait: WaitRow) -> str:
    late = "several ranks" if wait.late_rank is None else f"rank {wait.late_rank}"
    because = words.clean(wait.because, 24).replace("_", " ")
    return f"rank {wait.rank} waited {words.seconds(wait.seconds)} in all for {late} ({because})"
