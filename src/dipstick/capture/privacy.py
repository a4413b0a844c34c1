"""Command lines without their secrets: scrubbed before anything is written."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HIDDEN: Final = "***"
LONGEST: Final = 4096
"""Characters of a command line that are kept."""

_SENSITIVE: Final = r"(?:api|access|auth|secret|private)?keys?|token|secrets?|password|passwd|passphrase|pwd|credentials?|auth"
_NAME: Final = rf"[\w.+-]{{0,64}}?(?<![A-Za-z])(?:{_SENSITIVE})(?![A-Za-z])[\w.-]{{0,64}}"
"""A name one of whose words is secret: ``HF_TOKEN``, ``--wandb-api-key``, ``trainer.password``; not ``--tokenizer``.
Bounded, so that a hostile argument costs no quadratic time."""

_FLAG: Final = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_QUOTED_OR_WORD: Final = r"""(?:"[^"]*"|'[^']*'|[^\s;&|"',}\]]+)"""
_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(?P<kept>[A-Za-z][\w+.-]*://)[^\s/@'\"]+@"), rf"\g<kept>{HIDDEN}@"),
    (re.compile(rf"(?P<kept>[?&]{_NAME}=)[^&#\s'\"]+", re.IGNORECASE), rf"\g<kept>{HIDDEN}"),
    (re.compile(r"(?P<kept>[?&][\w-]*sig(?:nature)?=)[^&#\s'\"]+", re.IGNORECASE), rf"\g<kept>{HIDDEN}"),
    (re.compile(rf"(?P<kept>{_NAME}=){_QUOTED_OR_WORD}", re.IGNORECASE), rf"\g<kept>{HIDDEN}"),
    (
        re.compile(rf"(?P<kept>[\"']{_NAME}[\"']\s*:\s*){_QUOTED_OR_WORD}", re.IGNORECASE),
        rf"\g<kept>{HIDDEN}",
    ),
    (re.compile(rf"(?P<kept>\s--?{_NAME}\s+)(?!-){_QUOTED_OR_WORD}", re.IGNORECASE), rf"\g<kept>{HIDDEN}"),
    (re.compile(r"(?P<kept>\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE), rf"\g<kept>{HIDDEN}"),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?:hf_|sk-|sk_|pk_|gh[opusr]_|github_pat_|glpat-|xox[abeprs]-|wandb_v1_|nvapi-|r8_|AKIA|ASIA)"
            r"[A-Za-z0-9_-]{6,}|eyJ[\w-]{5,}\.[\w-]+\.[\w-]*"
        ),
        HIDDEN,
    ),
)


def scrub(arguments: Sequence[str]) -> str:
    """A command line as one string, quoted for a shell, without what looks like a secret.

    ``["python", "t.py", "--api-key", "abc", "HF_TOKEN=x", "https://me:pw@host/a"]`` becomes
    ``python t.py --api-key *** HF_TOKEN=*** https://***@host/a``. When in doubt it hides: a hidden harmless value
    costs a detail, a kept secret costs a key.

    Args:
        arguments: The program and its arguments.

    Returns:
        At most ``LONGEST`` characters.
    """
    shown = " ".join(part if part == HIDDEN else _quote(part) for part in _hide(arguments))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def scrub_text(text: str) -> str:
    """The same rules within one string (an argument of ``bash -c``, a URL, a JSON object)."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _hide(arguments: Sequence[str]) -> Iterator[str]:
    """Each argument scrubbed; what follows a secret flag is hidden whole."""
    follows_flag = False
    for argument in arguments:
        if follows_flag and not argument.startswith("-"):
            follows_flag = False
            yield HIDDEN
            continue
        follows_flag = _FLAG.fullmatch(argument) is not None
        yield scrub_text(argument[:LONGEST])


def _quote(part: str) -> str:
    """Quoted for a shell, without quotes that only our stars would need."""
    return part if shlex.quote(part.replace(HIDDEN, "")) == part.replace(HIDDEN, "") else shlex.quote(part)
