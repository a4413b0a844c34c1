"""Numbers and recorded strings as people read them. Every renderer takes them from here."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ABSENT = "–"
"""What stands for a number that was not measured; never 0."""

_MINUTE = 60.0
_HOUR = 3600.0
_WHOLE_MS = 0.001
_DUST_S = 1e-9
"""What floats leave when nanoseconds are added up is no duration."""
_FINE_BELOW = 0.01
_MILLISECONDS_BELOW = 0.0995
_WHOLE_ABOVE = 99.95
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC (titles, hyperlinks), DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]",  # two-character escapes
    re.DOTALL,
)
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKS = re.compile(
    r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff\ufe20-\ufe2f]{2})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def clean(text: str, limit: int = 400) -> str:
    r"""A recorded string made safe for one line of a terminal or page.

    Terminal escapes go, white space becomes one blank, and control, format (zero-width, right-to-left
    overrides) and unassigned characters become ``\ufffd``; stacked combining marks are cut to two, and
    what is longer than ``limit`` ends in ``…``.

    >>> clean("a\x1b[31mb\x1b[0m\nc\u202ed")
    'ab c\ufffdd'
    """
    text = " ".join(_ESCAPES.sub("", text).split())
    text = "".join("\ufffd" if unicodedata.category(c) in _UNSAFE else c for c in text[: 4 * limit])
    text = _MARKS.sub(r"\1", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def known(value: float | None) -> bool:
    """Whether a number is there: not None, NaN or infinite."""
    return value is not None and math.isfinite(value)


def number(value: float | None, decimals: int = 1) -> str:
    """``1234.56`` -> ``1,234.6``; not measured -> ``–``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value + 0.0:z,.{decimals}f}"


def decimals_for(largest: float | None) -> int:
    """Decimals for a column of seconds: thousandths under 10 s, tenths under 10,000 s, else whole."""
    fine, coarse = 10.0, 10_000.0
    if largest is None or not math.isfinite(largest) or largest >= coarse:
        return 0
    return 3 if largest < fine else 1


def short(value: float | None) -> str:
    """Seconds in a column of mixed sizes, without unit: ``0.004``, ``0.17``, ``2.8``, ``146``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    return number(value, 3 if value < _FINE_BELOW else 2 if value < 1 else 1 if value < _WHOLE_ABOVE else 0)


def seconds(value: float | None) -> str:
    """One duration in running text, two figures or more: ``3 ms``, ``0.12 s``, ``7.6 s``, ``405 s``, ``1,234 s``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if abs(value) < _DUST_S:
        return "0 s"
    if abs(value) < _MILLISECONDS_BELOW:
        return f"{1000 * value:z.{0 if abs(value) >= _WHOLE_MS else 1}f} ms"
    decimals = 2 if abs(value) < 1 else 1 if abs(value) < _WHOLE_ABOVE else 0
    return f"{value:z,.{decimals}f} s"


def span(value: float | None) -> str:
    """A run's length: ``0.20 s``, ``405 s``, ``23 min 20 s``, ``24 h 00 min``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value < 10 * _MINUTE:
        return seconds(value)
    if value < 2 * _HOUR:
        return f"{int(value // _MINUTE)} min {int(value % _MINUTE):02d} s"
    return f"{int(value // _HOUR)} h {int(value % _HOUR // _MINUTE):02d} min"


def percent(value: float | None, decimals: int = 0) -> str:
    """A percentage that is already 0-100: ``61 %``; something is never shown as nothing: ``<1 %``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return (
        f"{number(value, decimals)} %"
        if value <= 0 or value >= 0.5 * 10**-decimals
        else f"<{10**-decimals:g} %"
    )


def share(part: float | None, whole: float | None, decimals: int = 0) -> str:
    """``part`` of ``whole`` in percent; nothing of nothing is absent, not 0."""
    if part is None or whole is None or not (math.isfinite(part) and math.isfinite(whole)) or whole <= 0:
        return ABSENT
    return percent(100 * part / whole, decimals)


def count(many: int, one: str, more: str = "") -> str:
    """``1 rank``, ``2 ranks``; ``more`` gives an irregular plural."""
    return f"{many:,} {one if many == 1 else more or one + 's'}"


def listed(items: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *head, last = list(items) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def clock(second: float, step: float) -> str:
    """A time on an axis whose ticks are ``step`` seconds apart: ``41.5 s``, ``120 s``, ``1:02 h``."""
    second = round(second, 6) + 0.0  # an axis that begins at -1e-9 begins at 0
    if step >= _MINUTE * 10:
        return f"{int(second // _HOUR)}:{int(second % _HOUR // _MINUTE):02d} h"
    decimals = 0 if step >= 1 else 1 if step >= 0.1 else 3  # noqa: PLR2004 - tenths under a second, else milliseconds
    return f"{second:z,.{decimals}f} s"
