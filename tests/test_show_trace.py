"""Figures by matplotlib: the trace for a paper, and the loop as PNG."""

from __future__ import annotations

import builtins
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from builders import HOSTILE, empty_report, gpus_only_report, hostile_report, many_report, tiny_report
from dipstick.errors import DipstickError
from dipstick.show import PICTURES, figure, trace_picture
from dipstick.show.lanes import between
from dipstick.show.palette import HOLLOW, PHASE_INKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.model import Report

mpl = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("matplotlib"),
    reason="needs matplotlib: pip install 'dipstick[figures]'",
)


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height in the header of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@mpl
@pytest.mark.parametrize("make", [tiny_report, gpus_only_report, many_report, hostile_report])
def test_every_report_with_gpus_has_a_trace(make: Callable[[], Report]) -> None:
    """One column wide at 200 dots an inch; not higher than a page."""
    width, height = size_of(PICTURES["trace"]._replace(suffix=".png").render(make(), redact=False))
    assert width == 670
    assert 200 < height < 1400


@mpl
def test_the_colours_are_those_of_every_other_output() -> None:
    """Phases and the hollow part of utilization, by the palette."""
    text = trace_picture.render(tiny_report(), suffix=".svg").decode().lower()
    for colour in (
        PHASE_INKS["generate"].hex,
        PHASE_INKS["reward"].hex,
        PHASE_INKS["gather_wait"].hex,
        HOLLOW.hex,
    ):
        assert colour.lower() in text


@mpl
def test_text_stays_text() -> None:
    """An SVG whose words can be searched and edited; the axis and each legend entry are there."""
    text = trace_picture.render(tiny_report(), suffix=".svg").decode()
    assert "<text" in text
    for word in ("util, %", "phase", "state", "G generate", "w gather wait", "hollow"):
        assert word in text


@mpl
def test_a_stretch_can_be_asked_for() -> None:
    """--from and --to cut the axis: the phases outside are not in the legend."""
    report = tiny_report()
    text = trace_picture.render(report, suffix=".svg", zoom=between(report, 1.0, 4.0)).decode()
    assert "G generate" in text
    assert "R reward" not in text


@mpl
def test_the_same_report_gives_the_same_file() -> None:
    """No date, no random ids."""
    for suffix in (".svg", ".png"):
        assert trace_picture.render(tiny_report(), suffix=suffix) == trace_picture.render(
            tiny_report(), suffix=suffix
        )


@mpl
def test_hostile_names_are_no_markup_and_no_formula() -> None:
    """A dollar starts no TeX, a bracket no element."""
    base = hostile_report()
    report = replace(base, run=replace(base.run, name=HOSTILE.replace("\ud800", "") + r" $\frac{$ <script>"))
    text = trace_picture.render(report, suffix=".svg").decode()
    assert "<script" not in text


@mpl
def test_the_loop_as_png() -> None:
    """Twice its size in pixels."""
    width, _ = size_of(PICTURES["loop"]._replace(suffix=".png").render(tiny_report()))
    assert width == 2000


def test_nothing_to_draw_is_an_error_that_says_what_can_be() -> None:
    """No GPU samples: the loop is still there."""
    with pytest.raises(DipstickError, match=r"no GPU samples.*\n.*loop\.svg"):
        trace_picture.render(empty_report())


def test_without_matplotlib_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the picture that needs nothing."""
    real = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DipstickError, match=r"dipstick\[figures\].*loop\.svg"):
        figure.figure(1, 1)
