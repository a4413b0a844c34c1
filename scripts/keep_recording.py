"""Make a small copy of a recording, to be shipped or sent: one part a table, densely packed, on one clock.

    python scripts/keep_recording.py RUN OUT [--from S] [--to S] [--source TEXT]

Nothing is averaged or thinned out: what a check finds in RUN it finds in OUT. What goes: host names (``host0``, ...),
probe segments (their rows are in the tables), clock anchors (every time is Unix time afterwards), and rows outside the
seconds asked for. What stays of the manifest: health, notes, and facts other than the lists of segments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dipstick.recording.manifest import SEGMENTS_KEY
from dipstick.recording.reader import open_recording
from dipstick.recording.schema import TABLES, TIME_COLUMNS
from dipstick.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.recording.reader import Recording

S = 1_000_000_000


def kept(recording: Recording, table: str, start_s: float, end_s: float) -> pl.DataFrame:
    """A table's rows that touch the seconds asked for, in Unix time, with hosts numbered.

    Args:
        recording: The whole.
        table: Its name.
        start_s: Seconds since the recording's start.
        end_s: Likewise; may be infinite.
    """
    times = TIME_COLUMNS[table]
    frame = recording.table(table).select(pl.exclude("clock"))
    if times:
        first, last = (times[0], times[-1]) if "t0_ns" not in times else ("t0_ns", "t1_ns")
        touches = pl.col(last).fill_null(pl.col(first)) >= int(start_s * S)
        touches &= pl.col(first) <= min(end_s * S, 2**62)
        frame = frame.filter(
            touches.fill_null(value=True)
        )  # a number of a step has no time where a log has none
        frame = frame.with_columns(pl.col(name) + recording.start_unix_ns for name in times)
    if "host" in frame.columns:
        numbered = {host: f"host{i}" for i, host in enumerate(recording.manifest.hosts)}
        frame = frame.with_columns(pl.col("host").cast(pl.String).replace(numbered))
    return frame


def hosts_hidden(text: str, hosts: tuple[str, ...]) -> str:
    """The text with each host's name replaced by its number."""
    for i, host in enumerate(hosts):
        text = text.replace(host, f"host{i}")
    return text


def keep(run: Path, out: Path, *, start_s: float, end_s: float, source: str | None) -> int:
    """Write the copy; returns its size in bytes."""
    recording = open_recording(run)
    hosts = recording.manifest.hosts
    names = [name for name in TABLES if name != "anchors" and recording.has(name)]
    frames = {name: kept(recording, name, start_s, end_s) for name in names}
    return write(recording, out, frames, text=lambda text: hosts_hidden(text, hosts), source=source)


def write(
    recording: Recording,
    out: Path,
    frames: dict[str, pl.DataFrame],
    *,
    text: Callable[[str], str],
    source: str | None,
) -> int:
    """Write tables (Unix time) with the recording's manifest; returns the size in bytes.

    Args:
        recording: Where notes, health and facts come from.
        out: The folder.
        frames: Rows by table.
        text: What every string of the manifest becomes.
        source: What was recorded; None keeps the manifest's word.
    """
    manifest = recording.manifest
    with RecordingWriter.create(
        out, origin=manifest.origin, host="host0", source=source or manifest.source, force=True, writer="kept",
        created_unix_ns=manifest.created_unix_ns, level=19,
    ) as writer:  # fmt: skip
        for i in range(1, len(manifest.hosts)):
            writer.add_host(f"host{i}")
        for name, frame in frames.items():
            writer.append(name, frame)
        for note in manifest.notes:
            writer.note(note.level, text(note.text))
        writer.count(**manifest.health)
        facts = {key: value for key, value in manifest.info.items() if not key.startswith(SEGMENTS_KEY)}
        writer.set_info(**{text(key): in_all(value, text) for key, value in facts.items()})
    return size_of(out)


def in_all(value: Any, text: Callable[[str], str]) -> Any:
    """A plain value with every string in it (keys, too) changed."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {text(key): in_all(item, text) for key, item in value.items()}
    return [in_all(item, text) for item in value] if isinstance(value, list) else value


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Write it and say how large it is."""
    parser = argparse.ArgumentParser(description="Make a small copy of a recording.")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="start", type=float, default=0.0)
    parser.add_argument("--to", dest="end", type=float, default=float("inf"))
    parser.add_argument("--source", help="what was recorded, in words")
    wanted = parser.parse_args()
    size = keep(wanted.run, wanted.out, start_s=wanted.start, end_s=wanted.end, source=wanted.source)
    print(f"{wanted.out}: {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
