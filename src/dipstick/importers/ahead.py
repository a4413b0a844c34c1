"""Works one item ahead in a thread: reading and parsing the next piece while the last one is written."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; the next one is made while the caller works on this one.

    An exception of the source is raised where its item would have come. If the caller stops early, the thread ends
    after the item it is making.
    """
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()
    thread = threading.Thread(target=_work, args=(items, ready, stopped), name="dipstick-import", daemon=True)
    thread.start()
    try:
        while True:
            is_item, value = ready.get()
            if is_item:
                yield value  # type: ignore[misc] # an item
            elif isinstance(value, BaseException):
                raise value
            else:
                return
    finally:
        stopped.set()
        thread.join()


def _work(
    items: Iterator[T], ready: queue.Queue[tuple[bool, T | BaseException | None]], stopped: threading.Event
) -> None:
    """Make the items; the last entry is the end, or what went wrong."""
    end: BaseException | None = None
    try:
        for item in items:
            if not _offer(ready, (True, item), stopped):
                return
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
        end = error
    _offer(ready, (False, end), stopped)


def _offer(
    ready: queue.Queue[tuple[bool, T | BaseException | None]],
    entry: tuple[bool, T | BaseException | None],
    stopped: threading.Event,
) -> bool:
    """Put an entry; False if nobody waits for it any more."""
    while not stopped.is_set():
        try:
            ready.put(entry, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
