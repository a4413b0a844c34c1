"""Check 5 and the claim on drifts: steps that get longer, dips that thin out, and runs that stay as they are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.trends import judge_trend
from dipstick.judgement import Reason
from dipstick.verdicts import check_trends
from dipstick.verdicts.claim_trends import as_verdict, describe, drifts, series_of, thinning, trend_of
from records import Row, memory, near, ns, utilization, without
from worlds import World, evidence_of, healthy, varied

if TYPE_CHECKING:
    from dipstick.verdicts.evidence import Evidence

STEPS = 40


def growing(steps: int = STEPS, **changes: object) -> World:
    """Generation grows from 4 s by 0.15 s a step, give or take 0.4 s; rewards stay."""
    noise = np.random.default_rng(1).normal(0, 0.4, steps)
    generate = [float(round(4 + 0.15 * k + noise[k], 2)) for k in range(steps)]
    return healthy(steps, **({"generate": generate, "reward": varied(steps, low=1.9, high=2.1)} | changes))


@cache
def grown() -> Evidence:
    """Forty growing steps, with the completion length that makes them grow in the trainer's log."""
    lengths: list[Row] = [
        {"step": k + 1, "name": "completions/mean_length", "value": 25 * g, "t_ns": ns(k)}
        for k, g in enumerate(growing().generate)
    ]
    return growing(tables={"scalars": lengths}).evidence()


@cache
def steady() -> Evidence:
    """Forty steps that differ by a tenth and go nowhere."""
    rng = np.random.default_rng(2)
    generate = [float(round(6 + x, 2)) for x in rng.normal(0, 0.05, STEPS)]
    return healthy(STEPS, generate=generate, reward=varied(STEPS, low=1.9, high=2.1, seed=4)).evidence()


# The check


def test_steps_that_get_longer_are_a_drift_with_its_cause() -> None:
    """From 7 to 13 s; the completions got longer."""
    found = check_trends.check(grown())

    assert found.verdict.word == "yes"
    assert found.verdict.effect is not None
    assert found.verdict.effect > 0.4
    assert "step changes by +" in found.verdict.because
    assert "it goes with completion length" in found.verdict.because
    assert found.verdict.p is not None
    assert found.verdict.p <= 0.05


def test_the_p_of_a_drift_is_corrected_for_the_series_looked_at() -> None:
    """Holm over all of them: never below the smallest possible times their number."""
    found = check_trends.check(grown())
    rows = found.facts["trends"]

    assert found.verdict.p is not None
    assert found.verdict.p == min(row["p_adjusted"] for row in rows if row["verdict"] == "yes")
    assert found.verdict.p >= len(rows) * 0.001


def test_dips_that_thin_out_because_steps_get_longer_are_told_apart() -> None:
    """One dip a step throughout: fewer a minute, as many a step."""
    rates = thinning(grown())

    assert rates is not None
    assert (rates.per_minute.verdict, rates.per_step.verdict) == ("yes", "no")
    assert check_trends.check(grown()).facts["dips_thin_out_because"] == "steps_longer"


def test_a_run_that_stays_as_it_is_does_not_drift() -> None:
    """No for the step time; where another series is too noisy to tell, the whole is open and names it."""
    found = check_trends.check(steady())

    assert found.verdict.word in {"no", "unconfirmed"}
    assert drifts(steady())[0].word == "no"
    assert found.verdict.min_detectable is not None
    if found.verdict.word == "unconfirmed":
        assert found.verdict.because.startswith("no drift stands out; step changes by ")


def test_nineteen_steps_are_too_few_for_a_drift() -> None:
    """Twenty are needed: what would have shown is said."""
    found = check_trends.check(growing(12).evidence())

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert found.verdict.min_detectable is not None
    assert found.verdict.cheapest_experiment.startswith("record a longer run")


def test_two_steps_are_no_line() -> None:
    """Said in words, not as nan %."""
    found = check_trends.check(growing(2).evidence())

    assert found.verdict.because.startswith("no drift stands out; step over 2 steps: too few for a line")
    assert (found.verdict.effect, found.verdict.min_detectable) == (None, None)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"gpu": utilization([50.0] * 30)}, Reason.MISSING_SIGNAL),
        ({"spans": World([4], [[2]]).spans()}, Reason.LOW_N),
    ],
    ids=["gpu", "step"],
)
def test_without_steps_there_is_no_trend(rows: dict[str, list[Row]], reason: Reason) -> None:
    """Missing, not flat; one step is there, and too few."""
    found = check_trends.check(evidence_of(memory(**rows)))

    assert (found.verdict.reason, found.facts["trends"], found.receipts) == (reason, None, ())


def test_receipts_are_the_first_and_the_last_quarter() -> None:
    """38 kept steps: nine at each end."""
    receipts = check_trends.check(grown()).receipts

    assert [r.text.split(":")[0] for r in receipts] == ["all 38 steps", "first 9 steps", "last 9 steps"]
    assert [r.unit for r in receipts] == ["s"] * 3
    assert (receipts[2].value or 0) > (receipts[1].value or 0) + 3


# Series


def test_every_series_has_one_number_a_kept_step() -> None:
    """Step time, dips, phases, the wait at the gather, drivers."""
    found = series_of(grown())

    assert {len(values) for values in found.values()} == {STEPS - 2}
    assert {"step", "dip", "dips_per_minute", "generate", "reward", "backward", "gather_wait"} <= set(found)
    assert {"longest_job", "total_work", "makespan"} <= set(found)


def test_the_wait_is_the_mean_over_the_ranks() -> None:
    """Rewards of 3 and 2 s, then 3 and 4: one of two ranks waits 1 s each time."""
    found = series_of(World(generate=[4, 5], reward=[[3, 2], [3, 4]]).evidence())

    assert found["gather_wait"].tolist() == near([0.5, 0.5])
    assert found["reward"].tolist() == near([2.5, 3.5])
    assert found["step"].tolist() == near([8, 10])


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        (("jobs",), {"longest_job", "total_work", "makespan"}),
        (("gpu", "gpu_counters"), {"dip", "dips_per_minute"}),
    ],
    ids=["jobs", "gpu"],
)
def test_what_was_not_recorded_has_no_series(gone: tuple[str, ...], missing: set[str]) -> None:
    """And the claim on it says that it is missing: it is a series, only not here."""
    recording = without(healthy(4).recording(), *gone)
    evidence = evidence_of(recording)

    assert missing.isdisjoint(series_of(evidence))
    for name in sorted(missing):
        verdict, _ = drifts(evidence, of=name)
        assert (verdict.reason, verdict.because) == (Reason.MISSING_SIGNAL, f"no {name} was recorded by step")


def test_one_rank_has_no_wait() -> None:
    """Nor a series of it."""
    assert "gather_wait" not in series_of(World(generate=[4.0] * 4, reward=varied(4, ranks=1)).evidence())


def test_dips_are_counted_in_the_steps_that_they_start_in() -> None:
    """One a step of ten seconds is six a minute."""
    evidence = World(generate=[7.0] * 12, reward=[[2.0, 2.0]] * 12, jobs=0).evidence()

    assert series_of(evidence)["dips_per_minute"].tolist() == near([6.0] * 10)


def test_no_dips_no_rate() -> None:
    """A job that never rests."""
    evidence = World(generate=[7.0] * 4, reward=[[2.0, 2.0]] * 4, levels=dict.fromkeys(("generate", "reward", "wait", "train"), 90.0), profiled=False).evidence()  # fmt: skip

    assert thinning(evidence) is None


# Claims


def test_a_drift_is_claimed_of_any_series() -> None:
    """Generation grew, rewards did not."""
    one, two = drifts(grown(), of="generate"), drifts(grown(), of="reward")

    assert one[0].word == "yes"
    assert one[0].because.startswith("generate changes by +")
    assert two[0].word in {"no", "unconfirmed"}
    assert {r.text.split()[5].rstrip(",") for r in one[1]} == {"generate"}


def test_an_open_drift_says_what_would_show() -> None:
    """Ten kept steps."""
    verdict, receipts = drifts(growing(12).evidence())

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert verdict.min_detectable is not None
    assert len(receipts) == 3


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ([1.0, 2.0], "x over 2 steps: too few for a line"),
        ([3.0] * 25, "x changes by +0 % [+0, +0] over 25 steps"),
        ([10.0] * 15 + [20.0] * 15, "a step change at step 15"),
    ],
)
def test_a_trend_in_words(series: list[float], text: str) -> None:
    """Never nan."""
    noise = np.random.default_rng(0).normal(0, 1e-3, len(series)) * (len(set(series)) > 1)
    trend = judge_trend(np.asarray(series) + noise)

    assert text in describe("x", trend)
    assert "nan" not in describe("x", trend)


def test_a_trend_as_a_verdict_has_its_numbers_where_they_are_known() -> None:
    """Of two steps none are."""
    few, flat = judge_trend(np.asarray([1.0, 2.0])), judge_trend(np.asarray([3.0] * 25))

    assert (as_verdict(few, 1.0, "x").effect, as_verdict(few, 1.0, "x").reason) == (None, Reason.LOW_N)
    assert (as_verdict(flat, 1.0, "x").word, as_verdict(flat, 1.0, "x").interval) == ("no", (0.0, 0.0))


def test_a_trend_of_what_no_run_has_is_none() -> None:
    """Asked for by its name."""
    assert trend_of(steady(), "eval") is None
