"""What was said on the command line and fits no file: silence would look like obedience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.model import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dipstick.importers.account import Account
    from dipstick.importers.binding import Wish
    from dipstick.importers.options import Options

SAID: Final = "you said so"
_TIMES: Final = {"time", "date", "clock", "elapsed"}


def unused(options: Options, accounts: Sequence[Account]) -> Iterator[Note]:
    """A warning for each ``--bind``, ``--start`` and ``--interval`` that nothing in the files made use of."""
    for wish in options.wishes:
        if not any(_obeyed(wish, account) for account in accounts):
            named = f"--bind {wish.column}={wish.meaning or 'ignore'}"
            yield Note("warning", f"{named}: no file has such a column: it was not used")
    timed = [any(b.meaning in _TIMES for b in account.bindings) for account in accounts]
    if options.interval_ns is not None and all(timed):
        yield Note("warning", "--interval was not used: the files have times of their own")
    absolute = [has and a.clock != "relative" for has, a in zip(timed, accounts, strict=True)]
    if options.start_ns is not None and all(absolute):
        yield Note(
            "warning",
            "--start was not used: the files have dates of their own (--tz gives the zone of local times)",
        )


def _obeyed(wish: Wish, account: Account) -> bool:
    """Whether a column was bound as it says; one given by its number is known by what it became."""
    said = [b for b in account.bindings if SAID in (b.sure, b.why)]
    if wish.column.isdigit():
        return any(b.meaning == wish.meaning for b in said)
    return any(wish.fits(b.source, 0) for b in said)
