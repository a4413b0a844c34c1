"""What the dips are, rule by rule, on runs whose truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dipstick.verdicts.answer import answer
from dipstick.verdicts.bill import (
    gpu_columns,
    gpu_seconds,
    of_gpu,
    phase_receipts,
    step_receipts,
    utilization_receipts,
)
from dipstick.verdicts.dips_are import dips_are
from records import Row, boxcar, counters, memory, near, process, span, utilization, without
from test_check_stragglers import EMPTY, WIDE, full_queue, late, one_long_job, pool
from worlds import BUSY, World, evidence_of, healthy

if TYPE_CHECKING:
    from dipstick.verdicts.evidence import Evidence


def word(evidence: Evidence) -> str:
    """The word alone."""
    return dips_are(evidence).word


def filled(plan: Any, **changes: Any) -> Evidence:
    """Rewards of one to nine seconds on two ranks, filled with such jobs."""
    world = healthy(30, reward=WIDE, levels=EMPTY, **changes)
    return evidence_of(memory(**world.rows() | {"jobs": pool(world, plan)}))


# Rewards


def test_dips_that_last_as_long_as_the_longest_job_are_a_straggler_job_s() -> None:
    """Rank by turns, job by job: no rank is last in all of them."""
    turns = [row if k % 2 else row[::-1] for k, row in enumerate(WIDE)]
    world = healthy(30, reward=turns, levels=EMPTY)
    found = dips_are(evidence_of(memory(**world.rows() | {"jobs": pool(world, one_long_job)})))

    assert (found.word, found.phase) == ("straggler_job", "reward")
    assert found.share > 0.9


def test_dips_that_last_as_long_as_the_queue_are_queued_work() -> None:
    """No rank is last throughout."""
    turns = [row if k % 2 else row[::-1] for k, row in enumerate(WIDE)]
    world = healthy(30, reward=turns, levels=EMPTY)

    assert word(evidence_of(memory(**world.rows() | {"jobs": pool(world, full_queue)}))) == "queued_work"


def test_a_rank_that_is_always_last_is_the_straggler_whatever_its_jobs() -> None:
    """Rank 0 scores twice as long in nearly every step, and rank 1 waits for it: also for its slow worker."""
    found = filled(one_long_job)

    assert word(found) == "straggler_rank"
    assert "and rank 0 is last in 27 of 30 steps" in answer(found).headline
    assert "the widest wait for worker 1000 of rank 0" in answer(found).headline


def test_a_slow_worker_that_others_outlast_is_not_in_the_headline() -> None:
    """Rank 1's first worker has the long jobs of its rank; the dips end with rank 0's, by turns."""

    def by_turns(step: int, rank: int, seconds: float) -> list[list[float]]:
        lanes = one_long_job(step, rank, seconds)
        return lanes if rank == 1 or step % 2 else lanes[::-1]

    assert "the widest wait for" not in answer(filled(by_turns)).headline


def test_a_rank_that_is_always_last_by_a_hair_is_no_straggler() -> None:
    """A millisecond in each step: certain, and worth nothing."""
    evidence = late(20, 20, by=0.001).evidence()

    assert word(evidence) != "straggler_rank"


def test_a_late_rank_does_not_explain_dips_of_another_phase() -> None:
    """Rank 1 is last at every gather, but the GPUs rest in weight sync."""
    world = World(generate=[4.0] * 20, reward=[[1.0, 2.0]] * 20, train=4.0, jobs=0, levels=dict.fromkeys(BUSY, 95.0) | {"train": 2.0}, profiled=False)  # fmt: skip
    spans = [
        r | ({"name": "sync_weights"} if r["name"] == "backward" and r["t0_ns"] else {})
        for r in world.spans()
    ]
    closing = [
        span("backward", end - 0.2, end, rank=rank, step=k)
        for k, end in enumerate(world.starts[1:])
        for rank in range(2)
    ]
    found = dips_are(evidence_of(memory(**world.rows() | {"spans": spans + closing})))

    assert (found.word, found.phase) == ("step_cycle", "weight_sync")


def test_constant_rewards_are_the_step_s_own() -> None:
    """Two idle workers, a parser that takes 2 s each time."""
    world = World(
        generate=[5.0 + 0.3 * (k % 4) for k in range(24)], reward=[[2.0, 2.0]] * 24, levels=EMPTY, jobs=0
    )
    jobs = pool(world, lambda _, __, seconds: [[seconds * 0.2], [seconds * 0.1]])

    assert word(evidence_of(memory(**world.rows() | {"jobs": jobs}))) == "step_cycle"


def test_waits_that_hold_most_of_the_dips_are_an_imbalance() -> None:
    """By turns one rank scores for 8 s at half load and the other waits for it, after half a second of its own."""
    turns = [[8.0, 0.5] if k % 2 else [0.5, 8.0] for k in range(24)]
    world = World(generate=[5.0] * 24, reward=turns, levels=BUSY | {"reward": 90.0}, jobs=0)

    assert word(world.evidence()) == "imbalance"


# Transfers


def test_bus_copies_that_take_the_time_without_work_are_a_transfer() -> None:
    """Three seconds of each step at 9 GiB/s, SMs idle."""
    steps, busy = 20, [(8.0 * k, 8.0 * k + 5) for k in range(20)]
    copies = [(8.0 * k + 5, 8.0 * k + 8) for k in range(20)]
    util = boxcar(busy + copies, 160)
    sm, rx = boxcar(busy, 160), [90 * x for x in boxcar(copies, 160)]
    spans = [
        row
        for k in range(steps)
        for row in (
            span("step", 8.0 * k, 8.0 * k + 8, step=k),
            span("vLLM.generate", 8.0 * k, 8.0 * k + 4, step=k),
            span("backward", 8.0 * k + 4, 8.0 * k + 5, step=k),
            span("sync_weights", 8.0 * k + 5, 8.0 * k + 8, step=k),
        )
    ]
    profile = counters(sm, gr_active_pct=util, dram_active_pct=[s / 2 for s in sm], pcie_rx_mib_s=rx)
    evidence = evidence_of(
        memory(
            spans=spans, gpu=utilization(util), gpu_counters=profile, processes=[process(900, rank=0, gpu=0)]
        )
    )

    assert word(evidence) == "transfer"
    assert answer(evidence).headline.endswith("the dips are bus transfers: copies without SM work.")


# What can't be told


def test_no_telemetry_no_word() -> None:
    """Nobody looked."""
    found = dips_are(evidence_of(without(healthy(4).recording(), "gpu", "gpu_counters")))

    assert (found.word, found.phase, found.share) == ("unknown", None, 0.0)


@pytest.mark.parametrize(("period", "expected"), [(0.2, "none"), (1.0, "none"), (15.0, "unknown")])
def test_none_seen_is_none_only_where_one_could_be_seen(period: float, expected: str) -> None:
    """Steps of 10 s at a steady 90 %: samples every 15 s could have missed any dip."""
    spans = [
        row
        for k in range(20)
        for row in (span("step", 10.0 * k, 10.0 * k + 10, step=k), span("vLLM.generate", 10.0 * k, 10.0 * k + 8, step=k),
                    span("backward", 10.0 * k + 8, 10.0 * k + 10, step=k))
    ]  # fmt: skip
    gpu = utilization([90.0] * int(200 / period), period=period)

    assert (
        word(evidence_of(memory(spans=spans, gpu=gpu, processes=[process(900, rank=0, gpu=0)]))) == expected
    )


@pytest.mark.parametrize("rows", [utilization([90.0]), utilization([90.0] * 2)], ids=["one sample", "two"])
def test_a_recording_shorter_than_a_dip_shows_none(rows: list[Row]) -> None:
    """A fifth of a second."""
    assert word(evidence_of(memory(gpu=rows))) == "unknown"


# The bill, and the rows behind it


def test_gpu_seconds_count_every_gpu_of_a_rank() -> None:
    """Rank 0 has two: its 8 s of generation are 16."""
    world = World(generate=[4.0] * 2, reward=[[2.0, 2.0]] * 2, jobs=0, profiled=False)
    owners = [process(900, rank=0, gpu=0), process(900, rank=0, gpu=2), process(901, rank=1, gpu=1)]
    gpus = [*world.gpu(), *(r | {"gpu": 2} for r in world.gpu() if r["gpu"] == 0)]
    findings = evidence_of(memory(**world.rows() | {"gpu": gpus, "processes": owners})).findings

    assert gpu_seconds(findings) == near({"generate": 24, "reward": 12, "backward": 6})


def test_a_gpu_is_told_by_its_host_only_where_there_are_two() -> None:
    """A shorter query for most."""
    one = healthy(3).evidence().findings
    rows = {
        name: [r | ({"host": ""} if r.get("gpu") == 1 else {}) for r in part]
        for name, part in healthy(3).rows().items()
    }
    two = evidence_of(memory(**rows)).findings

    assert [gpu_columns(one, g) for g in one.gpus] == [{"gpu": 0}, {"gpu": 1}]
    assert [gpu_columns(two, g) for g in two.gpus] == [{"gpu": 1, "host": None}, {"gpu": 0, "host": "node1"}]
    assert of_gpu(one, "elsewhere", 5) == {"gpu": 5}


def test_receipts_of_phases_leave_out_what_took_no_time() -> None:
    """No evaluation, no receipt."""
    evidence = healthy(3).evidence()

    assert [r.text for r in phase_receipts(evidence, "backward")] == [
        f"rank {k}: 3.0 s in backward, 3 times" for k in (0, 1)
    ]
    assert phase_receipts(evidence, "eval") == ()
    assert utilization_receipts(evidence, "eval") == ()
    assert [r.value for r in utilization_receipts(evidence, "backward")] == [near(60, abs=3)] * 2


def test_steps_without_a_loop_have_no_receipts() -> None:
    """GPU samples alone."""
    assert step_receipts(evidence_of(memory(gpu=utilization([50.0] * 9)))) == ()


def test_a_short_run_s_bill_has_a_decimal() -> None:
    """Rounded to seconds it would be 0 of 0."""
    rows = [span("step", 0, 0.4, step=0), span("vLLM.generate", 0, 0.3, step=0)]
    evidence = evidence_of(
        memory(spans=rows, gpu=utilization([90.0] * 2), processes=[process(900, rank=0, gpu=0)])
    )

    assert "it is the one you pay for: 0.3 of 0.4 GPU-seconds." in answer(evidence).headline
