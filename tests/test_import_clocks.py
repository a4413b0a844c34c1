"""Clocks of imported files: restarts, reboots, suspends, steps, drift, zones and starts; and telemetry that is too coarse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from dipstick.cli import main
from dipstick.errors import ImportFormatError
from dipstick.importers.files import import_files
from dipstick.importers.options import Options, parse_zone
from dipstick.recording.reader import open_recording
from imported import T_S, S, T

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED = Path(__file__).parents[2] / "shared"
TRACE = SHARED / "traces" / "h200x2-grpo"
HEADER = "timestamp,index,utilization.gpu [%]\n"


def smi(path: Path, seconds: Iterable[float], header: str = HEADER, util: int = 90) -> Path:
    """Telemetry of GPU 0 at these seconds after ``T``."""
    path.write_text(header + "".join(f"{T_S + s:.3f},0,{util}\n" for s in seconds))
    return path


def spans(path: Path, steps: range, start_s: float, pid: int = 7) -> Path:
    """Steps of 10 s: 6 s of generate, 4 s of reward; Unix times."""
    rows = []
    for i, step in enumerate(steps):
        begin = start_s + 10 * i
        for name, a, b in (("step", 0, 10), ("generate", 0, 6), ("reward", 6, 10)):
            at = [T + round((begin + x) * S) for x in (a, b)]
            rows.append({"name": name, "rank": 0, "pid": pid, "step": step, "t0": at[0], "t1": at[1]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl(path: Path, steps: range) -> Path:
    """Verl's metrics file: steps of 10 s, no times."""
    path.write_text("".join(json.dumps({"step": k, "data": {"timing_s/step": 10.0}}) + "\n" for k in steps))
    return path


def notes(folder: Path) -> str:
    """All notes of a recording."""
    return "\n".join(note.text for note in open_recording(folder).notes)


# Restarts, reboots, suspends


def test_two_logs_of_a_restarted_run_are_one_run_and_what_was_done_twice_counts_once(tmp_path: Path) -> None:
    """Steps 0-9, five minutes of nothing, then 8-17 by another process: 18 steps, the restart is told."""
    paths = [
        smi(tmp_path / "gpu.csv", range(500)),
        spans(tmp_path / "first.jsonl", range(10), 0),
        spans(tmp_path / "second.jsonl", range(8, 18), 400, pid=9),
    ]
    report = dipstick.explain(open_recording(import_files(paths, tmp_path / "run").path))
    assert (report.run.steps, report.run.ranks) == (18, 1)
    told = [note.text for note in report.notes if "restarted" in note.text]
    assert told == [
        "rank 0 was restarted: pid 7 (steps 0–9), then pid 9 (steps 8–17); 2 of them were done twice, and the later ones count"
    ]
    assert report.phases is not None
    seconds = {row.phase: row.seconds for row in report.phases.rows}
    assert seconds["unattributed"] == pytest.approx(300.0, abs=0.01), "the gap is nobody's phase"


def test_telemetry_that_goes_on_in_a_second_file_after_a_restart(tmp_path: Path) -> None:
    """Both files have GPU 0 of the same host, one after the other: one series, and the time between is missing."""
    paths = [smi(tmp_path / "a.csv", range(100)), smi(tmp_path / "b.csv", range(400, 500))]
    recording = open_recording(import_files(paths, tmp_path / "run").path)
    report = dipstick.explain(recording)
    assert (recording.table("gpu").height, report.run.gpus) == (200, 1)
    assert report.run.sampling.coverage == pytest.approx(0.4, abs=0.005)
    assert not report.dips, "nothing is known of the gap, it is no dip"


def test_telemetry_appended_to_its_file_after_a_reboot(tmp_path: Path) -> None:
    """``nvidia-smi >> gpu.csv`` again: a second header, five minutes of nothing; a gap, no row lost, no idle time."""
    path = smi(tmp_path / "gpu.csv", range(100))
    path.write_text(path.read_text() + smi(tmp_path / "b.csv", range(400, 500)).read_text())
    made = import_files([path], tmp_path / "run")
    facts = made.accounts[0].plain()
    assert (facts["rows_read"], facts["gaps"], facts["dropped"]) == (200, 1, {})
    assert facts["longest_interval_s"] == pytest.approx(301.0)
    assert not dipstick.explain(open_recording(made.path)).dips


def test_telemetry_appended_after_a_reboot_with_another_clock_battery(tmp_path: Path) -> None:
    """After the reboot the clock starts 50 s early: covered time is not covered twice, and the move is said."""
    path = smi(tmp_path / "gpu.csv", [*range(100), *range(50, 150)])
    made = import_files([path], tmp_path / "run")
    times = open_recording(made.path).table("gpu")["t_ns"]
    assert times.diff().drop_nulls().unique().to_list() == [S]
    assert "the clock went back 49.000 s" in notes(made.path)


def test_a_clock_set_forward_or_a_suspend_is_a_gap(tmp_path: Path) -> None:
    """Nothing tells an hour asleep from a clock set an hour ahead: either is a gap of which nothing is known."""
    made = import_files([smi(tmp_path / "g.csv", [*range(60), *range(3660, 3720)])], tmp_path / "run")
    facts = made.accounts[0].plain()
    assert (facts["gaps"], facts["longest_interval_s"], facts["interval_s"]) == (1, 3601.0, 1.0)
    report = dipstick.explain(open_recording(made.path))
    assert report.run.sampling.gaps == 1
    assert report.run.sampling.gap_s == pytest.approx(3600.0, abs=1.0)


def test_whole_second_stamps_that_come_twice_are_spread(tmp_path: Path) -> None:
    """Two polls a second with stamps of whole seconds: both are kept, half a second apart."""
    path = tmp_path / "gpu.csv"
    lines = [f"2026-11-30 15:42:{s:02d},0,{u}" for s in range(10, 50) for u in (10, 90)]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    made = import_files([path], tmp_path / "run", Options(tz=parse_zone("UTC")))
    gpu = open_recording(made.path).table("gpu").sort("t_ns")
    assert gpu["util_pct"].to_list() == [10.0, 90.0] * 40
    assert gpu["t_ns"].diff().drop_nulls().unique().to_list() == [S // 2]
    assert made.accounts[0].plain()["resolution_s"] == 1.0


# Drift


@pytest.mark.parametrize(("hours", "said"), [(5, "5.0 h"), (0.5, None)])
def test_drift_between_two_hosts_is_said_where_it_could_be_seen(
    tmp_path: Path, hours: float, said: str | None
) -> None:
    """Five hours on two clocks: 50 ppm would be 0.9 s, and it is said not to be estimated; half an hour is not worth it."""
    every = range(0, round(hours * 3600) + 1, 30)
    paths = [smi(tmp_path / "a.csv", every), smi(tmp_path / "b.csv", every)]
    made = import_files([f"node0={paths[0]}", f"node1={paths[1]}"], tmp_path / "run")
    drift = [line for line in notes(made.path).splitlines() if "drift" in line]
    if said is None:
        assert drift == []
    else:
        (line,) = drift
        assert line.startswith(
            f"the clocks of node0 and node1 are taken to agree for {said}: drift is not estimated"
        )
        assert "may reach 0.9 s (50 ppm)" in line


def test_two_files_of_one_host_have_one_clock(tmp_path: Path) -> None:
    """Telemetry and spans of the same machine can't drift apart: nothing is said."""
    paths = [smi(tmp_path / "g.csv", range(0, 18000, 30)), spans(tmp_path / "s.jsonl", range(1800), 0)]
    assert "drift" not in notes(import_files(paths, tmp_path / "run").path)


# Zones and starts


def test_two_logs_that_count_from_starts_of_their_own_are_not_placed_at_one(tmp_path: Path) -> None:
    """A restarted run's two files without times: --start is one time, and they began at two; nothing is made."""
    paths = [verl(tmp_path / "one.jsonl", range(1, 11)), verl(tmp_path / "two.jsonl", range(9, 19))]
    with pytest.raises(ImportFormatError, match="only one start can be given") as refused:
        import_files(paths, tmp_path / "run", Options(start_ns=T))
    assert "one by one, each with its --start" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_start_places_a_log_without_times_beside_telemetry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--start`` with a zone: the first step begins then, to the second, and the place says that you gave it."""
    gpu, log = smi(tmp_path / "gpu.csv", range(200)), verl(tmp_path / "log.jsonl", range(1, 11))
    words = [
        "import",
        str(gpu),
        str(log),
        "-o",
        str(tmp_path / "run"),
        "--start",
        "2026-11-30T16:42:43+01:00",
    ]
    assert main([*words, "-q", "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)["files"][1]
    assert (stored["offset_s"], stored["offset_from"]) == (T_S + 30.0, "you gave its start (--start)")
    assert (stored["offset_low_s"], stored["clock_rate"]) == (None, 1.0)
    recording = open_recording(tmp_path / "run")
    first = recording.table("spans").filter(pl.col("name") == "step")["t0_ns"].min()
    assert isinstance(first, int)
    assert recording.start_unix_ns + first == T + 30 * S


@pytest.mark.parametrize(
    ("zone", "hours"), [("UTC", 0), ("Europe/Berlin", -1), ("+08:00", -8), ("America/New_York", 5)]
)
def test_a_zone_dates_local_stamps(tmp_path: Path, zone: str, hours: int) -> None:
    """15:42:13 there, in UTC; nothing is left to warn of."""
    path = tmp_path / "gpu.csv"
    path.write_text(HEADER + "".join(f"2026/11/30 15:42:{s}.000, 0, 90 %\n" for s in range(13, 50)))
    made = import_files([path], tmp_path / "run", Options(tz=parse_zone(zone)))
    recording = open_recording(made.path)
    assert recording.start_unix_ns == T + hours * 3600 * S
    assert (made.places[0].is_known, "--tz" in notes(made.path)) == (True, False)


# Too coarse, and unused


def _thinned(path: Path, every: int) -> Path:
    """nvidia-smi.csv of the real run with one sweep in so many (two GPUs, a row a second each)."""
    if not TRACE.is_dir():
        pytest.skip("../shared/traces is not here")
    header, *lines = (TRACE / "nvidia-smi.csv").read_text().splitlines()
    kept = [line for k in range(0, len(lines) - 1, 2 * every) for line in lines[k : k + 2]]
    path.write_text("\n".join([header, *kept]) + "\n")
    return path


def _explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["explain", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real run seen every 15 s, as W&B would, with its spans: steps take 13 s."""
    folder = tmp_path_factory.mktemp("coarse")
    gpu = _thinned(folder / "gpu.csv", 15)
    return import_files([gpu, TRACE / "spans.r0.jsonl", TRACE / "spans.r1.jsonl"], folder / "run").path


def test_the_smallest_visible_dip_is_twice_the_sampling(
    coarse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """15 s: 30 s, in the JSON and in words; and the missing signal comes with the setting that gets it."""
    answer = _explained(coarse, capsys)
    assert answer["run"]["sampling"]["period_s"] == pytest.approx(15.0, abs=0.05)
    assert answer["run"]["sampling"]["smallest_visible_dip_s"] == pytest.approx(30.0, abs=0.1)
    (finer,) = [row for row in answer["missing"] if row["signal"].startswith("utilization finer")]
    assert "x_stats_sampling_interval=1" in finer["how_to_get_it"]
    assert "-lms 500" in finer["how_to_get_it"]
    assert main(["explain", str(coarse)]) == 0
    assert "a dip shorter than 30.0 s can stay unseen" in " ".join(capsys.readouterr().out.split())


def test_what_coarse_samples_can_not_tell_is_unconfirmed(
    coarse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dips of steps shorter than the sampling, and memory spikes: open, COARSE, with the experiment; spans still answer."""
    answer = _explained(coarse, capsys)
    for name in ("alignment", "memory_spikes"):
        check = answer["checks"][name]
        assert (check["verdict"], check["reason"]) == ("unconfirmed", "COARSE")
        assert "sample at 1 s" in check["experiment"]
    assert answer["checks"]["phases"]["verdict"] == "yes", "phases come from the spans"
    assert answer["answer"]["longest_phase"] == "reward"


def test_the_few_dips_that_coarse_samples_show_are_given_no_cause(
    coarse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of 31 steps' dips are seen: what the dips are is not said from them, nor that they are no fault."""
    answer = _explained(coarse, capsys)
    assert 0 < len(answer["dips"]) < 10
    assert answer["answer"]["dips_are"] == "unknown"
    assert "what the dips are can't be told from this recording" in answer["answer"]["headline"]


def test_levels_from_coarse_samples_stay_percentages(
    coarse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The regression may overshoot: generate reads 100 %, not 101 %."""
    levels = _explained(coarse, capsys)["checks"]["alignment"]["levels"]
    assert levels
    for level in levels:
        assert 0 <= level["util_pct"] <= 100
        assert level["interval"][0] <= level["util_pct"] <= level["interval"][1]


def test_coarse_telemetry_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every 30 s as from DCGM's exporter, no spans: nothing but levels; every check that needs more is open and says what for."""
    made = import_files([_thinned(tmp_path / "gpu.csv", 30)], tmp_path / "run")
    answer = _explained(made.path, capsys)
    assert answer["run"]["sampling"]["smallest_visible_dip_s"] == pytest.approx(60.0, abs=0.2)
    assert {check["verdict"] for check in answer["checks"].values()} == {"unconfirmed"}
    assert all(check["experiment"] for check in answer["checks"].values())
    assert answer["answer"]["dips_are"] == "unknown"
    signals = " ".join(row["signal"] for row in answer["missing"])
    assert "utilization finer than every 30 s" in signals
    assert "phase spans" in signals


def test_a_gpu_unused_all_along_is_no_dip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two A6000, GPU 1 reads 0 to 1 %: it is called unused, has no dip, and its idle time is no part of the bill."""
    path = SHARED / "real-files" / "smi-csv-2xA6000-1s.csv"
    if not path.is_file():
        pytest.skip("../shared/real-files is not here")
    made = import_files([path], tmp_path / "run")
    answer = _explained(made.path, capsys)
    assert [name.rpartition(":")[2] for name in answer["run"]["unused_gpus"]] == ["1"]
    assert [dip for dip in answer["dips"] if dip["gpu"] == 1] == []
    assert "Of the 436 GPU-seconds that read as busy" in answer["answer"]["headline"], (
        "0.910 of 479 s, GPU 0 alone"
    )
    assert main(["explain", str(made.path)]) == 0
    assert "Never used in the window: host0:1." in capsys.readouterr().out
