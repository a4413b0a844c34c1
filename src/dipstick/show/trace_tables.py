"""Tables for other tools: Parquet as it is, CSV without cells that a spreadsheet would run."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.show import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dipstick.show.trace_events import Trace

SCHEMA: Final = {
    "kind": pl.String, "group": pl.String, "track": pl.String, "name": pl.String, "t0_s": pl.Float64, "t1_s": pl.Float64,
    "value": pl.Float64, "unit": pl.String, "facts": pl.String,
}  # fmt: skip
_RUNS_AS_FORMULA: Final = r"^\s*[=+\-@]"


def timeline(trace: Trace) -> pl.DataFrame:
    """Slices and values of a trace as one long table, in the order of time."""
    frame = pl.DataFrame([*_slices(trace), *_values(trace)], SCHEMA, orient="row")
    return frame.sort("t0_s", "group", "track", maintain_order=True)


def _slices(trace: Trace) -> Iterator[tuple[Any, ...]]:
    tracks = {track.key: track for track in trace.tracks}
    for one in trace.slices:
        track = tracks[one.track]
        facts = json.dumps(one.args, allow_nan=False) if one.args else None
        yield (
            "slice",
            tracks[track.parent].name,
            track.name,
            one.name,
            one.t0 / 1e9,
            one.t1 / 1e9,
            None,
            None,
            facts,
        )


def _values(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """A value holds until the next one of its track; one that was not measured ends it."""
    tracks = {track.key: track for track in trace.tracks}
    for counter in trace.counters:
        track = tracks[counter.track]
        ends = [*counter.t[1:].tolist(), None]
        for t, end, value in zip(counter.t.tolist(), ends, counter.value.tolist(), strict=True):
            if value == value:  # noqa: PLR0124 - not NaN
                until = None if end is None else end / 1e9
                yield (
                    "value",
                    tracks[track.parent].name,
                    track.name,
                    track.name,
                    t / 1e9,
                    until,
                    value,
                    track.unit,
                    None,
                )


def parquet(frame: pl.DataFrame) -> bytes:
    """The table, compressed."""
    out = io.BytesIO()
    frame.write_parquet(out, compression="zstd")
    return out.getvalue()


def csv(frame: pl.DataFrame) -> bytes:
    """The table as text. A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    texts = [name for name, kind in frame.schema.items() if kind.base_type() in (pl.String, pl.Categorical)]
    safe = frame.with_columns(_harmless(frame[name].cast(pl.String)) for name in texts)
    return safe.write_csv().encode("utf-8", "replace")


def _harmless(column: pl.Series) -> pl.Series:
    distinct = column.drop_nulls().unique().to_list()
    cleaned = {text: words.clean(text, 2000) for text in distinct}
    column = column.replace(cleaned)
    return pl.select(
        pl.when(column.str.contains(_RUNS_AS_FORMULA)).then("'" + column).otherwise(column).alias(column.name)
    ).to_series()


TABLES: Final[dict[str, Callable[[pl.DataFrame], bytes]]] = {".parquet": parquet, ".csv": csv}
