"""`dipstick run`, end to end: real processes, a stand-in for NVML, and whatever can happen to them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from dipstick.analysis.pipeline import analyse
from dipstick.capture import summary
from dipstick.capture.finish import Captured
from dipstick.cli import main
from dipstick.cli import run as verb
from dipstick.errors import EmptyRecordingError
from dipstick.model import Overhead, ProbeCost, SamplerCost
from dipstick.recording.probe_process import Hook
from dipstick.recording.reader import open_recording
from runs import ROOT, Live, Ran, command, environment, eventually, process_stat, ran, read_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOY = '''
"""Three steps of generate, reward (two jobs in a worker process), backward; says hello; ends with status 3."""
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from dipstick_probe import span

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return os.getpid()

def score(seconds):
    with span("parse"):
        return work(seconds)

def main():
    pid_file = os.environ.get("TOY_PIDS")
    with ProcessPoolExecutor(1) as pool:
        for step in range(3):
            with span("step", step=step):
                with span("generate"):
                    work(0.5)
                with span("reward"):
                    (worker,) = set(pool.map(score, [0.2, 0.2]))
                    if pid_file:
                        open(pid_file, "w").write(f"{os.getpid()} {worker}")
                with span("backward"):
                    work(0.3)
    print("hello")
    print("to stderr", file=sys.stderr)
    sys.exit(3)

if __name__ == "__main__":
    main()
'''

NVML = """
import os, sys
sys.path.append({benchmarks!r})
import fake_nvml

class Users(dict):
    # the toy's trainer and worker on GPU 1, a stranger on GPU 0
    def get(self, gpu, default=()):
        try:
            pids = [int(word) for word in open({pids!r}).read().split()]
        except OSError:
            return []
        return [fake_nvml.User(pid, sm=40) for pid in pids] if gpu == 1 else [fake_nvml.User(1, sm=5)]

def load(gpu, mono):
    return 60 + 30 * gpu

sys.modules[__name__] = fake_nvml.FakeNvml(gpus=2, load=load, users=Users(any=1))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The toy on a machine with two GPUs."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "toy.py").write_text(TOY)
    (folder / "stubs").mkdir()
    stub = NVML.format(benchmarks=str(ROOT / "benchmarks"), pids=str(folder / "pids"))
    (folder / "stubs/pynvml.py").write_text(stub)
    path = f"{folder / 'stubs'}{os.pathsep}{ROOT / 'src'}"
    return ran(
        folder / "R", sys.executable, "toy.py", "--token", "abc", options=("--hz", "20"),
        PYTHONPATH=path, TOY_PIDS=str(folder / "pids"), RANK="0", LOCAL_RANK="0",
    )  # fmt: skip


# a run that goes well


def test_the_commands_output_and_status_are_its_own(recorded: Ran) -> None:
    """Stdout is CMD's alone; dipstick talks on stderr."""
    assert (recorded.status, recorded.out) == (3, "hello\n")
    assert "to stderr\n" in recorded.err
    assert recorded.err.startswith(f"dipstick: recording into {recorded.run}\n")
    assert recorded.err.endswith(f"next: dipstick explain {recorded.run}  (where the seconds went)\n")


def test_the_recording_is_closed_private_and_without_leftovers(recorded: Ran) -> None:
    """0700; segments became tables and are gone; no part is missing."""
    assert oct(recorded.run.stat().st_mode & 0o777) == "0o700"
    assert recorded.manifest.state == "closed"
    assert not (recorded.run / "probe").exists()
    assert [note for note in recorded.recording.notes if note.level == "warning"] == []


def test_both_gpus_were_polled_and_the_drivers_samples_fetched(recorded: Ran) -> None:
    """With values of their own, each sample once, each stamped on the recording's one clock."""
    gpu = recorded.recording.table("gpu").with_columns(pl.col("source").cast(pl.String))
    means = gpu.group_by("gpu", "source").agg(pl.col("util_pct").mean(), pl.len()).sort("gpu", "source")
    assert means.select("gpu", "source", "util_pct").rows() == [
        (0, "buffer", 60.0), (0, "poll", 60.0), (1, "buffer", 90.0), (1, "poll", 90.0),
    ]  # fmt: skip
    samples = gpu.filter((pl.col("gpu") == 0) & (pl.col("source") == "buffer"))["t_ns"]
    assert samples.diff().drop_nulls().unique().len() == 1 or samples.diff().max() < 210_000_000  # type: ignore[operator] # a number
    assert set(gpu["window_ns"]) == {200_000_000}


def test_counters_and_the_host_were_recorded(recorded: Ran) -> None:
    """GPM at 5 Hz with its window; the host's load; the run's processes."""
    recording = recorded.recording
    assert recording.table("gpu_counters")["window_ns"].min() >= 100_000_000  # type: ignore[operator] # a number
    assert recording.table("host_load").height > 0
    assert recording.table("host_process")["pid"].n_unique() >= 2


def test_processes_are_named(recorded: Ran) -> None:
    """Trainer and worker on their GPU, with scrubbed command lines; the stranger without one."""
    rows = recorded.recording.table("processes").with_columns(pl.col("role", "source").cast(pl.String))
    by_role = {row["role"]: row for row in rows.iter_rows(named=True)}
    trainer, worker, stranger = by_role["trainer"], by_role["reward_worker"], by_role["foreign"]
    assert (trainer["rank"], trainer["gpu"], worker["rank"], worker["gpu"]) == (0, 1, 0, 1)
    assert trainer["cmdline"].endswith("toy.py --token ***")
    assert (stranger["pid"], stranger["gpu"], stranger["cmdline"]) == (1, 0, None)
    used = set(recorded.recording.table("gpu_process").filter(pl.col("gpu") == 1)["pid"])
    assert used == {trainer["pid"], worker["pid"]}


def test_spans_and_jobs_lie_beside_the_telemetry(recorded: Ran) -> None:
    """On one axis: every job inside a reward span, every span inside the samples' time."""
    recording = recorded.recording
    spans = recording.table("spans", columns=("name", "t0_ns", "t1_ns", "rank"))
    counts = spans["name"].cast(pl.String).value_counts()
    assert {"step": 3, "generate": 3, "reward": 3, "backward": 3}.items() <= dict(counts.iter_rows()).items()
    rewards = spans.filter(pl.col("name").cast(pl.String) == "reward").rows()
    jobs = recording.table("jobs", columns=("t0_ns", "t1_ns")).rows()
    assert len(jobs) == 6
    assert all(any(a <= t0 and t1 <= b for _, a, b, _ in rewards) for t0, t1 in jobs)


def test_spans_of_a_worker_are_not_its_ranks(recorded: Ran) -> None:
    """The worker inherited RANK=0 and marked a phase of its own: recorded, but no lane of rank 0."""
    recording = recorded.recording
    spans = recording.table("spans", columns=("name", "rank", "pid")).filter(
        pl.col("name").cast(pl.String) == "parse"
    )
    trainer = dict(recording.table("processes", columns=("role", "pid")).cast({"role": pl.String}).rows())[
        "trainer"
    ]
    assert (spans["rank"].to_list(), trainer in set(spans["pid"])) == ([0] * 6, False)
    (timeline,) = analyse(recording).timelines
    assert "parse" not in [timeline.main.lane.names[i] for i in timeline.main.lane.name]
    assert timeline.main.lane.pid == trainer


def test_the_recording_can_be_explained(recorded: Ran) -> None:
    """The same command that the run names as the next one."""
    report = dipstick.explain(recorded.run)
    assert (report.run.gpus, report.run.ranks, report.run.steps) == (2, 1, 3)
    assert report.answer.longest_phase == "generate"
    assert report.phases is not None
    seconds = {row.phase: row.seconds for row in report.phases.rows}
    assert (seconds["generate"] >= 1.5, seconds["backward"] >= 0.9) == (True, True)
    assert sum(seconds.values()) == pytest.approx(report.run.window_s[1] - report.run.window_s[0])
    assert report.run.overhead is not None
    assert report.run.overhead.probe is not None
    assert (report.run.overhead.probe.rank, report.run.overhead.probe.steps) == (0, 3)
    assert report.run.overhead.because == ""
    assert {tenant.role for tenant in report.tenants} <= {"trainer", "reward_worker", "foreign"}


def test_the_box_says_what_was_captured(recorded: Ran) -> None:
    """GPUs, processes, phases, rewards, cost."""
    box = recorded.err[recorded.err.index("╭") : recorded.err.index("╰")]
    text = re.sub(r"\s*\n│\s+", " ", box)
    assert re.search(
        r"GPU\s+NVML at 20 Hz \(\d+ polls, \d+ missed\): 2 × NVIDIA H200; every signal was there", text
    )
    assert "1 foreign" in text
    assert re.search(r"phases\s+\d+ spans on rank 0", text)
    assert re.search(r"rewards\s+6 jobs by 1 worker", text)
    assert re.search(
        r"overhead\s+probe [\d.]+ ms a step of 1.\d s on rank 0 \([\d.]+ %; \d+ events a step\); "
        r"sampler [\d.]+ % of one core",
        text,
    )


def test_the_manifest_keeps_the_account(recorded: Ran) -> None:
    """Command without secrets, status, what the sampler did."""
    (run,) = [value for key, value in recorded.manifest.info.items() if key.startswith("run@")]
    (sampler,) = [value for key, value in recorded.manifest.info.items() if key.startswith("sampler@")]
    assert run["command"].endswith("toy.py --token ***")
    assert run["exit_status"] == 3
    assert (sampler["source"], sampler["period_ns"]) == ("NVML", 50_000_000)
    assert recorded.manifest.source.endswith("toy.py --token ***")


# a machine without a GPU


@pytest.fixture(scope="module")
def without_gpu(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The toy where no driver is."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "toy.py").write_text(TOY)
    (folder / "pynvml.py").write_text("raise ImportError('no NVML here')\n")
    path = f"{folder}{os.pathsep}{ROOT / 'src'}"
    return ran(folder / "R", sys.executable, "toy.py", options=("--json",), PYTHONPATH=path)


def test_cpu_time_stands_in_where_there_is_no_gpu(without_gpu: Ran) -> None:
    """In a table of its own; there is no row that looks like a GPU's."""
    recording = without_gpu.recording
    assert recording.table("host_process").height > 5
    assert [recording.has(table) for table in ("gpu", "gpu_counters", "gpu_process")] == [False] * 3


def test_nothing_calls_cpu_time_a_gpus_utilization(without_gpu: Ran) -> None:
    """The answer has phases, and says that GPU telemetry is missing."""
    report = dipstick.explain(without_gpu.run)
    assert (report.run.gpus, report.states, report.dips) == (0, (), ())
    assert report.answer.longest_phase == "generate"
    assert report.missing[0].signal == "GPU telemetry"


def test_the_account_as_json_is_one_line_on_stderr(without_gpu: Ran) -> None:
    """Stdout belongs to CMD."""
    assert without_gpu.out == "hello\n"
    (line,) = [line for line in without_gpu.err.splitlines() if line.startswith("{")]
    account = json.loads(line)
    assert (account["schema_version"], account["exit_status"], account["rows"]["jobs"]) == (1, 3, 6)
    assert account["sampler"]["source"] == "none"
    assert account["sampler"]["why_none"].startswith("pynvml: no NVML here")


# what can go wrong


def test_a_command_that_is_not_there_has_a_shells_status(tmp_path: Path) -> None:
    """127, and the message names it."""
    done = ran(tmp_path / "R", "no-such-program-at-all")
    assert done.status == 127
    assert "dipstick: error: no-such-program-at-all: no such program." in done.err


def test_a_killed_command_leaves_a_readable_recording(tmp_path: Path) -> None:
    """128 plus the signal; the recording is closed."""
    done = ran(tmp_path / "R", "/bin/sh", "-c", "sleep 1; kill -9 $$")
    assert done.status == 137
    assert done.manifest.state == "closed"


UNRULY = '''
"""An asyncio parent with spawned workers, a daemon that outlives it, and an end that runs no `atexit`."""
import asyncio, multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from dipstick_probe import span

def score(number):
    time.sleep(0.02)
    return number

async def rewards(pool):
    loop = asyncio.get_running_loop()
    async with span("reward"):
        return sum(await asyncio.gather(*(loop.run_in_executor(pool, score, i) for i in range(4))))

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (0, 1, 2):
                os.close(number)
            while not os.path.exists("go"):
                time.sleep(0.01)
            open("outlived", "w").close()
        os._exit(0)

if __name__ == "__main__":
    daemon()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for step in range(2):
            with span("step", step=step):
                print(asyncio.run(rewards(pool)), flush=True)
    os._exit(7)
'''


def test_an_unruly_command_is_recorded_whole(tmp_path: Path) -> None:
    """Its end is not waited for by its daemon; its last rows are there although it leaves by ``os._exit``."""
    (tmp_path / "unruly.py").write_text(UNRULY)
    done = ran(tmp_path / "R", sys.executable, "unruly.py", RANK="0")
    assert (done.status, done.out) == (7, "6\n6\n")
    assert not (tmp_path / "outlived").exists()
    (tmp_path / "go").touch()
    eventually((tmp_path / "outlived").exists)
    names = done.recording.table("spans")["name"].cast(pl.String).to_list()
    assert sorted(names) == ["reward", "reward", "step", "step"]
    assert done.recording.table("jobs").height == 8
    assert "phases     4 spans on rank 0" in done.err


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    """CMD is not started; nothing claims to record; the way out is named."""
    (tmp_path / "file").touch()
    words = command(tmp_path / "file" / "R", "touch", str(tmp_path / "started"))
    refused = subprocess.run(
        words, capture_output=True, text=True, env=environment(), check=False, cwd=tmp_path
    )
    assert (refused.returncode, (tmp_path / "started").exists()) == (1, False)
    assert "recording into" not in refused.stderr
    assert "Choose another place: -o RUN." in refused.stderr


def test_quiet_says_nothing(tmp_path: Path) -> None:
    """Not a word but CMD's own."""
    done = ran(tmp_path / "R", "/bin/sh", "-c", "echo out; echo err >&2", options=("--quiet",))
    assert (done.status, done.out, done.err) == (0, "out\n", "err\n")


def test_the_probe_can_be_kept_out(tmp_path: Path) -> None:
    """``DIPSTICK_DISABLE=1``: CMD's environment is untouched, and the box says so."""
    done = ran(tmp_path / "R", "/bin/sh", "-c", "echo $PYTHONPATH", DIPSTICK_DISABLE="1")
    assert done.out == f"{ROOT / 'src'}\n"
    assert "phases     not captured: DIPSTICK_DISABLE is set" in done.err


def test_a_killed_supervisor_leaves_a_readable_recording(tmp_path: Path) -> None:
    """The sampler ends by itself; the probes' segments are read where they are; CMD was not harmed."""
    script = (
        f"{sys.executable} -c 'from dipstick_probe import span\nwith span(\"mine\"): input()' && touch ended"
    )
    live = Live(tmp_path / "R", script)
    sampler = live.sampler()
    eventually(lambda: list(live.run.glob("probe/*.jsonl")))
    live.process.kill()
    eventually(lambda: process_stat(Path(f"/proc/{sampler}/stat"))[:1] in ([], ["Z"]))
    assert live.process.stdin is not None
    live.process.stdin.write("\n")
    live.process.stdin.flush()
    eventually((tmp_path / "ended").exists)
    live.process.communicate()
    recording = open_recording(live.run)
    assert recording.table("spans")["name"].to_list() == ["mine"]
    assert recording.table("host_load").height > 0
    assert any("was not closed" in note.text for note in recording.notes)


def test_a_second_run_into_one_folder_needs_force(tmp_path: Path) -> None:
    """And then replaces it; CMD is not started before that is settled."""
    assert ran(tmp_path / "R", "true").status == 0
    refused = ran(tmp_path / "R", "touch", "started")
    assert (refused.status, (tmp_path / "started").exists()) == (1, False)
    assert "--force replaces it" in refused.err
    assert ran(tmp_path / "R", "touch", "started", options=("--force",)).status == 0


def test_several_hosts_make_one_recording(tmp_path: Path) -> None:
    """``--join``: the first makes it, the others add to it (here one host twice, one after the other)."""
    statuses = [ran(tmp_path / "R", "sh", "-c", f"exit {n}", options=("--join",)).status for n in (0, 1)]
    assert statuses == [0, 1]
    assert len(list((tmp_path / "R").glob("manifest.run_*.json"))) == 2
    assert Ran(tmp_path / "R", 0, "", "").manifest.state == "closed"


def test_a_full_disk_stops_the_recording_and_not_the_command(tmp_path: Path) -> None:
    """Said once; the command's status comes back; what was flushed before can be read."""
    small = tmp_path / "small"
    small.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if not mount or not umount or subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True, check=False
    ).returncode:  # fmt: skip
        pytest.skip("needs the right to mount a small file system")
    try:
        live = Live(small / "R", "read line; exit 6")
        live.sampler()
        (small / "fill").write_bytes(b"x" * (_free(small)))
        said = read_until(live, "disk is full")
        done = live.end()
        assert done.status == 6
        whole = said + done.err
        assert whole.count("the disk is full: recording of telemetry stops here; the command goes on") == 1
        assert "could not be closed (No space left on device)" in whole
        (small / "fill").unlink()
        assert open_recording(small / "R").table("host_load").height > 0
        with pytest.raises(EmptyRecordingError, match="neither GPU utilization nor phase spans"):
            dipstick.explain(small / "R")
    finally:
        subprocess.run([umount, "-l", str(small)], check=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


# signals and terminals

STUBBORN = "trap 'echo got it' INT; echo ready; while :; do sleep 0.1; done"
POLITE = "trap 'echo bye; exit 7' INT TERM HUP USR1; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def no_nohup() -> Iterator[None]:
    """Under nohup a hangup is ignored by all descendants, and no shell may trap it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("no_nohup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(number: signal.Signals, tmp_path: Path) -> None:
    """It ends in its own way, with its own status."""
    live = Live(tmp_path / "R", POLITE)
    assert live.process.stdout is not None
    assert live.process.stdout.readline() == "ready\n"
    live.process.send_signal(number)
    done = live.end("")
    assert (done.status, done.out) == (7, "bye\n")
    assert done.manifest.state == "closed"


def test_the_second_ctrl_c_kills(tmp_path: Path) -> None:
    """A command that does not listen; the recording is closed all the same."""
    live = Live(tmp_path / "R", STUBBORN)
    assert live.process.stdout is not None
    assert live.process.stdout.readline() == "ready\n"
    live.process.send_signal(signal.SIGINT)
    assert live.process.stdout.readline() == "got it\n"
    live.process.send_signal(signal.SIGINT)
    done = live.end("")
    assert done.status == 137
    assert "killing the command" in done.err
    assert done.manifest.state == "closed"


def on_terminal(run: Path, script: str, typed: list[tuple[str, str]]) -> tuple[int, str]:
    """Run on a terminal of its own; when the first text appears on it, the second one is typed."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - another process
        os.chdir(run.parent)
        words = command(run, "/bin/sh", "-c", script)
        os.execve(sys.executable, words, environment())  # noqa: S606 - our own command, on a terminal of its own
    shown = ""
    waiting = list(typed)
    while True:
        ready, _, _ = select.select([terminal], [], [], 120)
        try:
            chunk = os.read(terminal, 4096) if ready else b""
        except OSError:
            chunk = b""
        if not chunk:
            break
        shown += chunk.decode()
        if waiting and waiting[0][0] in shown:
            os.write(terminal, waiting.pop(0)[1].encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def test_a_command_can_talk_to_the_terminal(tmp_path: Path) -> None:
    """It stays in the foreground: it reads what is typed, and sees a terminal."""
    script = "test -t 0 && test -t 1 && echo name? && read name && echo hello $name"
    status, shown = on_terminal(tmp_path / "R", script, [("name?", "bob\n")])
    assert status == 0
    assert "hello bob" in shown


def test_ctrl_c_on_a_terminal_comes_once(tmp_path: Path) -> None:
    """From the terminal itself, not once more from us."""
    status, shown = on_terminal(tmp_path / "R", POLITE, [("ready", "\x03")])
    assert (status, shown.count("bye")) == (7, 1)


def test_the_second_ctrl_c_on_a_terminal_kills(tmp_path: Path) -> None:
    """Although the terminal sends it to the command as well."""
    status, shown = on_terminal(tmp_path / "R", STUBBORN, [("ready", "\x03"), ("again kills it", "\x03")])
    assert status == 137
    assert "Ctrl-C again kills it" in shown


# the command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "there is no command to record"),
        (["run", "--"], "there is no command to record"),
        (["run", "--hz", "1000", "--", "true"], "1000 is not within 0.1 and 50"),
        (["run", "--hz", "fast", "--", "true"], "invalid _hertz value"),
        (["run", "--force", "--join", "--", "true"], "--force replaces RUN and --join adds to it"),
    ],
)
def test_usage_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, nothing is started."""
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_without_a_name_it_is_named_by_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a second one in the same second gets a number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _form: "run-20261130-184455")
    assert verb._folder(None) == Path("run-20261130-184455")
    Path("run-20261130-184455").mkdir()
    assert verb._folder(None) == Path("run-20261130-184455-2")
    assert verb._folder("R") == Path("R")


def test_the_commands_own_v_is_not_ours(tmp_path: Path) -> None:
    """``dipstick run -- prog -v``: no traceback for a program that is not there."""
    done = ran(tmp_path / "R", "no-such-program-at-all", "-v")
    assert "Traceback" not in done.err


def test_ray_env_prints_what_rays_workers_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON object for ``runtime_env``; the folder absolute, the path without an empty entry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert main(["ray-env", "R"]) == 0
    variables = json.loads(capsys.readouterr().out)["env_vars"]
    assert variables["DIPSTICK_RUN_DIR"] == str(tmp_path / "R")
    probe, *rest = variables["PYTHONPATH"].split(os.pathsep)
    assert (Path(probe).name, rest) == ("probe", ["/mine"])


# the box, exactly


captured_sampler: dict[str, Any] = {
    "source": "NVML", "gpus": [{"gpu": 0, "name": "NVIDIA H200"}, {"gpu": 1, "name": "NVIDIA H200"}],
    "period_ns": 100_000_000, "ticks": 4050, "missed_ticks": 0, "refused": [], "cpu_s": 4.55, "wall_s": 405.0,
    "start_cpu_s": 0.5, "processes": [],
}  # fmt: skip


def captured(**more: Any) -> Captured:
    """A run of two H200 that went well."""
    base: dict[str, Any] = {
        "run": "R", "seconds": 405.2, "size_b": 1_234_567, "status": 0, "sampler": captured_sampler, "trouble": None,
        "probes": 6, "hooks": {"trl.a": Hook("trl.a", bound=True)}, "ranks": (0, 1), "workers": 4, "notes": (),
        "rows": {"spans": 1234, "jobs": 1984, "handoffs": 62}, "roles": {"trainer+engine": 2, "reward_worker": 4},
        "overhead": Overhead(ProbeCost(6, 0.81, 1, 31, 140.0, 1.6, 8.2, 0.0195), SamplerCost(1.0, 0.5), ""),
    }  # fmt: skip
    return Captured(**(base | more))


GOOD = """\
╭ dipstick: 6 min 45 s recorded into R (1.2 MB)
│ GPU        NVML at 10 Hz (4,050 polls, 0 missed): 2 × NVIDIA H200; every signal was there
│ processes  4 reward_worker, 2 trainer+engine
│ phases     1,234 spans on rank 0, 1; 62 handoffs, 0 collectives
│ hooks      1 of 1 bound
│ rewards    1,984 jobs by 4 workers
│ overhead   probe 1.6 ms a step of 8.2 s on rank 1 (0.02 %; 140 events a step); sampler 1.0 % of
│            one core (and 0.5 s of CPU to start it)
╰"""


def test_the_box_of_a_run_that_went_well() -> None:
    """The whole of it."""
    assert summary.box(captured()) == GOOD


def line(box: str, label: str) -> str:
    """One entry of the box, unwrapped."""
    text = re.sub(r"\n│ {11,}", " ", box)
    return next(
        row.removeprefix(f"│ {label}").strip() for row in text.splitlines() if row.startswith(f"│ {label}")
    )


@pytest.mark.parametrize(
    ("changes", "label", "text"),
    [
        ({"sampler": {}}, "GPU", "no account of telemetry: the sampler left none; what it flushed is there"),
        (
            {"sampler": {"gpus": [], "why_none": "pynvml: no GPU"}},
            "GPU",
            "none seen (pynvml: no GPU): CPU time of the run's processes is recorded instead; it is no GPU utilization",
        ),
        (
            {"rows": {}, "hooks": {}},
            "phases",
            "none: the probe was in 6 processes, and no framework that dipstick hooks was imported",
        ),
        ({"rows": {}}, "phases", "none: the probe was in 6 processes, and no hook of a phase was reached"),
        (
            {"rows": {}, "probes": 1, "hooks": {}},
            "phases",
            "none: the probe was in 1 process, and no framework that dipstick hooks was imported",
        ),
        ({"rows": {"spans": 1}, "ranks": ()}, "phases", "1 span on rank unknown; 0 handoffs, 0 collectives"),
        ({"rows": {"jobs": 1}, "workers": 1}, "rewards", "1 job by 1 worker"),
        (
            {"rows": {}, "probes": 0},
            "phases",
            "not captured: no process loaded the probe (python -I or -E, another PYTHONPATH, or no Python)",
        ),
        ({"rows": {}}, "rewards", "no job of a worker pool was seen"),
        ({"overhead": Overhead(because="all were killed")}, "overhead", "unknown, because all were killed"),
        (
            {"sampler": captured_sampler | {"gpus": []}, "rows": {"jobs": 8}},
            "missing",
            (
                "neither GPU samples nor phases: dipstick explain will have nothing to go by. "
                'Mark your phases, with dipstick.span("reward"): … (docs/python.md)'
            ),
        ),
        ({"notes": ("5 rows are lost",)}, "missing", "5 rows are lost"),
        ({"trouble": "the disk is full\x1b[2J"}, "missing", "the disk is full[2J"),
        (
            {"roles": {"unattributable": 3}},
            "processes",
            "3 unattributable; the driver names PIDs of another namespace: which tenant was busy can't be told (docker: --pid=host)",
        ),
    ],
)
def test_what_was_not_captured_is_said(changes: dict[str, Any], label: str, text: str) -> None:
    """In the same box, with the reason."""
    assert line(summary.box(captured(**changes)), label) == text


def test_hooks_that_did_not_bind_are_named() -> None:
    """With the reason and the version seen; not all of a hundred."""
    hooks = {
        f"trl.{i}": Hook(f"trl.{i}", bound=False, why="no such attribute", version="9.0") for i in range(6)
    }
    text = line(summary.box(captured(hooks=hooks)), "hooks")
    assert text.startswith("0 of 6 bound; not bound: trl.0 (no such attribute, 9.0); trl.1")
    assert text.endswith("and 2 more")


def test_signals_that_a_gpu_lacks_are_named() -> None:
    """An A100 has no GPM."""
    refused = [[0, "nvmlGpmQueryDeviceSupport", "Not Supported"]]
    sampler = captured().sampler | {"refused": refused}
    assert line(summary.box(captured(sampler=sampler)), "GPU").endswith("; not there: counters (GPM)")


def test_why_the_probe_was_off_is_said() -> None:
    """When it was known before."""
    assert line(summary.box(captured(), "this installation has no probe"), "phases") == (
        "not captured: this installation has no probe"
    )


@pytest.mark.parametrize(
    ("seconds", "size", "text"),
    [(3.24, 999, "3.2 s recorded into R (999 B)"), (7325, 2.5e9, "2 h 2 min 5 s recorded into R (2.5 GB)")],
)
def test_times_and_sizes_are_readable(seconds: float, size: float, text: str) -> None:
    """Decimal prefixes, at most three units of time."""
    assert text in summary.box(captured(seconds=seconds, size_b=int(size)))
