"""How a column writes times, found out from its first cells; and text to Unix nanoseconds, batch by batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import polars as pl

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.importers.base import Clock

_DATES: Final = {
    "%Y/%m/%d": r"\d{4}/\d{1,2}/\d{1,2}", "%Y-%m-%d": r"\d{4}-\d{1,2}-\d{1,2}", "%Y%m%d": r"\d{8}",
    "%Y.%m.%d": r"\d{4}\.\d{1,2}\.\d{1,2}", "%d.%m.%Y": r"\d{1,2}\.\d{1,2}\.\d{4}",
}  # fmt: skip
"""Dates that say what they mean. ``1/2/2026`` does not."""

_SLASHED: Final = re.compile(r"(\d{1,2})([/-])(\d{1,2})[/-](\d{4}|\d{2})\b")
_CTIME: Final = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d{1,2}:\d\d:\d\d (?:[A-Z]{3,4} )?\d{4}"
)
_CLOCK: Final = re.compile(
    r"(?P<sep>[ T_]| +)?(?P<h>\d{1,2}):\d\d(?P<s>:\d\d)?(?P<f>[.,]\d{1,9})?(?P<ap> ?[AaPp][Mm])?(?P<z> ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
_NUMBER: Final = re.compile(r"[+-]?\d{1,25}(?:\.\d{0,18})?(?:[eE][+]?\d{1,2})?")
EPOCHS: Final = {"s": (1e9, 2e9 + 2.1e9), "ms": (1e12, 4.1e12), "us": (1e15, 4.1e15), "ns": (1e18, 4.1e18)}
"""Unix time between 2001 and 2099, in each unit."""

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
TRIED: Final = 200
FOLD_S: Final = 1800
"""Local time that goes back by more than this may be the end of daylight saving time."""


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a column writes times.

    Attributes:
        kind: What its clock is.
        pattern: For ``strptime``; empty for numbers.
        unit: Of numbers: s, ms, us, ns.
        resolution_ns: 1 s for times without a fraction, 0 for finer ones.
        says: The format in words.
        aware: Each cell names its offset from UTC.
        comma: The fraction follows a comma.
    """

    kind: Clock
    pattern: str = ""
    unit: str = ""
    resolution_ns: int = 0
    says: str = ""
    aware: bool = False
    comma: bool = False


CTIME: Final = TimeFormat("local", "%a %b %d %H:%M:%S %Y", resolution_ns=10**9, says="local, whole seconds")
"""``Tue Oct 29 19:00:23 2024``, as ``date`` and plain nvidia-smi write it."""


def find_format(cells: Sequence[str | None], *, elapsed: bool = False) -> TimeFormat | None:
    """How these cells write times, None if they are none.

    Args:
        cells: The first cells of a column.
        elapsed: The column's name says that it counts from the start of the run.

    Raises:
        ImportFormatError: Days and months can't be told apart (``1/2/2026``).
    """
    some = [text for cell in cells[:TRIED] if cell and (text := cell.strip())]
    if not some:
        return None
    if sum(bool(_NUMBER.fullmatch(text)) for text in some) >= 0.8 * len(some):
        return _number(some, elapsed=elapsed)
    if sum(bool(_CTIME.fullmatch(text)) for text in some) >= 0.8 * len(some):
        return CTIME
    dated = [
        (day, match) for text in some if (day := _day(text)) and (match := _CLOCK.fullmatch(text, day[1]))
    ]
    if len(dated) < 0.8 * len(some):
        return None
    days = {day[0] for day, _ in dated}
    pattern = days.pop() if len(days) == 1 else ""
    pattern = pattern or _slashed([text for text in some if _SLASHED.match(text)])
    return _dated(pattern, [match for _, match in dated])


def _number(some: list[str], *, elapsed: bool) -> TimeFormat | None:
    """Unix time by its size; seconds since the start if the name says so."""
    values = [float(text) for text in some if _NUMBER.fullmatch(text)]
    for unit, (low, high) in EPOCHS.items():
        if all(low <= value < high for value in values):
            whole = unit == "s" and all(value.is_integer() for value in values)
            return TimeFormat("unix", unit=unit, resolution_ns=10**9 * whole, says=f"Unix time in {unit}")
    if elapsed and all(0 <= value < 1e8 for value in values):  # noqa: PLR2004 - three years
        return TimeFormat("relative", unit="s", says="seconds since the start")
    return None


def _day(text: str) -> tuple[str, int] | None:
    """The format of the date at the beginning (empty: slashed), and where it ends."""
    for pattern, form in _DATES.items():
        if match := re.match(rf"{form}(?!\d)", text):
            return pattern, match.end()
    slashed = _SLASHED.match(text)
    return ("", slashed.end()) if slashed else None


def _slashed(some: list[str]) -> str:
    """Day first or month first, by a number above 12.

    Raises:
        ImportFormatError: Every number is 12 or less.
    """
    found = [match for text in some if (match := _SLASHED.match(text))]
    first, second = (max(int(m[i]) for m in found) for i in (1, 3))
    between, year = found[0][2], "%Y" if len(found[0][4]) == 4 else "%y"  # noqa: PLR2004 - digits
    if first > 12 >= second:  # noqa: PLR2004 - months
        return f"%d{between}%m{between}{year}"
    if second > 12 >= first:  # noqa: PLR2004 - months
        return f"%m{between}%d{between}{year}"
    raise ImportFormatError(
        f"{some[0]!r} may be day/month or month/day.",
        fix=f"Say which: --time-format '%d{between}%m{between}{year} %H:%M:%S' or '%m{between}%d{between}{year} %H:%M:%S'.",
    )


def _dated(day: str, found: list[re.Match[str]]) -> TimeFormat:
    """Date, time of day, fraction, half of the day, offset."""
    first = found[0]
    hour = "%I" if first["ap"] else "%H"
    aware = all(match["z"] for match in found)
    fraction = any(match["f"] for match in found)
    comma = any((match["f"] or "").startswith(",") for match in found)
    clock = (
        f"{hour}:%M"
        + ("%S" if not first["s"] else ":%S")[0 if first["s"] else 2 :]
        + ("%.f" if fraction else "")
    )
    text = f"{day}{first['sep'] or ''}{clock}" + (
        " %p" if first["ap"] and first["ap"].startswith(" ") else "%p" if first["ap"] else ""
    )
    kind: Clock = "unix" if aware else "local"
    fine = "" if fraction else ", whole seconds"
    says = f"with offset{fine}" if aware else f"local{fine}"
    return TimeFormat(kind, text, resolution_ns=0 if fraction else 10**9, says=says, aware=aware, comma=comma)


def given_format(pattern: str) -> TimeFormat:
    """The format of ``--time-format``."""
    aware = "%z" in pattern or "%Z" in pattern
    fine = "%.f" in pattern or "%f" in pattern or "%.3f" in pattern
    says = f"{pattern} (you said so)"
    return TimeFormat("unix" if aware else "local", pattern.replace("%f", "%6f") if "%f" in pattern else pattern,
                      resolution_ns=0 if fine else 10**9, says=says, aware=aware)  # fmt: skip


class TimeReader:
    """Cells of one column to nanoseconds; remembers over batches whether daylight saving time has ended.

    Args:
        form: How they are written.
        tz: Zone of local times; None: they stay local.
    """

    def __init__(self, form: TimeFormat, tz: tzinfo | None) -> None:
        self.form = form
        self._tz = tz if form.kind == "local" else None
        self._fell_back = False
        self._last: datetime | None = None

    @property
    def clock(self) -> Clock:
        """What the nanoseconds are."""
        return "unix" if self._tz is not None else self.form.kind

    def read(self, cells: pl.Series) -> pl.Series:
        """Nanoseconds (Unix time; local time as if it were UTC; since the start), null where a cell is no time."""
        if self.form.unit:
            return _numbers(cells, self.form.unit)
        text = cells.cast(pl.String).str.strip_chars()
        if self.form.comma:
            text = text.str.replace(",", ".", literal=True)
        if self.form.aware:
            return _aware(text, self.form.pattern).alias(cells.name)
        if self.form.pattern.startswith("%a"):
            text = text.str.replace(r" [A-Z]{3,4} (\d{4})$", " $1")
        local = text.str.to_datetime(self.form.pattern, strict=False, time_unit="ns")
        return (local if self._tz is None else self._zoned(local)).cast(pl.Int64).alias(cells.name)

    def _zoned(self, local: pl.Series) -> pl.Series:
        """Local times of the zone; the hour that comes twice is the later one after the clock went back."""
        if not isinstance(self._tz, ZoneInfo):
            offset = datetime.now(UTC).astimezone(self._tz).utcoffset() or timedelta(0)
            return local.dt.offset_by(f"{-round(offset.total_seconds())}s")
        back = (local.diff() < timedelta(seconds=-FOLD_S)).fill_null(value=False)
        frame = pl.DataFrame({"at": local, "fell": back.cum_sum() > 0})
        later = pl.col("fell") | pl.lit(self._fell_back)
        first = local.drop_nulls()
        if self._last is not None and len(first) and (first[0] - self._last).total_seconds() < -FOLD_S:
            later = pl.lit(value=True)
        ambiguous = pl.when(later).then(pl.lit("latest")).otherwise(pl.lit("earliest"))
        zoned = frame.with_columns(
            pl.col("at").dt.replace_time_zone(self._tz.key, ambiguous=ambiguous, non_existent="null"),
            fell=later,
        )
        if len(first):
            self._last, self._fell_back = first[-1], bool(zoned["fell"][-1])
        return zoned["at"].dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def _aware(text: pl.Series, pattern: str) -> pl.Series:
    """Times with an offset; ``Z`` and ``UTC`` are offsets too."""
    plain = text.str.replace(r" ?(?:Z|UTC)$", "+00:00").str.replace(r" ([+-]\d\d:?\d\d)$", "$1")
    stamp = pattern if "%z" in pattern else f"{pattern}%z"
    return (
        plain.str.to_datetime(stamp, strict=False, time_unit="ns").dt.replace_time_zone(None).cast(pl.Int64)
    )


def _numbers(cells: pl.Series, unit: str) -> pl.Series:
    """Numbers to nanoseconds: whole ones exactly, fractions to the microsecond; absurd ones are null."""
    text = cells.cast(pl.String).str.strip_chars() if cells.dtype == pl.String else cells
    scale = 10**9 // _PER_SECOND[unit]
    limit = 2**62 // scale
    whole = text.cast(pl.Int64, strict=False)
    real = text.cast(pl.Float64, strict=False)
    frame = pl.DataFrame({"whole": whole, "real": real})
    exact = pl.when(pl.col("whole").is_between(-limit, limit)).then(pl.col("whole") * scale)
    finite = pl.col("real").is_finite() & (pl.col("real").abs() < limit)
    step = min(scale, 1000)
    near = pl.when(finite).then(
        (pl.col("real") * (scale // step)).round().cast(pl.Int64, strict=False) * step
    )
    is_whole = pl.col("whole").is_not_null() & (
        (pl.col("real") == pl.col("whole")) | pl.col("real").is_null()
    )
    return frame.select(pl.when(is_whole).then(exact).otherwise(near).alias("t"))["t"].alias(cells.name)
