"""The framing of ``.wandb`` files: LevelDB's log format with W&B's header and checksum.

A header of seven bytes, then blocks of 32 KiB of which it is part. A record is one fragment (FULL) or several (FIRST,
MIDDLE ..., LAST); each fragment has a CRC-32 of its type and data, its length and its type. A killed run ends within a
record. W&B's own reader needs the SDK, opens the file for writing and stops at damage; LevelDB's knows another checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC: Final = b":W&B"
HEADER: Final = 7
BLOCK: Final = 32_768
LARGEST: Final = 32 << 20
"""Bytes of the largest record that is kept: records are some kilobytes."""

_FRAGMENT: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Log:
    """The records of one file.

    Args:
        stream: The file, at its beginning.
        progress: Is told how many bytes are read.

    Attributes:
        lost: What could not be read, by reason.
    """

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None] | None = None) -> None:
        self._stream = stream
        self._progress = progress or (lambda _done: None)
        self._parts: list[bytes] = []
        self._size = 0
        self.lost: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        """Records in file order; damaged ones are left out and counted."""
        first, done = HEADER, 0
        while block := self._stream.read(BLOCK):
            for kind, data in self._fragments(block, first):
                record = self._joined(kind, data)
                if record is not None:
                    yield record
            first, done = 0, done + len(block)
            self._progress(done)
        self._give_up("record that never ends (the run was killed, or the file is cut)")

    def _fragments(self, block: bytes, at: int) -> Iterator[tuple[int, bytes]]:
        """Fragments of one block; a wrong checksum costs the fragment, a wrong length the rest of the block."""
        while at + _FRAGMENT.size <= len(block):
            checksum, size, kind = _FRAGMENT.unpack_from(block, at)
            data = block[at + _FRAGMENT.size : at + _FRAGMENT.size + size]
            at += _FRAGMENT.size + size
            if not (checksum or size or kind):
                return  # space that was set aside and never written
            if at > len(block):
                self._damaged(
                    "fragment that ends outside of its block"
                    if len(block) == BLOCK
                    else "fragment that is cut"
                )
                return
            if zlib.crc32(data, zlib.crc32(bytes([kind]))) == checksum:
                yield kind, data
            else:
                self._damaged("fragment with a wrong checksum")

    def _damaged(self, why: str) -> None:
        self.lost[why] += 1
        self._drop()

    def _drop(self) -> None:
        self._parts, self._size = [], 0

    def _give_up(self, why: str) -> None:
        """A record that was begun is not finished."""
        if self._parts:
            self.lost[why] += 1
        self._drop()

    def _joined(self, kind: int, data: bytes) -> bytes | None:
        """The record that ends with this fragment."""
        if kind in (_FULL, _FIRST):
            self._give_up("record without its end")
        elif kind not in (_MIDDLE, _LAST) or not self._parts:
            self.lost["fragment without its beginning"] += 1
            return None
        self._parts.append(data)
        self._size += len(data)
        if self._size > LARGEST:
            self._give_up("record above 32 MiB")
        if kind not in (_FULL, _LAST) or not self._parts:
            return None
        record = b"".join(self._parts)
        self._drop()
        return record
