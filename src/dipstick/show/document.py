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


@dataclass(frozen=True, slots=True)
class Proof:
    """One receipt.

    Attributes:
        text: The evidence in words.
        where: When, on which GPU and rank, or file:line; empty where it is about the whole run.
        origin: ``recorded``, ``static`` or ``reconstructed``.
        command: A shell command that derives it again; empty for code.
        span: The stretch of the recording that it is about, seconds; None where it is about the whole.
    """

    text: str
    where: str
    origin: str
    command: str
    span: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One check or claim with its verdict.

    Attributes:
        key: What ``--receipts`` takes: the check's name or the claim's number.
        ink: Of the verdict's word.
        label: What was asked or said, short.
        question: The same in full; empty where the label is all.
        because: The sentence that explains the verdict.
        details: (lead, text) of the numbers, the reason and what would settle it.
        proofs: The receipts.
    """

    key: str
    ink: Ink
    label: str
    question: str
    because: str
    details: tuple[tuple[str, str], ...] = ()
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A titled list of verdicts.

    Attributes:
        title: Heading.
        items: In the order shown.
        numbered: Whether the keys are shown: claims are asked for by number.
    """

    title: str
    items: tuple[Judged, ...]
    numbered: bool = False


Section = Table | Bars | Bullets | Verdicts
