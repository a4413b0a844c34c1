"""The corrected mental model as one picture: the loop of :mod:`dipstick.show.loop_model`, laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dipstick.show import words
from dipstick.show.drawing import Box, Drawing, Line, Text, svg
from dipstick.show.figure import png
from dipstick.show.loop_model import loop_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Report
    from dipstick.show.drawing import Shape
    from dipstick.show.lanes import Range
    from dipstick.show.loop_model import Band, Callout, Loop, Stage
    from dipstick.show.recorded import Recorded

WIDTH: Final = 1000.0
_MARGIN: Final = 16.0
_STAGE: Final = 58.0
_APART: Final = 16.0
_NARROWEST: Final = 72.0
_LINE: Final = 14.0
_WIDE: Final = 66.0
_LETTER: Final = 5.7
_LETTER_BOLD: Final = 7.2


def render(
    report: Report,
    recording: Recorded | None = None,
    *,
    suffix: str = ".svg",
    zoom: Range | None = None,  # noqa: ARG001 - every picture's render takes it
) -> str | bytes:
    """The picture as a file.

    Args:
        report: The finding.
        recording: What it was found in: what crosses between phases, and which processes work where.
        suffix: ``.svg``, or ``.png`` (needs matplotlib).
        zoom: Not used: the loop is the mean over all steps.
    """
    drawing = draw(report, recording)
    return png(drawing) if suffix == ".png" else str(svg(drawing))


def draw(report: Report, recording: Recorded | None = None) -> Drawing:
    """The picture as shapes."""
    loop = loop_of(report, recording)
    shapes: list[Shape] = [Text(_MARGIN, 24, loop.title, 14, bold=True)]
    y = 40.0
    for band in loop.bands:
        made, y = _band(band, y)
        shapes += made
    if loop.note:
        shapes.append(Text(_MARGIN, y + 6, loop.note, soft=True))
        y += 14
    return Drawing(WIDTH, y + 8, tuple(shapes), _label(loop))


def _label(loop: Loop) -> str:
    bands = [
        f"{band.title}: " + ", then ".join(f"{s.label} {_amount(s)}" for s in band.stages)
        for band in loop.bands
    ]
    return ". ".join([loop.title, *bands])


def _amount(stage: Stage) -> str:
    return f"{words.seconds(stage.seconds)}, {words.percent(100 * stage.share)}"


def _band(band: Band, y: float) -> tuple[list[Shape], float]:
    """A band from ``y`` down, and where it ends."""
    shapes: list[Shape] = [Text(_MARGIN, y + 12, band.title, 12, soft=True)]
    top = y + 22
    widths = widths_of([stage.seconds for stage in band.stages], WIDTH - 2 * _MARGIN)
    places, x = [], _MARGIN
    for width in widths:
        places.append((x, width))
        x += width + _APART
    for stage, (at, width) in zip(band.stages, places, strict=True):
        shapes += _stage(stage, at, top, width)
    arrows = [
        Line(((at + width + 1, top + _STAGE / 2), (at + width + _APART - 1, top + _STAGE / 2)), arrow=True)
        for at, width in places[:-1]
    ]
    remarks, bottom = _remarks(band.stages, places, top + _STAGE)
    back = _back(places, top, bottom + 16)
    return [*shapes, *arrows, *back, *remarks], bottom + 34


def widths_of(seconds: Sequence[float], room: float) -> list[float]:
    """Widths in proportion to seconds, none below what its name needs; they and the gaps fill the room.

    Worked example: 1, 1 and 8 s in a room of 432 (400 without gaps): 40, 40 and 320 would be too narrow for the first
    two, so they get 72 each and the last 256.
    """
    if not seconds:
        return []
    free, fixed = room - _APART * (len(seconds) - 1), set[int]()
    while True:
        loose = [i for i in range(len(seconds)) if i not in fixed]
        left, whole = free - _NARROWEST * len(fixed), sum(seconds[i] for i in loose)
        small = {i for i in loose if whole <= 0 or seconds[i] / whole * left < _NARROWEST}
        if not small or small == set(loose):
            scale = left / whole if whole > 0 and not small else 0.0
            even = left / max(len(loose), 1)
            return [_NARROWEST if i in fixed else seconds[i] * scale or even for i in range(len(seconds))]
        fixed |= small


def _stage(stage: Stage, x: float, y: float, width: float) -> list[Shape]:
    ink = stage.ink
    lines = _fitted(stage.label, width)
    start = y + 18 - 6 * (len(lines) - 1)
    named: list[Shape] = [
        Text(x + width / 2, start + 12 * i, line, 11.5, bold=True, anchor="middle", fill=ink.text)
        for i, line in enumerate(lines)
    ]
    often = f" in {stage.times}\u00d7" if stage.times > 1 and width > _WIDE else ""
    numbers = [words.seconds(stage.seconds), words.percent(100 * stage.share)]
    told = Text(x + width / 2, y + 37, f"{numbers[0]}{often}", 11, anchor="middle", fill=ink.text)
    share = Text(x + width / 2, y + 51, numbers[1], 11, anchor="middle", fill=ink.text)
    return [Box(x, y, width, _STAGE, ink.hex, hatched=stage.is_wait), *named, told, share]


def _fitted(label: str, width: float) -> list[str]:
    """The label in one line, or in two where it is too long for the box."""
    if len(label) * _LETTER_BOLD <= width - 4 or " " not in label:
        return [label]
    head, _, tail = label.partition(" ")
    return [head, tail]


def _back(places: Sequence[tuple[float, float]], top: float, y: float) -> list[Shape]:
    """The arrow from the last stage back to the first."""
    (first, width), (last, last_width) = places[0], places[-1]
    start, end = last + last_width - 10, first + min(10, width / 2)
    path = ((start, top + _STAGE + 1), (start, y), (end, y), (end, top + _STAGE + 2))
    return [
        Line(path, arrow=True),
        Text((start + end) / 2, y + 13, "the next step", 10.5, anchor="middle", soft=True),
    ]


def _remarks(
    stages: Sequence[Stage], places: Sequence[tuple[float, float]], y: float
) -> tuple[list[Shape], float]:
    """Remarks in rows under their stages, each in the first row where it has room; and where the last row ends."""
    rows: list[list[tuple[float, float]]] = []
    placed: list[tuple[Callout, float, float, float, int]] = []
    for stage, (x, width) in zip(stages, places, strict=True):
        for i, callout in enumerate(stage.callouts):
            anchor = x + width * (i + 1) / (len(stage.callouts) + 1)
            left, right = _extent(callout, anchor)
            row = next(
                (r for r, taken in enumerate(rows) if all(right < a or left > b for a, b in taken)), len(rows)
            )
            rows += [[]] if row == len(rows) else []
            rows[row].append((left - 8, right + 8))
            placed.append((callout, anchor, left, right, row))
    heights = [
        max(len(c.lines) for c, _, _, _, r in placed if r == row) * _LINE + 10 for row in range(len(rows))
    ]
    tops = [y + 14 + sum(heights[:row]) + 8 * row for row in range(len(rows))]
    leads: list[Shape] = [
        Line(((anchor, y + 1), (anchor, tops[row])), arrow=c.kind != "wait")
        for c, anchor, _, _, row in placed
    ]
    boxes = [shape for c, _, left, right, row in placed for shape in _remark(c, left, right, tops[row])]
    return [*leads, *boxes], tops[-1] + heights[-1] if rows else y


def _extent(callout: Callout, anchor: float) -> tuple[float, float]:
    width = max(map(len, callout.lines)) * _LETTER + 16
    left = min(max(_MARGIN + 16, anchor - width / 2), WIDTH - _MARGIN - 16 - width)  # beside the way back
    return left, left + width


def _remark(callout: Callout, left: float, right: float, y: float) -> list[Shape]:
    frame = Box(left, y, right - left, len(callout.lines) * _LINE + 8)
    lines = [
        Text(left + 8, y + 15 + i * _LINE, line, 10.5, soft=i > 0) for i, line in enumerate(callout.lines)
    ]
    return [frame, *lines]
