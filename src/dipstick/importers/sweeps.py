"""Rows that do not name their GPU: rows of one sweep lie a few milliseconds apart, the sweeps much further."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding

if TYPE_CHECKING:
    from dipstick.importers.base import Sink

TOGETHER_NS: Final = 10_000_000
"""Rows of one sweep follow each other within this (0 to 2 ms observed); nobody polls faster."""

USUAL: Final = 0.9
"""Share of the sweeps that must have the same number of rows."""


class Sweeps:
    """Numbers the rows of each sweep; decides on the first batch how many GPUs there are.

    Args:
        gpus: ``--gpus``; None: found out.
        whole_seconds: Times have no fraction: rows of one second may be several GPUs, or one GPU polled fast.
    """

    def __init__(self, gpus: int | None, *, whole_seconds: bool) -> None:
        self._gpus = gpus
        self._whole = whole_seconds
        self._done = 0

    def number(self, frame: pl.DataFrame, sink: Sink) -> pl.DataFrame:
        """Add ``gpu``.

        Args:
            frame: With ``t_ns``.
            sink: Gets the binding, once.

        Raises:
            ImportFormatError: Whether there are several GPUs can't be told; ``--gpus`` is asked for.
        """
        if self._gpus is None:
            self._gpus = self._count(frame["t_ns"], sink)
        if self._gpus == 1:
            return frame.with_columns(pl.lit(0, dtype=pl.Int64).alias("gpu"))
        start = pl.col("t_ns").diff().fill_null(TOGETHER_NS).abs() >= TOGETHER_NS
        if self._whole or frame["t_ns"].diff().max() is None:
            place = (pl.int_range(pl.len()) + self._done) % self._gpus
        else:
            place = pl.int_range(pl.len()).over(start.cum_sum())
        self._done += frame.height
        return frame.with_columns(place.cast(pl.Int64).alias("gpu"))

    def _count(self, times: pl.Series, sink: Sink) -> int:
        """Rows of a sweep."""
        apart = 1 if self._whole else TOGETHER_NS
        sweep = (times.diff().fill_null(0).abs() >= apart).cum_sum()
        sizes: Counter[int] = Counter(sweep.value_counts()["count"].to_list())
        usual, many = sizes.most_common(1)[0]
        is_regular = many >= USUAL * sizes.total()
        if usual == 1 and (is_regular or many >= sizes.total() / 2):
            return 1
        if self._whole or not is_regular:
            raise ImportFormatError(
                f"its rows name no GPU, and {usual} rows share {'a second' if self._whole else 'a moment'}: several GPUs, or one that was polled often?",
                where=sink.file,
                fix=f"Say how many: --gpus {usual} or --gpus 1.",
            )
        why = f"{usual} rows within {TOGETHER_NS // 1_000_000} ms are one sweep, in order of the index"
        sink.bind(Binding("(order of rows)", "gpu", "", "likely", why))
        return usual
