"""A recording that is still being written, read piece by piece: only what was appended, only the last minutes kept.

What is on disk while a run records: the sampler's Arrow streams (``TABLE/WRITER-NNNNNN.arrows``, a batch a second,
a Parquet part once full), the probes' JSON lines (``probe/*.jsonl``, twice a second), and the writers' pieces of the
manifest (the sampler's account, every ten seconds). Nothing is locked and nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.recording.layout import MANIFEST, list_folder
from dipstick.recording.live_segment import JOB, SPAN, LiveSegment
from dipstick.recording.live_streams import Streams
from dipstick.recording.manifest import read_manifest
from dipstick.recording.probe_clock import align, fit
from dipstick.recording.probe_segments import FOLDER, segment_files
from dipstick.recording.schema import TABLES, frame_schema
from dipstick.recording.window import TELEMETRY, TELEMETRY_NS, Health, Window, accounts, probe_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Any

    from dipstick.clock import ClockMap
    from dipstick.recording.manifest import Manifest
    from dipstick.recording.window import ProbeCost

MOST_SEGMENTS: Final = 4_096
"""Processes that are looked at; those that wrote last come first."""


class LiveRun:
    """Looks at a recording again and again.

    Args:
        path: The folder.
        name: What to call it.

    Attributes:
        manifest: As it was at the last look.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.manifest: Manifest = read_manifest(path, ())
        self._path = path
        self._name = name
        self._streams = Streams(TELEMETRY, TELEMETRY_NS)
        self._segments: dict[str, LiveSegment] = {}
        self._clocks: dict[str, ClockMap] = {}

    @property
    def closed(self) -> bool:
        """Whether the run has ended: every writer has closed, or every host's supervisor has (a sampler may be killed)."""
        hosts, info = self.manifest.hosts, self.manifest.info
        return self.manifest.state == "closed" or (
            bool(hosts) and all(f"run@{host}" in info for host in hosts)
        )

    def look(self) -> None:
        """Read what was appended since the last look."""
        listing = list_folder(self._path)
        self.manifest = read_manifest(self._path, listing.pieces)
        self._streams.look(listing.parts)
        files = [(f, s.st_size, s.st_mtime) for f in segment_files(self._path / FOLDER) if (s := f.status())]
        if len(files) > MOST_SEGMENTS:
            files = sorted(files, key=lambda found: found[2])[-MOST_SEGMENTS:]
        grown = False
        for file, size, _ in files:
            name = file.path.name
            if name not in self._segments:
                self._segments[name] = LiveSegment(file)
            grown |= self._segments[name].look(size)
        if grown:
            self._fit()

    def _fit(self) -> None:
        """The clocks of all probes; those of one host share a monotonic clock (see ``probe_clock``)."""
        names = list(self._segments)
        hosts: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for at, segment in enumerate(self._segments.values()):
            hosts.setdefault(segment.process.host, {})[at] = segment.anchors
        for segments in hosts.values():
            for at, anchors in align(segments)[0].items():
                if anchors:
                    self._clocks[names[at]] = fit(anchors)

    def window(self, t_unix_ns: int) -> Window:
        """What is known around an instant of Unix time. Call :meth:`look` before."""
        start = self.manifest.created_unix_ns
        tables = {name: self._streams.table(name, start) for name in (*TELEMETRY, "gpus")}
        tables |= {"spans": self._spans(start), "jobs": self._jobs(start), "processes": self._processes()}
        edges = [t for name in TELEMETRY for t in (tables[name]["t_ns"].min(), tables[name]["t_ns"].max())]
        known = [t for t in edges if isinstance(t, int)]
        return Window(
            name=self._name,
            start_unix_ns=start,
            t_ns=t_unix_ns - start,
            first_ns=min(known, default=0),
            last_ns=t_unix_ns - start,
            sampled_ns=max(known, default=None),
            mode="ended" if self.closed else "recording",
            tables=tables,
            health=self._health(),
        )

    def _placed(self) -> Iterable[tuple[LiveSegment, ClockMap]]:
        """Segments whose times can be placed."""
        return ((s, self._clocks[name]) for name, s in self._segments.items() if name in self._clocks)

    def _spans(self, start: int) -> pl.DataFrame:
        frames = []
        for segment, clock in self._placed():
            opened = [tuple(row[column] for column in SPAN) for row in segment.opened.values()]
            process = segment.process
            known = {"host": process.host, "pid": process.pid, "rank": process.rank}
            frames.append(_frame("spans", SPAN, [*segment.spans, *opened], known, clock, start))
        return _whole("spans", frames).sort("t0_ns", maintain_order=True)

    def _jobs(self, start: int) -> pl.DataFrame:
        """Jobs joined by id: the submitter says when and for which step, the worker when they ran."""
        frames = []
        for segment, clock in self._placed():
            process = segment.process
            own = {"rank": process.rank, "pid": process.pid}
            rows = [_own(job, own) for job in segment.jobs.values()]
            frames.append(_frame("jobs", JOB, rows, {"host": process.host}, clock, start))
        found = _whole("jobs", frames)
        said = [pl.col(c).drop_nulls().first() for c in found.columns if c not in {"host", "job"}]
        joined = found.group_by("host", "job", maintain_order=True).agg(said)
        return joined.select(found.columns).sort("submitted_ns", maintain_order=True)

    def _processes(self) -> pl.DataFrame:
        rows = [
            {"host": p.host, "pid": p.pid, "role": p.role, "rank": p.rank}
            for p in (segment.process for segment in self._segments.values())
        ]
        schema = {name: TABLES["processes"][name] for name in ("host", "pid", "role", "rank")}
        return _whole("processes", [pl.DataFrame(rows, schema=schema)])

    def _health(self) -> Health:
        processes = [segment.process for segment in self._segments.values()]
        costs = (_cost(segment) for segment in self._segments.values())
        return Health(
            samplers=accounts(self.manifest.info),
            probes=tuple(cost for cost in costs if cost is not None),
            dropped=sum(p.dropped for p in processes) + int(self.manifest.health.get("dropped_rows", 0)),
            capped=sum(p.capped is not None for p in processes),
        )


def _own(job: dict[str, Any], own: dict[str, Any]) -> tuple[Any, ...]:
    """A process's word on a job: the rank is its own where it submitted, the pid its own where it ran."""
    said = dict(job)
    if "submitted_ns" in job:
        said.setdefault("rank", own["rank"])
    if "t1_ns" in job:
        said.setdefault("pid", own["pid"])
    return tuple(said.get(column) for column in JOB)


def _frame(
    table: str, columns: Sequence[str], rows: list[Any], known: dict[str, Any], clock: ClockMap, start: int
) -> pl.DataFrame:
    """Rows of one process as a frame with its times on the common axis."""
    frame = pl.DataFrame(rows, schema={c: TABLES[table][c] for c in columns}, orient="row")
    times = [column for column in columns if column.endswith("_ns")]
    placed = [pl.Series(c, clock.to_unix(frame[c].fill_null(0).to_numpy()) - start, pl.Int64) for c in times]
    moved = pl.DataFrame(placed)
    return frame.with_columns(
        *(pl.when(pl.col(c).is_not_null()).then(moved[c]).alias(c) for c in times),
        *(pl.lit(value, TABLES[table][name]).alias(name) for name, value in known.items()),
    )


def _whole(table: str, frames: list[pl.DataFrame]) -> pl.DataFrame:
    """All rows with the table's columns and types; those that are not followed are null."""
    schema = frame_schema(table)
    if not frames:
        return pl.DataFrame(schema=schema)
    frame = pl.concat(frames)
    return frame.select(
        pl.col(c).cast(dtype) if c in frame.columns else pl.lit(None, dtype).alias(c)
        for c, dtype in schema.items()
    )


def _cost(segment: LiveSegment) -> ProbeCost | None:
    """What a rank's probe has cost between its first anchor and its last."""
    process, anchors = segment.process, segment.anchors
    if len(anchors) < 2 or process.rank is None:  # noqa: PLR2004 - the first one is written before any cost
        return None
    return probe_cost({**process.cost, "rank": process.rank}, (anchors[-1][0] - anchors[0][0]) / 1e9)


def last_written_ns(path: Path) -> int:
    """When anything in a recording's folder was last written, by its file system's clock."""
    listing = list_folder(path)
    files = [*(part.path for part in listing.parts), *listing.pieces, path / MANIFEST]
    files += [file.path for file in segment_files(path / FOLDER)]
    return max((_changed_ns(file) for file in files), default=0)


def _changed_ns(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
