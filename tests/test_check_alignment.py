"""Check 1: dips that belong to the loop, dips that don't, and runs that cannot tell."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.alignment import AlignmentVerdict
from dipstick.analysis.stats import Estimate
from dipstick.judgement import REASONS, Reason
from dipstick.verdicts import check_alignment
from dipstick.verdicts.check_alignment import anchor_times, as_verdict, dips_of_job
from dipstick.verdicts.claim_alignment import dips_follow, drops_after, locked_to_steps
from records import Row, memory, near, span, utilization, without
from worlds import BUSY, World, evidence_of, healthy, varied

if TYPE_CHECKING:
    from dipstick.verdicts.evidence import Evidence


@cache
def anatomy() -> Evidence:
    """Thirty steps whose dips are the rewards."""
    return healthy().evidence()


def unrelated(steps: int = 30) -> dict[str, list[Row]]:
    """The same loop on GPUs that rest now and then, whatever the step does: 16 dips of 3 s at drawn instants."""
    world = healthy(steps, jobs=0, profiled=False)
    when = np.sort(np.random.default_rng(5).uniform(0, world.starts[-1] - 5, steps * 16 // 30))
    inside = [any(t <= 0.2 * i < t + 3 for t in when) for i in range(int(world.starts[-1] / 0.2))]
    gpus = [r for gpu in range(2) for r in utilization([5.0 if x else 90.0 for x in inside], gpu=gpu)]
    return world.rows() | {"gpu": gpus}


@cache
def stranger() -> Evidence:
    """Dips that have nothing to do with the loop."""
    return evidence_of(memory(**unrelated()))


# The check


def test_dips_of_the_rewards_are_locked_to_them() -> None:
    """28 kept steps, a dip in each, none elsewhere."""
    found = check_alignment.check(anatomy())

    assert found.verdict.word == "yes"
    assert found.verdict.because.startswith("28 of 28 dips start at the reward boundary")
    assert found.facts["boundary"] == "reward"
    assert found.facts["candidates"] == ["reward"]
    assert found.facts["boundary_lag_s"] == near(0, abs=0.1)
    assert found.facts["drop_pct"] == near(84, abs=1)
    assert (found.verdict.reason, found.verdict.min_detectable, found.verdict.cheapest_experiment) == (
        None,
        None,
        "",
    )


def test_dips_that_ignore_the_loop_are_not_locked_to_it() -> None:
    """Sixteen of them: chance explains the hits, and what the run would have shown is said."""
    found = check_alignment.check(stranger())

    assert found.verdict.word in {"no", "unconfirmed"}
    assert found.verdict.p is None or found.verdict.p > 0.05
    assert found.verdict.min_detectable is not None


def test_three_steps_are_too_few_whatever_they_look_like() -> None:
    """Every dip sits in the rewards; nobody can tell from three."""
    found = check_alignment.check(healthy(3).evidence())

    assert found.verdict.word == "unconfirmed"
    assert found.verdict.reason in {Reason.LOW_N, Reason.P_FLOOR}
    assert found.verdict.cheapest_experiment == REASONS[found.verdict.reason].fix


def test_equal_steps_give_no_evidence_however_many() -> None:
    """A loop like a clock, and dips of the same period: one draw, not thirty (methods 0.4)."""
    found = check_alignment.check(World(generate=[6.0] * 30, reward=[[2.0, 2.0]] * 30, jobs=0).evidence())

    assert found.verdict.word in {"partially", "unconfirmed"}
    assert "P_FLOOR" in found.facts["reasons"]


def test_a_loop_with_holes_cannot_be_judged() -> None:
    """A fifth of each step is in no phase."""
    spans = [r for r in healthy().spans() if r["name"] != "backward"]
    spans = [r | ({"t1_ns": r["t1_ns"] - 10**9} if "generate" in r["name"] else {}) for r in spans]
    found = check_alignment.check(evidence_of(memory(**healthy().rows() | {"spans": spans})))

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.GAP)


@pytest.mark.parametrize(
    ("gone", "because"),
    [("gpu", "no GPU telemetry was recorded"), ("spans", "no steps with phases were recorded")],
)
def test_what_is_missing_is_named(gone: str, because: str) -> None:
    """And how to get it."""
    found = check_alignment.check(evidence_of(without(healthy(4).recording(), gone, "gpu_counters")))

    assert (found.verdict.reason, found.verdict.because) == (Reason.MISSING_SIGNAL, because)
    assert found.verdict.cheapest_experiment != ""
    assert found.receipts == ()


def test_receipts_are_the_deepest_dips_with_their_place() -> None:
    """Five, by what they cost; of work, since hollow time is known."""
    found = check_alignment.check(anatomy())
    cost = [receipt.value for receipt in found.receipts]

    assert len(cost) == 5
    assert cost == sorted(cost, key=lambda value: -(value or 0))
    assert {receipt.text.split(":")[0] for receipt in found.receipts} == {"dip of work"}
    assert all(receipt.t0_s is not None and receipt.t1_s is not None for receipt in found.receipts)


# Which dips


def test_the_job_s_dips_are_those_of_the_mean_over_its_gpus() -> None:
    """Never each GPU's own: copies would count as evidence (methods, S1)."""
    series, dips = dips_of_job(anatomy())

    assert series == "work"
    assert {dip.gpu for dip in dips} == {None}


def test_gpus_that_dip_in_turns_have_no_dip_of_the_job() -> None:
    """Each dips when the other works: the mean stays up, and their dips are not pooled."""
    world = World(generate=[6.0] * 4, reward=[[2.0, 2.0]] * 4, jobs=0, profiled=False)
    turns = [
        r
        for gpu in range(2)
        for r in utilization([5.0 if (i // 20) % 8 == gpu else 90.0 for i in range(180)], gpu=gpu)
    ]
    evidence = evidence_of(memory(**world.rows() | {"gpu": turns}))

    assert len([d for d in evidence.findings.dips if d.series == "utilization"]) > 1
    assert dips_of_job(evidence) == ("utilization", [])


def test_a_single_gpu_s_dips_are_the_job_s() -> None:
    """One rank on one GPU."""
    world = World(generate=[6.0] * 12, reward=varied(12, ranks=1), levels=BUSY | {"reward": 5.0}, jobs=0)

    _, dips = dips_of_job(world.evidence())

    assert {dip.gpu for dip in dips} == {0}
    assert len(dips) == 12


# Anchors


def test_an_anchor_is_the_first_rank_to_start_the_phase_in_each_step() -> None:
    """Rewards start at 4 and 13; weight sync never does."""
    anchors = anchor_times(World(generate=[4, 5], reward=[[3, 2], [3, 4]]).evidence())

    assert {name: at.tolist() for name, at in anchors.items()} == {"generate": [0, 8], "reward": [4, 13]}


def test_a_phase_that_every_second_step_lacks_is_no_anchor() -> None:
    """Log-probabilities in odd steps only."""
    world = World(generate=[6.0] * 6, reward=[[2.0, 2.0]] * 6)
    late = [
        span("_get_per_token_logps", end - 1, end - 0.5, rank=rank, step=k)
        for k, end in enumerate(world.starts[1:])
        for rank in range(2)
        if k % 2
    ]
    evidence = evidence_of(memory(**world.rows() | {"spans": world.spans() + late}))

    assert evidence.steps is not None
    assert "logprobs" in evidence.steps.loop.columns
    assert set(anchor_times(evidence)) == {"generate", "reward"}


# The analysis's verdict in our words


def verdict_of(**changes: object) -> AlignmentVerdict:
    """A hand-made result."""
    base: dict[str, object] = {
        "verdict": "partially", "why": "why", "p_value": 0.01, "effect": Estimate(0.6, 0.5, 0.7),
        "drop_pct": Estimate(30, 25, 35), "boundary": "reward", "candidates": ("reward", "logprobs"), "lag_s": None,
        "reasons": ("COLLINEAR",), "detectable_effect": 0.2, "detectable_drop_pct": 9.0, "steps_needed": 12,
    }  # fmt: skip
    return AlignmentVerdict(**(base | changes))  # type: ignore[arg-type] # hand-made


def test_what_stands_in_the_way_of_yes_is_the_experiment() -> None:
    """A "partially" has no reason of its own, and says what would settle it."""
    found = as_verdict(verdict_of())

    assert (found.reason, found.experiment) == (None, REASONS[Reason.COLLINEAR].fix)
    assert (found.effect, found.interval, found.min_detectable, found.steps_needed) == (
        0.6,
        (0.5, 0.7),
        0.2,
        12,
    )


def test_an_open_verdict_has_a_reason_even_where_the_analysis_gave_none() -> None:
    """Too few steps, then."""
    assert as_verdict(verdict_of(verdict="unconfirmed", reasons=())).reason == Reason.LOW_N
    assert as_verdict(verdict_of(verdict="unconfirmed", reasons=("CLOCK", "GAP"))).reason == Reason.CLOCK


def test_without_events_the_drop_s_numbers_speak() -> None:
    """Also what it could have shown."""
    found = as_verdict(verdict_of(effect=None))

    assert (found.effect, found.interval, found.min_detectable) == (30, (25, 35), 9.0)


def test_a_yes_needs_no_more_steps() -> None:
    """Nothing to detect, nothing to do."""
    found = as_verdict(verdict_of(verdict="yes", reasons=()))

    assert (found.min_detectable, found.steps_needed, found.cheapest_experiment) == (None, None, "")


# Claims


def claim(evidence: Evidence, judged: AlignmentVerdict) -> Evidence:
    """The same evidence, with this result in place of the real one."""
    evidence.once("alignment", lambda _: judged)
    return evidence


def fresh() -> Evidence:
    """A small run to hang a hand-made result on."""
    return World(generate=[4, 5], reward=[[3, 2], [3, 4]]).evidence()


@pytest.mark.parametrize(
    ("effect", "drop", "word"),
    [
        (Estimate(0.6, 0.4, 0.7), None, "yes"),
        (Estimate(0.3, 0.2, 0.4), Estimate(30, 25, 35), "yes"),
        (Estimate(0.3, 0.2, 0.4), Estimate(18, 12, 24), "partially"),
        (Estimate(0.3, 0.2, 0.4), None, "partially"),
        (None, Estimate(-22, -28, -15), "partially"),
    ],
)
def test_an_open_boundary_is_no_doubt_about_the_loop_but_a_weak_effect_is(
    effect: Estimate | None, drop: Estimate | None, word: str
) -> None:
    """The claim "tied to the steps" is yes where only the boundary is open."""
    judged = verdict_of(effect=effect, drop_pct=drop)

    assert locked_to_steps(claim(fresh(), judged))[0].word == word


@pytest.mark.parametrize("word", ["no", "unconfirmed", "yes"])
def test_other_verdicts_on_the_loop_stay_as_they_are(word: str) -> None:
    """With their reason."""
    found = locked_to_steps(claim(fresh(), verdict_of(verdict=word, reasons=("LOW_N",))))[0]

    assert (found.word, found.reason) == (word, Reason.LOW_N if word == "unconfirmed" else None)


@pytest.mark.parametrize(
    ("changes", "phase", "word", "because"),
    [
        ({"verdict": "yes"}, "reward", "yes", "why"),
        ({"verdict": "yes"}, "generate", "no", "the dips follow the start of reward: why"),
        ({}, "logprobs", "partially", "why"),
        ({}, "generate", "no", "generate is not among the boundaries that remain: why"),
        ({"candidates": ()}, "generate", "partially", "why"),
        ({"verdict": "no"}, "reward", "no", "why"),
        ({"verdict": "unconfirmed"}, "generate", "unconfirmed", "why"),
    ],
)
def test_a_boundary_is_confirmed_or_ruled_out(
    changes: dict[str, object], phase: str, word: str, because: str
) -> None:
    """Ruled out only where a contest was held."""
    found = dips_follow(claim(fresh(), verdict_of(**changes)), phase=phase)[0]

    assert (found.word, found.because) == (word, because)


def test_dips_follow_the_rewards_and_not_generation() -> None:
    """From the measured run."""
    assert dips_follow(anatomy(), phase="reward")[0].word == "yes"
    assert dips_follow(anatomy(), phase="generate")[0].word == "no"


def test_utilization_drops_after_generation() -> None:
    """From 99 to 15; the wait, which reads 100, is left out. Both levels have receipts on both ranks."""
    verdict, receipts = drops_after(anatomy(), phase="generate")

    assert (verdict.word, verdict.effect) == ("yes", near(84, abs=1))
    assert (
        verdict.because
        == "utilization falls by 84 points [84, 84] from generate to reward, the longest of what follows"
    )
    assert [(r.rank, r.text.split()[2]) for r in receipts] == [
        (0, "generate"), (0, "reward"), (1, "generate"), (1, "reward"),
    ]  # fmt: skip


def test_utilization_does_not_drop_after_the_rewards() -> None:
    """It rises, by the same."""
    verdict, _ = drops_after(anatomy(), phase="reward")

    assert verdict.word == "no"
    assert verdict.because.startswith("utilization rises by 84 points [84, 84] from reward to generate")
    assert verdict.min_detectable is not None


def test_a_drop_in_seven_steps_is_no_answer() -> None:
    """Methods 4.1 ask for eight."""
    verdict, _ = drops_after(healthy(7).evidence(), phase="generate")

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)


@pytest.mark.parametrize("test", [locked_to_steps, lambda e: dips_follow(e, phase="reward")])
def test_a_claim_about_dips_needs_telemetry(test: object) -> None:
    """And says so."""
    evidence = evidence_of(without(healthy(4).recording(), "gpu", "gpu_counters"))

    assert callable(test)
    assert test(evidence)[0].because == "no GPU telemetry was recorded"
    assert drops_after(evidence, phase="generate")[0].reason == Reason.MISSING_SIGNAL
