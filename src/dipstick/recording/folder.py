"""Making the folder of a recording, and replacing one, without ever deleting anything else."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from dipstick.errors import RecordingError
from dipstick.recording.layout import MANIFEST, list_folder
from dipstick.recording.manifest import Origin, read_manifest, write_json
from dipstick.recording.probe_segments import FOLDER as SEGMENTS
from dipstick.recording.probe_segments import segment_files
from dipstick.recording.schema import KIND, SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from pathlib import Path


def make_folder(
    folder: Path, *, origin: Origin, source: str, force: bool, created_unix_ns: int | None = None
) -> None:
    """Make an empty recording: the folder (mode 0700) and its manifest.

    Args:
        folder: Where; its parents are made too.
        origin: ``measured`` or ``imported``.
        source: What is recorded, in words.
        force: Replace a recording that is there.
        created_unix_ns: Time of creation; now if None.

    Raises:
        RecordingError: See :meth:`dipstick.recording.writer.RecordingWriter.create`.
    """
    _prepare(folder, force=force)
    created = time.time_ns() if created_unix_ns is None else created_unix_ns
    head = {"kind": KIND, "schema_version": SCHEMA_VERSION, "tool_version": tool_version()}
    write_json(folder / MANIFEST, {**head, "created_unix_ns": created, "origin": origin, "source": source})


def check_target(folder: Path, *, force: bool) -> None:
    """Refuse a path where no recording can be made, before any work is done.

    Raises:
        RecordingError: A recording is there and ``force`` is not set; or something else is there.
    """
    if (folder / MANIFEST).exists():
        if not force:
            raise RecordingError(
                "a recording is already there.", where=str(folder), fix="--force replaces it."
            )
        read_manifest(folder, ())
    elif folder.is_dir() and any(folder.iterdir()):
        raise RecordingError(
            "the folder is not empty and holds no recording.", where=str(folder), fix="Choose another path."
        )
    elif folder.exists() and not folder.is_dir():
        raise RecordingError(
            "it is a file.", where=str(folder), fix="A recording is a folder: choose another path."
        )


def move_into(made: Path, folder: Path) -> None:
    """Put a finished recording in its place; one that is there goes (:func:`check_target` has been asked).

    Args:
        made: The finished recording, in the same parent folder.
        folder: Where it belongs.
    """
    if (folder / MANIFEST).exists():
        _remove(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for entry in sorted(
        made.iterdir(), key=lambda entry: entry.name == MANIFEST
    ):  # a reader looks for it first
        entry.rename(folder / entry.name)
    made.rmdir()


def _prepare(folder: Path, *, force: bool) -> None:
    """Make the folder, or empty it if it holds a recording and ``force`` says so."""
    check_target(folder, force=force)
    if (folder / MANIFEST).exists():
        _remove(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise RecordingError(
            f"the folder can't be made: {error.strerror}.",
            where=str(folder),
            fix="Choose another place: -o RUN.",
        ) from error


def _remove(folder: Path) -> None:
    """Delete what a recording consists of, and nothing else."""
    read_manifest(folder, ())
    for table in TABLES:
        inner = folder / table
        if inner.is_dir() and not inner.is_symlink():
            shutil.rmtree(inner)
    segments = segment_files(folder / SEGMENTS)
    for path in (*(segment.path for segment in segments), *list_folder(folder).pieces, folder / MANIFEST):
        path.unlink()
    if segments and not any((folder / SEGMENTS).iterdir()):
        (folder / SEGMENTS).rmdir()


def tool_version() -> str:
    """The installed version of dipstick, empty when run from a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms that readers need not pay

    try:
        return version("dipstick")
    except PackageNotFoundError:
        return ""
