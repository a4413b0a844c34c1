"""Files on one time axis: where the clock of each file lies on Unix time.

Rows whose times are not Unix time are stored on a clock of their own (``clock`` column); one anchor row a file says
where it lies, so that it can be read in one pass and what was decided stands in the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.importers.account import Account
    from dipstick.importers.options import Options

NOWHERE_NS: Final = 1_000_000_000
"""Where a relative clock of unknown start lies: one second after the Unix epoch, no date anyone would believe."""

_HOUR_NS: Final = 3_600_000_000_000
ZONES_MINUTES: Final = (
    *range(-720, 841, 60), -570, -210, 210, 270, 330, 345, 390, 525, 570, 630, 765,
)  # fmt: skip
"""Offsets from UTC that are in use somewhere."""

OVERLAP: Final = 0.5
"""A zone is possible if at least this share of the shorter file lies within the other files."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one file lies.

    Attributes:
        offset_ns: Added to its times to get Unix time.
        how: How that is known, in words; empty if the file has Unix times.
        is_known: False: relative times are right, dates are not.
    """

    offset_ns: int = 0
    how: str = ""
    is_known: bool = True


def place(accounts: Sequence[Account], options: Options) -> list[Place]:
    """Decide where every file lies.

    Args:
        accounts: Of the files, after they were read.
        options: ``tz`` was used when reading; ``start_ns`` places relative clocks.

    Returns:
        One place a file.

    Raises:
        ImportFormatError: A file can't be lined up with the others; the message asks for ``--tz`` or ``--start``.
    """
    unix = [a for a in accounts if a.clock == "unix" and a.first_ns is not None]
    return [_place(account, unix, accounts, options) for account in accounts]


def _place(account: Account, unix: list[Account], everyone: Sequence[Account], options: Options) -> Place:
    if account.clock == "unix" or account.first_ns is None:
        return Place()
    if account.clock == "local":
        return _local(account, unix)
    if options.start_ns is not None:
        return Place(options.start_ns, "you gave its start (--start)")
    if any(other is not account and other.first_ns is not None for other in everyone):
        raise ImportFormatError(
            "it has no absolute times, so it can't be lined up with the other files.",
            where=account.file,
            fix="Give the time of its first row: --start 2026-11-30T15:42:13+01:00; or import it alone.",
        )
    return Place(
        NOWHERE_NS, "it has no absolute times: t = 0 is its start, the date is unknown", is_known=False
    )


def _local(account: Account, unix: list[Account]) -> Place:
    """Local time without a zone: alone it needs none; beside absolute times only one zone may fit."""
    if not unix:
        return Place(0, "local time without a zone, read as UTC: distances are right, the date may be hours off (--tz)",
                     is_known=False)  # fmt: skip
    first, last = min(a.first_ns or 0 for a in unix), max(a.last_ns or 0 for a in unix)
    possible = [m for m in ZONES_MINUTES if _overlap(account, m, first, last) >= OVERLAP]
    if len(possible) != 1:
        several = (
            f"{len(possible)} zones would fit" if possible else "in no zone it overlaps with the other files"
        )
        raise ImportFormatError(
            f"its times are local and name no zone; {several}.",
            where=account.file,
            fix="Give the zone of the host that wrote it: --tz Europe/Berlin (or UTC, or +08:00).",
        )
    return Place(
        -possible[0] * _HOUR_NS // 60,
        f"zone {_zone(possible[0])}: the only one in which it overlaps with the other files",
    )


def _overlap(account: Account, minutes: int, first: int, last: int) -> float:
    """Share of the shorter one that both cover if the local times are this far ahead of UTC."""
    shift = minutes * _HOUR_NS // 60
    begin, end = (account.first_ns or 0) - shift, (account.last_ns or 0) - shift
    shorter = max(min(end - begin, last - first), 1)
    return (min(end, last) - max(begin, first)) / shorter


def _zone(minutes: int) -> str:
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
