"""The sampler as the supervisor sees it: a child that may die without harm to the run."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dipstick.capture.launch import without_probe
from dipstick.capture.sampler_main import EXIT_FULL

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S: Final = 60.0
"""How long it may take to write its last rows and compact them, on a slow disk."""


class SamplerProcess:
    """A running sampler. Its standard input is a pipe that we hold open: when it closes, it finishes.

    It has a session of its own, so that no signal of the terminal reaches it.

    Attributes:
        lost: Writer ids of samplers that ended before they were asked to.
        gaps: What telemetry lacks because of a restart, in words.

    Args:
        run: The recording.
        host: Name of this host.
        hz: Polls a second.
    """

    def __init__(self, run: Path, host: str, hz: float) -> None:
        self._options = ["--run", str(run), "--host", host, "--hz", str(hz)]
        self.lost: list[str] = []
        self.gaps: list[str] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process does
        self._start()

    def _start(self) -> None:
        self.writer = f"sampler_{secrets.token_hex(4)}"
        words = [*self._options, "--writer", self.writer]
        self._process = subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
            [sys.executable, "-P", "-m", "dipstick.capture.sampler_main", *words, "--root", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
            env={**without_probe(os.environ), "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def again(self) -> bool:
        """Start another one in place of one that has ended too early; once, and not on a full disk.

        Returns:
            Whether one was started.
        """
        why = self.trouble() or "the sampler ended"
        self.lost.append(self.writer)
        if len(self.lost) > 1 or self._process.returncode == EXIT_FULL:
            return False
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._start()
        except OSError:
            return False
        self.gaps.append(f"{why} and was started again: a few seconds of it are missing")
        return True

    def stop(self) -> None:
        """Ask it to finish, and wait; kill it if it hangs."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def trouble(self) -> str | None:
        """Why it ended before it was asked to or could not finish, in words; None if all is well."""
        status = self._process.poll()
        if not status:
            return None
        if status == EXIT_FULL:
            return "the disk is full"
        if status < 0:
            return f"the sampler was killed (signal {-status})"
        return f"the sampler failed: {self._last_words() or f'exit status {status}'}"

    def _last_words(self) -> str:
        """The last line that it wrote to stderr."""
        self._stderr.seek(0)
        lines = self._stderr.read(1 << 20).decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
