"""Reads a GGUF file: metadata and tensors, dequantized. Standard library and NumPy; nothing in the file is executed.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Little-endian; strings are a 64-bit length and UTF-8;
tensors start at the next multiple of ``general.alignment`` after the header, each at its own offset from there.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crystal_rl.errors import CrystalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _F16, _Q4_1, _Q8_0 = 0, 1, 3, 8
_BLOCK = 32
_BLOCK_BYTES = {_F32: 4 * _BLOCK, _F16: 2 * _BLOCK, _Q4_1: 20, _Q8_0: 34}


@dataclass(frozen=True, slots=True)
class _Info:
    shape: tuple[int, ...]
    kind: int
    offset: int


class Gguf:
    """An open GGUF file.

    Attributes:
        metadata: Key to value, as written.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._bytes[:4] != b"GGUF":
            raise CrystalError("not a GGUF file", where=str(path))
        self._at = 4
        _, tensors, pairs = self._take("IQQ")
        self.metadata = dict(self._pair() for _ in range(pairs))
        self._infos = dict(self._info() for _ in range(tensors))
        alignment = int(self.metadata.get("general.alignment", 32))
        self._data = -(-self._at // alignment) * alignment

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Name and values of each tensor, rows first: shape (out, in) for a linear layer."""
        for name, info in self._infos.items():
            yield name, self._values(name, info)

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self._bytes, self._at)
        self._at += struct.calcsize(f"<{layout}")
        return values

    def _text(self) -> str:
        (length,) = self._take("Q")
        self._at += length
        return self._bytes[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            inner, count = self._take("IQ")
            if inner in _SCALARS:
                return list(self._take(f"{count}{_SCALARS[inner]}"))
            return [self._value(inner) for _ in range(count)]
        return self._take(_SCALARS[kind])[0]

    def _pair(self) -> tuple[str, Any]:
        key = self._text()
        return key, self._value(self._take("I")[0])

    def _info(self) -> tuple[str, _Info]:
        name = self._text()
        (dimensions,) = self._take("I")
        shape = self._take(f"{dimensions}Q")
        kind, offset = self._take("IQ")
        return name, _Info(tuple(int(n) for n in reversed(shape)), kind, offset)

    def _values(self, name: str, info: _Info) -> NDArray[np.float32]:
        if info.kind not in _BLOCK_BYTES:
            raise CrystalError(f"tensor {name} has the unknown type {info.kind}")
        count = int(np.prod(info.shape))
        size = count * _BLOCK_BYTES[info.kind] // _BLOCK
        begin = self._data + info.offset
        raw = np.frombuffer(self._bytes, np.uint8, size, begin)
        return dequantized(raw, info.kind).reshape(info.shape)


def dequantized(raw: NDArray[np.uint8], kind: int) -> NDArray[np.float32]:
    """Bytes of a tensor as float32, flat.

    Q4_1: blocks of 32 values ``scale × nibble + minimum``: half scale, half minimum, 16 bytes whose low nibbles are the
    first 16 values. Q8_0: half scale, 32 signed bytes.
    """
    if kind in {_F32, _F16}:
        return raw.view(np.float32 if kind == _F32 else np.float16).astype(np.float32)
    blocks: NDArray[np.uint8] = raw.reshape(-1, _BLOCK_BYTES[kind])
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == _Q8_0:
        signed: NDArray[np.float32] = scale * blocks[:, 2:].view(np.int8)
        return signed.ravel()
    minimum = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    values: NDArray[np.float32] = scale * nibbles + minimum
    return values.ravel()
