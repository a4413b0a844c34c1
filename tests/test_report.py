"""From a recording to the report: what was recorded, what is odd about it, and honest answers to odd recordings.

The recordings here are written to disk by the real writer, so that they pass the reader's cleaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.errors import EmptyRecordingError
from dipstick.model import Report, Tenant
from dipstick.verdicts.report import explain
from records import (
    HOST,
    UNIX_NS,
    Row,
    boxcar,
    counters,
    cycle,
    memory,
    near,
    on_disk,
    process,
    span,
    utilization,
)

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)]
SPANS = [
    r
    for step in range(2)
    for r in cycle(0, step, 10.0 * step, (4, 3, 2, 1)) + cycle(1, step, 10.0 * step, (4, 5, 0, 1))
]
"""Two ranks, two steps of 10 s; rank 0 waits 2 s for rank 1's rewards in each."""


def gpus(until: float = 20) -> list[Row]:
    """Both GPUs, sampled at 5 Hz; GPU 1 vanishes at some time."""
    second = utilization(boxcar([(0, 4), (9, 14), (19, 20)], 20), gpu=1)
    return utilization(boxcar([(0, 4), (7, 14), (17, 20)], 20)) + second[: round(until * 5)]


def notes(report: Report) -> list[str]:
    """The texts of the notes."""
    return [note.text for note in report.notes]


def adds_up(report: Report) -> None:
    """Phases of each rank add up to the window, states of each GPU to its recorded time."""
    length = report.run.window_s[1] - report.run.window_s[0]
    if report.phases:
        for rank in {row.rank for row in report.phases.rows}:
            assert sum(r.seconds for r in report.phases.rows if r.rank == rank) == near(length)
    for state in report.states:
        assert sum(state.seconds.values()) == near(state.recorded_s)
        assert state.recorded_s <= length + 1e-6


# What was recorded


def test_the_run_in_numbers(tmp_path: Path) -> None:
    """Window, GPUs, ranks, steps, hosts, sampling."""
    names = [{"host": HOST, "gpu": g, "name": "NVIDIA H200"} for g in (0, 1)]

    run = explain(on_disk(tmp_path / "r", spans=SPANS, gpu=gpus(), processes=PROCESSES, gpus=names)).run

    assert (run.name, run.origin, run.start_unix_ns) == ("r", "imported", UNIX_NS)
    assert (run.window_s, run.seconds) == ((0, 20), 20)
    assert (run.gpus, run.ranks, run.steps, run.hosts) == (2, 2, 2, 1)
    assert (run.gpu_names, run.unused_gpus) == (("NVIDIA H200",), ())
    sampling = run.sampling
    assert (sampling.period_s, sampling.counter_window_s, sampling.smallest_visible_dip_s) == (0.2, 0.2, 0.4)
    assert (sampling.coverage, sampling.gaps, sampling.gap_s) == (1, 0, 0)
    assert (sampling.source, sampling.has_counters) == ("buffer", False)


def test_states_are_over_the_window_and_over_the_recording() -> None:
    """A GPU busy throughout 20 s of which the step covers 10."""
    report = explain(
        memory(spans=[span("step", 5, 15, step=0)], gpu=utilization([100] * 100), processes=PROCESSES[:1])
    )

    assert (report.run.window_s, report.run.seconds) == ((5, 15), 20)
    assert (report.states[0].busy_s, report.states_all[0].busy_s) == (near(10), near(20))


def test_the_worst_gpu_s_coverage_counts_and_gaps_are_summed() -> None:
    """GPU 0 lost 4 s in the middle of 20."""
    rows = [row for i, row in enumerate(utilization([50] * 100)) if not 40 <= i < 60] + utilization(
        [50] * 100, gpu=1
    )

    sampling = explain(memory(gpu=rows)).run.sampling

    assert (sampling.coverage, sampling.gaps, sampling.gap_s) == (near(0.8), 1, near(4))


def test_tracks_hold_what_a_renderer_draws() -> None:
    """Windows with state per GPU, exclusive phases per rank, and where steps start."""
    tracks = explain(memory(spans=SPANS, gpu=gpus(), processes=PROCESSES)).tracks

    assert [(t.host, t.gpu, t.rank, len(t.t0_s), t.util_pct[0]) for t in tracks.gpus] == [
        (HOST, 0, 0, 100, 100), (HOST, 1, 1, 100, 100),
    ]  # fmt: skip
    assert [(t.rank, t.gpus, t.edge_s[0], t.edge_s[-1]) for t in tracks.ranks] == [
        (0, ((HOST, 0),), 0, 20), (1, ((HOST, 1),), 0, 20),
    ]  # fmt: skip
    assert all(len(t.edge_s) == len(t.code) + 1 for t in tracks.ranks)
    assert tracks.step_start_s.tolist() == [0, 10]


def on_gpu(pid: int, sm: float, t: float = 1, host: str = HOST) -> Row:
    """One reading of a process on GPU 0."""
    return {
        "host": host,
        "gpu": 0,
        "t_ns": round(t * 1e9),
        "pid": pid,
        "sm_pct": sm,
        "mem_used_b": 1000 + int(t),
    }


def test_tenants_have_their_role_their_mean_and_their_peak_memory() -> None:
    """A trainer at 60 and 40 %, a process nobody knows at 5 %."""
    rows = [on_gpu(900, 60, 1), on_gpu(900, 40, 2), on_gpu(7, 5)]

    report = explain(memory(gpu=utilization([50] * 20), gpu_process=rows, processes=PROCESSES))

    assert report.tenants == (
        Tenant(HOST, 0, 7, "unknown", 5, 1001),
        Tenant(HOST, 0, 900, "trainer", 50, 1002),
    )


def test_the_same_pid_on_two_hosts_has_two_roles() -> None:
    """Roles belong to a process of one host."""
    known = [
        process(1, rank=0, gpu=0, host="a"),
        process(1, rank=None, gpu=0, host="b", role="reward_worker"),
    ]
    rows = utilization([50] * 20, host="a") + utilization([50] * 20, host="b")

    report = explain(memory(gpu=rows, gpu_process=[on_gpu(1, 9, host=h) for h in "ab"], processes=known))

    assert [(t.host, t.role) for t in report.tenants] == [("a", "trainer"), ("b", "reward_worker")]


# Who runs where


def owners(report: Report) -> list[int | None]:
    """The rank of each GPU."""
    return [track.rank for track in report.tracks.gpus]


def test_ranks_are_matched_to_gpus_in_order_where_that_was_not_recorded() -> None:
    """And the report says that it did so."""
    report = explain(memory(spans=SPANS, gpu=gpus()))

    assert owners(report) == [0, 1]
    assert any("ranks were matched to GPUs in order" in text for text in notes(report))


def test_ranks_and_gpus_in_different_numbers_are_not_matched() -> None:
    """Two ranks, three GPUs: no phase gets GPU time, and the report says why."""
    report = explain(memory(spans=SPANS, gpu=gpus() + utilization([50] * 100, gpu=2)))

    assert owners(report) == [None] * 3
    assert any("no record of which runs where" in text for text in notes(report))
    assert report.phases is not None
    assert {row.hollow_s for row in report.phases.rows} == {None}


def test_a_stray_context_of_another_rank_does_not_take_gpu_0() -> None:
    """Every rank of a careless script opens a context on GPU 0 before it moves to its own."""
    stray = process(901, rank=1, gpu=0)

    assert owners(explain(memory(spans=SPANS, gpu=gpus(), processes=[stray, *PROCESSES]))) == [0, 1]


def test_hosts_without_a_name_still_match() -> None:
    """Imported files rarely name the host."""
    rows = [r | {"host": None} for r in gpus()]

    assert owners(
        explain(memory(spans=SPANS, gpu=rows, processes=[p | {"host": None} for p in PROCESSES]))
    ) == [0, 1]


def copying(name: str, **more: list[Row]) -> float:
    """Seconds of device copies while the DRAM is full on [4, 6) of a step, given a record of what happened then."""
    dense = [90.0 if 20 <= i < 30 else 10.0 for i in range(50)]
    spans = [span("step", 0, 10, step=0)] + ([span(name, 4, 6, step=0)] if not more else [])
    report = explain(
        memory(
            spans=spans, gpu=utilization([100.0] * 50), processes=PROCESSES[:1],
            gpu_counters=counters([95.0] * 50, gr_active_pct=100.0, dram_active_pct=dense), **more,
        )
    )  # fmt: skip
    return report.states[0].seconds["copying_device"]


@pytest.mark.parametrize(("name", "seconds"), [("sync_weights", 2), ("checkpoint", 2), ("optimizer", 0)])
def test_device_copies_are_told_by_the_phase_they_happen_in(name: str, seconds: float) -> None:
    """Weight sync and checkpoint copy; an optimizer reads and writes as much, and works."""
    assert copying(name) == near(seconds)


@pytest.mark.parametrize(
    ("name", "rank", "seconds"), [("sleep", 0, 2), ("wake", 0, 2), ("gc", 0, 0), ("sleep", 1, 0)]
)
def test_sleep_and_wake_of_the_engine_copy_too(name: str, rank: int, seconds: float) -> None:
    """They are events, not phases, and count for the rank they happened on."""
    event = {"host": HOST, "rank": rank, "name": name, "t0_ns": 4 * 10**9, "t1_ns": 6 * 10**9}

    assert copying("", events=[event]) == near(seconds)


@pytest.mark.parametrize("name", ["AMD Instinct MI300X", "NVIDIA A100 MIG 1g.5gb"])
def test_devices_that_are_not_understood_stay_unknown(name: str) -> None:
    """Their signals may mean something else."""
    report = explain(
        memory(
            gpu=utilization([100.0] * 50), gpu_counters=counters([0.8] * 50),
            gpus=[{"host": HOST, "gpu": 0, "name": name}],
        )
    )  # fmt: skip

    assert report.states[0].seconds["unknown"] == near(10)
    assert report.states[0].method == "utilization"


# Odd recordings


def test_nothing_to_explain_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """Events alone: neither samples nor spans."""
    recording = on_disk(tmp_path / "r", events=[{"host": HOST, "name": "gc", "t0_ns": 1, "t1_ns": 2}])

    with pytest.raises(EmptyRecordingError, match="neither GPU utilization nor phase spans") as error:
        explain(recording)
    assert "nvidia-smi" in error.value.fix


def test_a_recording_of_a_fifth_of_a_second_is_explained_and_called_anecdotal(tmp_path: Path) -> None:
    """One sample of each GPU and one span."""
    rows = utilization([80]) + utilization([70], gpu=1)

    report = explain(on_disk(tmp_path / "r", gpu=rows, spans=[span("generate", 0, 0.2)]))

    adds_up(report)
    assert any("shares and counts are anecdotes" in text for text in notes(report))
    assert report.dips == ()


def test_one_span_of_no_length_is_a_recording(tmp_path: Path) -> None:
    """Nothing can be divided by its length."""
    report = explain(on_disk(tmp_path / "r", spans=[span("reward", 1, 1)]))

    adds_up(report)
    assert report.answer.longest_phase is None


def test_gpu_samples_only(tmp_path: Path) -> None:
    """What ``nvidia-smi`` alone gives: states and dips, no phase."""
    report = explain(on_disk(tmp_path / "r", gpu=gpus()))

    adds_up(report)
    assert (report.phases, report.stragglers, report.answer.longest_phase) == (None, None, None)
    assert report.answer.dips_are == "unknown"
    assert {dip.phase for dip in report.dips} == {None}
    assert "phase spans" in [row.signal for row in report.missing]


def test_spans_only(tmp_path: Path) -> None:
    """Phases and waits, no state: None, not 0."""
    report = explain(on_disk(tmp_path / "r", spans=SPANS))

    adds_up(report)
    assert (report.states, report.dips, report.answer.dips_are) == ((), (), "unknown")
    assert report.answer.longest_phase == "reward"
    assert report.phases is not None
    assert {(row.util_mean_pct, row.hollow_s) for row in report.phases.rows} == {(None, None)}
    assert report.stragglers is not None
    assert report.stragglers.wait_gpu_s == 4
    assert report.run.sampling.period_s is None


def test_a_gpu_that_vanishes_half_way_counts_until_then(tmp_path: Path) -> None:
    """GPU 1's samples stop at 10 of 20 s: the rest is not idle, and is said to be missing."""
    report = explain(on_disk(tmp_path / "r", spans=SPANS, gpu=gpus(until=10), processes=PROCESSES))

    adds_up(report)
    assert [s.recorded_s for s in report.states] == [near(20), near(10)]
    assert "GPU 1: no samples in the last 10 s of the window; that time is not counted" in notes(report)
    assert report.run.sampling.coverage == near(0.5)
    assert [d.gpu for d in report.dips if d.start_s > 10 and d.series == "utilization"] == [0]


def test_a_rank_without_spans_is_said_to_be_missing(tmp_path: Path) -> None:
    """Rank 1 is known to run on GPU 1 but left no span: rank 0 is explained, and waits are not made up."""
    report = explain(
        on_disk(tmp_path / "r", spans=[r for r in SPANS if r["rank"] == 0], gpu=gpus(), processes=PROCESSES)
    )

    adds_up(report)
    assert "rank 1 left no spans: its phases, and the waits for it, are not known" in notes(report)
    assert report.run.ranks == 1
    assert report.phases is not None
    assert report.phases.waits == ()
    assert owners(report) == [0, None]


def test_a_rank_without_steps_is_said_to_have_no_waits(tmp_path: Path) -> None:
    """Its phases count, its waits can't be worked out."""
    rows = [r for r in SPANS if r["rank"] == 0] + [span("reward", 4, 9, rank=1)]

    report = explain(on_disk(tmp_path / "r", spans=rows, gpu=gpus(), processes=PROCESSES))

    adds_up(report)
    assert "no steps on rank 1: its waits can't be worked out" in notes(report)


@pytest.mark.parametrize("with_spans", [True, False])
def test_utilization_that_is_never_a_number(tmp_path: Path, with_spans: bool) -> None:  # noqa: FBT001 - parametrized
    """Missing, not zero: with spans the phases are explained without a GPU, without them there is nothing."""
    rows = [r | {"util_pct": float("nan")} for r in gpus()]
    recording = on_disk(tmp_path / "r", gpu=rows, **({"spans": SPANS} if with_spans else {}))

    if with_spans:
        report = explain(recording)
        assert (report.run.gpus, report.answer.dips_are, report.answer.longest_phase) == (
            0,
            "unknown",
            "reward",
        )
        assert any("NaN or infinite" in text for text in notes(report))
    else:
        with pytest.raises(EmptyRecordingError, match="neither GPU utilization nor phase spans"):
            explain(recording)


def test_utilization_that_is_sometimes_not_a_number_leaves_gaps(tmp_path: Path) -> None:
    """Four samples in the middle are NaN: 0.8 of 19.8 s are not recorded, and not idle (t = 0 is the first stamp)."""
    rows = [
        r | {"util_pct": float("nan")} if 40 <= i < 44 else r for i, r in enumerate(utilization([90] * 100))
    ]

    report = explain(on_disk(tmp_path / "r", gpu=rows))

    adds_up(report)
    assert report.states[0].recorded_s == near(19.0)
    assert report.states[0].seconds["idle"] == near(1.9)
    assert report.dips == ()


def test_telemetry_without_power_and_counters_says_what_it_can_t_tell(tmp_path: Path) -> None:
    """Busy or idle is all that utilization says."""
    report = explain(on_disk(tmp_path / "r", spans=SPANS, gpu=gpus(), processes=PROCESSES))

    assert {name for s in report.states for name, t in s.seconds.items() if t > 0} == {"idle", "unknown"}
    assert {s.method for s in report.states} == {"utilization"}
    assert "can't be told without power or SM counters" in report.answer.headline
    assert [row.signal for row in report.missing][:2] == [
        "SM, DRAM and PCIe counters (GPM or DCGM)", "an idle plateau of board power",
    ]  # fmt: skip


def test_an_unused_gpu_is_named_and_left_out(tmp_path: Path) -> None:
    """GPU 2 rests throughout and belongs to no rank."""
    report = explain(
        on_disk(
            tmp_path / "r", spans=SPANS, gpu=gpus() + utilization([0.0] * 100, gpu=2), processes=PROCESSES
        )
    )

    assert report.run.unused_gpus == (f"{HOST}:2",)
    assert [s.used for s in report.states] == [True, True, False]
    assert {d.gpu for d in report.dips} == {0, 1}
    assert any(f"GPU 2 on {HOST}" in text for text in notes(report))


def test_rows_of_no_gpu_and_spans_of_no_rank_do_not_stop_the_rest(tmp_path: Path) -> None:
    """Damage in single rows is left out; homeless spans are counted."""
    odd = {"host": None, "gpu": None, "t_ns": 10**9, "util_pct": 5.0, "source": "poll"}
    spans = [*SPANS, span("reward", 1, 2, rank=None, pid=77)]

    report = explain(on_disk(tmp_path / "r", spans=spans, gpu=[*gpus(), odd], processes=PROCESSES))

    adds_up(report)
    assert report.run.gpus == 2
    assert "1 spans belong to no known rank and were left out" in notes(report)


def test_crossing_spans_are_said_to_be_odd() -> None:
    """The reader should know that somebody's seconds were cut."""
    report = explain(memory(spans=[span("generate", 0, 10), span("reward", 5, 15)]))

    assert any("1 spans overlap a later span of their thread" in text for text in notes(report))
