"""Every error dipstick raises on purpose, and the exit status it becomes.

::

    DipstickError (1)           could not answer: what, where, what to do
    ├── RecordingError          not a recording, damaged beyond reading, newer schema
    │   └── EmptyRecordingError readable, but holds nothing to explain
    ├── ImportFormatError       a file or folder that no importer understands
    └── UsageError (2)          the command line asks for something that does not exist
"""

from __future__ import annotations

EXIT_ANSWERED = 0
EXIT_NO_ANSWER = 1
EXIT_USAGE = 2
EXIT_FAIL_ON = 3


class DipstickError(Exception):
    """An expected failure: a message for people, an exit status, no traceback.

    Args:
        what: What happened, one sentence.
        where: The file, folder or column it happened to; empty if none.
        fix: What the user can do about it; empty if nothing.
    """

    exit_code = EXIT_NO_ANSWER

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(self.message())

    def message(self) -> str:
        """The three parts as printed on stderr: ``where: what`` and an indented fix."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  {self.fix}" if self.fix else head


class RecordingError(DipstickError):
    """The folder is not a recording, is damaged beyond reading, or has a newer schema."""


class EmptyRecordingError(RecordingError):
    """The recording can be read but holds nothing that could be explained."""


class ImportFormatError(DipstickError):
    """No importer understands the file or folder, or a table in it is unusable."""


class UsageError(DipstickError):
    """The command line names something that does not exist; the choices are listed."""

    exit_code = EXIT_USAGE
