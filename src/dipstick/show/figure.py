"""Pictures with matplotlib, which only they need: ``pip install 'dipstick[figures]'``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from dipstick.errors import DipstickError
from dipstick.show.drawing import Box, Text, stripes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dipstick.show.drawing import Drawing, Shape

DPI: Final = 200
_UNITS_AN_INCH: Final = 100.0
STYLE: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same picture everywhere
    "font.size": 7,
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "dipstick",  # the same file in every run
    "text.usetex": False,
    "text.parse_math": False,  # recorded strings may hold dollars
}
_FG, _SOFT, _LINE, _PANEL = "#1d2126", "#5c6670", "#d9dee3", "#f5f7f9"


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches; no window, no global state.

    Raises:
        DipstickError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only pictures need it
    except ImportError:
        raise DipstickError(
            "this picture needs matplotlib, which is not installed",
            fix="pip install 'dipstick[figures]', or write loop.svg, which needs nothing",
        ) from None
    return Figure(figsize=(width, height), dpi=DPI)


def saved(drawn: Figure, suffix: str) -> bytes:
    """The figure as .svg or .png, the same bytes every time."""
    out = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if suffix == ".svg" else {"Software": None}
    drawn.savefig(out, format=suffix.removeprefix("."), metadata=metadata, facecolor="white")
    return out.getvalue()


def png(drawing: Drawing) -> bytes:
    """A drawing painted on white."""
    made = figure(drawing.width / _UNITS_AN_INCH, drawing.height / _UNITS_AN_INCH)
    import matplotlib as mpl  # noqa: PLC0415 - figure() said that it is there

    with mpl.rc_context(dict(STYLE)):
        axes = made.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.axis("off")
        for order, shape in enumerate(drawing.shapes):
            for artist in _paint(axes, shape):
                artist.set_zorder(order)  # as in SVG: what comes later lies on top
        return saved(made, ".png")


def _paint(axes: Axes, shape: Shape) -> Iterator[Artist]:
    if isinstance(shape, Box):
        yield from _box(axes, shape)
    elif isinstance(shape, Text):
        places: dict[str, Any] = {"start": "left", "middle": "center", "end": "right"}
        yield axes.text(
            shape.x, shape.y, shape.text, fontsize=shape.size * 72 / _UNITS_AN_INCH, ha=places[shape.anchor], va="baseline",
            color=shape.fill or (_SOFT if shape.soft else _FG), fontweight="bold" if shape.bold else "normal",
        )  # fmt: skip
    else:
        yield from axes.plot(*zip(*shape.points, strict=True), color=_SOFT, linewidth=0.8)
        if shape.arrow:
            tip: dict[str, Any] = {
                "arrowstyle": "-|>",
                "color": _SOFT,
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
                "mutation_scale": 7,
            }
            yield axes.annotate("", shape.points[-1], shape.points[-2], arrowprops=tip)


def _box(axes: Axes, box: Box) -> Iterator[Artist]:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - figure() said that it is there

    edge = _LINE if box.fill is None else "none"
    yield axes.add_patch(
        Rectangle(
            (box.x, box.y), box.width, box.height, facecolor=box.fill or _PANEL, edgecolor=edge, linewidth=0.6
        )
    )
    bottom = box.y + box.height
    for x, width in stripes_of(box) if box.hatched else ():
        yield from axes.plot(
            (x, x + width), (bottom, bottom - width), color="white", alpha=0.45, linewidth=1.4
        )
