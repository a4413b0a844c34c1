"""The other way into a recording: files that other tools wrote.

One module a format, each an :class:`~dipstick.importers.tables.Importer`; the surest one reads.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from dipstick.importers.tables import ImportedTables, Importer

IMPORTERS: Final = ("trace_folder",)
"""Modules of this package, one a format; imported only when something is imported."""

SURE_ENOUGH: Final = 0.2


def importers() -> list[Importer]:
    """Every importer, in the order of ``IMPORTERS``."""
    return [cast("Importer", import_module(f"dipstick.importers.{name}")) for name in IMPORTERS]


def sniff(path: Path) -> Importer | None:
    """The importer that is surest about the path, None if none is sure enough."""
    best = max(importers(), key=lambda importer: importer.sniff(path))
    return best if best.sniff(path) >= SURE_ENOUGH else None


def read_path(path: str | Path) -> ImportedTables:
    """Read a file or folder with the importer that knows it.

    Args:
        path: The file or folder.

    Returns:
        Its tables.

    Raises:
        ImportFormatError: It does not exist, no importer knows it, or nothing in it is usable.
    """
    source = Path(path)
    if not source.exists():
        raise ImportFormatError("no such file or folder.", where=str(path))
    importer = sniff(source)
    if importer is None:
        if (source / "manifest.json").is_file():
            raise ImportFormatError(
                "it is a recording already.", where=str(path), fix="dipstick explain reads it."
            )
        known = "; ".join(importer.NAME for importer in importers())
        raise ImportFormatError("no importer knows this.", where=str(path), fix=f"Known formats: {known}.")
    try:
        return importer.read(source)
    except OSError as error:
        raise ImportFormatError(
            f"it can't be read: {error.strerror}.", where=str(error.filename or path)
        ) from error


def import_path(
    path: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    level: int = 3,
    created_unix_ns: int | None = None,
) -> Path:
    """Convert a file or folder of another tool into a recording.

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
    from dipstick.recording.writer import RecordingWriter  # noqa: PLC0415 - polars, only when importing

    found = read_path(path)
    with RecordingWriter.create(
        out,
        origin="imported",
        host=found.host,
        source=found.source,
        force=force,
        writer="import",
        created_unix_ns=created_unix_ns,
        level=level,
    ) as writer:
        for table, frame in found.tables.items():
            writer.append(table, frame)
        for note in found.notes:
            writer.note(note.level, note.text)
    return Path(out)
