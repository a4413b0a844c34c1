"""Lines of a training log as people keep them: without colours, Ray's prefixes and progress bars, with their time if any."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Final

from dipstick.importers.chunks import chunks
from dipstick.importers.unix import unix_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo
    from pathlib import Path

    from dipstick.importers.base import Sink

PIECE: Final = 4 << 20
LONGEST: Final = 1 << 20
"""Characters of a line that are looked at; a row of metrics has some thousand."""
FIRST_S: Final = 1_000_000_000
LAST_S: Final = 4_100_000_000
"""Unix seconds between 2001 and 2099: other stamps are no times of a log."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RAY: Final = re.compile(r"\s*\([A-Za-z_][\w.:-]* pid=\d+(?:, ip=[\w.:]+)?\)\s?")
_STAMP: Final = re.compile(
    r"\s*\[?(?:[A-Z]+ )?(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
)
_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf"
_WRAPPED: Final = re.compile(rf"(?:[\w.]+\()?({_NUMBER})\)?", re.IGNORECASE)
_MEMBER: Final = re.compile(
    rf"""(?:'([^'\n]{{1,300}})'|"([^"\n]{{1,300}})")\s*:\s*(?:[\w.]{{1,40}}\()?({_NUMBER})(?=[\s,)}}\]]|$)""",
    re.IGNORECASE,
)
_LONGEST_NUMBER: Final = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        text: Without colours and Ray's prefix.
        t_ns: The stamp at its beginning (Unix time; local time as if it were UTC where no zone is given), or None.
        second: Whether the stamp has whole seconds only.
    """

    text: str
    t_ns: int | None = None
    second: bool = False


def read_lines(path: Path, sink: Sink, zone: tzinfo | None) -> Iterator[Line]:
    """Every line of the log; a carriage return ends one too.

    Args:
        path: The file, plain or gzip.
        sink: Is told progress, and lines that are too long.
        zone: Zone of stamps without one; None: they are read as if they were UTC.
    """
    return (_line(text, zone) for text in pieces(path, sink))


def pieces(path: Path, sink: Sink | None = None) -> Iterator[str]:
    """Text between line ends and carriage returns, without colours; nothing is told without a sink."""

    def damage(why: str) -> None:
        if sink is not None:
            sink.note("warning", f"{sink.file}: {why}")

    for data, done in chunks(path, size=PIECE, damage=damage):
        for raw in data.decode("utf-8", "replace").replace("\r", "\n").split("\n"):
            if len(raw) > LONGEST:
                if sink is not None:
                    sink.drop("line of more than a million characters", 1)
            elif raw:
                yield _COLOUR.sub("", raw) if "\x1b" in raw else raw
        if sink is not None:
            sink.progress(done)


def _line(text: str, zone: tzinfo | None) -> Line:
    prefix = _RAY.match(text)
    text = text[prefix.end() :] if prefix else text
    stamp = _STAMP.match(text[:64])
    at = None if stamp is None else _stamp_ns(stamp["day"], stamp["clock"], stamp["part"] or "", zone)
    return Line(text, at, at is not None and stamp is not None and not stamp["part"])


def _stamp_ns(day: str, clock: str, part: str, zone: tzinfo | None) -> int | None:
    """Nanoseconds of a stamp; None if there is no such day or time, or not in this century."""
    try:
        when = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=zone or UTC)
        since = unix_ns(when) // 10**9
    except (ValueError, OverflowError):
        return None
    if not FIRST_S <= since < LAST_S:
        return None
    return since * 10**9 + int(part.ljust(9, "0") or 0)


def number(text: str) -> float | None:
    """The number, also as NumPy 2 prints it (``np.float64(1.5)``); None if it is none, or not finite."""
    text = text.strip()
    match = (
        _WRAPPED.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    )  # cut, it would be another number
    value = float(match[1]) if match else None
    return value if value is not None and isfinite(value) else None


def members(text: str) -> dict[str, float]:
    """Names and finite numbers of a printed dict, cut or nested as it may be. Nothing is evaluated."""
    found = ((first or second, float(value)) for first, second, value in _MEMBER.findall(text))
    return {name: value for name, value in found if isfinite(value)}


def looks_like(path: Path, head: str, form: re.Pattern[str], deep: int = 8 << 20) -> bool:
    """Whether a line of the form is at the head, or in the first megabytes of a log (where its own text comes first)."""
    if form.search(_COLOUR.sub("", head)):
        return True
    if not head or path.suffix.lower() not in {".log", ".txt", ".out", ".err", ""} or path.is_dir():
        return False
    with path.open("rb") as stream:
        return form.search(_COLOUR.sub("", stream.read(deep).decode("utf-8", "replace"))) is not None
