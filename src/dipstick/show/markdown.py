"""The report as GitHub Markdown: the same sections, the lanes as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dipstick.show.contents import headline, sections, title
from dipstick.show.document import Bars, Bullets, Table, Verdicts
from dipstick.show.look import Look
from dipstick.show.terminal_lanes import lane_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dipstick.model import Report
    from dipstick.show.document import Judged, Proof, Row, Section
    from dipstick.show.recorded import Recorded

_LANE_WIDTH = 100
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~!$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(report: Report, _recording: Recorded | None = None) -> str:
    """The whole file."""
    parts = [f"# {escape(title(report))}", f"**{escape(headline(report))}**", *_lanes(report)]
    parts += [_section(section) for section in sections(report)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is: no table cells, emphasis, code, links or HTML come out of it.

    >>> escape("a|b `x` <i> gather_wait")
    'a\\|b \\`x\\` &lt;i&gt; gather\\_wait'
    """
    return _SPECIAL.sub(r"\\\1", text.translate(_ENTITIES))


def _lanes(report: Report) -> list[str]:
    """Lanes as a code block; labels hold recorded host names, so no fence may come out of them."""
    lines = [line.plain.rstrip().replace("```", "'''") for line in lane_block(report, Look(_LANE_WIDTH))]
    return ["\n".join(["```text", *lines, "```"])] if lines else []


def _section(section: Section) -> str:
    head = f"## {escape(section.title)}"
    if isinstance(section, Table):
        return "\n\n".join([head, _table(section), *map(escape, section.notes)])
    if isinstance(section, Bars):
        return "\n\n".join([head, _bars(section), *map(escape, section.notes)])
    if isinstance(section, Verdicts):
        return "\n\n".join([head, *(_judged(item, section) for item in section.items)])
    return f"{head}\n\n{_bullets(section)}"


_MOST_PROOFS = 3
_RUNS_OF_TICKS = re.compile(r"`+")


def _judged(item: Judged, section: Verdicts) -> str:
    """A paragraph and a list: the numbers, what is open, the first receipts."""
    number = f"{item.key}\\. " if section.numbered else ""
    head = (
        f"{number}**{escape(f'{item.ink.letter} {item.ink.label}')}** {escape(item.question or item.label)}"
    )
    lines = [f"- {escape(item.because)}"] if item.because else []
    lines += [f"- {escape(lead)}: {escape(text)}" for lead, text in item.details]
    lines += [_proof(proof) for proof in item.proofs[:_MOST_PROOFS]]
    return "\n".join([head, "", *lines])


def _proof(proof: Proof) -> str:
    told = "; ".join(escape(part) for part in (proof.where, proof.origin) if part)
    again = f": {code(proof.command)}" if proof.command else ""
    return f"- {escape(proof.text)} ({told}){again}"


def code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks in it."""
    fence = "`" * (max(map(len, _RUNS_OF_TICKS.findall(text)), default=0) + 1)
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"{fence}{text}{fence}"


def _grid(titles: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    marks = ["---:" if r else ":---" for r in right]
    lines = [titles, marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table(table: Table) -> str:
    titles = [escape(c.title) for c in table.columns]
    return _grid(titles, [c.right for c in table.columns], (_row(row) for row in table.rows))


def _row(row: Row) -> list[str]:
    cells = [escape(cell.strip()) for cell in row.cells]
    if row.kind == "total":
        return [f"**{cell}**" if cell else "" for cell in cells]
    return [f"– {cells[0]}", *cells[1:]] if row.kind == "part" else cells


def _bars(bars: Bars) -> str:
    titles = ["", *map(escape, bars.columns)]
    right = [False, *(True for _ in bars.columns)]
    return _grid(titles, right, ([escape(bar.label), *map(escape, bar.cells)] for bar in bars.bars))


def _bullets(section: Bullets) -> str:
    lines = [
        f"- **{escape(lead)}**: {escape(text)}" if lead else f"- {escape(text)}"
        for lead, text in section.items
    ]
    return "\n".join(lines)
