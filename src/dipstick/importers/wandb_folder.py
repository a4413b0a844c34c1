"""A run folder of W&B (``wandb/run-<date>-<id>``, ``wandb/offline-run-…``): the run file, and the metadata beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers import wandb_file, wandb_lines
from dipstick.importers.wandb_meta import from_metadata
from dipstick.importers.wandb_system import Run

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "wandb-folder"
NAME: Final = "W&B run folder"

METADATA: Final = "wandb-metadata.json"


def sniff(head: Head) -> float:
    """A run file in it, or what older versions and downloads have instead."""
    if not head.is_dir:
        return 0.0
    return 0.9 if any(is_own(name) for name in head.names) and _sources(head.path) else 0.0


def is_own(name: str) -> bool:
    """Whether only W&B writes files of that name."""
    return name.endswith(".wandb") or name in {*wandb_lines.FILES, METADATA}


def _sources(folder: Path) -> list[Path]:
    """The run file if it holds anything, else the lines that were sent to the server; links are not followed."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix == ".wandb" and _holds(path)]
    lines = [
        path
        for name in wandb_lines.FILES
        for path in (folder / name, folder / "files" / name)
        if _holds(path)
    ]
    return files or lines


def _holds(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > 0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read the run.

    Raises:
        ImportFormatError: There is no run file in it, several, or one that can't be read.
    """
    sources = _sources(path) if path.is_dir() else []
    if not sources:
        raise ImportFormatError(
            "it holds no run of W&B.", where=str(path), fix="Name the .wandb file, or its folder."
        )
    files = [source for source in sources if source.suffix == ".wandb"]
    if len(files) > 1:
        raise ImportFormatError(
            f"it holds {len(files)} run files, and a recording is of one run.", where=str(path),
            fix=f"Name one of them: {', '.join(file.name for file in files[:20])}.",
        )  # fmt: skip
    run = Run()
    for place in (path / METADATA, path / "files" / METADATA):
        from_metadata(place, run)
    for source in sources:
        (wandb_file if files else wandb_lines).read_run(source, options, sink, run)
    sink.fact(read=[source.name for source in sources])
