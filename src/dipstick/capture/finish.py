"""The end of a run: probe segments become tables, processes get their roles, and what was captured is counted."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dipstick.capture.privacy import scrub
from dipstick.capture.roles import OTHER
from dipstick.recording.layout import list_folder
from dipstick.recording.manifest import SEGMENTS_KEY, mark_closed, read_manifest
from dipstick.recording.overhead import overhead
from dipstick.recording.probe_segments import FOLDER, convert, segment_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from dipstick.model import Overhead
    from dipstick.recording.probe_process import Hook, ProbeData
    from dipstick.recording.writer import RecordingWriter


@dataclass(frozen=True, slots=True)
class Ending:
    """How CMD ended.

    Attributes:
        command: Program and arguments.
        host: Where it ran.
        status: As a shell would say it.
        began_ns: Unix time before it was started.
        ended_ns: Unix time after it had ended.
    """

    command: tuple[str, ...]
    host: str
    status: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Telemetry:
    """How the sampler fared.

    Attributes:
        trouble: Why it ended early; None if it did not.
        gaps: What is missing because it was started again.
        lost: Writer ids of samplers that were killed: nobody else will say that these write no more.
        sampled: Whether there was a sampler.
    """

    trouble: str | None = None
    gaps: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """What is in the recording of this host, and what is not.

    Attributes:
        run: The folder.
        seconds: How long CMD ran.
        size_b: Bytes on disk.
        status: CMD's.
        sampler: The sampler's own account (see ``sampler_main.describe``), empty if it left none.
        trouble: Why the sampler ended early.
        probes: Processes that loaded the probe.
        hooks: By target: whether any process bound it, and if not why.
        rows: Rows that the probes wrote, by table.
        roles: How many processes of each role.
        ranks: Ranks that left spans.
        workers: Processes that ran reward jobs.
        notes: What went wrong, in words.
        overhead: What recording cost.
    """

    run: str
    seconds: float
    size_b: int
    status: int
    sampler: dict[str, Any]
    trouble: str | None
    probes: int
    hooks: dict[str, Hook]
    rows: dict[str, int]
    roles: dict[str, int]
    ranks: tuple[int, ...]
    workers: int
    notes: tuple[str, ...]
    overhead: Overhead

    @property
    def is_explainable(self) -> bool:
        """Whether there is anything that ``dipstick explain`` can work with (a sampler that left no account may have)."""
        return bool(self.rows.get("spans") or self.sampler.get("gpus") or not self.sampler)


def close_recording(run: Path, writer: RecordingWriter, ending: Ending, telemetry: Telemetry) -> Captured:
    """Convert, name, count and close.

    Args:
        run: The recording.
        writer: The supervisor's; closed on return.
        ending: How CMD ended.
        telemetry: How the sampler fared.

    Returns:
        The account for the box at the end.

    Raises:
        OSError: The disk is full; the segments stay and can be read where they are.
        DipstickError: The recording was damaged meanwhile.
    """
    files = [file for file in segment_files(run / FOLDER) if file.host == ending.host]
    data = convert(files, writer.append)
    account = sampler_account(run, ending.host) if telemetry.sampled else {}
    rows = name_processes(ending.host, data, account.get("processes", []))
    gpus = {gpu["gpu"] for gpu in account.get("gpus", [])}
    rows = place_by_local_rank(rows, data, gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    writer.append("processes", rows)
    _describe(writer, ending, data, telemetry)
    writer.close()
    for lost in telemetry.lost:
        with suppress(OSError):
            mark_closed(run, lost)
    for file in files:
        with suppress(OSError):
            file.path.unlink()
    with suppress(OSError):
        (run / FOLDER).rmdir()  # stays while segments of other hosts are in it
    return _captured(run, ending, data, account, telemetry, rows)


def sampler_account(run: Path, host: str) -> dict[str, Any]:
    """What the sampler of this host left in the manifest; empty if it was killed."""
    found = read_manifest(run, list_folder(run).pieces).info.get(f"sampler@{host}")
    return found if isinstance(found, dict) else {}


def name_processes(host: str, data: ProbeData, seen: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the ``processes`` table: the probes know roles and ranks, the sampler GPUs and command lines.

    A process that only the sampler saw is ``other`` (ours), ``foreign`` or ``unattributable``; the last two have no
    command line.
    """
    known: dict[int, dict[str, Any]] = {}
    for process in seen:
        whose = process.get("whose")
        role = whose if whose in {"foreign", "unattributable"} else OTHER
        row = {"role": role, "rank": None, "gpu": process.get("gpu"), "source": "sampler"}
        known[int(process["pid"])] = row | {"cmdline": process.get("cmdline") if role == OTHER else None}
    for spoken in data.processes:
        if spoken.host == host:
            before = known.get(spoken.pid, {"gpu": None, "cmdline": None})
            known[spoken.pid] = {
                **before,
                "role": spoken.role or OTHER,
                "rank": spoken.rank,
                "source": "probe",
            }
    return [{"host": host, "pid": pid, **row} for pid, row in sorted(known.items())]


def place_by_local_rank(
    rows: list[dict[str, Any]], data: ProbeData, gpus: Collection[int], visible: str | None
) -> list[dict[str, Any]]:
    """Where the driver could not say which GPU a rank uses, its local rank does; the row says so in ``source``.

    Args:
        rows: Of the ``processes`` table.
        data: Has the local ranks.
        gpus: Indices of this host's GPUs.
        visible: ``CUDA_VISIBLE_DEVICES``: local rank 1 of ``"4,5"`` is GPU 5. Names other than numbers can't be placed.
    """
    if any(row["rank"] is not None and row["gpu"] is not None for row in rows):
        return rows
    order = (
        sorted(gpus)
        if visible is None
        else [int(v) if v.strip().isdigit() else -1 for v in visible.split(",")]
    )
    local = {p.pid: p.local_rank for p in data.processes if p.spans and p.rank is not None}
    for row in rows:
        rank = local.get(row["pid"])
        if rank is not None and 0 <= rank < len(order) and order[rank] in gpus:
            row |= {"gpu": order[rank], "source": "probe: local rank"}
    return rows


def _describe(writer: RecordingWriter, ending: Ending, data: ProbeData, telemetry: Telemetry) -> None:
    """Facts, counts and notes for the manifest."""
    versions = {name: version for process in data.processes for name, version in process.versions.items()}
    hooks = merged_hooks(data)
    writer.set_info(
        **{
            f"run@{ending.host}": {
                "command": scrub(ending.command),
                "exit_status": ending.status,
                "seconds": (ending.ended_ns - ending.began_ns) / 1e9,
                "versions": versions,
                "hooks": [[h.target, h.bound, h.why, h.version] for h in hooks.values()],
                "probes": data.accounts,
            },
            f"{SEGMENTS_KEY}{writer.writer}": data.files,
        }
    )
    if data.dropped:
        writer.count(dropped_rows=data.dropped)
    for note in data.notes:
        writer.note(note.level, note.text)
    for gap in telemetry.gaps:
        writer.note("warning", f"telemetry of {ending.host} has a gap: {gap}")
    if telemetry.trouble is not None:
        writer.note("warning", f"telemetry of {ending.host} ends early: {telemetry.trouble}")


def merged_hooks(data: ProbeData) -> dict[str, Hook]:
    """One word on each target: bound if any process bound it."""
    hooks: dict[str, Hook] = {}
    for process in data.processes:
        for target, hook in process.hooks.items():
            if target not in hooks or hook.bound:
                hooks[target] = hook
    return hooks


def _captured(
    run: Path,
    ending: Ending,
    data: ProbeData,
    account: dict[str, Any],
    telemetry: Telemetry,
    rows: list[dict[str, Any]],
) -> Captured:
    return Captured(
        run=str(run),
        seconds=(ending.ended_ns - ending.began_ns) / 1e9,
        size_b=sum(path.stat().st_size for path in run.rglob("*") if path.is_file()),
        status=ending.status,
        sampler=account,
        trouble=telemetry.trouble,
        probes=len(data.processes),
        hooks=merged_hooks(data),
        rows=dict(data.rows),
        roles=dict(Counter(row["role"] for row in rows)),
        ranks=tuple(sorted({p.rank for p in data.processes if p.rank is not None and p.spans})),
        workers=len(data.workers),
        notes=(
            *(f"telemetry has a gap: {gap}" for gap in telemetry.gaps),
            *(note.text for note in data.notes if note.level == "warning"),
        ),
        overhead=overhead(
            data.accounts, [account] if account else [], (ending.ended_ns - ending.began_ns) / 1e9
        ),
    )
