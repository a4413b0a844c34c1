"""Which instant of which run a live view looks at: now, held, sought, or replayed."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final, Protocol

from dipstick.recording.live import LiveRun, last_written_ns
from dipstick.recording.reader import SAMPLE_PREFIX, open_recording, resolve
from dipstick.recording.window import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.recording.window import Window

    Now = Callable[[], int]

S: Final = 1_000_000_000
BEHIND_NS: Final = 1_500_000_000
"""How far a live view looks back: the sampler hands over every second, a probe every half, an open span is told after
0.25 s. By then what was under way at that instant is known."""
QUIET_NS: Final = 60 * S
"""A recording that nobody closed and nobody has written to for this long is replayed: its run was killed."""
SEEK_S: Final = 10.0


class Feed(Protocol):
    """What the view asks for each time it draws."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing new will come."""

    @property
    def held(self) -> bool:
        """Whether the time stands still."""

    @property
    def stays(self) -> bool:
        """Whether a view stays open at the end, to seek in."""

    def window(self) -> Window:
        """Rows around the instant to show."""

    def toggle(self) -> None:
        """Pause, or go on."""

    def seek(self, seconds: float) -> None:
        """Move back or forth."""


class LiveFeed:
    """A run that goes on.

    Args:
        run: Reads it.
        wall: Unix time in ns.
        here: Whether the run is on this host, so that both have one clock. Elsewhere the clocks may differ: then the
            freshest row that was ever seen says what time it is there.
    """

    def __init__(self, run: LiveRun, wall: Now = time.time_ns, *, here: bool = True) -> None:
        self._run = run
        self._wall = wall
        self._here = here
        self._lag: int | None = None
        self._held: int | None = None
        self._shown = 0
        self._first = 0
        self.stays = False

    @property
    def has_ended(self) -> bool:
        """Whether the run has closed its recording."""
        return self._run.closed

    @property
    def held(self) -> bool:
        """Whether it was paused, or sought back."""
        return self._held is not None

    def window(self) -> Window:
        """What is known of the instant ``BEHIND_NS`` ago, or of the one that is held."""
        self._run.look()
        self._shown = self._now() - BEHIND_NS if self._held is None else self._held
        window = self._run.window(self._shown)
        self._first = window.first_ns + window.start_unix_ns
        if window.sampled_ns is not None:
            self._see(window.sampled_ns + window.start_unix_ns)
        return window

    def toggle(self) -> None:
        """Hold the instant that is shown, or come back to now."""
        self._held = self._shown if self._held is None else None

    def seek(self, seconds: float) -> None:
        """Back as far as rows are kept, and forth to now."""
        wanted = self._shown + round(seconds * S)
        now = self._now() - BEHIND_NS
        self._held = None if wanted >= now else max(wanted, min(self._first, now))

    def _now(self) -> int:
        return self._wall() - (0 if self._here else self._lag or 0)

    def _see(self, latest: int) -> None:
        lag = self._wall() - latest
        self._lag = lag if self._lag is None else min(self._lag, lag)


class ReplayFeed:
    """A recording that is played.

    Args:
        replay: Reads it.
        start_s: Where to begin.
        speed: How fast.
        now: Monotonic ns.
    """

    def __init__(self, replay: Replay, start_s: float, speed: float, now: Now = time.monotonic_ns) -> None:
        self._replay = replay
        self._speed = speed
        self._now = now
        self._at = _clamp(round(start_s * S), replay.length_ns)
        self._since = now()
        self.held = False
        self.stays = True

    @property
    def has_ended(self) -> bool:
        """Whether the end is shown."""
        return self._at >= self._replay.length_ns

    def window(self) -> Window:
        """The instant that it has come to."""
        self._advance()
        return self._replay.window(self._at)

    def toggle(self) -> None:
        """Pause, or go on."""
        self._advance()
        self.held = not self.held

    def seek(self, seconds: float) -> None:
        """Move, within the recording."""
        self._advance()
        self._at = _clamp(self._at + round(seconds * S), self._replay.length_ns)

    def _advance(self) -> None:
        now = self._now()
        if not self.held:
            self._at = _clamp(self._at + round((now - self._since) * self._speed), self._replay.length_ns)
        self._since = now


def _clamp(t: int, length: int) -> int:
    return max(0, min(t, length))


def open_feed(name: str, *, speed: float = 1.0, start: float | None = None, once: bool = False) -> Feed:
    """The feed for ``RUN``: live while it is being written, else a replay.

    Args:
        name: A folder or ``sample:NAME``.
        speed: Of a replay.
        start: Second to replay from; a run that goes on is then replayed, too.
        once: One look: at the end, where no ``start`` is given.

    Raises:
        RecordingError: It is no recording, or holds nothing.
    """
    folder = resolve(name)
    if start is None and not name.startswith(SAMPLE_PREFIX):
        run = LiveRun(folder, folder.resolve().name)
        run.look()
        if not run.closed and time.time_ns() - last_written_ns(folder) < QUIET_NS:
            return LiveFeed(run, here=not run.manifest.hosts or socket.gethostname() in run.manifest.hosts)
    replay = Replay(open_recording(name))
    first = start if start is not None else replay.length_ns / S if once else 0.0
    return ReplayFeed(replay, first, speed)
