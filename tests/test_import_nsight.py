"""Nsight Systems exports: what ran on the GPUs, NVTX ranges, and databases that mean harm."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick.errors import ImportFormatError
from dipstick.importers import choose, read_path
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from kernel_traces import GEMM, NCCL, export

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
START = 1_700_000_000_000_000_000
PID = 77 << 24
STRINGS = [(1, GEMM), (2, NCCL), (3, "generate")]


def account(path: Path) -> Any:
    """The account of a database."""
    return read_path(path, Options(format="nsight")).account


@pytest.fixture
def real_export(real: Path) -> Path:
    """The real export."""
    return real / "nsys-2gpu-one-kernel.sqlite"


def test_the_real_export(real_export: Path) -> None:
    """LOG.md's numbers: two GPUs listed, one kernel of 5.993702 ms on GPU 0, 48 copies in and 24 out, and its start."""
    found = read_path(real_export)
    assert choose(real_export).FORMAT == "nsight"
    (gpu,) = found.account.facts["gpu_activity"]
    assert (gpu["gpu"], gpu["events"], gpu["copies"]) == (0, 73, {"HtoD": 48, "DtoH": 24})
    assert gpu["kernel_work_s"] == pytest.approx(0.005993702, abs=1e-12)
    rows = found.tables["gpu_counters"]
    first = rows["t_ns"][0] - rows["window_ns"][0]
    assert first - 1_717_063_098_555_996_243 == 292_650_462
    assert found.tables["gpus"].select("gpu", "name").rows() == [
        (0, "NVIDIA GeForce RTX 2080 Ti"), (1, "NVIDIA GeForce RTX 2080 Ti"),
    ]  # fmt: skip
    assert found.account.clock == "unix"
    assert "spans" not in found.tables


def test_kernels_collectives_and_copies(tmp_path: Path) -> None:
    """4 ms of work, 4 ms of a collective of which 2 alone, 1 ms of a copy out: exact seconds, and the collective's row."""
    path = export(
        tmp_path / "a.sqlite", StringIds=STRINGS, TARGET_INFO_SESSION_START_TIME=[(START, "", "")],
        CUPTI_ACTIVITY_KIND_KERNEL=[(0, 4 * MS, 0, PID, 1), (2 * MS, 6 * MS, 0, PID, 2)],
        CUPTI_ACTIVITY_KIND_MEMCPY=[(7 * MS, 8 * MS, 0, 2, 99)],
    )  # fmt: skip
    found = read_path(path)
    (gpu,) = found.account.facts["gpu_activity"]
    assert (gpu["kernel_work_s"], gpu["comm_alone_s"], gpu["copy_bus_s"]) == pytest.approx(
        (0.004, 0.002, 0.001)
    )
    assert gpu["copied_b"] == {"DtoH": 99}
    assert found.tables["collectives"].select("name", "pid", "entered_ns", "left_ns").row(0) == (
        NCCL, 77, START + 2 * MS, START + 6 * MS,
    )  # fmt: skip


def test_ranges_become_spans(tmp_path: Path) -> None:
    """Push/pop and start/end ranges are spans, with text of their own or by number; marks are counted out."""
    thread = PID | 5
    path = export(
        tmp_path / "a.sqlite", StringIds=STRINGS, TARGET_INFO_SESSION_START_TIME=[(START, "", "")],
        NVTX_EVENTS=[(0, MS, 59, "step 4", None, thread), (0, MS, 60, None, 3, thread), (0, None, 34, "mark", None, thread),
                     (0, None, 59, "open", None, thread)],
    )  # fmt: skip
    found = read_path(path)
    assert found.tables["spans"].select("name", "phase", "step", "pid", "tid", "t0_ns").rows() == [
        ("step", None, 4, 77, 5, START), ("generate", "generate", None, 77, 5, START),
    ]  # fmt: skip
    assert found.account.dropped == {
        "an NVTX mark or name, not a range": 1, "an NVTX range without a name, start or end": 1,
    }  # fmt: skip


def test_the_process_with_most_kernels_of_a_gpu_is_its_rank(tmp_path: Path) -> None:
    """Of two processes on GPU 1 the busier one is rank 1; the other has none."""
    kernels = [(i, i + 1, 1, 10 << 24, 1) for i in range(3)] + [(9, 10, 1, 11 << 24, 1)]
    rows = read_path(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels)).tables["processes"]
    assert rows.select("pid", "rank", "gpu").rows() == [(10, 1, 1)]


def test_without_the_sessions_start_times_are_relative(tmp_path: Path) -> None:
    """Old exports do not say when they began."""
    path = export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[(5, 6, 0, PID, 1)])
    assert account(path).clock == "relative"


def test_whole_cuda_graphs_count_as_work_and_it_is_said(tmp_path: Path) -> None:
    """In graph mode a graph's kernels are not told apart, so waits inside of it can't be seen."""
    found = account(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(0, 3 * MS, 0, PID)]))
    assert found.facts["gpu_activity"][0]["kernel_work_s"] == 0.003
    assert any("--cuda-graph-trace=node" in note.text for note in found.notes)


def test_nothing_personal_is_kept(tmp_path: Path) -> None:
    """Environment, users and command lines are in the database, and nowhere in the recording."""
    path = export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[(0, MS, 0, PID, 1)],
        TARGET_INFO_SYSTEM_ENV=[("HF_TOKEN", "hf_secretsecret")], PROCESSES=[(PID, "/home/anna/train.py")],
    )  # fmt: skip
    import_files([path], tmp_path / "run", created_unix_ns=1)
    held = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert b"hf_secret" not in held
    assert b"anna" not in held


def test_the_file_is_not_changed(tmp_path: Path) -> None:
    """No byte of the database changes, and no journal appears beside it, whatever its name holds."""
    path = export(tmp_path / "a b?mode=rw#.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[(0, MS, 0, PID, 1)])
    before = path.read_bytes()
    account(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_view_in_place_of_a_table_is_not_run(tmp_path: Path) -> None:
    """A view that would count for ever is no table: nothing is captured then."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE StringIds (id, value)")
        base.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 0 UNION ALL SELECT start + 1 FROM n)"
            " SELECT start, start AS end, 0 AS deviceId FROM n"
        )
        base.commit()
    with pytest.raises(ImportFormatError, match=r"usable value|0 metrics"):
        account(path)


@pytest.mark.parametrize(
    "row",
    [("x", MS, 0, PID, 1), (None, MS, 0, PID, 1), (2, 1, 0, PID, 1), (0, MS, -1, PID, 1), (0, MS, 10**9, PID, 1),
     (0, 2**62, 0, PID, 1), (0.5, MS, 0, PID, 1)],
)  # fmt: skip
def test_strange_rows_are_dropped_and_counted(tmp_path: Path, row: tuple[Any, ...]) -> None:
    """A kernel without a start, end or GPU is left out and counted."""
    found = account(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[row, (0, MS, 0, PID, 1)]))
    assert found.dropped == {"an activity without a start, end or GPU": 1}
    assert found.facts["gpu_activity"][0]["events"] == 1


def test_other_databases_are_not_taken(tmp_path: Path) -> None:
    """Any other SQLite file is none of nsys."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE runs (id)")
        base.commit()
    with pytest.raises(ImportFormatError, match="no importer knows"):
        choose(path)


@settings(max_examples=80, deadline=None)
@given(cut=st.floats(0, 1), at=st.integers(0, 10**6), junk=st.binary(max_size=64))
def test_any_damage_is_an_error_or_a_smaller_import(
    tmp_path_factory: pytest.TempPathFactory, cut: float, at: int, junk: bytes
) -> None:
    """Cut anywhere, overwritten anywhere: only our own error is raised."""
    folder = tmp_path_factory.mktemp("n")
    kernels = [(i * MS, i * MS + 5, 0, PID, 1) for i in range(200)]
    path = export(folder / "a.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=kernels)
    data = bytearray(path.read_bytes())
    data = data[: round(len(data) * (0.2 + 0.8 * cut))]
    at %= len(data)
    data[at : at + len(junk)] = junk
    path.write_bytes(bytes(data))
    try:
        found = account(path)
    except ImportFormatError:
        return
    assert found.facts["gpu_activity"][0]["events"] <= found.rows_read
