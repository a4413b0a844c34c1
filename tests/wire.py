"""Writes what the binary readers read: protocol buffers, W&B's log and TensorBoard's, from their specifications.

Written apart from the readers (checksums by another algorithm), so that a mistake in one does not hide in the other.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# --- protocol buffers ---


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64-bit two's complement."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def whole(number: int, value: int) -> bytes:
    """An integer field."""
    return varint(number << 3) + varint(value)


def blob(number: int, value: bytes | str) -> bytes:
    """A string, bytes or message field."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number: int, value: float) -> bytes:
    """A double field."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """A float field."""
    return varint(number << 3 | 5) + struct.pack("<f", value)


def stamp(number: int, seconds: float) -> bytes:
    """A timestamp field, to the microsecond."""
    micros = round(seconds * 1e6)
    return blob(number, whole(1, micros // 10**6) + whole(2, micros % 10**6 * 1000))


# --- .wandb ---

WANDB_MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32_768


def wandb_log(records: Iterable[bytes]) -> bytes:
    """A ``.wandb`` file: records cut into fragments at the ends of blocks."""
    out = bytearray(WANDB_MAGIC)
    for record in records:
        rest, begun = record, False
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                left = BLOCK
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (3 if begun else 2) if rest else (4 if begun else 1)
            out += fragment(kind, part)
            begun = True
            if not rest:
                break
    return bytes(out)


def fragment(kind: int, data: bytes) -> bytes:
    """One fragment with its checksum."""
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def wandb_header(version: str = "0.21.0") -> bytes:
    """The first record."""
    return blob(21, blob(1, blob(1, version)))


def wandb_run(start_s: float, version: str = "", host: str = "node7") -> bytes:
    """The run record; older versions name their version in its telemetry."""
    told = blob(19, blob(4, "3.11.0") + blob(5, version)) if version else b""
    return blob(17, blob(1, "abc") + blob(13, host) + stamp(17, start_s) + told)


def wandb_stats(at_s: float, values: Mapping[str, Any]) -> bytes:
    """A record of system metrics; text is taken as the JSON it is."""
    return blob(
        7,
        stamp(2, at_s) + b"".join(blob(3, blob(1, key) + _json(16, value)) for key, value in values.items()),
    )


def wandb_history(values: Mapping[str, Any], *, nested: bool = False) -> bytes:
    """A row of ``wandb.log``; newer versions write the key as a nested one."""
    return blob(
        2,
        b"".join(blob(1, blob(2 if nested else 1, key) + _json(16, value)) for key, value in values.items()),
    )


def wandb_gpus(*gpus: tuple[str, int, str]) -> bytes:
    """The environment record: model, memory and UUID of each GPU."""
    inner = [blob(24, blob(1, name) + whole(2, memory) + blob(5, uuid)) for name, memory, uuid in gpus]
    return blob(26, blob(1, "Linux") + blob(5, "--token=hunter2") + b"".join(inner))


def wandb_output(at_s: float, line: str) -> bytes:
    """A console line."""
    return blob(13, stamp(2, at_s) + blob(3, line))


def wandb_exit(code: int, runtime_s: int) -> bytes:
    """The exit record."""
    return blob(18, whole(1, code) + whole(2, runtime_s))


def _json(number: int, value: Any) -> bytes:
    return blob(number, value if isinstance(value, str) else json.dumps(value))


# --- TensorBoard ---


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum as it is stored."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def tf_record(data: bytes) -> bytes:
    """One framed record."""
    head = struct.pack("<Q", len(data))
    return head + masked(head) + data + masked(data)


def tf_event(at_s: float, step: int, *values: bytes) -> bytes:
    """An event; a step of 0 is left out, as the encoding does."""
    number = whole(2, step) if step else b""
    return double(1, at_s) + number + blob(5, b"".join(blob(1, value) for value in values))


def tf_simple(tag: str, value: float) -> bytes:
    """A summary value with ``simple_value``."""
    return blob(1, tag) + single(2, value)


def tf_tensor(
    tag: str, dtype: int, content: bytes = b"", shape: tuple[int, ...] = (), listed: bytes = b""
) -> bytes:
    """A summary value with a tensor (``content`` raw, or ``listed`` as a field of its type), as TensorFlow 2 writes it."""
    dims = b"".join(blob(2, whole(1, size)) for size in shape)
    tensor = whole(1, dtype) + blob(2, dims) + (blob(4, content) if content else b"") + listed
    return blob(1, tag) + blob(8, tensor) + blob(9, blob(1, blob(1, "scalars")))


def tf_file(*events: bytes) -> bytes:
    """A whole event file, with the version that begins it."""
    return b"".join(map(tf_record, (double(1, 1_796_053_333.0) + blob(3, "brain.Event:2"), *events)))
