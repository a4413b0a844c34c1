"""The verdict of check 1, rule by rule, on hand-made evidence; and whole runs with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.loops import contest_onsets, draw_run, locked_onsets, locked_telemetry, unrelated_onsets
from dipstick.analysis.alignment import AlignmentVerdict, Evidence, Rules, judge_alignment
from dipstick.analysis.contest import ContestResult, anchor_contest
from dipstick.analysis.lock import BoundaryLock, LockResult, locked_to_loop
from dipstick.analysis.lock_regression import RegressionLock, regression_lock
from dipstick.analysis.overlap import fit_overlap
from dipstick.analysis.stats import Estimate

FIXED = np.array([0.0])


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- hand-made evidence


def boundary(effect: float, low: float, high: float, p_value: float, name: str = "reward") -> BoundaryLock:
    """40 boundaries and 50 dips; chance 0.1."""
    return BoundaryLock(
        boundary=name,
        boundaries=40,
        onsets=50,
        hits=round(50 * (effect + 0.1)),
        precursor_rate=effect + 0.1,
        trigger_rate=effect + 0.2,
        chance_rate=0.1,
        effect=Estimate(effect, low, high),
        lag_s=0.5,
        p_global=p_value,
        p_block=p_value,
        p_value=p_value,
        p_floor=0.0025,
        coverage=0.1,
        p_adjusted=p_value,
        detectable_effect=0.3,
        steps_needed=25,
    )


def lock(*boundaries: BoundaryLock) -> LockResult:
    return LockResult(boundaries, 3.0, (0.0, 0.0), 999, 40, 5)


STRONG = boundary(0.75, 0.6, 0.85, 0.001)
MEDIUM = boundary(0.35, 0.2, 0.5, 0.001)
NOTHING = boundary(0.05, -0.05, 0.18, 0.3)
UNSURE = boundary(0.10, -0.05, 0.40, 0.2)

WON = ContestResult(
    winner="reward",
    leader="reward",
    probability={"reward": 0.99, "generate": 0.01},
    dispersion_s={"reward": 0.1, "generate": 3.0},
    unresolved=("reward",),
    lag_s=Estimate(0.5, 0.4, 0.6),
    separation=20.0,
    steps=40,
    steps_used=40,
)
OPEN = replace(WON, winner=None, unresolved=("reward", "gather"), reasons=("COLLINEAR",))


def regression(p_value: float, floor: float = 0.003) -> RegressionLock:
    return RegressionLock(
        r2=0.9,
        chance_r2=0.1,
        lag_s=0.0,
        p_global=p_value,
        p_block=p_value,
        p_value=p_value,
        p_floor=floor,
        draws=999,
        steps=40,
        blocks=5,
        samples=160,
        reasons=("P_FLOOR",) if floor > 0.05 else (),
    )


def judge(*boundaries: BoundaryLock, **parts: object) -> AlignmentVerdict:
    evidence = Evidence(lock=lock(*boundaries) if boundaries else None, **parts)  # type: ignore[arg-type]
    return judge_alignment(evidence)


# -- yes and partially


def test_a_strong_effect_at_a_boundary_that_won_is_yes() -> None:
    """p, effect and identifiability together."""
    actual = judge(STRONG, contest=WON)

    assert (actual.verdict, actual.boundary, actual.candidates) == ("yes", "reward", ("reward",))
    assert actual.p_value == 0.001
    assert actual.effect == Estimate(0.75, 0.6, 0.85)
    assert actual.lag_s == Estimate(0.5, 0.4, 0.6)
    assert actual.reasons == ()


def test_the_sentence_holds_the_numbers() -> None:
    """Counts, chance, p and the boundary with its lag."""
    assert judge(STRONG, contest=WON).why == (
        "42 of 50 dips start at the reward boundary (10 % by chance); p 0.001 after Holm; they follow reward (+0.50 s)"
    )


@pytest.mark.parametrize("contest", [OPEN, None])
def test_a_strong_effect_without_a_winner_is_partially(contest: ContestResult | None) -> None:
    """Locked to the loop is not caused by this boundary."""
    actual = judge(STRONG, contest=contest)

    assert actual.verdict == "partially"
    assert actual.reasons == (("COLLINEAR",) if contest else ("COARSE",))


def test_a_medium_effect_is_partially_even_with_a_winner() -> None:
    """0.2 <= effect < 0.5."""
    assert judge(MEDIUM, contest=WON).verdict == "partially"


def test_a_drop_of_more_than_twenty_points_is_a_strong_effect_too() -> None:
    """The whole interval above 20: yes with a winner; above 10 only: partially; else nothing."""
    drops = [Estimate(40, 25, 55), Estimate(20, 12, 28), Estimate(12, 2, 22)]

    actual = [judge(replace(NOTHING, p_value=0.001), contest=WON, drop_pct=d).verdict for d in drops]

    assert actual == ["yes", "partially", "unconfirmed"]


def test_coarse_sampling_can_say_partially_without_any_onset() -> None:
    """Regression and drop alone: locked, but which boundary needs onsets (COARSE)."""
    actual = judge(regression=regression(0.001), drop_pct=Estimate(60, 50, 70))

    assert actual.verdict == "partially"
    assert actual.reasons == ("COARSE",)
    assert actual.effect is None
    assert "utilization falls by 60 points [50, 70]" in actual.why


def test_the_regression_is_judged_in_the_same_family() -> None:
    """Boundary 0.04 and regression 0.03: Holm 0.06 each, no finding."""
    weak = boundary(0.6, 0.45, 0.7, 0.04)

    actual = judge(weak, contest=WON, regression=regression(0.03))

    assert actual.p_value == pytest.approx(0.06)
    assert actual.verdict == "unconfirmed"


def test_the_winner_of_the_contest_is_the_boundary_that_is_judged() -> None:
    """Gather has the smaller p by its correlation with reward; reward won, and reward's effect is shown."""
    reward, gather = boundary(0.6, 0.45, 0.7, 0.002), boundary(0.55, 0.4, 0.7, 0.001, "gather")

    actual = judge(gather, reward, contest=WON)

    assert actual.boundary == "reward"
    assert actual.effect == reward.effect
    assert actual.p_value == pytest.approx(0.002)


# -- no and unconfirmed


def test_an_effect_bounded_below_a_fifth_is_no() -> None:
    """The interval ends at 0.18."""
    actual = judge(NOTHING, contest=OPEN)

    assert actual.verdict == "no"
    assert actual.why.endswith("an effect of 0.2 is ruled out")


def test_no_needs_every_boundary_bounded() -> None:
    """One boundary could still hold 0.4."""
    assert judge(NOTHING, replace(UNSURE, boundary="gather")).verdict == "unconfirmed"


def test_no_needs_the_drop_bounded_too() -> None:
    """Events say no, the drop could be 15 points."""
    assert judge(NOTHING, drop_pct=Estimate(5, -5, 15)).verdict == "unconfirmed"
    assert judge(NOTHING, drop_pct=Estimate(2, -4, 8)).verdict == "no"


def test_absence_of_evidence_is_unconfirmed_and_says_what_would_do() -> None:
    """P 0.2 with an interval up to 0.4: the detectable effect and the steps needed are printed."""
    actual = judge(UNSURE)

    assert actual.verdict == "unconfirmed"
    assert (actual.detectable_effect, actual.steps_needed) == (0.3, 25)
    assert actual.reasons == ("LOW_N",)


def test_a_p_below_its_floor_does_not_count() -> None:
    """Periodic steps: 0.001 from 999 draws means nothing at a floor of 0.1."""
    periodic = replace(STRONG, p_floor=0.1, reasons=("P_FLOOR",))

    actual = judge(periodic, contest=WON)

    assert actual.verdict == "unconfirmed"
    assert actual.p_value is None
    assert actual.reasons == ("P_FLOOR",)
    assert "no p-value below its floor is possible" in actual.why


def test_the_floor_is_held_against_the_level_of_the_family() -> None:
    """0.02 is below 0.05 but not below 0.05 / 5."""
    floored = replace(STRONG, p_floor=0.02)
    others = [replace(NOTHING, boundary=f"b{i}") for i in range(4)]

    assert judge(floored, contest=WON).verdict == "yes"
    assert judge(floored, *others, contest=WON).verdict == "unconfirmed"


@pytest.mark.parametrize("reason", ["GAP", "CLOCK", "SPINNING"])
def test_a_reason_from_outside_bars_yes_and_no(reason: str) -> None:
    """Unexplained time, clocks, spinning waits."""
    assert judge(STRONG, contest=WON, extra=(reason,)).verdict == "unconfirmed"
    assert judge(NOTHING, extra=(reason,)).verdict == "unconfirmed"
    assert judge(STRONG, contest=WON, extra=(reason,)).reasons[0] == reason


def test_a_run_whose_halves_disagree_is_unconfirmed() -> None:
    """NONSTATIONARY, whatever the p."""
    actual = judge(replace(STRONG, reasons=("NONSTATIONARY",)), contest=WON)

    assert (actual.verdict, actual.reasons) == ("unconfirmed", ("NONSTATIONARY",))


def test_untested_boundaries_give_their_reasons() -> None:
    """Windows that cover too much: nothing tested, COVERAGE said."""
    nan = float("nan")
    covered = replace(NOTHING, p_value=nan, p_adjusted=nan, reasons=("COVERAGE",))

    actual = judge(covered)

    assert (actual.verdict, actual.reasons, actual.p_value) == ("unconfirmed", ("COVERAGE",), None)


def test_no_evidence_at_all_is_an_answer() -> None:
    """Neither onsets nor samples."""
    actual = judge_alignment(Evidence())

    assert actual.verdict == "unconfirmed"
    assert actual.why == "neither dip onsets nor utilization samples could be tested against the steps"


def test_the_rules_travel_with_the_verdict() -> None:
    """Stricter thresholds, declared before: the strong effect is only medium."""
    strict = Rules(yes_effect=0.8)

    actual = judge_alignment(Evidence(lock=lock(STRONG), contest=WON), strict)

    assert (actual.verdict, actual.rules) == ("partially", strict)


def test_the_detectable_drop_follows_from_its_interval() -> None:
    """+-9.8 points is an error of 5; power 0.8 needs 2.8 errors: 14 points; 20 points need half the steps."""
    actual = judge(regression=regression(0.3), drop_pct=Estimate(5, -4.8, 14.8))

    assert actual.verdict == "unconfirmed"
    assert actual.detectable_drop_pct == pytest.approx(14.0, abs=0.05)
    assert actual.steps_needed == 20


# -- whole runs with known truth


def test_dips_at_reward_start_are_found_and_named() -> None:
    """40 steps, hit 0.8: yes, reward."""
    run = draw_run(rng(3), 40, 0.2)
    onsets = locked_onsets(rng(4), run, 0.95)
    family = locked_to_loop(run.loop, run.boundaries, onsets, 3.0, rng(5), lags=FIXED)
    contest = anchor_contest(run.boundaries, contest_onsets(rng(6), run, 0.3), rng(7))

    actual = judge_alignment(Evidence(family, contest=contest))

    assert (actual.verdict, actual.boundary) == ("yes", "reward")


def test_unrelated_dips_are_never_yes() -> None:
    """Poisson, drifting and periodic dips over 60 steps: no verdict above unconfirmed in twelve runs."""
    verdicts = []
    for seed in range(4):
        run = draw_run(rng(seed), 60, 0.1)
        for kind in ("poisson", "falling", "L/2"):
            onsets = unrelated_onsets(rng(seed + 9), run, kind)
            family = locked_to_loop(run.loop, run.boundaries, onsets, 1.0, rng(seed), lags=FIXED)
            verdicts.append(judge_alignment(Evidence(family)).verdict)

    assert set(verdicts) <= {"no", "unconfirmed"}


def test_a_scrape_every_fifteen_seconds_still_sees_the_drop() -> None:
    """W = D = 15 s, 40 steps: partially, with the drop into reward of about 85 points."""
    run = draw_run(rng(3), 40, 0.2)
    telemetry = [locked_telemetry(rng(4), run, 15.0, 15.0, 85.0, 0.0)]
    fit = fit_overlap(telemetry, 15.0, run.starts[:, 0], rng(5))
    assert fit is not None

    actual = judge_alignment(
        Evidence(
            regression=regression_lock(telemetry, 15.0, run.loop, rng(6)),
            drop_pct=fit.drop("generate", "reward"),
        )
    )

    assert actual.verdict == "partially"
    assert actual.drop_pct is not None
    assert actual.drop_pct.value == pytest.approx(85, abs=10)
