"""Drawings as lists of shapes, and as SVG. What paints them (SVG here, matplotlib for PNG) knows nothing of their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; without a colour it is a frame. ``hatched``: somebody waits."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text on a baseline; without a colour it is the drawing's own."""

    x: float
    y: float
    text: str
    size: float = 11
    bold: bool = False
    anchor: Anchor = "start"
    soft: bool = False
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, with a tip at its end if ``arrow``."""

    points: tuple[tuple[float, float], ...]
    arrow: bool = False


Shape = Box | Text | Line


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a canvas, in the order drawn; ``label`` says what is to be seen to those who can't."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    label: str


_STYLE = (
    ".fg{fill:#1d2126}.soft{fill:#5c6670}.edge{stroke:#5c6670;fill:none}.tip{fill:#5c6670}.panel{fill:#f5f7f9;stroke:#d9dee3}"
    ".paper{fill:#ffffff}@media(prefers-color-scheme:dark){.fg{fill:#e6e9ec}.soft{fill:#9aa5b0}.edge{stroke:#9aa5b0}"
    ".tip{fill:#9aa5b0}.panel{fill:#1d2226;stroke:#333a41}.paper{fill:#14171a}}"
)
_TIP = 5.0


def svg(drawing: Drawing, *, inline: bool = False) -> Markup:
    """The drawing as SVG: a file of its own, or a part of a page. Every text is escaped; nothing is referenced."""
    name = "" if inline else ' xmlns="http://www.w3.org/2000/svg"'
    size = f'viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    fixed = "" if inline else f' width="{drawing.width:g}" height="{drawing.height:g}"'
    head = f'<svg{name} {size}{fixed} role="img" aria-label="{escape(drawing.label)}" font-family="system-ui, sans-serif">'
    paper = "" if inline else f'<rect class="paper" width="{drawing.width:g}" height="{drawing.height:g}"/>'
    shapes = "".join(map(_shape, drawing.shapes))
    title = f"<title>{escape(drawing.label)}</title>" if not inline else ""
    return Markup(f"{head}{title}<style>{_STYLE}</style>{paper}{shapes}</svg>\n")  # noqa: S704 - every text went through escape


def _shape(shape: Shape) -> str:
    if isinstance(shape, Box):
        return _box(shape)
    return _text(shape) if isinstance(shape, Text) else _line(shape)


def _box(box: Box) -> str:
    place = f'x="{box.x:z.1f}" y="{box.y:z.1f}" width="{box.width:z.1f}" height="{box.height:z.1f}"'
    if box.fill is None:
        return f'<rect class="panel" rx="4" {place}/>'
    stripes = (
        "".join(f"M{x:z.1f} {box.y + box.height:z.1f}l{w:z.1f} -{w:z.1f}" for x, w in stripes_of(box))
        if box.hatched
        else ""
    )
    over = (
        f'<path d="{stripes}" stroke="#ffffff" stroke-opacity=".45" stroke-width="2" fill="none"/>'
        if stripes
        else ""
    )
    return f'<rect rx="3" fill="{escape(box.fill)}" {place}/>{over}'


def stripes_of(box: Box, apart: float = 12.0) -> list[tuple[float, float]]:
    """Where diagonal stripes start on the lower edge, and how far they go; none leaves the box."""
    many = int(box.width // apart)
    return [(box.x + i * apart, min(box.height, box.width - i * apart)) for i in range(many)]


def _text(text: Text) -> str:
    colour = (
        f' fill="{escape(text.fill)}" class="in"'
        if text.fill
        else f' class="{"soft" if text.soft else "fg"} in"'
    )
    weight = ";font-weight:600" if text.bold else ""
    return (
        f'<text x="{text.x:z.1f}" y="{text.y:z.1f}"{colour} style="font-size:{text.size:g}px{weight}" text-anchor="{text.anchor}">'
        f"{escape(text.text)}</text>"
    )


def _line(line: Line) -> str:
    path = "M" + "L".join(f"{x:z.1f} {y:z.1f}" for x, y in line.points)
    drawn = f'<path class="edge" d="{path}" stroke-width="1.2"/>'
    return drawn + (f'<path class="tip" d="{_tip(line.points)}"/>' if line.arrow else "")


def _tip(points: Sequence[tuple[float, float]]) -> str:
    """A triangle at the end, along the last part."""
    (x0, y0), (x1, y1) = points[-2], points[-1]
    length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
    ux, uy = (x1 - x0) / length * _TIP, (y1 - y0) / length * _TIP
    left, right = (x1 - ux - uy * 0.6, y1 - uy + ux * 0.6), (x1 - ux + uy * 0.6, y1 - uy - ux * 0.6)
    return f"M{x1:z.1f} {y1:z.1f}L{left[0]:z.1f} {left[1]:z.1f}L{right[0]:z.1f} {right[1]:z.1f}z"
