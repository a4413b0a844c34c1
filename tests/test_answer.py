"""The two sentences: longest, paid for, what reads as busy, what the dips are, and when nobody can say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.verdicts.answer import answer
from dipstick.verdicts.dip_cost import lost_by_phase
from dipstick.verdicts.dips_are import dips_are
from dipstick.verdicts.evidence import Evidence
from records import Row, boxcar, counters, cycle, job, memory, near, process, span, utilization

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording


def seen(recording: Recording) -> Evidence:
    """What the answer is given from."""
    return Evidence(recording, analyse(recording))


PROCESSES = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)]


def gpu_at_work(busy: list[tuple[float, float]], seconds: float = 40, gpu: int = 0) -> list[Row]:
    """A GPU that is busy during these intervals."""
    return utilization(boxcar(busy, seconds), gpu=gpu)


def four_steps(
    name: str = "_calculate_rewards", low: float = 4
) -> tuple[list[Row], list[tuple[float, float]]]:
    """Four steps of 10 s: generate 5 s, a phase in which the GPU rests for ``low`` seconds, backward 1 s."""
    spans, busy = [], []
    for step in range(4):
        start = 10.0 * step
        spans += [
            span("step", start, start + 10, step=step),
            span("vLLM.generate", start, start + 9 - low, step=step),
            span(name, start + 9 - low, start + 9, step=step),
            span("backward", start + 9, start + 10, step=step),
        ]
        busy += [(start, start + 9 - low), (start + 9, start + 10)]
    return spans, busy


def findings_of(spans: list[Row], busy: list[tuple[float, float]], **more: list[Row]) -> Evidence:
    """One rank on one GPU."""
    return seen(memory(spans=spans, gpu=gpu_at_work(busy), processes=PROCESSES[:1], **more))


def workers(busy_s: float, count: int = 2) -> list[Row]:
    """Jobs of ``busy_s`` seconds on each of some workers, at the start of each step's rewards."""
    return [
        job(f"{step}.{pid}", 10 * step + 5, 10 * step + 5 + busy_s, pid=pid, step=step)
        for step in range(4)
        for pid in range(1, count + 1)
    ]


# What the dips are


def test_dips_in_rewards_with_busy_workers_are_queued_work() -> None:
    """Both workers are busy for 3.5 of 4 s in each step."""
    assert dips_are(findings_of(*four_steps(), jobs=workers(3.5))).word == "queued_work"


def test_dips_in_rewards_with_idle_workers_are_the_step_s_own() -> None:
    """Two workers, but only 1.4 of 2 slots busy: something else holds the phase up."""
    assert dips_are(findings_of(*four_steps(), jobs=workers(2.8))).word == "step_cycle"


def test_dips_in_rewards_without_a_record_of_jobs_are_the_step_s_own() -> None:
    """How busy the workers were is not known, so queued work is not claimed."""
    assert dips_are(findings_of(*four_steps())).word == "step_cycle"


def test_dips_in_checkpoints_are_checkpoints() -> None:
    """Whatever the share of the run."""
    assert dips_are(findings_of(*four_steps("_save_checkpoint"))).word == "checkpoint"


def test_dips_of_another_phase_of_the_step_are_the_step_s_own() -> None:
    """Weight sync that rests the GPU."""
    assert dips_are(findings_of(*four_steps("sync_weights"))).word == "step_cycle"


def test_dips_without_a_phase_that_holds_half_of_them_are_mixed() -> None:
    """One of the four steps each: rewards, checkpoint, weight sync, evaluation."""
    spans, busy = four_steps("_calculate_rewards")
    for i, name in ((1, "checkpoint"), (2, "sync_weights"), (3, "evaluate")):
        spans[4 * i + 2] |= {"name": name}

    findings = findings_of(spans, busy)

    assert dips_are(findings).word == "mixed"
    assert "the dips have no single phase; the largest part is" in answer(findings).headline


def test_no_dips_are_none() -> None:
    """A GPU at work throughout."""
    spans, _ = four_steps()

    assert dips_are(findings_of(spans, [(0, 40)])).word == "none"


def test_dips_in_unnamed_time_are_unknown() -> None:
    """Time that no span explains fills them."""
    assert dips_are(findings_of(*four_steps("my helper"))).word == "unknown"


def test_dips_without_spans_are_unknown() -> None:
    """Phases were not recorded."""
    _, busy = four_steps()

    assert dips_are(seen(memory(gpu=gpu_at_work(busy)))).word == "unknown"


def test_without_telemetry_dips_are_unknown_rather_than_none() -> None:
    """Nobody looked."""
    spans, _ = four_steps()

    assert dips_are(seen(memory(spans=spans))).word == "unknown"


def test_a_fifth_of_unnamed_dip_time_is_too_much() -> None:
    """Three steps' rewards and one step's unknown helper: 75 % named is not 80 %."""
    spans, busy = four_steps()
    spans[4 * 3 + 2] |= {"name": "my helper"}

    assert dips_are(findings_of(spans, busy)).word == "unknown"


def test_what_dips_cost_is_summed_by_phase() -> None:
    """Four dips of 4 s to the ground in rewards: 16 GPU-seconds of a full baseline."""
    evidence = findings_of(*four_steps())

    assert lost_by_phase(evidence) == {"reward": near(16, abs=0.2)}


# The first sentence


def test_longest_and_paid_for_can_be_one_phase() -> None:
    """Generation is 20 of 40 s."""
    found = answer(findings_of(*four_steps()))

    assert (found.longest_phase, found.paid_most_for) == ("generate", "generate")
    assert found.headline == (
        "The longest phase is generation (50 % of the critical path), and it is the one you pay for: "
        "20 of 40 GPU-seconds. Of the 24 GPU-seconds that read as busy, how many were work and how many waiting "
        "can't be told without power or SM counters; the dips are the step's own reward scoring "
        "(100 % of what they cost), not a fault."
    )


def test_longest_and_paid_for_can_differ() -> None:
    """Rank 2 generates longest and decides the step; over all ranks rewards cost more."""
    spans = cycle(0, 0, 0, (4, 5, 0.5, 1)) + cycle(1, 0, 0, (4, 5, 0.5, 1)) + cycle(2, 0, 0, (5, 4.5, 0, 1))

    assert answer(seen(memory(spans=spans))).headline == (
        "The longest phase is generation (48 % of the critical path), but most is paid for reward scoring: "
        "14 of 32 rank-seconds, and 1 more spent waiting for the slower rank's rewards."
    )


def test_the_bill_counts_every_gpu_of_a_rank() -> None:
    """Rank 0 has two GPUs for 10 s: 20 GPU-seconds, 8 of them generation."""
    gpus = utilization([99] * 50) + utilization([99] * 50, gpu=1)
    owners = [process(900, rank=0, gpu=0), process(900, rank=0, gpu=1)]

    findings = seen(memory(spans=cycle(0, 0, 0, (4, 3, 2, 1)), gpu=gpus, processes=owners))

    assert "it is the one you pay for: 8 of 20 GPU-seconds" in answer(findings).headline


def test_the_wait_that_rewards_cause_is_on_their_bill() -> None:
    """Rank 0 waits 3 s for rank 1's rewards."""
    spans = cycle(0, 0, 0, (2, 4, 3, 1)) + cycle(1, 0, 0, (2, 7, 0, 1))

    assert "11 of 20 rank-seconds, and 3 more spent waiting for the slower rank's rewards" in answer(
        seen(memory(spans=spans))
    ).headline  # fmt: skip


def test_the_slower_rank_is_named_where_it_is_always_the_same() -> None:
    """Rank 1 is last in 12 of 12 steps: beyond chance, so the bill names it."""
    spans = [
        r for k in range(12) for r in cycle(0, k, 10 * k, (2, 4, 3, 1)) + cycle(1, k, 10 * k, (2, 7, 0, 1))
    ]

    assert "36 more spent waiting for rank 1's rewards" in answer(seen(memory(spans=spans))).headline


def test_no_rank_is_named_where_they_take_turns() -> None:
    """Each is last in 6 of 12 steps."""
    late, early = (2.0, 7.0, 0.0, 1.0), (2.0, 4.0, 3.0, 1.0)
    spans = [r for k in range(12) for r in cycle(k % 2, k, 10 * k, late) + cycle(1 - k % 2, k, 10 * k, early)]

    assert "waiting for the slower rank's rewards" in answer(seen(memory(spans=spans))).headline


def test_a_rank_is_named_by_the_framework_s_number() -> None:
    """Ranks 3 and 5 (the others left no spans): rank 5 is the late one, not the second."""
    spans = [
        r for k in range(12) for r in cycle(3, k, 10 * k, (2, 4, 3, 1)) + cycle(5, k, 10 * k, (2, 7, 0, 1))
    ]

    assert "waiting for rank 5's rewards" in answer(seen(memory(spans=spans))).headline


def test_without_a_named_phase_nobody_can_say_what_is_paid_for() -> None:
    """Steps alone."""
    found = answer(findings_of([span("step", 0, 40, step=0)], [(0, 40)]))

    assert (found.longest_phase, found.paid_most_for) == (None, None)
    assert found.headline.startswith(
        "No phase of the step was recorded, so nobody can say which one is paid for."
    )


def test_without_spans_nobody_can_say_either() -> None:
    """GPU samples alone."""
    found = answer(seen(memory(gpu=gpu_at_work([(0, 40)]))))

    assert (found.longest_phase, found.paid_most_for) == (None, None)
    assert found.headline.startswith("No phases were recorded, so which one is paid for can't be told.")


# What reads as busy


def hollow(sm: list[float], rx: list[float] | float = 0.0, *, spans: bool = True) -> str:
    """The headline of a GPU that reads 100 % for 10 s (a step with 2 s of waiting at [7, 9))."""
    profile = counters(
        sm, gr_active_pct=100.0, dram_active_pct=[50.0 if s > 50 else 0.0 for s in sm],
        pcie_rx_mib_s=rx,
    )  # fmt: skip
    rows = cycle(0, 0, 0, (4, 3, 2, 1)) + cycle(1, 0, 0, (4, 5, 0, 1)) if spans else []
    return answer(
        seen(
            memory(spans=rows, gpu=utilization([100.0] * len(sm)), gpu_counters=profile, processes=PROCESSES)
        )
    ).headline


WORK, SPIN = 90.0, 0.8


def test_a_rank_that_waits_at_full_utilization_makes_the_headline() -> None:
    """2 of 10 busy seconds."""
    headline = hollow([WORK] * 35 + [SPIN] * 10 + [WORK] * 5)

    assert (
        "Of the 10 GPU-seconds that read as busy, 20 % are a rank waiting for another one at full utilization;"
        in headline
    )


def test_other_hollow_time_is_said_beside_the_wait() -> None:
    """2 s of waiting and 2 s of bus copies."""
    headline = hollow([SPIN] * 10 + [WORK] * 25 + [SPIN] * 10 + [WORK] * 5, [6000.0] * 10 + [0.0] * 40)

    assert (
        "20 % are a rank waiting for another one at full utilization, and 20 % more did no work;" in headline
    )


def test_hollow_time_without_a_known_wait_did_no_work() -> None:
    """Without spans nobody knows who waited for whom."""
    headline = hollow([WORK] * 35 + [SPIN] * 10 + [WORK] * 5, spans=False)

    assert (
        "Of the 10 GPU-seconds that read as busy, 20 % did no work; what the dips are can't be told"
        in headline
    )


@pytest.mark.parametrize(("windows", "said"), [(1, False), (3, True)])
def test_one_percent_of_hollow_time_is_not_worth_a_headline(windows: int, said: Literal[True, False]) -> None:
    """1 and 3 of 100 windows: from 2 % on it is said."""
    headline = hollow([WORK] * (100 - windows) + [SPIN] * windows, spans=False)

    assert ("did no work" in headline) is said


def test_without_counters_and_power_work_and_waiting_can_t_be_told_apart() -> None:
    """And the answer says so."""
    headline = answer(findings_of(*four_steps())).headline
    blind = answer(seen(memory(gpu=gpu_at_work([(0, 40)])))).headline

    assert "can't be told without power or SM counters" in blind
    assert "can't be told without power or SM counters" in headline


def test_power_that_never_shows_an_idle_gpu_is_not_called_missing() -> None:
    """Waiting for peers all along at 118 W reads like light work: it was recorded, and tells nothing by itself."""
    always = seen(memory(gpu=utilization([100.0] * 200, power_w=118.0)))

    headline = answer(always).headline
    assert (
        "can't be told without SM counters: power was recorded, but no idle stretch to compare it with"
        in headline
    )
    assert "without power" not in headline
