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
    """Compile all claims, files first. A single string is one claim, not a sequence of letters.

    Raises:
        UsageError: A file that cannot be read, a claim that does not compile, or more than 200 claims in all.
    """
    words = [words] if isinstance(words, str) else words
    said: list[Said] = []
    for path in files:
        said += claims.from_yaml(_read(path), str(path))
    if len(said) + len(words) > claims.MOST_CLAIMS:
        raise UsageError(f"more than {claims.MOST_CLAIMS} claims", fix="check them in several runs")
    return (*said, *(claims.from_words(text) for text in words))


def _read(path: Path) -> str:
    """The file's text; no more is read than a claims file may have (a device would never end)."""
    try:
        with path.open("rb") as file:
            data = file.read(claims.MOST_BYTES + 1)
        claims.check_size(len(data), str(path))
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot read it: {why}", where=str(path), fix="a YAML list of {say: ..., test: NAME, ...}"
        ) from error
