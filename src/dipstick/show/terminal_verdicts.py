"""Verdicts and receipts as text: a line each on one screen, whole in the full report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from dipstick.judgement import Check
from dipstick.show import words
from dipstick.show.look import Look
from dipstick.show.palette import VERDICT_INKS
from dipstick.show.receipts import command, proof

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from dipstick.judgement import Claim
    from dipstick.show.document import Proof, Verdicts
    from dipstick.show.palette import Ink

_WORD = 2 + max(len(ink.label) for ink in VERDICT_INKS.values())
_LABEL_SHARE = 0.5
_LEAST_BECAUSE = 12


def verdict_lines(section: Verdicts, look: Look) -> Iterator[Text]:
    """One line a verdict: sign and word, what was asked, and the beginning of the sentence that explains it."""
    number = max(len(item.key) for item in section.items) + 2 if section.numbered else 0
    room = max(look.width - number - _WORD - 4, 0)
    longest = max(len(item.label) for item in section.items)
    label = min(longest, room - _LEAST_BECAUSE if longest + _LEAST_BECAUSE > room else longest)
    label = min(label, max(int(room * _LABEL_SHARE), 1)) if section.numbered else label
    for item in section.items:
        key = Text(f"{item.key:<{number}}" if section.numbered else "", "dim")
        line = Text.assemble(
            key, _word(item.ink, look), "  ", _cut(item.label, label), "  ", (item.because, "dim")
        )
        line.truncate(look.width, overflow="ellipsis")
        yield line


def _cut(text: str, width: int) -> Text:
    out = Text(text)
    out.truncate(width, overflow="ellipsis", pad=True)
    return out


def _word(ink: Ink, look: Look) -> Text:
    return Text(f"{ink.letter} {ink.label}".ljust(_WORD), f"bold {look.foreground(ink)}".strip())


def whole_verdicts(section: Verdicts, look: Look) -> Iterator[RenderableType]:
    """Everything about each verdict: the sentence, its numbers, why it is open, what would settle it."""
    for item in section.items:
        number = f"{item.key} " if section.numbered else ""
        yield Text.assemble(number, _word(item.ink, look), "  ", (item.question or item.label, "bold"))
        for lead, text in (("", item.because), *item.details):
            body = Text.assemble((f"{lead}: ", "dim"), text) if lead else Text(text)
            yield Padding(body, (0, 0, 0, len(number) + 2))


def render_receipts(found: Check | Claim, run: str, look: Look | None = None) -> str:
    """The receipts of one check or claim, each with the command that derives it again.

    Args:
        found: From :func:`dipstick.show.receipts.find`.
        run: How the commands name the recording.
        look: What the output can show; commands are never wrapped, so that they can be copied.
    """
    look = look or Look()
    console = look.console()
    ink = VERDICT_INKS[found.verdict.word]
    asked = found.question if isinstance(found, Check) else found.say
    console.print(Text.assemble(_word(ink, look), "  ", (words.clean(asked, 200), "bold")))
    console.print(Padding(Text(words.clean(found.verdict.because, 2000)), (0, 0, 0, 2)))
    for number, receipt in enumerate(found.receipts, 1):
        console.print()
        _print_proof(number, proof(receipt, run), console)
        if receipt.query:
            again = command(receipt, run, unicode=look.unicode)
            console.print(Text(f"   {again}"), soft_wrap=True)
    if not found.receipts:
        console.print(Text("No receipts: nothing was recorded that this could rest on.", "dim"))
    return look.text(console)


def _print_proof(number: int, shown: Proof, console: Console) -> None:
    first, *rest = Text(shown.text).wrap(console, max(console.width - 3, 1))
    console.print(Text.assemble((f"{number:<3}", "dim"), first))
    for line in rest:
        console.print(Text.assemble("   ", line))
    told = " · ".join(part for part in (shown.where, shown.origin) if part)
    console.print(Padding(Text(told, "dim"), (0, 0, 0, 3)))
