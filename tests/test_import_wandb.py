"""W&B's run file: system metrics to telemetry, history to scalars, and what the records say of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.wandb_history import log_row
from dipstick.importers.wandb_system import Run, number_of, stamp_ns
from imported import T_S, S, T, bound, read_text, rows, texts
from wire import (
    blob,
    fragment,
    stamp,
    wandb_exit,
    wandb_gpus,
    wandb_header,
    wandb_history,
    wandb_log,
    wandb_output,
    wandb_run,
    wandb_stats,
    whole,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

MS = 1_000_000
UTIL = {"gpu.0.gpu": 50}


def read(folder: Path, *records: bytes, name: str = "run-abc.wandb") -> ImportedTables:
    """The tables of a run file with these records."""
    return read_text(folder, wandb_log(records), name)


def ticks(version: str, times: list[float], value: Any = 50) -> list[bytes]:
    """A run that began at ``T`` and logged one GPU at these times."""
    return [
        wandb_header(version),
        wandb_run(T_S),
        *(wandb_stats(T_S + t, {"gpu.0.gpu": value}) for t in times),
    ]


def scalars(found: ImportedTables) -> list[tuple[Any, ...]]:
    """Name, value, step, time since ``T`` of each number the training logged, sorted."""
    return sorted(rows(found, "scalars", "name", "value", "step", "t_ns"))


# --- system metrics ---


def test_system_metrics_become_telemetry(tmp_path: Path) -> None:
    """``memory`` is time with memory access, ``memoryAllocatedBytes`` memory in use; the stamp is Unix time."""
    values = {
        "gpu.0.gpu": 98, "gpu.0.memory": 40, "gpu.0.memoryAllocatedBytes": 2**34, "gpu.0.temp": 60, "gpu.0.powerWatts": 560.5,
        "gpu.0.smClock": 1980, "cpu": 3,
    }  # fmt: skip
    found = read(tmp_path, wandb_header(), wandb_run(T_S), wandb_stats(T_S + 15, values))
    columns = (
        "gpu",
        "t_ns",
        "util_pct",
        "mem_util_pct",
        "mem_used_b",
        "temp_c",
        "power_w",
        "sm_mhz",
        "source",
    )
    assert rows(found, "gpu", *columns) == [(0, 15 * S, 98.0, 40.0, 2**34, 60.0, 560.5, 1980.0, "poll")]
    assert (found.account.format, found.account.clock) == ("wandb", "unix")


def test_numbers_are_json_text_in_any_form(tmp_path: Path) -> None:
    """Go writes large numbers as ``1.76e+09``; NaN, text and nothing are missing, not 0."""
    values = {
        "gpu.0.memoryAllocatedBytes": "1.0485760e+06",
        "gpu.0.gpu": "NaN",
        "gpu.0.temp": '"hot"',
        "gpu.0.memory": "",
    }
    found = read(tmp_path, *ticks("0.21.0", [15]), wandb_stats(T_S + 30, values))
    assert rows(found, "gpu", "t_ns", "util_pct", "mem_used_b") == [
        (15 * S, 50.0, None),
        (30 * S, None, 2**20),
    ]


def test_records_of_one_moment_are_one_row(tmp_path: Path) -> None:
    """Newer versions write one record a resource, a few milliseconds apart; one a second later is the next row."""
    found = read(
        tmp_path, wandb_header(),
        wandb_stats(T_S + 10, {"gpu.0.gpu": 50}), wandb_stats(T_S + 10.004, {"gpu.0.temp": 40, "gpu.1.gpu": 7}),
        wandb_stats(T_S + 20, {"gpu.0.gpu": 60}), wandb_stats(T_S + 21.5, {"gpu.0.temp": 41}),
    )  # fmt: skip
    assert sorted(rows(found, "gpu", "gpu", "t_ns", "util_pct", "temp_c")) == [
        (0, 10 * S, 50.0, 40.0), (0, 20 * S, 60.0, None), (0, 21_500 * MS, None, 41.0), (1, 10_004 * MS, 7.0, None),
    ]  # fmt: skip


def test_two_values_of_one_metric_within_a_second_are_two_rows(tmp_path: Path) -> None:
    """Whoever samples that fast wants to see it."""
    found = read(tmp_path, *ticks("0.21.0", [1, 1.25, 1.5]))
    assert [t for (t,) in rows(found, "gpu", "t_ns")] == [S, 1250 * MS, 1500 * MS]


def test_a_label_is_the_node(tmp_path: Path) -> None:
    """``/l:<node>`` behind a key (x_label, DCGM exporter): GPU 0 of two nodes are two GPUs."""
    values = {"gpu.0.gpu/l:node-a": 10, "gpu.0.gpu/l:node-b": 90, "gpu.0.temp/l:node-b": 70}
    found = read(tmp_path, wandb_header(), wandb_stats(T_S + 15, values))
    assert sorted(rows(found, "gpu", "host", "gpu", "util_pct", "temp_c")) == [
        ("node-a", 0, 10.0, None), ("node-b", 0, 90.0, 70.0),
    ]  # fmt: skip
    assert bound(found)["gpu.N.gpu/l:L"] == ("util_pct", "%", "certain")


def test_process_keys_repeat_the_device_and_are_not_used(tmp_path: Path) -> None:
    """They must not overwrite the device's values, nor say whose GPU it is."""
    found = read(tmp_path, wandb_header(), wandb_stats(T_S + 15, {"gpu.process.0.gpu": 99, **UTIL}))
    assert rows(found, "gpu", "util_pct") == [(50.0,)]
    assert bound(found)["gpu.process.N.gpu"] == ("", "", "not used")


def test_each_kind_of_key_is_bound_once(tmp_path: Path) -> None:
    """Eight GPUs have one line a metric in the binding table; what nobody knows is listed."""
    values = {f"gpu.{i}.{metric}": 1 for i in range(8) for metric in ("gpu", "fanSpeed", "magic")}
    found = read(tmp_path, wandb_header(), wandb_stats(T_S + 15, values))
    assert bound(found) == {
        "gpu.N.gpu": ("util_pct", "%", "certain"), "gpu.N.fanSpeed": ("", "", "not used"),
        "gpu.N.magic": ("", "", "unrecognised"), "timestamp": ("time", "Unix time in s", "certain"),
    }  # fmt: skip


def test_metrics_without_a_time_are_counted(tmp_path: Path) -> None:
    """They can't be placed."""
    found = read(tmp_path, *ticks("0.21.0", [15]), blob(7, blob(3, blob(1, "gpu.0.gpu") + blob(16, "9"))))
    assert (found.account.rows_read, dict(found.account.dropped)) == (2, {"system metrics without a time": 1})


def test_a_clock_that_was_set_back_goes_on(tmp_path: Path) -> None:
    """As in every telemetry: the rows behind it are moved, and it is said."""
    found = read(tmp_path, *ticks("0.21.0", [15, 30, 45, 20, 35]))
    assert [t for (t,) in rows(found, "gpu", "t_ns")] == [15 * S, 30 * S, 45 * S, 60 * S, 75 * S]
    assert "the clock went back 25.000 s" in texts(found)


# --- what a value stands for ---


@pytest.mark.parametrize("version", ["0.8.0", "0.12.21", "0.17.8"])
def test_up_to_0_17_8_a_value_is_the_mean_of_30_s(tmp_path: Path, version: str) -> None:
    """Stamped at the end of its window. The first window begins with the run, the last one is short."""
    found = read(tmp_path, *ticks(version, [28, 58, 88, 91], 12.5))
    assert rows(found, "gpu", "t_ns", "window_ns") == [
        (28 * S, 28 * S), (58 * S, 30 * S), (88 * S, 30 * S), (91 * S, 3 * S),
    ]  # fmt: skip
    assert found.account.facts["values_are"] == "means of 30 s"
    assert "mean of the 30 s before it (by its version)" in texts(found)


def test_a_gap_does_not_widen_a_mean(tmp_path: Path) -> None:
    """Whatever lies between: 30 s were averaged."""
    found = read(tmp_path, *ticks("0.14.2", [30, 60, 300], 12.5))
    assert [w for (w,) in rows(found, "gpu", "window_ns")] == [30 * S] * 3


@pytest.mark.parametrize("version", ["0.17.9", "0.19.7", "0.21.0", "1.0.0"])
def test_from_0_17_9_on_a_value_is_one_sample(tmp_path: Path, version: str) -> None:
    """Of at most the last second, however far the rows lie apart."""
    found = read(tmp_path, *ticks(version, [10, 20, 30]))
    assert [w for (w,) in rows(found, "gpu", "window_ns")] == [S] * 3
    assert found.account.facts["values_are"] == "samples"


@pytest.mark.parametrize(("value", "are"), [(12.5, "means of 30 s"), (12, "samples")])
def test_without_a_version_fractions_of_a_percent_tell(tmp_path: Path, value: float, are: str) -> None:
    """NVML counts whole percents: 12.5 is a mean of several."""
    found = read(
        tmp_path, wandb_run(T_S), *(wandb_stats(T_S + t, {"gpu.0.gpu": value}) for t in (30, 60, 90))
    )
    assert found.account.facts["values_are"] == are


def test_the_version_of_older_files_is_in_the_run_record(tmp_path: Path) -> None:
    """Their header is empty."""
    found = read(tmp_path, blob(21, b""), wandb_run(T_S, "0.14.2"), wandb_stats(T_S + 30, UTIL))
    assert (found.account.facts["wandb_version"], found.account.facts["values_are"]) == (
        "0.14.2",
        "means of 30 s",
    )


@pytest.mark.parametrize(("version", "window"), [("0.26.0", 200 * MS), ("0.25.1", 5 * S)])
def test_profiling_counters_have_a_window_of_their_own(tmp_path: Path, version: str, window: int) -> None:
    """GPM from one pair of samples 200 ms apart; before 0.26 only DCGM gave them, watched for 5 s. Neither is 15 s."""
    values = {"gpu.0.gpu": 90, "gpu.0.smActive": 30.5, "gpu.0.pipeTensorActive": 12, "gpu.0.dramActive": 50}
    many = [wandb_stats(T_S + t, values) for t in (15, 30, 45)]
    found = read(tmp_path, wandb_header(version), *many)
    columns = ("gpu", "t_ns", "window_ns", "sm_active_pct", "tensor_active_pct", "dram_active_pct")
    assert rows(found, "gpu_counters", *columns) == [
        (0, t * S, window, 30.5, 12.0, 50.0) for t in (15, 30, 45)
    ]
    assert "sm_active_pct" not in found.tables["gpu"].columns


def test_pcie_and_nvlink_are_left_out(tmp_path: Path) -> None:
    """The same name is MiB/s from GPM and bytes/s from DCGM: nothing is guessed."""
    found = read(tmp_path, wandb_header("0.26.0"), wandb_stats(T_S + 15, {**UTIL, "gpu.0.pcieTxBytes": 5}))
    assert bound(found)["gpu.N.pcieTxBytes"] == ("", "", "not used")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.19.7+a856885", (0, 19, 7)),
        ("0.17.0.dev1", (0, 17, 0)),
        ("0.9", (0, 9, 0)),
        ("?", ()),
        ("9" * 50, ()),
    ],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    """Build numbers do not matter; what is no version is unknown."""
    run = Run()
    run.is_version(text)
    assert run.version == version


def test_the_first_version_counts() -> None:
    """The header stands before the run record, which may be copied from a run that was resumed."""
    run = Run()
    run.is_version("0.21.0")
    run.is_version("0.14.2")
    assert run.version == (0, 21, 0)


# --- GPUs ---


def test_gpus_are_named_by_the_environment_record(tmp_path: Path) -> None:
    """Model, UUID and memory, in NVML's order, also where the record comes after the first sample."""
    gpus = wandb_gpus(("NVIDIA H200", 1 << 37, "GPU-a"), ("NVIDIA H200", 1 << 37, "GPU-b"))
    found = read(tmp_path, wandb_header(), wandb_stats(T_S + 15, {**UTIL, "gpu.1.gpu": 0}), gpus)
    assert rows(found, "gpus", "gpu", "name", "uuid", "mem_total_b") == [
        (0, "NVIDIA H200", "GPU-a", 1 << 37), (1, "NVIDIA H200", "GPU-b", 1 << 37),
    ]  # fmt: skip


def test_command_line_and_paths_do_not_enter_the_recording(tmp_path: Path) -> None:
    """The environment record and the console hold tokens, names and paths."""
    found = read(
        tmp_path, *ticks("0.21.0", [15]), wandb_gpus(("X", 1, "GPU-a")), wandb_output(T_S, "hunter2")
    )
    told = str(found.account.plain()) + str(found.tables) + texts(found)
    assert "hunter2" not in told
    assert found.account.facts["console_records"] == 1


def test_a_gpu_model_without_a_list_of_gpus(tmp_path: Path) -> None:
    """Type and count: all of them are of it."""
    found = read(tmp_path, *ticks("0.21.0", [15]), blob(26, blob(18, "Tesla T4") + whole(19, 2)))
    assert rows(found, "gpus", "gpu", "name", "uuid") == [(0, "Tesla T4", None)]


def test_names_are_not_given_to_gpus_of_other_nodes(tmp_path: Path) -> None:
    """The environment is that of the node that wrote the file."""
    found = read(
        tmp_path,
        wandb_header(),
        wandb_gpus(("H200", 1, "GPU-a")),
        wandb_stats(T_S, {"gpu.0.gpu/l:b": 1, **UTIL}),
    )
    assert sorted(rows(found, "gpus", "host", "name")) == [("b", None), ("host0", "H200")]


# --- history ---


def test_history_rows_become_scalars_with_time_and_step(tmp_path: Path) -> None:
    """Keys plain or nested, numbers in any notation; W&B's own columns are no metrics."""
    row = {
        "train/loss": 0.5,
        "train/global_step": 3,
        "_step": 17,
        "_timestamp": "1.796053343e+09",
        "_runtime": 10,
    }
    for nested in (False, True):
        found = read(tmp_path, wandb_header(), wandb_run(T_S), wandb_history(row, nested=nested))
        assert [entry for entry in scalars(found) if entry[0] == "train/loss"] == [
            ("train/loss", 0.5, 3, 10 * S)
        ]
        assert {name for name, *_ in scalars(found)} <= {"train/loss", "train/global_step"}


def test_nested_keys_are_joined_by_dots(tmp_path: Path) -> None:
    """``{"rewards": {"mean": 1}}`` is logged as one number under two keys."""
    item = blob(1, blob(2, "rewards") + blob(2, "mean") + blob(16, "1")) + blob(
        1, blob(1, "train/loss") + blob(16, "2")
    )
    found = read(
        tmp_path, wandb_header(), blob(2, item + blob(1, blob(1, "_timestamp") + blob(16, str(T_S))))
    )
    assert scalars(found) == [("rewards.mean", 1.0, None, 0), ("train/loss", 2.0, None, 0)]


def test_rows_without_numbers_are_counted(tmp_path: Path) -> None:
    """Tables, pictures and texts."""
    picture = {
        "completions": {"_type": "table-file", "nrows": 4},
        "note": '"x"',
        "_step": 4,
        "_timestamp": T_S,
    }
    found = read(
        tmp_path, wandb_header(), wandb_history({"loss": 1, "_timestamp": T_S}), wandb_history(picture)
    )
    assert (found.account.rows_read, dict(found.account.dropped)) == (2, {"history row without a number": 1})


@pytest.mark.parametrize(
    ("row", "step"),
    [
        ({"_step": 9, "loss": 1}, 9),
        ({"_step": 9, "train/global_step": 3, "loss": 1}, 3),
        ({"_step": 9, "trainer/global_step": 4, "loss": 1}, 4),
        ({"_step": 9, "training/global_step": 5, "loss": 1}, 5),
        ({"loss": 1}, None),
        ({"_step": 9, "profiling/Time taken: GRPOTrainer._prepare_inputs": 1.5}, None),
        ({"_step": 9, "train/global_step": 3, "profiling/Time taken: GRPOTrainer.compute_loss": 1.5}, 3),
        ({"_step": 1.5, "loss": 1}, None),
        ({"_step": 1e300, "loss": 1}, None),
    ],
)
def test_the_training_s_own_step_counts_before_w_and_b_s(row: dict[str, Any], step: int | None) -> None:
    """``_step`` also counts what is logged within a step: TRL's timers advance it."""
    found = log_row(row)
    assert found is not None
    assert found.step == step


def test_a_row_with_only_a_runtime_is_placed_by_the_start_of_the_run() -> None:
    """Old history files; without a start the row has no time."""
    row = {"loss": 1.0, "_runtime": 2.5}
    placed, floating = log_row(row, T), log_row(row)
    assert placed is not None
    assert floating is not None
    assert (placed.t_ns, floating.t_ns) == (T + 2500 * MS, None)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1.5", 1.5), ("1.76e+09", 1.76e9), (3, 3.0), ("NaN", None), ('"NaN"', None), ("Infinity", None), ("true", None),
        (True, None), (None, None), ("[1]", None), ("", None), ("9" * 5000, None), (10**400, None), ([1], None),
    ],
)  # fmt: skip
def test_what_counts_as_a_number(value: object, number: float | None) -> None:
    """Finite numbers, from JSON text or JSON values; a truth value is none."""
    assert number_of(value) == number


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [(1_796_053_333.1234567, T + 123_457_000), (0.0, None), (-5.0, None), (1e300, None), (None, None)],
)
def test_stamps_are_as_fine_as_a_double_holds(seconds: float | None, ns: int | None) -> None:
    """Microseconds; 0 and the far future are no times."""
    assert stamp_ns(seconds) == ns


def test_trl_s_timers_become_spans_that_end_when_they_were_logged(tmp_path: Path) -> None:
    """Each call is a row of its own; W&B is the only place where most TRL users have times within a step."""
    name = "profiling/Time taken: GRPOTrainer._prepare_inputs"
    found = read(tmp_path, wandb_header(), wandb_history({name: 2.5, "_step": 4, "_timestamp": T_S + 10}))
    assert rows(found, "spans", "name", "t0_ns", "t1_ns", "rank", "step", "origin") == [
        ("GRPOTrainer._prepare_inputs", 7_500 * MS, 10 * S, 0, None, "measured"),
    ]  # fmt: skip


# --- the run ---


def test_what_the_records_say_of_the_run(tmp_path: Path) -> None:
    """Start, version, exit; how many records of each kind there were."""
    found = read(tmp_path, *ticks("0.21.0", [15]), wandb_output(T_S + 1, "a"), wandb_exit(255, 111))
    facts = found.account.facts
    assert {key: facts[key] for key in ("run_start_s", "wandb_version", "exit_code", "runtime_s", "records")} == {
        "run_start_s": float(T_S), "wandb_version": "0.21.0", "exit_code": 255, "runtime_s": 111, "records": 5,
    }  # fmt: skip
    assert (facts["history_records"], facts["stats_records"], facts["console_records"]) == (0, 1, 1)
    assert "no exit record" not in texts(found)


def test_an_exit_without_a_code_is_a_success(tmp_path: Path) -> None:
    """A field of 0 is not written."""
    found = read(tmp_path, *ticks("0.21.0", [15]), blob(18, whole(2, 5)))
    assert found.account.facts["exit_code"] == 0


def test_a_killed_run_is_said_to_be_one(tmp_path: Path) -> None:
    """No exit record: its last rows, up to 32 KiB, were never written."""
    found = read(tmp_path, *ticks("0.21.0", [15]))
    assert "no exit record: the run was killed" in texts(found)
    assert "exit_code" not in found.account.facts


def test_what_is_whole_of_a_cut_file_is_read(tmp_path: Path) -> None:
    """The last record begins and never ends."""
    data = wandb_log(ticks("0.21.0", [15, 30])) + fragment(2, b"begun")
    found = read_text(tmp_path, data, "x.wandb")
    assert found.tables["gpu"].height == 2
    assert list(found.account.dropped.items()) == [
        ("record that never ends (the run was killed, or the file is cut)", 1)
    ]


def test_a_record_that_is_no_message_is_counted(tmp_path: Path) -> None:
    """Its checksum fits: a version that nobody knows yet, or a fuzzer."""
    bad_item = blob(7, stamp(2, T_S + 20) + blob(3, b"\xff"))
    found = read(tmp_path, *ticks("0.21.0", [15]), b"\xff\xff", bad_item)
    assert dict(found.account.dropped) == {"record that can't be decoded": 2}
    assert found.tables["gpu"].height == 1


def test_other_records_are_passed_over(tmp_path: Path) -> None:
    """Summaries, files, artifacts, metrics' definitions, and kinds that come one day."""
    found = read(
        tmp_path, *ticks("0.21.0", [15]), *(blob(kind, b"\xff\xff") for kind in (3, 6, 8, 12, 20, 22, 77))
    )
    assert (found.account.facts["records"], dict(found.account.dropped)) == (10, {})


@pytest.mark.parametrize(("data", "why"), [(b"", "it is empty"), (b":W&B\xe1\xbe\x00", "it is empty"),
                                           (wandb_log([b"abc"])[:-1], "fragment that is cut")])  # fmt: skip
def test_a_file_without_a_whole_record_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    """0-byte files exist; the message says where else to look."""
    with pytest.raises(ImportFormatError, match=rf"no record of it can be read: .*{why}.*\n.*output\.log"):
        read_text(tmp_path, data, "x.wandb", format="wandb")


def test_a_run_without_gpus_and_metrics_is_refused(tmp_path: Path) -> None:
    """Nothing of it can be explained; its keys are listed."""
    with pytest.raises(ImportFormatError, match=r"0 metrics bound"):
        read(tmp_path, wandb_header(), wandb_stats(T_S + 15, {"cpu": 5}), wandb_exit(0, 20))


def test_a_run_without_gpus_still_has_its_history(tmp_path: Path) -> None:
    """A CPU run, or a controller on another host than the GPUs."""
    found = read(tmp_path, wandb_header(), wandb_history({"loss": 0.5, "_timestamp": T_S, "_step": 1}))
    assert "gpu" not in found.tables
    assert scalars(found) == [("loss", 0.5, 1, 0)]


def test_the_format_is_known_by_its_magic(tmp_path: Path) -> None:
    """Whatever the file is called."""
    path = tmp_path / "renamed.bin"
    path.write_bytes(wandb_log(ticks("0.21.0", [15])))
    assert read_path(path).account.format == "wandb"


def test_many_keys_are_bounded(tmp_path: Path) -> None:
    """A hostile file with a key a record: what is beyond the limit is counted, not kept."""
    values = {f"gpu.0.{'x' * 5}{i}": 1 for i in range(5000)}
    found = read(tmp_path, wandb_header(), wandb_stats(T_S + 15, UTIL), wandb_stats(T_S + 30, values))
    assert found.account.dropped["value under one key too many"] == 5001 - 4096
    assert len(found.account.bindings) <= 4098
