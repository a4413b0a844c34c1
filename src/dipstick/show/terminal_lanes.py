"""Lanes as text: a sparkline of utilization, under it the phases of the rank, under that the states."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from dipstick.model import HOLLOW_STATES, STATES
from dipstick.show import words
from dipstick.show.brief import FOLD
from dipstick.show.gpu_tables import busy_bars, gpu_label
from dipstick.show.lanes import lanes, runs, ticks, typical, whole
from dipstick.show.palette import HOLLOW, PHASE_BY_CODE, STATE_BY_CODE, Ink
from dipstick.show.step_tables import folded

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
_MOST_NEAR = 4
_LEAST_COLUMNS = 16
_TAIL_HEADS = ("busy", "work", "hollow")
_TICK_ROOM = 11
_HOLLOW = {STATES.index(name) for name in HOLLOW_STATES}


@dataclass(frozen=True, slots=True)
class Tails:
    """The numbers at the right end of the lanes.

    Attributes:
        head: Their headings.
        rows: Numbers by GPU label; a GPU without any has the mean of its drawn utilization.
        total: Those of all GPUs, at the end of the axis.
        width: Columns that they take.
    """

    head: str = ""
    rows: dict[str, str] = field(default_factory=dict)
    total: str = ""
    width: int = 6


def busy_tails(report: Report) -> Tails:
    """Busy, doing work and hollow seconds over the window: what the full report draws as bars."""
    found = busy_bars(report)
    if found is None:
        return Tails()
    rows = [_TAIL_HEADS, *(bar.cells[: len(_TAIL_HEADS)] for bar in found.bars)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = ["".join(f"  {c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    by_label = dict(zip((bar.label for bar in found.bars), lines, strict=True))
    return Tails(head, by_label, by_label.get("all", ""), len(head))


@dataclass(frozen=True, slots=True)
class _Frame:
    """How one stretch is drawn: the room for labels on the left, for lanes, and for numbers on the right."""

    report: Report
    look: Look
    tails: Tails
    brief: bool

    @property
    def gutter(self) -> int:
        tracks = self.report.tracks
        labels = [self.name(t.host, t.gpu) for t in tracks.gpus] + [f"rank {t.rank}" for t in tracks.ranks]
        return max(len(label) for label in labels) + 1 + _KIND

    @property
    def columns(self) -> int:
        return max(_LEAST_COLUMNS // 2, self.look.width - self.gutter - self.tails.width)

    @property
    def fits(self) -> bool:
        """Whether the numbers leave enough room for lanes."""
        return self.look.width - self.gutter - self.tails.width >= _LEAST_COLUMNS

    def name(self, host: str, gpu: int) -> str:
        """At most a quarter of the width for the host's name."""
        return gpu_label(host, gpu, self.report.run.hosts, min(24, self.look.width // 4))

    def tail(self, lane: Lane) -> Text:
        told = self.tails.rows.get(gpu_label(lane.host, lane.gpu, self.report.run.hosts))
        if told:
            return Text(told)
        seen = [float(v) for v in lane.util if math.isfinite(v)]
        mean = words.percent(sum(seen) / len(seen)) if seen else words.ABSENT
        return Text(f"{mean:>{_MEAN}}")

    def cut(self, most: int) -> int:
        """GPUs drawn: on one screen ``most``, otherwise all."""
        return most if self.brief else len(self.report.tracks.gpus)


def lane_block(report: Report, look: Look, zoom: Range | None = None, *, brief: bool = False) -> list[Text]:
    """All lanes of a report: the whole run as sparklines, then a stretch that can be read.

    Args:
        report: The finding.
        look: Width, colours, characters.
        zoom: The stretch asked for; None picks typical steps.
        brief: As one screen has room for: a few GPUs, and the busy numbers beside the lanes of the whole run.
    """
    if not report.tracks.gpus:
        return []
    plain = _Frame(report, look, Tails(), brief)
    numbered = _Frame(report, look, busy_tails(report), brief) if brief else plain
    numbered = numbered if numbered.fits else plain
    full = whole(report)
    near = zoom or typical(report, plain.columns)
    if (near.t0, near.t1) == (full.t0, full.t1):
        return _near_lines(near, numbered)
    apart = [] if brief else [Text("")]
    return [*_whole_lines(full, numbered), *apart, *_near_lines(near, plain)]


def _whole_lines(full: Range, frame: _Frame) -> list[Text]:
    drawn = lanes(frame.report, full, frame.columns, phases=False)[: frame.cut(_MOST_GPUS)]
    lines = [_util_line(lane, frame) for lane in drawn]
    return [_heading(full, frame), *lines, _axis(full, frame), *_rest(frame, len(drawn))]


def _near_lines(near: Range, frame: _Frame) -> list[Text]:
    drawn = lanes(frame.report, near, frame.columns)[: frame.cut(_MOST_NEAR)]
    marks = _steps_line(near, frame.gutter, frame.columns)
    lines = [_heading(near, frame), *marks]
    for i, lane in enumerate(drawn):
        apart = [Text("")] if i and not frame.brief else []
        lines += [*apart, *_lane_lines(lane, frame)]
    axis = [] if frame.brief and marks and near.typical else [_axis(near, frame)]
    return [*lines, *axis, *_rest(frame, len(drawn)), *_legend(drawn, frame)]


def _rest(frame: _Frame, drawn: int) -> list[Text]:
    more = len(frame.report.tracks.gpus) - drawn
    return [Text(f"{words.count(more, 'more GPU')}: --full.", "dim")] if more > 0 else []


def _heading(span: Range, frame: _Frame) -> Text:
    title, head = _range_title(span), frame.tails.head
    room = frame.look.width - len(title) - len(head)
    return Text.assemble((title, "bold"), (" " * room + head if room >= 0 else "", "dim"))


def _range_title(span: Range) -> str:
    """``Steps 12–14, 167.2–206.9 s (typical …)`` or ``31 steps, 134.5–539.6 s``."""
    times = f"{span.t0:z,.1f}–{span.t1:z,.1f} s"
    if not span.typical:
        return f"{words.count(len(span.steps), 'step')}, {times}" if span.steps else times
    return f"Steps {span.first_step}–{span.last_step}, {times} (typical: their lengths are closest to the median)"


def _lane_lines(lane: Lane, frame: _Frame) -> list[Text]:
    lines, look = [_util_line(lane, frame)], frame.look
    if lane.phase is not None:
        label = _label(f"rank {lane.rank}", "phase", frame.gutter)
        lines.append(label + paint(lane.phase, PHASE_BY_CODE, look))
    lines.append(_label("", "state", frame.gutter) + paint(lane.state, STATE_BY_CODE, look))
    return lines


def _label(name: str, kind: str, gutter: int) -> Text:
    return Text(f"{name:<{gutter - _KIND}}{kind:<{_KIND}}")


def _util_line(lane: Lane, frame: _Frame) -> Text:
    label = _label(frame.name(lane.host, lane.gpu), "util", frame.gutter)
    return label + sparkline(lane.util, lane.state, frame.look) + frame.tail(lane)


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


def _axis(span: Range, frame: _Frame) -> Text:
    """Round times under the lanes; at its end the numbers of all GPUs, where there are several."""
    times, step = ticks(span.t0, span.t1, max(2, frame.columns // _TICK_ROOM))
    marks = [(t, f"╵{words.clock(t, step)}") for t in times]
    placed, total = _placed(marks, span, frame.columns, 0 if frame.tails.total else _MEAN), frame.tails.total
    if not total:
        return Text(" " * frame.gutter + placed, "dim")
    axis = Text(f"{placed:<{frame.columns}}", "dim")
    return Text.assemble(f"{'all':<{frame.gutter}}", axis, (total, "bold"))


def _placed(marks: Iterable[tuple[float, str]], span: Range, columns: int, beyond: int = _MEAN) -> str:
    """Each mark written from its column on; one that would run over the last, or ``beyond`` the lanes, is left out."""
    line = ""
    for time, mark in marks:
        column = int((time - span.t0) / max(span.t1 - span.t0, 1e-9) * columns + 1e-6)
        if len(line) <= column and column + len(mark) <= columns + beyond:
            line = f"{line:<{column}}{mark}"
    return line


def _legend(drawn: Sequence[Lane], frame: _Frame) -> list[Text]:
    """Letters and names of the phases and states that the drawn lanes hold, and no others.

    On one screen the phase table is the legend of its own phases.
    """
    phases = sorted({int(c) for lane in drawn if lane.phase is not None for c in lane.phase if c >= 0})
    states = sorted({int(c) for lane in drawn for c in lane.state if c >= 0})
    below = frame.report.phases if frame.brief else None
    inks = [PHASE_BY_CODE[code] for code in phases]
    if below is not None:
        told = {t.phase for t in below.totals} - {t.phase for t in folded(below, FOLD)}
        inks = [ink for ink in inks if ink.key not in told]
    of_phases = [_entry(ink, frame.look) for ink in inks]
    of_states = [_entry(STATE_BY_CODE[code], frame.look) for code in states]
    if below is not None and phases:
        return _flowed("states", [*of_states, Text("(phases: table below)"), *of_phases], frame.look.width)
    named = (("phases", of_phases), ("states", of_states))
    return [line for title, entries in named if entries for line in _flowed(title, entries, frame.look.width)]


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
