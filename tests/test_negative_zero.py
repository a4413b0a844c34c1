"""No number reads ``-0``: what rounds to nothing has no sign."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dipstick.show import words

SOURCE = Path(__file__).resolve().parent.parent / "src" / "dipstick"
SHOWS = ("analysis", "capture", "cli", "recording", "show", "verdicts")
SMALL = (-0.0, -1e-12, -1e-9)
ROUNDS = re.compile(r"[-+ ]?(?P<z>z?)[\d,]*\.[\d{].*f")


@pytest.mark.parametrize("value", SMALL)
def test_numbers_seconds_and_percentages(value: float) -> None:
    """Each way to say a number."""
    said = [
        words.number(value), words.number(value, 0), words.short(value), words.seconds(value), words.span(value),
        words.percent(value), words.percent(value, 1), words.clock(value, 300), words.clock(value, 0.5),
        words.clock(value, 0.01),
    ]  # fmt: skip
    assert [text for text in said if text.startswith("-")] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (words.number(-0.04), "0.0"), (words.number(-0.06), "-0.1"), (words.percent(-0.3), "0 %"),
        (words.percent(-1.2), "-1 %"), (words.clock(-0.4, 300), "0 s"), (words.clock(-3.0, 300), "-3 s"),
        (words.number(-1234.6, 0), "-1,235"),
    ],
)  # fmt: skip
def test_real_negatives_keep_their_sign(said: str, shown: str) -> None:
    """Only what rounds to zero loses it."""
    assert said == shown


def formats(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and format of every value in an f-string that is rounded to a fixed number of decimals."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spec = ast.unparse(node.format_spec)[2:-1]
            if ROUNDS.fullmatch(spec):
                found.append((node.lineno, spec))
    return found


def test_every_format_that_rounds_drops_the_sign_of_zero() -> None:
    """``z`` (PEP 682) in every f-string format with fixed decimals of what people read."""
    bad, seen = [], 0
    for path in sorted(p for folder in SHOWS for p in (SOURCE / folder).rglob("*.py")):
        for line, spec in formats(ast.parse(path.read_text("utf-8"))):
            seen += 1
            if "z" not in spec:
                bad.append(f"{path.relative_to(SOURCE)}:{line} :{spec}")
    assert seen > 50
    assert bad == []


def test_the_check_finds_a_format_without_it() -> None:
    """So that the test above can fail."""
    assert formats(ast.parse('f"{x:.0f} {y:z,.1f} {w:{n}} {v:>8}"')) == [(1, ".0f"), (1, "z,.1f")]
