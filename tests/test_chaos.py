"""What can be killed, filled up or set while a run is recorded: each leaves a recording that says what is missing.

Real processes on a CPU: two ranks with a reward worker each, which stop and wait where the test wants to interfere.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from dipstick.capture import sampler_main
from dipstick.capture.launch import SEGMENTS
from dipstick.capture.sampler_main import EXIT_FULL
from dipstick.cli import main
from dipstick.errors import EmptyRecordingError
from dipstick.recording import segments
from dipstick.recording.reader import open_recording
from dipstick.recording.writer import RecordingWriter
from probed import run_probed
from runs import Live, Ran, eventually, read_until, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.model import Report

JOB = '''
"""Two ranks, three steps each. A rank stops in step 1 until the file `go` is there; the launcher's status is the worst."""
import os, subprocess, sys, time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dipstick_probe import span

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)

def score(number):
    if number == 1 and os.environ.get("HANG"):
        open(f"hangs.{os.environ['RANK']}.{os.getpid()}", "w").close()
        wait_for("never")
    time.sleep(0.02)
    return number

def rewards(pool, step):
    try:
        return sum(pool.map(score, [step, step]))
    except BrokenProcessPool:
        return None

def rank():
    for step in range(3):
        with ProcessPoolExecutor(1) as pool, span("step", step=step):
            with span("generate"):
                time.sleep(0.05)
            if step == 1 and not os.environ.get("HANG"):
                wait_for("go")
            with span("reward"):
                rewards(pool, step)
            with span("backward"):
                time.sleep(0.05)

def launch():
    ranks = [subprocess.Popen([sys.executable, __file__, "rank"], env={**os.environ, "RANK": str(n)}) for n in (0, 1)]
    print(*(each.pid for each in ranks), flush=True)
    sys.exit(max(abs(each.wait()) for each in ranks))

if __name__ == "__main__":
    rank() if sys.argv[1:] else launch()
'''


class Job(Live):
    """The job under ``dipstick run``."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        (folder / "job.py").write_text(JOB)
        super().__init__(folder / "R", "", sys.executable, "job.py", **more)
        assert self.process.stdout is not None
        self.ranks = [int(pid) for pid in self.process.stdout.readline().split()]

    def reached(self, step: int) -> None:
        """Both ranks have flushed that step's generation."""
        eventually(lambda: all(self._has(pid, '"n":"generate"', f'"step":{step}') for pid in self.ranks))

    def _has(self, pid: int, *words: str) -> bool:
        files = self.run.glob(f"{SEGMENTS}/*.{pid}.*.jsonl")
        return any(
            all(word in line for word in words) for file in files for line in file.read_text().splitlines()
        )

    def go(self) -> Ran:
        """Let them finish."""
        (self.folder / "go").touch()
        return self.end("")


def explained(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Report, str]:
    """``dipstick explain`` answers; its report and its screen."""
    assert main(["explain", str(run), "--full", "--no-color"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    return dipstick.explain(run), shown


def has_note(report: Report, *words: str) -> bool:
    return any(all(word in note.text for word in words) for note in report.notes)


def test_a_rank_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kill -9 in its second step: the other rank goes on, the job's status comes back, and the rank is named."""
    job = Job(tmp_path)
    job.reached(1)
    os.kill(job.ranks[1], signal.SIGKILL)
    done = job.go()
    assert done.status == 9
    report, shown = explained(done.run, capsys)
    assert (report.run.ranks, report.answer.longest_phase is not None) == (2, True)
    assert has_note(report, f"process {job.ranks[1]} ", "(trainer, rank 1) did not end by itself")
    assert f"process {job.ranks[1]}" in shown
    assert f"process {job.ranks[1]}" in done.err  # in the box, too
    counts = done.recording.table("spans").filter(pl.col("name").cast(pl.String) == "step")["rank"].to_list()
    assert (counts.count(0), counts.count(1)) == (3, 1)
    assert report.run.overhead is not None
    assert report.run.overhead.probe is not None


def test_a_sampler_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is started again, the gap is said; the recording is whole and closed."""
    job = Job(tmp_path)
    first = job.sampler()
    rows = len(list(job.run.glob("host_load/*")))
    os.kill(first, signal.SIGKILL)
    read_until(job, "the sampler was killed (signal 9): another one was started; the command goes on")
    eventually(lambda: len(list(job.run.glob("host_load/*"))) > rows)
    done = job.go()
    assert (done.status, done.manifest.state) == (0, "closed")
    assert (
        "missing    telemetry has a gap: the sampler was killed (signal 9) and was started again" in done.err
    )
    report, shown = explained(done.run, capsys)
    assert has_note(report, "has a gap", "was started again")
    assert "has a gap" in shown
    assert report.run.overhead is not None
    assert report.run.overhead.because == ""


def test_a_sampler_that_is_killed_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then it stays dead: said, and the overhead is not known."""
    job = Job(tmp_path)
    os.kill(job.sampler(), signal.SIGKILL)
    read_until(job, "another one was started")
    os.kill(eventually(job.samplers)[0], signal.SIGKILL)
    read_until(job, "recording of telemetry stops here; the command goes on")
    done = job.go()
    assert (done.status, done.manifest.state) == (0, "closed")
    report, shown = explained(done.run, capsys)
    assert has_note(report, "ends early: the sampler was killed (signal 9)")
    assert "sampler unknown, because no sampler left an account" in shown


def test_a_reward_worker_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of a job: the pool breaks, the script goes on, and the jobs without an end are counted."""
    job = Job(tmp_path, HANG="1")
    job.reached(1)
    for rank in (0, 1):
        workers = eventually(partial(_busy_workers, tmp_path, rank))
        os.kill(workers[0], signal.SIGKILL)
    done = job.end("")
    assert done.status == 0
    report, shown = explained(done.run, capsys)
    assert (report.run.ranks, report.run.steps) == (2, 3)
    jobs = done.recording.table("jobs", columns=("step", "rank"))
    assert {(step, rank) for step, rank in jobs.rows()} == {(0, 0), (0, 1), (2, 0), (2, 1)}
    assert "reward jobs were submitted and no worker spoke of them" in shown


def _busy_workers(folder: Path, rank: int) -> list[int]:
    """Workers of the rank that are in a job of step 1."""
    pids = [int(path.suffix[1:]) for path in folder.glob(f"hangs.{rank}.*")]
    return [pid for pid in pids if state_of(pid) not in {"", "Z"}]


def test_a_supervisor_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sampler ends by itself, the ranks go on unharmed; what lies in the folder can be explained, also meanwhile."""
    job = Job(tmp_path)
    sampler = job.sampler()
    job.reached(1)
    job.process.kill()
    eventually(lambda: state_of(sampler) in {"", "Z"})
    meanwhile, _ = explained(job.run, capsys)
    assert meanwhile.run.ranks == 2
    (tmp_path / "go").touch()
    eventually(lambda: all(state_of(pid) in {"", "Z"} for pid in job.ranks))
    job.process.communicate()
    report, shown = explained(job.run, capsys)
    assert (report.run.ranks, report.run.steps) == (2, 3)
    assert has_note(report, "the recording was not closed")
    assert "the recording was not closed" in shown
    assert report.run.overhead is not None
    assert report.run.overhead.probe is not None


def test_a_wall_clock_that_is_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An hour forward, as one process sees it, between two steps (NTP, a resumed machine): removed, and said."""
    done = run_probed(
        tmp_path,
        """
        import time
        from types import SimpleNamespace
        from dipstick_probe import boot, span, writer
        from dipstick_probe.state import STATE
        real, hour = time, 3600 * 10**9
        for step in range(4):
            with span("step", step=step):
                with span("generate"): time.sleep(0.35)  # anchors closer than a second hold no step
            if step == 1:
                writer.time = SimpleNamespace(**{**vars(real), "time_ns": lambda: real.time_ns() + hour})
            boot.PROBE.writer._anchored_ns = 0
            STATE.sync()
        """,
        RANK="0",
    )
    assert done.status == 0, done.err
    RecordingWriter.create(tmp_path / "R", origin="measured", host="node1").close()
    (tmp_path / "run/probe").rename(tmp_path / "R/probe")
    report, shown = explained(tmp_path / "R", capsys)
    assert has_note(report, "was set by +3600.0")
    assert "was set by +3600.0" in shown
    assert report.run.steps == 4
    assert report.run.seconds < 600  # not an hour and more


# a full disk, injected into each of the three writers (on a real small disk: tests/test_cli_run.py)


def test_a_disk_that_is_full_for_a_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training goes on; the segment says why it ends there."""
    done = run_probed(
        tmp_path,
        """
        import errno, os, time
        from dipstick_probe import segment, span
        from dipstick_probe.state import STATE
        from types import SimpleNamespace
        def full(file, data):
            if b"capped" in bytes(data): return os.write(file, data)
            raise OSError(errno.ENOSPC, "No space left on device")
        for step in range(4):
            with span("step", step=step):
                with span("generate"): time.sleep(0.05)
            STATE.sync()
            if step == 1: segment.os = SimpleNamespace(**{**vars(os), "write": full})
        print("trained")
        """,
        RANK="0",
    )
    assert (done.status, done.out) == (0, "trained\n"), done.err
    RecordingWriter.create(tmp_path / "R", origin="measured", host="node1").close()
    (tmp_path / "run/probe").rename(tmp_path / "R/probe")
    report, shown = explained(tmp_path / "R", capsys)
    assert report.run.steps == 2
    assert "found the disk full: what came after is missing" in shown


def test_a_disk_that_is_full_for_the_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third batch on: its own exit status, and the two before can be read."""
    batches = []
    write = segments.Segment.write

    def full(self: segments.Segment, rows: pl.DataFrame) -> None:
        if self.path.parent.name == "host_load":
            batches.append(rows.height)
            if len(batches) > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        write(self, rows)

    monkeypatch.setattr(segments.Segment, "write", full)
    monkeypatch.setattr(sampler_main, "signal", _NoSignals())
    ours, theirs = os.pipe()
    with RecordingWriter.create(tmp_path / "R", origin="measured", host="node1"), os.fdopen(ours) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        words = [
            "--run",
            str(tmp_path / "R"),
            "--host",
            "node1",
            "--writer",
            "s1",
            "--hz",
            "20",
            "--root",
            "1",
        ]
        assert sampler_main.main(words) == EXIT_FULL
    os.close(theirs)
    assert open_recording(tmp_path / "R").table("host_load").height == sum(batches[:2])
    with pytest.raises(EmptyRecordingError, match="neither GPU utilization nor phase spans"):
        dipstick.explain(tmp_path / "R")


class _NoSignals:
    """The sampler's signal handling is its process's; here it would be pytest's."""

    SIG_SETMASK, SIG_IGN, SIGINT, SIGHUP, SIGQUIT, SIGTERM = 2, 1, 2, 1, 3, 15

    def pthread_sigmask(self, *_: Any) -> None:
        pass

    def signal(self, *_: Any) -> None:
        pass


def test_a_disk_that_is_full_when_the_run_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Turning segments into tables fails: they stay where they are, and are explained from there."""
    RecordingWriter.create(tmp_path / "R", origin="measured", host="node1")._save("recording")
    folder = tmp_path / "R" / SEGMENTS
    folder.mkdir()
    lines: Sequence[dict[str, Any]] = [
        {"k": "meta", "pid": 9, "rank": 0},
        {"k": "anchor", "m": 10**9, "u": 1_796_053_319 * 10**9, "rows": 1, "span_ns": 2000},
        *(
            {"k": "span", "n": "step", "a": s * 10**9, "b": (s + 1) * 10**9, "tid": 9, "step": s}
            for s in (1, 2)
        ),
        {"k": "end"},
    ]
    (folder / "node1.9.1000.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    report, _ = explained(tmp_path / "R", capsys)
    assert report.run.steps == 2
    assert has_note(report, "the recording was not closed")
