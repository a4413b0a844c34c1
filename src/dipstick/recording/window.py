"""The part of a recording around one instant: what a live view is made from, while a run records and afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from dipstick.recording.schema import frame_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dipstick.recording.reader import Recording

Mode = Literal["recording", "ended", "replay"]

S: Final = 1_000_000_000
TELEMETRY_NS: Final = 180 * S
"""How much telemetry a window holds: enough to learn idle power from, and for a lane."""
SHORTEST_NS: Final = 120 * S
LONGEST_NS: Final = 7200 * S
"""How far back spans are looked for until two steps are among them."""
BLOCK_NS: Final = 60 * S
"""A replay loads this much at a time."""
AFTER_NS: Final = 120 * S
"""Jobs that wait at the end of a block are found if they run within this."""
STEPS: Final = 4
TELEMETRY: Final = ("gpu", "gpu_counters", "gpu_process", "host_process")


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What the probe of one process has cost so far: CPU seconds, over the seconds that it has run (None: unknown)."""

    rank: int | None
    cpu_s: float
    wall_s: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """How the recorder is doing.

    Attributes:
        samplers: Each host's sampler's own account (``capture.sampler_main.describe``), by host.
        probes: What the probes of ranks have cost.
        dropped: Rows lost so far.
        capped: Processes whose probe has stopped writing (its size cap, a full disk).
    """

    samplers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    probes: tuple[ProbeCost, ...] = ()
    dropped: int = 0
    capped: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Rows around ``t_ns``, times in ns since ``start_unix_ns``.

    Attributes:
        name: Of the recording.
        start_unix_ns: t = 0.
        t_ns: The instant that is looked at.
        first_ns: The earliest instant that can be looked at.
        last_ns: The latest; of a recording that goes on, it moves.
        sampled_ns: When the last telemetry was taken; None: none yet.
        mode: ``recording`` while the run goes on, ``ended`` once it has closed, ``replay`` of what lies on disk.
        tables: Frames with the schema's columns. A span without ``t1_ns`` has not ended; a job without has not either,
            and one without ``t0_ns`` is not known to have started.
        health: Of the recorder.
    """

    name: str
    start_unix_ns: int
    t_ns: int
    first_ns: int
    last_ns: int
    sampled_ns: int | None
    mode: Mode
    tables: Mapping[str, pl.DataFrame]
    health: Health

    def table(self, name: str) -> pl.DataFrame:
        """A table, empty where nothing is known; of telemetry and events only what was known at ``t_ns``."""
        found = self.tables.get(name)
        if found is None:
            return pl.DataFrame(schema=frame_schema(name))
        if name in TELEMETRY:
            return found.filter(pl.col("t_ns") <= self.t_ns)
        return found.filter(pl.col("t0_ns") <= self.t_ns) if name == "events" else found


class Replay:
    """Windows of a recording that lies on disk, loaded a block at a time.

    Args:
        recording: Finished, or as far as it goes.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._number = -1
        self._block: dict[str, pl.DataFrame] = {}
        self._health = _health(recording)

    @property
    def length_ns(self) -> int:
        """From the first row to the last."""
        return self._recording.end_unix_ns - self._recording.start_unix_ns

    def window(self, t_ns: int) -> Window:
        """What was known at ``t_ns``, and how what was under way then would end."""
        number = t_ns // BLOCK_NS
        if number != self._number:
            self._block, self._number = self._load(number * BLOCK_NS), number
        return Window(
            name=self._recording.name,
            start_unix_ns=self._recording.start_unix_ns,
            t_ns=t_ns,
            first_ns=0,
            last_ns=self.length_ns,
            sampled_ns=self._sampled(t_ns),
            mode="replay",
            tables=self._block,
            health=self._health,
        )

    def _load(self, start: int) -> dict[str, pl.DataFrame]:
        read, end = self._recording.table, start + BLOCK_NS
        tables = {
            name: read(name, start_ns=start - TELEMETRY_NS, end_ns=end)
            for name in TELEMETRY
            if self._recording.has(name)
        }
        tables |= {name: read(name) for name in ("gpus", "processes")}
        spans, since = self._spans(start, end)
        jobs = read("jobs", start_ns=since, end_ns=end + AFTER_NS)
        return tables | {"spans": spans, "jobs": jobs, "events": read("events", start_ns=since, end_ns=end)}

    def _spans(self, start: int, end: int) -> tuple[pl.DataFrame, int]:
        """Spans far enough back to hold two whole steps before ``start``."""
        reach = SHORTEST_NS
        while True:
            spans = self._recording.table("spans", start_ns=start - reach, end_ns=end)
            steps = spans.filter((pl.col("name") == "step") & (pl.col("t1_ns") <= start))["step"].n_unique()
            if steps >= STEPS or start <= reach or reach >= LONGEST_NS or spans.is_empty():
                return spans, start - reach
            reach *= 4

    def _sampled(self, t_ns: int) -> int | None:
        last = [
            self._block[name].filter(pl.col("t_ns") <= t_ns)["t_ns"].max()
            for name in TELEMETRY
            if name in self._block
        ]
        known = [int(t) for t in last if isinstance(t, int)]
        return max(known) if known else None


def accounts(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The samplers' accounts in a manifest, by host."""
    found = ((key.partition("@")[2], value) for key, value in info.items() if key.startswith("sampler@"))
    return {host: value for host, value in found if isinstance(value, dict)}


def _health(recording: Recording) -> Health:
    """What samplers and probes left in the manifest when they ended."""
    info = recording.manifest.info
    runs = [value for key, value in info.items() if key.startswith("run@") and isinstance(value, dict)]
    probes = (
        probe_cost(probe, number(run.get("seconds")))
        for run in runs
        for probe in _list(run.get("probes"))
        if isinstance(probe, dict) and isinstance(probe.get("rank"), int)
    )
    dropped = int(recording.manifest.health.get("dropped_rows", 0))
    return Health(accounts(info), tuple(cost for cost in probes if cost is not None), dropped)


def probe_cost(probe: Mapping[str, Any], wall_s: float | None) -> ProbeCost | None:
    """CPU seconds of a probe from its own counters; None where it did not say."""
    parts = [number(probe.get(name)) for name in ("rows", "span_ns", "hook_ns", "writer_ns")]
    if any(part is None for part in parts):
        return None
    rows, span, hook, writer = (part or 0.0 for part in parts)
    rank = probe.get("rank")
    return ProbeCost(rank if isinstance(rank, int) else None, (rows * span + hook + writer) / 1e9, wall_s)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def number(value: object) -> float | None:
    """A number from JSON, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
