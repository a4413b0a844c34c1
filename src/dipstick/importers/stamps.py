"""Times that are all written with the same width, as nvidia-smi does: read by arithmetic on their digits.

A general parser looks at every character of every stamp. In a log the part up to the minute hardly changes: it is
parsed once for each run of equal ones, and the seconds are six digits and a point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from dipstick.model import IntArray

MANY: Final = 10_000
"""Below this many stamps the general parser is as fast."""

BASE, MINUTE = 10, 60
_ZERO: Final = ord("0")
SECONDS: Final = ":%S%.f"


def read_fixed(text: pl.Series, pattern: str) -> pl.Series | None:
    """Local times as nanoseconds, None where they are not all of one form (then the general parser reads them).

    Args:
        text: Stamps without null, such as ``2024/11/23 12:23:29.950``.
        pattern: Their ``strptime`` format.
    """
    if not pattern.endswith(SECONDS) or len(text) < MANY or text.null_count():
        return None
    cells = _cells(text)
    if cells is None:
        return None
    point = _point(cells)
    if point < 0:
        return None
    digits = cells[:, [point - 2, point - 1, *range(point + 1, cells.shape[1])]].astype(np.int64) - _ZERO
    is_clock = digits.min() >= 0 and digits.max() < BASE and digits[:, 0].max() < MINUTE // BASE
    is_same = (cells[:, point] == ord(".")).all() and (cells[:, point - 3] == ord(":")).all()
    if not (is_clock and is_same):
        return None
    scale = 10 ** np.arange(9 - (digits.shape[1] - 2), 9)[::-1]
    seconds = (digits[:, 0] * 10 + digits[:, 1]) * 1_000_000_000 + digits[:, 2:] @ scale
    minutes = _minutes(cells[:, : point - 3], pattern.removesuffix(SECONDS))
    return None if minutes is None else pl.Series(text.name, minutes + seconds)


def _cells(text: pl.Series) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]] | None:
    """Bytes of the stamps as a table, None if they have several widths."""
    import pyarrow as pa  # noqa: PLC0415 - only for bulk

    array = text.to_arrow(compat_level=pl.CompatLevel.oldest())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _, offset_bytes, data = array.buffers()
    offsets = np.frombuffer(offset_bytes, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    widths = np.diff(offsets)
    if (widths != widths[0]).any() or not 8 < widths[0] < 40:  # noqa: PLR2004 - a stamp
        return None
    return np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(len(array), int(widths[0]))


def _point(cells: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> int:
    """Where the fraction begins; -1 if there is none, or it has more than nine digits."""
    at = bytes(cells[0]).rfind(b".")
    return at if at >= 8 and 1 <= cells.shape[1] - at - 1 <= 9 else -1  # noqa: PLR2004 - behind date and time; digits


def _minutes(cells: np.ndarray[tuple[int, int], np.dtype[np.uint8]], pattern: str) -> IntArray | None:
    """The part up to the minute, parsed once a run."""
    keys = np.ascontiguousarray(cells).view(f"S{cells.shape[1]}").ravel()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    texts = pl.Series([key.decode("latin-1") for key in keys[starts]])
    parsed = texts.str.to_datetime(pattern, strict=False, time_unit="ns").cast(pl.Int64)
    if parsed.null_count():
        return None
    found: IntArray = np.repeat(parsed.to_numpy(), np.diff(np.append(starts, len(keys))))
    return found
