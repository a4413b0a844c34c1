"""Reads a recording: one folder, or a sample that is shipped with dipstick."""

from __future__ import annotations

import re
import shlex
from collections import Counter, OrderedDict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import EmptyRecordingError, RecordingError, UsageError
from dipstick.model import Note
from dipstick.recording import clean, order, timeline
from dipstick.recording.layout import MANIFEST, list_folder
from dipstick.recording.manifest import read_manifest
from dipstick.recording.overhead import account_of
from dipstick.recording.parts import Source, damaged_note, open_parts
from dipstick.recording.probe_segments import unconverted
from dipstick.recording.schema import KEYS, TABLES, TIME_COLUMNS, frame_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dipstick.model import Overhead
    from dipstick.recording.manifest import Manifest

SAMPLE_PREFIX: Final = "sample:"
SAMPLES: Final = Path(__file__).resolve().parent.parent / "samples"
CACHE_BYTES: Final = 512 * 2**20
"""Loaded tables are kept up to this size, the least recently used go first; a larger one is not kept."""


_LOG_NAME: Final = re.compile(r"\.(csv|jsonl|json|log|txt|wandb|gz|sqlite|out)$|tfevents", re.IGNORECASE)


def sample_names() -> list[str]:
    """Names of the shipped samples."""
    return sorted(path.parent.name for path in SAMPLES.glob(f"*/{MANIFEST}"))


def resolve(path: str | Path) -> Path:
    """The folder of ``PATH`` or ``sample:NAME``.

    Raises:
        UsageError: There is no such sample.
        RecordingError: There is no such folder, or it is no recording.
    """
    text = str(path)
    if text.startswith(SAMPLE_PREFIX):
        name = text.removeprefix(SAMPLE_PREFIX)
        if name not in sample_names():
            raise UsageError(
                f"there is no sample {name!r}.",
                fix=f"Samples: {', '.join(f'sample:{s}' for s in sample_names())}.",
            )
        return SAMPLES / name
    folder = Path(path)
    if not folder.exists():
        raise RecordingError(
            "no such folder.", where=text, fix="Give a recording folder, or try sample:h200x2-grpo."
        )
    if not (folder / MANIFEST).is_file() or (folder / MANIFEST).is_symlink():
        raise _foreign(folder)
    return folder


def _foreign(path: Path) -> RecordingError:
    """The error for something that is no recording, with the way to make it one."""
    convert = f"dipstick import {shlex.quote(str(path))} -o RUN; dipstick explain RUN"
    if path.is_file():
        return RecordingError(
            "it is a file; a recording is a folder.", where=str(path), fix=f"To read a log: {convert}"
        )
    names = [entry.name for entry in path.iterdir()]
    if not names:
        return EmptyRecordingError(
            "the folder is empty.", where=str(path), fix="Record into it: dipstick run -o RUN -- CMD"
        )
    what = f"it is no dipstick recording (it has no {MANIFEST})."
    if any(_LOG_NAME.search(name) for name in names):
        return RecordingError(what, where=str(path), fix=f"It looks like a trace or logs: {convert}")
    return RecordingError(
        what, where=str(path), fix="Give the folder that dipstick run or dipstick import made."
    )


class Recording:
    """A recording on one time axis.

    Times are nanoseconds since ``start_unix_ns``, the earliest time in any row that can be used. Rows are
    cleaned on load (``dipstick.recording.clean``); what that changed is in ``notes`` once the table was loaded
    in full. Text columns in ``schema.CATEGORIES`` are ``pl.Categorical``.

    Attributes:
        path: The folder.
        name: Its name, or ``sample:NAME``.
        manifest: Merged over writers.
        start_unix_ns: t = 0.
        end_unix_ns: The latest time in any row.
    """

    def __init__(self, path: Path, name: str) -> None:
        listing = list_folder(path)
        self.path = path
        self.name = name
        self.manifest: Manifest = read_manifest(path, listing.pieces)
        sources, notes = open_parts(listing, self.manifest)
        left = unconverted(path, self.manifest.converted)
        notes += left.notes
        self._accounts_left = left.accounts
        self._sources: dict[str, list[Source]] = {}
        for source in (*sources, *left.sources):
            self._sources.setdefault(source.table, []).append(source)
        self._fixed_notes = [*self.manifest.notes, *_unfinished(self.manifest), *notes]
        self._table_notes: dict[str, list[Note]] = {}
        self._damaged: set[str] = set()
        self._clocks = {
            source.writer: timeline.fit_clocks(self._collect(source, lambda rows: rows))
            for source in self._sources.get("anchors", [])
        }
        self._fixed_notes += timeline.step_notes(self._clocks.values())
        self._cache: OrderedDict[tuple[object, ...], pl.DataFrame] = OrderedDict()
        self._extents = self._measure()
        self.start_unix_ns, self.end_unix_ns = self._bounds()

    @property
    def notes(self) -> tuple[Note, ...]:
        """What to know about the data: damaged files, clock steps, and what cleaning did to the tables loaded so far."""
        loaded = [note for table in TABLES for note in self._table_notes.get(table, [])]
        return (*self._fixed_notes, *loaded)

    @property
    def overhead(self) -> Overhead:
        """What recording cost the run, by the probes' and the sampler's own accounts."""
        return account_of(self.manifest, self._accounts_left)

    def has(self, table: str) -> bool:
        """Whether the table holds a row that can be used."""
        return bool(self._extents.get(table))

    def has_values(self, table: str, column: str, among: Sequence[str] = ()) -> bool:
        """Whether any stored row has a value in the column (one of ``among``); only the column is read, as it is stored."""
        _check_columns(table, [column])
        found = pl.col(column).cast(pl.String).is_in(among) if among else pl.col(column).is_not_null()
        some = found.any().alias("some")
        sources = self._sources.get(table, [])
        return any(self._collect(source, lambda rows: rows.select(some))["some"].any() for source in sources)

    def scan(self, table: str) -> pl.LazyFrame:
        """All rows as stored: times not converted, nothing cleaned, in file order."""
        _check_table(table)
        frames = [source.rows for source in self._sources.get(table, [])]
        return pl.concat(frames) if frames else pl.LazyFrame(schema=frame_schema(table))

    def table(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Load a table, cleaned, in order of its first time column.

        Args:
            name: A name in ``schema.TABLES``.
            start_ns: Only rows in ``[start_ns, end_ns)``, nanoseconds since the recording's start; a span or job
                is in if any part of it is. Only the row groups that can hold such rows are read.
            end_ns: See ``start_ns``.
            columns: Only these columns, in this order; all of the schema's if None.

        Returns:
            Rows with int64 times relative to ``start_unix_ns``.

        Raises:
            UsageError: There is no such table or column.
        """
        wanted = tuple(_check_table(name) if columns is None else columns)
        _check_columns(name, wanted)
        key = (name, start_ns, end_ns, wanted)
        if key not in self._cache:
            whole = start_ns is None and end_ns is None
            frame, notes = self._load(name, (start_ns, end_ns), wanted)
            if whole and len(notes) >= len(self._table_notes.get(name, [])):
                self._table_notes[name] = notes
            self._keep(key, frame)
            return frame
        self._cache.move_to_end(key)
        return self._cache[key]

    def forget(self) -> None:
        """Let go of loaded tables; they are read again when they are asked for."""
        self._cache.clear()

    def _keep(self, key: tuple[object, ...], frame: pl.DataFrame) -> None:
        """Remember a loaded table, and forget the oldest ones beyond ``CACHE_BYTES``."""
        self._cache[key] = frame
        while self._cache and sum(int(f.estimated_size()) for f in self._cache.values()) > CACHE_BYTES:
            self._cache.popitem(last=False)

    def _measure(self) -> dict[str, dict[tuple[str, int], tuple[int, int] | None]]:
        """First and last Unix time by table, writer and clock, from the time columns alone; None: rows, no times."""
        extents: dict[str, dict[tuple[str, int], tuple[int, int] | None]] = {}
        for table, sources in self._sources.items():
            for source in sources:
                clocks = self._clocks_of(source.writer)
                for clock, first, last in self._collect(source, partial(_extent, source.table)).iter_rows():
                    if clocks.knows(clock):
                        span = (
                            None
                            if first is None
                            else (clocks.to_unix(clock, first), clocks.to_unix(clock, last))
                        )
                        found = extents.setdefault(table, {})
                        found[source.writer, clock] = _hull(found.get((source.writer, clock)), span)
        return extents

    def _collect(self, source: Source, query: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        """Run a query; a part that turns out damaged is noted once."""
        frame, damaged = source.collect(query)
        for key in sorted(set(damaged) - self._damaged):
            self._fixed_notes.append(damaged_note(key, self.manifest.parts.get(key)))
        self._damaged.update(damaged)
        return frame

    def _clocks_of(self, writer: str) -> timeline.Clocks:
        """A writer's clocks; without anchors only Unix times can be placed."""
        return self._clocks.get(writer, timeline.Clocks({}, {}))

    def _bounds(self) -> tuple[int, int]:
        """The earliest and latest time of any table."""
        spans = [span for found in self._extents.values() for span in found.values() if span]
        if not spans:
            raise EmptyRecordingError(
                "there is no row with a usable time in any table.",
                where=str(self.path),
                fix="; ".join(note.text for note in self._fixed_notes)
                or "Was the run stopped at once? Record again.",
            )
        return min(first for first, _ in spans), max(last for _, last in spans)

    def _load(
        self, name: str, limits: tuple[int | None, int | None], wanted: tuple[str, ...]
    ) -> tuple[pl.DataFrame, list[Note]]:
        """Read, clean, convert and order a table."""
        counts: Counter[str] = Counter()
        needed = [
            c for c in frame_schema(name) if c in {*wanted, *KEYS.get(name, ()), *TIME_COLUMNS[name], "clock"}
        ]
        if not TIME_COLUMNS[name]:
            frames = [self._collect(source, lambda rows: rows) for source in self._sources.get(name, [])]
            return pl.concat([pl.DataFrame(schema=frame_schema(name)), *frames]).unique(
                maintain_order=True
            ).select(wanted), []
        unix = tuple(None if t is None else t + self.start_unix_ns for t in limits)
        frames = [self._load_source(source, unix, needed, counts) for source in self._sources.get(name, [])]
        empty = pl.DataFrame(schema=frame_schema(name)).select(needed)
        frame = clean.clean_values(pl.concat([empty, *frames]), name, counts)
        frame, notes = order.in_order(frame, name, counts)
        if name == "spans":
            counts["overlapping"] += order.count_overlaps(frame)
        times = [pl.col(c) - self.start_unix_ns for c in TIME_COLUMNS[name]]
        return frame.with_columns(times).select(wanted), [*clean.notes_of(name, counts), *notes]

    def _load_source(
        self, source: Source, unix: tuple[int | None, ...], needed: list[str], counts: Counter[str]
    ) -> pl.DataFrame:
        """One writer's rows of a time range on the Unix axis."""
        clocks = self._clocks_of(source.writer)
        limited = unix != (None, None)
        start = self.start_unix_ns if unix[0] is None else unix[0]
        end = self.end_unix_ns + 1 if unix[1] is None else unix[1]
        used = [clock for writer, clock in self._extents.get(source.table, {}) if writer == source.writer]
        wanted = timeline.raw_range(source.table, clocks, used, start, end) if limited else pl.lit(value=True)
        frame = self._collect(source, lambda rows: rows.filter(wanted).select(needed))
        frame = clean.drop_bad_times(frame, source.table, counts)
        frame = timeline.convert(frame.with_columns(clean.clock_number()), source.table, clocks, counts)
        return frame.filter(timeline.in_range(source.table, start, end)) if limited else frame


def _extent(table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """``clock, first, last`` of the usable rows, raw; times null where the table has none."""
    times = TIME_COLUMNS[table]
    if not times:
        none = pl.lit(None, dtype=pl.Int64)
        return rows.select(clock=0, first=none, last=none).head(1)
    sane = [pl.col(time).filter(clean.sane(time)) for time in times]
    first, last = pl.min_horizontal(t.min() for t in sane), pl.max_horizontal(t.max() for t in sane)
    return rows.filter(clean.valid_times(table)).group_by(clean.clock_number()).agg(first=first, last=last)


def _hull(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    """The smallest interval that holds both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _unfinished(manifest: Manifest) -> list[Note]:
    """A note on a recording that no writer closed."""
    if manifest.state == "closed":
        return []
    return [
        Note(
            "info",
            "the recording was not closed: it is still running, or was killed; at most its last second is missing",
        )
    ]


def _check_table(name: str) -> list[str]:
    """The table's columns, or an error that lists the tables."""
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}.", fix=f"Tables: {', '.join(TABLES)}.")
    return list(TABLES[name])


def _check_columns(name: str, columns: Iterable[str]) -> None:
    """Every column must be in the schema."""
    unknown = [column for column in columns if column not in TABLES[name]]
    if unknown:
        raise UsageError(
            f"table {name!r} has no column {', '.join(unknown)}.", fix=f"Columns: {', '.join(TABLES[name])}."
        )


def _open(folder: Path, name: str) -> Recording:
    """Open, and once more where a live writer just turned a listed segment into a part."""
    try:
        return Recording(folder, name)
    except FileNotFoundError:
        return Recording(folder, name)


def open_recording(path: str | Path) -> Recording:
    """Open a recording folder or ``sample:NAME``.

    Args:
        path: The folder, or ``sample:`` and the name of a shipped sample.

    Returns:
        The recording; tables are read when asked for.

    Raises:
        UsageError: There is no such sample.
        RecordingError: No such folder, no recording, a damaged manifest or a newer schema.
        EmptyRecordingError: Nothing in it can be placed in time.
    """
    text = str(path)
    try:
        folder = resolve(path)
        return _open(folder, text if text.startswith(SAMPLE_PREFIX) else folder.resolve().name)
    except PermissionError as error:
        raise RecordingError(
            "it may not be read by this user.",
            where=str(error.filename or path),
            fix="A recording is private (mode 0700): ask its owner.",
        ) from error
