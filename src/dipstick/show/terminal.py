"""The report as one screen of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from dipstick.show.brief import blocks_of
from dipstick.show.contents import headline, sections, title
from dipstick.show.document import Bars, Table, Verdicts
from dipstick.show.look import Look
from dipstick.show.terminal_lanes import lane_block
from dipstick.show.terminal_verdicts import verdict_lines, whole_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dipstick.model import Report
    from dipstick.show.document import Bar, Bullets, Column, Row, Section
    from dipstick.show.lanes import Range
    from dipstick.show.palette import Ink

_GAP = 2
_LEAST_BAR = 12
_MOST_BAR = 44


def render(report: Report, look: Look | None = None, zoom: Range | None = None, *, full: bool = False) -> str:
    """The answer, lanes, tables, what is missing: on one screen, or everything.

    Args:
        report: The finding.
        look: What the output can show; None is 80 columns without colour.
        zoom: The stretch of time that the lanes show; None picks typical steps.
        full: All tables, every GPU, what is missing and how to get it.
    """
    look = look or Look()
    console = look.console()
    console.print(_answer(report, look))
    for line in lane_block(report, look, zoom, brief=not full):
        console.print(line, soft_wrap=True)
    blocks = [(section,) for section in sections(report)] if full else blocks_of(report)
    for block in blocks:
        console.print()
        for section in block:
            draw(section, console, look, full=full)
    return look.text(console)


def _answer(report: Report, look: Look) -> Panel:
    head = title(report)
    fits = len(head) <= look.width - 6
    body = Text(headline(report), "bold")
    if not fits:
        body = Text.assemble((f"{head}\n", "dim"), body)
    return Panel(
        body,
        title=head if fits else None,
        title_align="left",
        box=box.ROUNDED if look.unicode else box.ASCII,
        width=min(look.width, 110),
    )


def draw(section: Section, console: Console, look: Look, *, full: bool = True) -> None:
    """One section onto a console; ``full`` has all about each verdict, otherwise it is a line."""
    if section.title:
        console.print(Text(section.title, "bold"))
    if isinstance(section, Table):
        console.print(_rich_table(section, look))
        _notes(section.notes, console)
    elif isinstance(section, Bars):
        console.print(_rich_bars(section, look))
        _notes(section.notes, console)
    elif isinstance(section, Verdicts):
        for line in whole_verdicts(section, look) if full else verdict_lines(section, look):
            console.print(line)
    else:
        console.print(_bullets(section))


def _notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(Text(note, "dim"))


def _rich_table(table: Table, look: Look) -> RichTable:
    """A table without a title has it as its first heading."""
    keep = fitting(table, look.width)
    out = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for i in keep:
        column = table.columns[i]
        head = Text(column.title, "" if table.title or i else "bold not dim")
        out.add_column(head, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        out.add_row(*(_cell(table, row, i, look) for i in keep), style=_STYLES[row.kind])
    return out


_STYLES = {"body": "", "part": "dim", "total": "bold"}


def fitting(table: Table, width: int) -> list[int]:
    """Indexes of the columns that fit into ``width``; the one marked to go first goes first."""
    keep = list(range(len(table.columns)))
    while _natural(table, keep) > width and any(table.columns[i].drop for i in keep):
        keep.remove(max(keep, key=lambda i: table.columns[i].drop))
    return keep


def _natural(table: Table, keep: Sequence[int]) -> int:
    inked = any(row.ink for row in table.rows)
    widths = [_column_width(table, i) + (_GAP if inked and i == table.ink_at else 0) for i in keep]
    return sum(widths) + _GAP * (len(keep) - 1)


def _column_width(table: Table, index: int) -> int:
    column: Column = table.columns[index]
    return max(cell_len(column.title), *(cell_len(row.cells[index]) for row in table.rows), 0)


def _cell(table: Table, row: Row, index: int, look: Look) -> Text:
    text = Text(row.cells[index])
    inked = any(r.ink for r in table.rows)
    if index != table.ink_at or not inked:
        return text
    if row.ink is None:
        return Text.assemble("  ", text)
    return Text.assemble((row.ink.letter, look.background(row.ink)), " ", text)


def _rich_bars(bars: Bars, look: Look) -> RichTable:
    """Label, bar and numbers; the bar takes what the numbers leave, and goes where they leave too little."""
    cells = [max(cell_len(t), *(cell_len(b.cells[i]) for b in bars.bars)) for i, t in enumerate(bars.columns)]
    taken = max(cell_len(b.label) for b in bars.bars) + sum(cells) + _GAP * (len(cells) + 1)
    room = min(_MOST_BAR, look.width - taken)
    drawn = room >= _LEAST_BAR
    grid = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    grid.add_column("")
    if drawn:
        grid.add_column(_bar_legend(bars, look, room), width=room)
    for name in bars.columns:
        grid.add_column(Text(name), justify="right")
    for bar in bars.bars:
        drawing = [_bar_text(bar, room, look)] if drawn else []
        grid.add_row(Text(bar.label), *drawing, *map(Text, bar.cells), style=_STYLES[bar.kind])
    return grid


def _bar_legend(bars: Bars, look: Look, room: int) -> Text:
    """What the parts of the bars are, where the names fit."""
    inks = {ink.key: ink for bar in bars.bars for ink, _ in bar.parts}.values()
    text = Text()
    for ink in inks:
        text.append(_block(ink, look), f"not dim {look.foreground(ink)}")
        text.append(f" {ink.label}  ")
    text.rstrip()
    return text if len(text) <= room else Text()


def _block(ink: Ink, look: Look) -> str:
    return "█" if look.color and look.unicode else ink.letter


def _bar_text(bar: Bar, room: int, look: Look) -> Text:
    """Parts as runs of characters, rounded at their ends so that they add up to the bar."""
    text = Text()
    whole = sum(value for _, value in bar.parts)
    done = 0.0
    for ink, value in bar.parts:
        first, done = done, done + value
        width = round(done / whole * room) - round(first / whole * room)
        text.append(_block(ink, look) * width, look.foreground(ink))
    return text


def _bullets(section: Bullets) -> RichTable:
    """A list under its title; without a title, lines that begin with their leads."""
    grid = RichTable.grid(padding=(0, 1 if section.title else _GAP, 0, 0))
    if not section.title:
        grid.add_column()
        grid.add_column(overflow="fold")
        for lead, text in section.items:
            grid.add_row(Text(lead, "bold"), Text(text))
        return grid
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    for lead, text in section.items:
        grid.add_row(Text("•"), Text.assemble((f"{lead}: ", "bold"), text) if lead else Text(text))
    return grid
