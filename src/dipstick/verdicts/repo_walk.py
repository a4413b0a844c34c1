"""Reading a checkout within bounds: no symlinks, no environments, no special files, no huge ones.

The checkout is untrusted: nothing in it is imported or run, and nothing outside it is opened.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dipstick.errors import DipstickError
from dipstick.verdicts.repo_model import Skipped

PYTHON: Final = (".py",)
CONFIG: Final = (".yaml", ".yml", ".json", ".toml", ".sh")
SKIP_FOLDERS: Final = frozenset(
    {"node_modules", "__pycache__", "site-packages", "venv", "env", "build", "dist", "wandb", "mlruns"}
)
ENVIRONMENT_MARKS: Final = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read at most.

    Attributes:
        files: Files read.
        file_bytes: Larger files are skipped (generated code, data).
        total_bytes: Sum over files.
        entries: Folder entries looked at.
        depth: Folder depth.
        findings: Findings a kind.
        parse_bytes: Python source parsed in all; files with a telling word come first.
        effort: Steps of name and type resolution over the whole scan.
    """

    files: int = 4_000
    file_bytes: int = 1_000_000
    total_bytes: int = 50_000_000
    entries: int = 200_000
    depth: int = 30
    findings: int = 500
    parse_bytes: int = 8_000_000
    effort: int = 2_000_000


@dataclass(slots=True)
class Texts:
    """Texts of a checkout by path (forward slashes, relative), in sorted order, and what was left out."""

    files: dict[str, str] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    complete: bool = True
    bytes_read: int = 0

    def skip(self, name: str, why: str, *, cut: bool = False) -> None:
        """Note a file that was not read; ``cut`` if a limit did it."""
        self.complete = self.complete and not cut
        self.skipped.append(Skipped(printable(name), why))


def printable(text: str, limit: int = 200) -> str:
    """Text without control, escape and direction characters, trimmed; names and code are untrusted."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * limit]).strip()
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def read_checkout(root: Path, limits: Limits) -> Texts:
    """Read the Python and configuration files of a checkout.

    Raises:
        DipstickError: ``root`` is not a folder that can be listed.
    """
    if not root.is_dir():
        raise DipstickError(
            "not a folder",
            where=str(root),
            fix="--repo takes the folder of your training code (the checkout that the run was started from)",
        )
    texts = Texts()
    for path, name in _files(root, limits, texts):
        if len(texts.files) >= limits.files:
            texts.skip(name, f"more than {limits.files} files", cut=True)
            break
        text = _read(path, name, limits, texts)
        if text is not None:
            texts.files[name] = text
    return texts


def _files(root: Path, limits: Limits, texts: Texts) -> list[tuple[str, str]]:
    """(path, relative name) of the files that matter, in sorted order."""
    found: list[tuple[str, str]] = []
    folders = [(str(root), "", 0)]
    seen = 0
    while folders:
        folder, prefix, depth = folders.pop()
        for entry in _entries(folder, prefix, texts):
            seen += 1
            name = prefix + entry.name
            if seen > limits.entries:
                texts.skip(name, f"more than {limits.entries} folder entries", cut=True)
                return sorted(found, key=lambda pair: pair[1])
            if entry.is_symlink():
                texts.skip(name, "symbolic link")
            elif entry.is_dir(follow_symlinks=False):
                if depth >= limits.depth:
                    texts.skip(name, f"deeper than {limits.depth} folders", cut=True)
                elif not _left_out(entry):
                    folders.append((entry.path, name + "/", depth + 1))
            elif entry.name.lower().endswith(PYTHON + CONFIG):
                found.append((entry.path, name))
    return sorted(found, key=lambda pair: pair[1])


def _entries(folder: str, prefix: str, texts: Texts) -> list[os.DirEntry[str]]:
    """The entries of a folder, or none if it can't be listed."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        texts.skip(prefix or ".", f"can't be listed: {error.strerror}")
        return []


def _left_out(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is hidden, generated, or somebody else's code (an environment)."""
    if entry.name.startswith(".") or entry.name in SKIP_FOLDERS or entry.name.endswith(".egg-info"):
        return True
    return any((Path(entry.path) / mark).exists() for mark in ENVIRONMENT_MARKS)


def _read(path: str, name: str, limits: Limits, texts: Texts) -> str | None:
    """The text of one regular file within the limits, else None and a note why."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait; O_NOFOLLOW: the entry may have become a link
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        texts.skip(name, f"can't be opened: {error.strerror}")
        return None
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            texts.skip(name, "not a regular file")
            return None
        if about.st_size > limits.file_bytes:
            texts.skip(name, f"larger than {limits.file_bytes} bytes", cut=name.endswith(PYTHON))
            return None
        if texts.bytes_read + about.st_size > limits.total_bytes:
            texts.skip(name, f"more than {limits.total_bytes} bytes in all", cut=True)
            return None
        data = file.read(limits.file_bytes)
    texts.bytes_read += len(data)
    return decode(data)


def decode(data: bytes) -> str:
    """UTF-8 (with or without byte-order mark), else Latin-1, which never fails and keeps the code readable.

    A ``coding:`` cookie is not obeyed: it names a codec, and a checkout must not choose what code runs.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
