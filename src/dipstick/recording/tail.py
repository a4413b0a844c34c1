"""Reads a file that another process is still writing: what was appended since the last look, whole records only.

A file is opened, read and closed at each look, never locked and never followed through a link; what its writer does
meanwhile costs nothing but the next look. Memory is bounded by ``CHUNK``.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.recording.probe_lines import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK: Final = 4 << 20
"""Bytes read at a time; also the largest record that is understood."""
HEAD: Final = 64 << 10
"""Bytes at the start of a long file that are read although its middle is skipped: they say who wrote it."""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, for reading, never through a link and never waiting for a pipe.

    Raises:
        OSError: It can't be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file")
    return descriptor


def read_at(path: Path, offset: int) -> bytes:
    """Up to ``CHUNK`` bytes from an offset on; nothing where the file is gone or is not ours to read."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, CHUNK, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


class LineTail:
    """Complete lines of a growing text file.

    Args:
        path: The file.
        most: At the first look, only the first ``HEAD`` bytes and about the last ``most`` are read.
    """

    def __init__(self, path: Path, most: int = 4 << 20) -> None:
        self._path = path
        self._most = most
        self._offset = 0
        self.skipped = 0

    def lines(self, size: int) -> Iterator[bytes]:
        """Lines since the last look, without their ends.

        Args:
            size: The file's size as it was listed; nothing is read where it has not grown.
        """
        if self._offset == 0 and size > HEAD + self._most:
            yield from self._split(read_at(self._path, 0)[:HEAD])
            self._offset = size - self._most
            self._skip_to_line()
        while self._offset < size:
            data = read_at(self._path, self._offset)
            before = self._offset
            yield from self._split(data)
            if self._offset == before:
                return

    def _split(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in ``data``; the offset moves behind the last one."""
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > LONGEST_LINE:
            self.skipped += 1
            self._offset += len(data)
        self._offset += end
        yield from data[:end].splitlines()

    def _skip_to_line(self) -> None:
        """From the middle of a line to the start of the next one."""
        self._offset += read_at(self._path, self._offset).find(b"\n") + 1


class StreamTail:
    """Complete record batches of a growing Arrow IPC stream (``dipstick.recording.segments``).

    Attributes:
        rows: Rows handed out so far.
    """

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        self._offset = 0
        self._schema = b""
        self._broken = False

    def read(self) -> pl.DataFrame:
        """The rows since the last look, with the stream's own columns; without columns where there are none."""
        frames: list[pl.DataFrame] = []
        while not self._broken:
            frame, more = self._read_chunk()
            frames += [frame] if frame.height else []
            if not more:
                break
        found = pl.concat(frames) if frames else pl.DataFrame()
        self.rows += found.height
        return found

    def _read_chunk(self) -> tuple[pl.DataFrame, bool]:
        """Batches of one chunk, and whether there may be more."""
        import pyarrow as pa  # noqa: PLC0415 - only where a recording is being written

        data = read_at(self._path, self._offset)
        if not data:
            return pl.DataFrame(), False
        known = len(self._schema)
        source = pa.BufferReader(self._schema + data)
        batches: list[pa.RecordBatch] = []
        head = end = 0
        try:
            with pa.ipc.open_stream(source) as stream:
                head = end = source.tell()
                while True:
                    batch = stream.read_next_batch()
                    batch.validate(full=True)
                    batches.append(batch)
                    end = source.tell()
        except (StopIteration, pa.ArrowException, OSError, UnicodeDecodeError):
            pass  # the end, or a batch that is not whole yet
        if not known:
            self._schema = data[:head]
        taken = end - known
        self._offset += max(taken, 0)
        self._broken = len(data) >= CHUNK and taken <= 0  # no batch of ours is that large
        return _frame(batches), len(data) >= CHUNK


def _frame(batches: list[object]) -> pl.DataFrame:
    """Batches as a frame; garbage that passed for batches is nothing."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    try:
        frame = pl.from_arrow(pa.Table.from_batches(batches)) if batches else pl.DataFrame()
    except (pa.ArrowException, UnicodeDecodeError, pl.exceptions.PolarsError):
        return pl.DataFrame()
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()
