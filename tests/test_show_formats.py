"""Every renderer against every kind of report."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from builders import empty_report, gpus_only_report, hostile_report, many_report, tiny_report
from dipstick.errors import UsageError
from dipstick.show import FORMATS, format_of, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.model import Report
    from dipstick.show import Format

REPORTS = [empty_report, tiny_report, gpus_only_report, many_report, hostile_report]
TEXTS = (".html", ".md", ".json")


def _as_text(kind: Format) -> Callable[[Report], str]:
    return lambda report: kind.render(report, redact=False).decode()


RENDERERS: dict[str, Callable[[Report], str]] = {
    "terminal": terminal.render,
    **{suffix: _as_text(FORMATS[suffix]) for suffix in TEXTS},
}


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("make", REPORTS)
def test_every_format_renders_every_report(name: str, make: Callable[[], Report]) -> None:
    """Text that UTF-8 can hold, ending in one line break, and with the answer in it."""
    text = RENDERERS[name](make())
    text.encode("utf-8")
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    words = "alert(1)" if make is hostile_report else make().answer.headline.split(".")[0].split()[-1]
    assert words in text


@pytest.mark.parametrize("name", RENDERERS)
def test_rendering_twice_gives_the_same(name: str) -> None:
    """No clock, no order of a set."""
    assert RENDERERS[name](tiny_report()) == RENDERERS[name](tiny_report())


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_format_is_a_module_with_a_documented_render(suffix: str) -> None:
    """A new format is a new module and a line in FORMATS."""
    module = __import__(FORMATS[suffix].module, fromlist=["render"])
    assert inspect.getdoc(module.render)
    assert FORMATS[suffix].what


@pytest.mark.parametrize(("name", "suffix"), [("a.html", ".html"), ("b/c.MD", ".md"), ("x.y.json", ".json")])
def test_the_suffix_picks_the_format(name: str, suffix: str) -> None:
    """In either case."""
    assert format_of(name).suffix == suffix


@pytest.mark.parametrize("name", ["report.pdf", "report", ".html", "x."])
def test_an_unknown_suffix_lists_the_known_ones(name: str) -> None:
    """The message is the documentation."""
    with pytest.raises(UsageError) as caught:
        format_of(name)
    assert caught.value.where == name
    assert all(suffix in caught.value.fix for suffix in FORMATS)
