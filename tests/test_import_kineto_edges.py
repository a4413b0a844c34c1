"""Kineto traces at their edges: units and zeros of time, what is no GPU work, nesting, several processes, damage."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick.analysis.pipeline import analyse
from dipstick.errors import ImportFormatError
from dipstick.importers import choose, read_path
from dipstick.importers.busy import Device
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from dipstick.recording.reader import open_recording
from kernel_traces import GEMM, NCCL, US, kernel, note, trace

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
BASE_NS = 1_700_000_000_123_456_789


def first_ns(path: Path) -> int:
    """Where the first window begins."""
    rows = read_path(path).tables["gpu_counters"]
    return int((rows["t_ns"] - rows["window_ns"])[0])


def fact(path: Path) -> dict[str, Any]:
    """Exact seconds of the only GPU."""
    (found,) = read_path(path).account.facts["gpu_activity"]
    return dict(found)


# Time


@pytest.mark.parametrize("unit", ["ns", "ms", "us", "s", "fortnight", 7, None])
def test_the_display_unit_is_for_the_viewer_only(tmp_path: Path, unit: Any) -> None:
    """Whatever displayTimeUnit says, ts and dur are microseconds."""
    path = trace(tmp_path / "a.json", [kernel(2, 4)], displayTimeUnit=unit)
    assert (first_ns(path), fact(path)["busy_s"]) == (US * 1000 + 2 * MS, 0.004)


def test_with_a_base_times_are_microseconds_since_it(tmp_path: Path) -> None:
    """A fraction of a microsecond is kept: kernels of current profilers have nanoseconds."""
    path = trace(tmp_path / "a.json", [kernel(0, 1) | {"ts": 1000.123, "dur": 0.5}], baseTimeNanoseconds=BASE_NS)  # fmt: skip
    assert first_ns(path) == BASE_NS + 1_000_123
    assert fact(path)["busy_s"] == pytest.approx(5e-7, abs=1e-15)


def test_times_before_the_base_are_before_it(tmp_path: Path) -> None:
    """The base is a zero, not the beginning: an event may be earlier."""
    path = trace(tmp_path / "a.json", [kernel(0, 1) | {"ts": -2000}], baseTimeNanoseconds=BASE_NS)
    assert first_ns(path) == BASE_NS - 2 * MS


def test_a_base_beside_unix_times_is_not_added_twice(tmp_path: Path) -> None:
    """Some versions write both: times that are Unix time already stay."""
    path = trace(tmp_path / "a.json", [kernel(0, 1)], baseTimeNanoseconds=BASE_NS)
    assert first_ns(path) == US * 1000


@pytest.mark.parametrize("base", [0, -5, "1700000000000000000", 1.7e18, None, True, 2**63])
def test_a_base_that_is_none(tmp_path: Path, base: Any) -> None:
    """Anything but a positive whole number is no zero of time: small times stay relative, Unix times Unix."""
    small = trace(tmp_path / "a.json", [kernel(0, 1) | {"ts": 5}], baseTimeNanoseconds=base)
    unix = trace(tmp_path / "b.json", [kernel(0, 1)], baseTimeNanoseconds=base)
    assert read_path(small).account.clock == "relative"
    assert (read_path(unix).account.clock, first_ns(unix)) == ("unix", US * 1000)


@pytest.mark.parametrize(("us", "clock"), [(1e15, "relative"), (1.000001e15, "unix"), (3.9e15, "unix")])
def test_which_times_are_unix_times(tmp_path: Path, us: float, clock: str) -> None:
    """2001 to 2096; an uptime of years is none."""
    assert read_path(trace(tmp_path / "a.json", [kernel(0, 1) | {"ts": us}])).account.clock == clock


def test_an_event_of_no_length_is_an_instant(tmp_path: Path) -> None:
    """It counts as an event and covers no time."""
    found = fact(trace(tmp_path / "a.json", [kernel(0, 0), kernel(1, 1)]))
    assert (found["events"], found["busy_s"]) == (2, 0.001)


@pytest.mark.parametrize("dur", [-1, -0.001, None, "3", float("inf"), [1], True, 10**300])
def test_a_length_that_is_none_costs_its_event_only(tmp_path: Path, dur: Any) -> None:
    """Negative, missing or no number: dropped and counted, never turned into a time."""
    account = read_path(trace(tmp_path / "a.json", [kernel(0, 1) | {"dur": dur}, kernel(9, 2)])).account
    (found,) = account.facts["gpu_activity"]
    assert (found["events"], found["busy_s"]) == (1, 0.002)
    assert sum(account.dropped.values()) == 1


def test_events_in_any_order(tmp_path: Path) -> None:
    """A trace is not sorted: the beginning is the smallest time, not the first line's."""
    path = trace(tmp_path / "a.json", [kernel(8, 1), kernel(0, 1), kernel(4, 1)])
    assert first_ns(path) == US * 1000
    assert fact(path)["span_s"] == 0.009


# What is GPU work


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "s", "cat": "ac2g", "id": 3, "name": "ac2g", "pid": 0, "tid": 7, "ts": US},
        {"ph": "f", "cat": "ac2g", "id": 3, "name": "ac2g", "pid": 0, "tid": 7, "ts": US, "bp": "e"},
        {"ph": "f", "cat": "fwdbwd", "id": 1, "name": "fwdbwd", "pid": 41, "tid": 41, "ts": US},
        {"ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 41, "tid": 41, "ts": US, "dur": 1e6},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 41, "tid": 41, "ts": US, "dur": 1e6},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 41, "tid": 41, "ts": US, "dur": 1e6},
        {"ph": "X", "cat": "overhead", "name": "CUPTI overhead", "pid": -1, "tid": 0, "ts": US, "dur": 1e6},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "forward", "pid": 0, "tid": 7, "ts": US, "dur": 1e6},
        {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": US, "dur": 1e6},
        {"ph": "i", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": US, "s": "g"},
        {"ph": "C", "cat": "kernel", "name": GEMM, "pid": 0, "ts": US, "args": {"device": 0}},
        {"ph": "B", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": US},
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": ["kernel"], "name": GEMM, "ts": US, "dur": 1e6, "args": {"device": 0}},
        {"ph": "X", "cat": None, "name": GEMM, "ts": US, "dur": 1e6, "args": {"device": 0}},
    ],
    ids=lambda event: f"{event['ph']} {event.get('cat')}",
)  # fmt: skip
def test_what_is_no_gpu_work(tmp_path: Path, event: dict[str, Any]) -> None:
    """Arrows, Python and operator calls, launches, marks and what viewers draw cover no GPU time, and are no spans."""
    found = read_path(trace(tmp_path / "a.json", [event, kernel(5, 2)]))
    (gpu,) = found.account.facts["gpu_activity"]
    assert (gpu["events"], gpu["busy_s"], gpu["span_s"]) == (1, 0.002, 0.002)
    assert "spans" not in found.tables


@pytest.mark.parametrize("stream", [None, "7", -1, 10**30])
def test_streams_are_not_needed(tmp_path: Path, stream: Any) -> None:
    """Missing or strange streams change nothing: all streams' time is one union."""
    events = [kernel(0, 4), kernel(2, 4) | {"tid": stream}]
    events[1]["args"]["stream"] = stream
    del events[0]["args"]["stream"]
    assert fact(trace(tmp_path / "a.json", events))["busy_s"] == 0.006


def test_several_processes_on_one_gpu_are_one_union(tmp_path: Path) -> None:
    """Kernels that two processes ran side by side, in one file: an instant counts once."""
    events = [kernel(0, 4) | {"pid": 100}, kernel(3, 4) | {"pid": 200}]
    found = fact(trace(tmp_path / "a.json", events))
    assert (found["gpu"], found["events"], found["busy_s"]) == (0, 2, 0.007)


def test_one_process_on_several_gpus(tmp_path: Path) -> None:
    """A trace of one process with two devices: each GPU has its own time."""
    events = [kernel(0, 4), kernel(0, 1, device=1), kernel(2, 4)]
    facts = read_path(trace(tmp_path / "a.json", events)).account.facts["gpu_activity"]
    assert [(f["gpu"], f["busy_s"]) for f in facts] == [(0, 0.006), (1, 0.001)]


def test_two_processes_files_of_one_gpu_are_refused(tmp_path: Path) -> None:
    """Shares of one window can't be added up across files: the message says what to do."""
    files = [trace(tmp_path / f"{name}.json", [kernel(0, 4)]) for name in "ab"]
    with pytest.raises(ImportFormatError, match="both show GPU 0"):
        import_files(files, tmp_path / "run", created_unix_ns=1)


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        (NCCL, True), ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", True), ("void vllm::cross_device_reduce_1stage<half>", True),
        ("rcclDevKernel_AllGather", True), ("nvshmemi_proxy", True), ("volta_sgemm_nccl_free"[:11], False), (GEMM, False),
        ("", False),
    ],
)  # fmt: skip
def test_which_kernels_are_communication(tmp_path: Path, name: str, *, alone: bool) -> None:
    """By the library in the kernel's name; whatever else runs is work."""
    found = fact(trace(tmp_path / "a.json", [kernel(0, 3, name)]))
    assert (found["comm_alone_s"], found["kernel_work_s"]) == ((0.003, 0) if alone else (0, 0.003))


# Ranges


def test_nested_ranges_are_spans_inside_spans(tmp_path: Path) -> None:
    """A step with a forward in it and a helper in that: the helper is the forward's, each second counts once."""
    events = [
        note(0, 100, "ProfilerStep#0"), note(10, 40, "forward"), note(20, 10, "my helper"), note(60, 30, "backward"),
        note(65, 5, "reward"), kernel(0, 100),
    ]  # fmt: skip
    import_files([trace(tmp_path / "a.json", events, distributedInfo={"rank": 0})], tmp_path / "run", created_unix_ns=1)  # fmt: skip
    (timeline,) = analyse(open_recording(tmp_path / "run")).timelines
    from dipstick import phases  # noqa: PLC0415 - names of the sums

    seconds = dict(zip(phases.PHASES, (timeline.seconds_ns() / 1e9).tolist(), strict=True))
    assert [seconds[p] for p in ("forward", "backward", "reward", "unattributed")] == pytest.approx(
        [0.04, 0.025, 0.005, 0.03]
    )


def test_a_range_that_is_opened_in_itself(tmp_path: Path) -> None:
    """Recursion: forward inside forward is the same seconds once."""
    events = [note(0, 100, "step 1"), note(0, 50, "forward"), note(10, 20, "forward"), kernel(0, 1)]
    import_files([trace(tmp_path / "a.json", events, distributedInfo={"rank": 0})], tmp_path / "run", created_unix_ns=1)  # fmt: skip
    (timeline,) = analyse(open_recording(tmp_path / "run")).timelines
    assert int(timeline.seconds_ns().max()) == 50 * MS


def test_ranges_on_other_threads_keep_their_thread(tmp_path: Path) -> None:
    """Autograd runs on a thread of its own: same process, another tid."""
    events = [note(0, 9, "ProfilerStep#1"), note(1, 3, "backward") | {"tid": 99}]
    spans = read_path(trace(tmp_path / "a.json", events)).tables["spans"]
    assert spans.select("pid", "tid", "name").rows() == [(41, 41, "step"), (41, 99, "backward")]


@pytest.mark.parametrize("pid", ["python", None, -3, 2**70, 1.5, True])
def test_a_process_that_is_none(tmp_path: Path, pid: Any) -> None:
    """The range is still a range; who it was is not known."""
    spans = read_path(trace(tmp_path / "a.json", [note(0, 9, "forward") | {"pid": pid}])).tables["spans"]
    assert spans.select("pid", "name").rows() == [(None, "forward")]


@pytest.mark.parametrize(
    "name",
    [
        "\x1b[31mforward",
        "forward\x00",
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        "x" * 70_000,
        "\U0001d571",
    ],
)
def test_hostile_names_are_names(tmp_path: Path, name: str) -> None:
    """They import as text that is no phase, and the binding table shows at most 120 characters of them."""
    found = read_path(trace(tmp_path / "a.json", [note(0, 9, name), kernel(0, 1)]))
    assert found.tables["spans"]["phase"].to_list() == [None]
    assert max(len(b.source) for b in found.account.bindings) <= 120


# Headers


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": "rank 3"}, {"distributedInfo": {"rank": "3"}}, {"distributedInfo": {"rank": -1}},
        {"distributedInfo": {"rank": 2**40, "world_size": 2**40}}, {"distributedInfo": [3]}, {"deviceProperties": "H200"},
        {"deviceProperties": [None, 5, {"name": 7, "totalGlobalMem": "much"}]}, {"deviceProperties": {}},
        {"schemaVersion": 99}, {"schemaVersion": "two"}, {"traceName": "x" * 10_000}, {"record_shapes": {"a": [1]}},
    ],
    ids=lambda header: str(header)[:50],
)  # fmt: skip
def test_strange_headers_leave_the_events(tmp_path: Path, header: dict[str, Any]) -> None:
    """Ranks, devices and versions that are none are not known; what ran is."""
    found = read_path(trace(tmp_path / "a.json", [kernel(0, 3)], **header))
    assert found.account.facts["gpu_activity"][0]["busy_s"] == 0.003
    assert found.account.facts.get("rank") is None


def test_a_header_longer_than_what_is_sniffed(tmp_path: Path) -> None:
    """The events begin after 100,000 bytes: the profiler's file name tells the format."""
    path = trace(tmp_path / "a.pt.trace.json", [kernel(0, 3)], traceName="x" * 100_000)
    assert fact(path)["events"] == 1


def test_a_header_that_says_trace_events_in_a_string(tmp_path: Path) -> None:
    """An escaped "traceEvents": [ in a name is no list of events."""
    path = trace(tmp_path / "a.json", [kernel(0, 3)], traceName='"traceEvents": [{"ph": "X"}]')
    assert fact(path)["events"] == 1


def test_a_second_list_of_events_is_not_read_twice(tmp_path: Path) -> None:
    """What follows the events is metadata, whatever it is called."""
    event = json.dumps(kernel(0, 3))
    path = tmp_path / "a.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{event}], "more": [{event}, {event}]}}')
    assert fact(path)["events"] == 1


# Damage


WHOLE = gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": [kernel(i, 0.5, f"k{i * i}") for i in range(4000)]}).encode())  # fmt: skip


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95, 0.9999])
def test_a_cut_gzip_gives_what_it_unpacks_to(tmp_path: Path, share: float) -> None:
    """A file whose writer was killed: the events that come before the cut, a warning, and busy time that fits them."""
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(WHOLE[: int(len(WHOLE) * share)])
    account = read_path(path).account
    (found,) = account.facts["gpu_activity"]
    assert 0 < found["events"] <= 4000
    assert found["busy_s"] == pytest.approx(found["events"] * 0.0005)
    assert any(n.level == "warning" for n in account.notes)


def test_longer_pieces_of_a_cut_file_never_give_less(tmp_path: Path) -> None:
    """Twenty cuts in ascending order: the number of events never falls."""
    counts = []
    for i in range(4, 20):
        path = tmp_path / f"{i}.pt.trace.json.gz"
        path.write_bytes(WHOLE[: len(WHOLE) * i // 20])
        counts.append(read_path(path).account.facts["gpu_activity"][0]["events"])
    assert counts == sorted(counts)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", WHOLE[:12], b"{", b'{"traceEvents": [', b"[]", b"[[[[", b"null"])  # fmt: skip
def test_almost_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    """Our own error, with the file's name."""
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(ImportFormatError):
        read_path(path, Options(format="kineto"))


def test_gzip_is_told_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    """A packed file without .gz, and a plain one with it."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(0, 3)]}).encode()
    (tmp_path / "a.json").write_bytes(gzip.compress(text))
    (tmp_path / "b.json.gz").write_bytes(text)
    for name in ("a.json", "b.json.gz"):
        assert choose(tmp_path / name).FORMAT == "kineto"
        assert fact(tmp_path / name)["busy_s"] == 0.003


def test_two_gzip_members_are_one_file(tmp_path: Path) -> None:
    """As cat a.gz b.gz makes: the JSON goes on in the second."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(0, 3), kernel(5, 1)]}).encode()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text[:150]) + gzip.compress(text[150:]))
    assert fact(tmp_path / "a.json.gz")["events"] == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60), st.integers(0, 3)), min_size=1, max_size=40)
)
def test_classes_add_up_to_busy_whatever_overlaps(activities: list[tuple[int, int, int]]) -> None:
    """Work, copies and communication alone are the union, nanosecond by nanosecond."""
    device = Device()
    covered = set[int]()
    for start, length, kind in activities:
        device.add(kind, start, start + length)
        covered |= {*range(start, start + length)}
    found = device.facts()
    parts = [found[key] for key in ("kernel_work_s", "copy_device_s", "copy_bus_s", "comm_alone_s")]
    assert sum(parts) == pytest.approx(found["busy_s"], abs=1e-15)
    assert round(found["busy_s"] * 1e9) == len(covered)
