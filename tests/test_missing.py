"""What a recording lacks, in the order of what it would settle, each with the way to get it."""

from __future__ import annotations

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.verdicts.missing import missing
from records import Row, counters, cycle, job, memory, process, span, utilization

SPANS = cycle(0, 0, 0, (4, 3, 2, 1)) + cycle(1, 0, 0, (4, 5, 0, 1))
GPU = utilization([0] * 25 + [99] * 25, power_w=[120.0] * 25 + [600.0] * 25, sm_mhz=1980.0)
COMPLETE: dict[str, list[Row]] = {
    "spans": [row | {"file": "train.py", "line": 7} for row in SPANS],
    "gpu": GPU,
    "gpu_counters": counters([0] * 25 + [90] * 25),
    "gpu_process": [{"host": "node1", "gpu": 0, "t_ns": 10**9, "pid": 900, "sm_pct": 50.0}],
    "jobs": [job("a", 4, 6) | {"payload_types": "str"}],
    "processes": [process(900, rank=0, gpu=0)],
}


def signals(**tables: list[Row]) -> list[str]:
    """What is missing from a recording of these tables."""
    recording = memory(**tables)
    return [row.signal for row in missing(recording, analyse(recording))]


def complete_but(*gone: str, **changed: list[Row]) -> list[str]:
    """What is missing from the complete recording without some tables, or with other ones."""
    return signals(**{name: rows for name, rows in (COMPLETE | changed).items() if name not in gone})


def test_a_complete_recording_lacks_nothing() -> None:
    """Every signal that this version reads."""
    assert complete_but() == []


@pytest.mark.parametrize(
    ("gone", "signal"),
    [
        ("gpu_counters", "SM, DRAM and PCIe counters (GPM or DCGM)"),
        ("gpu_process", "per-process utilization"),
    ],
)
def test_each_table_is_missed(gone: str, signal: str) -> None:
    """One table less, one line more."""
    assert complete_but(gone) == [signal]


def test_without_jobs_their_payload_is_missing_too() -> None:
    """Who ended last, and what crossed to the workers."""
    assert complete_but("jobs") == ["reward jobs", "payload types (text, arrays, tensors)"]


def test_without_telemetry_that_comes_first() -> None:
    """Nothing about the GPU's counters is asked for before there is a GPU."""
    assert complete_but("gpu", "gpu_counters") == ["GPU telemetry"]


def test_without_spans_the_phases_are_missing_and_what_hangs_on_them_is_not_asked_for() -> None:
    """Jobs and tenants settle nothing without phases; the code receipt goes with the spans."""
    assert complete_but("spans", "jobs", "gpu_process") == [
        "phase spans", "file:line of the hooked calls", "payload types (text, arrays, tensors)",
    ]  # fmt: skip


def test_spans_without_call_sites_give_no_receipts_in_the_code() -> None:
    """Imported traces rarely have them."""
    assert complete_but(spans=SPANS) == ["file:line of the hooked calls"]


def test_handoffs_settle_what_crosses_as_well_as_job_payloads_do() -> None:
    """Either is enough."""
    jobs = [job("a", 4, 6)]
    handoffs = [
        {"host": "node1", "rank": 0, "t_ns": 10**9, "from": "generate", "to": "reward", "types": "list[str]"}
    ]

    assert complete_but(jobs=jobs) == ["payload types (text, arrays, tensors)"]
    assert complete_but(jobs=jobs, handoffs=handoffs) == []


def test_a_plateau_of_idle_power_is_asked_for_only_where_there_are_no_counters() -> None:
    """A GPU that never rests: with counters that does not matter."""
    busy = utilization([99] * 50, power_w=600.0, sm_mhz=1980.0)

    assert complete_but("gpu_counters", gpu=busy) == [
        "SM, DRAM and PCIe counters (GPM or DCGM)", "an idle plateau of board power",
    ]  # fmt: skip
    assert complete_but(gpu=busy) == []


def test_coarse_sampling_says_how_coarse() -> None:
    """W&B samples every 15 s."""
    assert complete_but(gpu=utilization([50.0] * 4, period=15.0)) == ["utilization finer than every 15 s"]


def test_ranks_that_never_meet_are_missed() -> None:
    """Phases of our own names, two ranks: no barrier is known."""
    spans = [
        span(n, a, b, rank=r, step=0, file="t.py")
        for r in (0, 1)
        for n, a, b in (("step", 0, 9), ("reward", 1, 5))
    ]

    assert complete_but(spans=spans) == ["a barrier that all ranks share"]


def test_one_rank_needs_no_barrier() -> None:
    """Nobody waits."""
    assert complete_but(spans=[row for row in COMPLETE["spans"] if row["rank"] == 0]) == []


def test_every_line_says_what_for_and_how() -> None:
    """Nothing is only complained about."""
    recording = memory(gpu=utilization([50.0] * 4, period=15.0), spans=SPANS)

    rows = missing(recording, analyse(recording))

    assert len(rows) == 7
    assert all(row.needed_for and row.how_to_get_it for row in rows)


def test_steps_without_phases_lack_the_phases() -> None:
    """A log of step times (TensorBoard, trainer_state.json): which phase is paid for takes spans inside the steps."""
    bare = [span("step", 12 * i, 12 * i + 12, step=i) for i in range(4)]
    assert signals(spans=bare)[:3] == ["GPU telemetry", "phase spans", "reward jobs"]
