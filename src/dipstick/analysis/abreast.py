"""The same work for each GPU or rank, several at a time.

Threads suffice: nearly all of it is NumPy and Polars on arrays, which let go of the interpreter meanwhile. The analyses are
pure functions, so the order of work changes nothing.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
Result = TypeVar("Result")


def abreast(
    work: Callable[[Item], Result], items: Iterable[Item], *, workers: int | None = None
) -> list[Result]:
    """Apply ``work`` to every item.

    Args:
        work: A pure function.
        items: What it is given, in turn.
        workers: How many at a time; one a CPU if None.

    Returns:
        The results in the order of the items. An exception is raised as in a plain loop: the first item's first.
    """
    todo = list(items)
    at_once = min(workers or os.cpu_count() or 1, len(todo))
    if at_once <= 1:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, todo))
