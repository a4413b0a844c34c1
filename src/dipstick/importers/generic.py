"""Your own spans, jobs, events and telemetry as CSV, JSON lines or Parquet; docs/import.md has the columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding, check_bound, wished
from dipstick.importers.columns import find_columns
from dipstick.importers.delimited import telemetry_batch, time_reader
from dipstick.importers.layout import Layout
from dipstick.importers.names import named
from dipstick.importers.records import PARQUET_MAGIC, first_names, records
from dipstick.importers.samples import Samples
from dipstick.importers.times import TimeReader, find_format, given_format
from dipstick.phases import PHASES
from dipstick.recording.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "generic"
NAME: Final = "spans, jobs, events or telemetry of your own (CSV, JSON lines, Parquet)"

SYNONYMS: Final = {
    "t0_ns": r"t0|t0_ns|start(ed)?(_?(at|time|ts|ns|s|ms|us))?|t_?start|begin(_time|_ts)?|ts_start|start_timestamp",
    "t1_ns": r"t1|t1_ns|end(ed)?(_?(at|time|ts|ns|s|ms|us))?|t_?end|stop(ped)?(_time|_at)?|finish(ed)?(_at)?|ts_end|end_timestamp",
    "t_ns": r"t|ts|time(stamp)?|_timestamp|datetime|t_ns|ts_(ns|us|ms)|time(stamp)?_(ns|us|ms|s)",
    "duration": r"dur(ation)?(_(ns|us|ms|s|sec|seconds))?|elapsed(_(ns|us|ms|s|sec))?|seconds",
    "submitted_ns": r"submitted(_(at|ns|time|s))?|queued(_at)?|enqueued(_at)?|submit_time",
    "name": r"name|span|span_name|event|event_name|label|operation|op",
    "phase": r"phase", "rank": r"rank|global_rank|dp_rank", "pid": r"pid|process_id|worker_pid", "tid": r"tid|thread_id",
    "step": r"step|global_step|iteration|iter", "host": r"host(name)?|node", "job": r"job|job_id|task|task_id|request_id",
    "parent": r"parent", "file": r"file|filename", "line": r"line|lineno", "detail": r"detail|args|comment",
    "pickled_b": r"pickled_b(ytes)?", "jobs": r"jobs|n_jobs", "payload_b": r"payload_b(ytes)?", "payload_types": r"payload_types?",
    "result_b": r"result_b(ytes)?", "origin": r"origin",
}  # fmt: skip
"""Columns of the recording's tables, and what people call them."""

_FORMS: Final = {column: re.compile(form, re.IGNORECASE) for column, form in SYNONYMS.items()}
_TIMES: Final = ("t0_ns", "t1_ns", "submitted_ns")
_PER_SECOND: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9, "seconds": 1e9}
_INTEGERS: Final = (pl.Int64, pl.Int32)


def kind_of(names: Sequence[str], file: str) -> str:
    """``gpu``, ``spans``, ``jobs`` or ``events``; empty: none of them.

    The file's name decides where it begins with one; else: a job column or a submission time makes jobs, a name with
    start and end (or duration) spans, a name with one time events, a GPU metric with a time telemetry.
    """
    found = {column for name in names if (column := column_of(name))}
    begun = "t0_ns" in found or "t_ns" in found
    lasts = begun and bool(found & {"t1_ns", "duration"})
    for kind, needs in (
        ("spans", lasts and found & {"name", "phase"}),
        ("jobs", lasts),
        ("events", begun and "name" in found),
    ):
        if needs and file.lower().startswith(kind[:-1]):
            return kind
    if lasts and found & {"job", "submitted_ns"}:
        return "jobs"
    if lasts and found & {"name", "phase"}:
        return "spans"
    told = [named(name) for name in names]
    if any(
        n.meaning in {"util_pct", "mem_util_pct", "power_w", "gr_active_pct", "mem_used_b"}
        or n.gpu is not None
        for n in told
    ):
        return "gpu"
    return "events" if begun and "name" in found else ""


def column_of(name: str) -> str:
    """The table's column that a name means, empty if none."""
    plain = name.strip()
    return next((column for column, form in _FORMS.items() if form.fullmatch(plain)), "")


def sniff(head: Head) -> float:
    """By its columns: certain enough for spans and jobs, less for what may be telemetry of another tool."""
    if head.is_dir:
        return 0.0
    names = first_names(head)
    kind = kind_of(names, head.path.name) if names else ""
    if kind in {"spans", "jobs"}:
        return 0.7
    structured = head.raw.startswith(PARQUET_MAGIC) or head.text.lstrip().startswith("{")
    return 0.4 if kind and (structured or kind == "events") else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read it.

    Raises:
        ImportFormatError: Its columns are none of the four kinds, or a time can't be read.
    """
    batches = records(path, sink)
    first = next(batches, None)
    if first is None:
        raise ImportFormatError("it holds no record.", where=str(path))
    kind = kind_of(first.columns, path.name)
    if kind == "gpu":
        _telemetry(first, batches, options, sink, str(path))
        return
    if not kind:
        shown = ", ".join(first.columns[:20])
        raise ImportFormatError(
            f"its columns ({shown}) are neither spans nor jobs, events or telemetry.", where=str(path),
            fix="Spans need name, start and end; jobs job, start and end; events name and time; telemetry time and a GPU metric.",
        )  # fmt: skip
    table = _Table.of(kind, first, options, sink, str(path))
    table.add(first)
    for batch in batches:
        table.add(batch)


@dataclass(slots=True)
class _Table:
    """Spans, jobs or events: which column is which, and how times are written."""

    kind: str
    columns: dict[str, str]
    reader: TimeReader
    lasts_ns: float
    sink: Sink

    @classmethod
    def of(cls, kind: str, first: pl.DataFrame, options: Options, sink: Sink, where: str) -> _Table:
        """Bind the columns.

        Raises:
            ImportFormatError: The start is no time.
        """
        columns: dict[str, str] = {}
        bindings = []
        for i, name in enumerate(first.columns):
            said = wished(options.wishes, name, i + 1)
            column = said.meaning if said and said.meaning in SYNONYMS else column_of(name)
            column = "t0_ns" if column == "t_ns" and "t0_ns" not in columns else column
            if (
                column
                and column not in columns
                and (column in TABLES[kind] or column in {"duration", "phase"})
            ):
                columns[column] = name
                bindings.append(
                    Binding(name, f"{kind}.{column}", sure="certain" if name == column else "likely")
                )
            else:
                bindings.append(Binding(name, sure="unrecognised"))
        check_bound(where, bindings)
        sink.bind(*bindings)
        form = given_format(options.time_format) if options.time_format else find_format(
            first[columns["t0_ns"]].head(200).to_list(), elapsed=True
        )  # fmt: skip
        if form is None:
            raise ImportFormatError(
                f"column {columns['t0_ns']!r} holds no times.",
                where=where,
                fix="Write Unix seconds, milliseconds or nanoseconds, or ISO 8601.",
            )
        reader = TimeReader(form, options.tz)
        sink.clock(reader.clock, resolution_ns=form.resolution_ns)
        unit = columns.get("duration", "").rpartition("_")[2].lower()
        return cls(kind, columns, reader, _PER_SECOND.get(unit, 1e9), sink)

    def add(self, batch: pl.DataFrame) -> None:
        """One batch into the table."""
        columns = {column: name for column, name in self.columns.items() if name in batch.columns}
        if "t0_ns" not in columns:
            self.sink.drop("no start", batch.height)
            return
        found = [self.reader.read(batch[columns[c]]).alias(c) for c in _TIMES if c in columns]
        if "t1_ns" not in columns and "duration" in columns:
            length = (
                (batch[columns["duration"]].cast(pl.Float64, strict=False) * self.lasts_ns)
                .round()
                .cast(pl.Int64, strict=False)
            )
            found.append((found[0] + length).alias("t1_ns"))
        for column, name in columns.items():
            if column in TABLES[self.kind] and column not in {*_TIMES, "phase", "origin"}:
                dtype = TABLES[self.kind][column]
                found.append((batch[name].cast(pl.Float64, strict=False).cast(pl.Int64, strict=False).cast(dtype, strict=False)
                              if dtype in _INTEGERS else batch[name]).alias(column))  # fmt: skip
        frame = self._phases(pl.DataFrame(found), batch, columns)
        needed = ["t0_ns"] if self.kind == "events" else ["t0_ns", "t1_ns"]
        good = frame.drop_nulls(needed)
        self.sink.drop("start or end can't be read", frame.height - good.height)
        self.sink.rows(self.kind, good)

    def _phases(self, frame: pl.DataFrame, batch: pl.DataFrame, columns: dict[str, str]) -> pl.DataFrame:
        """Phase where it is one of ours; it names the span where no other name is; origin."""
        if self.kind != "spans":
            return frame
        if "phase" in columns:
            phase = batch[columns["phase"]]
            known = pl.DataFrame({"p": phase}).select(pl.when(pl.col("p").is_in(list(PHASES))).then("p"))["p"]
            frame = frame.with_columns(known.alias("phase"))
            if "name" not in columns:
                frame = frame.with_columns(phase.alias("name"))
        told = (
            batch[columns["origin"]] if "origin" in columns else pl.Series("o", ["measured"] * batch.height)
        )
        return frame.with_columns(
            pl.when(told == "reconstructed")
            .then(pl.lit("reconstructed"))
            .otherwise(pl.lit("measured"))
            .alias("origin")
        )


def _telemetry(
    first: pl.DataFrame, rest: Iterator[pl.DataFrame], options: Options, sink: Sink, where: str
) -> None:
    """Telemetry by the same rules as in a CSV."""
    names = tuple(first.columns)
    sample = tuple(tuple(str(cell or "") for cell in row) for row in first.head(400).iter_rows())
    layout = Layout(",", names, has_header=True, skip=0, quoted=False, sample=sample)
    columns = find_columns(layout, options, where)
    check_bound(where, list(columns.bindings))
    sink.bind(*columns.bindings)
    reader = time_reader(columns, options, sink, where)
    whole = columns.time is not None and columns.time.resolution_ns > 0
    samples = Samples(sink, options, whole_seconds=whole, timeless=reader is None)
    done = 0
    for batch in _chain(first, rest):
        wide = batch.select(
            (pl.col(name) if name in batch.columns else pl.lit(None, dtype=pl.String)).alias(f"c{i}")
            for i, name in enumerate(names)
        )
        for frame in telemetry_batch(wide, layout, columns, reader, options, done):
            samples.add(frame)
        done += batch.height
    samples.finish()


def _chain(first: pl.DataFrame, rest: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    yield first
    yield from rest
