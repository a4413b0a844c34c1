"""Where things lie in a recording folder, and the only function that lists it.

::

    RUN/
      manifest.json                   who made it, when, which schema
      manifest.WRITER.json            one a writer: hosts, state, health, notes, finished parts
      TABLE/WRITER-000001.parquet     finished part
      TABLE/WRITER-000002.arrows      live segment: an Arrow IPC stream, one record batch a flush
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dipstick.recording.schema import TABLES

MANIFEST: Final = "manifest.json"
PARQUET: Final = "parquet"
STREAM: Final = "arrows"
WRITER_ID: Final = re.compile(r"[A-Za-z0-9_]{1,40}")
_PART: Final = re.compile(
    rf"(?P<writer>{WRITER_ID.pattern})-(?P<number>\d{{6,9}})\.(?P<ext>{PARQUET}|{STREAM})"
)
_PIECE: Final = re.compile(rf"manifest\.(?P<writer>{WRITER_ID.pattern})\.json")


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file that holds rows of one table."""

    path: Path
    table: str
    writer: str
    number: int

    @property
    def key(self) -> str:
        """How the manifest names the finished part: ``gpu/WRITER-000001.parquet``."""
        return f"{self.table}/{self.path.name}"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a recording folder holds; symbolic links are never followed, only named."""

    parts: tuple[PartFile, ...]
    pieces: tuple[Path, ...]
    links: tuple[str, ...]


def part_path(folder: Path, table: str, writer: str, number: int, ext: str) -> Path:
    """The path of a part or segment."""
    return folder / table / f"{writer}-{number:06d}.{ext}"


def piece_path(folder: Path, writer: str) -> Path:
    """The path of one writer's piece of the manifest."""
    return folder / f"manifest.{writer}.json"


def list_folder(folder: Path) -> Listing:
    """List parts (the Parquet wins where a crash left its segment too), manifest pieces and links."""
    parts: list[PartFile] = []
    pieces: list[Path] = []
    links: list[str] = []
    for entry in _entries(folder):
        if entry.is_symlink():
            links.append(entry.name)
        elif entry.name in TABLES and entry.is_dir(follow_symlinks=False):
            found, inner_links = _list_table(Path(entry.path), entry.name)
            parts += found
            links += inner_links
        elif _PIECE.fullmatch(entry.name):
            pieces.append(Path(entry.path))
    return Listing(tuple(parts), tuple(pieces), tuple(links))


def _list_table(folder: Path, table: str) -> tuple[list[PartFile], list[str]]:
    """Parts of one table, ordered by writer and number."""
    found: dict[tuple[str, int], PartFile] = {}
    links: list[str] = []
    for entry in _entries(folder):
        match = _PART.fullmatch(entry.name)
        if entry.is_symlink():
            links.append(f"{table}/{entry.name}")
        elif match and entry.is_file(follow_symlinks=False):
            key = (match["writer"], int(match["number"]))
            if match["ext"] == PARQUET or key not in found:
                found[key] = PartFile(Path(entry.path), table, *key)
    return [found[key] for key in sorted(found)], links


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Directory entries by name, so that reading order does not depend on the file system."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
