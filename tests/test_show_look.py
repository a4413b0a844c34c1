"""What an output can show, found out from the stream and the environment."""

from __future__ import annotations

from io import BytesIO, StringIO, TextIOWrapper

import pytest

from dipstick.show.look import Look, detect
from dipstick.show.palette import phase_ink


class Terminal(TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(encoding: str = "utf-8") -> Terminal:
    return Terminal(BytesIO(), encoding=encoding)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("environment", "color"),
    [
        ({"COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "xterm-256color"}, "256"),
        ({}, "standard"),
        ({"TERM": "dumb"}, None),
        ({"NO_COLOR": "1", "COLORTERM": "truecolor"}, None),
    ],
)
def test_colours_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: str | None
) -> None:
    """COLORTERM, TERM and NO_COLOR decide."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert detect(terminal()).color == color


def test_a_pipe_gets_no_colour_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dipstick explain RUN > file` is plain; FORCE_COLOR (as CI systems set it) brings colours back."""
    assert detect(StringIO()).color is None
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert detect(StringIO()).color == "standard"


def test_no_color_on_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over FORCE_COLOR, too."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert detect(terminal(), color=False).color is None


def test_width_comes_from_the_argument_then_columns_then_80(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is never below 40, where no table stands."""
    assert detect(StringIO()).width == 80
    monkeypatch.setenv("COLUMNS", "123")
    assert detect(StringIO()).width == 123
    assert detect(StringIO(), width=200).width == 200
    assert detect(StringIO(), width=3).width == 40


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("utf-8", True), ("UTF-8", True), ("ascii", False), ("latin-1", False)]
)
def test_block_characters_need_utf_8(encoding: str, unicode: object) -> None:
    """Elsewhere everything is ASCII."""
    assert detect(terminal(encoding)).unicode is unicode


def test_ascii_keeps_the_length() -> None:
    """Columns stay aligned; what has no stand-in is a question mark."""
    text = "2 × H200 · 1–2 │■█ … 漢"
    assert Look(unicode=False).ascii(text) == "2 x H200 - 1-2 |## ~ ?"
    assert len(Look(unicode=False).ascii(text)) == len(text)


@pytest.mark.parametrize(
    ("color", "style"),
    [
        (None, ""),
        ("truecolor", "#ffffff on #0072b2"),
        ("256", "color(231) on color(25)"),
        ("standard", "bright_white on blue"),
    ],
)
def test_an_ink_in_each_system(color: str | None, style: str) -> None:
    """Blue with white letters; named for the system, so that rich has nothing to convert."""
    assert Look(80, color).background(phase_ink("generate")) == style  # type: ignore[arg-type] # parametrized
