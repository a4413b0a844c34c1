"""Protocol buffers as they lie in a file, without their schema: fields by number, one message at a time.

Only what readers of logs need (protobuf.dev/programming-guides/encoding): no code is generated, nothing nests on its
own, and nothing is read beyond the message.
"""

from __future__ import annotations

import struct
from typing import Final

Value = int | bytes
"""A varint, or the bytes of a string, message, packed list or fixed number."""

NANOS: Final = 1_000_000_000
LATEST_S: Final = 1 << 33
"""No log was written after 2242."""

_VARINT, _FIXED64, _BLOB, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT: Final = 10
_MASK: Final = (1 << 64) - 1


class WireError(ValueError):
    """These bytes are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned 64-bit number at a position, and where it ends.

    Raises:
        WireError: It does not end, or is longer than ten bytes.
    """
    found = 0
    for i, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        found |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says: more follows
            return found & _MASK, at + i + 1
    raise WireError("a number does not end")


def _field(data: bytes, at: int) -> tuple[int, Value, int]:
    """Number and value of the field at a position, and where it ends."""
    key, at = varint(data, at)
    number, kind = key >> 3, key & 7
    if number == 0:
        raise WireError("a field has the number 0")
    if kind == _VARINT:
        value, at = varint(data, at)
        return number, value, at
    if kind == _BLOB:
        size, at = varint(data, at)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise WireError(f"wire type {kind} is not in use")
    if at + size > len(data):
        raise WireError("a field is longer than its message")
    return number, data[at : at + size], at + size


class Message:
    """The fields of one message; what is absent, or of another wire type than asked for, is None.

    Args:
        data: The message; every byte belongs to a field.

    Raises:
        WireError: It is none.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[Value]] = {}
        at = 0
        while at < len(data):
            number, value, at = _field(data, at)
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def blobs(self, number: int) -> list[bytes]:
        """Every value of a repeated field."""
        return [value for value in self._fields.get(number, ()) if isinstance(value, bytes)]

    def blob(self, number: int) -> bytes | None:
        """The last value counts, as the encoding says."""
        found = self.blobs(number)
        return found[-1] if found else None

    def text(self, number: int) -> str:
        """A string; empty if it is absent, as the encoding says. What is no UTF-8 is replaced."""
        return (self.blob(number) or b"").decode("utf-8", "replace")

    def integer(self, number: int) -> int | None:
        """A signed integer (int32, int64)."""
        found = [value for value in self._fields.get(number, ()) if isinstance(value, int)]
        return None if not found else found[-1] - (1 << 64 if found[-1] >> 63 else 0)

    def number(self, number: int) -> float | None:
        """A double or float, by its size."""
        found = self.blob(number) or b""
        form = {8: "<d", 4: "<f"}.get(len(found))
        return None if form is None else float(struct.unpack(form, found)[0])

    def message(self, number: int) -> Message | None:
        """A message within.

        Raises:
            WireError: Its bytes are none.
        """
        found = self.blob(number)
        return None if found is None else Message(found)

    def time_ns(self, number: int) -> int | None:
        """A ``google.protobuf.Timestamp`` as Unix nanoseconds; None if it is absent or no time of a log."""
        stamp = self.message(number)
        if stamp is None:
            return None
        seconds, nanos = stamp.integer(1) or 0, stamp.integer(2) or 0
        return seconds * NANOS + nanos if 0 < seconds < LATEST_S and 0 <= nanos < NANOS else None
