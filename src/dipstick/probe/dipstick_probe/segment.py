"""One process's file in ``RUN/probe``: 0600, never through a symlink, never over its size.

A process may close or reuse file descriptors that it does not know (daemons do), so before each write the
descriptor is asked whether it still is our file (1 µs); if not, the file is opened again.
"""

from __future__ import annotations

import os

WRITE = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
RESERVE = 4096
"""Bytes kept for the lines that say why a segment ends."""
NONE = -1


class Segment:
    """Appends bytes to one file.

    Attributes:
        name: ``<host>.<pid>.<start in Unix ns>.jsonl``.
        size: Bytes written so far.
        is_full: The size cap or the disk stopped it; nothing more is written.
    """

    __slots__ = ("_file", "_folder", "_identity", "_limit", "is_full", "name", "size")

    def __init__(self, folder: str, name: str, limit: int) -> None:
        self.name = name
        self.size = 0
        self.is_full = False
        self._folder = folder
        self._limit = limit
        self._file = NONE
        self._identity: tuple[int, int] | None = None

    def write(self, data: bytes) -> None:
        """Append all of ``data``, or the last line that says why not.

        Raises:
            OSError: The folder or the file cannot be opened.
        """
        if self.is_full:
            return
        if self.size + len(data) > self._limit - RESERVE:
            self.is_full = True
            data = b'{"k":"capped","why":"size","limit_b":%d}\n' % self._limit
        if self._identity is None or _identity(self._file) != self._identity:
            self._file = self._open()
            self._identity = _identity(self._file)
        self._append(data)

    def abandon(self) -> None:
        """In a fork's child: the file is the parent's."""
        if self._identity is not None and _identity(self._file) == self._identity:
            os.close(self._file)
        self.is_full = True

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                written = os.write(self._file, rest)
            except OSError:  # disk or quota full: training goes on, the recording ends here
                self.is_full = True
                os.ftruncate(self._file, self.size)  # not to leave half a line...
                os.write(
                    self._file, b'{"k":"capped","why":"disk"}\n'
                )  # ...and say so if a few bytes are left
                return
            rest = rest[written:]
        self.size += len(data)

    def _open(self) -> int:
        is_new = self._identity is None
        if is_new:
            _make(self._folder)
        folder = os.open(self._folder, FOLDER)
        try:
            return os.open(self.name, WRITE | (os.O_CREAT | os.O_EXCL if is_new else 0), 0o600, dir_fd=folder)
        finally:
            os.close(folder)


def _identity(file: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)  # pathlib would cost every start 5 ms
    except FileExistsError:
        pass
