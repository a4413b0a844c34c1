"""Objects of one large JSON array, one at a time: the file is never in memory as a whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.chunks import open_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIECE: Final = 1 << 20
LARGEST_OBJECT: Final = 256 << 20


def objects(path: Path, key: str, progress: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """The objects of the first array that stands under ``key``.

    Args:
        path: A JSON file, perhaps gzip.
        key: Its name.
        progress: Is told how many bytes are read.

    Yields:
        One object after the other; a file that is cut gives those that are whole.

    Raises:
        ImportFormatError: There is no such array, or the file is no JSON.
    """
    decoder = json.JSONDecoder()
    with open_plain(path) as (plain, raw):
        buffer = _start(plain.read, f'"{key}"', str(path))
        size = PIECE
        while True:
            buffer = buffer.lstrip(" \t\r\n,")
            if buffer.startswith("]"):
                return
            try:
                value, end = decoder.raw_decode(buffer) if buffer else (None, 0)
            except ValueError:
                end = 0
            except RecursionError as error:
                raise ImportFormatError("its JSON is nested too deeply.", where=str(path)) from error
            if not end:
                more = plain.read(size)
                size *= 2  # an object that needs many pieces is not decoded once for each
                if not more or len(buffer) > LARGEST_OBJECT:
                    return
                buffer += more.decode("utf-8", "replace")
                continue
            size = PIECE
            buffer = buffer[end:]
            progress(raw.tell())
            if isinstance(value, dict):
                yield value


def _start(read: Callable[[int], bytes], key: str, where: str) -> str:
    """What follows the bracket behind the key."""
    buffer = ""
    while len(buffer) < LARGEST_OBJECT:
        more = read(PIECE)
        buffer += more.decode("utf-8", "replace")
        at = buffer.find(key)
        bracket = buffer.find("[", at) if at >= 0 else -1
        if bracket >= 0:
            return buffer[bracket + 1 :]
        if not more:
            break
    raise ImportFormatError(f"it has no array {key}.", where=where)
