"""The manifest: what a recording is, and how well it was recorded."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dipstick.errors import RecordingError
from dipstick.model import Note
from dipstick.recording.layout import MANIFEST, piece_path
from dipstick.recording.schema import KIND, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Origin = Literal["measured", "imported"]
SEGMENTS_KEY = "segments@"


@dataclass(frozen=True, slots=True)
class Manifest:
    """``manifest.json`` and every writer's piece, merged.

    Attributes:
        schema_version: Of the tables.
        tool_version: Of the dipstick that created the folder.
        created_unix_ns: When it was created.
        origin: ``measured`` (by ``dipstick run``) or ``imported`` (from other tools' files).
        source: What was run or imported, in words.
        hosts: Hosts that were recorded.
        state: ``recording`` while any writer has not closed (or was killed), else ``closed``.
        health: Counters summed over writers: ``missed_ticks``, ``late_ticks``, ``gaps``, ``dropped_rows`` ...
        info: Other facts (command, exit status, versions, overhead), merged over writers.
        notes: What the writers wanted the reader to know.
        parts: Rows of each finished part, by ``TABLE/FILE``.
    """

    schema_version: int
    tool_version: str
    created_unix_ns: int
    origin: Origin
    source: str
    hosts: tuple[str, ...] = ()
    state: Literal["recording", "closed"] = "recording"
    health: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def converted(self) -> frozenset[str]:
        """Names of the probe segments whose rows are in the tables (``info["segments@WRITER"]`` of each writer)."""
        lists = (v for key, v in self.info.items() if key.startswith(SEGMENTS_KEY) and isinstance(v, list))
        return frozenset(name for names in lists for name in names if isinstance(name, str))


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def mark_closed(folder: Path, writer: str) -> None:
    """Say of a writer that was killed that it writes no more; what it flushed stays where it is.

    Args:
        folder: The recording.
        writer: Its id.

    Raises:
        OSError: The disk is full, say.
    """
    path = piece_path(folder, writer)
    piece = _read_object(path)
    if piece is not None:
        write_json(path, {**piece, "state": "closed"})


def read_manifest(folder: Path, pieces: Iterable[Path]) -> Manifest:
    """Read and merge the manifest.

    Args:
        folder: The recording.
        pieces: The writers' pieces, from :func:`dipstick.recording.layout.list_folder`.

    Returns:
        The merged manifest; a damaged piece becomes a note.

    Raises:
        RecordingError: ``manifest.json`` is damaged, of another kind, or newer than this dipstick.
    """
    head = _read_head(folder / MANIFEST)
    notes: list[Note] = []
    read: list[dict[str, Any]] = []
    for path in pieces:
        piece = _read_object(path)
        if piece is None:
            notes.append(Note("warning", f"{path.name} is damaged: the health of that writer is unknown"))
        read.append(piece or {})
    return Manifest(
        schema_version=_integer(head.get("schema_version")),
        tool_version=str(head.get("tool_version", "")),
        created_unix_ns=_integer(head.get("created_unix_ns")),
        origin="imported" if head.get("origin") == "imported" else "measured",
        source=str(head.get("source", "")),
        hosts=tuple(sorted({str(host) for piece in read for host in _list(piece, "hosts")})),
        state="closed" if read and all(piece.get("state") == "closed" for piece in read) else "recording",
        health=_sum(_dict(piece, "health") for piece in read),
        info={key: value for piece in read for key, value in _dict(piece, "info").items()},
        notes=(*notes, *(note for piece in read for note in _notes(piece))),
        parts={key: _integer(rows) for piece in read for key, rows in _dict(piece, "parts").items()},
    )


def _read_head(path: Path) -> dict[str, Any]:
    """``manifest.json``, checked for kind and version."""
    head = _read_object(path)
    if head is None:
        raise RecordingError(
            f"{MANIFEST} is damaged: it is not a JSON object.",
            where=str(path.parent),
            fix="The tables may be whole: restore manifest.json from a copy, or import or record again.",
        )
    if head.get("kind") != KIND:
        raise RecordingError(
            f"{MANIFEST} does not say that this is a dipstick recording.",
            where=str(path.parent),
            fix=f'Its "kind" must be "{KIND}".',
        )
    version = _integer(head.get("schema_version"))
    if version > SCHEMA_VERSION:
        tool = str(head.get("tool_version", "")) or "a newer version"
        raise RecordingError(
            f"it has schema version {version}; this dipstick reads up to {SCHEMA_VERSION}.",
            where=str(path.parent),
            fix=f"It was written by dipstick {tool}: pip install --upgrade 'dipstick>={tool}'.",
        )
    return head


def _read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if the file holds anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _integer(value: object) -> int:
    """An integer from JSON, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _dict(piece: dict[str, Any], key: str) -> dict[str, Any]:
    """An object member, empty for anything else."""
    value = piece.get(key)
    return value if isinstance(value, dict) else {}


def _list(piece: dict[str, Any], key: str) -> list[Any]:
    """An array member, empty for anything else."""
    value = piece.get(key)
    return value if isinstance(value, list) else []


def _notes(piece: dict[str, Any]) -> list[Note]:
    """The notes of one piece; entries of another form are skipped."""
    entries = [entry for entry in _list(piece, "notes") if isinstance(entry, dict)]
    return [
        Note("warning" if entry.get("level") == "warning" else "info", str(entry.get("text", "")))
        for entry in entries
    ]


def _sum(counters: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Counters added up by name; values that are no numbers are skipped."""
    total: dict[str, float] = {}
    for piece in counters:
        for key, value in piece.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
    return total
