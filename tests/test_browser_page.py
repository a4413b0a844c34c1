"""The report in a real browser, opened from disk: what a person sees, clicks and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dipstick
from browsing import HEIGHT, Visit, visit
from builders import HOSTILE, empty_report, gpus_only_report, hostile_report, many_report, tiny_report
from dipstick.show import FORMATS
from records import cycle, job, on_disk, process, span, utilization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dipstick.model import Report

SAMPLE = "sample:h200x2-grpo-135m"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's page as `dipstick explain -o report.html` writes it."""
    recording = dipstick.load(SAMPLE)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(FORMATS[".html"].render(dipstick.explain(recording), recording))
    return path


@pytest.fixture(scope="module")
def seen(file: Path) -> Iterator[Visit]:
    """One window for the tests that only look."""
    with visit(file) as opened:
        yield opened


def box(seen: Visit, selector: str) -> dict[str, float]:
    """Where an element is in the window at the top of the page."""
    found: dict[str, float] = seen.js(
        f"(() => {{ scrollTo(0, 0); const b = document.querySelector('{selector}').getBoundingClientRect();"
        " return {top: b.top, bottom: b.bottom, right: b.right}; })()"
    )
    return found


def test_it_opens_from_disk_without_trouble_or_requests(seen: Visit, file: Path) -> None:
    """No console message, no error, and nothing asked for but the file itself."""
    assert (seen.trouble, seen.requests) == ([], [file.as_uri()])


def test_the_answer_and_the_checks_are_visible_without_scrolling(seen: Visit) -> None:
    """At 1280 x 800: the answer, every check and the start of the scorecard; nothing sticks out to the right."""
    assert box(seen, ".answer")["bottom"] < HEIGHT / 3
    assert box(seen, ".cards .card:last-child")["bottom"] < HEIGHT
    assert box(seen, ".rows .card:first-child")["bottom"] < HEIGHT
    assert seen.js("document.documentElement.scrollWidth") <= 1280


def test_every_track_is_drawn(seen: Visit) -> None:
    """Signals, states, phases, jobs, marks: a canvas each, none of them blank."""
    names = seen.js(
        "[...document.querySelectorAll('.track figcaption span:first-child')].map(s => s.textContent)"
    )
    assert names == [
        "utilization.gpu, %", "memory allocated, GiB", "time accessing memory (utilization.memory), %", "power, W",
        "state of each GPU", "phase of each rank", "reward jobs of each worker", "dips, spikes and events",
    ]  # fmt: skip
    colours = seen.js(
        "[...document.querySelectorAll('.track canvas')].map(c => new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"
    )
    assert min(colours) > 5


def test_screen_readers_get_names_and_numbers(seen: Visit) -> None:
    """Each track says what it is, with the means; each button has a name; what was picked is announced."""
    labels = seen.js("[...document.querySelectorAll('.track')].map(t => t.getAttribute('aria-label'))")
    assert labels[0].startswith("utilization.gpu: GPU 0: mean ")
    assert (
        seen.js(
            "[...document.querySelectorAll('button')].filter(b => !(b.textContent.trim() || b.ariaLabel)).length"
        )
        == 0
    )
    assert seen.js("document.getElementById('picked').getAttribute('aria-live')") == "polite"
    assert seen.js("document.documentElement.lang") == "en"


def test_a_verdict_zooms_to_its_receipts(file: Path) -> None:
    """Click a card: the tracks come into view and show the first receipt, with its evidence; a button goes to the next."""
    with visit(file) as seen:
        whole = seen.drawn()
        card = seen.page.locator(".cards .card:has(button[data-t0])").first
        place = card.locator("button[data-t0]").first
        t0, t1 = (float(place.get_attribute(f"data-{name}") or "nan") for name in ("t0", "t1"))
        card.locator("h3").click()
        a, b = seen.until_drawn(whole)
        assert (a <= t0, t1 <= b) == (True, True)
        assert b - a < (whole[1] - whole[0]) / 2
        assert seen.page.locator("#picked strong").text_content().startswith("receipt 1 of ")
        assert seen.page.locator("#picked dd").first.text_content() == place.get_attribute("data-text")
        assert 0 <= seen.js("document.getElementById('timeline').getBoundingClientRect().top") < HEIGHT / 2
        seen.page.locator("#after").click()
        seen.until_drawn((a, b))
        assert seen.page.locator("#picked strong").text_content().startswith("receipt 2 of ")
        assert seen.trouble == []


def test_a_span_says_what_it_is(file: Path) -> None:
    """Click into the phase lane: phase, times, the span's name, and that file and line were not recorded here."""
    with visit(file) as seen:
        seen.page.locator("#near").click()
        lane = seen.page.locator(".track:has-text('phase of each rank') .u-over")
        lane.click(position={"x": 300, "y": 8})
        picked = seen.page.locator("#picked").text_content()
        assert picked.startswith("rank 0: ")
        assert "file and line were not recorded" in picked
        jobs = seen.page.locator(".track:has-text('reward jobs') .u-over")
        jobs.click(position={"x": 300, "y": 8})
        assert "worker" in seen.page.locator("#picked").text_content()


def test_dragging_zooms_and_a_double_click_shows_all(file: Path) -> None:
    """On any track; all of them move together."""
    with visit(file) as seen:
        whole = seen.drawn()
        plot = seen.page.locator(".track .u-over").first
        plot.scroll_into_view_if_needed()
        at = plot.bounding_box()
        seen.page.mouse.move(at["x"] + 200, at["y"] + 50)
        seen.page.mouse.down()
        seen.page.mouse.move(at["x"] + 400, at["y"] + 50, steps=4)
        seen.page.mouse.up()
        near = seen.until_drawn(whole)
        share = (near[1] - near[0]) / (whole[1] - whole[0])
        assert share == pytest.approx(200 / at["width"], rel=0.05)
        plot.dblclick()
        assert seen.until_drawn(near) == whole


def test_the_keyboard_does_it_all(file: Path) -> None:
    """Focus the tracks: + zooms, the arrows move, j tells the next phase, n goes to the next receipt, 0 shows all."""
    with visit(file) as seen:
        whole = seen.drawn()
        seen.page.locator("#tracks").focus()
        seen.page.keyboard.press("+")
        near = seen.until_drawn(whole)
        assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
        seen.page.keyboard.press("ArrowRight")
        assert seen.until_drawn(near)[0] > near[0]
        seen.page.keyboard.press("j")
        assert seen.page.locator("#picked").text_content().startswith("rank 0: ")
        seen.page.keyboard.press("l")
        assert seen.page.locator("#picked").text_content().startswith("rank 1: ")
        seen.page.keyboard.press("0")
        seen.wait(f'#tracks[data-drawn^="{whole[0]:.4f}"]')
        card = seen.page.locator(".cards .card:has(button[data-t0])").first
        card.locator("button.show").focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.locator("#picked strong").text_content().startswith("receipt 1")


def test_the_cursor_is_shared(file: Path) -> None:
    """Hover one track: every track with values says what it was at that time."""
    with visit(file) as seen:
        plot = seen.page.locator(".track .u-over").first
        plot.scroll_into_view_if_needed()
        plot.hover(position={"x": 500, "y": 40})
        values = seen.js(
            "[...document.querySelectorAll('.track .values')].slice(0, 6).map(v => v.textContent)"
        )
        assert [value for value in values if "GPU 0" not in value and "rank 0" not in value] == []


def test_a_gpu_can_be_hidden(file: Path) -> None:
    """The chip says whether it is shown."""
    with visit(file) as seen:
        chip = seen.page.locator("#gpus button").first
        assert chip.get_attribute("aria-pressed") == "true"
        chip.click()
        assert chip.get_attribute("aria-pressed") == "false"


def test_without_scripts_everything_is_still_said(file: Path) -> None:
    """The drawings stand in for the tracks; answer, verdicts and tables are the same."""
    with visit(file, scripts=False) as seen:
        assert seen.page.locator("noscript").count() == 1
        assert seen.page.locator(".answer").is_visible()
        assert seen.page.locator("svg").count() >= 2
        assert not seen.page.locator("#all").is_visible()


def test_dark_is_dark(file: Path) -> None:
    """By the reader's preference."""
    with visit(file, scheme="dark") as seen:
        assert seen.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


def test_print_shows_the_answer_and_no_buttons(file: Path) -> None:
    """A PDF of a few pages, in light colours."""
    with visit(file, scheme="dark") as seen:
        pdf = seen.page.pdf(print_background=True)
        assert pdf.startswith(b"%PDF")
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("#all").is_visible()
        assert seen.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def hostile_rows() -> dict[str, list[dict[str, Any]]]:
    """Names that try to break out: of HTML, of a script, of the line's direction, of the size."""
    evil = (
        HOSTILE.replace("\ud800", "")
        + "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
        + "x" * 10_000
    )
    spans = [
        row | {"host": evil, "file": evil}
        for step in (0, 1)
        for row in cycle(0, step, 10.0 * step, (4, 3, 2, 1))
    ]
    spans += [span(evil, 1, 2) | {"host": evil, "detail": evil}]
    return {
        "spans": spans, "jobs": [job(evil, 4, 6) | {"host": evil, "payload_types": evil, "detail": evil}],
        "processes": [process(900, rank=0, gpu=0, host=evil) | {"cmdline": evil, "role": evil}],
        "events": [{"host": evil, "rank": 0, "pid": 900, "name": evil, "t0_ns": 10**9, "t1_ns": None, "step": 0, "detail": evil}],
        "handoffs": [{"host": evil, "rank": 0, "t_ns": 10**9, "from": evil, "to": evil, "types": evil, "file": evil, "line": 1}],
        "gpu": [row | {"host": evil} for row in utilization([95.0] * 70 + [20.0] * 30)],
    }  # fmt: skip


@pytest.mark.parametrize("redact", [True, False])
def test_hostile_names_do_nothing(tmp_path: Path, redact: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """No dialog, no error, no request, no foreign element; what was clicked is shown as text."""
    recording = on_disk(tmp_path / "run", **hostile_rows())
    page = tmp_path / "r.html"
    page.write_bytes(FORMATS[".html"].render(dipstick.explain(recording), recording, redact=redact))
    with visit(page) as seen:
        lane = seen.page.locator(".track:has-text('phase of each rank') .u-over")
        for x in (20, 90, 300, 600):
            lane.click(position={"x": x, "y": 8})
        seen.page.locator(".track:has-text('reward jobs') .u-over").click(position={"x": 270, "y": 6})
        picked = seen.page.locator("#picked").text_content()
        assert ("<script>" in picked) is not redact or "reward job" in picked
        assert seen.js("document.querySelectorAll('img, iframe, script:not(#data)').length") == 2
        assert (seen.trouble, seen.requests) == ([], [page.as_uri()])


@pytest.mark.parametrize("make", [tiny_report, gpus_only_report, many_report])
def test_reports_of_other_shapes(tmp_path: Path, make: Callable[[], Report]) -> None:
    """GPUs alone, sixteen GPUs on two hosts, no recording beside the report: tracks of what there is, and no trouble."""
    page = tmp_path / "r.html"
    page.write_bytes(FORMATS[".html"].render(make()))
    with visit(page) as seen:
        assert seen.page.locator(".track").count() >= 3
        assert (seen.trouble, seen.requests) == ([], [page.as_uri()])


def test_an_empty_report_has_no_tracks_and_no_scripts(tmp_path: Path) -> None:
    """Nothing to draw: the page says its sentence."""
    page = tmp_path / "r.html"
    page.write_bytes(FORMATS[".html"].render(empty_report()))
    with visit(page, scripts=False) as seen:
        assert seen.page.locator(".answer").is_visible()
        assert seen.page.locator("script, .track").count() == 0


def test_a_hostile_report_without_a_recording(tmp_path: Path) -> None:
    """Attacks where words of ours should be."""
    page = tmp_path / "r.html"
    page.write_bytes(FORMATS[".html"].render(hostile_report(), redact=False))
    with visit(page) as seen:
        assert (seen.trouble, seen.requests) == ([], [page.as_uri()])
