"""CSV that the W&B web page exports from a chart: an x axis, then ``<run> - <key>`` with ``__MIN`` and ``__MAX``."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding, check_bound
from dipstick.importers.binding import factor as factor_of
from dipstick.importers.samples import Samples
from dipstick.importers.system_keys import SystemKey, system_key
from dipstick.importers.times import TimeFormat, TimeReader, find_format

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "wandb-export"
NAME: Final = "W&B chart export (CSV from the web page)"

RELATIVE: Final = ("relative time (process)", "relative time (wall)", "relative time", "_runtime")
WALL: Final = ("wall time", "_timestamp", "timestamp")
STEP: Final = ("step", "_step", "global step", "train/global_step", "trainer/global_step")
RUNS_TABLE: Final = ('"Name","State","Notes"', "Name,State,Notes")
LARGEST: Final = 256 << 20
"""Exports are thinned by the server to some thousand points: a larger file is something else."""


@dataclass(frozen=True, slots=True)
class Series:
    """One column of values."""

    name: str
    run: str
    key: str


def _header(head: Head) -> list[str]:
    return next(csv.reader(io.StringIO(head.lines[0])), []) if head.lines else []


def series_of(names: list[str]) -> list[Series]:
    """Columns with values: split at the last `` - ``, because run names hold anything; MIN and MAX are not series."""
    found = []
    for name in names:
        run, dash, key = name.rpartition(" - ")
        if dash and not key.endswith(("__MIN", "__MAX")):
            found.append(Series(name, run.removeprefix("Group: "), key))
    return found


def sniff(head: Head) -> float:
    """The first column is an axis, the others are ``<run> - <key>``."""
    if head.text.startswith(RUNS_TABLE):
        return 0.9
    names = _header(head)
    if len(names) < 2 or not series_of(names[1:]):  # noqa: PLR2004 - axis and series
        return 0.0
    fits = [name for name in names[1:] if " - " in name]
    return 0.9 if len(fits) == len(names) - 1 else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read the chart: GPU metrics become telemetry, other keys scalars.

    Raises:
        ImportFormatError: It is the table of runs; or the chart shows several runs and none was chosen.
    """
    from dipstick.importers.base import Head  # noqa: PLC0415 - typing only above

    head = Head(path)
    if head.text.startswith(RUNS_TABLE):
        raise ImportFormatError(
            "it is the table of runs, not a series.", where=str(path),
            fix="Open a chart (system/gpu.0.gpu), choose the x axis Relative Time or Wall Time, and export that as CSV.",
        )  # fmt: skip
    if path.stat().st_size > LARGEST:
        raise ImportFormatError(
            "it is larger than any chart export (256 MiB).",
            where=str(path),
            fix="--format csv reads large tables.",
        )
    try:
        frame = pl.read_csv(
            path, glob=False, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy"
        )
    except pl.exceptions.PolarsError as error:
        raise ImportFormatError(
            f"it can't be read as a chart: {str(error).splitlines()[0]}", where=str(path)
        ) from error
    names = frame.columns
    axis, chosen = names[0], _one_run(series_of(names[1:]), options, str(path))
    sink.saw(frame.height)
    is_system = [s for s in chosen if system_key(s.key) is not None]
    form = _axis(axis, frame[axis].head(200).to_list(), needed=bool(is_system), where=str(path))
    bindings = _bindings(names, axis, form, chosen)
    check_bound(str(path), bindings)
    sink.bind(*bindings)
    reader = None if form is None else TimeReader(form, options.tz)
    if reader is not None:
        sink.clock(reader.clock, resolution_ns=form.resolution_ns if form else 0)
    times = None if reader is None else reader.read(frame[axis])
    _note_means(frame, chosen, sink)
    _telemetry(frame, times, is_system, options, sink)
    _scalars(frame, axis, times, [s for s in chosen if s not in is_system], sink)
    sink.progress(path.stat().st_size)


def _one_run(found: list[Series], options: Options, where: str) -> list[Series]:
    """The series of one run.

    Raises:
        ImportFormatError: There are several runs.
    """
    runs = list(dict.fromkeys(s.run for s in found))
    if options.run:
        mine = [s for s in found if s.run == options.run]
        if not mine:
            raise ImportFormatError(
                f"it shows no run {options.run!r}.", where=where, fix=f"Runs: {', '.join(runs[:20])}."
            )
        return mine
    if len(runs) > 1:
        raise ImportFormatError(
            f"the chart shows {len(runs)} runs, and a recording is of one.", where=where,
            fix=f"Choose: --run NAME, one of {', '.join(runs[:20])}.",
        )  # fmt: skip
    return found


def _axis(axis: str, cells: list[Any], *, needed: bool, where: str) -> TimeFormat | None:
    """How the x axis tells time; None: it is a step.

    Raises:
        ImportFormatError: GPU metrics over steps, which are no time.
    """
    low = axis.strip().lower()
    if low in RELATIVE:
        return TimeFormat("relative", unit="s", says="seconds since the run's start")
    if low in WALL:
        return find_format(cells)
    if needed:
        raise ImportFormatError(
            f"its GPU metrics stand over {axis!r}, which is no time.", where=where,
            fix="Export the chart again with the x axis Relative Time (or Wall Time).",
        )  # fmt: skip
    return None


def _bindings(names: list[str], axis: str, form: TimeFormat | None, chosen: list[Series]) -> list[Binding]:
    first = (
        Binding(axis, "elapsed" if form.kind == "relative" else "time", form.says)
        if form
        else Binding(axis, "step")
    )
    found = [first if form else Binding(axis, sure="not used", why="the step of each point")]
    by_name = {s.name: s for s in chosen}
    for name in names[1:]:
        one = by_name.get(name)
        known = system_key(one.key) if one else None
        if one is None:
            found.append(Binding(name, sure="not used", why="range of a bucket, or another run"))
        elif known is None:
            found.append(Binding(name, "scalar"))
        elif known.meaning:
            found.append(Binding(name, known.meaning, known.unit, gpu=known.gpu))
        else:
            found.append(Binding(name, sure="not used"))
    return found


def _numbers(cells: pl.Series) -> pl.Series:
    return cells.str.strip_chars().cast(pl.Float64, strict=False).fill_nan(None)


def _note_means(frame: pl.DataFrame, chosen: list[Series], sink: Sink) -> None:
    """Where MIN and MAX differ, a point is the mean of a bucket: short dips are averaged away."""
    many: Counter[str] = Counter()
    for one in chosen:
        low, high = f"{one.name}__MIN", f"{one.name}__MAX"
        if low in frame.columns and high in frame.columns:
            differ = (_numbers(frame[low]) != _numbers(frame[high])).sum()
            many[one.key] = int(differ)
    if many.total():
        sink.note("warning", f"{sink.file}: {many.total():,} points are means of several samples (MIN and MAX differ): "
                  "the page thinned them, short dips can't be seen; download wandb-events.jsonl for all samples")  # fmt: skip


def _telemetry(
    frame: pl.DataFrame, times: pl.Series | None, chosen: list[Series], options: Options, sink: Sink
) -> None:
    """Rows of each GPU: its metrics side by side."""
    if times is None:
        return
    by_gpu: dict[tuple[str | None, int], list[tuple[Series, SystemKey]]] = {}
    for one in chosen:
        known = system_key(one.key)
        if known is not None and known.gpu is not None and known.meaning:
            by_gpu.setdefault((known.host, known.gpu), []).append((one, known))
    samples = Samples(sink, options)
    for (host, gpu), mine in sorted(by_gpu.items(), key=lambda item: (item[0][0] or "", item[0][1])):
        values = [
            (_numbers(frame[one.name]) * factor_of(Binding("", key.meaning, key.unit))).alias(key.meaning)
            for one, key in mine
        ]
        rows = pl.DataFrame([times.alias("t_ns"), *values]).with_columns(
            pl.lit(gpu, dtype=pl.Int64).alias("gpu"), pl.lit(host, dtype=pl.String).alias("host")
        )
        samples.add(rows.filter(pl.any_horizontal(pl.col(v.name).is_not_null() for v in values)))
    samples.finish()


def _scalars(
    frame: pl.DataFrame, axis: str, times: pl.Series | None, chosen: list[Series], sink: Sink
) -> None:
    """One row a point."""
    step = _numbers(frame[axis]).round().cast(pl.Int64, strict=False) if times is None else None
    for one in chosen:
        columns = [
            pl.lit(one.key).alias("name"), _numbers(frame[one.name]).alias("value"),
            *([] if step is None else [step.alias("step")]), *([] if times is None else [times.alias("t_ns")]),
        ]  # fmt: skip
        sink.rows("scalars", frame.select(columns).drop_nulls("value"))
