"""stdout is the answer, stderr is talk."""

from __future__ import annotations

import os
import shlex
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Talk:
    """What is said beside the answer, on stderr.

    Attributes:
        program: Whose errors they are.
        quiet: Say nothing but errors.
        traceback: Show where an error came from.
    """

    def __init__(self, *, quiet: bool = False, traceback: bool = False, program: str = "dipstick") -> None:
        self.program = program
        self.quiet = quiet
        self.traceback = traceback

    def say(self, text: str) -> None:
        """A line, unless quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)  # noqa: T201 - talk goes to stderr

    def next(self, words: Sequence[str], why: str) -> None:
        """The command to run next, quoted for a shell."""
        self.say(f"next: {shlex.join(words)}  ({why})")

    def error(self, message: str) -> None:
        """What went wrong: what, where, what to do."""
        if self.traceback:
            import traceback  # noqa: PLC0415 - only after an error

            traceback.print_exc()
        print(f"{self.program}: error: {_one_line_each(message)}", file=sys.stderr)  # noqa: T201 - errors go to stderr


def _one_line_each(message: str) -> str:
    """The message without control characters; file names and recorded strings can hold any."""
    from dipstick.show.words import clean  # noqa: PLC0415 - only after an error

    first, *rest = message.splitlines() or [""]
    return "\n".join([clean(first, 1000), *(f"  {clean(line, 1000)}" for line in rest)])


def answer(text: str) -> None:
    """Write the answer to stdout; characters that its encoding lacks become ``?``."""
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def answer_json(value: dict[str, Any]) -> None:
    """Write one JSON document to stdout, and nothing else."""
    import json  # noqa: PLC0415 - --help stays light

    from dipstick.show.json import plain  # noqa: PLC0415 - --help stays light

    answer(json.dumps(plain(value), indent=2, allow_nan=False))


def drop_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
