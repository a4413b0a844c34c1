"""Everything that the page's charts need, as one text: built once for a file, again and again for a live page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dipstick.show.lanes import typical, whole
from dipstick.show.pack import Pack
from dipstick.show.page_rows import event_tracks, handoffs, job_tracks, mark_tracks, phase_tracks
from dipstick.show.page_tracks import MOST_CELLS, Budget, gpu_tracks, thinned
from dipstick.show.palette import PHASE_BY_CODE, STATE_BY_CODE
from dipstick.show.thin import disjoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dipstick.judgement import Receipt
    from dipstick.model import Report
    from dipstick.show.page_range import Detail
    from dipstick.show.palette import Ink
    from dipstick.show.recorded import Recorded
    from dipstick.show.thin import Window

_ZOOM_COLUMNS: Final = 80
"""As many steps are picked as a terminal of this many columns could show."""
_AROUND: Final = 0.25
_AROUND_S: Final = 2.0
_LOCAL: Final = 0.02
"""A receipt about more of the run than this is about the run, not about a place in it."""
_SIGNALS: Final = 4


def data(report: Report, recording: Recorded | None, detail: Detail | None = None) -> tuple[str, str]:
    """The packed tracks, and the sentence on how much they were thinned (empty: not at all).

    ``detail``: What a server has at full resolution; the header then says how long a stretch of it is served.
    """
    pack = Pack()
    budget = Budget(full_windows(report))
    header: dict[str, Any] = {
        "seconds": report.run.seconds,
        "window": [float(t) for t in report.run.window_s],
        "typical": _typical(report),
        "steps": pack.times(np.asarray(report.tracks.step_start_s, float)),
        "inks": {"phase": _inks(PHASE_BY_CODE), "state": _inks(STATE_BY_CODE)},
        **gpu_tracks(report, recording, pack, budget),
        **phase_tracks(report, recording, pack, budget, detail.sites if detail else None),
        "jobs": job_tracks(recording, pack, budget),
        "events": event_tracks(recording, pack),
        "marks": mark_tracks(report, pack),
        "handoffs": handoffs(recording),
        "longest": None if detail is None else detail.longest_s,
    }
    return pack.text(header), thinned(header, pack)


def full_windows(report: Report) -> Sequence[Window]:
    """Where every sample stays: around each receipt that names a place, and the typical steps; half the cells at most."""
    seconds = max(report.run.seconds, 1e-9)
    series = max(1, _SIGNALS * len(report.tracks.gpus))
    period = report.run.sampling.period_s or seconds
    longest = max(seconds * _LOCAL, MOST_CELLS / 2 / series * period)
    near = _typical(report)
    found = [(near[0], near[1])] if near else []
    return disjoint([*found, *_around(report, seconds)], longest)


def _around(report: Report, seconds: float) -> Iterator[Window]:
    for receipt in _receipts(report):
        t0, t1 = receipt.t0_s, receipt.t1_s
        if (
            t0 is None
            or t1 is None
            or not np.isfinite([t0, t1]).all()
            or not 0 <= t1 - t0 <= _LOCAL * seconds
        ):
            continue
        margin = _AROUND_S + _AROUND * (t1 - t0)
        yield t0 - margin, t1 + margin


def _receipts(report: Report) -> Iterator[Receipt]:
    """In the order of the page, the first of each first."""
    judged = [*(check.receipts for check in report.checks), *(claim.receipts for claim in report.claims)]
    for rank in range(max(map(len, judged), default=0)):
        yield from (receipts[rank] for receipts in judged if rank < len(receipts))


def _typical(report: Report) -> list[float] | None:
    near = typical(report, _ZOOM_COLUMNS) if report.tracks.gpus else whole(report)
    return [near.t0, near.t1] if near.typical else None


def _inks(inks: Sequence[Ink]) -> list[dict[str, str]]:
    return [
        {
            "key": i.key,
            "label": i.label,
            "letter": i.letter,
            "hex": i.hex,
            "text": i.text,
            "meaning": i.meaning,
        }
        for i in inks
    ]
