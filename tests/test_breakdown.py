"""Seconds per phase and rank, with what the GPU did in each; they add up, and what was not seen is not zero."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dipstick.analysis.pipeline import Findings, analyse
from dipstick.model import STATES, Breakdown, PhasePart, PhaseRow
from records import Row, counters, cycle, memory, near, process, span, utilization


def found(spans: list[Row], **more: list[Row]) -> Breakdown:
    """The breakdown of these spans (and telemetry, processes)."""
    breakdown = analyse(memory(spans=spans, **more)).breakdown
    assert breakdown is not None
    return breakdown


def row_of(breakdown: Breakdown, phase: str, rank: int | None = 0) -> PhaseRow:
    """One rank's row of a phase; rank None: the total."""
    rows = breakdown.totals if rank is None else breakdown.rows
    return next(row for row in rows if row.phase == phase and row.rank == rank)


def cells(rows: tuple[PhaseRow, ...]) -> list[tuple[int | None, str, float, int]]:
    """Rank, phase, seconds and count of each row."""
    return [(row.rank, row.phase, row.seconds, row.count) for row in rows]


STEP = cycle(0, 0, 0, (4, 3, 2, 1))
"""Generate 4 s, rewards 3 s, 2 s nothing, backward 1 s."""


# Seconds


def test_rows_hold_exclusive_seconds_share_and_count() -> None:
    """One step of 10 s: every phase once, the remainder explicit."""
    breakdown = found(STEP)

    assert cells(breakdown.rows) == [
        (0, "unattributed", 2.0, 1), (0, "generate", 4.0, 1), (0, "reward", 3.0, 1), (0, "backward", 1.0, 1),
    ]  # fmt: skip
    assert [row.share for row in breakdown.rows] == [0.2, 0.4, 0.3, 0.1]


def test_totals_sum_over_ranks_largest_first_and_the_remainder_last() -> None:
    """Two ranks of 10 s: 20 s in all; the wait of rank 0 is a row of its own."""
    breakdown = found(STEP + cycle(1, 0, 0, (4, 5, 0, 1)))

    assert cells(breakdown.totals) == [
        (None, "generate", 8.0, 2), (None, "reward", 8.0, 2), (None, "gather_wait", 2.0, 1), (None, "backward", 2.0, 2),
    ]  # fmt: skip
    assert sum(row.share for row in breakdown.totals) == near(1)


def test_median_and_90th_percentile_are_of_whole_occurrences() -> None:
    """Generations of 1, 2 and 6 s: median 2 s; the 90th percentile lies 80 % of the way from 2 to 6."""
    spans = [span("step", 0, 20, step=0), *(span("generate", a, b) for a, b in ((0, 1), (5, 7), (10, 16)))]

    row = row_of(found(spans), "generate")

    assert (row.count, row.median_s, row.p90_s) == (3, 2.0, near(5.2))


def test_nested_spans_of_one_phase_are_one_occurrence() -> None:
    """``_calculate_rewards`` with ``reward.parse`` and ``reward.workers`` inside happened once, for 4 s."""
    spans = [
        span("step", 0, 9, step=0), span("_calculate_rewards", 1, 5), span("reward.parse", 1, 2),
        span("reward.workers", 2, 5),
    ]  # fmt: skip

    row = row_of(found(spans), "reward")

    assert (row.seconds, row.count, row.median_s) == (4.0, 1, 4.0)


@pytest.mark.parametrize(("start", "end", "count"), [(0, 2, 0), (1, 3, 1), (11, 14, 1), (12, 14, 0)])
def test_an_occurrence_that_only_touches_the_window_is_not_counted(
    start: float, end: float, count: int
) -> None:
    """The window is rank 1's step, [2, 12): a span of rank 0 that ends where it starts took no part in it."""
    breakdown = found(
        [span("step", 2, 12, rank=1, step=0), span("generate", start, end), span("backward", 4, 5)]
    )

    rows = [row for row in breakdown.rows if row.phase == "generate"]
    assert [(row.count, row.seconds) for row in rows] == [(1, 1.0)] * count


def test_an_occurrence_is_measured_inside_the_window() -> None:
    """A checkpoint from 1 to 5 of which 3 s lie in the window [2, 12)."""
    row = row_of(found([span("step", 2, 12, rank=1, step=0), span("checkpoint", 1, 5)]), "checkpoint")

    assert (row.seconds, row.median_s) == (3.0, 3.0)


# Parts


def test_the_reward_phase_lists_its_parts() -> None:
    """What the framework names inside the reward function, with inclusive seconds."""
    spans = [
        span("step", 0, 9, step=0), span("_calculate_rewards", 1, 6), span("reward.parse", 1, 2),
        span("reward.workers", 2, 5), span("gather", 5, 6),
    ]  # fmt: skip

    assert row_of(found(spans), "reward").parts == (
        PhasePart("parse", 1.0, 1), PhasePart("score", 3.0, 1), PhasePart("gather_call", 1.0, 1),
    )  # fmt: skip


def test_a_gather_elsewhere_is_no_part_of_the_reward() -> None:
    """TRL gathers completion lengths and metrics with the same function."""
    spans = [
        span("step", 0, 9, step=0), span("_calculate_rewards", 1, 5), span("gather", 4, 5), span("gather", 6, 8),
    ]  # fmt: skip

    assert row_of(found(spans), "reward").parts == (PhasePart("gather_call", 1.0, 1),)


def test_a_wait_lists_what_the_peer_was_doing() -> None:
    """By barrier and cause."""
    row = row_of(found(STEP + cycle(1, 0, 0, (4, 5, 0, 1))), "gather_wait")

    assert row.parts == (PhasePart("at reward, peer in reward", 2.0, 1),)
    assert (row.count, row.median_s) == (1, 2.0)


# Telemetry inside phases

PROCESSES = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)]


def loaded(gpu: int = 0, wait: float = 100) -> tuple[list[Row], list[Row]]:
    """The GPU of ``STEP``: busy while generating, 20 % in rewards, hollow while waiting, busy in backward."""
    util = [100.0] * 20 + [20.0] * 15 + [wait] * 10 + [100.0] * 5
    sm = [90.0] * 20 + [15.0] * 15 + [0.8] * 10 + [90.0] * 5
    profile = counters(
        sm, gpu=gpu, dram_active_pct=[50.0 if s == 90 else 0.0 for s in sm], gr_active_pct=util
    )
    return utilization(util, gpu=gpu), profile


def measured() -> Breakdown:
    """Two ranks, rank 0 with telemetry."""
    gpu, profile = loaded()
    return found(STEP + cycle(1, 0, 0, (4, 5, 0, 1)), gpu=gpu, gpu_counters=profile, processes=PROCESSES)


def test_each_phase_has_the_states_of_its_rank_s_gpu() -> None:
    """Rank 0 waits 2 s at the reward gather at full utilization: all of it hollow."""
    wait = row_of(measured(), "gather_wait")

    assert wait.util_mean_pct == near(100)
    assert wait.hollow_s == near(2)
    assert wait.states == {state: near(2.0 if state == "spinning" else 0.0) for state in STATES}


def test_partly_busy_time_is_split_into_its_state_and_idle() -> None:
    """3 s of rewards at 20 %: 0.6 s of compute (75 % of the SMs while active) and 2.4 s idle."""
    reward = row_of(measured(), "reward")

    assert reward.util_mean_pct == near(20)
    assert reward.states is not None
    assert (reward.states["compute"], reward.states["idle"]) == (near(0.6), near(2.4))
    assert reward.hollow_s == near(0)


def test_a_rank_without_telemetry_has_phases_but_no_states() -> None:
    """None, not 0."""
    row = row_of(measured(), "reward", rank=1)

    assert (row.util_mean_pct, row.states, row.hollow_s) == (None, None, None)


def test_totals_count_the_ranks_that_were_seen() -> None:
    """The total's states and mean are those of rank 0; its seconds are those of both."""
    row = row_of(measured(), "reward", rank=None)

    assert (row.seconds, row.util_mean_pct) == (8.0, near(20))
    assert row.states is not None
    assert sum(row.states.values()) == near(3)


def test_a_phase_in_which_no_sample_fell_has_no_states() -> None:
    """The GPU's samples stop before backward: what it did there is not known, and not zero."""
    gpu, _ = loaded()

    row = row_of(found(STEP, gpu=gpu[:40], processes=PROCESSES), "backward")

    assert (row.util_mean_pct, row.states, row.hollow_s) == (None, None, None)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=30, max_size=50))
def test_states_by_phase_add_up_to_the_states_of_the_gpu(readings: list[tuple[int, int]]) -> None:
    """Whatever the readings: over all phases of a rank, each state has the seconds it has over the window."""
    util, sm = [float(u) for u, _ in readings], [float(s) for _, s in readings]
    findings: Findings = analyse(
        memory(spans=STEP, gpu=utilization(util), gpu_counters=counters(sm), processes=PROCESSES)
    )

    assert findings.breakdown is not None
    by_phase = [row.states for row in findings.breakdown.rows if row.states is not None]
    for state in STATES:
        assert sum(s[state] for s in by_phase) == near(findings.states[0].seconds[state], abs=1e-6)


# Longest, and paid for


def test_longest_is_of_the_critical_path_and_paid_for_of_all_ranks() -> None:
    """Three ranks: rank 2 generates 5 s, the others 4 s; rewards take 5, 5 and 4 s. They can differ.

    Path: 5 s of generation lie on it (rank 2 arrives last at 9.5), but 14 s of rewards were paid for 13 s of generation.
    """
    spans = cycle(0, 0, 0, (4, 5, 0.5, 1)) + cycle(1, 0, 0, (4, 5, 0.5, 1)) + cycle(2, 0, 0, (5, 4.5, 0, 1))

    breakdown = found(spans)

    assert breakdown.critical_path == (("generate", 5.0), ("reward", 4.5), ("backward", 1.0))
    assert (breakdown.longest, breakdown.paid_most_for) == ("generate", "reward")


def test_a_rank_on_two_gpus_pays_twice() -> None:
    """Rank 0 (tensor parallel, two GPUs) rewards for 6 s, rank 1 (one GPU) generates for 9 s: rewards cost more."""
    spans = [
        span("step", 0, 9, rank=0, step=0), span("reward", 0, 6, rank=0),
        span("step", 0, 9, rank=1, step=0), span("generate", 0, 9, rank=1),
    ]  # fmt: skip
    gpus = [row for gpu in (0, 1, 2) for row in utilization([50] * 45, gpu=gpu)]
    owners = [process(900, rank=0, gpu=0), process(900, rank=0, gpu=1), process(901, rank=1, gpu=2)]

    assert found(spans, gpu=gpus, processes=owners).paid_most_for == "reward"


@pytest.mark.parametrize("name", ["step", "unheard of"])
def test_the_remainder_is_never_the_finding(name: str) -> None:
    """Without any named phase nothing is longest and nothing is paid for."""
    breakdown = found([span(name, 0, 9, step=0)])

    assert (breakdown.longest, breakdown.paid_most_for) == (None, None)
    assert cells(breakdown.rows) == [(0, "unattributed", 9.0, 1)]


def test_a_recording_of_one_instant_has_shares_of_nothing() -> None:
    """One empty span is all there is: no second, no share, no division by zero."""
    breakdown = found([span("reward", 0, 0)])

    assert sum(row.seconds for row in breakdown.rows) == 0
    assert all(row.share == 0 for row in breakdown.rows)
