"""What went wrong in the probes' segments, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.model import Note

if TYPE_CHECKING:
    from dipstick.clock import ClockMap
    from dipstick.recording.probe_process import ProbeData, ProbeProcess


def step_notes(host: str, common: ClockMap) -> list[Note]:
    """Wall clocks that were set while recording."""
    return [
        Note(
            "warning",
            f"the wall clock of {host} was set by {step.step_ns / 1e9:+z.3f} s at Unix {step.unix_ns / 1e9:z.3f}; "
            "removed from the time axis of its processes",
        )
        for step in common.steps
    ]


def notes_of(data: ProbeData, overflow: int) -> list[Note]:
    """What went wrong, in words."""
    texts = [f"probe segments: {n} lines skipped: {reason}" for reason, n in sorted(data.skipped.items())]
    if overflow:
        texts.append(f"{overflow} job records were not kept: too many")
    if data.dropped:
        texts.append(f"the probes' buffers overflowed: {data.dropped} rows are lost")
    full = {"disk": "found the disk full"}
    texts += [
        f"process {p.pid} on {p.host}{_rank(p)} {full.get(p.capped, 'reached its size cap (DIPSTICK_PROBE_MAX_MB)')}: "
        "what came after is missing"
        for p in data.processes
        if p.capped is not None
    ]
    cut = [p for p in data.processes if not p.ended and not p.capped]
    trainers = [p for p in cut if p.rank is not None and p.spans]
    texts += [
        f"process {p.pid} on {p.host}{_rank(p)} did not end by itself (killed, or still running): at most its last second is missing"
        for p in trainers[:20]
    ]
    notes = [Note("warning", text) for text in texts]
    if len(cut) > len(trainers):
        text = f"{len(cut) - len(trainers)} other processes did not end by themselves: at most their last second is missing"
        notes.append(Note("info", text))
    if data.unmatched_jobs:
        why = "when they ran is not known (the worker was killed, or has no probe)"
        notes.append(
            Note(
                "warning",
                f"{data.unmatched_jobs} reward jobs were submitted and no worker spoke of them: {why}",
            )
        )
    return notes


def _rank(process: ProbeProcess) -> str:
    """`` (trainer, rank 0)``, empty for a process of which neither is known."""
    parts = [process.role or "", "" if process.rank is None else f"rank {process.rank}"]
    known = ", ".join(part for part in parts if part)
    return f" ({known})" if known else ""
