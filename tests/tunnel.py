"""A way between a browser and a server that a test can cut, as ssh's does when a network goes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Tunnel:
    """Forwards a port of loopback to another one, until it is cut; then nothing answers there until it is mended.

    Attributes:
        port: Where to connect.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._ends: list[socket.socket] = []
        self.port = 0
        self.mend()

    def mend(self) -> None:
        """Listen (again, on the same port)."""
        self._door = socket.create_server(("127.0.0.1", self.port))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._door,), daemon=True).start()

    def cut(self) -> None:
        """Close everything without a word."""
        for end in (self._door, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _serve(self, door: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = door.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [here, there]
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
