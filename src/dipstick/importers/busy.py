"""What ran on each GPU when, from a trace of every kernel and copy: exact shares of small windows.

Activities overlap on streams, so each class is a union of intervals, and an instant counts once: as work if any kernel
that is no communication ran, else as a copy, else as communication alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray, IntArray

WORK, COPY_DEVICE, COPY_BUS, COMM = range(4)
COLUMNS: Final = ("kernel_work_pct", "copy_device_pct", "copy_bus_pct", "comm_alone_pct")
"""Column of each class, in the order in which they count."""

MOST_WINDOWS: Final = 60_000
WINDOWS_NS: Final = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 60_000_000_000)
HELD: Final = 200_000
MOST_INTERVALS: Final = 2_000_000
"""Beyond so many separate intervals of a class, the shortest pauses between them are closed: memory is bounded."""

COMMUNICATION: Final = (
    "nccl",
    "rccl",
    "msccl",
    "nvshmem",
    "deepep",
    "cross_device_reduce",
    "multimem_all_reduce",
)
"""Parts of the names of kernels that talk to other GPUs (NCCL, RCCL, NVSHMEM, vLLM's own all-reduce)."""


def is_communication(name: str) -> bool:
    """Whether a kernel's name says that it talks to other GPUs."""
    low = name.lower()
    return any(word in low for word in COMMUNICATION)


@dataclass
class Union:
    """Intervals of one class, merged as they come; ns."""

    closed_ns: int = 0
    _whole: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    _new: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> None:
        """Add [start, end)."""
        self._new.append((start, end))
        if len(self._new) >= HELD:
            self._merge()

    def _merge(self) -> None:
        everything = np.concatenate([self._whole, np.asarray(self._new, np.int64).reshape(-1, 2)])
        self._new = []
        self._whole = merge(everything, self.closed_ns)
        while len(self._whole) > MOST_INTERVALS:
            self.closed_ns = max(2 * self.closed_ns, 1000)
            self._whole = merge(self._whole, self.closed_ns)

    def intervals(self) -> IntArray:
        """(N, 2), disjoint, sorted."""
        if self._new:
            self._merge()
        return self._whole


def merge(intervals: IntArray, pause: int = 0) -> IntArray:
    """The union of intervals (N, 2); pauses up to ``pause`` count as covered.

    Example: [0, 2), [1, 3), [5, 6) gives [0, 3), [5, 6).
    """
    if not len(intervals):
        return intervals
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    until = np.maximum.accumulate(ordered[:, 1])
    first = np.flatnonzero(np.concatenate([[True], ordered[1:, 0] > until[:-1] + pause]))
    last = np.concatenate([first[1:] - 1, [len(ordered) - 1]])
    return np.stack([ordered[first, 0], until[last]], axis=1)


def covered_until(intervals: IntArray, times: IntArray) -> IntArray:
    """Nanoseconds that disjoint sorted intervals cover before each time."""
    if not len(intervals):
        return np.zeros(len(times), np.int64)
    starts, ends = intervals[:, 0], intervals[:, 1]
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, times, side="right")
    inside = np.minimum(times, ends[np.maximum(at - 1, 0)]) - starts[np.maximum(at - 1, 0)]
    until: IntArray = before[np.maximum(at - 1, 0)] + np.where(at > 0, inside, 0)
    return until


@dataclass
class Device:
    """One GPU's activities.

    Attributes:
        events: How many.
        bytes_b: Copied, by kind (``HtoD``, ``DtoH`` ...).
        copies: How many, by kind.
    """

    events: int = 0
    bytes_b: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    classes: tuple[Union, ...] = field(default_factory=lambda: tuple(Union() for _ in COLUMNS))
    _merged: tuple[int, list[IntArray]] = field(default_factory=lambda: (-1, []))

    def add(self, kind: int, start: int, end: int) -> None:
        """Add one activity of a class."""
        self.events += 1
        self.classes[kind].add(start, end)

    def first(self) -> int | None:
        """Start of some activity, to tell what the times are; None without one."""
        return next((int(one.intervals()[0, 0]) for one in self.classes if len(one.intervals())), None)

    def layers(self) -> list[IntArray]:
        """Unions of the first class, the first two, ...: the differences of what they cover are exclusive."""
        if self._merged[0] != self.events:  # asked for by the extent, the windows and the facts
            found, sofar = [], np.zeros((0, 2), np.int64)
            for one in self.classes:
                sofar = merge(np.concatenate([sofar, one.intervals()]))
                found.append(sofar)
            self._merged = self.events, found
        return self._merged[1]

    def facts(self) -> dict[str, Any]:
        """Span, exact seconds of each class; they add up to ``busy_s``."""
        layers = self.layers()
        whole = layers[-1]
        seconds = np.diff([0, *(int((layer[:, 1] - layer[:, 0]).sum()) for layer in layers)]) / 1e9
        return {
            "events": self.events,
            "span_s": (int(whole[-1, 1]) - int(whole[0, 0])) / 1e9 if len(whole) else 0.0,
            "busy_s": int((whole[:, 1] - whole[:, 0]).sum()) / 1e9,
            **{
                f"{column.removesuffix('_pct')}_s": float(s)
                for column, s in zip(COLUMNS, seconds, strict=True)
            },
            "copies": dict(self.copies),
            "copied_b": dict(self.bytes_b),
        }

    def windows(self, start: int, end: int) -> pl.DataFrame:
        """Shares of windows over [start, end): columns of ``gpu_counters`` without host and GPU."""
        width = window_of(end - start)
        edges = _edges(start, end, width)
        covered = np.stack([np.diff(covered_until(layer, edges)) for layer in self.layers()])
        shares: FloatArray = 100 * np.diff(covered, axis=0, prepend=0) / np.diff(edges)
        return pl.DataFrame(
            {"t_ns": edges[1:], "window_ns": np.diff(edges), "gr_active_pct": 100 * covered[-1] / np.diff(edges),
             **dict(zip(COLUMNS, shares, strict=True))}
        )  # fmt: skip


def window_of(span_ns: int) -> int:
    """The finest window width of which a span holds at most ``MOST_WINDOWS``."""
    return next((w for w in WINDOWS_NS if span_ns <= w * MOST_WINDOWS), max(span_ns // MOST_WINDOWS, 1))


def _edges(start: int, end: int, width: int) -> IntArray:
    """Edges of whole windows from the start; the last one ends at or after the end."""
    count = max(-(-(end - start) // width), 1)
    return start + np.arange(count + 1, dtype=np.int64) * width


def extent(devices: Sequence[Device]) -> tuple[int, int] | None:
    """First start and last end of any activity; None if there is none."""
    wholes = [whole for device in devices if len(whole := device.layers()[-1])]
    return (min(int(w[0, 0]) for w in wholes), max(int(w[-1, 1]) for w in wholes)) if wholes else None
