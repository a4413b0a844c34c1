"""The grammar as one regular expression, for decoding that can write nothing else (vLLM with xgrammar).

What matches is well formed and in range; whether the crystal has the element or the site is still the model's to learn.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_FRACTION = r"0(\.[0-9]{1,3})?"
_PERCENT = r"-?([0-9](\.[0-9])?|10)"
_SITE = r'( site="[0-9]{1,2}")?'


def elements_pattern(elements: Collection[str]) -> str:
    """Chemical symbols by first letter: far smaller automata than one branch a symbol.

    >>> elements_pattern(["H", "He", "C", "Ca", "Cl", "Na"])
    '(C[al]?|He?|Na)'
    """
    branches = []
    for first, group in groupby(sorted(elements), key=lambda symbol: symbol[0]):
        symbols = list(group)
        seconds = "".join(symbol[1:] for symbol in symbols)
        tail = f"[{seconds}]" if len(seconds) > 1 else seconds
        branches.append(f"{first}{tail}{'?' if seconds and first in symbols else ''}")
    return f"({'|'.join(branches)})"


def answer_pattern(elements: Collection[str], max_edits: int) -> str:
    """A whole answer of 1 to ``max_edits`` edits with these elements."""
    element = elements_pattern(elements)
    edits = (
        rf'substitute from="{element}" to="{element}"{_SITE}',
        rf'exchange a="{element}" b="{element}"',
        rf'remove element="{element}"{_SITE}',
        rf'add element="{element}" at="(void|{_FRACTION} {_FRACTION} {_FRACTION})"',
        rf'strain axis="(a|b|c|all)" percent="{_PERCENT}"',
    )
    times = "" if max_edits == 1 else f"{{1,{max_edits}}}"
    return f"<modification>(<({'|'.join(edits)})/>){times}</modification>"
