"""How text may look on one output: its width, its colours, its characters."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Literal, TextIO, cast

from rich.color import Color, ColorSystem
from rich.console import Console

if TYPE_CHECKING:
    from dipstick.show.palette import Ink

Colors = Literal["truecolor", "256", "standard"]

NARROWEST = 40
_BLACK_AND_WHITE = {
    "truecolor": ("#000000", "#ffffff"),
    "256": ("color(16)", "color(231)"),
    "standard": ("black", "bright_white"),
}
_ASCII = str.maketrans({
    "×": "x", "·": "-", "–": "-", "—": "-", "…": "~", "→": ">", "│": "|", "╵": "'", "■": "#", "•": "*", "█": "#", "▒": "~", "✓": "+", "✗": "-",
    "\u2018": "'", "\u2019": "'",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """What the output can show.

    Attributes:
        width: Columns.
        color: Colour system, or None for no escape sequences at all.
        unicode: Whether block characters arrive; without, everything is ASCII.
    """

    width: int = 80
    color: Colors | None = None
    unicode: bool = True

    def console(self) -> Console:
        """A rich console that writes to memory and looks like this."""
        return Console(
            file=StringIO(),
            width=self.width,
            color_system=self.color,
            force_terminal=self.color is not None,
            no_color=self.color is None,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            _environ={},
        )

    def text(self, console: Console) -> str:
        """What was printed, without trailing blanks, in the characters that arrive."""
        out = cast("StringIO", console.file).getvalue()
        lines = "\n".join(line.rstrip() for line in out.splitlines())
        return lines.strip("\n") + "\n" if self.unicode else self.ascii(lines.strip("\n")) + "\n"

    def ascii(self, text: str) -> str:
        """The same length in ASCII; a character without a stand-in is ``?``."""
        return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")

    def background(self, ink: Ink) -> str:
        """A rich style: the ink as background, a readable foreground on it."""
        if self.color is None:
            return ""
        dark, light = _BLACK_AND_WHITE[self.color]
        return f"{dark if ink.text == '#000000' else light} on {self._name(ink)}"

    def foreground(self, ink: Ink) -> str:
        """A rich style: text or blocks in the ink's colour."""
        return self._name(ink) if self.color else ""

    def _name(self, ink: Ink) -> str:
        """The ink's colour in this system. rich would convert, but it caches the codes of the first system it used."""
        if self.color == "256":
            return f"color({Color.parse(ink.hex).downgrade(ColorSystem.EIGHT_BIT).number})"
        return ink.ansi if self.color == "standard" else ink.hex


def detect(stream: TextIO, *, color: bool = True, width: int | None = None) -> Look:
    """The look of a stream: rich knows NO_COLOR, FORCE_COLOR, TERM=dumb, COLUMNS and pipes.

    Args:
        stream: Where the text will go.
        color: False turns colour off whatever the stream can do.
        width: Columns asked for; None takes the terminal's (80 where there is none).
    """
    console = Console(file=stream)
    system = console.color_system
    allowed = color and not console.no_color and system is not None
    known: Colors = "truecolor" if system == "truecolor" else "256" if system == "256" else "standard"
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return Look(
        max(NARROWEST, width or console.width), known if allowed else None, encoding.startswith("utf")
    )
