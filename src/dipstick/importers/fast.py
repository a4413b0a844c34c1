"""The bulk of a regular table: units cut off as bytes, numbers parsed by the CSV reader itself.

Cells such as ``98 %`` are text to a CSV reader, and turning text into numbers column by column costs more than
reading the file. Here the characters of the units are deleted from the whole piece first. A piece that is not regular
(headers, blank lines, error texts, more cells than columns) is left to the careful way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.importers.layout import is_missing

if TYPE_CHECKING:
    from dipstick.importers.columns import Columns
    from dipstick.importers.layout import Layout

PATIENCE: Final = 3
"""After so many irregular pieces the whole file is read the careful way."""

_DIGITS: Final = frozenset("0123456789.+-eE")


class FastReader:
    """Reads regular pieces of one table.

    Args:
        layout: Of the table.
        columns: What its columns are.
    """

    def __init__(self, layout: Layout, columns: Columns) -> None:
        self._layout = layout
        self._left = PATIENCE
        self._time = columns.places.get("time", columns.places.get("elapsed", -1))
        self._gpu = columns.places.get("gpu")
        self._metrics = [i for i, *_ in columns.metrics]
        self._delete = _unit_bytes(layout, columns)
        self._is_fit = self._delete is not None and self._time >= 0 and _is_regular(layout, columns)

    def read(self, body: bytes) -> pl.DataFrame | None:
        """Columns ``c0`` ...: time as text without blanks, GPU and metrics as numbers; None if it is not regular."""
        if not self._is_fit or self._left <= 0:
            return None
        frame = self._parse(body)
        if frame is None:
            self._left -= 1
        return frame

    def _parse(self, body: bytes) -> pl.DataFrame | None:
        width = len(self._layout.names)
        header = self._layout.delimiter.join([*(f"c{i}" for i in range(width)), "extra"]).encode() + b"\n"
        types: dict[str, pl.DataType | type[pl.DataType]] = {f"c{i}": pl.String for i in range(width)}
        types |= {"extra": pl.String, **{f"c{i}": pl.Float64 for i in self._metrics}}
        if self._gpu is not None:
            types[f"c{self._gpu}"] = pl.Int64
        wanted = sorted({self._time, *self._metrics, *([] if self._gpu is None else [self._gpu])})
        try:
            frame = pl.read_csv(
                header + body.translate(None, self._delete or b""), separator=self._layout.delimiter, schema_overrides=types,
                truncate_ragged_lines=True, ignore_errors=True, quote_char=None, columns=[*(f"c{i}" for i in wanted), "extra"],
            )  # fmt: skip
        except pl.exceptions.PolarsError:
            return None
        time = frame[f"c{self._time}"]
        odd = frame["extra"].null_count() < frame.height or time.null_count() or frame.is_empty()
        if odd or (self._gpu is not None and frame[f"c{self._gpu}"].null_count()):
            return None
        starts_with_digit = time.str.head(1).is_in(list("0123456789")).all()
        return frame.drop("extra") if starts_with_digit else None


def _is_regular(layout: Layout, columns: Columns) -> bool:
    """One table of plain cells: no quotes, no blanks as delimiter, no decimal comma; GPU as a plain number."""
    if (
        layout.quoted
        or layout.delimiter == " "
        or layout.decimal_comma
        or {"date", "host", "pid"} & columns.places.keys()
    ):
        return False
    if columns.time is None or columns.time.comma or columns.time.pattern.startswith("%a"):
        return False
    gpu = columns.places.get("gpu")
    if gpu is None and "uuid" in columns.places:
        return False  # the UUID tells the GPUs apart
    return gpu is None or all(cell.isascii() and cell.isdigit() for cell in layout.column(gpu))


def _unit_bytes(layout: Layout, columns: Columns) -> bytes | None:
    """Characters of the units in the metric cells, and the blank; None if they can't be deleted everywhere.

    Only where the tool defines the column is a unit taken to be the same in every row.
    """
    found = {" "}
    for i, *_ in columns.metrics:
        units = {c for cell in layout.column(i) if not is_missing(cell) for c in cell} - _DIGITS - {" "}
        if units and columns.bindings[i].sure != "certain":
            return None
        found |= units
    place = columns.places.get("time", columns.places.get("elapsed"))
    in_times = set() if place is None else {c for cell in layout.column(place) for c in cell} - {" "}
    in_indices = set() if "gpu" not in columns.places else set("".join(layout.column(columns.places["gpu"])))
    if (
        (found & (in_times | in_indices)) - {" "}
        or layout.delimiter in found
        or not all(c.isascii() for c in found)
    ):
        return None
    return "".join(sorted(found)).encode()
