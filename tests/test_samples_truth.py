"""The shipped traces of real runs against what was worked out from their files by hand (traces/README.md).

Two H200s, colocated GRPO: 12.6 billion parameters for 31 steps, and SmolLM2-135M for 12.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick import phases
from dipstick.analysis.intervals import indicator, integral
from dipstick.analysis.pipeline import Findings, Gpu, analyse
from dipstick.analysis.states import CODE
from dipstick.model import HOLLOW_STATES
from dipstick.recording.reader import open_recording
from dipstick.verdicts.report import explain
from records import near, without

if TYPE_CHECKING:
    from dipstick.analysis.timeline import RankTimeline
    from dipstick.model import IntArray, Report

BIG, SMALL = "sample:h200x2-grpo", "sample:h200x2-grpo-135m"
BOTH = pytest.mark.parametrize("sample", [BIG, SMALL])

SECONDS = {
    (BIG, 0): {
        "reward": 116.4, "gather_wait": 81.7, "generate": 60.3, "backward": 46.3, "forward": 41.0,
        "logprobs": 33.5, "weight_sync": 7.0, "checkpoint": 7.2, "optimizer": 0.2, "unattributed": 11.4,
    },
    (BIG, 1): {
        "reward": 147.1, "gather_wait": 51.2, "generate": 60.9, "backward": 46.7, "forward": 40.4,
        "logprobs": 33.2, "weight_sync": 7.2, "checkpoint": 0.1, "optimizer": 0.2, "unattributed": 18.0,
    },
    (SMALL, 0): {
        "reward": 53.1, "gather_wait": 60.7, "generate": 53.2, "backward": 11.5, "forward": 9.3, "logprobs": 6.5,
        "weight_sync": 1.5,
    },
    (SMALL, 1): {
        "reward": 105.0, "gather_wait": 8.4, "generate": 56.3, "backward": 10.6, "forward": 10.1, "logprobs": 6.9,
        "weight_sync": 1.4,
    },
}  # fmt: skip
CELLS = [(sample, rank, phase, s) for (sample, rank), row in SECONDS.items() for phase, s in row.items()]


@cache
def findings(sample: str, *, counters: bool = True) -> Findings:
    """What the analyses find in a sample, with its profiling counters or as if they had never been recorded."""
    recording = open_recording(sample)
    return analyse(recording if counters else without(recording, "gpu_counters"))


@cache
def report(sample: str) -> Report:
    """The whole report."""
    return explain(open_recording(sample))


def pairs(sample: str, *, counters: bool = True) -> list[tuple[Gpu, RankTimeline]]:
    """Each GPU with its rank."""
    found = findings(sample, counters=counters)
    by_rank = {t.rank: t for t in found.timelines}
    return [(gpu, by_rank[gpu.rank]) for gpu in found.gpus if gpu.rank is not None]


def pieces(timeline: RankTimeline, *names: str) -> tuple[IntArray, IntArray]:
    """Starts and ends of a rank's pieces in these phases."""
    mask = np.isin(timeline.code, [phases.CODE[name] for name in names])
    return timeline.edges[:-1][mask], timeline.edges[1:][mask]


def gpu_seconds(gpu: Gpu, state: str, where: tuple[IntArray, IntArray]) -> float:
    """Seconds of a GPU in one state inside these intervals."""
    return float(gpu.states.seconds(CODE[state], *where).sum())


# Phases


@pytest.mark.parametrize(("sample", "rank", "phase", "expected"), CELLS)
def test_exclusive_seconds(sample: str, rank: int, phase: str, expected: float) -> None:
    """To 2 %, or 0.15 s for the tiny ones. The table's unattributed row still holds the other collective waits."""
    rows = {row.phase: row.seconds for row in report(sample).phases.rows if row.rank == rank}  # type: ignore[union-attr]
    ours = rows[phase]
    if phase == "unattributed":
        ours += sum(rows.get(name, 0.0) for name in ("collective_wait", "startup", "teardown"))

    assert ours == near(expected, abs=max(0.02 * expected, 0.15))


@pytest.mark.parametrize(("sample", "length"), [(BIG, 405.0), (SMALL, 205.7)])
def test_phases_of_each_rank_add_up_to_the_window(sample: str, length: float) -> None:
    """To the nanosecond."""
    start, end = findings(sample).window

    assert (end - start) / 1e9 == near(length, abs=0.1)
    assert [int(t.seconds_ns().sum()) for t in findings(sample).timelines] == [end - start] * 2


def test_half_of_the_log_probabilities_are_the_forward_pass() -> None:
    """31 before training, 8 micro-steps in each of 31 steps inside ``compute_loss``."""
    counts = {(r.rank, r.phase): r.count for r in report(BIG).phases.rows}  # type: ignore[union-attr]

    assert [counts[rank, "logprobs"] for rank in (0, 1)] == [31, 31]
    assert [counts[rank, "forward"] for rank in (0, 1)] == [248, 248]


@BOTH
def test_rewards_are_longest_and_paid_for(sample: str) -> None:
    """On both runs."""
    answer = report(sample).answer

    assert (answer.longest_phase, answer.paid_most_for) == ("reward", "reward")


# Waits and stragglers


@pytest.mark.parametrize(("sample", "steps", "last"), [(BIG, 31, [11, 20]), (SMALL, 12, [1, 11])])
def test_who_finished_the_rewards_last(sample: str, steps: int, last: list[int]) -> None:
    """No rank is *the* straggler of the big run; rank 1 is of the small one."""
    stragglers = findings(sample).stragglers
    assert stragglers is not None

    assert stragglers.steps == steps
    assert [row.last_in_steps for row in stragglers.by_rank] == last
    assert stragglers.wait_gpu_s == near(sum(SECONDS[sample, r]["gather_wait"] for r in (0, 1)), rel=0.02)


def test_the_wait_behind_rank_0_s_checkpoints_is_named() -> None:
    """Six checkpoints, 0.6-1.4 s each, behind which rank 1 waits for rank 0's completions."""
    waits = [w for w in report(BIG).phases.waits if w.because == "checkpoint"]  # type: ignore[union-attr]

    assert [(w.rank, w.late_rank, w.barrier, w.phase, w.count) for w in waits] == [
        (1, 0, "lengths", "collective_wait", 6)
    ]
    assert waits[0].seconds == near(6.9, abs=0.2)
    assert waits[0].longest_s < 1.6


def test_jobs_and_workers() -> None:
    """1,984 jobs: median 0.12 s, 99th percentile 2.5 s, longest 7.6 s; 1.9 of 2 slots busy."""
    found = findings(BIG).stragglers
    assert found is not None

    assert (found.jobs, found.slots, len(found.by_worker)) == (1984, 2, 4)
    assert found.slots_busy == near(1.9, abs=0.05)
    assert (found.job_median_s, found.job_p99_s, found.job_max_s) == (
        near(0.12, abs=0.005), near(2.5, abs=0.05), near(7.6, abs=0.05),
    )  # fmt: skip


def test_every_step_names_the_job_that_ended_last() -> None:
    """And its worker is one of the late rank's."""
    found = findings(BIG).stragglers
    assert found is not None
    workers = {row.pid: row.rank for row in found.by_worker}

    assert [a.step for a in found.arrivals] == list(range(31))
    assert [workers[a.last_job_pid or 0] for a in found.arrivals] == [a.last_rank for a in found.arrivals]


# States


@BOTH
def test_waiting_ranks_spin_with_counters(sample: str) -> None:
    """Of the seconds of gather_wait at least 95 % are spinning on every GPU."""
    for gpu, timeline in pairs(sample):
        where = pieces(timeline, "gather_wait")
        assert gpu_seconds(gpu, "spinning", where) >= 0.95 * (where[1] - where[0]).sum() / 1e9


@BOTH
def test_waiting_ranks_spin_or_may_copy_without_counters(sample: str) -> None:
    """With GPM taken away at least 85 % are spinning or waiting_or_bus_copy, from power alone."""
    for gpu, timeline in pairs(sample, counters=False):
        assert gpu.states.method == "power"
        where = pieces(timeline, "gather_wait")
        found = sum(gpu_seconds(gpu, state, where) for state in ("spinning", "waiting_or_bus_copy"))
        assert found >= 0.85 * (where[1] - where[0]).sum() / 1e9


@BOTH
@pytest.mark.parametrize("counters", [True, False])
def test_outside_of_waits_hardly_anything_spins(sample: str, counters: bool) -> None:  # noqa: FBT001 - parametrized
    """At most 3 % of the seconds outside any wait are called spinning."""
    named = [name for name in phases.PHASES if name not in phases.WAIT_PHASES]
    for gpu, timeline in pairs(sample, counters=counters):
        where = pieces(timeline, *named)
        assert gpu_seconds(gpu, "spinning", where) <= 0.03 * (where[1] - where[0]).sum() / 1e9


@BOTH
def test_hollow_seconds_are_explained_by_named_waits(sample: str) -> None:
    """At least 95 % of each GPU's hollow seconds lie inside gather_wait or collective_wait."""
    for gpu, timeline in pairs(sample):
        inside = sum(
            gpu_seconds(gpu, state, pieces(timeline, *phases.WAIT_PHASES)) for state in HOLLOW_STATES
        )
        whole = sum(gpu_seconds(gpu, state, pieces(timeline, *phases.PHASES)) for state in HOLLOW_STATES)
        assert inside >= 0.95 * whole


def test_busy_gpu_seconds() -> None:
    """477.7 GPU-seconds read as busy by the poll; the driver's buffer, which is used here, reads 1 % less."""
    assert sum(s.busy_s for s in findings(BIG).states) == near(477.7, rel=0.02)


@BOTH
def test_there_is_no_bus_copy_and_no_unknown_time(sample: str) -> None:
    """No window has host-to-device traffic of note: a plain no to the host-transfer story."""
    for states in findings(sample).states:
        assert (
            states.seconds["copying_bus"],
            states.seconds["waiting_or_bus_copy"],
            states.seconds["unknown"],
        ) == (0, 0, 0)
        assert states.method == "counters"


@BOTH
def test_idle_power_is_that_of_an_open_context_at_full_clock(sample: str) -> None:
    """119-124 W, not the 78 W of a board that nobody has opened."""
    for gpu in findings(sample).gpus:
        assert gpu.states.idle_power_w == near(121.5, abs=3)


@BOTH
def test_counters_are_found_to_come_late(sample: str) -> None:
    """GPM rows are stamped 100-140 ms after what they say."""
    assert all(80e6 <= gpu.signals.counter_lag_ns <= 160e6 for gpu in findings(sample).gpus)


PHASE_UTIL = {"generate": (94, 100), "reward": (15, 19), "gather_wait": (97, 100), "checkpoint": (0, 8)}


@pytest.mark.parametrize(("phase", "limits"), PHASE_UTIL.items())
def test_utilization_by_phase(phase: str, limits: tuple[float, float]) -> None:
    """Decode and waiting read the same; rewards read a sixth; rank 0's checkpoints read next to nothing."""
    row = next(r for r in report(BIG).phases.rows if r.phase == phase and r.rank == 0)  # type: ignore[union-attr]

    assert row.util_mean_pct is not None
    assert limits[0] <= row.util_mean_pct <= limits[1]


# The windows outside of any wait that are called spinning, each one looked at


def spinning_outside(gpu: Gpu, timeline: RankTimeline, window: tuple[int, int]) -> tuple[IntArray, IntArray]:
    """Windows called spinning, at least a nanosecond of which lies outside any named wait."""
    windows, waits = gpu.states.windows, indicator(*pieces(timeline, *phases.WAIT_PHASES))
    inside = integral(*waits, windows.t1) - integral(*waits, windows.t0)
    spinning = gpu.states.rate(CODE["spinning"]) > 0
    mask = (
        spinning & (inside < windows.t1 - windows.t0) & (windows.t0 >= window[0]) & (windows.t1 <= window[1])
    )
    return windows.t0[mask], windows.t1[mask]


@BOTH
def test_what_spins_outside_of_waits_is_the_edge_of_one(sample: str) -> None:
    """Every such window overlaps a named wait or begins within one window (0.2 s) of its end.

    Looked at one by one (14 on the big run, 10 on the small): nearly all straddle the instant at which a wait begins or
    ends; a window has one state, so a part of its spinning share falls on the other side. The longer ones (0.1-0.2 s,
    small run at 87.4, 150.8, 180.6 and 267.4 s) are true waits: the late rank's ``vLLM.generate`` is over, its GPU reads
    5-17 % while Python still builds the completion tensors, and only then does it join the lengths gather.
    """
    for gpu, timeline in pairs(sample):
        start, end = spinning_outside(gpu, timeline, findings(sample).window)
        waits = pieces(timeline, *phases.WAIT_PHASES)
        touch = [
            bool(((waits[0] < b) & (waits[1] + 200_000_000 > a)).any())
            for a, b in zip(start, end, strict=True)
        ]
        assert touch == [True] * len(start)
        assert 0 < len(start) < 15


@BOTH
def test_spinning_outside_of_waits_is_less_than_half_a_second(sample: str) -> None:
    """0.12 and 0.19 s of the big run's GPUs, 0.34 and 0.21 s of the small run's."""
    named = [name for name in phases.PHASES if name not in phases.WAIT_PHASES]
    for gpu, timeline in pairs(sample):
        assert gpu_seconds(gpu, "spinning", pieces(timeline, *named)) < 0.5


# The answer


@pytest.mark.parametrize(("sample", "percent"), [(BIG, 28), (SMALL, 42)])
def test_the_headline(sample: str, percent: int) -> None:
    """Rewards are longest and paid for, and more than a quarter of what reads as busy is a rank waiting."""
    headline = report(sample).answer.headline

    assert headline.startswith("The longest phase is reward scoring")
    assert "it is the one you pay for" in headline
    share = re.search(r"(\d+) % are a rank waiting for another one at full utilization", headline)
    assert share is not None
    assert int(share[1]) == near(percent, abs=1)
    assert int(share[1]) > 25


@pytest.mark.parametrize(
    ("sample", "word"), [("sample:h200x2-grpo", "queued_work"), ("sample:h200x2-grpo-135m", "straggler_rank")]
)
def test_what_the_dips_are(sample: str, word: str) -> None:
    """Big: the slots are full and no rank is late more than chance. Small: rank 1 is last in 11 of 12 steps."""
    assert report(sample).answer.dips_are == word


def test_what_the_trace_cannot_show_is_listed_as_missing() -> None:
    """It has neither call sites nor payload types; everything else is there."""
    assert [row.signal for row in report(BIG).missing] == [
        "file:line of the hooked calls", "payload types (text, arrays, tensors)",
    ]  # fmt: skip


@BOTH
def test_the_run_in_numbers(sample: str) -> None:
    """Two GPUs, two ranks, three tenants a GPU, sampled at 5 Hz by the driver's buffer, without a hole."""
    found = report(sample)

    assert (found.run.gpus, found.run.ranks, found.run.hosts, found.run.unused_gpus) == (2, 2, 1, ())
    assert found.run.steps == (31 if sample == BIG else 12)
    assert (found.run.sampling.source, found.run.sampling.has_counters) == ("buffer", True)
    assert found.run.sampling.period_s == near(0.2, abs=0.001)
    assert found.run.sampling.coverage == near(1, abs=0.01)
    assert [sum(t.gpu == gpu for t in found.tenants) for gpu in (0, 1)] == [3, 3]
    assert sum(t.role == "trainer+engine" for t in found.tenants) == 2
