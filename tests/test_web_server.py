"""What the live page's server answers, and to whom: spoken to over a socket, as an attacker would."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING

import pytest

from dipstick.cli.live_web import running
from dipstick.cli.web_board import Board
from dipstick.cli.web_server import LOOPBACK, MOST_CONNECTIONS, Server, event
from dipstick.errors import DipstickError
from grown import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = b"<!doctype html><p>the page</p>"


@pytest.fixture
def server() -> Iterator[Server]:
    """It shows version 1."""
    board = Board()
    board.show(PAGE, "recording", "it goes on", 1)
    with running(Server(board, 0, TOKEN)) as started:
        yield started


class Answer:
    """One request and what came back; no redirect is followed."""

    def __init__(self, server: Server, path: str, headers: dict[str, str], method: str = "GET") -> None:
        connection = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"{LOOPBACK}:{server.server_port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        got = connection.getresponse()
        self.status, self.headers, self.body = got.status, got.headers, got.read()
        connection.close()


def cookie(server: Server, token: str = TOKEN) -> dict[str, str]:
    """What a browser sends once it was let in."""
    return {"Cookie": f"{server.cookie}={token}"}


def stream(server: Server) -> socket.socket:
    """An open stream of news, its header and first event read."""
    opened = socket.create_connection((LOOPBACK, server.server_port), timeout=30)
    head = f"GET /events HTTP/1.1\r\nHost: {LOOPBACK}\r\nCookie: {server.cookie}={TOKEN}\r\n\r\n"
    opened.sendall(head.encode())
    until(opened, b'"said": "it goes on"}\n\n')
    return opened


def until(opened: socket.socket, end: bytes) -> bytes:
    """What comes up to ``end``; the socket's timeout fails the test, not the clock."""
    found = b""
    while end not in found:
        more = opened.recv(65_536)
        assert more, found
        found += more
    return found


def test_it_listens_on_loopback_alone(server: Server) -> None:
    """Whatever else this machine is reachable by."""
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/?token={TOKEN}"


def test_the_token_moves_from_the_address_into_a_cookie(server: Server) -> None:
    """A redirect to the bare address; the cookie is no script's and no other site's, and with it the page comes."""
    let_in = Answer(server, f"/?token={TOKEN}", {})
    assert (let_in.status, let_in.headers["Location"], let_in.body) == (303, "/", b"")
    name, *flags = let_in.headers["Set-Cookie"].split("; ")
    assert (name, flags) == (
        f"dipstick-{server.server_port}={TOKEN}",
        ["Path=/", "HttpOnly", "SameSite=Strict"],
    )
    page = Answer(server, "/", {"Cookie": name})
    assert (page.status, page.body) == (200, PAGE)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/events", {}),
        ("/?token=wrong", {}),
        ("/?token=", {}),
        ("/?token=%ff%00", {}),
        ("/events?token=" + TOKEN, {}),
        ("/", {"Cookie": "dipstick-1=" + TOKEN}),
        ("/", {"Cookie": 'broken; =; "'}),
    ],
)
def test_without_the_token_nothing_is_told(server: Server, path: str, headers: dict[str, str]) -> None:
    """No page and no stream, and the answer says where the address is to be had, not what is recorded."""
    refused = Answer(server, path, headers)
    assert (refused.status, b"dipstick live printed" in refused.body) == (401, True)
    assert "Set-Cookie" not in refused.headers


def test_a_wrong_cookie_is_refused(server: Server) -> None:
    """Also one that begins well."""
    assert Answer(server, "/", cookie(server, TOKEN[:-1])).status == 401
    assert Answer(server, "/", cookie(server, TOKEN + "x")).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "192.0.2.7"]
)
def test_a_foreign_host_name_is_refused(server: Server, host: str) -> None:
    """DNS rebinding: a site's name that resolves to this machine now, even with the token and the cookie."""
    for path in ("/", f"/?token={TOKEN}", "/events"):
        refused = Answer(server, path, {"Host": host, **cookie(server)})
        assert (refused.status, "Set-Cookie" in refused.headers) == (403, False)


def test_a_forwarded_port_is_no_foreign_host(server: Server) -> None:
    """With ssh -L 9000:127.0.0.1:PORT the browser says localhost:9000."""
    assert Answer(server, "/", {"Host": "localhost:9000", **cookie(server)}).status == 200
    assert Answer(server, "/", {"Host": "127.0.0.1", **cookie(server)}).status == 200


def test_another_site_gets_nothing_and_no_leave_to_read(server: Server) -> None:
    """A foreign Origin is refused; no answer has a CORS header, not even one to a preflight."""
    foreign = {"Origin": "https://evil.example", **cookie(server)}
    answers = [
        Answer(server, "/", foreign),
        Answer(server, "/events", foreign),
        Answer(server, "/", {"Origin": "null", **cookie(server)}),
        Answer(server, "/", {**foreign, "Access-Control-Request-Method": "GET"}, "OPTIONS"),
    ]
    assert [answer.status for answer in answers] == [403, 403, 403, 405]
    good = Answer(server, "/", cookie(server))
    assert [n for a in (*answers, good) for n in a.headers if n.lower().startswith("access-control")] == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_only_get_is_answered(server: Server, method: str) -> None:
    """Nothing can be changed from outside."""
    refused = Answer(server, "/", cookie(server), method)
    assert (refused.status, refused.headers["Allow"]) == (405, "GET")


def test_an_unknown_method_is_refused_without_an_echo(server: Server) -> None:
    """The request is not sent back."""
    refused = Answer(server, "/<script>", cookie(server), "BREW")
    assert (refused.status, b"script" in refused.body) == (501, False)


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/manifest.json", "/favicon.ico", "/..;/",
     "/events/", "/\\..\\", "/?token=a/../b", "http://127.0.0.1/etc/passwd"],
)  # fmt: skip
def test_no_path_is_a_file(server: Server, path: str) -> None:
    """Two addresses, and nothing else, however it is written."""
    found = Answer(server, path, cookie(server))
    assert (found.status, b"root:" in found.body) == (200 if path.startswith("/?") else 404, False)


def test_every_answer_forbids_caching_sniffing_framing_and_foreign_scripts(server: Server) -> None:
    """The page, a refusal and the redirect alike; scripts run by their hash, never because they are inline."""
    for answer in (
        Answer(server, "/", cookie(server)),
        Answer(server, "/", {}),
        Answer(server, f"/?token={TOKEN}", {}),
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert all(source.startswith("'sha256-") for source in policy["script-src"].split())
        assert "Python" not in answer.headers["Server"]


def test_without_a_token_loopback_is_enough() -> None:
    """--no-token; a foreign host name is refused all the same."""
    board = Board()
    board.show(PAGE, "ended", "", 1)
    with running(Server(board)) as server:
        assert server.url == f"http://127.0.0.1:{server.server_port}/"
        assert Answer(server, "/", {}).status == 200
        assert Answer(server, "/?token=", {}).status == 200
        assert Answer(server, "/", {"Host": "evil.example"}).status == 403


def test_news_reach_every_viewer(server: Server) -> None:
    """The latest at once, then whatever is new."""
    viewers = [stream(server), stream(server)]
    server.board.show(PAGE, "recording", "more", 2)
    for viewer in viewers:
        assert b'data: {"version": 2, "now": "recording", "said": "more"}' in until(viewer, b"}\n\n")
        viewer.close()


def test_a_viewer_who_does_not_read_delays_nobody(server: Server) -> None:
    """Nothing is queued for it: a thousand pages later another viewer hears of the last one, and one page is held."""
    asleep, awake = stream(server), stream(server)
    for version in range(2, 1002):
        server.board.show(PAGE, "recording", "more", version)
    assert b'"version": 1001' in until(awake, b'"version": 1001, "now": "recording", "said": "more"}\n\n')
    assert server.board.shown.version == 1001
    asleep.close()
    awake.close()


def test_a_stop_is_told_and_ends_the_streams() -> None:
    """Viewers are told, their connections end, and the port is free again."""
    board = Board()
    board.show(PAGE, "recording", "it goes on", 1)
    with running(Server(board, 0, TOKEN)) as server:
        viewer, port = stream(server), server.server_port
    assert until(viewer, b"event: stop\ndata: {}\n\n")
    assert viewer.recv(1) == b""
    viewer.close()
    with running(Server(Board(), port, TOKEN)) as again:
        assert again.server_port == port


def test_too_many_connections_are_closed_at_once(server: Server) -> None:
    """64 viewers are served; the next is not, and takes nothing from them."""
    viewers = [stream(server) for _ in range(MOST_CONNECTIONS)]
    with socket.create_connection((LOOPBACK, server.server_port), timeout=30) as late:
        late.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert _closed(late)
    server.board.say("recording", "still")
    assert all(b"still" in until(viewer, b"}\n\n") for viewer in viewers)
    for viewer in viewers:
        viewer.close()


def _closed(opened: socket.socket) -> bool:
    try:
        return opened.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_taken_port_says_so(server: Server) -> None:
    """What, where, and what to do."""
    with pytest.raises(DipstickError, match=f"cannot listen on port {server.server_port}") as caught:
        Server(Board(), server.server_port)
    assert "--port" in caught.value.fix


def test_a_recorded_text_cannot_break_out_of_an_event() -> None:
    """Line breaks would end it and begin another."""
    board = Board()
    board.say("recording", "x\n\nevent: stop\ndata: {}\n\n\r\u2028")
    told = event(board.shown).decode()
    assert told.count("\n") == 3
    assert json.loads(told.split("data: ", 1)[1])["said"].startswith("x\n\nevent: stop")
