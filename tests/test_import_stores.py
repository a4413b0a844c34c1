"""trackio and MLflow stores, built as the tools build them (trackio 0.43, MLflow 3.17)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.options import Options
from dipstick.importers.registry import choose
from imported import T_S, S, T, bound, rows, texts

if TYPE_CHECKING:
    from pathlib import Path

GPU = "system/gpu_0_utilization_percentage"
CALL = "profiling/Time taken: GRPOTrainer._prepare_inputs"
LIMITS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def trackio(
    folder: Path,
    *metrics: dict[str, Any],
    system: tuple[dict[str, Any], ...] = (),
    runs: tuple[str, ...] = ("r1",),
) -> Path:
    """A project whose k-th row was logged k seconds after ``T``, in each run."""
    path = folder / "p.db"
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
    )
    base.execute(
        "CREATE TABLE system_metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, metrics TEXT)"
    )
    for run in runs:
        for k, row in enumerate(metrics):
            base.execute(
                "INSERT INTO metrics VALUES (NULL, ?, ?, ?, ?, ?)",
                (run + "-id", f"2026-11-30T15:42:{13 + k}.000000+00:00", run, k, json.dumps(row).encode()),
            )
        for k, row in enumerate(system):
            base.execute(
                "INSERT INTO system_metrics VALUES (NULL, ?, ?, ?, ?)",
                (run + "-id", f"2026-11-30T15:42:{13 + k}+00:00", run, json.dumps(row)),
            )
    base.commit()
    base.close()
    return path


def mlflow(folder: Path, *points: tuple[Any, ...]) -> Path:
    """Points are key, value, seconds after ``T``, step, is_nan."""
    path = folder / "mlflow.db"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT)")
    base.execute(
        "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN)"
    )
    base.execute("INSERT INTO runs VALUES ('abc', 'n')")
    for key, value, at, step, nan in points:
        base.execute(
            "INSERT INTO metrics VALUES (?, ?, ?, 'abc', ?, ?)", (key, value, (T_S + at) * 1000, step, nan)
        )
    base.commit()
    base.close()
    return path


def test_trackio_rows_and_system_metrics(tmp_path: Path) -> None:
    """Scalars with trainer steps, telemetry in the table's units; NaN, which trackio writes as text, is missing."""
    path = trackio(tmp_path, {"train/loss": 1.5, "train/global_step": 4, "x": "NaN"},
                   system=({"gpu/0/utilization": 50, "gpu/0/allocated_memory": 2.0, "gpu/mean_utilization": 50},))  # fmt: skip
    assert choose(path).FORMAT == "trackio"
    found = read_path(path, Options())
    assert set(rows(found, "scalars", "t_ns", "step", "value")) == {(0, 4, 1.5), (0, 4, 4.0)}
    assert rows(found, "gpu", "t_ns", "gpu", "util_pct", "mem_used_b") == [(0, 0, 50.0, 2 << 30)]
    assert bound(found)["gpu/mean_utilization"][2] == "not used"


def test_trackio_stamps_batches_so_calls_are_reconstructed(tmp_path: Path) -> None:
    """A call of 3 s logged at 1 s is [-2, 1] s, its step unknown, and its place is not called measured."""
    found = read_path(trackio(tmp_path, {"train/loss": 1.0}, {CALL: 3.0}), Options())
    assert rows(found, "spans", "t0_ns", "t1_ns", "rank", "name", "step", "origin") == [
        (-2 * S, S, 0, "GRPOTrainer._prepare_inputs", None, "reconstructed")
    ]  # fmt: skip
    assert "rank 0 only" in texts(found)
    assert "late by an unknown part of a batch" in texts(found)


def test_several_runs_are_asked_about(tmp_path: Path) -> None:
    """A recording is of one run: the runs are listed; --run takes a name or an id."""
    path = trackio(tmp_path, {"loss": 1.0}, runs=("a", "b"))
    with pytest.raises(ImportFormatError, match="2 runs") as caught:
        read_path(path, Options())
    assert "a-id" in str(caught.value.fix)
    assert read_path(path, Options(run="b")).account.rows_read == 1
    assert read_path(path, Options(run="a-id")).account.rows_read == 1
    with pytest.raises(ImportFormatError, match="no such run"):
        read_path(path, Options(run="c"))


def test_what_stands_in_the_write_ahead_log_is_read(tmp_path: Path) -> None:
    """Trackio leaves rows in p.db-wal: they are read, and neither file is changed."""
    path = trackio(tmp_path, {"loss": 1.0})
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO metrics SELECT NULL, run_id, timestamp, run_name, 1, metrics FROM metrics")
    writer.commit()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")}
    assert read_path(path, Options()).account.rows_read == 2
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")}
    writer.close()


def test_a_view_is_no_table(tmp_path: Path) -> None:
    """A schema may hold anything: a view named metrics is not read."""
    path = tmp_path / "p.db"
    base = sqlite3.connect(path)
    base.execute("CREATE VIEW metrics AS SELECT 1 run_name, 2 timestamp, 3 metrics, 4 run_id")
    base.commit()
    base.close()
    with pytest.raises(ImportFormatError):
        choose(path)


def test_mlflow_rows_of_one_moment_are_one_row(tmp_path: Path) -> None:
    """Scalars, GPU metrics and a measured call; is_nan is missing, not the 0 that stands there."""
    path = mlflow(
        tmp_path, ("loss", 1.5, 2, 7, 0), ("reward", 0.0, 2, 7, 1), (CALL, 0.5, 3, 7, 0), (GPU, 40.0, 3, 1, 0)
    )
    assert choose(path).FORMAT == "mlflow"
    found = read_path(path, Options())
    assert rows(found, "scalars", "t_ns", "step", "value") == [(2 * S, 7, 1.5), (3 * S, 7, 0.5)]
    assert rows(found, "spans", "t0_ns", "t1_ns", "step", "origin") == [(25 * S // 10, 3 * S, 7, "measured")]
    assert rows(found, "gpu", "t_ns", "util_pct") == [(3 * S, 40.0)]
    assert found.account.dropped.total() == 1
    assert "one interval" in texts(found)


@pytest.mark.parametrize("cell", ["'text'", "NULL", "x'ff00'", "1e400", "-5"])
def test_a_column_of_sqlite_holds_anything(tmp_path: Path, cell: str) -> None:
    """A time that is none drops its row; the others are read."""
    path = mlflow(tmp_path, ("loss", 1.5, 2, 7, 0))
    base = sqlite3.connect(path)
    base.execute(f"INSERT INTO metrics VALUES ('loss', 1.0, {cell}, 'abc', 1, 0)")  # noqa: S608 - the parameters above
    base.commit()
    base.close()
    found = read_path(path, Options())
    assert (found.account.rows_read, found.account.dropped.total()) == (2, 1)


def test_mlruns_of_one_run(tmp_path: Path) -> None:
    """The file store: one file a metric; a link in it is not followed."""
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics" / "system").mkdir(parents=True)
    (run / "meta.yaml").write_text("x")
    (run / "metrics" / "loss").write_text(f"{T_S * 1000} 1.5 3\n{T_S * 1000} nan 4\n")
    (run / "metrics" / GPU).write_text(f"{T_S * 1000} 40.0 0\n")
    (run / "metrics" / "other").symlink_to("/etc/passwd")
    path = tmp_path / "mlruns"
    assert choose(path).FORMAT == "mlflow"
    found = read_path(path, Options())
    assert rows(found, "scalars", "t_ns", "step", "value") == [(0, 3, 1.5)]
    assert found.tables["gpu"]["t_ns"].to_list() == [T]
    assert found.account.rows_read == 3


@LIMITS
@given(
    at=st.integers(0, 12_287),
    byte=st.integers(0, 255),
    cut=st.integers(100, 12_288),
    form=st.sampled_from(["trackio", "mlflow"]),
)
def test_damaged_stores_are_read_in_part_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, cut: int, form: str
) -> None:
    """Any byte flipped, cut anywhere: rows, or an ImportFormatError."""
    folder = tmp_path_factory.mktemp("store")
    path = trackio(folder, {"loss": 1.0}) if form == "trackio" else mlflow(folder, ("loss", 1.0, 0, 1, 0))
    data = bytearray(path.read_bytes()[:cut])
    data[at % len(data)] = byte
    path.write_bytes(bytes(data))
    with contextlib.suppress(ImportFormatError):
        read_path(path, Options(format=form))
