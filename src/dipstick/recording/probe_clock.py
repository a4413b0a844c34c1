"""Anchors of many processes of one host: a step of the wall clock that one process saw counts for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.clock import ClockMap, fit_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Anchors = list[tuple[int, int]]

MOST_STEPS: Final = 3
LONGEST_STEP_NS: Final = 3600 * 1_000_000_000
"""More or larger steps mean that the processes do not share a monotonic clock (containers with one host name)."""


def align(segments: Mapping[int, Anchors]) -> tuple[dict[int, Anchors], ClockMap | None]:
    """Put the anchors of one host's processes on one axis without steps.

    On Linux all processes of a host read the same monotonic clock. A process that starts after the wall clock was
    set has only anchors from after the step; alone it would be placed wrong by the step. So all anchors are fitted
    together, and every anchor is moved to the common axis, which is that before the first step.

    Worked example: process 1 has anchors (0 s, 1000 s) and (60 s, 4660 s), a step of +1 h; process 2, started at
    70 s, has (70 s, 4670 s). Together: 70 s is 1070 s. Process 2's anchor becomes (70 s, 1070 s).

    Args:
        segments: Anchors (monotonic, Unix) by clock number.

    Returns:
        The anchors as they are to be stored, and the common fit; unchanged and None where they don't fit together.
    """
    pooled = sorted(anchor for anchors in segments.values() for anchor in anchors)
    if not pooled:
        return dict(segments), None
    common = fit(pooled)
    if len(common.steps) > MOST_STEPS or any(abs(step.step_ns) > LONGEST_STEP_NS for step in common.steps):
        return dict(segments), None
    moved = {number: _moved(anchors, common) for number, anchors in segments.items()}
    return moved, common


def fit(anchors: Iterable[tuple[int, int]]) -> ClockMap:
    """The conversion through these anchors (at least one)."""
    mono, unix = zip(*anchors, strict=True)
    return fit_clock(np.array(mono, np.int64), np.array(unix, np.int64))


def _moved(anchors: Anchors, common: ClockMap) -> Anchors:
    if not anchors:
        return []
    mono = np.array([m for m, _ in anchors], np.int64)
    return list(zip(mono.tolist(), common.to_unix(mono).tolist(), strict=True))
