"""The report as a page."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from builders import (
    HOSTILE,
    empty_report,
    gpus_only_report,
    hostile_report,
    judged_report,
    many_report,
    tiny_report,
)
from dipstick.show import words
from dipstick.show.html import asset, render, script
from dipstick.show.lanes import lanes, whole
from dipstick.show.palette import PHASE_INKS, STATE_INKS
from dipstick.show.svg import COLUMNS, draw

if TYPE_CHECKING:
    from dipstick.model import Report

VOID = {"meta", "rect", "path", "line", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; open tags must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        {"style": self.styles, "script": self.scripts}.get(inside, self.texts).append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


REPORTS = [tiny_report, judged_report, empty_report, gpus_only_report, hostile_report, many_report]


@pytest.mark.parametrize("make", REPORTS)
def test_the_page_asks_for_nothing_and_runs_only_ours(make: object) -> None:
    """No handler, no address, no import, no foreign script: it can be mailed and opened anywhere."""
    assert callable(make)
    page = Page(render(make()))
    assert page.open == []
    assert {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags) == set()
    assert page.scripts[1:] == (
        [] if make is empty_report else [str(asset("vendor/uPlot.js")), str(script())]
    )
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", packed) for packed in page.scripts[:1])
    names = {name for name, _ in page.attributes}
    assert {
        n for n in names if n.startswith("on") or n in {"src", "href", "srcset", "xlink:href", "action"}
    } == set()
    assert [
        s
        for s in (*page.styles, *(v for n, v in page.attributes if n == "style"))
        if "url(" in s or "@import" in s
    ] == []


def test_the_policy_forbids_what_the_page_does_not_need() -> None:
    """Even if something slipped through, the browser would not run or fetch it."""
    page = Page(render(tiny_report()))
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts[1:]]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    rest = "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert ("content", f"default-src 'none'; script-src {allowed}; {rest}") in page.attributes
    assert ("content", f"default-src 'none'; {rest}") in Page(render(empty_report())).attributes


def test_the_library_comes_with_its_licence() -> None:
    """MIT asks for the notice in every copy."""
    assert "Copyright (c) 2022 Leon Sorokin" in render(tiny_report())


def test_receipts_that_name_a_place_can_be_zoomed_to() -> None:
    """The button carries the stretch; a receipt about the whole run has none."""
    html = render(judged_report())
    judged = [c.receipts for c in judged_report().checks] + [c.receipts for c in judged_report().claims]
    places = [r.t0_s for receipts in judged for r in receipts if r.t0_s is not None]
    assert html.count("data-t0=") == len(places)
    assert 'data-t0="5.200000"' in html


def test_hostile_strings_are_shown_and_do_nothing() -> None:
    """They arrive as text, cleaned; a template expression in them is not evaluated."""
    page = Page(render(hostile_report()))
    assert words.clean(HOSTILE) in page.text
    assert "{{ 7*7 }}" in page.text
    assert [
        t for t in page.texts if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", t)
    ] == []


def test_the_page_says_what_the_screen_says() -> None:
    """Answer, tables, and what one screen has no room for: workers and tenants."""
    text = Page(render(tiny_report())).text
    for expected in (
        "Generation is the longest phase and what you pay for.",
        "Where each rank's 20.0 s went",
        "rank 1 2 of 2 steps 0 s 4.0 s",
        "pid 936 1 30 6.5 s 2 steps",
        "GPU 0 900 trainer+engine 50 % 80.0",
        "payload types : needed for what crossed to the workers",
    ):
        assert expected in text


def cells(html: str, first: str) -> list[str]:
    """The cells of the table row that begins with this text."""
    rows = (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL))
    plain = [[re.sub(r"<i .*?</i>|<[^>]+>", "", cell) for cell in row] for row in rows]
    return next(row for row in plain if row and row[0] == first)


def test_the_rows_of_the_phase_table() -> None:
    """The same cells as on the screen; the total adds up."""
    html = render(tiny_report())
    assert cells(html, "gather wait") == [
        "gather wait",
        "4.0",
        "0.0",
        "10 %",
        "2",
        "2.0",
        "2.0",
        "99 %",
        "4.0",
    ]
    assert cells(html, "total") == ["total", "20.0", "20.0", "100 %", "", "", "", "", "4.0"]


def test_the_bar_parts_are_in_proportion() -> None:
    """GPU 0: 10 s of work, 4 s hollow, 6 s idle."""
    html = render(tiny_report())
    bar = html[html.index("<td>GPU 0</td>") :]
    assert re.findall(r"flex:([\d.]+) ", bar[: bar.index("</tr>")]) == ["10.0000", "4.0000", "6.0000"]


def test_both_colour_schemes_and_print_are_there() -> None:
    """Light and dark by the reader's preference; ink is printed as it is."""
    style = Page(render(tiny_report())).styles[0]
    assert "@media (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    assert style.count("@media") >= 2
    missing = [i.key for i in PHASE_INKS.values() if f".p-{i.key} {{ fill: {i.hex};" not in style]
    missing += [i.key for i in STATE_INKS.values() if f".s-{i.key} {{ fill: {i.hex};" not in style]
    assert missing == []


def figure(report: Report, hosts: int = 1) -> str:
    return str(draw(lanes(report, whole(report), COLUMNS), whole(report), "drawn", hosts))


def test_lanes_are_drawn_to_scale() -> None:
    """20 s on 860 units, so generation of 4 s is 172 wide and its hover text says when it was."""
    svg = figure(tiny_report())
    assert (
        '<rect class="p-generate" x="96" y="69" width="172" height="15"><title>generate: 4.0 s from 1.0 s</title></rect>'
    ) in svg
    assert (
        '<rect class="s-spinning" x="397" y="87" width="86" height="15"><title>spinning: 2.0 s from 8.0 s</title>'
        in svg
    )


def test_the_area_splits_work_from_hollow() -> None:
    """GPU 0 in the first step: 100 % for 4 s, 15 % for 3 s; the 2 s of spinning are in the hollow path."""
    svg = figure(tiny_report())
    util, hollow = re.findall(r'<path class="(util|util hollow)" d="([^"]*)"', svg)[:2]
    assert util[1].startswith("M96 66v-46h172v46zM268 66v-6.9h129v6.9z")
    assert hollow == ("util hollow", "M397 66v-46h86v46zM827 66v-46h86v46z")


def test_labels_in_a_drawing_are_escaped() -> None:
    """A host name is a recorded string."""
    assert "&lt;script&gt;" in figure(hostile_report(), hosts=2)
    assert "<script" not in figure(hostile_report(), hosts=2)


def test_more_than_600_stretches_become_one_path_a_colour() -> None:
    """A long run stays small: no hover texts, the same colours."""
    from dataclasses import replace  # noqa: PLC0415 - only here

    import numpy as np  # noqa: PLC0415 - only here

    base = tiny_report()
    track = base.tracks.ranks[0]
    edge = np.linspace(1.0, 21.0, 861)
    busy = replace(track, edge_s=edge, code=np.tile([2, 3], 430).astype(np.uint8))
    svg = figure(replace(base, tracks=replace(base.tracks, gpus=base.tracks.gpus[:1], ranks=(busy,))))
    assert svg.count('class="p-') == 2
    assert svg.count("<title>") == len(re.findall('<rect class="s-', svg))
