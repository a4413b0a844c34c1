"""What an importer is, what it is given, and where it puts what it reads."""

from __future__ import annotations

import gzip
import re
import stat
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import polars as pl

from dipstick.errors import ImportFormatError
from dipstick.model import Note
from dipstick.recording.schema import TABLES, TIME_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dipstick.importers.account import Account
    from dipstick.importers.binding import Binding
    from dipstick.importers.options import Options

HEAD_BYTES: Final = 65_536
HOST: Final = "host0"
"""Host of files that name none."""

Clock = Literal["unix", "local", "relative"]


class Importer(Protocol):
    """One format; the module is the importer."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """What the format is called in messages."""

    @property
    def FORMAT(self) -> str:  # noqa: N802 - a module constant
        """What ``--format`` calls it."""

    def sniff(self, head: Head) -> float:
        """How sure it is that it can read this: 0 (no) to 1 (certain). Looks at the name and the first bytes only."""

    def read(self, path: Path, options: Options, sink: Sink) -> None:
        """Read it in bounded memory, batch by batch, into the sink.

        Raises:
            ImportFormatError: Nothing in it is usable, or it can't be read without a decision of the user.
        """


@dataclass(frozen=True)
class Head:
    """The beginning of a file, or the names in a folder: what is needed to tell a format.

    Attributes:
        path: The file or folder.
    """

    path: Path

    @cached_property
    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    @cached_property
    def names(self) -> frozenset[str]:
        """Names in the folder; empty for a file."""
        return frozenset(entry.name for entry in self.path.iterdir()) if self.is_dir else frozenset()

    @cached_property
    def raw(self) -> bytes:
        """The first bytes; empty for a folder."""
        if self.is_dir:
            return b""
        with self.path.open("rb") as stream:
            return stream.read(HEAD_BYTES)

    @cached_property
    def data(self) -> bytes:
        """The first bytes, unpacked if it is a gzip file."""
        if not self.raw.startswith(b"\x1f\x8b"):
            return self.raw
        found = b""
        try:
            with gzip.open(self.path) as stream:
                while len(found) < HEAD_BYTES and (more := stream.read(4096)):
                    found += more
        except (OSError, EOFError, zlib.error):
            return found  # a cut file: what comes before tells as much
        return found

    @cached_property
    def text(self) -> str:
        """The first bytes as text: UTF-16 by its byte-order mark, UTF-8, or else Latin-1; empty if it is none."""
        data = self.data
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace").removeprefix("\ufeff")
        data = data.removeprefix(b"\xef\xbb\xbf")
        if b"\x00" in data:
            return ""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            cut = error.start >= len(data) - 4 and len(self.data) >= HEAD_BYTES
            return data[: error.start].decode() if cut else data.decode("latin-1")

    @cached_property
    def lines(self) -> list[str]:
        """Whole lines of the text; carriage returns end a line too. A last line that may be cut is left out."""
        lines = re.split(
            r"\r\n|\n|\r", self.text
        )  # not splitlines: it also splits at form feeds and the like
        lines = lines[:-1] if lines and not lines[-1] else lines
        whole = len(self.data) < HEAD_BYTES or self.text.endswith(("\n", "\r")) or len(lines) <= 1
        return lines if whole else lines[:-1]


class Sink:
    """Where an importer puts what it reads from one file; it keeps the account.

    Args:
        account: Of this file.
        put: Takes finished rows: table and frame.
        number: Clock number for times that are not Unix time; placed on the axis when all files are read.
        view: Which file of the import it is: rows of two files with the same time are two rows.
        progress: Is told how many bytes of the file are done.
    """

    def __init__(
        self,
        account: Account,
        put: Callable[[str, pl.DataFrame], None],
        *,
        number: int = 1,
        view: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.account = account
        self._put = put
        self._number = number
        self._view = view
        self._progress = progress

    @property
    def host(self) -> str:
        """Host of rows that name none."""
        return self.account.host

    @property
    def file(self) -> str:
        """The file, for messages."""
        return self.account.file

    def rows(self, table: str, frame: pl.DataFrame) -> None:
        """Add rows: columns as in ``schema.TABLES``, missing ones allowed; the host is filled in where absent."""
        if frame.is_empty():
            return
        if "host" in TABLES[table]:
            named = pl.col("host").fill_null(self.host) if "host" in frame.columns else pl.lit(self.host)
            frame = frame.with_columns(named.alias("host"))
        if table == "gpu" and self._view > 1 and "source" in frame.columns:
            frame = frame.with_columns(pl.col("source") + str(self._view))
        if self.account.clock != "unix" and TIME_COLUMNS[table]:
            frame = frame.with_columns(pl.lit(self._number, dtype=pl.UInt16).alias("clock"))
        self.account.saw(table, frame, tuple(c for c in TIME_COLUMNS[table] if c in frame.columns))
        self._put(table, frame)

    def clock(self, kind: Clock, *, resolution_ns: int = 0) -> None:
        """Say what the file's times are, before the first row: Unix time, local time without a zone, or relative.

        Local times are handed over as if they were UTC, relative ones as nanoseconds since their own zero.
        """
        self.account.clock, self.account.resolution_ns = kind, resolution_ns

    def bind(self, *bindings: Binding) -> None:
        """Say what columns or keys are."""
        self.account.bindings.extend(bindings)

    def saw(self, rows: int) -> None:
        """Count data rows of the file, whatever becomes of them."""
        self.account.rows_read += rows

    def drop(self, why: str, rows: int) -> None:
        """Count rows that were not used."""
        if rows:
            self.account.dropped[why] += rows

    def note(self, level: Literal["info", "warning"], text: str) -> None:
        """Say what else there is to know."""
        self.account.notes.append(Note(level, text))

    def fact(self, **facts: Any) -> None:
        """Keep a fact about the file in the manifest; it must fit JSON."""
        self.account.facts.update(facts)

    def progress(self, done: int) -> None:
        """Say how many bytes of the file are done."""
        if self._progress is not None:
            self._progress(done)


def check_readable(path: Path) -> None:
    """Refuse what is no plain file or folder: reading a pipe or device may never end.

    Raises:
        ImportFormatError: It does not exist, or is neither.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ImportFormatError(
            "no such file or folder."
            if isinstance(error, FileNotFoundError)
            else f"it can't be read: {error.strerror}.",
            where=str(path),
        ) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ImportFormatError(
            "it is neither a file nor a folder.", where=str(path), fix="Copy it to a file first."
        )
