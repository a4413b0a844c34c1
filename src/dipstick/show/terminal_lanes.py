"""Lanes as text: a sparkline of utilization, under it the phases of the rank, under that the states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from dipstick.model import HOLLOW_STATES, STATES
from dipstick.show import words
from dipstick.show.gpu_tables import gpu_label
from dipstick.show.lanes import lanes, runs, ticks, typical, whole
from dipstick.show.palette import HOLLOW, PHASE_BY_CODE, STATE_BY_CODE, Ink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dipstick.model import FloatArray, IntArray, Report
    from dipstick.show.lanes import Lane, Range
    from dipstick.show.look import Look

_BLOCKS = "▁▂▃▄▅▆▇█"
_DIGITS = "0123456789"
_KIND = 6
_MEAN = 6
_MOST_GPUS = 8
_GPUS_APART = 4
_TICK_ROOM = 11
_HOLLOW = {STATES.index(name) for name in HOLLOW_STATES}


def lane_block(report: Report, look: Look, zoom: Range | None = None) -> list[Text]:
    """All lanes of a report: the whole run as sparklines, then a stretch that can be read.

    Args:
        report: The finding.
        look: Width, colours, characters.
        zoom: The stretch asked for; None picks typical steps.
    """
    if not report.tracks.gpus:
        return []
    gutter = _gutter(report, look)
    columns = max(10, look.width - gutter - _MEAN)
    full = whole(report)
    near = zoom or typical(report, columns)
    shown = _shown(lanes(report, near, columns))
    lines: list[Text] = []
    if (near.t0, near.t1) != (full.t0, full.t1):
        lines += _whole_lines(report, full, look, columns)
    lines += [_heading(_range_title(near)), *_steps_line(near, gutter, columns)]
    for i, lane in enumerate(shown):
        apart = [Text("")] if i and len(shown) <= _GPUS_APART else []
        lines += [*apart, *_lane_lines(lane, report, look, gutter)]
    lines += [_axis(near, gutter, columns), *_rest(report), *_legend(shown, look)]
    return lines


def _shown(every: tuple[Lane, ...]) -> tuple[Lane, ...]:
    return every[:_MOST_GPUS]


def _rest(report: Report) -> list[Text]:
    more = len(report.tracks.gpus) - _MOST_GPUS
    return [Text(f"{words.count(more, 'more GPU')}: in -o report.html.", "dim")] if more > 0 else []


def _gutter(report: Report, look: Look) -> int:
    labels = [_gpu_name(t.host, t.gpu, report, look) for t in report.tracks.gpus]
    labels += [f"rank {t.rank}" for t in report.tracks.ranks]
    return max(len(label) for label in labels) + 1 + _KIND


def _gpu_name(host: str, gpu: int, report: Report, look: Look) -> str:
    """At most a quarter of the width for the host's name."""
    return gpu_label(host, gpu, report.run.hosts, min(24, look.width // 4))


def _heading(text: str) -> Text:
    return Text(text, "bold")


def _range_title(span: Range) -> str:
    """``Steps 12–14, 167.2–206.9 s (typical …)`` or ``31 steps, 134.5–539.6 s``."""
    times = f"{span.t0:,.1f}–{span.t1:,.1f} s"
    if not span.typical:
        return f"{words.count(len(span.steps), 'step')}, {times}" if span.steps else times
    return f"Steps {span.first_step}–{span.last_step}, {times} (typical: their lengths are closest to the median)"


def _whole_lines(report: Report, full: Range, look: Look, columns: int) -> list[Text]:
    gutter = _gutter(report, look)
    drawn = _shown(lanes(report, full, columns, phases=False))
    lines = [_util_line(lane, report, look, gutter) for lane in drawn]
    return [_heading(_range_title(full)), *lines, _axis(full, gutter, columns), Text("")]


def _lane_lines(lane: Lane, report: Report, look: Look, gutter: int) -> list[Text]:
    lines = [_util_line(lane, report, look, gutter)]
    if lane.phase is not None:
        lines.append(_label(f"rank {lane.rank}", "phase", gutter) + paint(lane.phase, PHASE_BY_CODE, look))
    lines.append(_label("", "state", gutter) + paint(lane.state, STATE_BY_CODE, look))
    return lines


def _label(name: str, kind: str, gutter: int) -> Text:
    return Text(f"{name:<{gutter - _KIND}}{kind:<{_KIND}}")


def _util_line(lane: Lane, report: Report, look: Look, gutter: int) -> Text:
    label = _label(_gpu_name(lane.host, lane.gpu, report, look), "util", gutter)
    seen = [float(v) for v in lane.util if math.isfinite(v)]
    mean = words.percent(sum(seen) / len(seen)) if seen else words.ABSENT
    return label + sparkline(lane.util, lane.state, look) + Text(f"{mean:>{_MEAN}}")


def sparkline(util: FloatArray, state: IntArray, look: Look) -> Text:
    """One character a column: eighths of a block, or tens of percent as a digit in ASCII.

    Where colours are there, columns whose seconds are mostly hollow have the colour of ``hollow``.
    """
    scale = _BLOCKS if look.unicode else _DIGITS
    text = Text()
    for value, code in zip(util, state, strict=True):
        style = look.foreground(HOLLOW) if int(code) in _HOLLOW else ""
        text.append(_level(float(value), scale), style)
    return text


def _level(percent: float, scale: str) -> str:
    """``_level(0, blocks)`` is the lowest block, a column without samples is blank."""
    if not math.isfinite(percent):
        return " "
    return scale[max(0, min(len(scale) - 1, int(percent / 100 * len(scale))))]


def paint(codes: IntArray, inks: Sequence[Ink], look: Look) -> Text:
    """A lane: coloured stretches with their name where it fits, or their letter; without colour, letters."""
    text = Text()
    for first, end, code in runs(codes):
        width = end - first
        if code < 0:
            text.append(" " * width)
        elif look.color is None:
            text.append(inks[code].letter * width)
        else:
            text.append(_named(inks[code], width), look.background(inks[code]))
    return text


def _named(ink: Ink, width: int) -> str:
    name = ink.label if len(ink.label) < width else ink.letter
    return f"{name:<{width}}"


def _steps_line(span: Range, gutter: int, columns: int) -> list[Text]:
    """Where each step starts, if the names fit."""
    marks = [(start, f"│step {number}") for number, start in span.steps]
    room = columns / max(1, len(marks))
    longest = max((len(mark) for _, mark in marks), default=0)
    if not marks or room <= longest:
        return []
    return [Text(" " * gutter + _placed(marks, span, columns), "dim")]


def _axis(span: Range, gutter: int, columns: int) -> Text:
    times, step = ticks(span.t0, span.t1, max(2, columns // _TICK_ROOM))
    marks = [(t, f"╵{words.clock(t, step)}") for t in times]
    return Text(" " * gutter + _placed(marks, span, columns), "dim")


def _placed(marks: Iterable[tuple[float, str]], span: Range, columns: int) -> str:
    """Each mark written from its column on; one that would run over the last is left out."""
    line = ""
    for time, mark in marks:
        column = int((time - span.t0) / max(span.t1 - span.t0, 1e-9) * columns + 1e-6)
        if len(line) <= column and column + len(mark) <= columns + _MEAN:
            line = f"{line:<{column}}{mark}"
    return line


def _legend(shown: Sequence[Lane], look: Look) -> list[Text]:
    """Letters and names of the phases and states that the drawn lanes hold, and no others."""
    phases = {int(c) for lane in shown if lane.phase is not None for c in lane.phase}
    states = {int(c) for lane in shown for c in lane.state}
    lines = []
    for title, codes, inks in (("phases", phases, PHASE_BY_CODE), ("states", states, STATE_BY_CODE)):
        entries = [_entry(inks[code], look) for code in sorted(codes) if code >= 0]
        lines += _flowed(title, entries, look.width) if entries else []
    return lines


def _entry(ink: Ink, look: Look) -> Text:
    swatch = f" {ink.letter} " if look.color else ink.letter
    return Text.assemble((swatch, look.background(ink)), f" {ink.label}")


def _flowed(title: str, entries: Sequence[Text], width: int) -> list[Text]:
    """Entries in lines of ``width``, under each other."""
    lines = [Text(title)]
    for entry in entries:
        if len(lines[-1]) + 2 + len(entry) > width:
            lines.append(Text(" " * len(title)))
        lines[-1] = Text.assemble(lines[-1], "  ", entry)
    return lines
