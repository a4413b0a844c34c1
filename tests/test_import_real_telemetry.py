"""Telemetry that practitioners left in public repositories: each file is read as worked out by hand in LOG.md."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.cli import main
from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.options import Options, parse_zone

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000


def facts(path: Path, **options: Any) -> dict[str, Any]:
    """The account of a file."""
    return read_path(path, Options(**options)).account.plain()


def levels(found: dict[str, Any]) -> dict[int, tuple[float, float, float] | None]:
    """Mean (three decimals), minimum and maximum of each GPU's utilization."""
    return {
        gpu["gpu"]: (round(u["mean"], 3), u["min"], u["max"]) if (u := gpu["util_pct"]) else None
        for gpu in found["gpus"]
    }


@pytest.mark.parametrize(
    ("name", "rows", "gpus", "span_s", "interval_s", "longest_s"),
    [
        ("smi-csv-2xA6000-1s.csv", 946, {0: (91.042, 29, 100), 1: (0.006, 0, 1)}, 478.685, 1.0, 1.168),
        ("smi-csv-lms100.csv", 652, {0: (8.028, 0, 100)}, 65.332, 0.1, 0.114),
        ("smi-csv-repeated-headers.csv", 224, {0: (24.366, 1, 42)}, 228.771, 1.03, 1.037),
        ("smi-csv-v100s-10s.log", 368, {0: (26.188, 0, 56)}, 3671.094, 10.002, 10.017),
        ("smi-8gpu-isots-duplicate-index.csv", 43, dict.fromkeys(range(8)), 8.0, 2.0, 2.0),
        ("smi-noheader-epoch-5s.log", 1657, {0: (6.022, 0, 100)}, 8371.0, 5.0, 6.0),
        ("bom-15s.csv", 209, {0: (8.833, 0, 100)}, 3140.0, 15.0, 16.0),
        ("korean-preamble-1s.log", 129, {0: (8.256, 0, 55)}, 132.0, 1.0, 2.0),
        ("power-wide-2gpu-epoch.csv", 123, dict.fromkeys(range(2)), 32.617, 0.196, 1.137),
    ],
)
def test_rows_gpus_span_interval_and_utilization(
    real: Path, name: str, rows: int, gpus: dict[int, Any], span_s: float, interval_s: float, longest_s: float
) -> None:
    """As in LOG.md; None: the file holds no utilization."""
    found = facts(real / name)
    assert (found["rows_read"], found["dropped"]) == (rows, {})
    assert levels(found) == gpus
    assert found["span_s"] == pytest.approx(span_s, abs=1e-3)
    assert found["interval_s"] == pytest.approx(interval_s, abs=1e-3)
    assert found["longest_interval_s"] == pytest.approx(longest_s, abs=1e-3)


def test_a_gpu_that_is_never_used_is_still_one(real: Path) -> None:
    """473 rows each, and the memory as nvidia-smi has it in MiB."""
    tables = read_path(real / "smi-csv-2xA6000-1s.csv").tables
    per_gpu = tables["gpu"].group_by("gpu").agg(pl.len(), pl.col("mem_used_b").max()).sort("gpu").rows()
    assert per_gpu == [(0, 473, 25_073 * 2**20), (1, 473, 15 * 2**20)]
    assert tables["gpus"].select("name", "mem_total_b").rows() == [("NVIDIA RTX A6000", 49_140 * 2**20)] * 2


def test_first_and_last_stamp_are_as_written(real: Path) -> None:
    """2023/06/22 18:56:56.252 to 19:00:45.023, local: kept as if it were UTC until a zone is known."""
    account = read_path(real / "smi-csv-repeated-headers.csv").account
    first = round(datetime(2023, 6, 22, 18, 56, 56, 252_000, tzinfo=UTC).timestamp() * 1000) * 10**6
    assert (account.clock, account.first_ns, account.last_ns) == ("local", first, first + 228_771 * 10**6)


def test_the_column_that_tells_the_gpus_apart_is_taken(real: Path) -> None:
    """``index`` is 0 in every row, ``gpu`` counts 0 to 7; +08:00 makes 17:26:50 to 09:26:50 UTC; idle at 72 to 75 W."""
    read = read_path(real / "smi-8gpu-isots-duplicate-index.csv")
    bound = {b.source: (b.meaning, b.why) for b in read.account.bindings}
    assert bound["index"] == ("", "column 'gpu' tells the GPUs apart")
    assert read.account.clock == "unix"
    assert read.account.first_ns == int(datetime(2025, 9, 8, 9, 26, 50, tzinfo=UTC).timestamp()) * S
    assert 71 < read.tables["gpu"]["power_w"].min() < read.tables["gpu"]["power_w"].max() < 76  # type: ignore[operator]


def test_unnamed_columns_are_inferred_and_said_to_be_likely(real: Path) -> None:
    """Epoch, utilization, power, memory used of 81,920 MiB; used memory stays while the GPU is idle."""
    read = read_path(real / "smi-noheader-epoch-5s.log")
    assert [(b.meaning, b.sure) for b in read.account.bindings] == [
        ("time", "likely"), ("util_pct", "likely"), ("power_w", "likely"), ("mem_used_b", "likely"), ("mem_total_b", "likely"),
    ]  # fmt: skip
    assert read.tables["gpus"]["mem_total_b"].to_list() == [81_920 * 2**20]


def test_columns_named_after_gpus_hold_what_the_file_is_called(real: Path, tmp_path: Path) -> None:
    """``power_log.csv`` with 145 to 276: watts. The same table under another name is asked about, with the choices."""
    power = read_path(real / "power-wide-2gpu-epoch.csv").tables["gpu"].group_by("gpu").agg(
        pl.col("power_w").mean().round(3).alias("mean"), pl.col("power_w").min().alias("min"), pl.col("power_w").max().alias("max")
    )  # fmt: skip
    assert power.sort("gpu").rows() == [(0, 202.841, 145.701, 214.959), (1, 265.006, 249.69, 275.543)]
    assert facts(real / "power-wide-2gpu-epoch.csv")["gaps"] == 10
    other = tmp_path / "data.csv"
    other.write_bytes((real / "power-wide-2gpu-epoch.csv").read_bytes())
    with pytest.raises(
        ImportFormatError, match=r"'GPU0' is ambiguous.*\n.*GPU0=power_w.*GPU0=mem_used_b"
    ) as refused:
        read_path(other)
    assert "util_pct" not in str(refused.value)


def test_a_metric_that_is_never_there_is_not_supported_not_zero(real: Path) -> None:
    """37 rows of [N/A]."""
    with pytest.raises(
        ImportFormatError, match=r"memory\.used \[MiB\]: not supported.*all 37 rows \(that is not 0\)"
    ):
        read_path(real / "smi-csv-all-na.csv")


@pytest.mark.parametrize("name", ["smi-no-timestamp.log", "dmon-u-dashes.log", "dmon-default-no-time.log"])
def test_rows_without_times_are_refused_until_their_distance_is_given(real: Path, name: str) -> None:
    """Nothing is guessed: not even the default of dmon."""
    with pytest.raises(ImportFormatError, match=r"have no time.*\n.*--interval 1 --start"):
        read_path(real / name)


@pytest.mark.parametrize(
    ("name", "rows", "level", "dropped"),
    [
        ("smi-no-timestamp.log", 23_646, (6.974, 0, 100), {}),
        ("dmon-default-no-time.log", 63, (40.905, 1, 97), {}),
        ("dmon-u-dashes.log", 27, (0.0, 0, 0), {"no value in it (N/A)": 26}),
    ],
)
def test_with_the_distance_they_are_read(
    real: Path, name: str, rows: int, level: tuple[float, float, float], dropped: dict[str, int]
) -> None:
    """Dashes are no zeros: 26 of 27 rows of one file carry nothing."""
    found = facts(real / name, interval_ns=S)
    assert (found["rows_read"], found["dropped"], found["clock"]) == (rows, dropped, "relative")
    assert levels(found) == {0: level}


def test_human_tables_in_a_loop(real: Path) -> None:
    """173 snapshots, 19:00:23 to 19:12:02; up to 11 of them share a second and are spread over it."""
    read = read_path(real / "smi-table-loop-60s.log")
    found = read.account.plain()
    assert (found["rows_read"], found["snapshots"], levels(found)) == (173, 173, {0: (1.711, 0, 100)})
    times = read.tables["gpu"]["t_ns"]
    first = int(datetime(2024, 10, 29, 19, 0, 23, tzinfo=UTC).timestamp()) * S
    assert times[0] == first
    assert times[-1] // S * S == first + (11 * 60 + 39) * S
    assert set(times[:11].diff().drop_nulls().to_list()) == {60 * S, 61 * S}
    assert (times[11] - times[10], times.is_unique().all(), times.is_sorted()) == (82 * S, True, True)


def test_a_run_that_crosses_midnight_in_a_zone(real: Path) -> None:
    """23:31:56 in Tokyo is 14:31:56 UTC; --tz makes the times absolute."""
    account = read_path(real / "bom-15s.csv", Options(tz=parse_zone("Asia/Tokyo"))).account
    assert account.clock == "unix"
    assert account.first_ns == int(datetime(2025, 8, 12, 14, 31, 56, tzinfo=UTC).timestamp()) * S


def test_a_chart_export_without_times_holds_scalars_by_step(real: Path) -> None:
    """2,270 rows, steps 4 to 42,509, one run; MIN and MAX say that no point is a mean of several."""
    read = read_path(real / "wandb-chart-export-min-max.csv")
    table = read.tables["scalars"]
    assert (read.account.rows_read, table.height) == (2270, 2270)
    assert (table["step"].min(), table["step"].max(), table["name"].unique().to_list()) == (
        4,
        42_509,
        ["lm_loss"],
    )
    assert "t_ns" not in table.columns


@pytest.mark.parametrize(
    "name", ["smi-csv-all-na.csv", "smi-no-timestamp.log", "wandb-chart-export-min-max.csv"]
)
def test_what_can_not_be_explained_leaves_nothing_behind(
    real: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, a message that names the file, and no recording."""
    assert main(["import", str(real / name), "-o", str(tmp_path / "RUN")]) == 1
    out, err = capsys.readouterr()
    assert (out, name in err, list(tmp_path.iterdir())) == ("", True, [])
