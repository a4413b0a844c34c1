"""Check 2 and the claims on phases: what dominates, what is paid for, what would shrink the step."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.errors import UsageError
from dipstick.judgement import Reason
from dipstick.verdicts import check_phases
from dipstick.verdicts.check_phases import steps_with
from dipstick.verdicts.claim_phases import paid_most_for, phase_longest, phase_utilization, speedup
from records import Row, memory, near, process, span, utilization, without
from worlds import BUSY, World, evidence_of, healthy, varied

if TYPE_CHECKING:
    from dipstick.verdicts.evidence import Evidence


@cache
def thirty() -> Evidence:
    """Generation of 6.0 to 7.6 s, rewards of 1 to 5, training 1."""
    return healthy().evidence()


def what_ifs(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """The edits by name."""
    return {row["change"]: row for row in check_phases.check(evidence).facts["what_if"]}


def with_event(name: str, every: int, seconds: float, steps: int = 30) -> Evidence:
    """The same loop; in every ``every``-th step rank 0 does something else for so long before it generates."""
    world = World(generate=[6.0] * steps, reward=[[2.0, 2.0]] * steps, profiled=False)
    spans: list[Row] = []
    shift = 0.0
    for step in range(steps):
        mine = [r for r in world.spans() if r["step"] == step]
        extra = seconds if step % every == every - 1 else 0.0
        moved = round((shift + extra) * 1e9)
        rows = [r | {"t0_ns": r["t0_ns"] + moved, "t1_ns": r["t1_ns"] + moved} for r in mine]
        opening = [r | {"t0_ns": r["t0_ns"] - round(extra * 1e9)} if r["name"] == "step" else r for r in rows]
        spans += opening
        if extra:
            start = world.starts[step] + shift
            spans.append(span(name, start, start + extra, rank=0, step=step))
        shift += extra
    return evidence_of(memory(spans=spans, gpu=world.gpu(), processes=world.rows()["processes"]))


# The check


def test_a_phase_that_is_half_of_the_path_and_is_paid_for_is_a_yes() -> None:
    """Generation: 59 % of the critical path, and the largest bill."""
    found = check_phases.check(thirty())

    assert found.verdict.word == "yes"
    assert found.verdict.because == (
        "generate is 59 % of the critical path [57, 60] over 28 steps; most GPU-seconds go to generate"
    )
    assert found.facts["replay"]["passed"] is True


def test_longest_and_paid_for_can_differ_and_then_it_is_partial() -> None:
    """Rank 0 generates for 7 s and everybody waits for it; over all four ranks rewards cost more."""
    steps = 24
    rows: list[Row] = []
    for step in range(steps):
        start = 12.0 * step
        for rank in range(4):
            generated, scored = start + (7.0 if rank == 0 else 3.0), start + 9.0
            rows += [
                span("step", start, start + 12, rank=rank, step=step),
                span("GRPOTrainer.vLLM.generate", start, generated, rank=rank, step=step),
                span("GRPOTrainer._calculate_rewards", generated, scored, rank=rank, step=step),
                span("backward", scored, start + 12, rank=rank, step=step),
            ]
    found = check_phases.check(evidence_of(memory(spans=rows)))

    assert found.verdict.word == "partially"
    assert found.verdict.because == (
        "generate is 58 % of the critical path [58, 58] over 22 steps; most rank-seconds go to reward"
    )


def test_ten_steps_are_too_few_to_dominate() -> None:
    """The shares are counted all the same, with what would show."""
    found = check_phases.check(healthy(10).evidence())

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert found.verdict.effect == near(0.6, abs=0.1)
    assert found.verdict.min_detectable is not None


@pytest.mark.parametrize(
    "rows", [{"gpu": utilization([50.0] * 30)}, {"spans": [span("step", 0, 9, step=0)]}], ids=["gpu", "step"]
)
def test_without_steps_nothing_dominates(rows: dict[str, list[Row]]) -> None:
    """Missing, not zero."""
    found = check_phases.check(evidence_of(memory(**rows)))

    assert (found.verdict.reason, found.facts["what_if"]) == (Reason.MISSING_SIGNAL, None)


def test_receipts_are_the_seconds_of_the_longest_and_the_paid_for_phase() -> None:
    """On each rank."""
    receipts = check_phases.check(thirty()).receipts

    assert [(r.rank, r.unit) for r in receipts] == [(0, "s"), (1, "s")]
    assert sum(r.value or 0 for r in receipts) == near(2 * sum(6 + 0.4 * (k * 7 % 5) for k in range(30)))


# What-ifs


def test_half_the_longest_phase_saves_half_of_it() -> None:
    """Generation at half: the sum of the steps over the sum without it."""
    generate = np.asarray([6 + 0.4 * (k * 7 % 5) for k in range(2, 30)])
    step = generate + np.asarray([max(r) for r in varied(30)[2:]]) + 1

    row = what_ifs(thirty())["generate 2x faster"]

    assert row["step_speedup"] == near(step.sum() / (step.sum() - generate.sum() / 2), rel=1e-3)
    assert row["interval"][0] < row["step_speedup"] < row["interval"][1]
    assert row["reason"] is None


def test_balanced_ranks_meet_at_their_mean() -> None:
    """The gather opens with the mean of the two rewards instead of the larger."""
    rewards = np.asarray(varied(30)[2:])
    generate = np.asarray([6 + 0.4 * (k * 7 % 5) for k in range(2, 30)])

    row = what_ifs(thirty())["ranks balanced"]

    assert row["step_speedup"] == near(
        (generate + rewards.max(axis=1) + 1).sum() / (generate + rewards.mean(axis=1) + 1).sum(), rel=1e-3
    )


def test_levers_that_the_recording_does_not_know_are_not_offered() -> None:
    """No jobs: no slots to add. One rank: nothing to balance. No event: nothing to drop."""
    alone = World(generate=[6.0] * 12, reward=varied(12, ranks=1), jobs=0).evidence()

    assert set(what_ifs(alone)) == {"generate 2x faster"}


def test_an_event_is_dropped_at_its_measured_cost() -> None:
    """A checkpoint of 2 s in every fifth step: six of thirty steps."""
    evidence = with_event("checkpoint", 5, 2.0)

    row = what_ifs(evidence)["without checkpoint"]

    assert steps_with(evidence, "checkpoint").sum() == 6
    assert row["saved_gpu_s"] == near(6 * 2 * 2)
    assert row["step_speedup"] == near((28 * 9 + 12) / (28 * 9))


def test_an_event_that_fired_three_times_is_only_an_indication() -> None:
    """Five are needed."""
    assert what_ifs(with_event("checkpoint", 10, 2.0))["without checkpoint"]["reason"] == "LOW_N"


def test_steps_that_touch_a_phase_by_a_hair_do_not_hold_it() -> None:
    """A twentieth of its longest is the limit; a phase that never was is in none."""
    evidence = with_event("checkpoint", 5, 2.0)

    assert steps_with(evidence, "eval").tolist() == []
    assert np.flatnonzero(steps_with(evidence, "checkpoint")).tolist() == [2, 7, 12, 17, 22, 27]


@pytest.mark.parametrize("seconds", [0.0123, 0.4321])
def test_a_cap_of_jobs_is_never_zero_seconds(seconds: float) -> None:
    """Jobs of 12 ms: the cap has two digits, not one decimal."""
    world = healthy(20, jobs=0)
    jobs = [r | {"t1_ns": r["t0_ns"] + round(seconds * 1e9)} for r in healthy(20).reward_jobs()]
    changes = what_ifs(evidence_of(memory(**world.rows() | {"jobs": jobs})))

    assert f"reward jobs capped at {float(f'{seconds:.2g}'):g} s" in changes


def test_the_band_of_noise_is_what_two_halves_differ_by() -> None:
    """A run whose second half is a fifth slower: smaller effects are not actionable."""
    generate = [5.0] * 12 + [6.4] * 12
    found = check_phases.check(World(generate=generate, reward=[[1.0, 1.0]] * 24, jobs=0).evidence())

    assert found.facts["noise_band"] == near(8.4 / 7 - 1, abs=0.03)


# Claims


def test_the_longest_phase_is_claimed_with_the_rule_of_the_check() -> None:
    """Generation is it; rewards are not; a phase without time is a plain no."""
    verdicts = {phase: phase_longest(thirty(), phase=phase)[0] for phase in ("generate", "reward", "eval")}

    assert {phase: verdict.word for phase, verdict in verdicts.items()} == {
        "generate": "yes",
        "reward": "no",
        "eval": "no",
    }
    assert verdicts["reward"].min_detectable is not None
    assert (verdicts["eval"].because, verdicts["eval"].effect) == (
        "eval takes no time on the critical path",
        0.0,
    )


def test_what_is_paid_for_is_counted_in_gpu_seconds() -> None:
    """Rank 0 has three GPUs: its rewards cost more than both ranks' generation."""
    world = World(generate=[5.0] * 3, reward=[[4.0, 2.0]] * 3, jobs=0, profiled=False)
    gpus = [r | {"gpu": g} for r in world.gpu() if r["gpu"] == 0 for g in (0, 2, 3)]
    owners = [process(900, rank=0, gpu=g) for g in (0, 2, 3)] + [process(901, rank=1, gpu=1)]
    rows = world.rows() | {"gpu": gpus + [r for r in world.gpu() if r["gpu"] == 1], "processes": owners}
    evidence = evidence_of(memory(**rows))

    verdict, receipts = paid_most_for(evidence, phase="reward")

    assert verdict.because == "reward takes 42 of 120 GPU-seconds, generate takes 60"
    assert (verdict.word, verdict.effect) == ("no", near(42))
    assert [r.text.split()[5].rstrip(",") for r in receipts] == ["reward", "reward", "generate", "generate"]
    assert paid_most_for(evidence, phase="generate")[0].because == "generate takes 60 of 120 GPU-seconds"


def test_without_gpus_the_bill_is_in_rank_seconds() -> None:
    """Nobody knows how many GPUs a rank has."""
    evidence = evidence_of(without(healthy(3).recording(), "gpu", "gpu_counters", "processes"))

    assert "rank-seconds" in paid_most_for(evidence, phase="generate")[0].because
    told = check_phases.check(evidence).verdict.because
    assert "most rank-seconds go to" in told
    assert "GPU" not in told


@pytest.mark.parametrize(
    ("phase", "bounds", "word"),
    [
        ("generate", {"at_least": 85.0}, "yes"),
        ("reward", {"at_most": 20.0}, "yes"),
        ("reward", {"at_least": 14.5, "at_most": 15.5}, "yes"),
        ("reward", {"at_least": 20.0}, "no"),
        ("generate", {"at_most": 90.0}, "no"),
        ("gather_wait", {"at_least": 95.0}, "yes"),
    ],
)
def test_a_level_lies_between_two_bounds_or_does_not(phase: str, bounds: dict[str, float], word: str) -> None:
    """Generate reads 99 %, rewards 15, the wait 100."""
    verdict, receipts = phase_utilization(thirty(), phase=phase, **bounds)

    assert verdict.word == word
    assert (verdict.min_detectable is None) is (word == "yes")
    assert [r.rank for r in receipts] == [0, 1]
    assert all(r.query for r in receipts)


def test_a_level_of_seven_steps_is_not_known_well_enough() -> None:
    """Eight are needed."""
    verdict, _ = phase_utilization(healthy(7).evidence(), phase="generate", at_least=85)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert verdict.because == "generate reads 99 % [99, 99]"


def test_the_level_of_a_phase_that_never_was_can_t_be_told() -> None:
    """Nor that of one between two samples."""
    verdict, receipts = phase_utilization(thirty(), phase="eval")

    assert (verdict.word, verdict.because, receipts) == ("unconfirmed", "the level of eval can't be told", ())


def test_a_level_needs_utilization_beside_phases() -> None:
    """Spans alone have none."""
    evidence = evidence_of(without(healthy(4).recording(), "gpu", "gpu_counters"))

    assert phase_utilization(evidence, phase="generate")[0].reason == Reason.MISSING_SIGNAL


# What a change would give


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"phase": "generate", "times": 2.0, "at_least": 1.3}, "yes"),
        ({"phase": "generate", "times": 2.0, "at_least": 1.6}, "no"),
        ({"change": "more_slots", "times": 2.0, "at_least": 1.1}, "yes"),
        ({"change": "more_slots", "times": 1.0, "at_least": 1.01}, "no"),
        ({"change": "cap_jobs", "times": 100.0, "at_least": 1.1}, "no"),
        ({"change": "balance", "at_least": 1.5}, "no"),
    ],
)
def test_a_change_gives_so_much_or_does_not(change: dict[str, Any], word: str) -> None:
    """Four equal jobs on three slots take as long as on two. Each says what it holds fixed, and rests on the steps."""
    verdict, receipts = speedup(thirty(), **change)

    assert verdict.word == word
    assert "times faster" in verdict.because
    assert "everything else held fixed" in verdict.because
    assert [r.text.split(" steps")[0] for r in receipts] == ["all 28", "first 7", "last 7"]


def test_overlapping_rewards_is_bounded_from_above_only() -> None:
    """When each sample ended was not logged: it can be ruled out, never confirmed."""
    assert speedup(thirty(), change="overlap_reward", at_least=9.0)[0].word == "no"
    found = speedup(thirty(), change="overlap_reward", at_least=1.01)[0]
    assert (found.word, found.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)


@pytest.mark.parametrize(("at_least", "word"), [(1.1, "no"), (1.0, "yes")])
def test_a_phase_that_takes_no_time_gives_nothing(at_least: float, word: str) -> None:
    """A thousand times faster is 1.00 times."""
    verdict, _ = speedup(thirty(), phase="eval", times=1000.0, at_least=at_least)

    assert (verdict.word, verdict.effect) == (word, 1.0)
    assert verdict.because == "eval takes no time between the barriers of a step"


@pytest.mark.parametrize("change", ["more_slots", "cap_jobs", "overlap_reward"])
def test_a_change_of_jobs_needs_jobs(change: str) -> None:
    """And never says "nan times"."""
    verdict, _ = speedup(healthy(jobs=0).evidence(), change=change)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert verdict.because.endswith(": reward jobs between a generation and a gather were not recorded")
    assert verdict.effect is None


def test_a_loop_without_generation_has_nothing_to_overlap() -> None:
    """Another framework, or an engine on another node: the rest is judged all the same."""
    spans = [r for r in healthy().spans() if "generate" not in r["name"]]
    evidence = evidence_of(memory(**healthy().rows() | {"spans": spans}))

    assert "reward overlapped with generation" in what_ifs(evidence)
    assert what_ifs(evidence)["reward overlapped with generation"]["step_speedup"] is None
    assert speedup(evidence, change="overlap_reward")[0].reason == Reason.MISSING_SIGNAL


def test_half_a_worker_is_no_worker() -> None:
    """A usage error."""
    with pytest.raises(UsageError, match=r"2\.5 is no number of worker slots"):
        speedup(thirty(), change="more_slots", times=2.5)


def test_a_change_needs_steps() -> None:
    """GPU samples alone have none."""
    assert speedup(evidence_of(memory(gpu=utilization([50.0] * 30))))[0].reason == Reason.MISSING_SIGNAL


def test_a_change_is_not_judged_where_a_tenth_of_the_step_is_unexplained() -> None:
    """Methods 4.2: a gap above 5 % forbids firm answers."""
    spans = [
        r | ({"t1_ns": r["t1_ns"] - 10**9} if "generate" in r["name"] else {}) for r in healthy().spans()
    ]
    evidence = evidence_of(memory(**healthy().rows() | {"spans": spans}))

    verdict, _ = speedup(evidence, phase="generate", at_least=9.0)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.GAP)


def test_a_launch_bound_decode_does_not_read_90_percent() -> None:
    """It reads 40: no."""
    evidence = healthy(12, levels=BUSY | {"generate": 40.0}).evidence()

    assert phase_utilization(evidence, phase="generate", at_least=85.0)[0].word == "no"
