"""Writes a recording: append-only, several writers a folder, at most a second lost to a kill -9."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import polars as pl

from dipstick.errors import RecordingError
from dipstick.recording.folder import make_folder
from dipstick.recording.layout import PARQUET, STREAM, WRITER_ID, part_path, piece_path
from dipstick.recording.manifest import read_manifest, write_json
from dipstick.recording.rows import to_frame
from dipstick.recording.segments import Segment, read_segment, write_part

if TYPE_CHECKING:
    from types import TracebackType

    from dipstick.recording.manifest import Origin
    from dipstick.recording.rows import Rows

FLUSH_NS: Final = 1_000_000_000
SEGMENT_ROWS: Final = 131_072
PART_ROWS: Final = 1_048_576


class RecordingWriter:
    """One process's pen in a recording folder.

    Make one with :meth:`create` (a new recording) or :meth:`join` (one more writer in it). Rows appended
    are buffered until :meth:`flush` or :meth:`maybe_flush` puts them into the table's live segment; a full
    segment becomes a Parquet part. Clock numbers (``clock`` column, ``anchors`` table) are this writer's own.

    Attributes:
        path: The recording folder.
        writer: The id in the names of this writer's files.
    """

    def __init__(
        self, path: Path, writer: str, host: str, *, segment_rows: int = SEGMENT_ROWS, level: int = 3
    ) -> None:
        self.path = path
        self.writer = writer
        self._hosts = [host]
        self._segment_rows = segment_rows
        self._level = level
        self._pending: dict[str, list[pl.DataFrame]] = {}
        self._segments: dict[str, Segment] = {}
        self._numbers: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._health: dict[str, float] = {}
        self._info: dict[str, Any] = {}
        self._notes: list[dict[str, str]] = []
        self._flushed_ns: int | None = None
        self._closed = False

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        origin: Origin,
        host: str,
        source: str = "",
        force: bool = False,
        writer: str | None = None,
        created_unix_ns: int | None = None,
        **options: int,
    ) -> Self:
        """Make a recording folder (mode 0700) and the first writer in it.

        Args:
            path: The folder to make.
            origin: ``measured`` or ``imported``.
            host: Name of the host that is recorded.
            source: What is recorded, in words.
            force: Replace an existing recording.
            writer: Id in file names; random if None.
            created_unix_ns: Time of creation; now if None.
            **options: ``segment_rows`` (rows before a segment becomes a part), ``level`` (zstd).

        Returns:
            The open writer.

        Raises:
            RecordingError: The path exists (and is no recording, or ``force`` is not set), or can't be made.
        """
        folder = Path(path)
        make_folder(folder, origin=origin, source=source, force=force, created_unix_ns=created_unix_ns)
        return cls._opened(folder, writer, host, options)

    @classmethod
    def join(cls, path: str | Path, *, host: str, writer: str | None = None, **options: int) -> Self:
        """Add a writer to a recording that another process made.

        Args:
            path: The recording.
            host: Name of the host that this writer records.
            writer: Id in file names; random if None.
            **options: As for :meth:`create`.

        Returns:
            The open writer.

        Raises:
            RecordingError: The folder is no recording of this schema, or the id is taken.
        """
        folder = Path(path)
        read_manifest(folder, ())
        return cls._opened(folder, writer, host, options)

    @classmethod
    def _opened(cls, folder: Path, writer: str | None, host: str, options: dict[str, int]) -> Self:
        """Check the id, and leave a first piece of the manifest."""
        name = writer or f"w{os.getpid():x}_{secrets.token_hex(3)}"
        if not WRITER_ID.fullmatch(name) or piece_path(folder, name).exists():
            raise RecordingError(
                f"the writer id {name!r} is taken or not of letters and digits.", where=str(folder)
            )
        made = cls(folder, name, host, **options)
        made._save("recording")
        return made

    def append(self, table: str, rows: Rows) -> None:
        """Add rows to a table.

        Args:
            table: Table name.
            rows: A DataFrame, dict of lists or list of dicts; missing columns become null.

        Raises:
            RecordingError: Unknown table or column, a value of the wrong type, or the writer is closed.
        """
        if self._closed:
            raise RecordingError("the recording is closed; no rows can be added.", where=str(self.path))
        frame = to_frame(table, rows)
        if frame.height >= self._segment_rows:
            self._flush_table(table)
            self._finish_segment(table)
            for piece in frame.iter_slices(PART_ROWS):
                self._write_part(table, self._next(table), piece)
        elif frame.height:
            self._pending.setdefault(table, []).append(frame)

    def maybe_flush(self, now_ns: int, *, interval_ns: int = FLUSH_NS) -> bool:
        """Flush if the last flush was ``interval_ns`` ago; the caller's clock decides.

        Args:
            now_ns: Any monotonic clock.
            interval_ns: What a kill may cost.

        Returns:
            Whether it flushed.
        """
        if self._flushed_ns is None:
            self._flushed_ns = now_ns
        if now_ns - self._flushed_ns < interval_ns:
            return False
        self._flushed_ns = now_ns
        self.flush()
        return True

    def flush(self) -> None:
        """Hand all buffered rows to the kernel, and turn full segments into parts."""
        for table in list(self._pending):
            self._flush_table(table)
            if table in self._segments and self._segments[table].rows >= self._segment_rows:
                self._finish_segment(table)

    def count(self, **health: float) -> None:
        """Add to health counters: ``count(missed_ticks=1)``."""
        for name, value in health.items():
            self._health[name] = self._health.get(name, 0) + value

    def note(self, level: Literal["info", "warning"], text: str) -> None:
        """Leave a note for the reader of the recording."""
        self._notes.append({"level": level, "text": text})

    def discard(self, table: str) -> None:
        """Take back every row of a table that this writer has written.

        Args:
            table: Table name.
        """
        self._pending.pop(table, None)
        segment = self._segments.pop(table, None)
        if segment is not None:
            segment.abandon()
            segment.path.unlink(missing_ok=True)
        for key in [key for key in self._parts if key.startswith(f"{table}/")]:
            (self.path / key).unlink(missing_ok=True)
            del self._parts[key]
        self._save("recording")

    def add_host(self, host: str) -> None:
        """Name one more host whose rows this writer holds."""
        if host not in self._hosts:
            self._hosts.append(host)

    def set_info(self, **facts: Any) -> None:
        """Store facts that fit JSON in the manifest: ``set_info(exit_status=0)``."""
        self._info |= facts

    def publish(self) -> None:
        """Put health, facts and notes so far into the manifest: for who reads while this writer records."""
        self._save("recording")

    def close(self) -> None:
        """Flush, compact every segment and mark this writer closed; safe to call twice.

        Raises:
            OSError: The disk is full, say. What was flushed before stays readable as a segment.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
            for table in list(self._segments):
                self._finish_segment(table)
            self._save("closed")
        finally:
            for segment in self._segments.values():
                segment.abandon()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whatever happened: rows so far stay readable."""
        self.close()

    def _flush_table(self, table: str) -> None:
        """Write a table's buffered rows as one batch."""
        frames = self._pending.pop(table, [])
        if not frames:
            return
        if table not in self._segments:
            path = part_path(self.path, table, self.writer, self._next(table), STREAM)
            self._segments[table] = Segment(path, table)
        rows = pl.concat(frames)
        try:
            self._segments[table].write(rows)
        except OSError:
            self._segments.pop(
                table
            ).abandon()  # a batch may be half written: nothing can follow it in this file
            self.count(dropped_rows=rows.height)
            raise

    def _next(self, table: str) -> int:
        """The next part number of a table; makes its folder, which must not be a link."""
        folder = self.path / table
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise RecordingError(
                "a table folder is a symbolic link; not writing through it.", where=str(folder)
            )
        self._numbers[table] = self._numbers.get(table, 0) + 1
        return self._numbers[table]

    def _finish_segment(self, table: str) -> None:
        """Turn the live segment into a part; the segment goes only after the part is safe on disk."""
        segment = self._segments.get(table)
        if segment is None:
            return
        segment.close()
        del self._segments[table]
        rows, _ = read_segment(segment.path)
        self._write_part(table, self._numbers[table], to_frame(table, rows))
        segment.path.unlink()

    def _write_part(self, table: str, number: int, frame: pl.DataFrame) -> None:
        """Write a part and enter it in the manifest, so that a reader knows if it is lost."""
        path = part_path(self.path, table, self.writer, number, PARQUET)
        write_part(path, frame, level=self._level)
        self._parts[f"{table}/{path.name}"] = frame.height
        self._save("recording")

    def _save(self, state: str) -> None:
        """Write this writer's piece of the manifest."""
        write_json(
            piece_path(self.path, self.writer),
            {
                "writer": self.writer,
                "hosts": self._hosts,
                "state": state,
                "health": self._health,
                "info": self._info,
                "notes": self._notes,
                "parts": self._parts,
            },
        )
