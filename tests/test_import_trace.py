"""Importing a trace folder: every column ends where the README of the traces says, and bad lines are counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.errors import ImportFormatError, RecordingError
from dipstick.importers import import_path, read_path, sniff, trace_gpu
from dipstick.importers.text import fitting, read_csv, read_json_lines
from dipstick.recording.reader import SAMPLES, Recording, open_recording
from dipstick.recording.schema import TABLES
from make_samples import LIMITS, main

S = 1_000_000_000
MS = 1_000_000
T = 1_796_000_000 * S


def lines(*rows: dict[str, Any] | str) -> str:
    """JSON lines; a string goes in as it is."""
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n"


def span(name: str, start_s: float, end_s: float, **more: Any) -> dict[str, Any]:
    """A span line of rank 0."""
    return {
        "name": name,
        "rank": 0,
        "pid": 9,
        "step": 0,
        "t0": T + round(start_s * S),
        "t1": T + round(end_s * S),
        **more,
    }


def imported(folder: Path, **files: str) -> Recording:
    """The recording made from a folder with these files (``__`` in a name stands for a dot)."""
    source = folder / "trace"
    source.mkdir()
    for name, content in files.items():
        (source / name.replace("__", ".")).write_text(content)
    return open_recording(import_path(source, folder / "run"))


def rows(recording: Recording, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a table."""
    return recording.table(table, columns=columns).rows()


def texts(recording: Recording) -> list[str]:
    """What the notes say."""
    return [note.text for note in recording.notes]


NVML = "t_ns,gpu,util,mem_util,mem_used,power_mw,sm_mhz,temp\n"
GPM = "t_ns,gpu,gr_active,sm_util,sm_occ,tensor,dram_bw,pcie_tx_mibs,pcie_rx_mibs,nvl_rx,nvl_tx\n"


# --- one file at a time ---


def test_spans_keep_names_times_ranks_and_pickled_bytes(tmp_path: Path) -> None:
    """The analysis maps names to phases; the importer leaves ``phase`` null."""
    recording = imported(
        tmp_path,
        spans__r0__jsonl=lines(
            span("step", 0, 3), span("reward.workers", 1, 2, pickled_bytes=40_000, jobs=32)
        ),
        spans__r1__jsonl=lines(span("step", 0.5, 3, rank=1, pid=10)),
    )
    columns = ("rank", "pid", "name", "step", "t0_ns", "t1_ns", "pickled_b", "jobs", "origin", "phase")
    assert rows(recording, "spans", *columns) == [
        (0, 9, "step", 0, 0, 3 * S, None, None, "measured", None),
        (1, 10, "step", 0, S // 2, 3 * S, None, None, "measured", None),
        (0, 9, "reward.workers", 0, S, 2 * S, 40_000, 32, "measured", None),
    ]
    assert recording.manifest.origin == "imported"
    assert recording.manifest.source == "trace folder trace"


def test_checkpoints_cache_clears_and_weight_syncs_are_events_too(tmp_path: Path) -> None:
    """One event a span, named by what happens; other spans are none."""
    recording = imported(
        tmp_path,
        spans__r0__jsonl=lines(
            span("checkpoint", 1, 2), span("empty_cache", 3, 4, step=-1), span("GRPOTrainer.sync_weights", 5, 6),
            span("GRPOTrainer.compute_loss", 0, 9),
        ),
    )  # fmt: skip
    assert rows(recording, "events", "name", "t0_ns", "t1_ns", "step", "rank", "pid") == [
        ("checkpoint", S, 2 * S, 0, 0, 9),
        ("cache_clear", 3 * S, 4 * S, -1, 0, 9),
        ("weight_sync", 5 * S, 6 * S, 0, 0, 9),
    ]


def test_a_job_submitted_at_0_was_not_timed(tmp_path: Path) -> None:
    """0 is no time; atoms and relaxation steps are kept as detail."""
    job = {"job": "0-1", "step": 0, "rank": 0, "pid": 5, "t0": T, "t1": T + S, "natoms": 8, "opt_steps": 34}
    recording = imported(
        tmp_path, jobs__r0__jsonl=lines({**job, "submitted": 0}, {**job, "job": "0-2", "submitted": T - S})
    )
    assert rows(recording, "jobs", "job", "submitted_ns", "t0_ns", "t1_ns", "detail") == [
        ("0-2", 0, S, 2 * S, "natoms=8 opt_steps=34"),
        ("0-1", None, S, 2 * S, "natoms=8 opt_steps=34"),
    ]


def test_polls_become_gpu_rows(tmp_path: Path) -> None:
    """Milliwatts become watts; two polls are too few to tell the counter's window."""
    recording = imported(
        tmp_path, nvml__csv=NVML + f"{T},1,99,81,644939776,560250,1980,45\n{T + S},1,0,,,,,\n"
    )
    columns = (
        "gpu",
        "t_ns",
        "source",
        "util_pct",
        "mem_util_pct",
        "mem_used_b",
        "power_w",
        "sm_mhz",
        "temp_c",
        "window_ns",
    )
    assert rows(recording, "gpu", *columns) == [
        (1, 0, "poll", 99.0, 81.0, 644_939_776, 560.25, 1980.0, 45.0, None),
        (1, S, "poll", 0.0, None, None, None, None, None, None),
    ]
    assert "the utilization counter's own window can't be seen in the data; taken as unknown" in texts(
        recording
    )


def test_buffer_samples_pair_utilization_with_memory(tmp_path: Path) -> None:
    """Kind 1 and 2 of one sample are stamped up to 7 us apart; one without partner keeps its row."""
    at = T // 1000
    recording = imported(
        tmp_path,
        buf__csv=f"t_us,gpu,kind,val\n{at},0,1,50\n{at + 200_000},0,1,60\n{at + 7},0,2,20\n{at + 400_000},0,2,30\n"
        f"{at + 1},1,2,70\n",
    )
    assert rows(recording, "gpu", "gpu", "t_ns", "source", "util_pct", "mem_util_pct") == [
        (0, 0, "buffer", 50.0, 20.0),
        (1, 1_000, "buffer", None, 70.0),
        (0, 200 * MS, "buffer", 60.0, None),
        (0, 400 * MS, "buffer", None, 30.0),
    ]


def test_gpm_rows_are_means_since_the_row_before(tmp_path: Path) -> None:
    """The first row of each GPU has nothing before it (its zeros are no measurement): left out. NaN is missing."""
    recording = imported(
        tmp_path,
        gpm__csv=GPM
        + f"{T},0,0,0,0,0,nan,0,0,0,0\n{T + 5},1,0,0,0,0,nan,0,0,0,0\n"
        + f"{T + 200 * MS},0,90,70,40,5,63,1.5,2.5,3.5,4.5\n{T + 800 * MS},0,91,71,41,6,nan,0,0,0,0\n",
    )
    assert rows(recording, "gpu_counters", *list(TABLES["gpu_counters"])[1:13]) == [
        (0, 0, 200 * MS, 90.0, 70.0, 40.0, 5.0, 63.0, 1.5, 2.5, 3.5, 4.5),
        (0, 600 * MS, 600 * MS, 91.0, 71.0, 41.0, 6.0, None, 0.0, 0.0, 0.0, 0.0),
    ]


def test_process_rows_stand_for_the_usual_second_after_a_pause(tmp_path: Path) -> None:
    """The driver lists only active processes: a row after a pause does not stand for the pause."""
    at = T // 1000
    sweep = "".join(f"{at + s * 1_000_000},0,7,{s},1\n" for s in (0, 1, 2, 3, 20))
    recording = imported(
        tmp_path, proc__csv="t_us,gpu,pid,sm,mem\n" + sweep, nvml__csv=NVML + f"{T},0,1,1,1,1,1,1\n"
    )
    assert rows(recording, "gpu_process", "gpu", "pid", "t_ns", "window_ns", "sm_pct", "mem_pct") == [
        (0, 7, s * S, S, float(s), 1.0) for s in (0, 1, 2, 3, 20)
    ]


def test_processes_get_their_role_and_the_gpu_they_were_seen_on(tmp_path: Path) -> None:
    """Pids of spans train (and hold TRL's engine), pids of jobs score; most rows decide the GPU."""
    at = T // 1000
    recording = imported(
        tmp_path,
        spans__r0__jsonl=lines(span("step", 0, 1)),
        jobs__r0__jsonl=lines(
            {"job": "a", "rank": 0, "pid": 11, "t0": T, "t1": T + 1}, {"rank": 0, "pid": 12, "t0": T, "t1": T}
        ),
        proc__csv="t_us,gpu,pid,sm,mem\n"
        + "".join(f"{at + i},{g},{p},1,1\n" for i, (g, p) in enumerate([(1, 9), (3, 9), (3, 9), (2, 11)])),
    )
    assert rows(recording, "processes", "host", "pid", "role", "rank", "gpu", "source") == [
        ("host0", 9, "trainer+engine", 0, 3, "spans"),
        ("host0", 11, "reward_worker", 0, 2, "jobs"),
        ("host0", 12, "reward_worker", 0, None, "jobs"),
    ]


def test_names_and_memory_of_gpus_come_from_nvidia_smi(tmp_path: Path) -> None:
    """143771 MiB in bytes; a GPU that nvidia-smi does not list stays without a name."""
    recording = imported(tmp_path, nvml__csv=NVML + f"{T},0,1,1,1,1,1,1\n{T},2,1,1,1,1,1,1\n")
    assert rows(recording, "gpus", "gpu", "name", "mem_total_b") == [(0, None, None), (2, None, None)]
    smi = tmp_path / "trace" / "nvidia-smi.csv"
    smi.write_text(
        "timestamp, index, name, memory.total [MiB]\n2026/11/30 15:42:13.956, 0, NVIDIA H200, 143771 MiB\n"
    )
    again = open_recording(import_path(tmp_path / "trace", tmp_path / "again"))
    assert rows(again, "gpus", "gpu", "name", "mem_total_b") == [
        (0, "NVIDIA H200", 143_771 * 2**20),
        (2, None, None),
    ]


def test_the_trainers_log_becomes_scalars_without_times(tmp_path: Path) -> None:
    """Every number of every entry; text, booleans and numbers beyond a float are left out."""
    history = [
        {"step": 1, "loss": 0.5, "note": "x", "ok": True},
        {"step": 2, "loss": 10**400, "n": 3},
        {"loss": 1},
        7,
    ]
    recording = imported(
        tmp_path,
        spans__r0__jsonl=lines(span("step", 0, 1)),
        trainer_state__json=json.dumps({"log_history": history}),
    )
    assert rows(recording, "scalars", "step", "name", "value", "t_ns") == [
        (1, "loss", 0.5, None),
        (2, "n", 3.0, None),
    ]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"log_history": 3}', "[" * 100_000])
def test_a_trainers_log_of_another_form_gives_no_scalars(tmp_path: Path, content: str) -> None:
    """The rest is imported all the same."""
    recording = imported(tmp_path, spans__r0__jsonl=lines(span("step", 0, 1)), trainer_state__json=content)
    assert (recording.has("spans"), recording.has("scalars")) == (True, False)


# --- what is not there ---


def test_what_is_absent_is_said(tmp_path: Path) -> None:
    """Spans only: everything else is missing, each with what that costs."""
    recording = imported(tmp_path, spans__r0__jsonl=lines(span("step", 0, 1)))
    assert texts(recording) == [
        "missing: no jobs.rK.jsonl: reward jobs and workers can't be told",
        "missing: no nvml.csv and no buf.csv: utilization, dips and states can't be told",
        "missing: no gpm.csv: SM, DRAM and PCIe activity are unknown, so waiting is told from power alone",
        "missing: no proc.csv: the GPU of each process and its share are unknown",
    ]


@pytest.mark.parametrize(
    ("name", "content", "table"),
    [
        ("nvml.csv", NVML + f"{T},0,1,1,1,1,1,1\n", "gpu"),
        ("buf.csv", f"t_us,gpu,kind,val\n{T // 1000},0,1,5\n", "gpu"),
        ("gpm.csv", GPM + f"{T},0,1,1,1,1,1,1,1,1,1\n{T + S},0,1,1,1,1,1,1,1,1,1\n", "gpu_counters"),
        ("jobs.r3.jsonl", lines({"job": "x", "pid": 1, "t0": T, "t1": T}), "jobs"),
    ],
)
def test_any_one_file_is_enough(tmp_path: Path, name: str, content: str, table: str) -> None:
    """A folder with a single usable file becomes a recording of that."""
    recording = imported(tmp_path, **{name.replace(".", "__"): content})
    assert recording.table(table).height == 1


@pytest.mark.parametrize(
    "content", ["", "t_ns,gpu,util\n", "a,b\n1,2\n", "\x00\x01\x02", "t_ns,T_NS,gpu\n1,2,3\n"]
)
def test_no_usable_row_is_an_error(tmp_path: Path, content: str) -> None:
    """Empty, header only, foreign, binary, ambiguous."""
    with pytest.raises(ImportFormatError, match="no file in the folder holds a usable row"):
        imported(tmp_path, nvml__csv=content)
    assert not (tmp_path / "run").exists()


# --- damage ---


def test_lines_that_are_no_spans_are_counted(tmp_path: Path) -> None:
    """Cut, no object, no name, a time that is text or beyond 64 bits: five of six lines are skipped."""
    recording = imported(
        tmp_path,
        spans__r0__jsonl=lines(
            '{"name": "st', "[1]", {**span("x", 0, 1), "name": None}, {**span("x", 0, 1), "t0": "now"},
            {**span("x", 0, 1), "t1": 2**63}, span("step", 0, 1),
        ),
    )  # fmt: skip
    assert rows(recording, "spans", "name") == [("step",)]
    assert texts(recording)[0] == "spans.r0.jsonl: 5 lines could not be read; skipped"


def test_a_line_without_rank_has_its_files(tmp_path: Path) -> None:
    """spans.r7.jsonl holds rank 7, unless the line says otherwise."""
    bare, absurd = span("a", 0, 1), {**span("b", 1, 2), "rank": 2**40}
    del bare["rank"]
    recording = imported(tmp_path, spans__r7__jsonl=lines(bare, absurd, span("c", 2, 3, rank=1)))
    assert rows(recording, "spans", "name", "rank") == [("a", 7), ("b", 7), ("c", 1)]


def test_csv_rows_that_are_none_are_counted(tmp_path: Path) -> None:
    """A cut last line, a row of text, a GPU number that can't be; a short row keeps what it has."""
    recording = imported(
        tmp_path, nvml__csv=NVML + f"{T},0,5,1,1,1,1,1\n\nbroken\n{T + 1},70000,5\n{T + 2},1,7\n{T + 3}"
    )
    assert rows(recording, "gpu", "gpu", "util_pct") == [(0, 5.0), (1, 7.0)]
    assert texts(recording)[0] == "nvml.csv: 3 rows could not be read; skipped"


def test_a_csv_of_another_form_is_noted_and_the_rest_imported(tmp_path: Path) -> None:
    """The header names no time: the file is left out, by name."""
    recording = imported(tmp_path, spans__r0__jsonl=lines(span("step", 0, 1)), gpm__csv="a,b\n1,2\n")
    assert texts(recording)[0] == "gpm.csv: the header has no column t_ns, gpu."


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name, not a traceback."""
    (tmp_path / "spans.r0.jsonl").touch()
    monkeypatch.setattr(Path, "read_bytes", _forbidden)
    with pytest.raises(ImportFormatError, match=r"spans\.r0\.jsonl: it can't be read: Permission denied"):
        read_path(tmp_path)


def _forbidden(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize(
    "content",
    ["\ufeffT_NS , GPU,util\r\n5, 1 ,7\r\n", "t_ns,gpu,util\n5,1,7,8,9\n", 't_ns,gpu,util\n\n5,1,7\n"'],
    ids=["bom, case, blanks, CRLF", "ragged", "stray quote"],
)
def test_csv_reading_is_tolerant(tmp_path: Path, content: str) -> None:
    """What spreadsheets and cut pipes do to a file does not lose its rows."""
    (tmp_path / "x.csv").write_text(content)
    frame, _ = read_csv(
        tmp_path / "x.csv", {"t_ns": pl.Int64, "gpu": pl.UInt16, "util": pl.Float32}, ("t_ns", "gpu")
    )
    assert frame.rows() == [(5, 1, 7.0)]


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_json_lines_of_any_bytes_never_raise(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes]
) -> None:
    """Rows and skipped lines add up to the lines that are not blank."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(content))
    frame, skipped = read_json_lines(path, {"a": pl.Int64}, ("a",))
    assert frame.height + skipped == len([line for line in path.read_bytes().splitlines() if line.strip()])


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, pl.Int64, 3), (3.0, pl.Int64, 3), (3.5, pl.Int64, None), (2**63, pl.Int64, None), (2**31, pl.Int32, None),
        (True, pl.Int64, None), ("3", pl.Int64, None), (math.nan, pl.Int64, None), (math.inf, pl.Int64, None),
        (3, pl.Float64, 3.0), (10**400, pl.Float64, None), ("x", pl.String, "x"), (3, pl.String, None), (None, pl.String, None),
    ],
)  # fmt: skip
def test_a_json_value_fits_its_column_or_is_missing(value: object, dtype: Any, expected: object) -> None:
    """Nothing is wrapped, rounded or parsed on the way."""
    assert fitting(value, dtype) == expected


# --- the counter's window ---


def polls(period_ms: int, window_ms: int, count: int = 400) -> pl.DataFrame:
    """Polls of a counter that takes a new value every window."""
    times = [i * period_ms for i in range(count)]
    values = [(t // window_ms * 37) % 101 for t in times]
    return pl.DataFrame({"t_ns": [t * MS for t in times], "gpu": 0, "util": values, "mem_util": 0})


NO_SAMPLES = pl.DataFrame(schema={"t_us": pl.Int64, "gpu": pl.UInt16})


@pytest.mark.parametrize(
    ("period_ms", "window_ms", "expected_ms"),
    [(100, 200, 200), (20, 167, 167), (100, 1000, 1000), (1000, 200, None)],
)
def test_the_window_shows_in_how_often_a_poll_changes(
    period_ms: int, window_ms: int, expected_ms: int | None
) -> None:
    """10 Hz polls of a 5 Hz counter change every second time; 1 Hz polls can't tell a 200 ms window from 1 s."""
    found = trace_gpu.probe_window(polls(period_ms, window_ms), NO_SAMPLES)
    assert found == (None if expected_ms is None else pytest.approx(expected_ms * MS, abs=3 * MS))


def test_a_constant_counter_shows_no_window() -> None:
    """A GPU that idles all the time never changes: unknown, not infinite."""
    assert trace_gpu.probe_window(polls(100, 10**9), NO_SAMPLES) is None


def test_the_drivers_buffer_shows_the_window_directly() -> None:
    """One sample a window: 199,988 us is 200 ms."""
    samples = pl.DataFrame({"t_us": [i * 199_988 for i in range(30)], "gpu": 0})
    assert trace_gpu.probe_window(polls(100, 1000), samples) == 200 * MS


# --- choosing an importer, writing the recording ---


def test_a_trace_folder_is_recognised_by_its_names(tmp_path: Path) -> None:
    """An empty folder and a file are none; the file names say it, not their content."""
    assert sniff(tmp_path) is None
    (tmp_path / "spans.r12.jsonl").touch()
    importer = sniff(tmp_path)
    assert importer is not None
    assert importer.NAME.startswith("trace folder")
    assert sniff(tmp_path / "spans.r12.jsonl") is None


@pytest.mark.parametrize("name", ["holiday.jpg", "spans.rX.jsonl"])
def test_an_unknown_folder_lists_the_known_formats(tmp_path: Path, name: str) -> None:
    """And nothing is written."""
    (tmp_path / name).touch()
    with pytest.raises(ImportFormatError, match=r"no importer knows this.*\n.*trace folder"):
        import_path(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_importing_what_is_not_there(tmp_path: Path) -> None:
    """A wrong path is said first."""
    with pytest.raises(ImportFormatError, match="no such file or folder"):
        read_path(tmp_path / "nowhere")


def test_importing_a_recording_says_that_it_is_one() -> None:
    """It needs no import."""
    with pytest.raises(ImportFormatError, match=r"a recording already.*\n.*explain"):
        read_path(SAMPLES / "h200x2-grpo")


def test_an_import_does_not_overwrite_without_force(tmp_path: Path) -> None:
    """As the writer has it; with force it does."""
    recording = imported(tmp_path, spans__r0__jsonl=lines(span("step", 0, 1)))
    with pytest.raises(RecordingError, match="already there"):
        import_path(tmp_path / "trace", recording.path)
    assert import_path(tmp_path / "trace", recording.path, force=True) == recording.path


# --- the real traces ---


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (
            "h200x2-grpo",
            {"gpu": 16_105, "gpu_counters": 5_320, "gpu_process": 1_320, "spans": 3_706, "jobs": 1_988, "events": 1_164,
             "scalars": 905, "processes": 6, "gpus": 2},
        ),
        (
            "h200x2-grpo-135m",
            {"gpu": 8_544, "gpu_counters": 2_800, "gpu_process": 686, "spans": 2_284, "jobs": 1_540, "events": 1_300,
             "scalars": 354, "processes": 6, "gpus": 2},
        ),
    ],
)  # fmt: skip
def test_the_samples_hold_every_row_of_the_traces(sample: str, expected: dict[str, int]) -> None:
    """Row counts as ``wc -l`` gives them (less headers and each GPU's first GPM row); nothing needed cleaning."""
    recording = open_recording(f"sample:{sample}")
    assert {name: height for name in TABLES if (height := recording.table(name).height)} == expected
    assert recording.notes == ()
    assert recording.table("gpus").select("name", "mem_total_b", "util_window_ns").unique().rows() == [
        ("NVIDIA H200", 143_771 * 2**20, 200 * MS)
    ]


def total_s(spans: pl.DataFrame) -> float:
    """Summed length in seconds."""
    return float((spans["t1_ns"] - spans["t0_ns"]).sum()) / S


def test_the_sample_has_the_levels_the_readme_gives() -> None:
    """Rank 0's reward spans are 116.4 s; memory peaks at 85.8 GiB; 1,984 jobs in training, the longest 7.6 s."""
    recording = open_recording("sample:h200x2-grpo")
    reward = recording.table("spans").filter(
        pl.col("name") == "GRPOTrainer._calculate_rewards", pl.col("rank") == 0
    )
    gathers = recording.table("spans").filter(pl.col("name") == "gather", pl.col("rank") == 0)
    jobs = (
        recording.table("jobs")
        .filter(pl.col("step") >= 0)
        .select(length=pl.col("t1_ns") - pl.col("t0_ns"))["length"]
    )
    assert total_s(reward) - total_s(gathers) == pytest.approx(116.4, abs=0.5)
    assert float(str(recording.table("gpu")["mem_used_b"].max())) / 2**30 == pytest.approx(85.8, abs=0.1)
    assert (len(jobs), round(float(str(jobs.max())) / S, 1)) == (1_984, 7.6)


@pytest.mark.parametrize("sample", list(LIMITS))
def test_the_samples_are_small(sample: str) -> None:
    """They travel in the wheel."""
    assert (
        sum(path.stat().st_size for path in (SAMPLES / sample).rglob("*") if path.is_file()) <= LIMITS[sample]
    )


def test_the_samples_are_made_by_the_committed_script(traces: Path, tmp_path: Path) -> None:
    """scripts/make_samples.py gives the shipped files again, row for row."""
    assert main(traces, tmp_path) == 0
    for sample in LIMITS:
        shipped, made = SAMPLES / sample, tmp_path / sample
        names = sorted(str(path.relative_to(made)) for path in made.rglob("*.*"))
        assert names == sorted(str(path.relative_to(shipped)) for path in shipped.rglob("*.*"))
        for name in names:
            read = pl.read_parquet if name.endswith(".parquet") else _facts
            assert_same(read(shipped / name), read(made / name))


def assert_same(left: Any, right: Any) -> None:
    """Equal frames or equal objects."""
    assert left.equals(right) if isinstance(left, pl.DataFrame) else left == right


def _facts(path: Path) -> dict[str, Any]:
    """A manifest without the version of the dipstick that wrote it."""
    return {**json.loads(path.read_text()), "tool_version": ""}


@pytest.mark.parametrize(
    "absent", ["gpm.csv", "buf.csv", "proc.csv", "jobs.r0.jsonl", "spans.r1.jsonl", "nvml.csv"]
)
def test_a_real_trace_with_a_file_missing_still_imports(traces: Path, tmp_path: Path, absent: str) -> None:
    """Each optional file may be absent; the window is then learned from the polls."""
    source = tmp_path / "trace"
    source.mkdir()
    for path in (traces / "h200x2-grpo").iterdir():
        if path.name != absent:
            (source / path.name).symlink_to(path)
    recording = open_recording(import_path(source, tmp_path / "run"))
    assert recording.table("gpus")["util_window_ns"].to_list() == [200 * MS] * 2
    assert recording.has("spans")
