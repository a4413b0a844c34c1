"""Which importers there are, and which one reads a file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from dipstick.errors import ImportFormatError, UsageError
from dipstick.importers.base import Head, check_readable

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers.base import Importer

IMPORTERS: Final = (
    "trace_folder",
    "trace_file",
    "smi_csv",
    "dmon",
    "pmon",
    "smi_table",
    "amd_csv",
    "verl_log",
    "rl_log",
    "rl_jsonl",
    "wandb_export",
    "wandb_file",
    "wandb_folder",
    "wandb_lines",
    "tfevents",
    "prometheus",
    "dcgm_text",
    "trainer_state",
    "hf_log",
    "trackio",
    "mlflow",
    "kineto",
    "nsight",
    "generic",
    "table_csv",
)
"""Modules of this package, one a format; imported only when something is imported. On a tie the first one reads."""

SURE_ENOUGH: Final = 0.2


def importers() -> list[Importer]:
    """Every importer, in the order of ``IMPORTERS``."""
    return [cast("Importer", import_module(f"dipstick.importers.{name}")) for name in IMPORTERS]


def by_format(name: str) -> Importer:
    """The importer of ``--format``.

    Raises:
        UsageError: There is none of that name; they are listed.
    """
    known = {importer.FORMAT: importer for importer in importers()}
    if name not in known:
        raise UsageError(f"--format: there is no {name!r}.", fix=f"Formats: {', '.join(known)}.")
    return known[name]


def sniff(path: Path) -> Importer | None:
    """The importer that is surest about the path, None if none is sure enough."""
    head = Head(path)
    confidence = [(importer.sniff(head), importer) for importer in importers()]
    sure, best = max(confidence, key=lambda pair: pair[0])
    return best if sure >= SURE_ENOUGH else None


def choose(path: Path, forced: str = "") -> Importer:
    """The importer for a path.

    Args:
        path: A file or folder.
        forced: Name of a format; found out if empty.

    Raises:
        ImportFormatError: It does not exist, is no file or folder, or no importer knows it.
        UsageError: There is no such format.
    """
    check_readable(path)
    if forced:
        return by_format(forced)
    try:
        importer = sniff(path)
    except OSError as error:
        raise ImportFormatError(f"it can't be read: {error.strerror}.", where=str(path)) from error
    if importer is not None:
        return importer
    if (path / "manifest.json").is_file():
        raise ImportFormatError(
            "it is a recording already.", where=str(path), fix="dipstick explain reads it."
        )
    if path.is_file() and path.stat().st_size == 0:
        raise ImportFormatError("the file is empty.", where=str(path))
    known = "; ".join(f"{importer.FORMAT}: {importer.NAME}" for importer in importers())
    raise ImportFormatError(
        "no importer knows this.", where=str(path), fix=f"Known formats (--format): {known}."
    )
