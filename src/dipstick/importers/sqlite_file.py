"""SQLite files of others: opened read-only, never trusted, with limits.

``immutable`` so that nothing beside the file is touched; a file with a write-ahead log is copied with it first, because
what was written last stands there only.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC: Final = b"SQLite format 3\x00"
LONGEST_CELL: Final = 16 << 20
LARGEST_COPY: Final = 4 << 30
_READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA}
)


@contextmanager
def opened(
    path: Path,
    says: str = "it can't be read as SQLite",
    fix: str = "Copy it again while nothing writes to it, with its -wal file.",
) -> Iterator[sqlite3.Connection]:
    """A connection that can only read; text comes as str, broken UTF-8 replaced.

    Args:
        path: The file.
        says: What the error begins with if that fails.
        fix: What to do then.

    Raises:
        ImportFormatError: It is no SQLite file, it is damaged, or its write-ahead log is too large to copy.
    """
    with tempfile.TemporaryDirectory(prefix="dipstick-") as scratch:
        wal = path.with_name(path.name + "-wal")
        has_wal = wal.is_file() and not wal.is_symlink() and wal.stat().st_size > 0
        source = _copied(path, wal, Path(scratch)) if has_wal else path
        how = "mode=rw" if has_wal else "mode=ro&immutable=1"  # the copy: its log is worked in
        try:
            connection = sqlite3.connect(f"file:{quote(str(source.resolve()))}?{how}", uri=True)
            try:
                _limit(connection)
                yield connection
            finally:
                connection.close()
        except (sqlite3.Error, OverflowError) as error:
            raise ImportFormatError(f"{says}: {error}.", where=str(path), fix=fix) from error


def _copied(path: Path, wal: Path, scratch: Path) -> Path:
    if path.stat().st_size + wal.stat().st_size > LARGEST_COPY:
        raise ImportFormatError("its write-ahead log (-wal) is not merged, and it is too large to copy (4 GiB).",
                                where=str(path), fix="sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)' merges it.")  # fmt: skip
    shutil.copyfile(wal, scratch / "copy.db-wal")
    return Path(shutil.copyfile(path, scratch / "copy.db"))


def _limit(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
    )


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Columns of a plain table, empty if there is none: a view or a virtual table of that name is none."""
    found = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if found is None or not str(found[0]).lstrip().upper().startswith("CREATE TABLE"):
        return []
    return [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]


def has(path: Path, table: str, *names: str) -> bool:
    """Whether it is an SQLite file with a table of these columns."""
    try:
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                return False
        with opened(path) as connection:
            return set(names) <= set(columns(connection, table))
    except (ImportFormatError, OSError):
        return False
