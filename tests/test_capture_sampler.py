"""The sampler on a clock that tests own: what is read when, where it lands, and what happens when the disk fails."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.capture.beat import Beat, Every, keep_beat
from dipstick.capture.devices import Clock, NoDevices
from dipstick.capture.devices.nvml import NvmlDevices
from dipstick.capture.devices.replay import ReplayDevices
from dipstick.capture.host import HostLoad
from dipstick.capture.pen import BATCHES, Pen
from dipstick.capture.sampler import COLUMNS, Sampler, Site, history_period
from dipstick.capture.sampler_main import EXIT_FAILED, EXIT_FULL, Guarded, Stop, describe, main
from dipstick.capture.tree import ProcessTree
from dipstick.errors import RecordingError
from dipstick.recording.manifest import read_manifest
from dipstick.recording.reader import open_recording
from dipstick.recording.schema import TABLES
from dipstick.recording.writer import RecordingWriter
from fake_nvml import NOT_SUPPORTED, FakeClock, FakeNvml, S, User
from records import ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.capture.devices import Devices

MS = 1_000_000
HOST, PID = "node1", 500
START = FakeClock().now


class Rows:
    """A sink that keeps rows as dicts, and counts batches."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.batches = 0

    def put(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        named = [dict(zip(COLUMNS[table], row, strict=True)) for row in rows]
        self.tables.setdefault(table, []).extend(named)

    def hand_over(self) -> None:
        self.batches += 1

    def column(self, table: str, name: str, **where: Any) -> list[Any]:
        rows = self.tables.get(table, [])
        return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]


class Bench:
    """A sampler with everything under control: ``Bench(nvml).run(60)`` samples a minute at 10 Hz."""

    def __init__(
        self, folder: Path, devices: Devices | None = None, *, hz: float = 10, **machine: Any
    ) -> None:
        self.clock = FakeClock()
        self.both = Clock(self.clock.mono, self.clock.unix)
        self.nvml = FakeNvml(self.clock, **machine)
        self.devices = devices or NvmlDevices(self.nvml, self.both)
        self.rows = Rows()
        (folder / "proc").mkdir(exist_ok=True)
        tree = ProcessTree(10, frozenset(), folder / "proc")
        site = Site(HOST, PID, "host", round(S / hz))
        self.sampler = Sampler(
            site, self.devices, tree, self.rows, self.both, HostLoad(folder / "proc", folder / "block")
        )
        self.beat = Beat(round(S / hz))

    def run(self, seconds: float, work_ms: float = 0.0) -> Rows:
        """Sample that long; each tick takes so much time."""
        end = self.clock.now + ns(seconds)

        def tick(deadline: int) -> None:
            self.sampler.tick(deadline)
            self.clock.pass_time(work_ms / 1000)

        def wait(seconds: float) -> bool:
            self.clock.pass_time(seconds)
            return self.clock.now >= end

        self.sampler.begin()
        keep_beat(tick, self.beat.period_ns, self.clock.mono, wait, self.beat)
        self.sampler.finish()
        return self.rows


def test_columns_are_those_of_the_schema() -> None:
    """The order is the sampler's own, the names are not."""
    for table, names in COLUMNS.items():
        assert set(names) <= TABLES[table].keys()
        assert len(names) == len(set(names))


def test_every_gpu_is_polled_at_every_deadline(tmp_path: Path) -> None:
    """Two GPUs, a minute at 10 Hz: 600 polls each, 100 ms apart, on the sampler's clock."""
    rows = Bench(tmp_path, gpus=2).run(60)
    for gpu in (0, 1):
        times = rows.column("gpu", "t_ns", gpu=gpu, source="poll")
        assert times == [START + i * 100 * MS for i in range(600)]
    assert set(rows.column("gpu", "clock")) == {1}
    assert set(rows.column("gpu", "host")) == {HOST}


def test_polls_stay_on_the_grid_for_an_hour(tmp_path: Path) -> None:
    """Each tick works 7 ms: nothing adds up."""
    bench = Bench(tmp_path, NoDevices("none"))
    bench.run(3600, work_ms=7)
    assert bench.beat == Beat(100 * MS, ticks=36_000)


def test_no_window_of_the_drivers_samples_is_lost(tmp_path: Path) -> None:
    """All 150 of half a minute, the last ones fetched at the end, each with the counter's window."""
    rows = Bench(tmp_path, gpus=2).run(30)
    for gpu in (0, 1):
        times = rows.column("gpu", "t_ns", gpu=gpu, source="buffer")
        assert times == [START + i * 200 * MS for i in range(1, 151)]
    assert set(rows.column("gpu", "window_ns")) == {200 * MS}
    assert rows.column("gpu", "power_w", source="buffer")[0] is None, "not measured there"


def test_nothing_is_lost_either_when_the_machine_stalls(tmp_path: Path) -> None:
    """Ticks of 1.3 s cost polls, which are counted; the driver's samples are all there."""
    bench = Bench(tmp_path)
    rows = bench.run(26, work_ms=1300)
    assert rows.column("gpu", "t_ns", source="buffer") == [START + i * 200 * MS for i in range(1, 131)]
    assert (bench.beat.ticks, bench.beat.missed) == (20, 19 * 12)


def test_counters_come_at_5_hz_with_their_true_window(tmp_path: Path) -> None:
    """Every second tick; the first one only takes a sample."""
    rows = Bench(tmp_path).run(10)
    assert rows.column("gpu_counters", "t_ns") == [START + i * 200 * MS for i in range(1, 50)]
    assert set(rows.column("gpu_counters", "window_ns")) == {200 * MS}


def test_slow_calls_of_several_gpus_do_not_meet_in_one_tick(tmp_path: Path) -> None:
    """Eight GPUs: the driver's samples are fetched by one GPU at a time, use by process by at most one."""
    bench = Bench(tmp_path, gpus=8)
    slow = ("nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization")
    most: Counter[str] = Counter()
    bench.sampler.begin()
    before = bench.nvml.calls.copy()
    for i in range(1, 400):
        bench.clock.pass_time(0.1)
        bench.sampler.tick(START + i * 100 * MS)
        now = bench.nvml.calls.copy()
        most |= Counter({name: now[name] - before[name] for name in slow})
        before = now
    assert most == {"nvmlDeviceGetSamples": 2, "nvmlDeviceGetProcessUtilization": 1}, (
        "two kinds of samples a GPU"
    )


def test_slow_polling_slows_everything_that_hangs_on_it(tmp_path: Path) -> None:
    """At 1 Hz the counters come at 1 Hz, too, and the driver's samples are complete all the same."""
    rows = Bench(tmp_path, hz=1).run(20)
    assert len(rows.column("gpu", "t_ns", source="poll")) == 20
    assert set(rows.column("gpu_counters", "window_ns")) == {S}
    assert len(rows.column("gpu", "t_ns", source="buffer")) == 100


@pytest.mark.parametrize(
    ("reaches_s", "period_s"), [([14, 14], 4), ([6, 14], 2), ([0.5], 1), ([None], 4), ([], 4)]
)
def test_samples_are_fetched_thrice_within_what_the_buffer_holds(
    reaches_s: list[float | None], period_s: int
) -> None:
    """The shortest buffer decides; at least every 4 s, at most every second."""
    reaches = [None if reach is None else ns(reach) for reach in reaches_s]
    assert history_period(reaches) == period_s * S


def test_processes_of_a_gpu_are_rows_with_the_drivers_pid(tmp_path: Path) -> None:
    """Once a second; memory and use are rows of their own, since the driver stamps the use."""
    rows = Bench(tmp_path, users={0: [User(936, sm=40, memory_b=2**30)]}).run(5)
    use = [row for row in rows.tables["gpu_process"] if row["sm_pct"] is not None]
    assert [(row["pid"], row["t_ns"] - START) for row in use] == [(936, k * S) for k in range(1, 6)]
    assert set(rows.column("gpu_process", "mem_used_b")) == {None, 2**30}


def test_the_clock_is_anchored_at_start_each_minute_and_end(tmp_path: Path) -> None:
    """So that a step of the wall clock can be found."""
    bench = Bench(tmp_path, NoDevices("none"))
    bench.clock.steps.append((START + 90 * S, 3600 * S))
    rows = bench.run(150)
    assert rows.column("anchors", "mono_ns") == [START + s * S for s in (0, 60, 120, 150)]
    offsets = [row["unix_ns"] - row["mono_ns"] for row in rows.tables["anchors"]]
    assert [offset - offsets[0] for offset in offsets] == [0, 0, 3600 * S, 3600 * S]
    assert set(rows.column("anchors", "pid")) == {PID}


def test_rows_are_handed_over_every_second(tmp_path: Path) -> None:
    """What a kill -9 may cost; once at the start, so that GPUs are named, and once at the end."""
    assert Bench(tmp_path).run(10).batches == 11


def test_gpus_are_named_before_the_first_tick(tmp_path: Path) -> None:
    """A recording that is cut short knows what it is about."""
    bench = Bench(tmp_path, gpus=2)
    bench.sampler.begin()
    assert bench.rows.column("gpus", "name") == ["NVIDIA H200"] * 2
    assert bench.rows.batches == 1


def test_a_window_that_is_learned_late_is_in_the_rows_from_then_on(tmp_path: Path) -> None:
    """No samples: it is learned from 20 changes of the polled value; before, it is null, not a guess."""
    bench = Bench(
        tmp_path, load=lambda _gpu, t: t // (200 * MS) % 90, refuse={"nvmlDeviceGetSamples": NOT_SUPPORTED}
    )
    windows = bench.run(10).column("gpu", "window_ns")
    assert windows[:30] == [None] * 30
    assert windows[-1] == 200 * MS
    assert bench.sampler.windows() == {0: 200 * MS}


def test_without_a_gpu_the_runs_processes_stand_in(tmp_path: Path) -> None:
    """CPU time at 5 Hz, in a table of its own: nothing can take it for a GPU's utilization."""
    proc = tmp_path / "proc"
    for pid, ppid in ((10, 1), (20, 10)):
        (proc / str(pid)).mkdir(parents=True)
        fields = ["S", ppid, *[0] * 9, 0, 0, *[0] * 6, 5, 0, 7]
        (proc / str(pid) / "stat").write_text(f"{pid} (python) {' '.join(map(str, fields))}\n")
    rows = Bench(tmp_path, NoDevices("none")).run(2)
    assert set(rows.column("host_process", "pid")) == {20}
    assert rows.column("host_process", "t_ns") == [START + i * 200 * MS for i in range(1, 10)]
    assert "gpu" not in rows.tables or rows.tables["gpu"] == []


def test_the_hosts_load_is_read_once_a_second(tmp_path: Path) -> None:
    """The first look only sets the counters."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu 1 0 0 1 0 0 0 0\n")
    rows = Bench(tmp_path).run(5)
    assert rows.column("host_load", "t_ns") == [START + s * S for s in range(1, 5)]


def test_a_replayed_recording_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """The sampler over a replay of the shipped sample records the driver's samples of the sample, moved in time."""
    sample = open_recording("sample:h200x2-grpo")
    bench = Bench(tmp_path, NoDevices("placeholder"))
    devices = ReplayDevices(sample, bench.both, start_ns=ns(100))
    replaying = Bench(tmp_path, devices)
    replaying.clock.now = bench.clock.now
    devices._clock = replaying.both
    rows = replaying.run(20)
    own = sample.table("gpu", start_ns=ns(100) + 1, end_ns=ns(120) + 1).filter(
        pl.col("source").cast(pl.String) == "buffer"
    )
    for gpu in (0, 1):
        expected = own.filter(pl.col("gpu") == gpu)
        assert rows.column("gpu", "util_pct", gpu=gpu, source="buffer") == expected["util_pct"].to_list()
        moved = [t - START + ns(100) for t in rows.column("gpu", "t_ns", gpu=gpu, source="buffer")]
        assert moved == expected["t_ns"].to_list()
    assert set(rows.column("gpu", "window_ns", source="buffer")) == {200 * MS}


# the account


def test_the_account_says_what_was_sampled_and_what_it_cost(tmp_path: Path) -> None:
    """Ticks, lateness, refusals, processes; and the process's own CPU time."""
    bench = Bench(tmp_path, gpus=2, refuse={"nvmlDeviceGetPowerUsage": NOT_SUPPORTED})
    bench.run(5)
    account = describe(bench.devices, bench.sampler, bench.beat, 5 * S)
    assert account["source"] == "NVML"
    assert account["gpus"] == [{"gpu": 0, "name": "NVIDIA H200"}, {"gpu": 1, "name": "NVIDIA H200"}]
    assert (account["ticks"], account["missed_ticks"], account["period_ns"]) == (50, 0, 100 * MS)
    assert account["refused"] == [[gpu, "nvmlDeviceGetPowerUsage", "Not Supported"] for gpu in (0, 1)]
    assert account["util_window_ns"] == {"0": 200 * MS, "1": 200 * MS}
    assert account["wall_s"] == 5.0
    assert account["cpu_s"] > 0


def test_an_account_without_a_gpu_says_why(tmp_path: Path) -> None:
    """It ends up in the box."""
    bench = Bench(tmp_path, NoDevices("pynvml: no GPU"))
    account = describe(bench.devices, bench.sampler, bench.beat, S)
    assert (account["source"], account["why_none"], account["late_mean_ms"]) == (
        "none",
        "pynvml: no GPU",
        None,
    )


def test_a_mistake_of_ours_costs_a_tick_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may work: a gap is better than an end."""
    bench = Bench(tmp_path)
    safe = Guarded(bench.sampler, bench.devices)
    monkeypatch.setattr(bench.devices, "read", lambda _gpu: 1 / 0)
    safe.tick(START)
    assert bench.devices.health.failed == {"sampler tick (ZeroDivisionError: division by zero)": 1}
    monkeypatch.undo()
    safe.tick(START + 100 * MS)
    safe.finish()
    assert len(bench.rows.column("gpu", "t_ns", source="poll")) == 1


# the pen


def pen(writer: Any) -> Pen:
    return Pen(lambda: writer, {"anchors": COLUMNS["anchors"]})


def anchor(i: int) -> tuple[Any, ...]:
    return (1, HOST, PID, i, i)


def test_rows_are_written_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """By a real writer, in its own thread; the writer comes back open."""
    with RecordingWriter.create(tmp_path / "R", origin="measured", host=HOST):
        held = Pen(lambda: RecordingWriter.join(tmp_path / "R", host=HOST), COLUMNS)
        for i in range(1, 4):
            held.put("anchors", [anchor(i)])
            held.hand_over()
        held.put("anchors", [anchor(4)])
        writer = held.close()
        writer.append("host_load", [{"host": HOST, "t_ns": 5, "clock": 0}])
        writer.close()
    assert open_recording(tmp_path / "R").scan("anchors").collect()["mono_ns"].to_list() == [1, 2, 3, 4]


class FailingWriter:
    """Says that the disk is full, from the second batch on."""

    def __init__(self) -> None:
        self.flushes = 0

    def append(self, _table: str, _rows: Any) -> None:
        """Take it."""

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes > 1:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_facts_are_in_the_manifest_with_the_next_batch(tmp_path: Path) -> None:
    """What the sampler has cost so far can be read while it runs; the last word counts."""
    RecordingWriter.create(tmp_path / "R", origin="measured", host=HOST, writer="run").close()
    held = Pen(lambda: RecordingWriter.join(tmp_path / "R", host=HOST, writer="sampler"), COLUMNS)
    held.tell({"sampler@node1": {"ticks": 1}})
    held.tell({"sampler@node1": {"ticks": 2}})
    held.hand_over()
    writer = held.close()
    manifest = read_manifest(tmp_path / "R", [tmp_path / "R" / "manifest.sampler.json"])
    assert (manifest.state, manifest.info) == ("recording", {"sampler@node1": {"ticks": 2}})
    writer.close()


def test_the_account_is_given_when_it_is_due(tmp_path: Path) -> None:
    """Every ten seconds; one that fails costs itself, and is counted."""
    bench = Bench(tmp_path)
    given: list[int] = []

    def account() -> None:
        given.append(len(given))
        if len(given) == 2:
            raise ValueError("no")

    safe = Guarded(bench.sampler, bench.devices, Every(10 * S, 10 * S), account)
    for second in range(1, 41):
        safe.tick(second * S)
    assert given == [0, 1, 2, 3]
    assert [name for name in bench.devices.health.failed if "ValueError: no" in name] == [
        "sampler tick (ValueError: no)"
    ]


def test_a_full_disk_ends_the_writing_and_says_so() -> None:
    """The loop sees ``error``; closing raises it; nothing is tried again."""
    writer = FailingWriter()
    held = pen(writer)
    for i in range(5):
        held.put("anchors", [anchor(i)])
        held.hand_over()
    with pytest.raises(OSError, match="No space left"):
        held.close()
    assert (writer.flushes, isinstance(held.error, OSError)) == (2, True)


def test_a_folder_that_is_no_recording_is_an_error_of_the_pen() -> None:
    """It can't even be opened."""

    def fail() -> RecordingWriter:
        raise RecordingError("no such folder")

    held = Pen(fail, {})
    with pytest.raises(RecordingError):
        held.close()


def test_a_disk_that_hangs_costs_rows_and_not_memory() -> None:
    """Two minutes of batches wait; then they are dropped, and counted."""
    gate = threading.Event()
    writer = SimpleNamespace(append=lambda *_: gate.wait(60), flush=lambda: None)
    held = pen(writer)
    for i in range(BATCHES + 10):
        held.put("anchors", [anchor(i)] * 3)
        held.hand_over()
    gate.set()
    held.close()
    assert 9 * 3 <= held.dropped <= 10 * 3, "one batch may be in the writer's hands"


# the process


def test_stop_when_the_pipe_is_closed() -> None:
    """The supervisor's end is gone: it was closed, or the supervisor was killed."""
    ours, theirs = os.pipe()
    stop = Stop(ours)
    assert stop.wait(0.0) is False
    os.close(theirs)
    assert stop.wait(60.0) is True
    os.close(ours)


def test_stop_when_asked() -> None:
    """SIGTERM."""
    ours, theirs = os.pipe()
    stop = Stop(ours)
    stop.ask()
    assert stop.wait(60.0) is True
    for end in (ours, theirs):
        os.close(end)


def arguments(run: Path) -> list[str]:
    return ["--run", str(run), "--host", HOST, "--writer", "s1", "--hz", "20", "--root", str(os.getpid())]


@pytest.fixture
def stdin_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A standard input whose other end is closed, and signals that stay as they are."""
    ours, theirs = os.pipe()
    os.close(theirs)
    with os.fdopen(ours) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        monkeypatch.setattr("dipstick.capture.sampler_main.signal", SimpleNamespace(**_no_signals()))
        yield


def _no_signals() -> dict[str, Any]:
    return {
        "SIG_SETMASK": 2, "SIG_IGN": 1, "SIGINT": 2, "SIGHUP": 1, "SIGQUIT": 3, "SIGTERM": 15,
        "pthread_sigmask": lambda *_: None, "signal": lambda *_: None,
    }  # fmt: skip


@pytest.mark.usefixtures("stdin_closed")
def test_a_sampler_that_is_stopped_at_once_closes_its_piece(tmp_path: Path) -> None:
    """With an account, anchors, and no tick."""
    with RecordingWriter.create(tmp_path / "R", origin="measured", host=HOST):
        assert main(arguments(tmp_path / "R")) == 0
    recording = open_recording_or_manifest(tmp_path / "R")
    account = recording.info[f"sampler@{HOST}"]
    assert (account["ticks"], account["period_ns"]) == (0, 50 * MS)
    assert account["pid_namespace"] in {"host", "own", "unknown"}
    assert account["start_cpu_s"] > 0


def open_recording_or_manifest(run: Path) -> Any:
    from dipstick.recording.layout import list_folder  # noqa: PLC0415 - only here
    from dipstick.recording.manifest import read_manifest  # noqa: PLC0415 - only here

    return read_manifest(run, list_folder(run).pieces)


@pytest.mark.usefixtures("stdin_closed")
def test_a_sampler_without_a_recording_fails_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The supervisor shows the last line of stderr."""
    assert main(arguments(tmp_path / "nowhere")) == EXIT_FAILED
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.usefixtures("stdin_closed")
def test_a_full_disk_has_its_own_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that the supervisor can say it plainly."""

    def fail(*_: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("dipstick.capture.sampler_main.sample", fail)
    assert main(arguments(tmp_path)) == EXIT_FULL
