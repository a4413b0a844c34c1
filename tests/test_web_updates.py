"""The pages of a live server: when one is made, what it says, and who hears of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import dipstick
from dipstick.analysis.live import frame
from dipstick.cli import web_updates
from dipstick.cli.live_feed import ReplayFeed, open_feed
from dipstick.cli.web_board import Board
from dipstick.cli.web_updates import Updates, standing
from dipstick.recording.window import Replay
from grown import Grown, serving
from live_windows import straggling
from records import on_disk

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.model import Report
    from dipstick.recording.reader import Recording

SAMPLE = "sample:h200x2-grpo-135m"


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each recording that is analysed, as it is."""
    seen: list[str] = []
    whole = dipstick.explain

    def counted(recording: Recording) -> Report:
        seen.append(recording.name)
        return whole(recording)

    monkeypatch.setattr(web_updates, "explain", counted)
    return seen


def test_before_the_first_analysis_a_page_says_so(tmp_path: Path) -> None:
    """A day takes a minute to read: the address works at once."""
    with serving(Grown(tmp_path / "RUN", 2)) as site:
        shown = site.board.shown
        assert (shown.now, shown.said) == ("waiting", "reading the recording")
        assert b"reading the recording" in shown.page


def test_a_recording_is_analysed_again_only_when_it_has_grown(tmp_path: Path, analyses: list[str]) -> None:
    """Same files, same page; one more step, one more page."""
    run = Grown(tmp_path / "RUN", 2)
    with serving(run) as site:
        first = site.look()
        assert (site.look(), len(analyses)) == (first, 1)
        run.step()
        assert (site.look(), len(analyses)) == (first + 1, 2)
        assert site.board.shown.now == "recording"
        assert b"3 steps" in site.board.shown.page


def test_the_last_page_is_that_of_the_whole_run(tmp_path: Path) -> None:
    """Rows that came with the end are in it, and nothing is looked at after it."""
    run = Grown(tmp_path / "RUN", 2)
    with serving(run) as site:
        site.look()
        run.step()
        run.close()
        assert site.updates.look() is True
        assert (site.board.shown.now, b"3 steps" in site.board.shown.page) == ("ended", True)


def test_a_finished_recording_is_one_page(analyses: list[str]) -> None:
    """The loop ends by itself."""
    board = Board()
    updates = Updates(SAMPLE, open_feed(SAMPLE, once=True), board, 0.1)
    viewer = board.follow(30.0)
    next(viewer)
    updates.run()
    assert (board.shown.now, analyses) == ("ended", [SAMPLE])


def test_nothing_to_explain_yet_is_said(tmp_path: Path) -> None:
    """A run that has only just begun: no page of its own yet, no error, and the first rows bring it."""
    run = Grown(tmp_path / "RUN")
    with serving(run) as site:
        before = site.board.shown.version
        assert site.look() == before
        assert "nothing to explain yet" in site.board.shown.said
        run.step()
        run.step()
        assert site.look() == before + 1


def test_nobody_looks_nothing_is_done(tmp_path: Path, analyses: list[str]) -> None:
    """The loop waits for a viewer; a stop ends it."""
    with serving(Grown(tmp_path / "RUN", 2)) as site:
        loop = threading.Thread(target=site.updates.run)
        loop.start()
        assert not site.board.wait_for_viewer(0.0)
        site.board.stop()
        loop.join(30)
        assert (loop.is_alive(), analyses) == (False, [])


def test_many_viewers_one_analysis(tmp_path: Path, analyses: list[str]) -> None:
    """Each hears of the same page."""
    with serving(Grown(tmp_path / "RUN", 2)) as site:
        streams = [site.board.follow(30.0) for _ in range(5)]
        assert {shown.now for stream in streams if (shown := next(stream))} == {"waiting"}
        version = site.look()
        assert [shown.version for stream in streams if (shown := next(stream))] == [version] * 5
        assert len(analyses) == 1


def test_it_rests_three_times_what_a_look_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two CPU seconds of work, six of rest: a quarter of a core."""
    with serving(Grown(tmp_path / "RUN", 2)) as site:
        rests: list[float] = []
        spent = iter([10.0, 12.0])
        updates = Updates(str(tmp_path / "RUN"), site.updates._feed, site.board, 1.0, lambda: next(spent))
        monkeypatch.setattr(site.board, "rest", rests.append)
        viewer = site.board.follow(30.0)
        next(viewer)
        updates.run()
        assert rests == [6.0]


def test_a_fault_of_ours_stops_the_server_and_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that dies in silence would leave a page that never changes."""

    def broken(_: Recording) -> Report:
        raise ZeroDivisionError

    monkeypatch.setattr(web_updates, "explain", broken)
    with serving(Grown(tmp_path / "RUN", 2)) as site:
        viewer = site.board.follow(30.0)
        next(viewer)
        with pytest.raises(ZeroDivisionError):
            site.updates.run()
        assert site.board.is_stopped


def test_the_status_tells_step_time_and_phases(tmp_path: Path) -> None:
    """In one line, of the first four ranks."""
    rows = straggling(12.0)
    spans = [row for row in rows["spans"] if row["t1_ns"] is not None]
    replay = Replay(on_disk(tmp_path / "RUN", **{**rows, "spans": spans, "jobs": []}))
    feed = ReplayFeed(replay, 6.0, 1.0, lambda: 0)
    assert standing(frame(feed.window())) == (
        "recording, 6.0 s, step 1; rank 0 reward, rank 1 between phases"
    )


def test_a_follower_that_left_is_not_counted() -> None:
    """The analysis rests when the last one has gone."""
    board = Board()
    viewer = board.follow(0.01)
    next(viewer)
    assert board.wait_for_viewer(0.0)
    viewer.close()
    assert not board.wait_for_viewer(0.0)


def test_silence_is_broken_by_a_beat() -> None:
    """None after so long without news: the server writes, and so learns who has gone."""
    board = Board()
    viewer = board.follow(0.01)
    assert next(viewer) is not None
    assert next(viewer) is None
    viewer.close()


def test_a_slow_follower_gets_the_latest_only() -> None:
    """What came between is skipped."""
    board = Board()
    viewer = board.follow(30.0)
    next(viewer)
    for version in (1, 2, 3):
        board.show(b"", "recording", "", version)
    shown = next(viewer)
    assert shown is not None
    assert shown.version == 3
    board.stop()
    assert list(viewer) == []


def test_the_same_words_are_not_told_twice() -> None:
    """No news, no event."""
    board = Board()
    board.say("recording", "step 3")
    viewer = board.follow(0.01)
    next(viewer)
    board.say("recording", "step 3")
    assert next(viewer) is None
    viewer.close()
