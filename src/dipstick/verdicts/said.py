"""The user's own claims, from files and from the command line, compiled before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.errors import UsageError
from dipstick.verdicts import claims, scorecard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.verdicts.claims import Said

assert scorecard.REGISTERED  # noqa: S101 - importing it registers the tests


def gather(files: Sequence[Path], words: Sequence[str]) -> tuple[Said, ...]:
    """Compile all claims, files first.

    Raises:
        UsageError: A file that cannot be read, or a claim that does not compile.
    """
    said: list[Said] = []
    for path in files:
        said += claims.from_yaml(_read(path), str(path))
    return (*said, *(claims.from_words(text) for text in words))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read it: {error}", where=str(path), fix="a YAML list of {say: ..., test: NAME, ...}"
        ) from error
