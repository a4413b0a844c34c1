"""The decision rules of methods 4.2, each boundary from both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dipstick.analysis.replay import Gate
from dipstick.analysis.replay_path import CriticalPath, PathRow
from dipstick.analysis.replay_waits import last_arrivers
from dipstick.analysis.stats import Estimate
from dipstick.analysis.whatif import WhatIf
from dipstick.analysis.whatif_verdict import (
    clean_steps,
    fix_gives,
    phase_dominates,
    rank_is_straggler,
    split_half_noise,
)

ANY = Estimate(0.0, 0.0, 0.0)


def path_of(
    share: Estimate, lead: Estimate, *, steps: int = 30, gap: float = 0.01, longest: str = "reward"
) -> CriticalPath:
    """A path whose reward has the given share and lead."""
    row = PathRow("reward", 1.0, share, lead, 2.0)
    return CriticalPath((row,), 0.0, gap, longest, np.zeros((steps, 1), dtype=np.int64), steps)


def whatif_of(
    value: float, low: float, high: float, *, steps: int = 30, reason: str = "", bound: bool = False
) -> WhatIf:
    """A what-if with the given speed-up."""
    return WhatIf("x", Estimate(value, low, high), ANY, ANY, steps, reason, bound)


class TestCleanSteps:
    """Which steps count."""

    def test_warm_up_and_event_steps_are_left_out(self) -> None:
        """Checkpoints in steps 3 and 6 of 8."""
        fired = np.isin(np.arange(8), [3, 6])

        assert clean_steps(8, (fired,)).tolist() == [2, 4, 5, 7]

    def test_the_warm_up_can_be_kept(self) -> None:
        """A resumed run has none."""
        assert clean_steps(3, warm_up=0).tolist() == [0, 1, 2]


class TestPhaseDominates:
    """Claims about a phase."""

    @pytest.mark.parametrize(
        ("share", "lead", "longest", "verdict"),
        [
            (Estimate(0.62, 0.58, 0.66), Estimate(0.4, 0.3, 0.5), "reward", "yes"),
            (Estimate(0.45, 0.43, 0.47), Estimate(0.15, 0.10, 0.2), "reward", "yes"),
            (Estimate(0.41, 0.36, 0.46), Estimate(0.13, 0.08, 0.18), "reward", "partially"),
            (Estimate(0.51, 0.50, 0.52), Estimate(0.05, 0.01, 0.09), "reward", "partially"),
            (Estimate(0.10, 0.05, 0.19), Estimate(-0.1, -0.2, -0.05), "generate", "no"),
            (Estimate(0.30, 0.28, 0.32), Estimate(-0.3, -0.34, -0.26), "generate", "no"),
            (Estimate(0.30, 0.20, 0.40), Estimate(-0.1, -0.3, 0.1), "generate", "unconfirmed"),
        ],
    )
    def test_the_rule(self, share: Estimate, lead: Estimate, longest: str, verdict: str) -> None:
        """Yes above 0.5 or 0.1 ahead; partially if longest; no below 0.2 or 0.1 behind."""
        assert phase_dominates(path_of(share, lead, longest=longest), "reward").verdict == verdict

    @pytest.mark.parametrize(
        ("steps", "gap", "gate", "reason"),
        [
            (19, 0.01, None, "LOW_N"),
            (30, 0.06, None, "GAP"),
            (30, -0.06, None, "GAP"),
            (30, 0.01, Gate(0.03, 0.04, 30, passed=False, reason="REPLAY_MISMATCH"), "REPLAY_MISMATCH"),
        ],
    )
    def test_a_requirement_that_fails_is_named(
        self, steps: int, gap: float, gate: Gate | None, reason: str
    ) -> None:
        """However clear the share is."""
        path = path_of(Estimate(0.9, 0.88, 0.92), Estimate(0.8, 0.7, 0.9), steps=steps, gap=gap)

        decision = phase_dominates(path, "reward", gate)

        assert (decision.verdict, decision.reason) == ("unconfirmed", reason)

    def test_all_but_yes_say_what_could_have_been_seen(self) -> None:
        """+-0.05 at 30 steps: 0.071 away from 0.5 would show; the 0.09 seen would show at 19 steps."""
        partial = phase_dominates(path_of(Estimate(0.41, 0.36, 0.46), Estimate(0.13, 0.08, 0.18)), "reward")
        sure = phase_dominates(path_of(Estimate(0.62, 0.58, 0.66), Estimate(0.4, 0.3, 0.5)), "reward")

        assert partial.min_detectable == pytest.approx(0.0715, abs=1e-3)
        assert partial.steps_needed == 19
        assert (sure.min_detectable, sure.steps_needed) == (None, None)


class TestFixGives:
    """Claims about a change."""

    @pytest.mark.parametrize(
        ("low", "value", "high", "verdict"),
        [
            (1.20, 1.25, 1.30, "yes"),
            (1.03, 1.08, 1.13, "no"),
            (1.05, 1.15, 1.25, "partially"),
            (0.99, 1.15, 1.30, "unconfirmed"),
            (1.01, 1.09, 1.21, "unconfirmed"),
        ],
    )
    def test_the_rule_for_a_claim_of_twenty_percent(
        self, low: float, value: float, high: float, verdict: str
    ) -> None:
        """Yes at 1.2, no below it, partially from half-way up if above 1."""
        assert fix_gives(whatif_of(value, low, high), 1.2).verdict == verdict

    def test_a_refused_replay_refuses_the_claim(self) -> None:
        """The number is there; the verdict is not."""
        decision = fix_gives(whatif_of(1.5, 1.4, 1.6, reason="REPLAY_MISMATCH"), 1.2)

        assert (decision.verdict, decision.reason) == ("unconfirmed", "REPLAY_MISMATCH")

    def test_few_steps_or_a_gap_refuse_too(self) -> None:
        """19 steps; 6 % unexplained."""
        assert fix_gives(whatif_of(1.5, 1.4, 1.6, steps=19), 1.2).reason == "LOW_N"
        assert fix_gives(whatif_of(1.5, 1.4, 1.6), 1.2, gap_share=0.06).reason == "GAP"

    def test_an_upper_bound_can_only_say_no(self) -> None:
        """At most 1.1 is enough to deny 1.2, and 1.4 at most proves nothing."""
        low = whatif_of(1.08, 1.06, 1.1, reason="MISSING_SIGNAL", bound=True)
        high = whatif_of(1.4, 1.3, 1.5, reason="MISSING_SIGNAL", bound=True)

        assert fix_gives(low, 1.2).verdict == "no"
        assert (fix_gives(high, 1.2).verdict, fix_gives(high, 1.2).reason) == (
            "unconfirmed",
            "MISSING_SIGNAL",
        )

    def test_a_what_if_that_could_not_be_computed_is_unconfirmed(self) -> None:
        """NaN compares with nothing."""
        decision = fix_gives(whatif_of(math.nan, -math.inf, math.inf, reason="MISSING_SIGNAL"), 1.2)

        assert (decision.verdict, decision.reason, decision.steps_needed) == (
            "unconfirmed",
            "MISSING_SIGNAL",
            None,
        )


class TestRankIsStraggler:
    """Claims about a rank."""

    def test_the_real_traces(self) -> None:
        """11 of 12 steps: yes, although 12 is below the usual minimum. 20 of 31: not shown, p named."""
        _, small = last_arrivers(np.array([[0.0, 1]] * 11 + [[1.0, 0]]))
        _, large = last_arrivers(np.array([[0.0, 1]] * 20 + [[1.0, 0]] * 11))

        yes, unclear = rank_is_straggler(small, 12), rank_is_straggler(large, 31)

        assert (yes.verdict, unclear.verdict, unclear.reason) == ("yes", "unconfirmed", "LOW_N")
        assert yes.p == pytest.approx(0.0063, abs=1e-4)
        assert unclear.p == pytest.approx(0.15, abs=1e-3)

    def test_a_small_but_sure_excess_is_partial(self) -> None:
        """65 of 100 steps of two ranks: p 0.004, excess 0.3."""
        _, row = last_arrivers(np.array([[0.0, 1]] * 65 + [[1.0, 0]] * 35))

        assert rank_is_straggler(row, 100).verdict == "partially"

    def test_no_needs_steps(self) -> None:
        """100 of 200: the excess is at most 0.14. 5 of 10 could still be 0.53."""
        _, many = last_arrivers(np.array([[0.0, 1]] * 100 + [[1.0, 0]] * 100))
        _, few = last_arrivers(np.array([[0.0, 1]] * 5 + [[1.0, 0]] * 5))

        assert rank_is_straggler(many, 200).verdict == "no"
        assert rank_is_straggler(few, 10).verdict == "unconfirmed"


class TestNoise:
    """The noise band."""

    def test_halves_show_the_drift(self) -> None:
        """10, 10, 11, 11: the second half is 10 % slower."""
        noise = split_half_noise(np.array([10.0, 10, 11, 11]), np.random.default_rng(0))

        assert noise.halves == pytest.approx(0.1)
        assert noise.band == pytest.approx(0.1)

    def test_equal_halves_can_still_be_noisy(self) -> None:
        """Long and short steps deal unevenly: the band is not 0 because the halves happen to agree."""
        noise = split_half_noise(np.tile([10.0, 20, 10, 10, 20, 10], 10), np.random.default_rng(0))

        assert noise.halves == 0
        assert 0 < noise.band < 0.2

    def test_two_steps_have_their_halves(self) -> None:
        """Blocks of one."""
        noise = split_half_noise(np.array([10.0, 12.0]), np.random.default_rng(0))

        assert noise.halves == pytest.approx(0.2)

    @pytest.mark.parametrize(("speedup", "actionable"), [(1.05, False), (1.15, True)])
    def test_an_effect_inside_the_band_is_not_actionable(self, speedup: float, actionable: bool) -> None:  # noqa: FBT001  # the expected value
        """A band of 10 %: 5 % is noise, 15 % is not."""
        noise = split_half_noise(np.array([10.0, 10, 11, 11]), np.random.default_rng(0))

        assert noise.actionable(Estimate(speedup, 1.0, 1.3)) is actionable
