"""Where each step's seconds went: a stacked bar a step and rank, as inline SVG; all of them add up to the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from dipstick.phases import PHASES
from dipstick.show import words
from dipstick.show.lanes import ticks
from dipstick.show.palette import PHASE_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import FloatArray, RankTrack, Report
    from dipstick.show.palette import Ink

MOST_BARS = 120
"""Steps beyond this are drawn in equal groups, each bar the sum of its steps."""
MOST_RANKS = 16
_WIDTH = 1000
_LEFT = 96
_HEIGHT = 110
_GAP = 12
_TOP = 6
_FOOT = 22
_FEW = 100
"""So many bars have hover texts."""


def step_bars(report: Report) -> tuple[str, Markup] | None:
    """Caption and drawing; None where there are no steps."""
    edges, grouped = _edges(report)
    ranks = report.tracks.ranks[:MOST_RANKS]
    if len(edges) < 2 or not ranks:  # noqa: PLR2004 - a bar has two edges
        return None
    seconds = [seconds_of(track, edges) for track in ranks]
    top = max(float(table.sum(axis=1).max()) for table in seconds)
    y, parts = _TOP, []
    for track, table in zip(ranks, seconds, strict=True):
        parts += _rank(f"rank {track.rank}", table, y, top, edges, few=len(ranks) * len(edges) <= _FEW)
        y += _HEIGHT + _GAP
    label = f"Seconds of each step by phase, for {words.count(len(ranks), 'rank')}"
    axis = _axis(len(edges) - 1, grouped, y - _GAP)
    head = f'<svg viewBox="0 0 {_WIDTH} {y + _FOOT - _GAP}" role="img" aria-label="{escape(label)}">'
    drawing = Markup("".join([head, *parts, *axis, "</svg>"]))  # noqa: S704 - every text went through escape
    return _caption(report, grouped, top), drawing


def _caption(report: Report, grouped: int, top: float) -> str:
    what = "each step" if grouped == 1 else f"each {grouped} steps"
    more = len(report.tracks.ranks) - MOST_RANKS
    left = f"; the first {MOST_RANKS} of {len(report.tracks.ranks)} ranks" if more > 0 else ""
    window = words.seconds(report.run.window_s[1] - report.run.window_s[0])
    return f"Seconds of {what} by phase and rank; the highest bar is {words.seconds(top)}, and a rank's bars add up to {window}{left}"


def _edges(report: Report) -> tuple[FloatArray, int]:
    """Edges of the bars in seconds, from the window's start to its end, and how many steps a bar holds.

    What lies before the first step (none, as a rule: the window starts with it) is a bar of its own.
    """
    start, end = report.run.window_s
    inside = [float(s) for s in report.tracks.step_start_s if start < s < end]
    edges = np.array([start, *inside, end])
    many = len(edges) - 1
    grouped = max(1, -(-many // MOST_BARS))
    kept = edges[:-1:grouped]
    return np.append(kept, end), grouped


def seconds_of(track: RankTrack, edges: FloatArray) -> FloatArray:
    """(bars, phases) seconds of one rank; a bar's phases add up to its length where the rank was recorded.

    Worked example: generate on [0, 4), reward on [4, 9), edges 0, 5, 9: the bars are 4 s + 1 s, and 0 s + 4 s.
    """
    cuts = np.unique(np.concatenate([edges, track.edge_s]))
    cuts = cuts[(cuts >= edges[0]) & (cuts <= edges[-1])]
    middle, length = (cuts[:-1] + cuts[1:]) / 2, np.diff(cuts)
    segment = np.searchsorted(track.edge_s, middle, "right") - 1
    known = (segment >= 0) & (segment < len(track.code))
    bar = np.searchsorted(edges, middle, "right") - 1
    place = bar[known] * len(PHASES) + track.code[segment[known]]
    found: FloatArray = (
        np.bincount(place, length[known], (len(edges) - 1) * len(PHASES))
        .reshape(-1, len(PHASES))
        .astype(float)
    )
    return found


def _rank(name: str, table: FloatArray, y: int, top: float, edges: FloatArray, *, few: bool) -> list[str]:
    """One row of bars; with hover texts where there are few, else one path a phase."""
    scale, width = _HEIGHT / top, (_WIDTH - _LEFT) / len(table)
    frame = f'<rect class="frame" x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT}" height="{_HEIGHT}"/>'
    parts = [frame, f'<text x="0" y="{y + _HEIGHT - 4}" class="name">{escape(name)}</text>']
    parts.append(
        f'<text x="{_LEFT - 6}" y="{y + 10}" class="lane" text-anchor="end">{words.seconds(top)}</text>'
    )
    base = np.cumsum(table, axis=1)
    for code in range(table.shape[1]):
        shown = [i for i in range(len(table)) if table[i, code] * scale > 0.05]  # noqa: PLR2004 - units of the drawing
        boxes = [_box(i, float(base[i, code]), float(table[i, code]), y, scale, width) for i in shown]
        parts += (
            _boxes(boxes, shown, PHASE_BY_CODE[code], table[:, code], edges)
            if few
            else _path(boxes, PHASE_BY_CODE[code])
        )
    return parts


Box = tuple[float, float, float, float]


def _box(i: int, end: float, seconds: float, y: int, scale: float, width: float) -> Box:
    gap = min(2.0, width * 0.15)
    return _LEFT + i * width + gap / 2, y + _HEIGHT - end * scale, width - gap, seconds * scale


def _boxes(
    boxes: Sequence[Box], at: Sequence[int], ink: Ink, seconds: FloatArray, edges: FloatArray
) -> list[str]:
    return [
        f'<rect class="p-{ink.key} thin" x="{x:z.1f}" y="{y:z.1f}" width="{w:z.1f}" height="{h:z.1f}"><title>'
        f"{escape(ink.label)}: {words.seconds(float(seconds[i]))} of {words.seconds(float(edges[i + 1] - edges[i]))}, from {edges[i]:z,.1f} s</title></rect>"
        for i, (x, y, w, h) in zip(at, boxes, strict=True)
    ]


def _path(boxes: Sequence[Box], ink: Ink) -> list[str]:
    shape = "".join(f"M{x:z.1f} {y:z.1f}h{w:z.1f}v{h:z.1f}h-{w:z.1f}z" for x, y, w, h in boxes)
    return [f'<path class="p-{ink.key}" d="{shape}"/>'] if shape else []


def _axis(bars: int, grouped: int, y: int) -> list[str]:
    width = (_WIDTH - _LEFT) / bars
    numbers, _ = ticks(0, (bars - 1) * grouped, 12)
    whole = [int(n) for n in numbers if n == int(n) and int(n) % grouped == 0]
    return [
        f'<text x="{_LEFT + (n // grouped + 0.5) * width:z.1f}" y="{y + 16}" class="axis">{"step " if n == 0 else ""}{n}</text>'
        for n in whole
    ]
