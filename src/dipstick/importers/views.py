"""Two files that show the same GPUs at the same time: two views of one run, or two hosts."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.importers.account import Account

SHARED: Final = 0.5
"""Two files show the same time if they share this part of the shorter one."""


def redundant(accounts: Sequence[Account]) -> list[tuple[int, int]]:
    """Which files' utilization is shown more finely by another.

    Args:
        accounts: Of the files, after they were read.

    Returns:
        Pairs of positions: the file to leave out, the file that shows the same.

    Raises:
        ImportFormatError: Two files of one format show the same GPU of the same host: nothing tells whether they are
            two hosts.
    """
    left: dict[int, int] = {}
    for one, other in combinations(range(len(accounts)), 2):
        a, b = accounts[one], accounts[other]
        if not (_same_gpus(a, b) and _same_time(a, b)):
            continue
        if a.format == b.format:
            raise ImportFormatError(
                f"it shows the same GPUs at the same time as {a.file}: two hosts, or the same one twice?",
                where=b.file,
                fix=f"Name the hosts: node0={a.file} node1={b.file}; or leave one file out.",
            )
        coarse, fine = (one, other) if (a.interval_ns or 0) > (b.interval_ns or 0) else (other, one)
        left.setdefault(coarse, fine)
    return sorted(left.items())


def _same_gpus(a: Account, b: Account) -> bool:
    """Whether all GPUs of one are in the other, both with utilization."""
    if not (a.tables["gpu"] and b.tables["gpu"]):
        return False
    mine, theirs = ({key for key, level in x.levels.items() if level.count} for x in (a, b))
    return bool(mine & theirs)


def _same_time(a: Account, b: Account) -> bool:
    """Whether they overlap in time; clocks of two kinds can't be compared and count as the same time."""
    if a.first_ns is None or b.first_ns is None or a.last_ns is None or b.last_ns is None:
        return False
    if a.clock != b.clock:
        return True
    shorter = max(min(a.last_ns - a.first_ns, b.last_ns - b.first_ns), 1)
    return (min(a.last_ns, b.last_ns) - max(a.first_ns, b.first_ns)) / shorter >= SHARED
