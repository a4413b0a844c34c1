"""The sampler's tables while they are written: the last minutes of each, on the common time axis."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.recording import clean, order, timeline
from dipstick.recording.layout import PARQUET
from dipstick.recording.parts import UNREADABLE, conform
from dipstick.recording.schema import frame_schema
from dipstick.recording.tail import StreamTail

if TYPE_CHECKING:
    from collections.abc import Collection

    from dipstick.recording.layout import PartFile

    Place = tuple[str, str]

WHOLE: Final = ("gpus", "anchors")
"""Small tables of which every row is kept."""
MOST_ROWS: Final = 200_000
"""Of a table and writer, whatever their times say."""


class Streams:
    """Rows of the tables that are followed, by table and writer.

    Args:
        tables: Which tables; of those with times only the last ``keep_ns`` stay.
        keep_ns: How much of them.
    """

    def __init__(self, tables: Collection[str], keep_ns: int) -> None:
        self._tables = frozenset((*tables, *WHOLE))
        self._keep_ns = keep_ns
        self._tails: dict[str, StreamTail] = {}
        self._taken: set[str] = set()
        self._rows: dict[Place, pl.DataFrame] = {}

    def look(self, parts: Collection[PartFile]) -> None:
        """Read what was appended to streams, and what a stream held beyond that when it became a part."""
        begun = bool(self._tails or self._taken)
        for part in parts:
            name = f"{part.table}/{part.writer}-{part.number}"
            if part.table not in self._tables or name in self._taken:
                continue
            if part.path.suffix == f".{PARQUET}":
                self._taken.add(name)
                if begun or part.table in WHOLE:
                    self._add(part, _rest(part, self._tails.pop(name, None)))
            else:
                self._add(part, self._tails.setdefault(name, StreamTail(part.path)).read())

    def _add(self, part: PartFile, frame: pl.DataFrame) -> None:
        if frame.is_empty():
            return
        new = conform(frame.lazy(), frame.schema, part.table).collect()
        place = part.table, part.writer
        rows = pl.concat([self._rows[place], new]) if place in self._rows else new
        if part.table not in WHOLE:
            rows = rows.filter(clean.sane("t_ns"))
            rows = rows.filter(pl.col("t_ns") >= pl.col("t_ns").max() - self._keep_ns)
        self._rows[place] = rows.tail(MOST_ROWS)

    def table(self, name: str, start_unix_ns: int) -> pl.DataFrame:
        """A table's rows of all writers, cleaned and in order, times in ns since ``start_unix_ns``."""
        counts: Counter[str] = Counter()
        frames = [
            self._converted(table, writer, rows, counts)
            for (table, writer), rows in self._rows.items()
            if table == name
        ]
        frame = pl.concat([pl.DataFrame(schema=frame_schema(name)), *frames])
        if name in WHOLE:
            return frame.unique(maintain_order=True)
        frame = order.in_order(clean.clean_values(frame, name, counts), name, counts)[0]
        return frame.with_columns(pl.col("t_ns") - start_unix_ns)

    def _converted(self, table: str, writer: str, rows: pl.DataFrame, counts: Counter[str]) -> pl.DataFrame:
        if table in WHOLE:
            return rows
        anchors = self._rows.get(("anchors", writer))
        clocks = timeline.Clocks({}, {}) if anchors is None else timeline.fit_clocks(anchors)
        return timeline.convert(rows, table, clocks, counts)


def _rest(part: PartFile, tail: StreamTail | None) -> pl.DataFrame:
    """Rows of a finished part that its stream had not shown yet."""
    try:
        return pl.scan_parquet(part.path, glob=False).slice(0 if tail is None else tail.rows).collect()
    except UNREADABLE:
        return pl.DataFrame()
