"""The framing of TensorBoard's event files: TFRecord, a length and two masked CRC-32C a record."""

from __future__ import annotations

import os
import struct
from collections import Counter
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST: Final = 16 << 20
"""Bytes of a record that is read: scalars have some dozens, images and graphs may be larger."""

CHECKED: Final = 1 << 16
"""Bytes of a record whose data are checked: larger ones hold pictures, and checking them takes longer than reading."""

SEARCHED: Final = 1 << 20
"""Bytes that are searched for the next record behind a damaged length."""

_HEAD: Final = struct.Struct("<QI")
_TAIL: Final = 4
_MASK_DELTA: Final = 0xA282EAD8


def _table() -> tuple[int, ...]:
    """CRC-32C of every byte (Castagnoli's polynomial, reflected)."""
    found = list(range(256))
    for _ in range(8):
        found = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in found]
    return tuple(found)


_BYTES: Final = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: rotated and shifted, so that a CRC of data with CRCs in it is sound."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _BYTES[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def is_head(data: bytes) -> bool:
    """Whether these bytes begin with the length of a record."""
    return len(data) >= _HEAD.size and masked_crc(data[:8]) == _HEAD.unpack_from(data)[1]


class Records:
    """The records of one file.

    Args:
        stream: The file, at its beginning.
        progress: Is told how many bytes are read.

    Attributes:
        lost: What could not be read, by reason.
    """

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None] | None = None) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self._progress = progress or (lambda _done: None)
        self._budget = SEARCHED
        self.lost: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        """Records in file order; damaged ones are left out and counted."""
        at = 0
        while at < self._size:
            self._stream.seek(at)
            head = self._stream.read(_HEAD.size)
            if not is_head(head):
                found = self._next_head(at, len(head))
                if found is None:
                    return
                at = found
                continue
            size = _HEAD.unpack(head)[0]
            end = at + _HEAD.size + size + _TAIL
            if end > self._size:
                self.lost["record that is cut"] += 1
                return
            at = end
            if (data := self._data(size)) is not None:
                yield data
            self._progress(at)

    def _data(self, size: int) -> bytes | None:
        """Data of the record whose head was read; None if it is too large or damaged."""
        if size > LARGEST:
            self.lost["record above 16 MiB (no scalar)"] += 1
            return None
        data, tail = self._stream.read(size), self._stream.read(_TAIL)
        if size <= CHECKED and tail != struct.pack("<I", masked_crc(data)):
            self.lost["record with a wrong checksum"] += 1
            return None
        return data

    def _next_head(self, at: int, left: int) -> int | None:
        """Where the next record begins behind a damaged length; None: the file ends, or nothing was found near."""
        if left < _HEAD.size:
            self.lost["record that is cut"] += 1
            return None
        self.lost["record with a damaged length"] += 1
        self._stream.seek(at + 1)
        window = self._stream.read(max(self._budget, 0))
        for i in range(len(window) - _HEAD.size + 1):
            if is_head(window[i : i + _HEAD.size]):
                self._budget -= max(i, SEARCHED >> 10)  # a file of nothing but damage ends the search too
                return at + 1 + i
        self.lost["MiB after it, in which no record was found"] += -(-(self._size - at) >> 20)
        return None
