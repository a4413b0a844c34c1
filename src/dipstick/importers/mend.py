"""Telemetry times that go back: a clock that was set, parts of a log in another order, or rows in no order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from dipstick.importers.base import Sink
    from dipstick.model import IntArray

MANY_STEPS: Final = 20
"""More backward moves than this in one batch are rows out of order, not a clock that was set."""

LATEST_NS: Final = 2**63 - 1
"""Clocks that jump by centuries are not mended beyond what a time can hold."""


class Mender:
    """Moves rows behind a clock that was set back so that time goes on; remembers each series from batch to batch.

    Args:
        sink: Is told of every step.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._shift = 0
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def mend(self, times: IntArray, series: IntArray) -> IntArray:
        """Times of one batch, in file order, mended.

        Args:
            times: Nanoseconds, shape (n,).
            series: Which GPU each row belongs to, small numbers, shape (n,).

        Returns:
            Times of the same rows.
        """
        times = times + self._shift if self._shift else times
        order = np.argsort(series, kind="stable")  # radix sort: groups the series, keeps the order within
        grouped = series[order]
        starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
        for _ in range(MANY_STEPS):
            found = self._step(times, order, grouped, starts)
            if found is None:
                break
            row, size = found
            if int(times.max()) + size > LATEST_NS:
                self._give_up()
                break
            times = times.copy()
            times[row:] += size
            self._shift += size
        else:
            self._give_up()
        ends = np.append(starts[1:], len(order)) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            key = int(grouped[start])
            self._first.setdefault(key, int(times[order[start]]))
            self._last[key] = max(self._last.get(key, 0), int(times[order[end]]))
        return times

    def _give_up(self) -> None:
        self._sink.note(
            "warning",
            f"{self._sink.file}: times go back in many places; its rows are taken as out of order",
        )

    def _step(
        self, times: IntArray, order: IntArray, grouped: IntArray, starts: IntArray
    ) -> tuple[int, int] | None:
        """The first row, in file order, where a series goes back into covered time, and by how much to move the rest."""
        sorted_times = times[order]
        before = np.concatenate([sorted_times[:1], sorted_times[:-1]])
        before[starts] = [self._last.get(int(grouped[s]), int(sorted_times[s])) for s in starts]
        change = sorted_times - before
        back = np.flatnonzero(change < 0)
        if not len(back):
            return None
        forward = change[change > 0]
        usual = int(np.median(forward)) if len(forward) else 0
        for at in back[np.argsort(order[back])]:
            key, time = int(grouped[at]), int(sorted_times[at])
            start = starts[np.searchsorted(starts, at, side="right") - 1]
            if time < self._first.get(key, int(sorted_times[start])):
                continue  # before everything: parts of a log in another order, not a clock that was set
            size = int(-change[at]) + usual
            self._sink.note(
                "warning",
                f"{self._sink.file}: the clock went back {-change[at] / 1e9:.3f} s after {before[at] / 1e9:.3f}; "
                f"the rows from there on are moved by {size / 1e9:+.3f} s, so that time goes on",
            )
            return int(order[at]), size
        return None
