"""A stretch of a run at the resolution of its samples, for a live page that is zoomed in on what its pyramid holds too coarsely.

Signals are read from the recording by time range. States and phases are what the analysis of the page found: nothing is
analysed again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dipstick.errors import RecordingError
from dipstick.model import Tracks
from dipstick.show.pack import Pack
from dipstick.show.page_rows import code_sites, phase_tracks
from dipstick.show.page_tracks import SIGNALS, Budget, gpu_tracks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from dipstick.model import FloatArray, GpuTrack, RankTrack, Report
    from dipstick.recording.reader import Recording

LEAST_POINTS: Final = 200
MOST_POINTS: Final = 8_000
"""Of each track in one answer; twice the columns of a wide screen, and half of them are columns."""
MOST_CELLS: Final = 600_000
"""Of all tracks in one answer: twice those of a page."""
MOST_SAMPLES: Final = 2_000_000
"""Rows of telemetry that are read for one answer: a few seconds."""
_AROUND_S: Final = 2.0
_PERIODS: Final = 4
"""What a sample stands for reaches back to the one before: so much more is read on both sides."""


class Detail:
    """One analysed recording, for whoever zooms in on it.

    Args:
        report: What the analysis found.
        recording: What it read.

    Attributes:
        longest_s: A longer stretch is not served: the page holds it finely enough, and reading it takes too long.
        sites: Places in the code of the whole recording; the page's header lists them in this order.
    """

    def __init__(self, report: Report, recording: Recording) -> None:
        self._report = report
        self._recording = recording
        period = report.run.sampling.period_s or 0.1
        self._margin_s = max(_AROUND_S, _PERIODS * period)
        self.longest_s = max(60.0, MOST_SAMPLES * period / max(1, len(report.tracks.gpus)))
        self.sites: pl.DataFrame = code_sites(recording)
        self._notes = len(recording.notes)

    def text(self, start_s: float, end_s: float, points: int) -> str:
        """The tracks between two times, packed like the page's, each in at most about ``points`` cells; fewer where there are very many tracks.

        Raises:
            RecordingError: Files that were analysed are gone or damaged by now; or one of ``parts.UNREADABLE``.
        """
        tracks = len(SIGNALS) * len(self._report.tracks.gpus) + len(self._report.tracks.ranks)
        pack, budget = Pack(), Budget((), max(LEAST_POINTS, min(points, MOST_CELLS // max(1, tracks))))
        report = replace(self._report, tracks=_cut(self._report.tracks, start_s, end_s))
        part = _Part(self._recording, start_s - self._margin_s, end_s + self._margin_s)
        header = {
            "range": [start_s, end_s],
            **gpu_tracks(report, part, pack, budget),
            "ranks": phase_tracks(report, part, pack, budget, self.sites)["ranks"],
        }
        if (
            len(self._recording.notes) > self._notes
        ):  # what can't be read is noted and left out: holes that were none
            raise RecordingError("it has changed since it was analysed.", where=str(self._recording.path))
        self._recording.forget()
        return pack.text(header)


class _Part:
    """A recording of which only a stretch is read."""

    def __init__(self, whole: Recording, start_s: float, end_s: float) -> None:
        self._whole = whole
        self._range = (round(start_s * 1e9), round(end_s * 1e9))
        self.start_unix_ns, self.end_unix_ns = whole.start_unix_ns, whole.end_unix_ns
        self.scan = whole.scan

    def table(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Rows of the stretch; all of a table that has no times."""
        if name == "processes":
            return self._whole.table(name, columns=columns)
        start = self._range[0] if start_ns is None else start_ns
        end = self._range[1] if end_ns is None else end_ns
        return self._whole.table(name, start_ns=start, end_ns=end, columns=columns)


def _cut(tracks: Tracks, start_s: float, end_s: float) -> Tracks:
    gpus = tuple(_gpu(track, start_s, end_s) for track in tracks.gpus)
    return Tracks(gpus, tuple(_rank(track, start_s, end_s) for track in tracks.ranks), tracks.step_start_s)


def _gpu(track: GpuTrack, start_s: float, end_s: float) -> GpuTrack:
    part = _touching(track.t0_s, track.t1_s, start_s, end_s)
    return replace(
        track,
        t0_s=track.t0_s[part],
        t1_s=track.t1_s[part],
        util_pct=track.util_pct[part],
        state=track.state[part],
    )


def _rank(track: RankTrack, start_s: float, end_s: float) -> RankTrack:
    part = _touching(track.edge_s[:-1], track.edge_s[1:], start_s, end_s)
    return replace(track, edge_s=track.edge_s[part.start : part.stop + 1], code=track.code[part])


def _touching(t0: FloatArray, t1: FloatArray, start_s: float, end_s: float) -> slice:
    """Which of ascending stretches touch the range."""
    first, last = int(np.searchsorted(t1, start_s, "right")), int(np.searchsorted(t0, end_s, "left"))
    return slice(first, max(first, last))
