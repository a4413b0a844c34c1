"""GPUs of traces on their way into a recording: which GPU it is, who owns it, and traces that collide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.analysis.states import CODE
from dipstick.cli import main
from dipstick.errors import ImportFormatError
from dipstick.importers.files import import_files
from dipstick.importers.gpu_trace import place_of
from dipstick.recording.reader import open_recording
from kernel_traces import NCCL, US, kernel, note, trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("device", "rank", "cards", "host", "place"),
    [
        (5, None, 8, None, (5, None)),
        (0, 0, 1, None, (0, None)),
        (0, 5, 1, None, (5, None)),
        (0, 5, 0, None, (5, None)),
        (0, 5, 8, None, (0, None)),
        (5, 5, 8, None, (5, None)),
        (3, 11, 8, None, (3, "node1")),
        (0, 11, 1, None, (3, "node1")),
        (3, 11, 8, "a7", (3, "a7")),
    ],
)
def test_the_gpu_of_a_device(
    device: int, rank: int | None, cards: int, host: str | None, place: tuple[int, str | None]
) -> None:
    """The ordinal where it can be right, the rank's place on its node where only one device was visible."""
    gpu, at, why = place_of(device, rank, cards, host)
    assert (gpu, at) == place
    assert bool(why) == ((gpu, at) != (device, host))


def test_two_traces_of_one_gpu_at_one_time_are_refused(tmp_path: Path) -> None:
    """Their shares can't be added up; the error names both files and says how to name the hosts."""
    files = [trace(tmp_path / f"{name}.json", [kernel(0, 5)]) for name in "ab"]
    with pytest.raises(ImportFormatError, match=r"a\.json both show GPU 0 of host0") as caught:
        import_files(files, tmp_path / "run")
    assert "node0=FILE" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_same_traces_of_two_hosts_are_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hosts named, they are GPU 0 of each."""
    for name in "ab":
        trace(tmp_path / f"{name}.json", [kernel(0, 5)])
    monkeypatch.chdir(tmp_path)
    import_files(["n0=a.json", "n1=b.json"], "run", created_unix_ns=1)
    rows = open_recording("run").table("gpu_counters")
    assert sorted({(str(h), g) for h, g in rows.select("host", "gpu").iter_rows()}) == [("n0", 0), ("n1", 0)]


def test_two_traces_one_after_the_other_are_one_gpu(tmp_path: Path) -> None:
    """A profiler that writes a file each cycle: the gap between them is a gap, not idle time."""
    first = trace(tmp_path / "a.json", [kernel(0, 5)])
    second = trace(tmp_path / "b.json", [kernel(1000, 5)])
    import_files([first, second], tmp_path / "run", created_unix_ns=1)
    (gpu,) = analyse(open_recording(tmp_path / "run")).gpus
    assert gpu.signals.windows.recorded_ns == 10_000_000
    assert gpu.signals.gaps_ns.tolist() == [995_000_000]


def test_the_ranks_process_owns_its_gpu(tmp_path: Path) -> None:
    """The process with most ranges is the rank's; GPU and rank belong together."""
    events = [note(0, 9, "ProfilerStep#1"), kernel(1, 2)]
    path = trace(tmp_path / "a.json", events, distributedInfo={"rank": 2, "world_size": 4})
    import_files([path], tmp_path / "run", created_unix_ns=1)
    who = open_recording(tmp_path / "run").table("processes")
    assert who.select("pid", "rank", "gpu", "role").rows() == [(41, 2, 2, "trainer")]


def test_a_collective_that_runs_alone_is_hollow(tmp_path: Path) -> None:
    """3 of 4 busy milliseconds are communication alone: 3 ms are 'wait or copy', which counts as hollow."""
    path = trace(tmp_path / "a.json", [kernel(0, 1), kernel(1, 3, NCCL)], distributedInfo={"rank": 0})
    import_files([path], tmp_path / "run", created_unix_ns=1)
    (gpu,) = analyse(open_recording(tmp_path / "run")).gpus
    totals = gpu.states.totals(-1_000_000, 4_000_000)
    assert totals[CODE["waiting_or_bus_copy"]] == pytest.approx(0.003)
    assert totals[CODE["compute"]] == pytest.approx(0.001)


def test_the_trace_wins_over_coarse_utilization(tmp_path: Path) -> None:
    """Beside nvidia-smi's second the trace's windows keep their own shares: its clock and its kernels are exact."""
    path = trace(tmp_path / "a.json", [kernel(0, 500), kernel(1500, 500)], distributedInfo={"rank": 0})
    seconds = "\n".join(f"{US // 10**6 + i}.0, 0, 100 %" for i in range(4))
    (tmp_path / "smi.csv").write_text(f"timestamp, index, utilization.gpu [%]\n{seconds}\n")
    import_files([path, tmp_path / "smi.csv"], tmp_path / "run", created_unix_ns=1)
    (gpu,) = analyse(open_recording(tmp_path / "run")).gpus
    start = US * 1000 - open_recording(tmp_path / "run").start_unix_ns
    totals = gpu.states.totals(start, start + 2 * 10**9)
    assert totals[CODE["compute"]] == pytest.approx(1.0, abs=0.002)
    assert totals[CODE["idle"]] == pytest.approx(1.0, abs=0.002)


def test_explain_says_that_communication_was_no_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of four ranks, half of the busy time in a collective alone: the answer calls it hollow, and asks for no counters."""
    files = []
    for rank in (0, 1):
        events = []
        for step in range(6):
            at = step * 100
            events += [note(at, 99, f"ProfilerStep#{step}"), note(at, 50, "forward"), note(at + 50, 49, "backward"),
                       kernel(at, 40, device=rank), kernel(at + 50, 40, NCCL, device=rank)]  # fmt: skip
        files.append(
            trace(tmp_path / f"{rank}.json", events, distributedInfo={"rank": rank, "world_size": 4})
        )
    import_files(files, tmp_path / "run", created_unix_ns=1)
    assert main(["explain", str(tmp_path / "run"), "--width", "100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "50 % did no work" in text
    assert "wait or copy" in text
