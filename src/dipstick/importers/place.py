"""Files on one time axis: where the clock of each file lies on Unix time.

Rows whose times are not Unix time are stored on a clock of their own (``clock`` column); one anchor row a file says
where it lies, so that it can be read in one pass and what was decided stands in the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.offset import Offset
from dipstick.importers.witness import Witness, line_up

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
        rate: Seconds a second of the file's clock, counted from its first time.
        interval_s: 95 % interval of the offset, where it was estimated.
    """

    offset_ns: int = 0
    how: str = ""
    is_known: bool = True
    rate: float = 1.0
    interval_s: tuple[float, float] | None = None

    def plain(self) -> dict[str, Any]:
        """As it is stored in the manifest and printed with ``--json``."""
        low, high = self.interval_s or (None, None)
        return {
            "offset_s": self.offset_ns / 1e9, "offset_from": self.how or None, "offset_low_s": low,
            "offset_high_s": high, "clock_rate": self.rate,
        }  # fmt: skip


def place(
    accounts: Sequence[Account], options: Options, witnesses: Sequence[Witness] | None = None
) -> list[Place]:
    """Decide where every file lies.

    Args:
        accounts: Of the files, after they were read.
        options: ``tz`` was used when reading; ``start_ns`` places relative clocks.
        witnesses: What was kept of each file, to line relative clocks up by.

    Returns:
        One place a file.

    Raises:
        ImportFormatError: A file can't be lined up with the others; the message asks for ``--tz`` or ``--start``.
    """
    unix = [a for a in accounts if a.clock == "unix" and a.first_ns is not None]
    dated = [None if _floats(account) else _dated(account, unix) for account in accounts]
    kept = witnesses or [Witness() for _ in accounts]
    _check_one_start([a for a, w in zip(accounts, kept, strict=True) if _floats(a) and w.has_steps])
    known = [
        (w, p)
        for w, p, a in zip(kept, dated, accounts, strict=True)
        if p is not None and w.samples and a.tables["gpu"]
    ]
    return [
        where or _relative(account, witness, known, accounts, options)
        for account, witness, where in zip(accounts, kept, dated, strict=True)
    ]


def _check_one_start(floating: list[Account]) -> None:
    """Two logs that count from starts of their own (a restarted run) are not placed at one."""
    if len(floating) > 1:
        raise ImportFormatError(
            f"{floating[0].file} and it both time steps from a start of their own, and only one start can be given or found.",
            where=floating[1].file,
            fix="Import them one by one, each with its --start; or, if both log the same steps, leave one out.",
        )


def _floats(account: Account) -> bool:
    return account.clock == "relative" and account.first_ns is not None


def _dated(account: Account, unix: list[Account]) -> Place:
    return _local(account, unix) if account.clock == "local" and account.first_ns is not None else Place()


def _relative(
    account: Account,
    witness: Witness,
    known: list[tuple[Witness, Place]],
    everyone: Sequence[Account],
    options: Options,
) -> Place:
    """A clock of unknown start: given, or estimated from the telemetry of another file, or alone."""
    if options.start_ns is not None:
        return Place(options.start_ns, "you gave its start (--start)")
    if any(other is not account and other.first_ns is not None for other in everyone):
        found = _estimated(witness, *known[0]) if known else Offset(None, why="no other file has utilization")
        if isinstance(found, Place):
            return found
        raise ImportFormatError(
            f"it has no absolute times, so it can't be lined up with the other files: {found.why}.{_choices(found, known)}",
            where=account.file,
            fix="Give the time of its first row: --start 2026-11-30T15:42:13+01:00; or import it alone.",
        )
    return Place(
        NOWHERE_NS, "it has no absolute times: t = 0 is its start, the date is unknown", is_known=False
    )


def _estimated(log: Witness, telemetry: Witness, where: Place) -> Place | Offset:
    """Place a log where the telemetry follows its steps."""
    origin = int(telemetry.samples[0]["t_ns"].drop_nulls()[0])
    found = line_up(log, telemetry, origin)
    if found.offset_s is None:
        return found
    base = origin + where.offset_ns
    low, high = found.low_s - found.offset_s, found.high_s - found.offset_s
    stretch = (
        f"; its seconds are stretched by {100 * (found.rate - 1):.1f} % (no timer saw that part of each step)"
        if found.rate != 1
        else ""
    )
    how = (
        f"estimated from how utilization follows its steps: {low:+.1f} to {high:+.1f} s at 95 % "
        f"({100 * found.share:.0f} % of resamples agree on this step){stretch}; what happens within seconds of a step's edge "
        "can't be told from it; --start overrules"
    )
    return Place(
        base + round(found.offset_s * 1e9),
        how,
        where.is_known,
        found.rate,
        (base / 1e9 + found.low_s, base / 1e9 + found.high_s),
    )


def _choices(found: Offset, known: list[tuple[Witness, Place]]) -> str:
    """The dates of the offsets that fit about as well."""
    if not known or not found.others:
        return ""
    origin = int(known[0][0].samples[0]["t_ns"].drop_nulls()[0]) + known[0][1].offset_ns
    some = [
        datetime.fromtimestamp(origin / 1e9 + other, UTC).isoformat(timespec="seconds")
        for other in found.others[:4]
    ]
    return f" It may have begun at {', '.join(some)}."


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
