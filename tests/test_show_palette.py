"""Colours and letters: one each, readable, for the whole vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.style import Style

from dipstick.model import STATES
from dipstick.phases import PHASES
from dipstick.show import palette

if TYPE_CHECKING:
    from dipstick.show.palette import Ink

INKS = [
    *palette.PHASE_INKS.values(),
    *palette.STATE_INKS.values(),
    palette.WORK,
    palette.HOLLOW,
    palette.IDLE,
    *palette.VERDICT_INKS.values(),
]


def test_every_phase_and_state_has_an_ink_in_the_order_of_its_code() -> None:
    """Arrays hold codes, so the order is the contract."""
    assert tuple(ink.key for ink in palette.PHASE_BY_CODE) == PHASES
    assert tuple(ink.key for ink in palette.STATE_BY_CODE) == STATES


@pytest.mark.parametrize("inks", [palette.PHASE_BY_CODE, palette.STATE_BY_CODE])
def test_letters_are_ascii_and_unique(inks: tuple[Ink, ...]) -> None:
    """A lane without colour can be read back."""
    letters = [ink.letter for ink in inks]
    assert len(set(letters)) == len(letters)
    assert [c for c in letters if not (c.isascii() and c.isprintable() and len(c) == 1 and c != " ")] == []


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast ratio of two colours."""
    dark, light = sorted((palette.luminance(a), palette.luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_luminance_matches_hand_computed_values() -> None:
    """Black 0, white 1, and the blue of Okabe and Ito 0.152 (0.7152 x 0.168 + 0.0722 x 0.445)."""
    found = [round(palette.luminance(c), 3) for c in ("#000000", "#ffffff", "#0072b2")]
    assert found == [0.0, 1.0, 0.152]


@pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.key)
def test_text_on_an_ink_can_be_read(ink: Ink) -> None:
    """At least 4.5:1 (WCAG AA)."""
    assert contrast(ink.hex, ink.text) >= 4.5


@pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.key)
def test_the_sixteen_colour_form_is_one_of_the_sixteen(ink: Ink) -> None:
    """Rich knows the name, and its number is below 16."""
    color = Style.parse(ink.ansi).color
    assert color is not None
    assert color.number is not None
    assert color.number < 16


def test_the_phases_that_make_up_a_step_have_their_own_colour_in_both_forms() -> None:
    """What stands side by side in a lane is told apart by colour."""
    step = [
        "generate",
        "reward",
        "gather_wait",
        "logprobs",
        "forward",
        "backward",
        "weight_sync",
        "checkpoint",
    ]
    assert len({palette.phase_ink(name).hex for name in step}) == len(step)
    assert len({palette.phase_ink(name).ansi for name in step}) == len(step)


def test_hollow_states_share_the_warm_colours() -> None:
    """Spinning is drawn like the wait that it is, wherever it is drawn."""
    assert palette.state_ink("spinning").hex == palette.phase_ink("gather_wait").hex == palette.HOLLOW.hex


def test_names_outside_the_vocabulary_are_drawn_too() -> None:
    """A newer recording's phase keeps its name; its state is unknown."""
    assert palette.phase_ink("data_loading").label == "data loading"
    assert palette.phase_ink("data_loading").hex == palette.phase_ink("other").hex
    assert palette.state_ink("levitating") is palette.STATE_INKS["unknown"]
