"""The sawtooth with its phases under it, for a paper or a post: one column wide, in the colours of every other output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dipstick.errors import DipstickError
from dipstick.model import HOLLOW_STATES, STATES
from dipstick.show import figure, words
from dipstick.show.contents import title
from dipstick.show.gpu_tables import gpu_label
from dipstick.show.lanes import lanes, runs, ticks, typical
from dipstick.show.palette import HOLLOW, PHASE_BY_CODE, STATE_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dipstick.model import IntArray, Report
    from dipstick.show.lanes import Lane, Range
    from dipstick.show.palette import Ink
    from dipstick.show.recorded import Recorded

WIDTH_IN: Final = 3.35
"""One column of a two-column paper (8.5 cm)."""
COLUMNS: Final = 600
MOST_GPUS: Final = 4
_GPU_IN: Final = 0.86
_FRAME_IN: Final = 0.5
_LEGEND_ROW_IN: Final = 0.105
_A_ROW: Final = 4
_UTIL: Final = "#5b6b7a"
_NAMED: Final = 0.11
_ZOOM_COLUMNS: Final = 80
_HOLLOW: Final = [STATES.index(name) for name in HOLLOW_STATES]


def render(
    report: Report,
    _recording: Recorded | None = None,
    *,
    suffix: str = ".svg",
    zoom: Range | None = None,
) -> bytes:
    """The figure as a file.

    Args:
        report: The finding.
        suffix: ``.svg`` or ``.png`` (at 200 dots an inch).
        zoom: The stretch to draw; None takes typical steps.

    Raises:
        DipstickError: There is no GPU to draw, or matplotlib is not installed.
    """
    if not report.tracks.gpus:
        raise DipstickError("there are no GPU samples to draw", fix="loop.svg shows the phases without them")
    span = zoom or typical(report, _ZOOM_COLUMNS)
    drawn = lanes(report, span, COLUMNS)[:MOST_GPUS]
    inks = _inks(drawn)
    rows = -(-(len(inks) + 2) // _A_ROW)
    height = _FRAME_IN + _GPU_IN * len(drawn) + _LEGEND_ROW_IN * rows
    made = figure.figure(WIDTH_IN, height)
    import matplotlib as mpl  # noqa: PLC0415 - figure() said that it is there

    with mpl.rc_context(dict(figure.STYLE)):
        _draw(made, drawn, span, report, inks)
        return figure.saved(made, suffix)


def _draw(made: Figure, drawn: Sequence[Lane], span: Range, report: Report, inks: Sequence[Ink]) -> None:
    height = made.get_figheight()
    bottom = (_FRAME_IN - 0.22 + _LEGEND_ROW_IN * -(-(len(inks) + 2) // _A_ROW)) / height
    shares = [
        part for lane in drawn for part in ((5, 1.25, 1.25, 1) if lane.phase is not None else (5, 1.25, 1))
    ]
    grid = made.add_gridspec(
        len(shares),
        1,
        height_ratios=shares,
        hspace=0.12,
        left=0.145,
        right=0.985,
        top=1 - 0.2 / height,
        bottom=bottom,
    )
    row, last = 0, None
    for lane in drawn:
        last = _gpu(made, grid, row, lane, span, report)
        row += 4 if lane.phase is not None else 3
    if last is not None:
        _time_axis(last, span)
    made.text(0.01, 1 - 0.05 / height, title(report), fontsize=6.5, va="top", color="#5c6670")
    _legend(made, inks)


def _gpu(made: Figure, grid: Any, row: int, lane: Lane, span: Range, report: Report) -> Axes:
    """Utilization, phases and states of one GPU; returns the lowest axes."""
    util = made.add_subplot(grid[row])
    edges = np.linspace(span.t0, span.t1, len(lane.util) + 1)
    hollow = np.isin(lane.state, _HOLLOW)
    for mask, colour in ((~hollow, _UTIL), (hollow, HOLLOW.hex)):
        util.stairs(
            np.where(mask, np.nan_to_num(lane.util), 0.0), edges, fill=True, color=colour, linewidth=0
        )
    util.set(xlim=(span.t0, span.t1), ylim=(0, 102), yticks=[0, 50, 100])
    util.tick_params(labelbottom=False, bottom=False, labelsize=6, length=2, pad=1.5)
    util.set_ylabel(
        f"{gpu_label(lane.host, lane.gpu, report.run.hosts, 12)}\nutil, %", fontsize=6, labelpad=1
    )
    for side in ("top", "right"):
        util.spines[side].set_visible(False)
    for _, start in span.steps:
        util.axvline(start, color="#5c6670", linewidth=0.4, linestyle=(0, (2, 2)))
    bands: list[tuple[IntArray, str, Sequence[Ink]]] = [(lane.state, "state", STATE_BY_CODE)]
    if lane.phase is not None:
        bands.insert(0, (lane.phase, "phase", PHASE_BY_CODE))
    strips = [
        _band(made.add_subplot(grid[row + 1 + i], sharex=util), *band, edges) for i, band in enumerate(bands)
    ]
    return strips[-1]


def _band(axes: Axes, codes: IntArray, name: str, inks: Sequence[Ink], edges: np.ndarray[Any, Any]) -> Axes:
    """Coloured stretches; the letter of each where there is room."""
    whole = edges[-1] - edges[0]
    for first, end, code in runs(codes):
        if code < 0:
            continue
        ink, start, length = inks[code], edges[first], edges[end] - edges[first]
        axes.broken_barh([(start, length)], (0, 1), facecolors=ink.hex, linewidth=0)
        if length / whole > 0.02:  # noqa: PLR2004 - a letter's width
            text = ink.label if length / whole > _NAMED else ink.letter
            axes.text(
                start + length / 2,
                0.46,
                text,
                fontsize=5,
                ha="center",
                va="center",
                color=ink.text,
                clip_on=True,
            )
    axes.set(ylim=(0, 1), yticks=[])
    axes.set_ylabel(name, fontsize=6, rotation=0, ha="right", va="center", labelpad=3)
    axes.tick_params(labelbottom=False, bottom=False)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    return axes


def _time_axis(axes: Axes, span: Range) -> None:
    times, step = ticks(span.t0, span.t1, 7)
    axes.set_xticks(times, [words.clock(t, step) for t in times])
    axes.tick_params(labelbottom=True, bottom=True, labelsize=6, length=2, pad=1.5)


def _inks(drawn: Sequence[Lane]) -> list[Ink]:
    """Phases, then states, that are in the figure."""
    phases = sorted({int(c) for lane in drawn if lane.phase is not None for c in lane.phase if c >= 0})
    states = sorted({int(c) for lane in drawn for c in lane.state if c >= 0})
    return [*(PHASE_BY_CODE[c] for c in phases), *(STATE_BY_CODE[c] for c in states)]


def _legend(made: Figure, inks: Sequence[Ink]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - figure() said that it is there

    entries = [Patch(facecolor=ink.hex, label=f"{ink.letter} {ink.label}") for ink in inks]
    entries += [Patch(facecolor=_UTIL, label="utilization.gpu"), Patch(facecolor=HOLLOW.hex, label="hollow")]
    made.legend(
        handles=entries, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=_A_ROW, fontsize=5.5, frameon=False,
        handlelength=0.9, handleheight=0.8, columnspacing=1.0, handletextpad=0.4, labelspacing=0.25, borderpad=0.3,
    )  # fmt: skip
