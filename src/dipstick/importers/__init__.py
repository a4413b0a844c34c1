"""The other way into a recording: files that other tools wrote.

One module a format, each an :class:`~dipstick.importers.base.Importer`; the surest one reads. ``files`` makes one
recording of several files, ``binding`` says what became of every column, ``place`` puts their clocks on one axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dipstick.importers.registry import IMPORTERS, choose, importers, sniff

if TYPE_CHECKING:
    import polars as pl

    from dipstick.importers.account import Account
    from dipstick.importers.options import Options

__all__ = ["IMPORTERS", "ImportedTables", "choose", "import_path", "importers", "read_path", "sniff"]


@dataclass(frozen=True, slots=True)
class ImportedTables:
    """What a file holds, as tables in memory.

    Attributes:
        tables: By name in ``schema.TABLES``; columns as there, missing ones absent.
        account: How many rows, what was bound, what was dropped, notes.
    """

    tables: dict[str, pl.DataFrame]
    account: Account


def read_path(path: str | Path, options: Options | None = None) -> ImportedTables:
    """Read a file or folder with the importer that knows it, into memory.

    Args:
        path: The file or folder.
        options: What it does not say itself.

    Returns:
        Its tables.

    Raises:
        ImportFormatError: It does not exist, no importer knows it, or nothing in it is usable.
    """
    import polars as pl  # noqa: PLC0415 - only when something is read

    from dipstick.importers.account import Account  # noqa: PLC0415 - loads Polars
    from dipstick.importers.base import HOST, Sink  # noqa: PLC0415 - loads Polars
    from dipstick.importers.files import Source, read_one  # noqa: PLC0415 - loads Polars
    from dipstick.importers.options import Options  # noqa: PLC0415 - with its neighbours

    given = options or Options()
    source = Source(Path(path), choose(Path(path), given.format))
    account = Account(source.path.resolve().name, source.importer.FORMAT, HOST)
    batches: dict[str, list[pl.DataFrame]] = {}
    sink = Sink(account, lambda table, frame: batches.setdefault(table, []).append(frame))
    read_one(source, sink, given)
    tables = {table: pl.concat(frames, how="diagonal_relaxed") for table, frames in batches.items()}
    return ImportedTables(tables, account)


def import_path(
    path: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    level: int = 3,
    created_unix_ns: int | None = None,
) -> Path:
    """Convert a file or folder of another tool into a recording; see :func:`dipstick.importers.files.import_files`.

    Args:
        path: What to import.
        out: The recording folder to make.
        force: Replace an existing recording at ``out``.
        level: zstd level of the tables.
        created_unix_ns: Time of creation in the manifest; now if None.

    Returns:
        The recording folder.

    Raises:
        ImportFormatError: See :func:`read_path`.
        RecordingError: ``out`` exists and ``force`` is not set.
    """
    from dipstick.importers.files import import_files  # noqa: PLC0415 - polars, only when importing

    return import_files([path], out, force=force, level=level, created_unix_ns=created_unix_ns).path
