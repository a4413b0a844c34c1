"""The offset of a log's clock, from telemetry and step edges alone: found with its interval, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dipstick.cli import main
from dipstick.errors import ImportFormatError
from dipstick.importers.files import Imported, import_files
from dipstick.importers.offset import FEWEST_STEPS, Series, estimate
from dipstick.importers.options import Options
from dipstick.recording.reader import open_recording
from offset_simulation import Scene, calibrate, draw

TRACE = Path(__file__).parents[2] / "shared" / "traces" / "h200x2-grpo"
ONCE = (1.0,)
SHORT = Scene(steps=10, margin_s=30.0)
"""Where all rates are tried: enough steps to be asked, few enough to be quick."""


def test_steps_of_different_length_tell_the_offset() -> None:
    """30 steps of about 20 s that vary: the offset is found to a second, and all draws agree on the step."""
    series, edges, truth = draw(Scene(), 1)
    found = estimate(series, edges, rates=ONCE)
    assert found.offset_s == pytest.approx(truth, abs=1.0)
    assert found.low_s <= truth <= found.high_s
    assert found.high_s - found.low_s < 12, "less than a step"
    assert (found.share >= 0.95, found.why) == (True, "")


def test_a_log_that_does_not_start_at_zero() -> None:
    """The offset is added to the log's times, wherever they start: 500 s later on its clock, 500 s less to add."""
    series, edges, _ = draw(Scene(), 1)
    at_zero = estimate(series, edges, rates=ONCE)
    later = estimate(series, edges + 500, rates=ONCE)
    assert at_zero.offset_s is not None
    assert later.offset_s == pytest.approx(at_zero.offset_s - 500)
    assert later.low_s == pytest.approx(at_zero.low_s - 500)


def test_equal_steps_alias_and_are_refused() -> None:
    """Steps all alike, telemetry from the middle of the run: every whole step fits, and the other offsets are named."""
    series, edges, _ = draw(Scene(spread=0.0, margin_s=-30.0), 1)
    found = estimate(series, edges, rates=ONCE)
    assert found.offset_s is None
    assert "several offsets fit" in found.why
    apart = np.abs(np.array(found.others[1:]) - found.others[0]) / 20
    assert len(apart) >= 1
    assert apart == pytest.approx(np.round(apart), abs=0.3), "they lie whole steps apart"


def test_no_idle_edge_is_refused() -> None:
    """Steps that vary, telemetry from inside the run only: which change in the step is its edge can't be told."""
    series, edges, _ = draw(Scene(margin_s=-30.0), 1)
    found = estimate(series, edges, rates=ONCE)
    assert found.offset_s is None
    assert "no idle time before or after the run" in found.why or "several offsets" in found.why


def test_telemetry_that_ends_in_the_run() -> None:
    """The idle time before the run is enough: it was stopped 200 s before the end."""
    series, edges, truth = draw(Scene(end_s=-200.0), 1)
    assert estimate(series, edges, rates=ONCE).offset_s == pytest.approx(truth, abs=1.5)


def test_idle_time_before_the_run_tells_equal_steps_apart() -> None:
    """The same equal steps, seen from before the start to after the end: the idle edges decide."""
    series, edges, truth = draw(Scene(spread=0.0), 1)
    assert estimate(series, edges, rates=ONCE).offset_s == pytest.approx(truth, abs=1.0)


def test_time_that_no_timer_saw_is_a_rate() -> None:
    """A log whose steps add up to 2.5 % less than the run took is stretched by 2.5 %, and its start is found."""
    series, edges, truth = draw(Scene(steps=20, margin_s=30.0), 2)
    found = estimate(series, edges / 1.025, rates=(1.0, 1.015, 1.025, 1.035))
    assert found.rate == 1.025
    assert found.low_s <= truth <= found.high_s


def test_telemetry_that_does_not_follow_the_steps() -> None:
    """Constant utilization tells nothing, and another job's noise is no offset."""
    series, edges, _ = draw(Scene(follows=False), 3)
    flat = Series(series.t_s, np.full_like(series.values, 50.0), 1.0)
    assert estimate(flat, edges, rates=ONCE).offset_s is None
    assert estimate(series, edges, rates=ONCE).offset_s is None


def test_too_few_steps_or_values() -> None:
    """Fewer than 8 steps, or fewer values than steps, are not asked; missing values are none, not zero."""
    series, edges, _ = draw(Scene(), 1)
    assert f"{FEWEST_STEPS - 1} steps are too few" in estimate(series, edges[:FEWEST_STEPS]).why
    assert "0 steps are too few" in estimate(series, np.zeros(0)).why
    missing = Series(series.t_s, np.full_like(series.values, np.nan), 1.0)
    assert "fewer values" in estimate(missing, edges).why
    few = Series(series.t_s[:5], series.values[:5], 1.0)
    assert "fewer values" in estimate(few, edges).why


def test_missing_values_of_one_gpu_do_not_move_the_offset() -> None:
    """A second GPU whose values are mostly missing adds what it has and takes nothing away."""
    series, edges, truth = draw(Scene(), 4)
    second = series.values.copy()
    second[::3] = np.nan
    both = Series(series.t_s, np.hstack([series.values, second]), series.window_s)
    assert estimate(both, edges, rates=ONCE).offset_s == pytest.approx(truth, abs=1.0)


def test_the_same_data_gives_the_same_answer() -> None:
    """The resampling is seeded."""
    series, edges, _ = draw(Scene(), 5)
    assert estimate(series, edges, rates=ONCE) == estimate(series, edges, rates=ONCE)


@pytest.mark.parametrize(
    ("scene", "least_told"), [(Scene(steps=12), 4), (Scene(steps=12, spread=0.0, margin_s=-30.0), 0)]
)
def test_the_calibration_in_short(scene: Scene, least_told: int) -> None:
    """Six simulated runs a scene (``tests/offset_simulation.py`` has more): never a step off; the interval misses at most one."""
    tally = calibrate(scene, 6)
    assert tally.told >= least_told
    assert tally.wrong == 0
    assert tally.told - tally.covered <= 1


def _log(path: Path, seconds: list[float]) -> Path:
    """Verl's metrics file: one line a step, no times."""
    lines = [json.dumps({"step": k, "data": {"timing_s/step": s}}) for k, s in enumerate(seconds, start=1)]
    path.write_text("\n".join(lines) + "\n")
    return path


def _smi(path: Path, series: Series) -> Path:
    rows = [
        f"{1_796_000_000 + t:.3f},0,{u:.0f}"
        for t, u in zip(series.t_s.tolist(), series.values[:, 0].tolist(), strict=True)
    ]
    path.write_text("time,gpu,utilization.gpu [%]\n" + "\n".join(rows) + "\n")
    return path


def test_two_files_are_lined_up_and_the_manifest_says_how(tmp_path: Path) -> None:
    """The step spans of a log without times lie where they were; offset, interval and method are stored."""
    series, edges, truth = draw(SHORT, 6)
    smi, log = _smi(tmp_path / "gpu.csv", series), _log(tmp_path / "log.jsonl", np.diff(edges).tolist())
    made = import_files([smi, log], tmp_path / "run")
    recording = open_recording(made.path)
    stored = recording.manifest.info["imported@import2"]
    assert stored["offset_low_s"] <= 1_796_000_000 + truth <= stored["offset_high_s"]
    assert "estimated from how utilization follows its steps" in stored["offset_from"]
    spans = recording.table("spans")
    first, last = spans["t0_ns"].min(), spans["t1_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    begins = (recording.start_unix_ns + first) / 1e9 - 1_796_000_000
    ends = (recording.start_unix_ns + last) / 1e9 - 1_796_000_000
    assert begins == pytest.approx(truth, abs=2.0)
    assert ends == pytest.approx(truth + edges[-1], abs=6.0)
    assert not [note for note in recording.notes if "clock of" in note.text], (
        "a stretched clock is no clock step"
    )


def test_start_overrules(tmp_path: Path) -> None:
    """With --start nothing is estimated."""
    series, edges, _ = draw(SHORT, 6)
    smi, log = _smi(tmp_path / "gpu.csv", series), _log(tmp_path / "log.jsonl", np.diff(edges).tolist())
    made = import_files([smi, log], tmp_path / "run", Options(start_ns=1_796_001_500 * 10**9))
    assert made.places[1].how == "you gave its start (--start)"
    assert made.places[1].interval_s is None


def test_steps_that_alias_are_refused_with_the_starts_that_fit(tmp_path: Path) -> None:
    """Nothing is written; the message names the starts that fit and asks for --start."""
    series, edges, _ = draw(Scene(steps=14, spread=0.0, margin_s=-30.0), 1)
    smi, log = _smi(tmp_path / "gpu.csv", series), _log(tmp_path / "log.jsonl", np.diff(edges).tolist())
    with pytest.raises(ImportFormatError, match="several offsets fit") as refused:
        import_files([smi, log], tmp_path / "run")
    assert "It may have begun at 2026-11-" in str(refused.value)
    assert "--start" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_gpu_that_is_unused_all_along_is_not_asked(tmp_path: Path) -> None:
    """Beside the job's GPU one reads 0 throughout: the offset is that of the job's."""
    series, edges, truth = draw(SHORT, 7)
    smi = _smi(tmp_path / "gpu.csv", series)
    idle = [f"{1_796_000_000 + t:.3f},1,0" for t in series.t_s.tolist()]
    smi.write_text(smi.read_text() + "\n".join(idle) + "\n")
    made = import_files([smi, _log(tmp_path / "log.jsonl", np.diff(edges).tolist())], tmp_path / "run")
    assert made.places[1].offset_ns / 1e9 - 1_796_000_000 == pytest.approx(truth, abs=2.0)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Imported]:
    """nvidia-smi.csv and trainer_state.json of the real run, nothing else; the latter has no times."""
    if not TRACE.is_dir():
        pytest.skip("../shared/traces is not here")
    folder = tmp_path_factory.mktemp("real") / "run"
    return folder, import_files([TRACE / "nvidia-smi.csv", TRACE / "trainer_state.json"], folder)


def _true_steps() -> list[tuple[float, float]]:
    """When rank 0's steps began and ended, Unix seconds, by the trace's own spans."""
    lines = [json.loads(line) for line in (TRACE / "spans.r0.jsonl").read_text().splitlines()]
    return sorted((line["t0"] / 1e9, line["t1"] / 1e9) for line in lines if line["name"] == "step")


def test_the_real_run_is_placed_within_its_interval(real: tuple[Path, Imported]) -> None:
    """The truth (15:44:13.7 by the trace's spans) is in the interval, which is narrower than half a step."""
    where = real[1].places[1]
    assert where.interval_s is not None
    low, high = where.interval_s
    assert low <= _true_steps()[0][0] <= high
    assert high - low < 7
    assert where.rate == pytest.approx(1.0246, abs=0.006), "405.0 s of run, 395.4 s of step_time"
    assert not where.is_known, "the zone of nvidia-smi's stamps is not known"


def test_every_real_step_lies_near_where_it_was(real: tuple[Path, Imported]) -> None:
    """31 steps: their starts are off by 1 s in the median and never by half a step."""
    recording = open_recording(real[0])
    spans = recording.table("spans").sort("t0_ns")
    starts = (spans["t0_ns"].to_numpy() + recording.start_unix_ns) / 1e9
    assert spans["origin"].unique().to_list() == ["reconstructed"]
    off = np.abs(starts - np.array([begin for begin, _ in _true_steps()]))
    assert len(off) == 31
    assert float(np.median(off)) < 1.5
    assert float(off.max()) < 6.5


def test_the_real_answer_says_what_it_can_not_see(
    real: tuple[Path, Imported], capsys: pytest.CaptureFixture[str]
) -> None:
    """No phase, one rank for two GPUs, edges from step_time: open, with the missing record named, and no verdict on phases."""
    assert main(["explain", str(real[0]), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    checks = answer["checks"]
    for name in ("alignment", "phases"):
        assert checks[name]["verdict"] == "unconfirmed"
        assert "no steps with phases were recorded" in checks[name]["why"]
    assert answer["answer"]["longest_phase"] is None
    assert answer["answer"]["dips_are"] == "unknown"
    assert "phase" in " ".join(row["signal"] for row in answer["missing"])
    said = " ".join(note["text"] for note in answer["notes"])
    assert "31 steps are reconstructed from step_time" in said
    assert "no record of which runs where" in said
    assert "estimated from how utilization follows its steps" in said
    assert answer["run"]["unused_gpus"] == []


def test_the_real_log_beside_telemetry_of_its_middle_is_refused(tmp_path: Path) -> None:
    """The same files, nvidia-smi cut to 15:45:00 to 15:49:59 of the run: nothing idle is seen, so no offset is given."""
    if not TRACE.is_dir():
        pytest.skip("../shared/traces is not here")
    header, *lines = (TRACE / "nvidia-smi.csv").read_text().splitlines()
    middle = [line for line in lines if "15:45:00" <= line[11:19] < "15:50:00"]
    assert len(middle) == 600
    cut = tmp_path / "nvidia-smi.csv"
    cut.write_text("\n".join([header, *middle]) + "\n")
    with pytest.raises(ImportFormatError, match="it can't be lined up with the other files") as refused:
        import_files([cut, TRACE / "trainer_state.json"], tmp_path / "run")
    assert "no idle time" in str(refused.value) or "several offsets fit" in str(refused.value)
    assert "--start" in str(refused.value)
