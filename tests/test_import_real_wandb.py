"""W&B and TensorBoard files that practitioners left in public repositories, read as worked out by hand in LOG.md."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.cli import main
from dipstick.importers import read_path

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

S = 1_000_000_000
WINDOWS = "wandb-v0.14-mean30s-1gpu.wandb"
CUT = "wandb-v0.19.7-8gpu-10s-cut-32k.wandb"
EIGHT = "wandb-v0.21-8gpu-15s-hf.wandb"
EVENTS = "wandb-events-v0.8-2s-mean30s.jsonl"
STEP_BACK = "tfevents-grpo-clock-step-back"
SHORT = "tfevents-grpo-short"


def means(found: ImportedTables) -> list[float]:
    """Mean utilization of each GPU, three decimals."""
    return [round(gpu["util_pct"]["mean"], 3) for gpu in found.account.plain()["gpus"]]


def seconds(found: ImportedTables, gpu: int = 0) -> list[float]:
    """Times of one GPU's rows, in s to the millisecond."""
    return [round(t / 1e9, 3) for t in found.tables["gpu"].filter(pl.col("gpu") == gpu)["t_ns"]]


def values(found: ImportedTables, name: str) -> pl.DataFrame:
    """Rows of one scalar, in order of time."""
    return found.tables["scalars"].filter(pl.col("name").cast(pl.String) == name).sort("t_ns")


def test_means_of_30_s_of_a_run_that_crashed(real: Path) -> None:
    """Three rows, 30.0 and 21.9 s apart, the first 63.9 s after the start; 78 rows of history; exit code 255 after 111 s."""
    found = read_path(real / WINDOWS)
    table = found.tables["gpu"]
    assert [round(v, 2) for v in table["util_pct"]] == [78.33, 94.67, 94.87]
    assert means(found) == [89.29]
    assert [round(d / 1e9, 1) for d in table["t_ns"].diff().drop_nulls()] == [30.0, 21.9]
    assert [round(w / 1e9, 1) for w in table["window_ns"]] == [30.0, 30.0, 21.9]
    facts = found.account.facts
    assert round(facts["run_start_s"], 3) == 1681976302.750
    assert round(seconds(found)[0] - facts["run_start_s"], 1) == 63.9
    assert (facts["exit_code"], facts["runtime_s"], facts["wandb_version"]) == (255, 111, "0.14.2")
    assert (facts["history_records"], facts["console_records"]) == (78, 98)


def test_the_history_of_that_run_is_on_the_same_clock(real: Path) -> None:
    """From 1681976312.160 to 1681976417.528, W&B's own steps 0 to 77."""
    losses = values(read_path(real / WINDOWS), "loss")
    assert losses.height == 78
    assert [round(losses["t_ns"][i] / 1e9, 3) for i in (0, -1)] == [1681976312.160, 1681976417.528]
    assert losses["step"].to_list() == list(range(78))


def test_a_killed_run_of_exactly_one_block(real: Path) -> None:
    """47 whole records; 8 GPUs, 7 rows each, 10.00 s apart; the last record begins and never ends."""
    found = read_path(real / CUT)
    assert means(found) == [57.143, 69.286, 55.429, 70.429, 51.429, 73.143, 59.286, 60.714]
    times = seconds(found)
    assert (len(times), times[0], times[-1]) == (7, 1740915190.641, 1740915250.644)
    assert found.tables["gpu"].height == 56
    assert found.account.interval_ns == pytest.approx(10 * S, abs=2 * 10**7)
    assert (found.account.facts["records"], found.account.facts["history_records"]) == (47, 0)
    assert "exit_code" not in found.account.facts
    assert list(found.account.dropped.values()) == [1]
    assert "scalars" not in found.tables


def test_eight_gpus_of_which_one_is_allocated_and_idle(real: Path) -> None:
    """50 rows at 15.00 s (14.92 to 15.08); GPU 4 holds 81 % of its memory and is never busy; exit 1 after 759 s."""
    found = read_path(real / EIGHT)
    assert means(found) == [54.06, 48.36, 20.0, 24.2, 0.0, 20.02, 19.84, 10.98]
    times = seconds(found)
    distances = [b - a for a, b in pairwise(times)]
    assert (len(times), times[0], times[-1]) == (50, 1760516416.883, 1760517151.916)
    assert 14.91 < min(distances) < max(distances) < 15.09
    fourth = found.tables["gpu"].filter(pl.col("gpu") == 4)["mem_used_b"]
    total = found.tables["gpus"]["mem_total_b"][4]
    assert fourth.mean() / total == pytest.approx(0.81, abs=0.01)
    facts = found.account.facts
    assert (facts["exit_code"], facts["runtime_s"], round(facts["run_start_s"], 3)) == (
        1,
        759,
        1760516401.708,
    )


def test_the_trainer_s_rows_have_the_trainer_s_step(real: Path) -> None:
    """19 rows; W&B's ``_step`` is one behind ``train/global_step``."""
    losses = values(read_path(real / EIGHT), "train/loss")
    assert losses["step"].to_list() == list(range(1, 20))
    assert losses["value"][0] == 370.2188


def test_models_come_from_the_run_itself(real: Path) -> None:
    """8x RTX 4090, each with a UUID of its own."""
    gpus = read_path(real / EIGHT).tables["gpus"]
    assert set(gpus["name"].cast(pl.String)) == {"NVIDIA GeForce RTX 4090"}
    assert gpus["uuid"].n_unique() == 8


def test_events_of_2020(real: Path) -> None:
    """18 rows, whole seconds 1582070941 to 1582071428, 30 or 31 s apart, the last 3 s; mean 4.962 (3.87 to 7.13)."""
    found = read_path(real / EVENTS)
    plain = found.account.plain()
    times = seconds(found)
    assert (plain["rows_read"], times[0], times[-1]) == (18, 1582070941.0, 1582071428.0)
    assert {b - a for a, b in pairwise(times[:-1])} == {30.0, 31.0}
    assert times[-1] - times[-2] == 3.0
    assert means(found) == [4.962]
    assert [plain["gpus"][0]["util_pct"][k] for k in ("min", "max")] == [3.87, 7.13]
    assert (plain["run_start_s"], plain["values_are"]) == (1582070913.0, "means of 30 s")
    assert found.tables["gpu"]["window_ns"].to_list() == [28 * S, *[30 * S] * 16, 3 * S]


def test_an_interrupted_run_in_tensorboard(real: Path) -> None:
    """253 events over 35.0 s; step_time of 10 steps, and no train_runtime: it was stopped."""
    found = read_path(real / SHORT)
    facts = found.account.facts
    assert facts["events"] == 253
    assert facts["wall_last_s"] - facts["wall_first_s"] == pytest.approx(35.0, abs=0.1)
    assert values(found, "train/step_time")["step"].to_list() == list(range(1, 11))
    assert values(found, "train/train_runtime").height == 0


def test_a_clock_step_and_a_suspended_machine(real: Path) -> None:
    """15,903 events of 27 tags, steps 1 to 636; step 547 took 2,936.2 s; between 558 and 559 the clock went back 29.03 s."""
    found = read_path(real / STEP_BACK)
    facts = found.account.facts
    assert (facts["events"], facts["tags"]) == (15_903, 27)
    assert (round(facts["wall_first_s"], 3), round(facts["wall_last_s"], 3)) == (
        1767724543.684,
        1767729787.723,
    )
    times = values(found, "train/step_time")
    assert times["step"].to_list() == list(range(1, 637))
    assert (
        round(times["value"][1:].sum(), 1) == 5245.5
    )  # from the first row to the last one, as the wall span
    assert round(times["value"][546], 1) == 2936.2
    notes = "\n".join(note.text for note in found.account.notes)
    assert "the clock went back 29.030 s between step 558 and 559" in notes
    assert "2,936 s pass between step 546 and 547" in notes


def test_mended_times_leave_room_for_the_steps(real: Path) -> None:
    """The wall clock says 5,236 s for steps that took 5,245.5 s; once it goes on, every step fits behind the one before."""
    table = values(read_path(real / STEP_BACK), "train/step_time")
    whole = (table["t_ns"][-1] - table["t_ns"][0]) / 1e9
    assert whole > table["value"][1:].sum()
    assert table["t_ns"].is_sorted()
    usual = table["t_ns"].diff().drop_nulls().median()
    assert usual == pytest.approx(3.586 * S, abs=5e6)


@pytest.mark.parametrize("name", [WINDOWS, CUT, EIGHT, EVENTS])
def test_from_a_file_to_an_answer_that_says_what_it_can_not_see(
    real: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One value every 10 to 30 s: the smallest dip that could be seen is said."""
    run = str(tmp_path / "RUN")
    assert main(["import", str(real / name), "-o", run]) == 0
    capsys.readouterr()
    assert main(["explain", run]) == 0
    told = capsys.readouterr().out
    assert "can't tell" in told.lower()


def facts_of(path: Path) -> dict[str, Any]:
    """What an import says of a file, without its name."""
    return {
        key: value
        for key, value in read_path(path).account.plain().items()
        if key not in {"file", "bindings"}
    }


@pytest.mark.parametrize("name", [WINDOWS, EIGHT, SHORT])
@pytest.mark.parametrize("share", [0.6, 0.8, 0.99])
def test_a_part_of_a_real_file_is_read_as_far_as_it_goes(
    real: Path, tmp_path: Path, name: str, share: float
) -> None:
    """Killed at any moment: fewer rows, at most one record lost, nothing else."""
    data = (real / name).read_bytes()
    part = tmp_path / name
    part.write_bytes(data[: int(len(data) * share)])
    cut, whole = facts_of(part), facts_of(real / name)
    assert 0 < cut["rows_read"] <= whole["rows_read"]
    assert sum(v for k, v in cut["dropped"].items() if "never ends" in k or "cut" in k) <= 1
    assert cut["clock"] == whole["clock"] == "unix"
