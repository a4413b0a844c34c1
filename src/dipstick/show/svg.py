"""Lanes as inline SVG: utilization as an area, under it phases and states as coloured stretches.

Coordinates are a fixed 1,000 units wide and scale with the page. Colours come from classes (``p-reward``,
``s-idle``) that the page's style sheet defines from the palette.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from dipstick.model import HOLLOW_STATES, STATES
from dipstick.show import words
from dipstick.show.gpu_tables import gpu_label
from dipstick.show.lanes import runs, ticks
from dipstick.show.palette import PHASE_BY_CODE, STATE_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dipstick.model import FloatArray, IntArray
    from dipstick.show.lanes import Lane, Range
    from dipstick.show.palette import Ink

WIDTH = 1000
_LEFT = 96
_RIGHT = 44
COLUMNS = 860
_UTIL = 46
_BAND = 15
_GAP = 3
_APART = 14
_TOP = 20
_FOOT = 22
_LETTER = 6.6
_TICKS = 9
_HOLLOW = {STATES.index(name) for name in HOLLOW_STATES}
_FEW_RUNS = 600
_THIN = 5
_HOST = 14

Band = tuple["IntArray", str, str, "Sequence[Ink]"]


def draw(drawn: Sequence[Lane], span: Range, label: str, hosts: int = 1) -> Markup:
    """One figure: every GPU over the range.

    Args:
        drawn: Lanes of :data:`COLUMNS` columns.
        span: The time that they cover.
        label: What it shows, for readers who can't see it.
        hosts: Of the run; several are named.
    """
    parts: list[str] = []
    y = _TOP
    for lane in drawn:
        parts += _gpu(lane, y, span, hosts)
        y += _height(lane) + _APART
    parts = [*_grid(span, y - _APART), *parts]
    head = f'<svg viewBox="0 0 {WIDTH} {y + _FOOT - _APART}" role="img" aria-label="{escape(label)}">'
    return Markup("".join([head, *parts, "</svg>"]))  # noqa: S704 - every text went through escape


def _height(lane: Lane) -> int:
    bands = 1 if lane.phase is None else 2
    return _UTIL + bands * (_BAND + _GAP)


def _gpu(lane: Lane, y: int, span: Range, hosts: int) -> list[str]:
    """Utilization, phases and states of one GPU, from ``y`` down."""
    host = [_text(0, y + _UTIL - 20, words.clean(lane.host, _HOST), "lane")] if hosts > 1 else []
    name = _text(0, y + _UTIL - 4, gpu_label("", lane.gpu, 1), "name")
    parts = [*host, name, *_area(lane, y), _mean(lane, y)]
    bands: list[Band] = [(lane.state, "state", "s", STATE_BY_CODE)]
    if lane.phase is not None:
        bands.insert(0, (lane.phase, f"rank {lane.rank} phase", "p", PHASE_BY_CODE))
    top = y + _UTIL + _GAP
    for codes, title, prefix, inks in bands:
        parts += [_text(0, top + _BAND - 4, title, "lane"), *_band(codes, prefix, inks, top, span)]
        top += _BAND + _GAP
    return parts


def _mean(lane: Lane, y: int) -> str:
    seen = [float(v) for v in lane.util if math.isfinite(v)]
    text = words.percent(sum(seen) / len(seen)) if seen else words.ABSENT
    return _text(WIDTH - _RIGHT + 6, y + _UTIL - 4, text, "lane")


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>'


def _area(lane: Lane, y: int) -> list[str]:
    """Two areas: hollow columns have their own colour."""
    frame = f'<rect class="frame" x="{_LEFT}" y="{y}" width="{COLUMNS}" height="{_UTIL}"/>'
    hollow = [int(code) in _HOLLOW for code in lane.state]
    kinds: list[tuple[str, Callable[[int], bool]]] = [
        ("util", lambda i: not hollow[i]),
        ("util hollow", lambda i: hollow[i]),
    ]
    return [frame, *(f'<path class="{kind}" d="{_steps(lane.util, y, keep)}"/>' for kind, keep in kinds)]


def _steps(util: FloatArray, y: int, keep: Callable[[int], bool]) -> str:
    """A path of rectangles, one for each run of columns that are kept and equal to a tenth of a unit."""
    tops = [
        round(float(value) / 100 * _UTIL, 1) if math.isfinite(value) and keep(i) else 0.0
        for i, value in enumerate(util)
    ]
    path = []
    first = 0
    for i in range(1, len(tops) + 1):
        if i == len(tops) or tops[i] != tops[first]:
            if tops[first] > 0:
                path.append(f"M{_LEFT + first} {y + _UTIL}v-{tops[first]:g}h{i - first}v{tops[first]:g}z")
            first = i
    return "".join(path)


def _band(codes: IntArray, prefix: str, inks: Sequence[Ink], y: int, span: Range) -> list[str]:
    """Coloured stretches; with names and hover texts where there are few, else one path a colour."""
    found = [run for run in runs(codes) if run[2] >= 0]
    if len(found) > _FEW_RUNS:
        return _paths(found, prefix, inks, y)
    return [part for run in found for part in _stretch(run, prefix, inks, y, span)]


def _stretch(run: tuple[int, int, int], prefix: str, inks: Sequence[Ink], y: int, span: Range) -> list[str]:
    first, end, code = run
    ink, width = inks[code], end - first
    scale = (span.t1 - span.t0) / COLUMNS
    start, stop = span.t0 + first * scale, span.t0 + end * scale
    hover = f"{ink.label}: {words.seconds(stop - start)} from {start:z,.1f} s"
    thin = " thin" if width < _THIN else ""
    rect = (
        f'<rect class="{prefix}-{ink.key}{thin}" x="{_LEFT + first}" y="{y}" width="{width}" height="{_BAND}">'
        f"<title>{escape(hover)}</title></rect>"
    )
    if width < _LETTER * (len(ink.label) + 1):
        return [rect]
    name = f'<text class="in" x="{_LEFT + first + 4}" y="{y + _BAND - 4}" fill="{ink.text}">{escape(ink.label)}</text>'
    return [rect, name]


def _paths(found: Sequence[tuple[int, int, int]], prefix: str, inks: Sequence[Ink], y: int) -> list[str]:
    shapes: dict[int, list[str]] = defaultdict(list)
    for first, end, code in found:
        shapes[code].append(f"M{_LEFT + first} {y}h{end - first}v{_BAND}h-{end - first}z")
    return [
        f'<path class="{prefix}-{inks[c].key}" d="{"".join(shape)}"/>' for c, shape in sorted(shapes.items())
    ]


def _grid(span: Range, bottom: int) -> list[str]:
    """Time ticks below, step starts above where there is room for their numbers."""
    times, step = ticks(span.t0, span.t1, _TICKS)
    parts = []
    for t in times:
        x = _x(t, span)
        parts.append(f'<line class="tick" x1="{x:g}" y1="{_TOP}" x2="{x:g}" y2="{bottom + 4}"/>')
        parts.append(_text(x, bottom + 16, words.clock(t, step), "axis"))
    if len(span.steps) <= _TICKS:
        parts += [
            _text(_x(start, span) + 3, _TOP - 6, f"step {number}", "steps") for number, start in span.steps
        ]
    parts += [_mark(_x(start, span), bottom) for _, start in span.steps if len(span.steps) <= COLUMNS / 8]
    return parts


def _mark(x: float, bottom: int) -> str:
    return f'<line class="step" x1="{x:g}" y1="{_TOP - 14}" x2="{x:g}" y2="{bottom}"/>'


def _x(t: float, span: Range) -> float:
    return round(_LEFT + (t - span.t0) / max(span.t1 - span.t0, 1e-9) * COLUMNS, 1)
