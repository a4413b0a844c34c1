"""`dipstick live --web` as a process: the address on stdout, Ctrl-C, and what cannot be served."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from dipstick.cli import main
from dipstick.cli.live_web import until_stopped
from dipstick.cli.web_board import Board
from grown import Grown, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.cli.web_updates import Updates

SAMPLE = "sample:h200x2-grpo-135m"
Process = subprocess.Popen[str]


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[Process]:
    """The command on a finished recording, with more arguments if a test gives some."""
    more: list[str] = getattr(request, "param", [])
    command = [sys.executable, "-m", "dipstick", "live", SAMPLE, "--web", "--interval", "0.1", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def address(process: Process) -> str:
    """The first line of stdout."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def get(url: str, path: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """One answer; its connection stays open until it is read."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", path, headers=headers or {})
    return connection.getresponse()


def let_in(url: str) -> dict[str, str]:
    """The cookie for the address."""
    answer = get(url, f"/?{urlsplit(url).query}")
    answer.read()
    return {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}


def test_a_finished_recording_is_served_until_ctrl_c(started: Process) -> None:
    """The address has a long token; the stream brings the page; Ctrl-C tells viewers, and the status is 0."""
    url = address(started)
    assert url.startswith("http://127.0.0.1:")
    assert len(urlsplit(url).query) > 40
    stream = get(url, "/events", cookie := let_in(url))
    while b'"now": "ended"' not in (line := stream.readline()):
        assert line
    page = get(url, "/", cookie).read()
    assert (b"data-version=" in page, b"the run has ended" in page) == (True, True)
    started.send_signal(signal.SIGINT)
    assert stream.read().endswith(b"event: stop\ndata: {}\n\n")
    assert started.wait(60) == 0
    assert started.stderr is not None
    said = started.stderr.read()
    assert "Ctrl-C stops" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("started", [["--json", "--no-token"]], indirect=True)
def test_scripts_get_the_address_as_json(started: Process) -> None:
    """And without a token whoever is on this machine may look."""
    assert started.stdout is not None
    lines = [started.stdout.readline() for _ in range(3)]
    url = json.loads("".join(lines))["url"]
    assert urlsplit(url).query == ""
    assert get(url, "/").status == 200


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, and what to do."""
    with serving(Grown(tmp_path / "RUN", 1)) as site:
        port = site.server.server_port
        assert main(["live", SAMPLE, "--web", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"cannot listen on port {port}" in said
    assert "leave --port out" in said


@pytest.mark.parametrize(
    "arguments", [["--web", "--once"], ["--web", "--port", "70000"], ["--web", "--port", "-1"]]
)
def test_what_does_not_go_together(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, before anything is read."""
    assert main(["live", SAMPLE, *arguments]) == 2
    assert "error" in capsys.readouterr().err


def test_no_recording_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is looked at before a port is taken."""
    assert main(["live", str(tmp_path / "nothing"), "--web"]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_a_fault_of_ours_is_handed_to_who_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that analyses dies; the command ends with its error instead of serving a page that never changes."""
    with serving(Grown(tmp_path / "RUN", 1)) as site:

        def broken(_: Updates) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(type(site.updates), "look", broken)
        viewer = site.board.follow(30.0)
        next(viewer)
        failed = until_stopped(site.updates, site.board)
        assert isinstance(failed, ZeroDivisionError)


def test_a_stop_from_elsewhere_is_no_fault(tmp_path: Path) -> None:
    """Nothing to report."""
    with serving(Grown(tmp_path / "RUN", 1)) as site:
        site.board.stop()
        assert until_stopped(site.updates, site.board) is None
        assert Board().is_stopped is False
