"""Colours and one-letter codes of phases and states: one place, the same in every output.

The hues are those of Okabe & Ito (2008, "Color Universal Design") and Tol's muted scheme (2021), which stay
apart for the common colour-vision deficiencies. Sixteen phases are more than hues can carry, so each phase
and state also has a letter, and every lane can be read without any colour.
"""

from __future__ import annotations

from dataclasses import dataclass

from dipstick.model import STATES
from dipstick.phases import PHASES


@dataclass(frozen=True, slots=True)
class Ink:
    """How one phase or state is drawn.

    Attributes:
        key: The name in the recording and the JSON (``gather_wait``).
        label: The name for people (``gather wait``).
        letter: One ASCII character for output without colour, unique within phases and within states; for
            verdicts a sign.
        hex: Colour as ``#rrggbb``.
        ansi: The colour's name in the 16-colour form.
        meaning: What it stands for, one short phrase; empty where the label says it.
    """

    key: str
    label: str
    letter: str
    hex: str
    ansi: str
    meaning: str = ""

    @property
    def text(self) -> str:
        """``#000000`` or ``#ffffff``, whichever can be read on this colour."""
        return readable_on(self.hex)


def readable_on(color: str) -> str:
    """Black or white, by the higher WCAG contrast on ``color``.

    White on a background of luminance Y has contrast 1.05 / (Y + 0.05), black (Y + 0.05) / 0.05;
    they are equal at Y = 0.179. ``#0072b2`` has Y = 0.152, so white.
    """
    return "#ffffff" if luminance(color) < _EQUAL_CONTRAST else "#000000"


_EQUAL_CONTRAST = 0.179


def luminance(color: str) -> float:
    """Relative luminance of ``#rrggbb``, 0 (black) to 1 (white), by WCAG 2.2."""
    red, green, blue = (_linear(int(color[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    dark_end = 0.04045
    return channel / 12.92 if channel <= dark_end else ((channel + 0.055) / 1.055) ** 2.4


_PHASES = (
    Ink("unattributed", "unattributed", ".", "#8a8a8a", "bright_black", "no span covers it"),
    Ink("startup", "startup", "s", "#666666", "bright_black"),
    Ink("generate", "generate", "G", "#0072b2", "blue"),
    Ink("reward", "reward", "R", "#e69f00", "yellow"),
    Ink("gather_wait", "gather wait", "w", "#d55e00", "red", "waits at the reward gather for another rank"),
    Ink("collective_wait", "collective wait", "c", "#882255", "bright_red", "waits at another collective"),
    Ink("logprobs", "logprobs", "L", "#56b4e9", "cyan"),
    Ink("forward", "forward", "F", "#009e73", "green"),
    Ink("backward", "backward", "B", "#cc79a7", "magenta"),
    Ink("optimizer", "optimizer", "O", "#f0e442", "bright_yellow"),
    Ink("weight_sync", "weight sync", "Y", "#332288", "bright_blue"),
    Ink("checkpoint", "checkpoint", "K", "#999933", "bright_green"),
    Ink("eval", "eval", "E", "#ddcc77", "bright_cyan"),
    Ink("cache_clear", "cache clear", "x", "#aa4499", "bright_magenta"),
    Ink("transfer", "transfer", "T", "#aa3377", "bright_magenta", "waits for a copy to the device"),
    Ink("other", "other", "o", "#bbbbbb", "white"),
    Ink("teardown", "teardown", "t", "#666666", "bright_black"),
)

_STATES = (
    Ink("idle", "idle", ".", "#b5b5b5", "white", "no kernel"),
    Ink("compute", "compute", "#", "#009e73", "green", "SMs at work"),
    Ink("light", "light", "+", "#56b4e9", "cyan", "kernels that leave most SMs empty"),
    Ink("spinning", "spinning", "S", "#d55e00", "red", "a kernel waits; reads as busy"),
    Ink(
        "copying_bus", "bus copy", "P", "#cc79a7", "magenta", "PCIe or NVLink copy, no SM work; reads as busy"
    ),
    Ink("copying_device", "device copy", "D", "#0072b2", "blue", "memory bandwidth without tensor work"),
    Ink(
        "waiting_or_bus_copy", "wait or copy", "W", "#e69f00", "yellow", "waiting or copying: not told apart"
    ),
    Ink("unknown", "unknown", "?", "#777777", "bright_black", "busy, and the signals don't say with what"),
)

PHASE_INKS: dict[str, Ink] = {ink.key: ink for ink in _PHASES}
STATE_INKS: dict[str, Ink] = {ink.key: ink for ink in _STATES}

WORK = Ink("work", "doing work", "#", "#009e73", "green")
HOLLOW = Ink("hollow", "hollow", "~", "#d55e00", "red", "reads as busy without SM work")
IDLE = Ink("idle", "idle", ".", "#b5b5b5", "white")
UNSEEN = Ink("unknown", "unknown", "?", "#777777", "bright_black")

VERDICT_INKS: dict[str, Ink] = {
    ink.key: ink
    for ink in (
        Ink("yes", "yes", "✓", "#009e73", "green"),
        Ink("partially", "partially", "~", "#e69f00", "yellow"),
        Ink("no", "no", "✗", "#d55e00", "red"),
        Ink("unconfirmed", "can't tell", "?", "#777777", "bright_black"),
    )
}
"""Green and vermilion stay apart for red-green deficiency; the sign and the word say it without any colour."""

_OTHER = PHASE_INKS["other"]


def phase_ink(key: str) -> Ink:
    """The ink of a phase; a name outside the vocabulary is drawn like ``other``, under its own name."""
    return PHASE_INKS.get(key) or Ink(key, key.replace("_", " "), _OTHER.letter, _OTHER.hex, _OTHER.ansi)


def state_ink(key: str) -> Ink:
    """The ink of a state; an unknown name is drawn like ``unknown``."""
    return STATE_INKS.get(key, STATE_INKS["unknown"])


PHASE_BY_CODE: tuple[Ink, ...] = tuple(PHASE_INKS[name] for name in PHASES)
STATE_BY_CODE: tuple[Ink, ...] = tuple(STATE_INKS[name] for name in STATES)
