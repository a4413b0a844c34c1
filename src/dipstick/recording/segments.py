"""The two files that hold rows: a live Arrow stream that survives a kill, and a Parquet part."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import polars as pl

from dipstick.recording.schema import frame_schema

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

ROW_GROUP_ROWS: Final = 65_536
"""Rows that share min/max statistics: a time range is read in these units (14 minutes of 8 GPUs at 10 Hz)."""


class Segment:
    """A live segment: each :meth:`write` adds one record batch and hands it to the kernel.

    What the kernel has survives a kill -9 of this process; a batch cut short is ignored on reading.
    """

    def __init__(self, path: Path, table: str) -> None:
        import pyarrow as pa  # noqa: PLC0415 - 0.1 s that a reader of finished recordings need not pay

        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self.path = path
        self.rows = 0
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._stream = pa.ipc.new_stream(self._file, _arrow(pl.DataFrame(schema=frame_schema(table))).schema)
        self._file.flush()

    def write(self, frame: pl.DataFrame) -> None:
        """Append the rows as one record batch and flush it."""
        for batch in _arrow(frame.rechunk()).to_batches():
            self._stream.write_batch(batch)
        self._file.flush()
        self.rows += frame.height

    def close(self) -> None:
        """End the stream and sync it to disk."""
        self._stream.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Let go of the file as it is; complete batches in it can be read."""
        with suppress(OSError, ValueError):
            self._file.close()


def _arrow(frame: pl.DataFrame) -> pa.Table:
    """As Arrow with plain strings: a stream must not depend on dictionaries sent in an earlier batch."""
    return frame.cast({pl.Categorical: pl.String}).to_arrow(compat_level=pl.CompatLevel.oldest())


def read_segment(path: Path) -> tuple[pl.DataFrame, bool]:
    """Read every complete record batch of a live or abandoned segment.

    Args:
        path: An Arrow IPC stream file, perhaps cut anywhere.

    Returns:
        The rows, and whether the stream ends cleanly (at a batch's end; no bytes left over).
    """
    import pyarrow as pa  # noqa: PLC0415 - only recordings that were not closed have segments

    batches: list[pa.RecordBatch] = []
    with pa.OSFile(str(path)) as file:
        try:
            with pa.ipc.open_stream(file) as stream:
                while True:
                    batch = stream.read_next_batch()
                    batch.validate(full=True)
                    batches.append(batch)
        except StopIteration:
            clean = True
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            clean = False
    try:
        frame = pl.from_arrow(pa.Table.from_batches(batches)) if batches else pl.DataFrame()
    except (pa.ArrowException, UnicodeDecodeError, pl.exceptions.PolarsError):
        return pl.DataFrame(), False  # the schema itself is garbage
    return (frame if isinstance(frame, pl.DataFrame) else frame.to_frame()), clean


def write_part(path: Path, frame: pl.DataFrame, *, level: int = 3) -> None:
    """Write a Parquet part: all of it appears under its name, or nothing does.

    Args:
        path: The final name.
        frame: Rows with the full schema.
        level: zstd level; 3 is fast, 19 is for files that are shipped.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        frame.write_parquet(
            temporary,
            compression="zstd",
            compression_level=level,
            statistics=True,
            row_group_size=ROW_GROUP_ROWS,
        )
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
