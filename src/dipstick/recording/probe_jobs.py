"""What several processes said about one job, joined: the parent knows when it was submitted and what crossed, the worker when it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dipstick.clock import ClockMap

MOST_JOBS: Final = 5_000_000
"""Jobs that are kept for joining (a day of GRPO has some 500,000); what comes after is counted, not kept."""


@dataclass
class _Job:
    """Everything said about a job so far, and which clocks stamped its run and its submission."""

    row: dict[str, Any]
    run_clock: int | None = None
    submit_clock: int | None = None


@dataclass
class JobBook:
    """Jobs by (host, id), until every segment has been read.

    Attributes:
        overflow: Lines about jobs beyond ``MOST_JOBS``.
    """

    overflow: int = 0
    _jobs: dict[tuple[str, str], _Job] = field(default_factory=dict)

    def add(self, host: str, pid: int, rank: int | None, clock: int, part: dict[str, Any]) -> None:
        """Join a line to what is known of its job.

        The first word on a field counts, but rank and step are the submitting process's: a worker has no rank of
        its own, only one that it inherited.

        Args:
            host: Of the segment.
            pid: Of the segment: the worker's, where a line with start and end names none.
            rank: Of the segment, where the line names none.
            clock: Number of the segment's clock.
            part: From ``probe_lines.job_part``.
        """
        key = (host, part["job"])
        if key not in self._jobs and len(self._jobs) >= MOST_JOBS:
            self.overflow += 1
            return
        job = self._jobs.setdefault(key, _Job({"host": host}))
        ran = part["t0_ns"] is not None and part["t1_ns"] is not None
        said = {name: value for name, value in part.items() if value is not None}
        said = ({"rank": rank} if rank is not None else {}) | ({"pid": pid} if ran else {}) | said
        if not ran:
            said = {name: value for name, value in said.items() if name not in {"pid", "t0_ns", "t1_ns"}}
        if "submitted_ns" in said:
            job.submit_clock = clock
            job.row |= {name: said[name] for name in ("rank", "step") if name in said}
        if ran:
            job.run_clock = clock
        job.row = said | job.row

    def rows(self, clocks: Mapping[int, ClockMap]) -> Iterator[dict[str, Any]]:
        """One row a job that ran, on the worker's clock.

        Args:
            clocks: Fitted clocks by number, to move the time of submission onto the worker's clock.
        """
        for job in self._jobs.values():
            if job.run_clock is not None:
                submitted = _moved(job.row.get("submitted_ns"), job.submit_clock, job.run_clock, clocks)
                yield job.row | {"submitted_ns": submitted, "clock": job.run_clock}

    @property
    def ran(self) -> int:
        """Jobs that a worker spoke of."""
        return sum(job.run_clock is not None for job in self._jobs.values())

    @property
    def unmatched(self) -> int:
        """Jobs that were submitted but no worker spoke of: when they ran is not known."""
        return sum(job.run_clock is None for job in self._jobs.values())

    def worker_pids(self) -> dict[tuple[str, int], int | None]:
        """(host, pid) of every worker that ran a job, and the rank that fed it."""
        ran = (job.row for job in self._jobs.values() if job.run_clock is not None)
        found: dict[tuple[str, int], int | None] = {}
        for row in ran:
            found.setdefault((row["host"], row["pid"]), row.get("rank"))
        return found


def _moved(time: int | None, of: int | None, to: int, clocks: Mapping[int, ClockMap]) -> int | None:
    """A time of one clock as the other clock shows it; the same number where both belong to one host."""
    if time is None or of is None or of == to:
        return time
    if of not in clocks or to not in clocks:
        return None
    unix = clocks[of].to_unix(np.array([time], np.int64))
    return int(clocks[to].to_mono(unix)[0])
