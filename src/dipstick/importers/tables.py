"""What an importer hands over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from dipstick.model import Note


@dataclass(frozen=True, slots=True)
class ImportedTables:
    """Tables of a recording, read from another tool's files.

    Attributes:
        tables: By name in ``schema.TABLES``; columns as there, missing ones allowed; times in Unix ns.
        source: What was read, in words.
        host: The host that the rows name.
        notes: What is missing, what was skipped, what was assumed.
    """

    tables: dict[str, pl.DataFrame]
    source: str
    host: str
    notes: tuple[Note, ...]


class Importer(Protocol):
    """One format; the module is the importer."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """What the format is called in messages."""

    def sniff(self, path: Path) -> float:
        """How sure it is that it can read this path: 0 (no) to 1 (certain). Reads names and first lines only."""

    def read(self, path: Path) -> ImportedTables:
        """Read it.

        Raises:
            ImportFormatError: Nothing in it is usable.
        """
