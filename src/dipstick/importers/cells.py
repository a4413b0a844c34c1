"""Rows of a delimited text as columns of text, whatever the text holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_cells(
    body: bytes, width: int, separator: str, *, quoted: bool, where: str, wanted: Sequence[int] | None = None
) -> pl.DataFrame:
    """Cells as text in columns ``c0`` ... and ``extra`` (what comes behind the last column; null if nothing does).

    Args:
        body: Whole lines.
        width: Number of columns.
        separator: Between cells.
        quoted: Cells may be quoted; where the quotes do not match they are plain characters.
        where: The file, for messages.
        wanted: Only these columns; all if None.

    Raises:
        ImportFormatError: It is no text.
    """
    names = [f"c{i}" for i in range(width)]
    chosen = names if wanted is None else [f"c{i}" for i in wanted]
    data = separator.join([*names, "extra"]).encode() + b"\n" + body
    for quote in ('"', None) if quoted else (None,):
        try:
            return pl.read_csv(
                data, separator=separator, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy",
                quote_char=quote, columns=[*chosen, "extra"],
            )  # fmt: skip
        except pl.exceptions.PolarsError as error:
            problem = str(error).splitlines()[0]
    raise ImportFormatError(f"it can't be read as a table: {problem}", where=where)
