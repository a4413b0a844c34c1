"""Nsight exports at their edges: versions, tables and columns that are missing, threads, processes, several sessions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from dipstick import phases
from dipstick.analysis.pipeline import analyse
from dipstick.errors import ImportFormatError
from dipstick.importers import choose, read_path
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from dipstick.recording.reader import open_recording
from kernel_traces import GEMM, NCCL, export

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
START = 1_700_000_000_000_000_000
NAMES = [(1, GEMM), (2, NCCL)]
ONE = [(0, 4 * MS, 0, 70 << 24, 1)]


def gpus(path: Path) -> list[dict[str, Any]]:
    """Exact seconds by GPU."""
    found: list[dict[str, Any]] = read_path(path, Options(format="nsight")).account.facts["gpu_activity"]
    return found


def changed(path: Path, *statements: str) -> Path:
    """The database after some SQL."""
    with closing(sqlite3.connect(path)) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


# Versions, tables, columns


@pytest.mark.parametrize("version", ["3.11.2", "3.20.0", "99.0.0", "", "not a version"])
def test_any_schema_version_is_read_by_its_columns(tmp_path: Path, version: str) -> None:
    """What the export calls its schema decides nothing: tables and columns that we know are read."""
    path = export(tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=ONE)
    changed(
        path, "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)",
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '{version}')",  # noqa: S608 - our own words
    )  # fmt: skip
    assert choose(path).FORMAT == "nsight"
    assert gpus(path)[0]["kernel_work_s"] == 0.004


def test_new_columns_and_tables_are_no_matter(tmp_path: Path) -> None:
    """A later nsys adds some: they are not read."""
    path = export(tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=ONE)
    changed(
        path, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN clusterX INTEGER", "CREATE TABLE CUPTI_ACTIVITY_KIND_NEW (a)"
    )  # fmt: skip
    assert gpus(path)[0]["kernel_work_s"] == 0.004


@pytest.mark.parametrize("column", ["globalPid", "demangledName"])
def test_a_column_that_is_missing_is_not_known(tmp_path: Path, column: str) -> None:
    """Who it was or what it was called: the time is known all the same."""
    path = export(tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=ONE)
    changed(path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
    assert gpus(path)[0]["kernel_work_s"] == 0.004


@pytest.mark.parametrize("column", ["start", "end", "deviceId"])
def test_a_column_that_nothing_goes_without(tmp_path: Path, column: str) -> None:
    """Without start, end or GPU no kernel can be placed: refused, not read as zero."""
    path = export(tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=ONE)
    changed(path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
    with pytest.raises(ImportFormatError):
        gpus(path)


def test_short_names_stand_in_for_long_ones(tmp_path: Path) -> None:
    """Of kernels in C there is no demangled name."""
    path = export(
        tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=[(0, MS, 0, 70 << 24, None)]
    )
    changed(
        path, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN shortName INTEGER",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 2",
    )  # fmt: skip
    assert gpus(path)[0]["comm_alone_s"] == 0.001


@pytest.mark.parametrize("name", [None, 99, -1, "two", 2**62])
def test_a_kernel_whose_name_is_not_there_is_work(tmp_path: Path, name: Any) -> None:
    """A dangling number is no communication kernel."""
    path = export(
        tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=[(0, MS, 0, 70 << 24, name)]
    )
    assert gpus(path)[0]["kernel_work_s"] == 0.001


def test_without_the_table_of_strings(tmp_path: Path) -> None:
    """Kernels have no names then: all are work; ranges with text of their own keep it."""
    path = export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=ONE, NVTX_EVENTS=[(0, MS, 59, "forward", None, 70 << 24 | 1)]
    )  # fmt: skip
    changed(path, "DROP TABLE StringIds")
    assert gpus(path)[0]["kernel_work_s"] == 0.004
    assert read_path(path, Options(format="nsight")).tables["spans"]["name"].to_list() == ["forward"]


def test_copies_alone(tmp_path: Path) -> None:
    """No kernel table: none was captured, and nothing is said of kernels but that none ran here."""
    path = export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=[(0, 2 * MS, 0, 1, 64), (2 * MS, 3 * MS, 0, 8, 32)]
    )
    (found,) = gpus(path)
    assert (found["copy_bus_s"], found["copy_device_s"], found["busy_s"]) == (0.002, 0.001, 0.003)


@pytest.mark.parametrize(
    ("kind", "way", "bus"),
    [(1, "HtoD", True), (2, "DtoH", True), (8, "DtoD", False), (9, "HtoH", True), (10, "PtoP", False), (11, "HtoD", True),
     (12, "DtoH", True), (13, "DtoD", False), (0, "other", False), (77, "other", False), (None, "other", False), ("1", "other", False)],
)  # fmt: skip
def test_kinds_of_copies(tmp_path: Path, kind: Any, way: str, *, bus: bool) -> None:
    """From and to the host is the bus; kinds that are unknown are kept apart."""
    path = export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=[(0, MS, 0, kind, 10)])
    (found,) = gpus(path)
    if kind == "1":  # SQLite's column makes the number of it
        way, bus = "HtoD", True
    assert found["copies"] == {way: 1}
    assert found["copied_b"] == {way: 10}
    assert found["copy_bus_s" if bus else "copy_device_s"] == 0.001


@pytest.mark.parametrize("size", [None, -5, "much", 2.5])
def test_a_size_that_is_none_is_no_bytes(tmp_path: Path, size: Any) -> None:
    """The copy took its time; how much it moved is not known."""
    (found,) = gpus(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=[(0, MS, 0, 1, size)]))
    assert (found["copy_bus_s"], found["copied_b"]) == (0.001, {"HtoD": 0})


# Sessions and time


def test_one_session_listed_twice_is_one(tmp_path: Path) -> None:
    """The same start in two rows."""
    path = export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=ONE, TARGET_INFO_SESSION_START_TIME=[(START, "", "")] * 2
    )  # fmt: skip
    found = read_path(path, Options(format="nsight"))
    assert found.account.clock == "unix"
    assert (found.tables["gpu_counters"]["t_ns"] - found.tables["gpu_counters"]["window_ns"])[0] == START


def test_sessions_that_begin_at_different_times_leave_the_date_open(tmp_path: Path) -> None:
    """Whose zero the kernels count from isn't said: distances are right, the date is not guessed."""
    rows = [(START, "", ""), (START + 10**12, "", "")]
    path = export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=ONE, TARGET_INFO_SESSION_START_TIME=rows)
    assert read_path(path, Options(format="nsight")).account.clock == "relative"


@pytest.mark.parametrize("start", [None, 0, -START, 12345, "today", 1.7e18])
def test_a_start_that_is_none(tmp_path: Path, start: Any) -> None:
    """Anything but Unix nanoseconds is no date."""
    path = export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=ONE,
        TARGET_INFO_SESSION_START_TIME=[(start, "", "")],
    )
    clock = read_path(path, Options(format="nsight")).account.clock
    assert clock == (
        "unix" if start == 1.7e18 else "relative"
    )  # SQLite's column makes a whole number of 1.7e18


def test_a_kernel_of_no_length(tmp_path: Path) -> None:
    """It ran and covered nothing."""
    path = export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[(5, 5, 0, 70 << 24, 1), *ONE])
    assert (gpus(path)[0]["events"], gpus(path)[0]["busy_s"]) == (2, 0.004)


# Processes and threads


def test_several_processes_on_a_gpu_count_once(tmp_path: Path) -> None:
    """A trainer and an inference engine side by side: an instant is busy once, and the busier one is the rank."""
    kernels = [
        (0, 4 * MS, 0, 70 << 24, 1),
        (2 * MS, 5 * MS, 0, 71 << 24, 1),
        (5 * MS, 6 * MS, 0, 71 << 24, 1),
    ]
    path = export(tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=kernels)
    found = read_path(path, Options(format="nsight"))
    assert found.account.facts["gpu_activity"][0]["busy_s"] == 0.006
    assert found.tables["processes"].select("pid", "rank", "gpu").rows() == [(71, 0, 0)]


def test_a_process_on_two_gpus_is_one_rank(tmp_path: Path) -> None:
    """It has most kernels on GPU 1: it is not the rank of GPU 0 as well."""
    kernels = [(i, i + 1, 1, 70 << 24, 1) for i in range(3)] + [(9, 10, 0, 70 << 24, 1)]
    rows = read_path(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels)).tables["processes"]
    assert rows.select("pid", "rank").rows() == [(70, 1)]


def test_pushes_and_pops_on_two_threads_nest_each_for_itself(tmp_path: Path) -> None:
    """The main thread is in a step with a forward; a loader's range crosses both and is no phase of the rank."""
    main, loader = 70 << 24 | 1, 70 << 24 | 2
    path = export(
        tmp_path / "a.sqlite", StringIds=NAMES, CUPTI_ACTIVITY_KIND_KERNEL=[(0, 100 * MS, 0, 70 << 24, 1)],
        TARGET_INFO_SESSION_START_TIME=[(START, "", "")],
        NVTX_EVENTS=[(0, 100 * MS, 59, "step 1", None, main), (10 * MS, 40 * MS, 59, "forward", None, main),
                     (30 * MS, 70 * MS, 59, "fetch batch", None, loader)],
    )  # fmt: skip
    import_files([path], tmp_path / "run", Options(format="nsight"), created_unix_ns=1)
    (timeline,) = analyse(open_recording(tmp_path / "run")).timelines
    seconds = dict(zip(phases.PHASES, (timeline.seconds_ns() / 1e9).tolist(), strict=True))
    assert seconds["forward"] == pytest.approx(0.03)
    assert sum(seconds.values()) == pytest.approx(0.1)
    assert timeline.main.nesting.crossings == 0


def test_thread_and_process_of_a_global_thread(tmp_path: Path) -> None:
    """The upper bits are the process, the lower 24 the thread."""
    thread = (3 << 48) | (0xABCDEF << 24) | 0x123456
    path = export(tmp_path / "a.sqlite", NVTX_EVENTS=[(0, MS, 59, "forward", None, thread)])
    rows = read_path(path, Options(format="nsight")).tables["spans"]
    assert rows.select("pid", "tid").rows() == [(0xABCDEF, 0x123456)]


@pytest.mark.parametrize("kind", [33, 34, 70, 75, None, "push", 2**40])
def test_events_that_are_no_ranges(tmp_path: Path, kind: Any) -> None:
    """Marks, categories, names of threads, and types that a later nsys adds: counted out."""
    path = export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=ONE, NVTX_EVENTS=[(0, MS, kind, "forward", None, 1)]
    )
    found = read_path(path, Options(format="nsight"))
    assert "spans" not in found.tables
    assert found.account.dropped == {"an NVTX mark or name, not a range": 1}


def test_ranges_alone_are_an_import(tmp_path: Path) -> None:
    """NVTX without CUDA: phases, and no word about GPUs."""
    path = export(tmp_path / "a.sqlite", NVTX_EVENTS=[(0, MS, 59, "forward", None, 70 << 24 | 1)])
    found = read_path(path, Options(format="nsight"))
    assert found.tables["spans"]["phase"].to_list() == ["forward"]
    assert "gpu_counters" not in found.tables


def test_gpus_that_ran_nothing_are_listed(tmp_path: Path) -> None:
    """A second GPU is there and has no activity: named, with no windows, for it is not known to be idle."""
    cards = [(0, "NVIDIA H200", 150 << 30, 0), (1, "NVIDIA H200", 150 << 30, 1)]
    found = read_path(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=ONE, TARGET_INFO_GPU=cards))
    assert found.tables["gpus"]["gpu"].to_list() == [0, 1]
    assert found.tables["gpu_counters"]["gpu"].unique().to_list() == [0]


# Harm


@pytest.mark.parametrize(
    "name",
    [
        "\x1b]0;x\x07",
        "a\x00b",
        "<img src=x onerror=alert(1)>",
        "'; DROP TABLE NVTX_EVENTS; --",
        "x" * 100_000,
    ],
)
def test_hostile_texts_are_texts(tmp_path: Path, name: str) -> None:
    """They are names, of at most 500 characters, and belong to what is around them."""
    path = export(tmp_path / "a.sqlite", NVTX_EVENTS=[(0, MS, 59, name, None, 70 << 24 | 1)])
    rows = read_path(path, Options(format="nsight")).tables["spans"]
    assert rows.select("name", "phase").rows() == [(name[:500], None)]


def test_bytes_where_text_should_be(tmp_path: Path) -> None:
    """A name that is no UTF-8 is shown with replacement characters."""
    path = export(tmp_path / "a.sqlite", NVTX_EVENTS=[(0, MS, 59, "x", None, 70 << 24 | 1)])
    changed(path, "UPDATE NVTX_EVENTS SET text = CAST(x'636166e9' AS TEXT)")
    assert read_path(path, Options(format="nsight")).tables["spans"]["name"].to_list() == ["caf\ufffd"]


def test_a_table_without_rows(tmp_path: Path) -> None:
    """Made and never filled: nothing was captured, which is an error."""
    with pytest.raises(ImportFormatError, match=r"usable value|0 metrics"):
        gpus(export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[]))


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\x00", b"SQLite format 3\x00" + b"\xff" * 4096, b"PK\x03\x04"]
)
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    """With our own error."""
    (tmp_path / "a.sqlite").write_bytes(content)
    with pytest.raises(ImportFormatError):
        gpus(tmp_path / "a.sqlite")
