"""Serves a live page on loopback, to whoever has the token.

The standard library's server is enough: three addresses, GET only, a thread a connection, of which there are few. Nothing of a
request is ever a file's name. What is checked, in this order: the method; ``Host`` (a foreign name that was made to resolve
to this machine is refused); ``Origin``; the token, once in the address and from then on in a cookie that scripts cannot read.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from dipstick.cli.web_range import Ranges
from dipstick.errors import DipstickError
from dipstick.show.html import served_policy

if TYPE_CHECKING:
    from dipstick.cli.web_board import Board, Shown

LOOPBACK: Final = "127.0.0.1"
NAMES: Final = frozenset({LOOPBACK, "localhost"})
MOST_CONNECTIONS: Final = 64
"""At a time; more are closed at once. A browser opens two or three a viewer."""
PATIENCE_S: Final = 60.0
"""A connection that takes nothing for so long is closed; a page of 3 MB may come through a tunnel."""
BEAT_S: Final = 10.0
"""Silence on a stream is broken so often, to see who has left."""
HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Connection": "close",
}
TEXT: Final = "text/plain; charset=utf-8"


class Server(ThreadingHTTPServer):
    """Bound to loopback as soon as it is made; ``serve_forever`` in a thread, ``stop`` to end.

    Args:
        board: What to serve.
        port: 0 takes a free one.
        token: Who may look; None: whoever can reach loopback.

    Raises:
        DipstickError: The port is taken.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, board: Board, port: int = 0, token: str | None = None) -> None:
        self.board = board
        self.token = token
        self.policy = served_policy()
        self.ranges = Ranges()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((LOOPBACK, port), Page)
        except OSError as error:
            what = f"cannot listen on port {port}: {error.strerror}"
            raise DipstickError(what, where=LOOPBACK, fix="leave --port out: a free one is taken") from None

    @property
    def url(self) -> str:
        """Where to look, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies do not tell ports apart, so the name does."""
        return f"dipstick-{self.server_port}"

    def stop(self) -> None:
        """Tell viewers, and close. ``serve_forever`` must be running."""
        self.board.stop()
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """One thread a connection, and no more than there may be."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives its place back at the end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Viewers leave in the middle of an answer; that is theirs to do."""


class Page(BaseHTTPRequestHandler):
    """One request; the connection is closed after it."""

    server: Server
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        """The page, the stream of news, or a stretch of the recording."""
        url = urlsplit(self.path)
        if not self._is_ours():
            return self._refuse(403, "This server answers to 127.0.0.1 and localhost, and to its own page.")
        given = parse_qs(url.query).get("token", [])
        if url.path == "/" and given and self._is_token(given[0]):
            return self._welcome()
        if not self._is_known():
            return self._refuse(
                401, "Open the address that dipstick live printed (or reload this page, if you just did)."
            )
        return self._serve(url.path, url.query)

    def _serve(self, path: str, query: str) -> None:
        shown = self.server.board.shown
        if path == "/":
            self._answer(200, shown.page, "text/html; charset=utf-8")
        elif path == "/events":
            self._stream()
        elif path == "/range":
            status, text = self.server.ranges.answer(query, shown)
            self._answer(status, text.encode(), TEXT)
        else:
            self._refuse(404, "There is nothing here.")

    def _not_allowed(self) -> None:
        self._answer(405, b"This server only answers GET.\n", TEXT, {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _not_allowed  # noqa: N815 - found by name

    def _is_ours(self) -> bool:
        """Whether the browser asks for a name of ours, and no other site makes it."""
        host = self.headers.get_all("Host") or [""]
        origin = self.headers.get("Origin")
        named = host[0].lower().rsplit(":", 1)[0] in NAMES
        return len(host) == 1 and named and origin in {None, f"http://{host[0]}"}

    def _is_known(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            found = None
        return self.server.token is None or (found is not None and self._is_token(found.value))

    def _is_token(self, given: str) -> bool:
        token = self.server.token
        return token is not None and hmac.compare_digest(given.encode(), token.encode())

    def _welcome(self) -> None:
        """Move the token from the address, where histories and screens keep it, into a cookie."""
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        self._answer(303, b"", TEXT, {"Location": "/", "Set-Cookie": cookie})

    def _refuse(self, status: int, why: str) -> None:
        self._answer(status, f"{why}\n".encode(), TEXT)

    def _answer(self, status: int, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self._begin(status, {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": self.server.policy, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self) -> None:
        """Server-sent events: each says which page is the latest, so that nothing is ever queued for a viewer."""
        self._begin(200, {"Content-Type": "text/event-stream; charset=utf-8"})
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            self.wfile.write(b"retry: 1000\n\n")
            for shown in self.server.board.follow(BEAT_S):
                self.wfile.write(b": nothing new\n\n" if shown is None else event(shown))
            self.wfile.write(b"event: stop\ndata: {}\n\n")

    def version_string(self) -> str:
        """No versions of ours are told."""
        return "dipstick"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Nothing: addresses hold the token once."""

    def send_error(self, code: int, *_: object, **__: object) -> None:
        """A malformed request is not echoed."""
        with suppress(OSError):
            self.command = self.command or "GET"
            self._refuse(code, "This server only answers GET.")


def event(shown: Shown) -> bytes:
    """One event; JSON has no line breaks, so a recorded text cannot end it."""
    facts = {"version": shown.version, "now": shown.now, "said": shown.said}
    return f"event: news\ndata: {json.dumps(facts)}\n\n".encode()
