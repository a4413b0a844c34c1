"""The progress bar of an import: on a terminal only, and gone when done."""

from __future__ import annotations

import io
import sys

import pytest

from dipstick.cli.progress import file_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, a log file, a notebook: no bar, and nothing to tell."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with file_progress(quiet=False) as show:
        assert show is None
    assert stream.getvalue() == ""


def test_quiet_shows_nothing_on_a_terminal_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """--quiet is obeyed."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with file_progress(quiet=True) as show:
        assert show is None


def test_the_file_and_how_far_it_is_read_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, cleaned of what a terminal or rich would obey."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with file_progress(quiet=False) as show:
        assert show is not None
        show("[red]gpu\x1b[2J.csv", 50, 100)
        show("[red]gpu\x1b[2J.csv", 100, 100)
    text = stream.getvalue()
    assert "[red]gpu.csv" in text
    assert "\x1b[2J" not in text


def test_an_error_inside_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is passed on."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(ValueError, match="broken"), file_progress(quiet=False):
        raise ValueError("broken")
