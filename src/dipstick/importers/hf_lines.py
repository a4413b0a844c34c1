"""What a piece of an HF or TRL console says: a printed dict of numbers, or a progress bar. Nothing is evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Final

_BAR: Final = re.compile(
    r"(?:^|\s)\d{1,3}%\|[^|\n]{0,300}\| *(?P<done>\d{1,12})/(?P<total>\d{1,12}) \[(?P<elapsed>(?:\d{1,6}:)?\d{1,6}:\d\d)<"
)
_NAMED: Final = re.compile(r":\s*\d{1,3}%\|")
_MEMBER: Final = re.compile(
    r"""'(?P<key>[^'\n]{1,300})': *'?(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf)'?(?=[,}])"""
)
_ROW: Final = re.compile(r"\{'[^'\n]{1,300}': *(?:'?[-+.\dni][^{}\n]{0,200000})\}")
SNIFF: Final = re.compile(r"\{'[^{}\n]{0,20000}'(?:epoch|train_runtime)': *'?[-+\d]")


@dataclass(frozen=True, slots=True)
class Bar:
    """A tqdm bar: how far, of how much, after how many seconds; ``named`` if a description stands before it."""

    done: int
    total: int
    seconds: int
    named: bool


def bar(text: str) -> Bar | None:
    """The last bar in a piece of text, None if there is none."""
    match = next(reversed(list(_BAR.finditer(text))), None)
    if match is None:
        return None
    seconds = 0
    for part in match["elapsed"].split(":"):
        seconds = seconds * 60 + int(part)
    return Bar(
        int(match["done"]), int(match["total"]), seconds, _NAMED.search(text[: match.end()]) is not None
    )


def numbers(text: str) -> tuple[dict[str, float], int] | None:
    """Numbers of a row that HF printed, and how many were NaN or infinite; None if there is no such row.

    Example:
        ``{'loss': 0.1, 'step_time': '12.05', 'epoch': 1.0}`` and ``5%|▌ | 1/20 [00:09<…]{'loss': …}`` are rows.
    """
    match = _ROW.search(text) if "'epoch'" in text or "'train_runtime'" in text else None
    if match is None:
        return None
    found = {m["key"]: float(m["value"]) for m in _MEMBER.finditer(match[0])}
    good = {key: value for key, value in found.items() if isfinite(value)}
    known = "epoch" in found or "train_runtime" in found
    return (good, len(found) - len(good)) if known and good else None
