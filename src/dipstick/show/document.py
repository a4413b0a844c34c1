"""A report as sections, before any format: the terminal, the page and Markdown draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dipstick.show.palette import Ink

RowKind = Literal["body", "part", "total"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: Heading.
        right: Numbers stand right.
        drop: 0 stays; where the width runs out, the highest goes first.
    """

    title: str
    right: bool = True
    drop: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row: as many cells as the table has columns.

    Attributes:
        cells: Texts, already cleaned (:func:`dipstick.show.words.clean`).
        kind: ``part`` is a share of the row above and does not add to the total.
        ink: Colour and letter of the phase or state the row is about.
    """

    cells: tuple[str, ...]
    kind: RowKind = "body"
    ink: Ink | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table with remarks under it.

    Attributes:
        title: Heading.
        columns: As many as each row has cells.
        rows: In the order shown.
        notes: Sentences under it.
        ink_at: The column whose cells carry the rows' inks.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    ink_at: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: parts in the order drawn, and the numbers beside it."""

    label: str
    parts: tuple[tuple[Ink, float], ...]
    cells: tuple[str, ...]
    kind: RowKind = "body"


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars, each drawn over the full width: its parts are shares of their own sum.

    Attributes:
        title: Heading.
        columns: Headings of the bars' cells.
        bars: In the order shown.
        notes: Sentences under them.
    """

    title: str
    columns: tuple[str, ...]
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bullets:
    """A titled list of sentences; ``lead`` is the part of each that stands out."""

    title: str
    items: tuple[tuple[str, str], ...]


Section = Table | Bars | Bullets
