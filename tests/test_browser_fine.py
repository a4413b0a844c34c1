"""Zooming in on a live page whose tracks are thinned: what it holds too coarsely comes from the server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import dipstick
from browsing import Visit, visit
from dipstick.show import FORMATS, page_tracks
from grown import Grown, serving
from test_browser_live import watching
from tunnel import Tunnel

if TYPE_CHECKING:
    from pathlib import Path

FULL = '#fine:text-is("full resolution")'
THINNED = '#fine:text-is("thinned: columns of 1.2 s")'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grown:
    """Twelve steps, 120 s at 5 Hz; a page may hold 200 cells of each track, so each column is 1.2 s."""
    monkeypatch.setattr(page_tracks, "MOST_CELLS", 0)
    return Grown(tmp_path / "RUN", 12)


def zoom(seen: Visit, times: int = 4) -> tuple[float, float]:
    """By half, so many times, one after the other."""
    seen.page.locator("#tracks").focus()
    for _ in range(times):
        before = seen.drawn()
        seen.page.keyboard.press("+")
        seen.until_drawn(before)
    return seen.drawn()


def asked(seen: Visit) -> list[tuple[int, int]]:
    """From and to of each stretch that was asked for, ms."""
    found = [re.search(r"/range\?version=\d+&from=(\d+)&to=(\d+)&points=\d+$", url) for url in seen.requests]
    return [(int(m[1]), int(m[2])) for m in found if m]


def hover(seen: Visit) -> str:
    """What the first track says at a place of the screen."""
    plot = seen.page.locator(".track .u-over").first
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 500, "y": 40})
    return str(seen.page.locator(".track .values").first.text_content())


def test_a_page_says_how_far_it_is_thinned(run: Grown) -> None:
    """All of the run in view: columns of 1.2 s, wider than the screen's, so the rest is fetched."""
    with watching(run) as (_, seen):
        seen.wait(FULL)
        (a, b) = seen.drawn()
        ((start, end),) = asked(seen)
        assert (start <= 1000 * a, end >= 1000 * b) == (True, True)
        assert seen.trouble == []


def test_zoomed_in_every_sample_is_shown_at_the_cursor(run: Grown) -> None:
    """A column of many samples has a least and a most; a sample is one number. Nobody has to move the mouse for it."""
    with serving(run) as site:
        site.look()
        turn = site.server.ranges._turn
        turn.acquire()
        with visit(site.server.url) as seen:
            zoom(seen)
            assert re.fullmatch(r"GPU 0 .* \(.* to .*\) %   GPU 1 .*", hover(seen))
            turn.release()
            seen.wait(FULL)
            seen.wait('.track:first-child .values:not(:text("to"))')
            said = seen.page.locator(".track .values").first.text_content()
            assert re.fullmatch(r"GPU 0 \d+\.\d %   GPU 1 \d+\.\d %", said)
            assert seen.trouble == []


def test_the_view_stays_where_it_was(run: Grown) -> None:
    """What comes is put under the same view, focus and selection."""
    with watching(run) as (_, seen):
        view = zoom(seen)
        seen.wait(FULL)
        assert seen.drawn() == view
        assert seen.js("document.activeElement.id") == "tracks"


def test_one_stretch_is_asked_for_at_a_time(run: Grown) -> None:
    """While the server is busy the reader goes on through four views: only the last is asked for after it."""
    with serving(run) as site:
        site.look()
        turn = site.server.ranges._turn
        turn.acquire()
        with visit(site.server.url) as seen:
            seen.wait('#fine:text("fetching more")')
            view = zoom(seen, 4)
            assert len(asked(seen)) == 1
            turn.release()
            seen.wait(FULL)
            assert len(asked(seen)) <= 2
            assert seen.drawn() == view


def test_a_stretch_that_is_held_is_not_asked_for_again(run: Grown) -> None:
    """Half a view more comes on both sides: a small move needs nothing."""
    with watching(run) as (_, seen):
        view = zoom(seen)
        seen.wait(FULL)
        count = len(asked(seen))
        seen.page.keyboard.press("ArrowRight")
        seen.until_drawn(view)
        seen.wait(FULL)
        assert len(asked(seen)) == count


def test_without_the_server_the_thinned_tracks_do(run: Grown) -> None:
    """The connection goes: zooming works on, with what the page holds, and the status says why it is no more."""
    with serving(run) as site:
        site.look()
        tunnel = Tunnel(site.server.server_port)
        site.server.ranges._turn.acquire()
        with visit(site.server.url.replace(str(site.server.server_port), str(tunnel.port))) as seen:
            seen.wait('#live[data-now="recording"]')
            tunnel.cut()
            seen.wait('#live[data-now="lost"]')
            whole = seen.drawn()
            near = zoom(seen)
            seen.wait(THINNED)
            assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 16, rel=0.01)
            assert "GPU 0" in hover(seen)
            assert [line for line in seen.trouble if "Failed to load resource" not in line] == []


def test_a_refusal_leaves_the_page_as_it_is(run: Grown) -> None:
    """The recording was deleted under it: thinned, no error, nothing blank."""
    with serving(run) as site:
        run.close()
        site.look()
        for file in (run.path / "gpu").rglob("*.*"):
            file.unlink()
        with visit(site.server.url) as seen:
            zoom(seen)
            seen.wait(THINNED)
            assert "GPU 0" in hover(seen)
            assert "–" not in hover(seen)


def test_a_newer_page_is_asked_about_again(run: Grown) -> None:
    """The view is kept, and is at full resolution again: as of the newer page."""
    with watching(run) as (site, seen):
        zoom(seen, 3)
        seen.wait(FULL)
        view = seen.drawn()
        run.step()
        version = site.look()
        with seen.page.expect_request(re.compile(rf"/range\?version={version}&")):
            seen.wait(f'html[data-version="{version}"]')
        seen.wait(FULL)
        assert seen.drawn() == view
        assert seen.trouble == []


def test_a_run_that_fits_asks_for_nothing(tmp_path: Path) -> None:
    """Every sample is in the page: nothing to say, nothing to fetch, however far it is zoomed in."""
    with watching(Grown(tmp_path / "RUN", 4)) as (site, seen):
        zoom(seen)
        version = site.look()
        seen.wait(f'html[data-version="{version}"]')
        assert (asked(seen), seen.page.locator("#fine").text_content()) == ([], "")


def test_a_file_has_no_server_to_ask(run: Grown, tmp_path: Path) -> None:
    """The static page of the same run: thinned, and without the script that fetches."""
    run.close()
    recording = dipstick.load(run.path)
    path = tmp_path / "report.html"
    path.write_bytes(FORMATS[".html"].render(dipstick.explain(recording), recording))
    with visit(path) as seen:
        zoom(seen)
        assert seen.page.locator("#fine").count() == 0
        assert "class Fine" not in path.read_text()
        assert (seen.trouble, seen.requests) == ([], [path.as_uri()])
