"""Every file that LOG.md describes is read by a test, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dipstick.errors import DipstickError
from dipstick.importers import read_path

TESTS = Path(__file__).resolve().parent
TELEMETRY, WANDB, HF, RL = (
    f"test_import_{name}.py" for name in ("real_telemetry", "real_wandb", "hf", "rl_logs")
)
COVERED = {
    "smi-csv-2xA6000-1s.csv": TELEMETRY, "smi-csv-lms100.csv": TELEMETRY, "smi-csv-repeated-headers.csv": TELEMETRY,
    "smi-csv-v100s-10s.log": TELEMETRY, "smi-csv-all-na.csv": TELEMETRY, "smi-8gpu-isots-duplicate-index.csv": TELEMETRY,
    "smi-noheader-epoch-5s.log": TELEMETRY, "smi-no-timestamp.log": TELEMETRY, "smi-table-loop-60s.log": TELEMETRY,
    "bom-15s.csv": TELEMETRY, "korean-preamble-1s.log": TELEMETRY, "power-wide-2gpu-epoch.csv": TELEMETRY,
    "dmon-u-dashes.log": TELEMETRY, "dmon-default-no-time.log": TELEMETRY, "wandb-chart-export-min-max.csv": TELEMETRY,
    "wandb-events-v0.8-2s-mean30s.jsonl": WANDB, "tfevents-grpo-short": WANDB, "tfevents-grpo-clock-step-back": WANDB,
    "wandb-v0.14-mean30s-1gpu.wandb": WANDB, "wandb-v0.19.7-8gpu-10s-cut-32k.wandb": WANDB, "wandb-v0.21-8gpu-15s-hf.wandb": WANDB,
    "trainer-state-grpo-4090-step-time.json": HF, "trainer-state-grpo-logging5.json": HF, "trl-console-tqdm-cr.log": HF,
    "verl-ppo-2node-resumed-3dec.log": RL, "verl-wandb-output-log.log": RL,
    "kineto-rank0.json.gz": "test_import_kineto.py", "kineto-rank1.json.gz": "test_import_kineto.py",
    "nsys-2gpu-one-kernel.sqlite": "test_import_nsight.py",
}  # fmt: skip
"""Which tests assert LOG.md's numbers of a file, or the refusal it asks for."""

ROWS = {
    "smi-csv-2xA6000-1s.csv": 946, "smi-csv-lms100.csv": 652, "smi-csv-repeated-headers.csv": 224, "smi-csv-v100s-10s.log": 368,
    "smi-8gpu-isots-duplicate-index.csv": 43, "smi-noheader-epoch-5s.log": 1657, "bom-15s.csv": 209,
    "korean-preamble-1s.log": 129, "power-wide-2gpu-epoch.csv": 123, "wandb-chart-export-min-max.csv": 2270,
    "trainer-state-grpo-4090-step-time.json": 300, "trainer-state-grpo-logging5.json": 40, "trl-console-tqdm-cr.log": 94,
    "kineto-rank0.json.gz": 4855, "kineto-rank1.json.gz": 4720,
}  # fmt: skip
FORMATS = {
    "smi-csv": "nvidia-smi", "wandb-v0": "wandb", "tfevents": "tfevents", "trainer-state": "trainer-state", "trl-console": "hf-log",
    "verl-": "verl-log", "kineto": "kineto", "nsys": "nsight",
}  # fmt: skip
REFUSED = "smi-csv-all-na.csv"
NO_TIMES = ("smi-no-timestamp.log", "dmon-u-dashes.log", "dmon-default-no-time.log")


def described(real: Path) -> list[str]:
    """The files that LOG.md describes."""
    return re.findall(r"(?m)^## (\S+)$", (real / "LOG.md").read_text("utf-8"))


def test_each_described_file_is_covered(real: Path) -> None:
    """29 files, each with its tests; a file that is added there fails here."""
    names = described(real)
    assert len(names) == 29
    assert sorted(COVERED) == sorted(names)
    assert {path.name for path in real.iterdir()} - {"LOG.md"} == set(names)


@pytest.mark.parametrize("name", COVERED)
def test_the_tests_that_cover_a_file_name_it(name: str) -> None:
    """The table above is no wish: that module reads that file."""
    text = (TESTS / COVERED[name]).read_text("utf-8")
    assert name in text or re.sub(r"rank\d", "rank{rank}", name) in text


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_rows_of_each_file_as_the_log_gives_them(real: Path, name: str, rows: int) -> None:
    """Nothing has to be said about them: they are recognised, and no row is lost."""
    assert read_path(real / name).account.rows_read == rows


@pytest.mark.parametrize("name", [name for name in COVERED if name not in (*NO_TIMES, REFUSED)])
def test_each_file_is_recognised_by_itself(real: Path, name: str) -> None:
    """Also under another name: what it is stands in it."""
    found = read_path(real / name).account
    wanted = next((form for start, form in FORMATS.items() if name.startswith(start)), found.format)
    assert found.format.startswith(wanted)
    assert found.bindings


def test_a_metric_that_is_nowhere_is_not_supported(real: Path) -> None:
    """37 rows of [N/A]: no recording of zeros, and what to query instead."""
    with pytest.raises(
        DipstickError, match=r"not supported by this GPU: .* in all 37 rows \(that is not 0\)"
    ):
        read_path(real / REFUSED)


@pytest.mark.parametrize("name", NO_TIMES)
def test_files_without_times_are_refused(real: Path, name: str) -> None:
    """No recording is made of rows whose time nobody knows, and what would help is said."""
    with pytest.raises(DipstickError) as caught:
        read_path(real / name)
    assert "--interval" in str(caught.value) or "--start" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in COVERED if name not in (*NO_TIMES, REFUSED)])
def test_reading_changes_nothing(real: Path, name: str) -> None:
    """Two readings of one file give the same tables, and the file stays as it is."""
    before = (real / name).read_bytes()
    first, second = read_path(real / name), read_path(real / name)
    assert first.tables.keys() == second.tables.keys()
    assert all(first.tables[table].equals(second.tables[table]) for table in first.tables)
    assert (real / name).read_bytes() == before
