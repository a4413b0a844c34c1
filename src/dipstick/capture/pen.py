"""Rows from the sampler's loop to disk, on a thread of their own: a slow disk must not cost samples."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.recording.writer import RecordingWriter

    Columns = tuple[str, ...]
    Batch = dict[str, list[tuple[Any, ...]]]

BATCHES: Final = 120
"""Batches (one a second) that wait for a disk; then rows are dropped, and counted."""


class Sink(Protocol):
    """Where a sampler puts rows."""

    def put(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Rows of one table, values in the order of its columns."""

    def hand_over(self) -> None:
        """Send what was put since the last call on its way."""


class Pen:
    """Writes batches in a thread.

    Attributes:
        error: What stopped the writing; nothing is written after it.
        dropped: Rows lost because the disk was too slow.
        opened_cpu_s: CPU seconds of the process until the writer was open: what starting cost.

    Args:
        open_writer: Opens the writer, in the thread: loading Polars takes a second on a busy machine, and samples
            can be taken meanwhile.
        columns: Column names of each table, in the order of the rows' values.
    """

    def __init__(self, open_writer: Callable[[], RecordingWriter], columns: dict[str, Columns]) -> None:
        self.error: Exception | None = None
        self.dropped = 0
        self.opened_cpu_s: float | None = None
        self._facts: dict[str, Any] | None = None
        self._open_writer = open_writer
        self._writer: RecordingWriter | None = None
        self._columns = columns
        self._open: Batch = {}
        self._waiting: queue.Queue[Batch | None] = queue.Queue(BATCHES)
        self._thread = threading.Thread(target=self._write_all, name="dipstick-pen", daemon=True)
        self._thread.start()

    def put(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Keep rows for the next batch."""
        if rows:
            self._open.setdefault(table, []).extend(rows)

    def hand_over(self) -> None:
        """Give the batch to the thread; where it is far behind, drop it."""
        batch, self._open = self._open, {}
        try:
            self._waiting.put_nowait(batch)
        except queue.Full:
            self.dropped += sum(len(rows) for rows in batch.values())

    def tell(self, facts: dict[str, Any]) -> None:
        """Facts for the manifest (``RecordingWriter.set_info``); they are written with the next batch."""
        self._facts = facts

    def close(self) -> RecordingWriter:
        """Write what waits.

        Returns:
            The writer, still open, and from now on the caller's.

        Raises:
            OSError: The disk is full, say.
            DipstickError: The folder is no recording (any more).
        """
        batch, self._open = self._open, {}
        self._waiting.put(batch)
        self._waiting.put(None)
        self._thread.join()
        if self.error is not None:
            if self._writer is not None:
                with suppress(Exception):  # as much as still fits; its files are closed in any case
                    self._writer.close()
            raise self.error
        assert self._writer is not None, "without an error there is a writer"  # noqa: S101 - for the type checker
        return self._writer

    def _write_all(self) -> None:
        self._guarded(self._begin)
        while (batch := self._waiting.get()) is not None:
            if self.error is None:
                self._guarded(partial(self._write, batch))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop must learn of it
            self.error = error

    def _begin(self) -> None:
        self._writer = self._open_writer()
        self.opened_cpu_s = time.process_time()

    def _write(self, batch: Batch) -> None:
        assert self._writer is not None, "opened before the first batch"  # noqa: S101 - for the type checker
        for table, rows in batch.items():
            self._writer.append(table, dict(zip(self._columns[table], zip(*rows, strict=True), strict=True)))
        self._writer.flush()
        facts, self._facts = self._facts, None
        if facts is not None:
            self._writer.set_info(**facts)
            self._writer.publish()
