"""Arrays and facts as one text for a page: deflated, base64, opened by page.js.

``deflate(header length, header, bytes)``: the header is JSON; its ``arrays`` say where each array lies. Arrays
are whole numbers in two or four bytes, each as the difference to the one before, byte planes apart (first all
low bytes, then ...), because that deflates to a third. Nothing of a recording is ever HTML or script that way.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from dipstick.model import FloatArray

TICK_S: Final = 1e-4
"""Times are multiples of this."""
ABSENT: Final = 65_535
"""What stands for a value that was not measured."""


class Pack:
    """Collects arrays; the same array is stored once."""

    def __init__(self) -> None:
        self._index: list[list[int]] = []
        self._bytes: list[bytes] = []
        self._size = 0
        self._known: dict[bytes, int] = {}
        self._most: list[int] = []

    def times(self, seconds: FloatArray) -> int:
        """Points in time or lengths, from 0 to five days; returns the array's number."""
        ticks = np.round(np.clip(np.nan_to_num(seconds), 0, (2**32 - 1) * TICK_S) / TICK_S)
        return self._add(ticks.astype(np.uint32))

    def values(self, value: FloatArray, unit: float) -> int:
        """Numbers as multiples of ``unit``, from 0 to 65,534 of them; what is not finite is absent."""
        steps = np.round(np.clip(np.nan_to_num(value), 0, (ABSENT - 1) * unit) / unit)
        return self._add(np.where(np.isfinite(value), steps, ABSENT).astype(np.uint16))

    def numbers(self, value: npt.ArrayLike) -> int:
        """Whole numbers from 0 to 2^32 - 2; what is negative, larger or null is absent (2^32 - 1)."""
        found = np.nan_to_num(np.asarray(value, float), nan=-1.0)
        known = (found >= 0) & (found < 2**32 - 1)
        return self._add(np.where(known, found, 2**32 - 1).astype(np.uint32))

    def count(self, number: int) -> int:
        """How long an array is."""
        return self._index[number][1]

    def widest(self, number: int) -> float:
        """The longest of an array of lengths, seconds."""
        return self._most[number] * TICK_S

    def text(self, header: dict[str, Any]) -> str:
        """Everything as base64; letters, digits, ``+/=`` and no others."""
        facts = {**header, "arrays": self._index, "tick_s": TICK_S, "absent": ABSENT}
        head = json.dumps(facts, allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode()
        whole = struct.pack("<I", len(head)) + head + b"".join(self._bytes)
        return base64.b64encode(zlib.compress(whole, 6)).decode()

    def _add(self, array: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]) -> int:
        """Differences wrap round, so every array can be told exactly."""
        size = array.dtype.itemsize
        planes = np.diff(array, prepend=array.dtype.type(0)).astype(f"<u{size}").view(np.uint8)
        content = planes.reshape(-1, size).T.tobytes()
        key = bytes([size]) + content
        if key not in self._known:
            self._known[key] = len(self._index)
            self._index.append([self._size, len(array), size])
            self._bytes.append(content)
            self._most.append(int(array.max(initial=0)))
            self._size += len(content)
        return self._known[key]
