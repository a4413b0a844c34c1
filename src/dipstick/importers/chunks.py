"""A text file of any size as pieces of whole lines, each small: plain or gzip, UTF-8, Latin-1 or UTF-16, any line end."""

from __future__ import annotations

import codecs
import gzip
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK: Final = 16 << 20
_GZIP_PIECE: Final = 1 << 16
LONGEST_LINE: Final = 64 << 20
"""A line longer than this is no log; it must not fill the memory."""


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[IO[bytes] | gzip.GzipFile, IO[bytes]]]:
    """The file unpacked, and the file itself (to tell how far it is read)."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            yield raw, raw
            return
        with gzip.GzipFile(fileobj=raw) as plain:
            yield plain, raw


def chunks(
    path: Path, *, size: int = CHUNK, quoted: bool = False, damage: Callable[[str], None] | None = None
) -> Iterator[tuple[bytes, int]]:
    """Pieces of whole lines, each with its line end, without byte-order mark, as UTF-8 (or Latin-1, which is left as it is).

    Args:
        path: The file.
        size: Bytes read at once.
        quoted: Cells may be quoted and hold line ends: a piece ends where no quote is open.
        damage: Is told why a gzip file ends early; what was unpacked before is kept.

    Yields:
        The piece, and how many bytes of the file are read.

    Raises:
        ImportFormatError: A line does not end within 64 MiB.
    """
    rest = b""
    with open_plain(path) as (plain, raw):
        for data in _decoded(plain, size, damage):
            whole = rest + data
            end = _last_end(whole, quoted=quoted)
            rest = whole[end:]
            if len(rest) > LONGEST_LINE:
                raise ImportFormatError("a line does not end within 64 MiB: this is no log.", where=str(path))
            if end:
                yield whole[:end], raw.tell()
        if rest:
            yield rest + b"\n", raw.tell()


def _decoded(
    stream: IO[bytes] | gzip.GzipFile, size: int, damage: Callable[[str], None] | None
) -> Iterator[bytes]:
    """Blocks as UTF-8, lone carriage returns as line ends, byte-order mark gone; a damaged gzip ends early."""
    first = _read(stream, size, damage)
    wide = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if wide else None
    lone = b"\r" in first[:65_536] and b"\n" not in first[:65_536]
    data = first.removeprefix(codecs.BOM_UTF8)
    while data:
        text = decoder.decode(data).encode() if decoder else data
        yield text.replace(b"\r", b"\n") if lone and not decoder else text
        data = _read(stream, size, damage)


def _read(stream: IO[bytes] | gzip.GzipFile, size: int, damage: Callable[[str], None] | None) -> bytes:
    """A block; of a damaged gzip file, what could be unpacked (the next block is then empty)."""
    if not isinstance(stream, gzip.GzipFile):
        return stream.read(size)
    found: list[bytes] = []
    left = size
    try:
        while left > 0 and (more := stream.read1(min(left, _GZIP_PIECE))):
            found.append(more)
            left -= len(more)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        if damage is not None and found:
            damage(f"the gzip file is damaged or cut ({error}); what comes before is used")
    return b"".join(found)


def _last_end(data: bytes, *, quoted: bool) -> int:
    """Where the last whole line ends; with quotes, the last line end outside of them."""
    end = data.rfind(b"\n") + 1
    is_open = quoted and data.count(b'"', 0, end) % 2 == 1
    while is_open and end:
        before = data.rfind(b"\n", 0, end - 1) + 1
        is_open = data.count(b'"', before, end) % 2 == 0
        end = before
    return end
