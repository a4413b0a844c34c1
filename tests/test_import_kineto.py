"""PyTorch profiler traces: what ran on the GPU, ranges as phases, ranks on one axis, and what damage costs."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick.analysis.pipeline import analyse
from dipstick.errors import ImportFormatError
from dipstick.importers import json_events, read_path, sniff
from dipstick.importers.annotations import phase_of, step_of
from dipstick.importers.files import import_files
from dipstick.importers.json_events import TraceFile
from dipstick.importers.options import Options
from dipstick.model import STATES
from dipstick.recording.reader import open_recording
from kernel_traces import GEMM, NCCL, US, kernel, note, trace

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
STEP = [note(0, 10, "ProfilerStep#3")]


def activity(path: Path) -> dict[str, Any]:
    """Exact seconds of the first GPU."""
    found: dict[str, Any] = read_path(path).account.facts["gpu_activity"][0]
    return found


@pytest.mark.parametrize(
    ("rank", "events", "on_gpu", "span_ms", "busy_ms", "share"),
    [(0, 4855, 1204, 1222.847, 547.656, 44.79), (1, 4720, 1154, 1231.186, 580.050, 47.11)],
)
def test_the_two_real_ranks(
    real: Path, rank: int, events: int, on_gpu: int, span_ms: float, busy_ms: float, share: float
) -> None:
    """Both real ranks give LOG.md's numbers: events, GPU events, span and the union of what ran, on their own GPU."""
    account = read_path(real / f"kineto-rank{rank}.json.gz").account
    (found,) = account.facts["gpu_activity"]
    assert (account.rows_read, found["events"], found["gpu"]) == (events, on_gpu, rank)
    assert found["span_s"] == pytest.approx(span_ms / 1e3, abs=1e-9)
    assert found["busy_s"] == pytest.approx(busy_ms / 1e3, abs=1e-9)
    assert 100 * found["busy_s"] / found["span_s"] == pytest.approx(share, abs=0.005)
    assert (account.facts["rank"], account.facts["world_size"], account.clock) == (rank, 128, "unix")


def test_the_two_real_ranks_lie_on_one_axis(real: Path, tmp_path: Path) -> None:
    """Rank 1's first GPU event is 153 us after rank 0's; the recording begins at 1682725898.08 s."""
    firsts = []
    for rank in (0, 1):
        with gzip.open(real / f"kineto-rank{rank}.json.gz") as stream:
            events = json.load(stream)["traceEvents"]
        firsts.append(min(e["ts"] for e in events if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}))
    assert firsts[1] - firsts[0] == 153
    files = [real / f"kineto-rank{rank}.json.gz" for rank in (0, 1)]
    import_files(files, tmp_path / "run", created_unix_ns=1)
    recording = open_recording(tmp_path / "run")
    assert recording.start_unix_ns / 1e9 == pytest.approx(1682725898.08, abs=0.01)
    found = analyse(recording)
    assert [(gpu.signals.gpu, gpu.rank, gpu.states.method) for gpu in found.gpus] == [
        (0, 0, "trace"),
        (1, 1, "trace"),
    ]
    assert [len(timeline.steps) for timeline in found.timelines] == [2, 2]


def test_streams_overlap_and_count_once(tmp_path: Path) -> None:
    """Kernels of 4 ms at 0 and 2 ms cover 6 ms, in a span of 10 ms."""
    path = trace(tmp_path / "a.json", [kernel(0, 4), kernel(2, 4), kernel(9, 1)])
    found = activity(path)
    assert (found["busy_s"], found["span_s"], found["kernel_work_s"]) == (0.007, 0.010, 0.007)


def test_communication_counts_only_where_it_runs_alone(tmp_path: Path) -> None:
    """A collective from 2 to 8 ms beside work until 4 ms is 4 ms of communication alone; the parts add up to busy."""
    path = trace(tmp_path / "a.json", [kernel(0, 4), kernel(2, 6, NCCL)])
    found = activity(path)
    assert (found["kernel_work_s"], found["comm_alone_s"], found["busy_s"]) == pytest.approx(
        (0.004, 0.004, 0.008)
    )
    rows = read_path(path).tables["collectives"]
    assert rows.select("name", "entered_ns", "left_ns", "device_ms").row(0) == (
        NCCL, (US + 2000) * 1000, (US + 8000) * 1000, 6.0,
    )  # fmt: skip


def test_copies_by_direction_with_their_bytes(tmp_path: Path) -> None:
    """Host copies are bus copies, device copies and memsets are not; bytes are summed by direction."""
    events = [
        kernel(0, 1, "Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy", bytes=1000),
        kernel(1, 2, "Memcpy DtoH (Device -> Pageable)", cat="gpu_memcpy", bytes=30),
        kernel(3, 4, "Memcpy DtoD (Device -> Device)", cat="gpu_memcpy", bytes=5),
        kernel(7, 1, "Memset (Device)", cat="gpu_memset", bytes=7),
    ]
    found = activity(trace(tmp_path / "a.json", events))
    assert (found["copy_bus_s"], found["copy_device_s"]) == pytest.approx((0.003, 0.005))
    assert found["copied_b"] == {"HtoD": 1000, "DtoH": 30, "DtoD": 5, "set": 7}


def test_old_categories_and_the_process_as_the_gpu(tmp_path: Path) -> None:
    """Traces before 2021 say Kernel and Memcpy, and name the GPU only as the process."""
    old = kernel(0, 1, cat="Kernel") | {"pid": 2, "args": {}}
    assert (
        activity(trace(tmp_path / "a.json", [old, kernel(1, 1, "Memcpy HtoD", cat="Memcpy", device=2)]))[
            "gpu"
        ]
        == 2
    )


@pytest.mark.parametrize("where", ["before", "after"])
def test_times_count_from_the_base_wherever_it_stands(tmp_path: Path, where: str) -> None:
    """BaseTimeNanoseconds is added to times that are no Unix time, also if it follows the events."""
    event = kernel(0, 4) | {"ts": 5.25}
    base = '"baseTimeNanoseconds": 1700000000000000000'
    listed = f'"traceEvents": [{json.dumps(event)}]'
    text = (
        f'{{"schemaVersion": 1, {base}, {listed}}}'
        if where == "before"
        else f'{{"schemaVersion": 1, {listed}, {base}}}'
    )
    (tmp_path / "a.json").write_text(text)
    found = read_path(tmp_path / "a.json")
    rows = found.tables["gpu_counters"]
    assert found.account.clock == "unix"
    assert rows["t_ns"][0] - rows["window_ns"][0] == 1_700_000_000_000_005_250


def test_without_a_base_small_times_are_relative(tmp_path: Path) -> None:
    """Times that are no Unix time and have no base are known only among themselves."""
    path = trace(tmp_path / "a.json", [kernel(0, 4) | {"ts": 5}])
    assert read_path(path).account.clock == "relative"


def test_steps_and_ranges_become_spans(tmp_path: Path) -> None:
    """ProfilerStep#3 is step 3; decorated names have their phase; launches of collectives belong to what is around them."""
    events = [
        *STEP,
        note(1, 2, "## forward ##"),
        note(4, 2, "Optimizer.step#AdamW.step"),
        note(7, 1, "nccl:all_reduce"),
    ]
    spans = read_path(trace(tmp_path / "a.json", events, distributedInfo={"rank": 1})).tables["spans"]
    assert spans.select("name", "phase", "step", "rank").rows() == [
        ("step", None, 3, 1), ("## forward ##", "forward", None, 1),
        ("Optimizer.step#AdamW.step", "optimizer", None, 1), ("nccl:all_reduce", None, None, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "phase"),
    [("backward", "backward"), ("=== reward ===", "reward"), ("gen", "generate"), ("old_log_prob", "logprobs"),
     ("update_weights", "weight_sync"), ("DistributedDataParallel.forward", "forward"), ("my forward helper", None),
     ("unattributed", None), ("", None)],
)  # fmt: skip
def test_only_names_that_are_sure_have_a_phase(name: str, phase: str | None) -> None:
    """A name is a phase as a whole, never by a word in it."""
    assert phase_of(name) == phase


@pytest.mark.parametrize(
    ("name", "step"),
    [("ProfilerStep#551", 551), ("step 12", 12), ("iteration_3", 3), ("training step: 4", 4), ("step", None),
     ("Optimizer.step#1", None), ("step " + "9" * 30, None)],
)  # fmt: skip
def test_names_that_number_a_step(name: str, step: int | None) -> None:
    """Only a range that is called step or iteration and a number is a step."""
    assert step_of(name) == step


@pytest.mark.parametrize(
    ("rank", "device", "cards", "gpu", "host"),
    [
        (1, 1, 8, 1, "host0"),
        (3, 0, 1, 3, "host0"),
        (9, 1, 8, 1, "node1"),
        (None, 2, 0, 2, "host0"),
        (0, 0, 1, 0, "host0"),
    ],
)
def test_which_gpu_a_ranks_device_is(
    tmp_path: Path, rank: int | None, device: int, cards: int, gpu: int, host: str
) -> None:
    """Ordinals count visible devices: ranks that each see one GPU are kept apart, and so are nodes; it is said."""
    header: dict[str, Any] = {
        "distributedInfo": {"rank": rank},
        "deviceProperties": [{"name": "H200"}] * cards,
    }
    found = read_path(trace(tmp_path / "a.json", [kernel(0, 1, device=device)], **header))
    rows = found.tables["gpu_counters"]
    assert (rows["gpu"][0], str(rows["host"][0])) == (gpu, host)
    inferred = [b for b in found.account.bindings if b.meaning == "gpu"]
    assert bool(inferred) == (gpu != device or host != "host0")


def test_the_host_of_a_tensorboard_worker_name(tmp_path: Path) -> None:
    """tensorboard_trace_handler names files HOST_PID.TIME.pt.trace.json."""
    path = trace(tmp_path / "gpu-07_4037.1700000000123.pt.trace.json.gz", [kernel(0, 1)])
    assert read_path(path).tables["gpu_counters"]["host"].cast(str).unique().to_list() == ["gpu-07"]


def test_states_of_a_trace(tmp_path: Path) -> None:
    """Work is compute, a collective alone is a wait or a copy, a bus copy is a bus copy, nothing is idle: 2 ms each."""
    events = [
        kernel(0, 2),
        kernel(2, 2, NCCL),
        kernel(4, 2, "Memcpy HtoD", cat="gpu_memcpy", bytes=1),
        kernel(8, 2),
    ]
    import_files(
        [trace(tmp_path / "a.json", events, distributedInfo={"rank": 0})], tmp_path / "run", created_unix_ns=1
    )
    (gpu,) = analyse(open_recording(tmp_path / "run")).gpus
    named = {"idle": 0.002, "compute": 0.004, "waiting_or_bus_copy": 0.002, "copying_bus": 0.002}
    totals = gpu.states.totals(-MS, 10 * MS)
    assert {name: round(float(s), 6) for name, s in zip(STATES, totals, strict=True) if s} == named


def test_what_the_numbers_are_is_said(tmp_path: Path) -> None:
    """The account says that this is no utilization.gpu, that others are not in it, and what communication alone took."""
    found = read_path(trace(tmp_path / "a.json", [kernel(0, 4), kernel(4, 4, NCCL)])).account
    text = " ".join(note.text for note in found.notes)
    assert "not utilization.gpu" in text
    assert "communication kernels alone 0.004 s" in text


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("size", [40, 333, 5000])
def test_pieces_of_any_size_give_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, indent: int | None
) -> None:
    """However the file is cut into pieces, and whatever strings and arguments look like a border, each event comes once."""
    monkeypatch.setattr(json_events, "PIECE", size)
    events = [kernel(i, 1, 'a "}, {" ]} name', grid=[{"a": 1}, {"ph": "X"}]) for i in range(30)]
    path = trace(tmp_path / "a.json", events, indent=indent)
    found = [event for batch, _ in TraceFile(path, pytest.fail).events() for event in batch]
    assert [event.ts for event in found] == [event["ts"] for event in events]


def test_a_bare_list_is_a_trace(tmp_path: Path) -> None:
    """Some tools keep only the list of events."""
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps([*STEP, kernel(0, 1)]))
    assert activity(path)["events"] == 1


def test_a_cut_file_gives_what_comes_before(tmp_path: Path) -> None:
    """A trace that ends inside its seventh event gives six, and says that one was dropped and why."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(i, 1) for i in range(10)]})
    path = tmp_path / "a.json"
    path.write_text(text[: text.index(f'"ts": {US + 6000}')])
    account = read_path(path).account
    assert (account.rows_read, account.facts["gpu_activity"][0]["busy_s"]) == (6, 0.006)
    assert account.dropped == {"an event that can't be decoded": 1}
    assert any("cut" in note.text for note in account.notes)


def test_a_cut_gzip_gives_what_comes_before(tmp_path: Path) -> None:
    """Half of the packed bytes still give events, and a warning."""
    path = trace(tmp_path / "a.json.gz", [kernel(i, 1, f"{GEMM}{i * 7919 % 1000}") for i in range(20_000)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    account = read_path(path).account
    assert 1000 < account.facts["gpu_activity"][0]["events"] < 20_000
    assert any("damaged or cut" in note.text for note in account.notes)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-nan"])
def test_numbers_that_json_does_not_know(tmp_path: Path, token: str) -> None:
    """Old writers put NaN and Infinity into arguments: the event counts all the same."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(0, 1, occupancy=1.5), kernel(1, 1)]})
    path = tmp_path / "a.json"
    path.write_text(text.replace("1.5", token))
    assert activity(path)["busy_s"] == 0.002


@pytest.mark.parametrize(
    "change",
    [{"ts": "soon"}, {"ts": None}, {"dur": -1}, {"ts": 1e300}, {"dur": 10**400}, {"name": 5}, {"args": {"device": 10**30}},
     {"args": {"device": -1}}, {"args": {"device": True}, "pid": "x"}, {"args": "none"}],
)  # fmt: skip
def test_strange_events_are_dropped_and_counted(tmp_path: Path, change: dict[str, Any]) -> None:
    """An event without a start, length, name or GPU is left out and counted; the next one is read."""
    account = read_path(trace(tmp_path / "a.json", [kernel(0, 1) | change, kernel(5, 1)])).account
    assert account.facts["gpu_activity"][0]["events"] == 1
    assert sum(account.dropped.values()) == 1


def test_invalid_utf_8_in_a_name(tmp_path: Path) -> None:
    """A name in Latin-1 does not cost its neighbours."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(0, 1, "MARK"), kernel(1, 1)]}).encode()
    (tmp_path / "a.json").write_bytes(text.replace(b"MARK", b"caf\xe9"))
    assert activity(tmp_path / "a.json")["events"] == 2


def test_deep_json_is_no_crash(tmp_path: Path) -> None:
    """An argument nested 100,000 deep costs its event only."""
    text = json.dumps(
        {"schemaVersion": 1, "traceEvents": [kernel(0, 1), kernel(1, 1, deep="DEEP"), kernel(2, 1)]}
    )
    (tmp_path / "a.json").write_text(text.replace('"DEEP"', "[" * 100_000 + "]" * 100_000, 1))
    assert activity(tmp_path / "a.json")["events"] == 2


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M"}], [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": US, "dur": 1}]]
)
def test_a_trace_without_anything_for_us_is_refused(tmp_path: Path, events: list[Any]) -> None:
    """No GPU activity and no range: 0 metrics are bound, which is an error."""
    with pytest.raises(ImportFormatError, match="0 metrics bound"):
        read_path(trace(tmp_path / "a.json", events))


def test_a_bomb_of_blanks_is_refused(tmp_path: Path) -> None:
    """A gzip file that unpacks to a gigabyte of blanks before any event is refused after 16 MiB."""
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "a": "' + b" " * (40 << 20)))
    with pytest.raises(ImportFormatError, match="no traceEvents"):
        read_path(path, Options(format="kineto"))


def test_other_json_is_not_taken(tmp_path: Path) -> None:
    """A trainer state or a list of numbers is no trace."""
    for name, text in (("a.json", '{"log_history": []}'), ("b.json", "[1, 2]"), ("c.json", '[{"step": 1}]')):
        (tmp_path / name).write_text(text)
        found = sniff(tmp_path / name)
        assert found is None or found.FORMAT != "kineto"


WHOLE = json.dumps(
    {"schemaVersion": 1, "traceEvents": [*STEP, *(kernel(i, 1, NCCL) for i in range(8))]}
).encode()


@settings(max_examples=150, deadline=None)
@given(
    cut=st.integers(0, len(WHOLE)),
    at=st.integers(0, len(WHOLE) - 1),
    byte=st.integers(0, 255),
    flips=st.integers(0, 3),
)
def test_any_damage_is_an_error_or_a_smaller_import(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, byte: int, flips: int
) -> None:
    """Cut anywhere, bytes overwritten anywhere: events never grow in number, and only our own error is raised."""
    data = bytearray(WHOLE[:cut])
    for i in range(flips):
        if data:
            data[(at * (i + 1)) % len(data)] = byte
    path = tmp_path_factory.mktemp("k") / "a.json"
    path.write_bytes(bytes(data))
    try:
        account = read_path(path, Options(format="kineto")).account
    except ImportFormatError:
        return
    assert sum(gpu["events"] for gpu in account.facts["gpu_activity"]) <= 8
