"""Check 4: the longest job, the queue, one rank, or nobody; and what would be left without them."""

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.errors import UsageError
from dipstick.judgement import Reason
from dipstick.verdicts import check_stragglers
from dipstick.verdicts.check_stragglers import arrivers, second_longest, straggler_rank
from dipstick.verdicts.claim_phases import dips_follow_longest_job, dips_follow_queued_work
from dipstick.verdicts.claim_phases import straggler_rank as rank_claim
from records import Row, cycle, job, memory, near, ns, without
from worlds import BUSY, World, evidence_of, healthy, varied

if TYPE_CHECKING:
    from dipstick.judgement import Check
    from dipstick.verdicts.evidence import Evidence

EMPTY = BUSY | {"reward": 0.0}
WIDE = [[slow, round(0.4 * fast, 1)] for slow, fast in varied(30, low=0.8, high=9.0, seed=3)]
"""Rewards that differ tenfold between steps; rank 1 has less than half of rank 0's."""


def pool(world: World, plan: Any) -> list[Row]:
    """Jobs of each step and rank: ``plan(step, rank, seconds)`` gives the lengths on each of the rank's workers."""
    rows = []
    for rank in range(world.ranks):
        for step, (_, reward, _, _) in enumerate(world.parts(rank)):
            for w, lengths in enumerate(plan(step, rank, reward.end - reward.start)):
                ends = list(accumulate(lengths, initial=reward.start))
                for i, (begin, end) in enumerate(pairwise(ends)):
                    pid = 1000 + 10 * rank + w
                    row = job(f"{step}.{rank}.{w}.{i}", begin, end, rank=rank, pid=pid, step=step)
                    rows.append(row | {"submitted_ns": ns(reward.start)})
    return rows


def one_long_job(step: int, rank: int, seconds: float) -> list[list[float]]:
    """One job as long as the rewards; the other worker has short ones for a drawn part of that time."""
    filled = float(np.random.default_rng([step, rank]).uniform(0.0, 0.9))
    return [[seconds], [seconds * filled / 8] * 8]


def full_queue(step: int, rank: int, seconds: float) -> list[list[float]]:
    """Both workers are busy to the end with jobs of drawn lengths."""
    rng = np.random.default_rng([step, rank])
    return [[float(x) for x in rng.dirichlet(np.ones(12)) * seconds] for _ in range(2)]


def run_with(plan: Any, steps: int = 30, **changes: Any) -> Evidence:
    """Rewards of one to nine seconds, filled with such jobs."""
    world = healthy(steps, reward=WIDE[:steps], levels=EMPTY, **changes)
    return evidence_of(memory(**world.rows() | {"jobs": pool(world, plan)}))


@cache
def straggling() -> Evidence:
    """Each step waits for its longest job."""
    return run_with(one_long_job)


@cache
def queued() -> Evidence:
    """Each step waits for all of its jobs."""
    return run_with(full_queue)


@cache
def check_of(name: str) -> Check:
    """The check of one of the two."""
    return check_stragglers.check({"straggling": straggling, "queued": queued}[name]())


# Drivers


def test_dips_as_long_as_the_longest_job_are_its_wait() -> None:
    """A second of dip for a second of job, and no other driver does as well."""
    found = check_of("straggling")

    assert found.verdict.word == "yes"
    assert found.verdict.because.startswith("dip width against the longest job: partial rho ")
    assert found.facts["driver"] == "longest_job"
    longest = next(row for row in found.facts["drivers"] if row["driver"] == "longest_job")
    assert longest["slope"] == near(1.0, abs=0.03)
    assert (found.verdict.min_detectable, found.verdict.steps_needed) == (None, None)


def test_dips_as_long_as_the_queue_are_not_the_longest_job_s() -> None:
    """It goes with them (long rewards hold long jobs), but the queue explains them second for second."""
    found = check_of("queued")

    assert found.verdict.word == "partially"
    assert found.facts["driver"] in {"total_work", "makespan"}
    assert "explains them better" in found.verdict.because
    assert found.verdict.min_detectable is not None


@pytest.mark.parametrize(
    ("evidence", "longest", "queue"), [(straggling, "yes", "no"), (queued, "partially", "yes")]
)
def test_the_two_claims_about_jobs_answer_each_their_own(evidence: Any, longest: str, queue: str) -> None:
    """With the receipts of the check."""
    one, two = dips_follow_longest_job(evidence()), dips_follow_queued_work(evidence())

    assert (one[0].word, two[0].word) == (longest, queue)
    assert one[1] == two[1] != ()


@pytest.mark.parametrize("steps", [2, 4, 11])
def test_a_driver_of_a_few_steps_is_no_driver(steps: int) -> None:
    """Eleven steps leave nine after warm-up; fifteen are needed."""
    evidence = run_with(full_queue, steps)
    verdicts = [check_stragglers.judge(evidence), dips_follow_queued_work(evidence)[0]]

    assert [(v.word, v.reason) for v in verdicts] == [("unconfirmed", Reason.LOW_N)] * 2
    assert not any("nan" in v.because for v in verdicts)


def test_rewards_that_hardly_vary_follow_nothing() -> None:
    """All of 2 s: nobody can tell what drives them, and the fix is to make them vary."""
    world = healthy(reward=[[2.0, 2.0]] * 30, levels=EMPTY)
    evidence = evidence_of(memory(**world.rows() | {"jobs": pool(world, one_long_job)}))

    verdict = check_stragglers.judge(evidence)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.NO_VARIATION)
    assert verdict.cheapest_experiment.startswith("make it vary")


@pytest.mark.parametrize(
    "gone", [("jobs",), ("spans",), ("gpu", "gpu_counters", "spans")], ids=lambda gone: gone[0]
)
def test_jobs_and_steps_are_needed(gone: tuple[str, ...]) -> None:
    """Which of them is missing is not guessed."""
    evidence = evidence_of(without(healthy(4).recording(), *gone))
    verdict = check_stragglers.judge(evidence)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert verdict.because == "no reward jobs with worker times beside GPU telemetry"
    assert dips_follow_queued_work(evidence)[0].reason == Reason.MISSING_SIGNAL
    assert check_stragglers.check(evidence).facts["driver"] == "unresolved"


# Ranks


def late(steps: int, last: int, by: float = 1.0, rank: int = 1) -> World:
    """Rank ``rank`` is last in ``last`` of the steps, by so much; the other one in the rest."""
    reward = [[2.0 + by * ((k < last) == (r == rank)) for r in range(2)] for k in range(steps)]
    return World(generate=[4.0] * steps, reward=reward, jobs=0)


@pytest.mark.parametrize(
    ("steps", "last", "word"),
    [(12, 12, "yes"), (12, 11, "yes"), (31, 20, "unconfirmed"), (40, 20, "unconfirmed"), (300, 150, "no")],
)
def test_a_rank_is_the_straggler_if_it_is_last_far_beyond_chance(steps: int, last: int, word: str) -> None:
    """Exact, so twelve steps can tell; 20 of 31 can't, and 150 of 300 are a plain no."""
    found = straggler_rank(late(steps, last).evidence())

    assert found is not None
    assert found[1].word == word
    assert found[1].because.startswith(
        f"rank {1 if last > steps / 2 else 0} is last in {last} of {steps} steps"
    )
    assert (found[1].min_detectable is None) is (word == "yes")


def test_every_rank_is_tested_and_named_by_its_number() -> None:
    """Ranks 6 and 7 of a larger job."""
    world = late(12, 12)
    spans = [r | {"rank": r["rank"] + 6} for r in world.spans()]
    evidence = evidence_of(memory(spans=spans))

    rows = check_stragglers.check(evidence).facts["last_arrivers"]
    assert [(row["rank"], row["last_in_steps"], row["verdict"]) for row in rows] == [
        (6, near(0), "no"),
        (7, near(12), "yes"),
    ]
    verdict, receipts = rank_claim(evidence, rank=7)
    assert (verdict.word, receipts[0].rank, receipts[0].value) == ("yes", 7, 12)


def test_a_rank_without_steps_does_not_shift_the_others() -> None:
    """Rank 0 left one span: ranks 1 and 2 meet, and 2 is the late one."""
    spans = [r | {"rank": r["rank"] + 1, "pid": r["pid"] + 1} for r in late(12, 12).spans()]
    stray = spans[0] | {"rank": 0, "pid": 900, "step": None, "name": "GRPOTrainer.vLLM.generate"}
    evidence = evidence_of(memory(spans=[stray, *spans]))

    assert [row["rank"] for row in check_stragglers.check(evidence).facts["last_arrivers"]] == [1, 2]
    assert rank_claim(evidence, rank=2)[0].word == "yes"


def test_ranks_that_always_arrive_together_share_the_last_place() -> None:
    """Half a step each; nobody is the straggler."""
    evidence = World(generate=[4.0] * 20, reward=[[2.0, 2.0]] * 20, jobs=0).evidence()

    assert [row.share.value for row in arrivers(evidence)] == [0.5, 0.5]
    assert rank_claim(evidence, rank=0)[0].word == "unconfirmed"


def test_one_rank_waits_for_nobody() -> None:
    """No test, no straggler."""
    evidence = World(generate=[4.0] * 12, reward=[[2.0]] * 12, jobs=0).evidence()

    assert arrivers(evidence) == ()
    assert straggler_rank(evidence) is None
    assert rank_claim(evidence, rank=0)[0].because == "fewer than two ranks meet at a reward gather"


def test_a_rank_that_is_not_there_is_a_usage_error() -> None:
    """The recording's ranks are listed."""
    with pytest.raises(UsageError, match="there is no rank 7") as caught:
        rank_claim(late(12, 12).evidence(), rank=7)
    assert caught.value.fix == "ranks: 0, 1"


def test_a_single_meeting_says_nothing_about_a_rank() -> None:
    """One step: p is a half."""
    found = straggler_rank(late(1, 1).evidence())

    assert found is not None
    assert found[1].word == "unconfirmed"


# What would be left


def test_without_the_longest_job_only_a_straggling_run_gets_much_faster() -> None:
    """The longest job of each step takes the second longest's time; a queue is still there afterwards."""
    straggler, queue = (
        check_of(name).facts["what_if"]["no_straggler_step_speedup"] for name in ("straggling", "queued")
    )

    assert straggler > 1.1
    assert 1.0 <= queue < 1.05


@pytest.mark.parametrize(
    ("step", "seconds", "expected"),
    [
        ([0, 0, 0, 1], [3.0, 1.0, 2.0, 5.0], [2.0, 5.0, 0.0]),
        ([2, 2], [4.0, 4.0], [0.0, 0.0, 4.0]),
        ([1], [7.0], [0.0, 7.0, 0.0]),
    ],
)
def test_the_second_longest_job_of_each_step(
    step: list[int], seconds: list[float], expected: list[float]
) -> None:
    """Of its only job where it has one; 0 where it has none, also at either end of the run."""
    assert second_longest(np.asarray(step), np.asarray(seconds), 3).tolist() == expected


def test_a_step_without_jobs_does_not_stop_the_what_if() -> None:
    """The last step's completions were all invalid on both ranks."""
    world = healthy(12, reward=WIDE[:12], levels=EMPTY)
    jobs = [r for r in pool(world, one_long_job) if r["step"] < 11]

    found = check_stragglers.check(evidence_of(memory(**world.rows() | {"jobs": jobs})))

    assert found.facts["what_if"]["no_straggler_step_speedup"] > 1


def test_blame_names_ranks_by_their_number_and_workers_by_their_process() -> None:
    """Not by their place in the replay."""
    world = late(12, 12)
    rows = world.rows() | {"jobs": pool(world, lambda _, __, seconds: [[seconds], [0.1]])}
    rows = {
        name: [r | ({"rank": r["rank"] + 4} if r.get("rank") is not None else {}) for r in part]
        for name, part in rows.items()
    }

    found = check_stragglers.check(evidence_of(memory(**rows))).facts["attribution"]

    named = {a["peers"]: {cause["name"] for cause in a["causes"]} for a in found}
    assert named["rank"] == {"rank 4", "rank 5"}
    assert named["worker"] <= {f"worker {pid}" for pid in (1000, 1001, 1010, 1011)}


# Waiting


def test_each_barrier_has_its_price_and_what_fixing_one_rank_gives_back() -> None:
    """Rank 1 is a second late in 9 of 10 kept steps, rank 0 in none of them: 9 s are recoverable there."""
    facts = check_stragglers.check(late(12, 11).evidence()).facts
    reward = next(row for row in facts["barriers"] if row["barrier"] == "reward")

    assert reward["wait_gpu_s"] == near(10)
    assert [
        (row["rank"], row["blame_gpu_s"], row["recoverable_s"], row["last_in_steps"])
        for row in reward["by_rank"]
    ] == [
        (0, near(1), near(1), near(1)),
        (1, near(9), near(9), near(9)),
    ]


def test_a_rank_that_stays_last_is_told_from_one_that_takes_turns() -> None:
    """Rank 1 in the first half, rank 0 in the second: 38 of 39 neighbours agree. By turns: none."""
    blocks, turns = (
        World(
            generate=[4.0] * 40, reward=[[2.0 + (r == rank) for r in range(2)] for rank in order], jobs=0
        ).evidence()
        for order in ([1] * 20 + [0] * 20, [0, 1] * 20)
    )

    found = check_stragglers.check(blocks).facts["persistence"]
    assert (found["agreement"], found["p"]) == (near(38 / 39), near(0.001))
    assert check_stragglers.check(turns).facts["persistence"]["agreement"] == 0.0


def test_one_rank_or_two_steps_have_no_waits_to_speak_of() -> None:
    """Null, not empty."""
    alone = check_stragglers.check(World(generate=[4.0] * 4, reward=[[2.0]] * 4, jobs=0).evidence()).facts

    assert (alone["barriers"], alone["persistence"]) == (None, None)
    assert check_stragglers.check(late(2, 2).evidence()).facts["persistence"] is None


# Receipts


def test_receipts_count_last_places_and_add_up_jobs() -> None:
    """Two ranks, two workers each; the jobs that the workers did before the first step are not theirs."""
    receipts = check_of("queued").receipts

    assert [(r.kind, r.rank) for r in receipts] == [
        ("count", 0),
        ("count", 1),
        *[("number", r) for r in (0, 0, 1, 1)],
    ]
    assert sum(r.value or 0 for r in receipts[:2]) == 30
    assert receipts[2].value == near(sum(r[0] for r in WIDE), rel=1e-6)


# Without telemetry


def spans_alone(late: list[int], **more: Any) -> Evidence:
    """Two ranks, a step for each entry: that rank's rewards take 3 s longer. No telemetry."""
    lengths = {True: (2.0, 7.0, 0.0, 1.0), False: (2.0, 4.0, 3.0, 1.0)}
    spans = [
        r
        for k, who in enumerate(late)
        for rank in (0, 1)
        for r in cycle(rank, k, 10 * k, lengths[rank == who])
    ]
    return evidence_of(memory(spans=spans, **more))


def test_without_telemetry_the_spans_decide() -> None:
    """Rank 1 is last in 12 of 12 steps. What telemetry would add is said."""
    verdict = check_stragglers.judge(spans_alone([1] * 12))

    assert verdict.word == "yes"
    assert verdict.because.startswith("rank 1 is last in 12 of 12 steps")
    assert verdict.because.endswith(
        "GPU telemetry would add whether the dips follow: dipstick run records both on one clock"
    )


def test_without_telemetry_nobody_is_blamed_where_ranks_take_turns() -> None:
    """Each is last in 60 of 120 steps: no straggler, from spans alone."""
    assert check_stragglers.judge(spans_alone([0, 1] * 60)).word == "no"


def test_a_few_steps_without_telemetry_decide_nothing() -> None:
    """Two of three: open, with a reason."""
    verdict = check_stragglers.judge(spans_alone([1, 0, 1]))

    assert (verdict.word, verdict.reason is not None) == ("unconfirmed", True)


def test_one_rank_without_telemetry_or_jobs_has_no_straggler_to_find() -> None:
    """Nobody to compare with: what is missing is named."""
    spans = [r for k in range(12) for r in cycle(0, k, 10 * k, (2, 4, 3, 1))]

    assert check_stragglers.judge(evidence_of(memory(spans=spans))).reason is Reason.MISSING_SIGNAL
