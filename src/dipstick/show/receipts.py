"""Receipts as people check them: the evidence, where it is, and a command that derives it again."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dipstick.errors import UsageError
from dipstick.show import words
from dipstick.show.document import Proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.judgement import Check, Claim, Receipt
    from dipstick.model import Report

CHECK_NAMES = ("alignment", "phases", "memory_spikes", "stragglers", "trends")
SAMPLE = "sample:"
_MOST_WORDS = 1000


def run_word(report: Report) -> str:
    """How commands name the recording: samples by their name, others as ``RUN``, because a page may travel."""
    return report.run.name if report.run.name.startswith(SAMPLE) else "RUN"


def command(receipt: Receipt, run: str, *, unicode: bool = True) -> str:
    """``dipstick query RUN 'SELECT ...'`` for a shell; empty where there is nothing to query."""
    if not receipt.query:
        return ""
    return " ".join(["dipstick", "query", *(quoted(word, unicode=unicode) for word in (run, receipt.query))])


def quoted(word: str, *, unicode: bool = True) -> str:
    r"""One shell word, in characters that are safe to print.

    SQL has quotes of its own, so double ones go around it where nothing in it would be expanded there.
    Recorded strings are hostile: where ``words.clean`` would change them, bash's ``$'...'`` says the same
    with escapes, so that the command shown is the command that runs. ``unicode=False`` escapes all but ASCII.

    >>> quoted("rank = 'a'")
    '"rank = \'a\'"'
    >>> quoted("it's $5")
    '\'it\'"\'"\'s $5\''
    >>> quoted("a\x1bb")
    "$'a\\x1bb'"
    """
    if words.clean(word, len(word) + 1) != word or not (unicode or word.isascii()):
        return "$'" + "".join(_escaped(c) for c in word).replace("  ", r" \x20") + "'"
    if "'" in word and not _EXPANDED & set(word):
        return f'"{word}"'
    return shlex.quote(word)


_EXPANDED = set('"$`\\!')


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable() and character.isascii():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def where(receipt: Receipt) -> str:
    """``247.8–249.1 s, GPU 0, rank 1``, or ``train.py:42``."""
    parts = [_place(receipt), _times(receipt)]
    parts += [f"GPU {receipt.gpu}" if receipt.gpu is not None else ""]
    parts += [f"rank {receipt.rank}" if receipt.rank is not None else ""]
    return ", ".join(part for part in parts if part)


def _place(receipt: Receipt) -> str:
    if not receipt.file:
        return ""
    line = "" if receipt.line is None else f":{receipt.line}"
    return f"{words.clean(receipt.file, 200)}{line}"


def _times(receipt: Receipt) -> str:
    known = [words.number(t, 3) for t in (receipt.t0_s, receipt.t1_s) if words.known(t)]
    return f"{'–'.join(known)} s" if known else ""


def proof(receipt: Receipt, run: str) -> Proof:
    """The receipt, ready to show."""
    text = words.clean(receipt.text, _MOST_WORDS)
    size = f"{receipt.value:z,.0f} bytes" if receipt.kind == "bytes" and words.known(receipt.value) else ""
    text = f"{text} ({size})" if size and not _says(text, receipt.value) else text
    return Proof(text, where(receipt), receipt.origin, command(receipt, run), _span(receipt))


def _span(receipt: Receipt) -> tuple[float, float] | None:
    """The stretch, if both ends are known; an instant is one of no length."""
    start, end = receipt.t0_s, receipt.t1_s if receipt.t1_s is not None else receipt.t0_s
    if start is None or end is None or not (words.known(start) and words.known(end)) or end < start:
        return None
    return start, end


def _says(text: str, value: float | None) -> bool:
    """Whether the number already stands in the text."""
    return f"{value:z.0f}" in re.sub(r"(?<=\d),(?=\d)", "", text)


def known_name(name: str) -> str:
    """The name itself, if it can name a check or claim; asked before any work is done.

    Raises:
        UsageError: It is neither a check's name nor a number.
    """
    if name in CHECK_NAMES or is_number(name):
        return name
    raise _unknown(name, [*CHECK_NAMES, "the number of a claim in the scorecard"])


def find(report: Report, name: str) -> Check | Claim:
    """The check of that name, or the claim of that number in the scorecard, from 1.

    Raises:
        UsageError: There is no such check or claim; the message lists those there are.
    """
    found: list[Check | Claim] = [check for check in report.checks if check.name == name]
    if is_number(name):
        found += report.claims[max(int(name) - 1, 0) : int(name)]
    if found:
        return found[0]
    known = [words.clean(check.name, 24) for check in report.checks]
    raise _unknown(name, known + ([f"1 to {len(report.claims)} (the scorecard)"] if report.claims else []))


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    fix = f"use one of: {', '.join(known)}" if known else "nothing was judged in this recording"
    return UsageError(f"there is no check or claim {name!r}", where="--receipts", fix=fix)


def is_number(name: str) -> bool:
    """Whether a name is a claim's number."""
    return name.isascii() and name.isdigit() and len(name) < 10  # noqa: PLR2004 - int() of a million digits takes minutes


def as_json(receipt: Receipt, run: str) -> dict[str, Any]:
    """The receipt's fields and its command; what it doesn't have is None."""
    fields = {key: None if value == "" else value for key, value in asdict(receipt).items()}
    return {**fields, "command": command(receipt, run) or None}
