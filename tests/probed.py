"""Runs a script under the probe as `dipstick run` would: by environment only, in a Python of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "src" / "dipstick" / "probe"
Row = dict[str, Any]
TIMEOUT_S = 120
"""A script that hangs fails its test; none needs a tenth of it."""


@dataclass
class Segment:
    """What one process wrote."""

    path: Path
    rows: list[Row] = field(default_factory=list)

    def of(self, kind: str) -> list[Row]:
        """The rows of one kind, in file order."""
        return [row for row in self.rows if row["k"] == kind]

    @property
    def pid(self) -> int:
        return int(self.rows[0]["pid"])

    def names(self) -> list[str]:
        """Names of the spans, in the order in which they ended."""
        return [row["n"] for row in self.of("span")]

    def span(self, name: str) -> Row:
        """The only span of this name."""
        (found,) = [row for row in self.of("span") if row["n"] == name]
        return found

    def collectives(self) -> list[Row]:
        """The collectives with the device's time, where it followed, as ``device_ms``."""
        times = dict(pair for row in self.of("device") for pair in row["coll"])
        return [
            row | ({"device_ms": times[row["i"]]} if row.get("i") in times else {}) for row in self.of("coll")
        ]

    def hooks(self) -> dict[str, Row]:
        """The last word on every hook."""
        return {hook["target"]: hook for row in self.of("hooks") for hook in row["hooks"]}

    def events(self) -> list[str]:
        """Names of the events but collections of garbage."""
        return [row["n"] for row in self.of("event") if row["n"] != "gc"]


@dataclass
class Probed:
    """A script that has run: what it printed, and the segments of its processes, its own first."""

    status: int
    out: str
    err: str
    segments: list[Segment]

    @property
    def main(self) -> Segment:
        return self.segments[0]

    def of(self, kind: str) -> list[Row]:
        """The rows of one kind in all processes."""
        return [row for segment in self.segments for row in segment.of(kind)]

    def jobs(self) -> dict[str, Row]:
        """Jobs, joined by id as the recording does: the first word on a field counts."""
        found: dict[str, Row] = {}
        for row in self.of("job"):
            job = found.setdefault(row["job"], {})
            for name, value in row.items():
                job.setdefault(name, value)
        return {name: job for name, job in found.items() if "a" in job}

    def troubles(self) -> list[Row]:
        """Errors of the probe's own. There should be none, ever."""
        return [
            hook
            for s in self.segments
            for hook in s.hooks().values()
            if "in the probe" in hook.get("why", "")
        ]


def environment(run: Path | None, **extra: str) -> dict[str, str]:
    """The variables of `dipstick run`; without a run, those of a bare shell."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIPSTICK_")}
    kept.pop("PYTHONPATH", None)
    path = [extra.pop("PYTHONPATH")] if "PYTHONPATH" in extra else []
    if run is not None:
        kept |= {"DIPSTICK_RUN_DIR": str(run), "DIPSTICK_PROBE": "1"}
        path.insert(0, str(FOLDER))
    return kept | ({"PYTHONPATH": os.pathsep.join(path)} if path else {}) | extra


def read(run: Path) -> list[Segment]:
    """All segments of a run, oldest first; a cut last line is left out, any other bad line is an error."""
    found = []
    for path in sorted((run / "probe").glob("*.jsonl"), key=lambda p: int(p.name.split(".")[-2])):
        lines = path.read_text().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        if rows:
            found.append(Segment(path, rows))
    return found


def run_probed(
    tmp_path: Path,
    code: str,
    *arguments: str,
    python: str = sys.executable,
    **extra: str,
) -> Probed:
    """Write ``code`` to a file, run it under the probe and read what was recorded.

    Args:
        tmp_path: Gets ``script.py`` (its folder is on the path, as for any script) and ``run``.
        code: The script; it may hold further modules' imports from ``tmp_path``.
        arguments: Of the script.
        python: Interpreter.
        extra: Environment variables on top.
    """
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [python, str(script), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=tmp_path,
        env=environment(run, **extra),
    )  # fmt: skip
    return Probed(done.returncode, done.stdout, done.stderr, read(run))


def write_package(folder: Path, files: dict[str, str]) -> None:
    """Write modules: ``{"trl/extras/profiling.py": "..."}``; every folder on the way becomes a package."""
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in list(path.relative_to(folder).parents)[:-1]:
            (folder / parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(source))
