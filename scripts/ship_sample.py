"""Turn a recording into a shipped sample, ``sample:NAME``: small, and without host names, user names, paths and commands.

    python scripts/ship_sample.py RUN NAME [--from S] [--to S] [--source TEXT] [--samples FOLDER] [--limit BYTES]

RUN may be a folder or a ``.tar.gz`` that benchmarks/gpu/grpo_run.sh or session.sh left (the recording in it is found).
The names go by the same table as in every file that dipstick writes for sharing (dipstick.show.names); afterwards the
sample is read again, and it is refused and deleted if a name or a home is left in it, if it is over the limit, or if its
answer isn't the recording's. Then: ``dipstick explain sample:NAME``, and add its findings to tests and docs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dipstick.recording.layout import MANIFEST
from dipstick.recording.reader import SAMPLES, Recording, open_recording
from dipstick.recording.schema import TABLES, TIME_COLUMNS
from dipstick.show.redact import names_of, without_names
from dipstick.verdicts.report import explain
from keep_recording import keep, write

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1_000_000
NAME = re.compile(r"[a-z0-9][a-z0-9-]{2,40}")
HOME = re.compile(r"(?:/home/|/root\b|/Users/|/tmp/|/workspace/|[A-Za-z]:\\Users)")


def ship(run: Path, folder: Path, *, start_s: float, end_s: float, source: str | None, limit: int) -> int:
    """Write the sample; returns its size in bytes.

    Raises:
        SystemExit: It would hold a name, be too large or say something else; nothing is left then.
    """
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch, "kept")
        keep(run, small, start_s=start_s, end_s=end_s, source=source or "a real run")
        recording = open_recording(small)
        size = redacted(recording, folder)
        wrong = [
            *left_in(folder, secrets_of(open_recording(run))),
            *_differences(recording, open_recording(folder)),
        ]
    if size > limit:
        wrong.append(f"{size:,} bytes are more than {limit:,}: take fewer seconds (--from, --to)")
    if wrong:
        shutil.rmtree(folder)
        raise SystemExit(f"{folder.name} isn't shipped: " + "; ".join(wrong))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # a run folder is private; a shipped one is not
    return size


def redacted(recording: Recording, out: Path) -> int:
    """The recording with every name replaced, times in Unix time as they were."""
    clean, names = without_names(recording), names_of(None, recording)
    numbered = {
        names.host(host): f"host{i}" for i, host in enumerate(hosts_of(recording))
    }  # as the manifest does
    frames = {}
    for name in (name for name in TABLES if name != "anchors" and recording.has(name)):
        frame = clean.table(name).select(pl.exclude("clock"))
        frames[name] = frame.with_columns(
            pl.col(column) + recording.start_unix_ns for column in TIME_COLUMNS[name]
        )
        if "host" in frame.columns:
            frames[name] = frames[name].with_columns(pl.col("host").cast(pl.String).replace(numbered))
    return write(recording, out, frames, text=names.text, source=names.text(recording.manifest.source or ""))


def hosts_of(recording: Recording) -> list[str]:
    """Every host that its tables or its manifest name, sorted."""
    found = set(recording.manifest.hosts)
    for name in (name for name in TABLES if "host" in TABLES[name] and recording.has(name)):
        found |= set(recording.table(name, columns=["host"])["host"].cast(pl.String).drop_nulls())
    return sorted(found)


def secrets_of(recording: Recording) -> set[str]:
    """What must not be in a sample: host names and command lines of the recording."""
    commands = recording.table("processes", columns=["cmdline"])["cmdline"].cast(pl.String).drop_nulls()
    return {text for text in (*hosts_of(recording), *commands) if len(text) > 3}  # noqa: PLR2004 - "a" is in every word


def texts_of(recording: Recording) -> Iterator[str]:
    """Every distinct string of a recording: its tables' and its manifest's."""
    for name in (name for name in TABLES if recording.has(name)):
        frame = recording.table(name)
        for column in (
            c for c, kind in frame.schema.items() if kind.base_type() in (pl.String, pl.Categorical)
        ):
            yield from frame[column].cast(pl.String).drop_nulls().unique().to_list()
    for path in recording.path.glob("manifest*.json"):
        yield path.read_text()


def left_in(folder: Path, secrets: set[str]) -> list[str]:
    """What is still in it that shouldn't be, in words."""
    found = set()
    for text in texts_of(open_recording(folder)):
        found |= {
            f"a name is left ({secret[:20]!r})"
            for secret in secrets
            if secret in text and not secret.startswith("host")
        }
        if home := HOME.search(text):
            found.add(f"a path is left ({text[home.start() : home.start() + 30]!r})")
    return sorted(found)


def _differences(whole: Recording, copy: Recording) -> list[str]:
    """The copy's answer has to be the recording's."""
    same = explain(whole).answer == explain(copy).answer
    return [] if same else ["its answer is another than the recording's"]


def unpacked(run: Path, scratch: Path) -> Path:
    """The recording's folder: RUN itself, or the one inside an archive.

    Raises:
        SystemExit: There is none.
    """
    if run.is_dir():
        return run
    with tarfile.open(run) as archive:
        archive.extractall(scratch, filter="data")
    found = sorted(path.parent for path in scratch.rglob(MANIFEST))
    if len(found) != 1:
        raise SystemExit(f"{run}: {len(found)} recordings in it; unpack it and name one")
    return found[0]


def main() -> int:
    """Ship it and say how large it is."""
    parser = argparse.ArgumentParser(description="Turn a recording into a shipped sample.")
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--from", dest="start", type=float, default=0.0)
    parser.add_argument("--to", dest="end", type=float, default=float("inf"))
    parser.add_argument("--source", help="what was recorded, in words")
    parser.add_argument("--samples", type=Path, default=Path(str(SAMPLES)))
    parser.add_argument("--limit", type=int, default=LIMIT)
    wanted = parser.parse_args()
    if not NAME.fullmatch(wanted.name):
        raise SystemExit(f"{wanted.name!r}: lower case letters, digits and hyphens, as in h200x2-crystal")
    folder = wanted.samples / wanted.name
    if folder.exists():
        raise SystemExit(f"{folder} is there already: delete it first")
    with tempfile.TemporaryDirectory() as scratch:
        run = unpacked(wanted.run, Path(scratch))
        size = ship(
            run, folder, start_s=wanted.start, end_s=wanted.end, source=wanted.source, limit=wanted.limit
        )
    print(f"sample:{wanted.name}: {size:,} bytes\n  dipstick explain sample:{wanted.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
