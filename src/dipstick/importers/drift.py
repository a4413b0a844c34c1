"""What two hosts' clocks may have drifted apart while both were recorded: said, as nothing in the files tells it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from dipstick.model import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.importers.account import Account

FREE_PPM: Final = 50
"""What a quartz that nothing disciplines may gain or lose; under NTP or PTP it is far less."""

WORTH_SAYING_S: Final = 0.1
"""Less is below what utilization counters resolve."""


def drift_notes(accounts: Sequence[Account]) -> list[Note]:
    """One note for the two hosts that were recorded together longest, where drift could be seen.

    Args:
        accounts: Of the files, after they were read. Relative clocks are left out: their rate is estimated or given up.
    """
    apart = [
        (seconds, a.host, b.host)
        for a, b in combinations([a for a in accounts if a.clock != "relative"], 2)
        if a.host != b.host and (seconds := _together_s(a, b)) * FREE_PPM / 1e6 >= WORTH_SAYING_S
    ]
    if not apart:
        return []
    seconds, one, other = max(apart)
    text = (
        f"the clocks of {one} and {other} are taken to agree for {seconds / 3600:.1f} h: drift is not estimated; "
        f"without NTP it may reach {seconds * FREE_PPM / 1e6:.1f} s ({FREE_PPM} ppm), and waits between them are off by as much"
    )
    return [Note("warning", text)]


def _together_s(a: Account, b: Account) -> float:
    """The length of the longer recording."""
    return max(((x.last_ns or 0) - (x.first_ns or 0)) / 1e9 for x in (a, b))
