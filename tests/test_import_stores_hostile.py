"""trackio and MLflow stores that others wrote: anything may stand in a cell, and stores grow large."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import DipstickError, ImportFormatError
from dipstick.importers import mlflow, read_path, trackio, training_rows
from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.options import Options
from imported import T_S, S, T, bound, rows, texts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIMITS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STAMP = "2026-11-30T15:42:13+00:00"


def a_trackio(folder: Path, *lines: tuple[Any, Any, Any], name: str = "p.db") -> Path:
    """A project of one run with these time stamps, steps and cells."""
    path = folder / name
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name TEXT, step, metrics)")
        base.executemany("INSERT INTO metrics VALUES (NULL, ?, 'r', ?, ?)", lines)
    return path


def an_mlflow(
    folder: Path, points: Iterable[tuple[Any, ...]], runs: tuple[tuple[Any, Any], ...] = (("abc", "n"),)
) -> Path:
    """A store with these runs and points (key, value, ms, run, step, is_nan)."""
    path = folder / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE runs (run_uuid, name)")
        base.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        base.executemany("INSERT INTO runs VALUES (?, ?)", runs)
        base.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", points)
    return path


def discarding(path: Path, reader: Any) -> tuple[Account, int]:
    """The account of a file whose rows are thrown away, and the most bytes that Python held meanwhile."""
    account = Account(path.name, reader.FORMAT, "host0")
    tracemalloc.start()
    try:
        reader.read(path, Options(), Sink(account, lambda _table, _frame: None))
        return account, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- trackio: a cell of JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        "[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "{", "null", "[1]", '"text"', "1", "", b"\xff\xfe{}", None, 7, 1.5,
        '{"loss": ' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_a_row_whose_json_is_none_is_counted(tmp_path: Path, cell: Any) -> None:
    """Deep, cut, binary, no object, digits without end: that row is dropped, the next one is read."""
    found = read_path(a_trackio(tmp_path, (STAMP, 0, cell), (STAMP, 1, '{"loss": 1.5}')))
    assert rows(found, "scalars", "t_ns", "step", "value") == [(0, 1, 1.5)]
    assert found.account.dropped == {"row whose time or JSON can't be read": 1}
    assert found.account.rows_read == 2


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("NaN", None), ("Infinity", None), ("-Infinity", None), ("1e999", None), ("text", None), (None, None), (True, None),
        ([1], None), ({"a": 1}, None), (10**400, None), (2**70, float(2**70)), (-0.5, -0.5), (3, 3.0),
    ],
)  # fmt: skip
def test_what_counts_as_a_number_of_a_row(tmp_path: Path, value: Any, kept: float | None) -> None:
    """NaN comes as text; text, lists and truth values are no numbers; what no float can hold is missing."""
    found = read_path(a_trackio(tmp_path, (STAMP, 0, json.dumps({"train/loss": 1.0, "x": value}))))
    by_name = dict(
        zip(found.tables["scalars"]["name"].cast(str), found.tables["scalars"]["value"], strict=True)
    )
    assert by_name.get("x") == kept
    assert by_name["train/loss"] == 1.0


@pytest.mark.parametrize("stamp", ["yesterday", "", None, b"\x00", "9999-99-99", "2026-11-30T25:00:00", 1.5])
def test_a_row_without_a_time_is_counted(tmp_path: Path, stamp: Any) -> None:
    """It has no place: it is dropped, and said."""
    found = read_path(a_trackio(tmp_path, (stamp, 0, '{"loss": 2.5}'), (STAMP, 1, '{"loss": 1.5}')))
    assert found.tables["scalars"]["value"].to_list() == [1.5]
    assert sum(found.account.dropped.values()) == 1


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        (STAMP, 0), ("2026-11-30T15:42:13", 0), ("2026-11-30T16:42:14+01:00", 1), ("2026-11-30T15:42:13.250000+00:00", 0.25),
        ("2026-11-30 15:42:15", 2),
    ],
)  # fmt: skip
def test_stamps_of_every_zone(tmp_path: Path, stamp: str, seconds: float) -> None:
    """Without a zone it is UTC, which trackio writes."""
    found = read_path(a_trackio(tmp_path, (stamp, 0, '{"loss": 1.5}')))
    assert rows(found, "scalars", "t_ns") == [(round(seconds * S),)]


@pytest.mark.parametrize(
    ("step", "kept"), [(3, 3), ("x", None), (None, None), (2**62, 2**62), (1.5, None), (b"\xff", None)]
)
def test_a_step_that_is_none_is_not_known(tmp_path: Path, step: Any, kept: int | None) -> None:
    """The number stays, its step is missing; never step 0."""
    found = read_path(a_trackio(tmp_path, (STAMP, step, '{"loss": 1.5}')))
    assert rows(found, "scalars", "step", "value") == [(kept, 1.5)]


def test_a_project_without_rows_is_refused(tmp_path: Path) -> None:
    """Nothing was logged: no empty recording."""
    with pytest.raises(ImportFormatError):
        read_path(a_trackio(tmp_path), Options(format="trackio"))


def test_only_keys_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    """0 keys bound is an error that lists what there was."""
    with pytest.raises(ImportFormatError) as caught:
        read_path(a_trackio(tmp_path, (STAMP, 0, '{"zzz": 1.0, "yyy": 2.0}')))
    assert "zzz" in str(caught.value)


def test_trackios_memory_does_not_grow_with_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key in every row: the first ones are kept, the rest are counted."""
    monkeypatch.setattr(training_rows, "MOST_KEYS", 100)
    lines = [(STAMP, k, json.dumps({"loss": 1.0, f"key{k}": 1.0})) for k in range(2000)]
    account, _ = discarding(a_trackio(tmp_path, *lines), trackio)
    assert len(account.bindings) == 100
    assert account.dropped == {"number of a key beyond the first 100": 1901}


def test_a_row_of_more_keys_than_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell with 20,000 keys: the first ones are kept, the others counted."""
    monkeypatch.setattr(training_rows, "MOST_KEYS", 1000)
    wide = {f"k{i}": float(i) for i in range(20_000)}
    account, _ = discarding(a_trackio(tmp_path, (STAMP, 0, json.dumps({"loss": 1.0} | wide))), trackio)
    assert len(account.bindings) == training_rows.MOST_KEYS
    assert sum(account.dropped.values()) == 20_001 - training_rows.MOST_KEYS


@LIMITS
@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8))  # fmt: skip
def test_any_json_in_a_cell(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    """Read or counted; the row after it is always there."""
    path = a_trackio(tmp_path_factory.mktemp("t"), (STAMP, 0, json.dumps(value)), (STAMP, 1, '{"loss": 1.5}'))
    found = read_path(path, Options(format="trackio"))
    assert 1.5 in found.tables["scalars"]["value"].to_list()
    assert found.account.rows_read == 2


# --- MLflow: rows of points ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "ms", "step", "nan"),
    [
        (float("inf"), T_S * 1000, 1, 0), (1.0, -5, 1, 0), (1.0, 2**62, 1, 0), (1.0, "x", 1, 0), (1.0, None, 1, 0),
        (1.0, T_S * 1000, 2**60, 0), (1.0, T_S * 1000, "x", 0), (0.0, T_S * 1000, 1, 1), ("text", T_S * 1000, 1, 0),
        (b"\xff", T_S * 1000, 1, 0), (None, T_S * 1000, 1, 0), ("nan", T_S * 1000, 1, 0), ("9" * 5000, T_S * 1000, "9" * 5000, 0),
    ],
)  # fmt: skip
def test_a_point_that_is_none_is_counted(tmp_path: Path, value: Any, ms: Any, step: Any, nan: int) -> None:
    """NaN is stored as 0 with a mark: it is missing, not 0."""
    points = [("loss", value, ms, "abc", step, nan), ("loss", 1.5, T_S * 1000, "abc", 2, 0)]
    found = read_path(an_mlflow(tmp_path, points))
    assert rows(found, "scalars", "t_ns", "step", "value") == [(0, 2, 1.5)]
    assert found.account.dropped == {"number that is NaN, infinite or without a time": 1}


def test_a_run_is_chosen_by_name_or_id_never_guessed(tmp_path: Path) -> None:
    """Two runs: refused with both names; another's points are not taken."""
    points = [("loss", 1.0, T_S * 1000, "a", 1, 0), ("loss", 2.0, T_S * 1000, "b", 1, 0)]
    path = an_mlflow(tmp_path, points, (("a", "first"), ("b", "second")))
    with pytest.raises(DipstickError) as caught:
        read_path(path)
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)
    for run in ("second", "b"):
        assert read_path(path, Options(run=run)).tables["scalars"]["value"].to_list() == [2.0]


@pytest.mark.parametrize(
    ("key", "column", "value", "expected"),
    [
        ("system/gpu_0_utilization_percentage", "util_pct", 40.0, 40.0), ("system/node-1/gpu_0_power_usage_watts", "power_w", 300.0, 300.0),
        ("system/gpu_0_memory_usage_megabytes", "mem_used_b", 2.0, 2_000_000),
    ],
)  # fmt: skip
def test_units_of_system_metrics(
    tmp_path: Path, key: str, column: str, value: float, expected: float
) -> None:
    """MLflow's megabytes are millions of bytes; a node's name before the GPU is none of the metric."""
    path = an_mlflow(tmp_path, [(key, value, T_S * 1000, "abc", 0, 0)])
    assert read_path(path).tables["gpu"][column].to_list() == [expected]


def test_system_metrics_are_no_scalars(tmp_path: Path) -> None:
    """They are telemetry, at their own times, and the delay is said."""
    points = [
        ("system/gpu_0_utilization_percentage", 40.0, T_S * 1000, "abc", 0, 0),
        ("system/cpu_utilization_percentage", 10.0, T_S * 1000, "abc", 0, 0),
        ("loss", 1.5, (T_S + 1) * 1000, "abc", 1, 0),
    ]
    found = read_path(an_mlflow(tmp_path, points))
    assert found.tables["scalars"]["name"].cast(str).to_list() == ["loss"]
    assert found.tables["gpu"]["t_ns"].to_list() == [T]
    assert bound(found)["system/cpu_utilization_percentage"][2] == "not used"
    assert "one interval (10 s unless set) after it was taken" in texts(found)


def test_mlflows_memory_does_not_grow_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the points take no more than half as much memory again: full batches go out."""
    monkeypatch.setattr(training_rows, "_BATCH", 2000)
    peaks = []
    for many in (8_000, 24_000):
        folder = tmp_path / str(many)
        folder.mkdir()
        path = an_mlflow(folder, (("loss", 1.0, T_S * 1000 + k, "abc", k, 0) for k in range(many)))
        account, peak = discarding(path, mlflow)
        assert account.rows_read == many
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]


def a_run_folder(folder: Path, name: str = "run") -> Path:
    """A run of a file store."""
    run = folder / name
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\n")
    return run


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "x y z\n",
        "1 2\n",
        f"{T_S * 1000} nan 1\n",
        f"{T_S * 1000} 1e999 1\n",
        "\x00\n",
        f"{T_S * 1000}\n",
        "9" * 6000 + "\n",
    ],
)
def test_lines_of_a_file_store_that_are_none(tmp_path: Path, text: str) -> None:
    """Cut, empty, binary: counted; the whole line after them is read."""
    run = a_run_folder(tmp_path)
    (run / "metrics" / "loss").write_text(text + f"{T_S * 1000} 1.5 3\n")
    found = read_path(run)
    assert rows(found, "scalars", "t_ns", "step", "value")[-1] == (0, 3, 1.5)


def test_bytes_that_are_no_text_in_a_file_store(tmp_path: Path) -> None:
    """Invalid UTF-8 in one line costs that line."""
    run = a_run_folder(tmp_path)
    (run / "metrics" / "loss").write_bytes(b"\xff\xfe\xfa 1 1\n" + f"{T_S * 1000} 1.5 3\n".encode())
    found = read_path(run)
    assert found.tables["scalars"]["value"].to_list() == [1.5]
    assert sum(found.account.dropped.values()) == 1


def test_links_of_a_file_store_are_not_followed(tmp_path: Path) -> None:
    """A metric that links to another file of the machine is not read."""
    (tmp_path / "secret").write_text(f"{T_S * 1000} 42 1\n")
    run = a_run_folder(tmp_path)
    (run / "metrics" / "loss").write_text(f"{T_S * 1000} 1.5 3\n")
    (run / "metrics" / "reward").symlink_to(tmp_path / "secret")
    assert read_path(run).tables["scalars"]["name"].cast(str).to_list() == ["loss"]


def test_yaml_of_a_file_store_is_not_loaded(tmp_path: Path) -> None:
    """Tags that build objects in a naive loader do nothing here: the file is not parsed at all."""
    run = a_run_folder(tmp_path)
    (run / "meta.yaml").write_text("!!python/object/apply:os.mkdir ['" + str(tmp_path / "owned") + "']\n")
    (run / "metrics" / "loss").write_text(f"{T_S * 1000} 1.5 3\n")
    assert read_path(run).account.rows_read == 1
    assert not (tmp_path / "owned").exists()
