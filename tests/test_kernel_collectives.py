"""Collective kernels of several ranks: what was waiting for the last rank, what was transfer, and what can't be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick.analysis.collectives import match
from dipstick.analysis.kernel_collectives import (
    ABSENT,
    ALONE,
    CLOCKS,
    COUNTS,
    PARTNERS,
    UNMET,
    Split,
    split,
    told,
)
from dipstick.analysis.pipeline import analyse
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.states import CODE
from dipstick.analysis.timeline import build
from dipstick.cli import main
from dipstick.importers import read_path
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from dipstick.recording.reader import open_recording
from kernel_traces import NCCL, export, kernel, note, trace
from records import HOST, Row, ns, process, span, table, times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MS = 1_000_000


def comm(rank: int | None, start: float, end: float, name: str = "AllReduce", **more: Any) -> Row:
    """A collective's kernel on a rank's GPU."""
    own = {"host": HOST, "rank": rank, "pid": None if rank is None else 900 + rank, "name": name}
    return own | {"entered_ns": ns(start), "left_ns": ns(end), "source": "kernel"} | more


def parts(rows: Sequence[Row], processes: Sequence[Row] = ()) -> dict[int, tuple[float, float, float]]:
    """Seconds waiting, transferring and not told apart, by rank."""
    found = split(table("collectives", rows), table("processes", processes))
    return {s.rank: (s.waiting_ns / 1e9, s.transfer_ns / 1e9, s.untold_ns / 1e9) for s in found}


def reasons(rows: Sequence[Row]) -> list[dict[str, int]]:
    """Why, by rank."""
    return [dict(one.why) for one in split(table("collectives", rows), table("processes"))]


# Two ranks on one host


def test_the_last_ranks_length_is_transfer_and_the_others_surplus_is_waiting() -> None:
    """Rank 0 starts at 1, rank 1 at 4, both end at 5: 3 s of waiting, and 1 s of transfer on each."""
    assert parts([comm(0, 1, 5), comm(1, 4, 5)]) == {0: (3, 1, 0), 1: (0, 1, 0)}


def test_when_it_waited_and_when_data_moved() -> None:
    """[1, 4) and [4, 5): in this order, on the rank's own clock."""
    one, _ = split(table("collectives", [comm(0, 1, 5), comm(1, 4, 5)]), table("processes"))
    assert [part.tolist() for part in (*one.waits, *one.transfers)] == [
        [ns(1)], [ns(4)], [ns(4)], [ns(5)],
    ]  # fmt: skip


def test_the_kth_is_paired_with_the_kth() -> None:
    """Rank 1 is late in the first, rank 0 in the second: each waits once."""
    rows = [comm(0, 1, 5), comm(0, 9, 10), comm(1, 4, 5), comm(1, 7, 10)]
    assert parts(rows) == {0: (3, 2, 0), 1: (2, 2, 0)}


def test_rows_in_any_order_give_the_same() -> None:
    """The table's order is not the time's."""
    rows = [comm(1, 7, 10), comm(0, 1, 5), comm(1, 4, 5), comm(0, 9, 10)]
    assert parts(rows) == parts(rows[::-1]) == {0: (3, 2, 0), 1: (2, 2, 0)}


def test_sizes_are_paired_apart() -> None:
    """A small and a large all_reduce on two streams swap their order on rank 1: by size each finds its own."""
    small: Row = {"elements": 10}
    large: Row = {"elements": 1000}
    rows = [comm(0, 1, 5, **small), comm(0, 2, 8, **large), comm(1, 3, 8, **large), comm(1, 4, 5, **small)]
    assert parts(rows) == {0: (4, 6, 0), 1: (0, 6, 0)}


def test_process_groups_are_paired_apart() -> None:
    """Ranks 0 and 1 are one group, 2 and 3 another that is not late: only rank 0 waits."""
    rows = [comm(rank, start, 5, group=f"tp [{pair}]", members=2)
            for rank, start, pair in ((0, 1, "0, 1"), (1, 4, "0, 1"), (2, 4, "2, 3"), (3, 4, "2, 3"))]  # fmt: skip
    assert parts(rows) == {0: (3, 1, 0), 1: (0, 1, 0), 2: (0, 1, 0), 3: (0, 1, 0)}


def test_three_ranks_wait_for_the_last_of_them() -> None:
    """Starts at 1, 2 and 4: 3 s, 2 s and nothing."""
    found = parts([comm(0, 1, 5), comm(1, 2, 5), comm(2, 4, 5)])
    assert [waited for waited, _, _ in found.values()] == [3, 2, 0]


def test_ends_microseconds_apart_are_one_call() -> None:
    """Rings end one after the other; each rank's parts are still its own length."""
    found = parts([comm(0, 1, 5), comm(1, 4, 5.00002)])
    assert [*found[0], *found[1]] == pytest.approx([3, 1, 0, 0, 1.00002, 0])


# Pairing fails


def test_one_rank_alone_cannot_tell() -> None:
    """All of it is not told apart, with the reason and what to do."""
    assert parts([comm(0, 1, 5)]) == {0: (0, 0, 4)}
    (text,) = told(split(table("collectives", [comm(0, 1, 5)]), table("processes")))
    assert ALONE in text
    assert text.endswith("import all ranks' traces together)")


def test_different_counts_cannot_be_paired() -> None:
    """Two calls on rank 0 and one on rank 1: which one is missing is not known."""
    rows = [comm(0, 1, 5), comm(0, 6, 7), comm(1, 4, 5)]
    assert parts(rows) == {0: (0, 0, 5), 1: (0, 0, 1)}
    assert reasons(rows) == [{COUNTS: ns(5)}, {COUNTS: ns(1)}]


def test_a_kind_that_fails_leaves_the_others() -> None:
    """The all_gathers differ in number; the all_reduce is still split."""
    rows = [comm(0, 1, 5), comm(1, 4, 5), comm(0, 6, 7, "AllGather")]
    assert parts(rows) == {0: (3, 1, 1), 1: (0, 1, 0)}


def test_without_a_group_all_ranks_must_have_it() -> None:
    """Ranks 0 and 1 have it, rank 2 has other kernels only: for whom it was is not known."""
    rows = [comm(0, 1, 5), comm(1, 4, 5), comm(2, 1, 2, "AllGather")]
    assert parts(rows) == {0: (0, 0, 4), 1: (0, 0, 1), 2: (0, 0, 1)}


def test_kernels_that_do_not_run_at_the_same_time_are_not_one_call() -> None:
    """Rank 0's is over before rank 1's begins: no collective ends before the last has started."""
    rows = [comm(0, 1, 2), comm(1, 4, 5)]
    assert reasons(rows) == [{UNMET: ns(1)}, {UNMET: ns(1)}]


def test_kernels_that_end_far_apart_are_not_one_call() -> None:
    """3 s between the ends of kernels of 4 s."""
    assert reasons([comm(0, 1, 5), comm(1, 4, 8)]) == [{UNMET: ns(4)}, {UNMET: ns(4)}]


def test_one_shifted_call_among_many_is_left_out_alone() -> None:
    """Nineteen of twenty meet: they are split, the twentieth is not told apart."""
    rows = [comm(r, 10 * k + 3 * r, 10 * k + 5) for k in range(19) for r in (0, 1)]
    rows += [comm(0, 200, 201), comm(1, 205, 206)]
    assert parts(rows) == {0: (57, 38, 1), 1: (0, 38, 1)}


def test_if_most_do_not_meet_the_few_that_do_are_chance() -> None:
    """One of three overlaps: the k-th is not the k-th here."""
    rows = [comm(0, 1, 5), comm(1, 4, 5), comm(0, 10, 11), comm(1, 12, 13), comm(0, 20, 21), comm(1, 22, 23)]
    assert parts(rows) == {0: (0, 0, 6), 1: (0, 0, 3)}


def test_point_to_point_has_a_partner_that_is_not_recorded() -> None:
    """NCCL's SendRecv on two ranks: they may talk to others, also where they overlap."""
    rows = [comm(0, 1, 5, "ncclDevKernel_SendRecv(x)"), comm(1, 4, 5, "ncclDevKernel_SendRecv(x)")]
    assert reasons(rows) == [{PARTNERS: ns(4)}, {PARTNERS: ns(1)}]


def test_ranks_that_were_not_imported_may_be_later() -> None:
    """Two of eight: rank 0 waited at least 3 s; the last second is transfer or more waiting."""
    rows = [comm(0, 1, 5, members=8), comm(1, 4, 5, members=8)]
    assert parts(rows) == {0: (3, 0, 1), 1: (0, 0, 1)}
    assert reasons(rows) == [{ABSENT: ns(1)}, {ABSENT: ns(1)}]


def test_a_group_with_one_imported_rank() -> None:
    """Rank 1's partner in its group was not traced."""
    rows = [comm(0, 1, 5), comm(1, 4, 5), comm(1, 6, 8, group="pp [1, 9]", members=2)]
    assert parts(rows) == {0: (3, 1, 0), 1: (0, 1, 2)}
    assert reasons(rows)[1][ABSENT] == ns(2)


# Clocks


def across(ahead: float, calls: int) -> list[Row]:
    """Rank 0 waits 3 of 4 s for rank 1 in each call; rank 1's host is ahead by so many seconds."""
    here = [comm(0, 10 * k + 1, 10 * k + 5) for k in range(calls)]
    there = [comm(1, 10 * k + 4 + ahead, 10 * k + 5 + ahead, host="other") for k in range(calls)]
    return [*here, *there]


@pytest.mark.parametrize("ahead", [0.0, 2.5, -2.5, 700.0])
def test_ends_give_the_offset_between_hosts(ahead: float) -> None:
    """However far other's clock is ahead, rank 0 waited 9 s, on its own clock."""
    rows = [row | {"entered_ns": row["entered_ns"] + ns(1000), "left_ns": row["left_ns"] + ns(1000)} for row in across(ahead, 3)]  # fmt: skip
    assert parts(rows) == {0: (9, 3, 0), 1: (0, 3, 0)}
    one, other = split(table("collectives", rows), table("processes"))
    assert one.waits[0][0] == ns(1001)
    assert other.transfers[1][-1] == pytest.approx(ns(1025 + ahead), abs=1)


def test_two_shared_calls_are_too_few_for_an_offset() -> None:
    """Any two calls fit some offset."""
    assert reasons(across(0, 2)) == [{CLOCKS: ns(8)}, {CLOCKS: ns(2)}]


def test_one_host_needs_no_offset() -> None:
    """A single call on one host is enough: its clock is one."""
    assert parts([comm(0, 1, 5, host="n7"), comm(1, 4, 5, host="n7")])[0] == (3, 1, 0)


def test_calls_that_share_no_end_have_no_offset() -> None:
    """Between hosts the ends must agree; if their differences are all over, nothing meets."""
    rows = [comm(0, 10 * k, 10 * k + 1) for k in range(5)]
    rows += [comm(1, 10 * k + 2 * k, 10 * k + 2 * k + 1, host="other") for k in range(5)]
    assert parts(rows) == {0: (0, 0, 5), 1: (0, 0, 5)}


# Rows


def test_the_process_says_the_rank_where_the_kernel_does_not() -> None:
    """Nsight names processes, not ranks."""
    rows = [comm(None, 1, 5, pid=77), comm(None, 4, 5, pid=78)]
    who = [process(77, rank=0, gpu=0), process(78, rank=1, gpu=1)]
    assert parts(rows, who) == {0: (3, 1, 0), 1: (0, 1, 0)}


def test_kernels_of_nobody_are_left_out() -> None:
    """Without rank or process nothing is said of anyone."""
    assert parts([comm(None, 1, 5, pid=5)]) == {}


def test_calls_of_hosts_are_no_kernels_and_kernels_no_calls() -> None:
    """Each second is one analysis's: the host's calls are not split, the device's kernels are no host's wait."""
    calls = [comm(0, 1, 5) | {"source": None}, comm(1, 4, 5) | {"source": None}]
    kernels = [comm(0, 1, 5), comm(1, 4, 5)]
    spans = [span("step", 0, 10, rank=rank, step=0) for rank in (0, 1)]
    ranks = build(read_lanes(table("spans", spans), table("processes"))[0], (0, ns(10)))[0]
    assert parts(calls) == {}
    assert len(match(ranks, table("collectives", calls), table("processes"))) == 1
    assert match(ranks, table("collectives", kernels), table("processes")) == []


def test_no_collectives_is_nothing() -> None:
    """An empty table."""
    assert parts([]) == {}


def test_parts_that_do_not_add_up_are_refused() -> None:
    """The sum is a promise."""
    none = (times(), times())
    with pytest.raises(AssertionError, match="add up"):
        Split(0, 1, 10, 4, 5, 0, none, none, {})
    with pytest.raises(AssertionError, match="reason"):
        Split(0, 1, 10, 4, 5, 1, none, none, {})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.floats(0, 50), st.floats(0, 9), st.sampled_from(["a", "b", "SendRecv"]),
            st.sampled_from([None, 1, 2, 8]), st.sampled_from([None, "g"]), st.sampled_from(["n0", "n1"]),
        ),
        max_size=24,
    )
)  # fmt: skip
def test_whatever_the_rows_every_nanosecond_is_counted_once(
    drawn: list[tuple[int, float, float, str, int | None, str | None, str]],
) -> None:
    """Waiting, transfer and the rest add up to the kernels' lengths, and lie inside of them."""
    rows = [
        comm(rank, start, start + length, name, members=members, group=group, host=host)
        for rank, start, length, name, members, group, host in drawn
    ]
    found = split(table("collectives", rows), table("processes"))
    whole = sum(row["left_ns"] - row["entered_ns"] for row in rows)
    assert sum(s.waiting_ns + s.transfer_ns + s.untold_ns for s in found) == whole
    for one in found:
        for starts, ends in (one.waits, one.transfers):
            assert (starts < ends).all()
    assert len([*told(found)]) == len(found)


# Imported traces


def two_ranks(folder: Path, *, late_ms: float = 30.0, world: int = 2, **args: Any) -> Path:
    """Six steps of 100 ms: rank 0 is in the collective from 40 ms, rank 1 from 30 ms later; both leave at 90 ms."""
    files = []
    for rank in (0, 1):
        events = []
        for step in range(6):
            at, begin = 100.0 * step, 40.0 + late_ms * rank
            events += [note(at, 99, f"ProfilerStep#{step}"), kernel(at, begin, device=rank),
                       kernel(at + begin, 90 - begin, NCCL, device=rank, **args)]  # fmt: skip
        files.append(trace(folder / f"{rank}.json", events, distributedInfo={"rank": rank, "world_size": world}))  # fmt: skip
    import_files(files, folder / "run", created_unix_ns=1)
    return folder / "run"


def test_states_of_two_imported_ranks(tmp_path: Path) -> None:
    """Rank 0 spins 6 x 30 ms and copies 6 x 20 ms; rank 1 only copies; nothing is left as 'wait or copy'."""
    found = analyse(open_recording(two_ranks(tmp_path)))
    for gpu, spun in zip(found.gpus, (0.18, 0.0), strict=True):
        totals = gpu.states.totals(-MS, 600 * MS)
        assert totals[CODE["spinning"]] == pytest.approx(spun, abs=0.007)
        assert totals[CODE["copying_bus"]] == pytest.approx(0.12, abs=0.007)
        assert totals[CODE["waiting_or_bus_copy"]] == 0
        assert totals.sum() == pytest.approx(gpu.states.windows.recorded_ns / 1e9)


def test_the_exact_seconds_are_said(tmp_path: Path) -> None:
    """A sentence a rank, with parts that add up."""
    text = " ".join(n.text for n in analyse(open_recording(two_ranks(tmp_path))).notes)
    assert "rank 0's GPU spent 0.300 s in 6 communication kernels: 0.180 s waiting for the last rank, 0.120 s transfer, 0.000 s can't tell" in text  # fmt: skip
    assert "rank 1's GPU spent 0.120 s in 6 communication kernels: 0.000 s waiting for the last rank, 0.120 s transfer" in text  # fmt: skip


def test_device_waits_are_in_no_phase(tmp_path: Path) -> None:
    """The host went on: its phases have no wait, and their seconds are the same as without the collectives."""
    found = analyse(open_recording(two_ranks(tmp_path)))
    assert found.meetings == ()
    assert {int(t.seconds_ns().sum()) for t in found.timelines} == {found.window[1] - found.window[0]}


def test_a_wait_beside_work_is_no_lost_time(tmp_path: Path) -> None:
    """All of the waiting is hidden behind a matmul on another stream: the GPU's state is work."""
    files = []
    for rank in (0, 1):
        events = [kernel(0, 90, device=rank), kernel(40 + 30 * rank, 50 - 30 * rank, NCCL, device=rank)]
        files.append(trace(tmp_path / f"{rank}.json", events, distributedInfo={"rank": rank}))
    import_files(files, tmp_path / "run", created_unix_ns=1)
    found = analyse(open_recording(tmp_path / "run"))
    assert all(gpu.states.totals(-MS, 90 * MS)[CODE["spinning"]] == 0 for gpu in found.gpus)
    assert any("0.030 s waiting" in note.text for note in found.notes)


def test_traces_without_ranges_are_split_too(tmp_path: Path) -> None:
    """No steps and no phases: the rank of a GPU is in its trace."""
    files = [
        trace(tmp_path / f"{rank}.json", [kernel(30.0 * rank, 50 - 30.0 * rank, NCCL, device=rank)], distributedInfo={"rank": rank})
        for rank in (0, 1)
    ]  # fmt: skip
    import_files(files, tmp_path / "run", created_unix_ns=1)
    first, _ = analyse(open_recording(tmp_path / "run")).gpus
    assert first.states.totals(-MS, 60 * MS)[CODE["spinning"]] == pytest.approx(0.03, abs=0.002)


def test_two_of_four_ranks_leave_the_transfer_open(tmp_path: Path) -> None:
    """The waiting that is known is spinning; the rest stays 'wait or copy'."""
    first, second = analyse(open_recording(two_ranks(tmp_path, world=4))).gpus
    assert first.states.totals(0, 600 * MS)[CODE["spinning"]] == pytest.approx(0.18, abs=0.007)
    assert first.states.totals(0, 600 * MS)[CODE["waiting_or_bus_copy"]] == pytest.approx(0.12, abs=0.007)
    assert second.states.totals(0, 600 * MS)[CODE["waiting_or_bus_copy"]] == pytest.approx(0.12, abs=0.007)


def test_the_group_that_the_trace_names_is_recorded(tmp_path: Path) -> None:
    """PyTorch 2.3 and later: group, its ranks, its size and the elements sent; a group of 2 of 64 is whole."""
    args: dict[str, Any] = {
        "Process Group Name": "tp",
        "Process Group Ranks": "[0, 1]",
        "Group size": 2,
        "In msg nelems": 4096,
    }
    run = two_ranks(tmp_path, world=64, **args)
    rows = open_recording(run).table("collectives")
    assert rows.select("source", "group", "elements", "members").unique().rows() == [
        ("kernel", "tp [0, 1]", 4096, 2),
    ]  # fmt: skip
    assert any("0.120 s transfer" in n.text for n in analyse(open_recording(run)).notes)


@pytest.mark.parametrize(
    "args",
    [
        {"Process Group Name": 7, "Group size": -1, "In msg nelems": True},
        {"Process Group Name": ["x"], "Group size": 2**40, "In msg nelems": 2**70},
        {"Process Group Ranks": None, "Group size": "two", "In msg nelems": 1.5},
    ],
)
def test_strange_groups_are_none(tmp_path: Path, args: dict[str, Any]) -> None:
    """Anything of a wrong type or size is not known."""
    path = trace(tmp_path / "a.json", [kernel(0, 1, NCCL, **args)])
    rows = read_path(path).tables["collectives"]
    assert rows.select("group", "elements", "members").row(0) == (None, None, None)


def test_ranks_of_one_nsight_file_are_paired(tmp_path: Path) -> None:
    """Two processes on two GPUs in one export: 30 ms waiting and 10 ms transfer on the first."""
    kernels = [(0, 40 * MS, 0, 70 << 24, 2), (30 * MS, 40 * MS, 1, 71 << 24, 2)]
    path = export(tmp_path / "a.sqlite", StringIds=[(2, NCCL)], CUPTI_ACTIVITY_KIND_KERNEL=kernels,
                  TARGET_INFO_SESSION_START_TIME=[(1_700_000_000_000_000_000, "", "")])  # fmt: skip
    import_files([path], tmp_path / "run", Options(format="nsight"), created_unix_ns=1)
    text = " ".join(n.text for n in analyse(open_recording(tmp_path / "run")).notes)
    assert "rank 0's GPU spent 0.040 s in 1 communication kernels: 0.030 s waiting for the last rank, 0.010 s transfer" in text  # fmt: skip


def test_the_real_pair_cannot_tell(traces: Path, tmp_path: Path) -> None:
    """Ranks 0 and 1 of 128, point-to-point only: 10 kernels each, and the partner of none is recorded."""
    files = [traces.parent / "real-files" / f"kineto-rank{rank}.json.gz" for rank in (0, 1)]
    if not all(file.is_file() for file in files):
        pytest.skip(f"needs the real files in {files[0].parent}")
    import_files(files, tmp_path / "run", created_unix_ns=1)
    recording = open_recording(tmp_path / "run")
    found = split(recording.table("collectives"), recording.table("processes"))
    assert [(s.rank, s.kernels, s.waiting_ns, s.transfer_ns) for s in found] == [(0, 10, 0, 0), (1, 10, 0, 0)]
    assert [(s.whole_ns, dict(s.why)) for s in found] == [
        (396_199_000, {PARTNERS: 396_199_000}),
        (379_053_000, {PARTNERS: 379_053_000}),
    ]


def test_explain_prints_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer for people: how long rank 0's GPU waited for the last rank."""
    assert main(["explain", str(two_ranks(tmp_path)), "--width", "100", "--full"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "0.180 s waiting for the last rank, 0.120 s transfer" in text
