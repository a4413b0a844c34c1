"""How a text file is laid out: delimiter, preamble, header, columns. Found out from its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.names import named
from dipstick.importers.times import find_format

if TYPE_CHECKING:
    from collections.abc import Sequence

DELIMITERS: Final = (",", ";", "\t", "|")
MAX_COLUMNS: Final = 10_000
"""More columns than this are no telemetry; a hostile header must not cost memory."""

SAMPLE_LINES: Final = 400
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?")
_VALUE: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?\s*(?:%|[A-Za-z°/]{1,5})?|0x[0-9a-fA-F]+")
MISSING: Final = frozenset({
    "", "[n/a]", "n/a", "na", "[not supported]", "not supported", "[unknown error]", "unknown error", "unknown",
    "[gpu requires reset]", "[insufficient permissions]", "err!", "-", "nan", "null", "none", "??", "<<<null>>>",
})  # fmt: skip
"""Cells that say that there is no value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A delimited text file.

    Attributes:
        delimiter: One character; a blank stands for any white space.
        names: Of the columns; ``column 2`` where the file has no header.
        has_header: Whether they stand in the file.
        skip: Lines before the first row (preamble and header).
        quoted: Whether cells are quoted.
        sample: Its first rows, cells stripped, all as long as ``names``.
        decimal_comma: Numbers are written ``12,5``.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    skip: int
    quoted: bool
    sample: tuple[tuple[str, ...], ...]
    decimal_comma: bool = False

    def column(self, index: int) -> list[str]:
        """The first cells of a column."""
        return [row[index] for row in self.sample]


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return cell.strip().lower() in MISSING


def looks_like_value(cell: str) -> bool:
    """A number with or without unit, or a word for no value."""
    return is_missing(cell) or bool(_VALUE.fullmatch(cell.strip()))


def find_layout(lines: Sequence[str], where: str) -> Layout | None:
    """How these lines are laid out, None if they are no table.

    Args:
        lines: The first lines of the file.
        where: The file, for messages.

    Raises:
        ImportFormatError: A header names more or fewer columns than the rows have, or absurdly many.
    """
    lines = lines[:SAMPLE_LINES]
    if lines and max(len(line) for line in lines) > 64_000 and len(lines) < 3:  # noqa: PLR2004 - bytes of the head; lines
        raise ImportFormatError(f"its first line has more than {len(lines[0]):,} characters.", where=where)
    best: tuple[float, Layout] | None = None
    refused: ImportFormatError | None = None
    for delimiter in DELIMITERS:
        try:
            found = _try(lines, delimiter, where)
        except ImportFormatError as error:
            refused = refused or error
            continue
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    if best is None and refused is not None:
        raise refused
    best = best or _try(lines, " ", where)
    return best[1] if best else None


def split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Rows of stripped cells; quoted cells may hold delimiters and line ends."""
    if delimiter == " ":
        return [line.split() for line in lines]
    text = "\n".join(lines)
    quoted = _is_quoted(text, delimiter)
    reader = csv.reader(
        io.StringIO(text), delimiter=delimiter, skipinitialspace=True,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )  # fmt: skip
    try:
        return [[cell.strip() for cell in row] for row in reader]
    except csv.Error:
        return [[cell.strip() for cell in line.split(delimiter)] for line in lines]


def _is_quoted(text: str, delimiter: str) -> bool:
    """Quotes are quotes only where they begin and end cells; one stray quote would swallow the rest of the file."""
    if '"' not in text:
        return False
    opening = len(re.findall(rf'(?:^|{re.escape(delimiter)} ?|\n)"', text))
    return opening > 0 and text.count('"') >= 2 * opening - 1


def _try(lines: Sequence[str], delimiter: str, where: str) -> tuple[float, Layout] | None:
    """The layout with this delimiter, and how much of the file it explains."""
    rows = split(lines, delimiter)
    widths = Counter(len(_trimmed(row)) for row in rows if any(row))
    if not widths:
        return None
    width, many = max(widths.items(), key=lambda item: (item[1], item[0]))
    if width > MAX_COLUMNS or max(widths) > MAX_COLUMNS:
        raise ImportFormatError(
            f"it has {max(widths):,} columns; at most {MAX_COLUMNS:,} can be read.", where=where
        )
    header = _header(rows, width, where)
    if header is None and (width < 2 or not _is_data(rows, width)):  # noqa: PLR2004 - one column is no table
        return None
    names = _trimmed(rows[header]) if header is not None else [f"column {i + 1}" for i in range(width)]
    data = [row for row in rows[(header or -1) + 1 if header is not None else 0 :] if any(row)]
    data = [row for row in data if row != (rows[header] if header is not None else None)]
    sample = tuple(tuple(_fit(row, len(names))) for row in data if abs(len(_trimmed(row)) - len(names)) <= 1)
    skip = header + 1 if header is not None else _first_row(rows, width)
    comma = (
        delimiter == ";"
        and sum(bool(re.fullmatch(r"-?\d+,\d+.*", c)) for row in sample for c in row) > len(sample) / 2
    )
    layout = Layout(
        delimiter, _unique(names), header is not None, _lines_of(lines, rows, skip, delimiter),
        delimiter != " " and _is_quoted("\n".join(lines), delimiter), sample, comma,
    )  # fmt: skip
    known = sum(bool(named(name).meaning) for name in names) if header is not None else 0
    return many / max(sum(widths.values()), 1) + known + (0 if delimiter == " " else 0.1) + 0.01 * min(
        width, 20
    ), layout


def _header(rows: list[list[str]], width: int, where: str) -> int | None:
    """The first line that names columns.

    Raises:
        ImportFormatError: It names more or fewer columns than the rows have: nothing tells which is which.
    """
    for index, row in enumerate(rows):
        cells = _trimmed(row)
        if len(cells) < 1 or any(_NUMBER.fullmatch(cell) for cell in cells) or not all(cells):
            continue
        told = [named(cell) for cell in cells]
        known = sum(bool(n.meaning or n.sure in {"not used", "ambiguous"}) for n in told)
        below = [_trimmed(r) for r in rows[index + 1 :] if any(r) and r != row]
        if known and len(cells) == width and (width > 1 or below):
            return index
        if known >= max(2, len(cells) / 2) and below and _is_mismatch(below, len(cells)):
            many = Counter(map(len, below)).most_common(1)[0][0]
            raise ImportFormatError(
                f"the header names {len(cells)} columns, the rows have {many}: nothing tells which is which.",
                where=where,
                fix=f"Mend the header (it has {', '.join(cells[:20])}), or delete it and say what the columns are: --bind 1=time --bind 2=util_pct …",
            )
        if (
            len(cells) == width
            and width > 1
            and below
            and all(_is_word(c) for c in cells)
            and _is_data(below, width)
        ):
            return index
    return None


def _is_mismatch(below: list[list[str]], width: int) -> bool:
    """Most rows have another number of cells, and they are rows."""
    other = Counter(map(len, below)).most_common(1)[0][0]
    return abs(other - width) >= 1 and other > 1 and _is_data(below, other)


def _is_word(cell: str) -> bool:
    return bool(cell) and not looks_like_value(cell) and find_format([cell]) is None


def _is_data(rows: list[list[str]], width: int) -> bool:
    """Most rows of this width hold mostly values or times."""
    full = [_trimmed(row) for row in rows if len(_trimmed(row)) == width][:50]
    good = [
        row
        for row in full
        if sum(looks_like_value(cell) or bool(re.match(r"\d", cell)) for cell in row) * 2 >= width
    ]
    return bool(full) and len(good) * 2 >= len(full)


def _trimmed(row: list[str]) -> list[str]:
    """Without the empty cells behind a closing delimiter."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    return row[:end]


def _fit(row: list[str], width: int) -> list[str]:
    return (row + [""] * width)[:width]


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names that occur twice get a number; empty ones are named by their place."""
    seen: Counter[str] = Counter()
    found = []
    for index, name in enumerate(names):
        name = name or f"column {index + 1}"  # noqa: PLW2901 - the same name, mended
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(found)


def _first_row(rows: list[list[str]], width: int) -> int:
    """Without a header, the first row of the right width."""
    return next((i for i, row in enumerate(rows) if len(_trimmed(row)) == width), 0)


def _lines_of(lines: Sequence[str], rows: list[list[str]], skip: int, delimiter: str) -> int:
    """Lines of the file that the first ``skip`` rows take (a quoted cell may take several)."""
    if delimiter == " " or len(rows) == len(lines):
        return skip
    inner = sum(cell.count("\n") for row in rows[:skip] for cell in row)
    return skip + inner
