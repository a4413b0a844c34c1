"""`dipstick run` as tests start it: real processes, to the end or live, and what they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dipstick.recording.layout import list_folder
from dipstick.recording.manifest import Manifest, read_manifest
from dipstick.recording.reader import Recording, open_recording

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Ran:
    """What a run left behind."""

    run: Path
    status: int
    out: str
    err: str

    @property
    def recording(self) -> Recording:
        return open_recording(self.run)

    @property
    def manifest(self) -> Manifest:
        """Of all writers; also of a run too short to hold a row."""
        return read_manifest(self.run, list_folder(self.run).pieces)


def environment(**more: str) -> dict[str, str]:
    """A plain environment in which ``python -m dipstick`` is this checkout's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DIPSTICK") and k != "PYTHONPATH"}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"} | more


def command(run: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", "dipstick", "run", "-o", str(run), *options, "--", *words]


def ran(run: Path, *words: str, options: tuple[str, ...] = (), **more: str) -> Ran:
    """Run to the end, without a terminal."""
    done = subprocess.run(
        command(run, *words, options=options),
        capture_output=True, text=True, env=environment(**more), start_new_session=True, check=False, cwd=run.parent,
    )  # fmt: skip
    return Ran(run, done.returncode, done.stdout, done.stderr)


def eventually(condition: Callable[[], Any]) -> Any:
    """The first true value within a minute."""
    for _ in range(6000):
        if value := condition():
            return value
        time.sleep(0.01)
    raise TimeoutError


class Live:
    """A run in progress; CMD waits on its standard input."""

    def __init__(self, run: Path, script: str, *words: str, **more: str) -> None:
        self.run = run
        self.process = subprocess.Popen(
            command(run, *(words or ("/bin/sh", "-c", script))), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(**more), start_new_session=True, cwd=run.parent,
        )  # fmt: skip

    def sampler(self) -> int:
        """The sampler's pid, once it has written something."""
        eventually(lambda: list(self.run.glob("host_load/*")))
        return self.samplers()[0]

    def samplers(self) -> list[int]:
        """Pids of the samplers that run."""
        return [pid for pid in self.children() if b"sampler_main" in _cmdline(pid)]

    def children(self) -> list[int]:
        """Pids of the supervisor's children."""
        stats = [(int(p.parent.name), process_stat(p)) for p in Path("/proc").glob("[0-9]*/stat")]
        return [pid for pid, fields in stats if fields[1:2] == [str(self.process.pid)]]

    def end(self, text: str = "\n") -> Ran:
        """Let CMD go on, and wait."""
        out, err = self.process.communicate(text, timeout=120)
        return Ran(self.run, self.process.returncode, out, err)


def state_of(pid: int) -> str:
    """The letter of ``ps``, empty for a process that is gone."""
    return "".join(process_stat(Path(f"/proc/{pid}/stat"))[:1])


def process_stat(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def read_until(live: Live, words: str) -> str:
    """What dipstick says up to the line with these words."""
    assert live.process.stderr is not None
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        lines.append(live.process.stderr.readline())
    return "".join(lines)
