"""What the user says about the files that are imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from dipstick.errors import UsageError
from dipstick.importers.unix import unix_ns

if TYPE_CHECKING:
    from dipstick.importers.binding import Wish

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?")


@dataclass(frozen=True, slots=True)
class Options:
    """What the files do not say themselves.

    Attributes:
        format: Name of the importer, for all files; found out if empty.
        tz: Zone of times without one; None: not known.
        start_ns: Unix time of the first row (relative clocks, files without times); None: not known.
        interval_ns: Distance of two rows of one GPU in files without times; None: not known.
        time_format: How times are written (``strptime``); found out if empty.
        gpus: Number of GPUs in files whose rows do not name them; None: found out.
        wishes: ``--bind``.
        run: Which run, in files that hold several; empty: there must be one.
    """

    format: str = ""
    tz: tzinfo | None = None
    start_ns: int | None = None
    interval_ns: int | None = None
    time_format: str = ""
    gpus: int | None = None
    wishes: tuple[Wish, ...] = ()
    run: str = ""


def parse_zone(text: str) -> tzinfo:
    """``Europe/Berlin``, ``UTC``, ``+08:00``.

    Raises:
        UsageError: There is no such zone.
    """
    if text.upper() in {"UTC", "Z", "GMT"}:
        return UTC
    if match := _OFFSET.fullmatch(text):
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if offset <= timedelta(hours=14):
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(text)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"--tz: there is no zone {text!r}.", fix="Write it as Europe/Berlin, UTC or +08:00."
        ) from error


def parse_start(text: str, tz: tzinfo | None) -> int:
    """A point in time as Unix nanoseconds: ISO 8601 or Unix seconds.

    Args:
        text: ``2026-11-30T15:42:13Z``, ``2026-11-30 15:42:13`` (then ``tz`` counts), ``1796053333.9``.
        tz: Zone of a time without one.

    Raises:
        UsageError: It is no time, or has no zone and ``tz`` is None.
    """
    if re.fullmatch(r"\d{9,10}(\.\d{1,9})?", text):
        whole, _, part = text.partition(".")
        return int(whole) * 10**9 + int(part.ljust(9, "0") or 0)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--start: {text!r} is no time.", fix="Write 2026-11-30T15:42:13+01:00.") from error
    if when.tzinfo is None and tz is None:
        raise UsageError(f"--start: {text!r} has no zone.", fix="Append Z or +01:00, or give --tz.")
    return unix_ns(when if when.tzinfo else when.replace(tzinfo=tz))
