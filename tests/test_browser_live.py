"""The live page in a real browser: it grows with the recording and keeps what its reader has in view."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from browsing import Visit, visit
from builders import HOSTILE
from grown import TOKEN, Grown, Site, serving
from tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Grown:
    """Four steps, 40 s."""
    return Grown(tmp_path / "RUN", 4)


@contextmanager
def watching(run: Grown) -> Iterator[tuple[Site, Visit]]:
    """The site, and a window with its first page."""
    with serving(run) as site:
        site.look()
        with visit(site.server.url) as seen:
            seen.wait('#live[data-now="recording"]')
            yield site, seen


def grow(run: Grown, site: Site, *windows: Visit) -> None:
    """One more step, seen by all."""
    run.step()
    version = site.look()
    for seen in windows:
        seen.wait(f'html[data-version="{version}"]')


def test_the_token_leaves_the_address_and_no_script_can_read_the_cookie(run: Grown) -> None:
    """The browser follows the redirect; the address bar, the history and document.cookie hold nothing."""
    with watching(run) as (site, seen):
        bare = f"http://127.0.0.1:{site.server.server_port}/"
        assert (seen.page.url, seen.js("location.href"), seen.js("document.cookie")) == (bare, bare, "")
        (cookie,) = seen.page.context.cookies()
        assert (cookie["value"], cookie["httpOnly"], cookie["sameSite"]) == (TOKEN, True, "Strict")
        assert seen.trouble == []
        assert {url.split("?")[0] for url in seen.requests} == {bare, bare + "events"}


def test_it_grows_with_the_recording_without_a_reload(run: Grown) -> None:
    """Shows 40 s, then 50 s; the window is the same, answer and tables are renewed, and nothing went wrong."""
    with watching(run) as (site, seen):
        before = seen.drawn()
        seen.js("window.mine = 'still here'")
        grow(run, site, seen)
        after = seen.until_drawn(before)
        assert after[1] == pytest.approx(before[1] + 10, abs=1)
        assert seen.js("window.mine") == "still here"
        assert "5 steps" in seen.page.locator(".what").text_content()
        assert seen.page.locator(".track").count() == seen.js("document.querySelectorAll('.uplot').length")
        assert seen.trouble == []


def test_zoom_cursor_and_hidden_gpus_are_kept(run: Grown) -> None:
    """A reader who looks at one place goes on looking at it."""
    with watching(run) as (site, seen):
        whole = seen.drawn()
        seen.page.locator("#gpus button").first.click()
        seen.page.locator("#tracks").focus()
        seen.page.keyboard.press("+")
        near = seen.until_drawn(whole)
        plot = seen.page.locator(".track .u-over").first
        plot.hover(position={"x": 500, "y": 40})
        readout = seen.page.locator(".track .values").first
        said = readout.text_content()
        top = seen.js("scrollY")
        grow(run, site, seen)
        seen.page.locator(".track .values:not(:empty)").first.wait_for(state="attached")
        assert seen.drawn() == near
        assert readout.text_content() == said
        assert seen.js("scrollY") == top
        assert seen.page.locator("#gpus button").first.get_attribute("aria-pressed") == "false"
        assert seen.js("document.activeElement.id") == "tracks"


def test_a_view_at_the_end_stays_at_the_end(run: Grown) -> None:
    """Zoomed in on what is newest: it moves along, as long as before."""
    with watching(run) as (site, seen):
        whole = seen.drawn()
        seen.page.locator("#in").click()
        near = seen.until_drawn(whole)
        seen.page.locator("#on").click()
        end = seen.until_drawn(near)
        grow(run, site, seen)
        later = seen.until_drawn(end)
        assert later[1] - later[0] == pytest.approx(end[1] - end[0], abs=0.01)
        assert later[1] == pytest.approx(end[1] + 10, abs=1)


def test_what_was_opened_stays_open(run: Grown) -> None:
    """The receipts of a card, while its numbers change."""
    with watching(run) as (site, seen):
        details = seen.page.locator(".cards .card details").first
        details.locator("summary").click()
        grow(run, site, seen)
        assert seen.page.locator(".cards .card details").first.get_attribute("open") is not None


def test_a_drag_is_not_interrupted(run: Grown) -> None:
    """News that come while the mouse is down wait until it is up."""
    with watching(run) as (site, seen):
        whole = seen.drawn()
        plot = seen.page.locator(".track .u-over").first
        plot.scroll_into_view_if_needed()
        at = plot.bounding_box()
        seen.page.mouse.move(at["x"] + 200, at["y"] + 50)
        seen.page.mouse.down()
        run.step()
        version = site.look()
        seen.page.mouse.move(at["x"] + 400, at["y"] + 50, steps=4)
        assert seen.js("document.documentElement.dataset.version") == str(version - 1)
        seen.page.mouse.up()
        near = seen.until_drawn(whole)
        assert (near[1] - near[0]) / (whole[1] - whole[0]) == pytest.approx(200 / at["width"], rel=0.05)
        seen.wait(f'html[data-version="{version}"]')
        assert seen.drawn() == near


def test_new_kinds_of_rows_get_a_track(run: Grown) -> None:
    """Events come late in a run."""
    with watching(run) as (site, seen):
        tracks = seen.page.locator(".track").count()
        run.event("checkpoint", 12.0)
        grow(run, site, seen)
        assert seen.page.locator(".track:has-text('dips, spikes and events')").count() == 1
        assert seen.page.locator(".track").count() >= tracks
        assert seen.trouble == []


def test_two_viewers_see_the_same_and_keep_their_own_view(run: Grown) -> None:
    """One is zoomed in, the other sees all."""
    with watching(run) as (site, first), visit(site.server.url) as second:
        whole = first.drawn()
        first.page.locator("#in").click()
        near = first.until_drawn(whole)
        second.wait('#live[data-now="recording"]')
        grow(run, site, first, second)
        assert first.drawn() == near
        assert second.until_drawn(whole)[1] > whole[1]


def test_the_end_of_the_run_is_said(run: Grown) -> None:
    """With the last page; the server still answers."""
    with watching(run) as (site, seen):
        run.step()
        run.close()
        version = site.look()
        seen.wait(f'html[data-version="{version}"]')
        seen.wait('#live[data-now="ended"]')
        assert "the run has ended" in seen.page.locator("#live").text_content()


def test_a_stop_is_said(run: Grown) -> None:
    """The page stays as it was, says so, and asks for nothing any more."""
    with watching(run) as (site, seen):
        site.board.stop()
        seen.wait('#live[data-now="lost"]')
        assert "was stopped" in seen.page.locator("#live").text_content()
        assert seen.page.locator(".answer").is_visible()


def test_a_lost_connection_is_said_and_found_again(run: Grown) -> None:
    """A tunnel that breaks, say: the page tries on, and takes in what it has missed."""
    with serving(run) as site:
        site.look()
        tunnel = Tunnel(site.server.server_port)
        with visit(site.server.url.replace(str(site.server.server_port), str(tunnel.port))) as seen:
            seen.wait('#live[data-now="recording"]')
            tunnel.cut()
            seen.wait('#live[data-now="lost"]')
            assert "trying again" in seen.page.locator("#live").text_content()
            run.step()
            version = site.look()
            tunnel.mend()
            seen.wait(f'html[data-version="{version}"]')
            seen.wait('#live[data-now="recording"]')
        tunnel.cut()


def test_the_first_samples_bring_the_page(tmp_path: Path) -> None:
    """Opened before there is anything: it says so, and shows the report once there is one."""
    run = Grown(tmp_path / "RUN")
    with serving(run) as site, visit(site.server.url, ready=False) as seen:
        site.look()
        seen.wait("#live[data-now]")
        assert "nothing to explain yet" in seen.page.locator("#live").text_content()
        run.step()
        run.step()
        site.look()
        seen.wait("html[data-ready]")
        assert seen.page.locator(".answer").is_visible()
        assert seen.page.locator(".track").count() > 2


def test_hostile_names_do_nothing(tmp_path: Path) -> None:
    """In the first page, and in what is merged into it."""
    evil = HOSTILE.replace("\ud800", "") + "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    run = Grown(tmp_path / "RUN", 2)
    run.step(name=evil, file=evil, detail=evil)
    with watching(run) as (site, seen):
        run.event(evil, 12.0)
        run.step(name=evil, file=evil)
        grow(run, site, seen)
        assert seen.js("document.querySelectorAll('img, iframe, script:not(#data)').length") == 2
        assert seen.trouble == []
        assert {url.split("?")[0].rsplit("/", 1)[1] for url in seen.requests} == {"", "events"}


def test_a_foreign_script_is_not_run(run: Grown) -> None:
    """Even one that got into the page: the policy names the scripts that may run."""
    with watching(run) as (_, seen):
        seen.js(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s); })()"
        )
        assert seen.js("window.bad") is None
        assert any("Content Security Policy" in line for line in seen.trouble)
