"""What the live server says to a page that zooms in: spoken to over a socket."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, cast

import pytest

from dipstick.cli.web_board import Board, Shown
from dipstick.cli.web_range import Asked, Ranges, asked
from dipstick.show.html import asset
from dipstick.show.page_range import LEAST_POINTS, MOST_POINTS
from grown import TOKEN, Grown, Site, serving
from test_show_pack import opened
from test_web_server import Answer, cookie

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.show.page_range import Detail


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four steps, 40 s, analysed."""
    with serving(Grown(tmp_path / "RUN", 4)) as started:
        started.look()
        yield started


def ask(site: Site, query: str, **headers: str) -> Answer:
    """An answer to whoever has the cookie."""
    return Answer(site.server, f"/range?{query}", {**cookie(site.server), **headers})


def query(site: Site, start: int = 10_000, end: int = 20_000, points: int = 1000) -> str:
    """Of the page that is shown."""
    return f"version={site.board.shown.version}&from={start}&to={end}&points={points}"


def test_a_stretch_comes_at_full_resolution(site: Site) -> None:
    """10 s at 5 Hz on two GPUs, states and phases; nothing else of the recording."""
    answer = ask(site, query(site))
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    head, arrays = opened(answer.body.decode())
    assert head["range"] == [10, 20]
    t0, low = (arrays[head["signals"][0]["lines"][1][key]] for key in ("t0", "low"))
    inside = [value for at, value in zip(t0, low, strict=True) if 100_000 <= at < 200_000]
    assert inside == [950] * 20 + [50] * 15 + [950] * 10 + [900] * 5
    assert {"gpus", "signals", "states", "ranks", "range"} == {*head} - {"arrays", "tick_s", "absent"}


def test_the_answer_has_the_headers_of_the_page(site: Site) -> None:
    """Not kept, not sniffed, no leave for other sites."""
    answer = ask(site, query(site))
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_nothing_is_told_without_the_token(site: Site) -> None:
    """Not in the address either; nor to another site, nor under a foreign name, nor to another method."""
    path = f"/range?{query(site)}"
    assert Answer(site.server, path, {}).status == 401
    assert Answer(site.server, f"{path}&token={TOKEN}", {}).status == 401
    assert ask(site, query(site), Host="evil.example").status == 403
    assert ask(site, query(site), Origin="https://evil.example").status == 403
    assert Answer(site.server, path, cookie(site.server), "POST").status == 405


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "version=1&from=0&to=10",
        "version=1&from=0&to=10&points=1000&points=1000",
        "version=1&from=0&to=10&points=1000&file=/etc/passwd",
        "version=1&from=0&to=10&file=points",
        "version=1&from=../../etc/passwd&to=10&points=1000",
        "version=1&from=-1&to=10&points=1000",
        "version=1&from=0.5&to=10&points=1000",
        "version=1&from=1e1&to=10000&points=1000",
        "version=1&from=0x1&to=10&points=1000",
        "version=1&from=%D9%A1&to=10&points=1000",
        "version=1&from=+1&to=10&points=1000",
        "version=1&from=&to=10&points=1000",
        "version=1&from=nan&to=10&points=1000",
        "version=1&from=0&to=9999999999999&points=1000",
        "version=1&from=10&to=10&points=1000",
        "version=1&from=11&to=10&points=1000",
        "version=1&from=0&to=10&points=199",
        "version=1&from=0&to=10&points=8001",
        "version=1&from=0&to=10&points=0",
        "&" * 1000,
        "version=1;from=0;to=10;points=1000",
    ],
)
def test_only_four_whole_numbers_are_understood(site: Site, wrong: str) -> None:
    """Anything else is refused, says what to ask for, and is not repeated."""
    assert asked(wrong) is None
    refused = ask(site, wrong)
    assert refused.status == 400
    assert refused.body == (
        b"Ask for version, from and to (ms) and points: whole numbers, from before to, points 200 to 8000.\n"
    )


def test_the_numbers_in_any_order() -> None:
    """Their names say which is which."""
    assert asked("points=200&to=10&version=7&from=0") == Asked(7, 0, 10, 200)


def test_another_page_is_not_answered(site: Site) -> None:
    """Its times and sites may be others: it has to take the newer page first."""
    stale = query(site)
    version = site.board.shown.version
    assert ask(site, stale.replace(f"version={version}", f"version={version + 1}")).status == 409
    site.updates._analysed_ns = -1
    site.look()
    assert ask(site, stale).status == 409
    assert ask(site, query(site)).status == 200


def test_before_the_first_analysis_there_is_nothing_to_ask_for(tmp_path: Path) -> None:
    """No error of ours."""
    with serving(Grown(tmp_path / "RUN", 1)) as site:
        assert ask(site, query(site)).status == 409


def test_what_is_said_of_the_run_later_leaves_the_stretches(site: Site) -> None:
    """The page stays, so it may still be asked about."""
    site.board.say("ended", "all of it")
    assert ask(site, query(site)).status == 200


def test_a_stretch_may_not_be_too_long(site: Site) -> None:
    """200,000 s at 5 Hz on two GPUs would be two million samples; a second more is too much."""
    longest = 200_000_000
    assert ask(site, query(site, 0, longest)).status == 200
    refused = ask(site, query(site, 0, longest + 1000))
    assert (refused.status, refused.body) == (400, b"At most 200000 s at a time.\n")


def test_a_recording_that_is_gone_is_said(tmp_path: Path) -> None:
    """The page keeps what it has; no path and no traceback is told."""
    run = Grown(tmp_path / "RUN", 4)
    with serving(run) as site:
        run.close()
        site.look()
        assert ask(site, query(site, 0, 10_000)).status == 200
        shutil.rmtree(run.path)
        for _ in range(2):
            refused = ask(site, query(site, 20_000, 30_000))
            assert (refused.status, refused.body) == (503, b"The recording cannot be read any more.\n")


class Slow:
    """Stands for an analysed recording: notes who reads at the same time."""

    longest_s = 100.0

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.at_once = self.most = 0

    def text(self, start_s: float, end_s: float, points: int) -> str:
        """Comes when it is told to."""
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.begun.set()
        assert self.go_on.wait(60)
        self.at_once -= 1
        return f"{start_s} {end_s} {points}"


def page_of(slow: Slow) -> Shown:
    """Page 1 of it."""
    return Shown(1, "recording", "", b"", cast("Detail", slow))


ASKED = "version=1&from=500&to=1500&points=200"


def test_many_viewers_are_answered_one_after_the_other() -> None:
    """Eight at once cost no more at a time than one."""
    slow, ranges, answers = Slow(), Ranges(), []
    shown = page_of(slow)
    viewers = [threading.Thread(target=lambda: answers.append(ranges.answer(ASKED, shown))) for _ in range(8)]
    for viewer in viewers:
        viewer.start()
    assert slow.begun.wait(60)
    slow.go_on.set()
    for viewer in viewers:
        viewer.join(60)
    assert answers == [(200, "0.5 1.5 200")] * 8
    assert slow.most == 1


def test_whoever_waits_too_long_is_sent_away() -> None:
    """And whoever came first is answered all the same; a mistake costs nobody's turn."""
    slow, ranges, answers = Slow(), Ranges(patience_s=0.0), []
    shown = page_of(slow)
    first = threading.Thread(target=lambda: answers.append(ranges.answer(ASKED, shown)))
    first.start()
    assert slow.begun.wait(60)
    assert ranges.answer(ASKED, shown) == (503, "Others are being answered.\n")
    assert ranges.answer("", shown)[0] == 400
    slow.go_on.set()
    first.join(60)
    assert [status for status, _ in answers] == [200]
    assert ranges.answer(ASKED, shown)[0] == 200


def test_a_fault_gives_the_turn_back() -> None:
    """One bad read must not end all others."""

    class Broken(Slow):
        def text(self, *_: float) -> str:
            raise OSError

    ranges = Ranges(patience_s=0.0)
    shown = page_of(Broken())
    assert [ranges.answer(ASKED, shown)[0] for _ in range(3)] == [503] * 3


def test_stretches_are_of_the_page_that_is_shown() -> None:
    """A newer page brings its own recording; what is only said keeps it."""
    board, first, second = Board(), cast("Detail", Slow()), cast("Detail", Slow())
    board.show(b"", "recording", "", 1, first)
    board.say("recording", "more")
    assert board.shown.detail is first
    board.show(b"", "recording", "", 2, second)
    assert board.shown.detail is second


def test_the_bounds_are_those_that_are_told() -> None:
    """The page's script has the same numbers."""
    assert f"POINTS = [{LEAST_POINTS}, {MOST_POINTS}]" in asset("fine.js")
