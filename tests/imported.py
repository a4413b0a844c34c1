"""What tests of importers share: write a file, read it, see rows and account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dipstick.importers import read_path
from dipstick.importers.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

S = 1_000_000_000
T_S = 1_796_053_333
T = T_S * S
"""2026-11-30 15:42:13 UTC."""


def read_text(folder: Path, text: str | bytes, name: str = "log.csv", **options: Any) -> ImportedTables:
    """The tables of a file with this content."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_path(path, Options(**options))


def rows(found: ImportedTables, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a table, times in nanoseconds since ``T``."""
    frame = found.tables[table]
    values = [
        [None if v is None else v - T for v in frame[c]]
        if c.endswith("_ns") and c != "window_ns"
        else frame[c].to_list()
        for c in columns
    ]
    return list(zip(*values, strict=True))


def bound(found: ImportedTables) -> dict[str, tuple[str, str, str]]:
    """Meaning, unit and how sure, by column."""
    return {b.source: (b.meaning, b.unit, b.sure) for b in found.account.bindings}


def texts(found: ImportedTables) -> str:
    """All notes."""
    return "\n".join(note.text for note in found.account.notes)
