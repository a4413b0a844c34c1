"""One process that a probe was in: what its segment says about it beside its rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dipstick.recording import probe_lines

if TYPE_CHECKING:
    from dipstick.model import Note
    from dipstick.recording.probe_lines import Line

MOST_HOOKS: Final = 10_000
WORKERS: Final = ("reward_worker", "worker")
"""Roles of processes that a rank started: they inherit its number, and their spans are not its own."""
_COSTS: Final = ("rows", "span_ns", "hook_ns", "writer_ns")
_DEEPEST: Final = 8
"""Generations of processes between a rank and what it started (forkserver, its child, ...)."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Whether a hook found its target; ``why`` and ``version`` (of the hooked package) as the probe saw them."""

    target: str
    bound: bool
    why: str | None = None
    version: str | None = None


@dataclass
class ProbeProcess:
    """One process that a probe was in.

    Attributes:
        ppid: Its parent's pid.
        role: As the probe calls it, ``reward_worker`` where it ran jobs and the probe does not know, else None.
        versions: Packages that its hooks saw.
        hooks: The last word on each target.
        spans: How many it wrote.
        steps: How many of them were numbered steps; ``step_ns`` is how long these took together.
        ended: Its segment ends as it should; False: killed, or still running.
        capped: Why it stopped writing early: ``size`` (its cap), ``disk``; None if it did not.
        dropped: Rows that its ring buffer lost.
        cost: What its probe cost so far, from its last anchor: ``rows``, ``span_ns`` (one span), ``hook_ns``, ``writer_ns``.
    """

    host: str
    pid: int
    clock: int
    ppid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    role: str | None = None
    python: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    spans: int = 0
    steps: int = 0
    step_ns: int = 0
    ended: bool = False
    capped: str | None = None
    dropped: int = 0
    cost: dict[str, int] = field(default_factory=dict)

    def saw_span(self, row: dict[str, Any]) -> None:
        """Count a row of ``spans``."""
        self.spans += 1
        if row["name"] == "step" and row["step"] is not None and row["t1_ns"] >= row["t0_ns"]:
            self.steps += 1
            self.step_ns += row["t1_ns"] - row["t0_ns"]

    def saw_anchor(self, line: Line) -> None:
        """Keep the probe's own account."""
        costs = {name: probe_lines.count(line.get(name)) for name in _COSTS}
        self.cost |= {name: value for name, value in costs.items() if value is not None}

    def account(self) -> dict[str, Any]:
        """What its probe cost, as plain values for the manifest (see ``recording.overhead``)."""
        return {
            "pid": self.pid,
            "rank": self.rank,
            "role": self.role,
            "steps": self.steps,
            "step_ns": self.step_ns,
            "ended": self.ended,
            **self.cost,
        }


@dataclass
class ProbeData:
    """What was found in the segments, beside the rows.

    Attributes:
        processes: One a segment.
        rows: Rows handed to the sink, by table.
        skipped: Lines that were not usable, by reason.
        notes: What the reader of the recording should know.
        files: Names of the segments that were read.
        workers: Processes that ran reward jobs, by (host, pid), with the rank that fed them.
        unmatched_jobs: Jobs without a worker's word on when they ran.
    """

    processes: list[ProbeProcess] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    workers: dict[tuple[str, int], int | None] = field(default_factory=dict)
    unmatched_jobs: int = 0

    @property
    def dropped(self) -> int:
        """Rows that ring buffers lost, all processes."""
        return sum(process.dropped for process in self.processes)

    @property
    def accounts(self) -> list[dict[str, Any]]:
        """What each probe cost, of those that said so."""
        return [process.account() for process in self.processes if process.cost]


def name_roles(data: ProbeData) -> None:
    """Give a role to every process that its probe could not name.

    One that ran jobs is a reward worker. Of the others with spans and a rank, one whose parent (or its parent, and
    so on) has spans of the same rank inherited that number and is a ``worker``; any other is a trainer.
    """
    known = {(p.host, p.pid): p for p in data.processes}
    for process in data.processes:
        key = (process.host, process.pid)
        if process.role is None and key in data.workers:
            process.role = "reward_worker"
        if process.rank is None:
            process.rank = data.workers.get(key)
    nameless = [p for p in data.processes if p.role is None and p.rank is not None and p.spans]
    started = [p for p in nameless if _is_started_by_its_rank(p, known)]
    for process in nameless:  # one without spans inherited its rank: a data loader, a tokenizer
        process.role = "worker" if process in started else "trainer"


def _is_started_by_its_rank(process: ProbeProcess, known: dict[tuple[str, int], ProbeProcess]) -> bool:
    above, seen = process, {process.pid}
    for _ in range(_DEEPEST):
        parent = known.get((above.host, above.ppid or 0))
        if parent is None or parent.pid in seen or parent.rank != process.rank:
            return False
        if parent.spans:
            return True
        seen.add(parent.pid)
        above = parent
    return False


def process_rows(data: ProbeData) -> list[dict[str, Any]]:
    """Rows of the ``processes`` table: what the probes alone know of who is who."""
    return [
        {"host": p.host, "pid": p.pid, "role": p.role or "other", "rank": p.rank, "source": "probe"}
        for p in data.processes
    ]


def take_fact(line: Line, process: ProbeProcess) -> bool:
    """Lines about the process itself; whether it was one."""
    kind = line["k"]
    if kind == "meta":
        take_meta(line, process)
    elif kind == "hooks":
        _take_hooks(line, process)
    elif kind == "dropped":
        process.dropped += probe_lines.count(line.get("count")) or 0
    elif kind == "capped":
        process.capped = probe_lines.text(line.get("why"), 16) or "size"
    elif kind == "end":
        process.ended = True
    else:
        return bool(kind == "open")  # what it is inside of, for a live view; its span comes when it ends
    return True


def take_meta(line: Line, process: ProbeProcess) -> None:
    """Who the process is. May come again when more is known (the rank, after the process group exists): what it does not say stays."""
    process.ppid = _known(probe_lines.small(line.get("ppid")), process.ppid)
    process.rank = _known(probe_lines.small(line.get("rank")), process.rank)
    process.local_rank = _known(probe_lines.small(line.get("local_rank")), process.local_rank)
    process.role = probe_lines.text(line.get("role"), 64) or process.role
    process.python = probe_lines.text(line.get("python"), 64) or process.python
    versions = line.get("versions")
    for name, version in list(versions.items())[:1000] if isinstance(versions, dict) else ():
        shown = probe_lines.text(version, 64)
        if shown is not None:
            process.versions[name[:128]] = shown


def _known(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _take_hooks(line: Line, process: ProbeProcess) -> None:
    """A list of hooks; a later word on a target replaces the earlier one."""
    listed = next((value for value in line.values() if isinstance(value, list)), [])
    for entry in listed:
        target = probe_lines.text(entry.get("target")) if isinstance(entry, dict) else None
        if target is None or (len(process.hooks) >= MOST_HOOKS and target not in process.hooks):
            continue
        why, version = probe_lines.text(entry.get("why")), probe_lines.text(entry.get("version"), 64)
        process.hooks[target] = Hook(target, entry.get("bound") is True, why, version)
