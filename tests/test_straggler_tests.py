"""Check 4 on made-up runs: widths, drivers, timing, and every branch of the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.dip_timing import confirm_timing, timing_contest
from dipstick.analysis.dip_width import dip_widths
from dipstick.analysis.straggler_tests import StragglerOptions, StragglerTest, judge_stragglers, spread

if TYPE_CHECKING:
    from dipstick.model import FloatArray

QUICK = StragglerOptions(draws=399, boot=200)


def jobs_of(steps: int, seed: int = 0) -> dict[str, FloatArray]:
    """64 lognormal jobs a step on 8 slots: longest, total / 8, timeouts at 30 s."""
    jobs = np.minimum(30.0, 1.5 * np.random.default_rng(seed).lognormal(0.0, 0.9, (steps, 64)))
    return {
        "longest_job": jobs.max(axis=1),
        "total_work": jobs.sum(axis=1) / 8,
        "timeouts": (jobs >= 30).sum(axis=1).astype(float),
    }


def noise(steps: int, sd: float = 0.3) -> FloatArray:
    """Measurement noise."""
    return np.random.default_rng(9).normal(0, sd, steps)


def judge(dip: FloatArray, drivers: dict[str, FloatArray], window: float = 1.0) -> StragglerTest:
    """Without covariates."""
    return judge_stragglers(dip, drivers, {}, window, QUICK)


class TestDipWidths:
    """Deficit area and equivalent width."""

    def test_the_worked_example(self) -> None:
        """A dip from 12 to 24 s, windows of 5 s, baseline 90, floor 10."""
        ts = np.arange(1.0, 7.0) * 5.0
        util = np.array([90.0, 90.0, 42.0, 10.0, 26.0, 90.0])
        found = dip_widths(ts, util, 5.0, (np.array([12.0]), np.array([24.0])), np.array([90.0]), 10.0)

        assert found.deficit_gpu_s.tolist() == pytest.approx([9.6])
        assert found.width_s.tolist() == pytest.approx([12.0])
        assert (found.samples.tolist(), found.contiguous) == ([3], True)

    def test_the_area_does_not_depend_on_how_windows_cut_the_dip(self) -> None:
        """A dip of 7 s at 40 offsets against windows of 5 s."""
        widths = []
        for offset in np.linspace(0, 5, 40):
            lo, hi = 20 + offset, 27 + offset
            ts = np.arange(5.0, 61.0, 5.0)
            inside = np.clip(np.minimum(ts, hi) - np.maximum(ts - 5, lo), 0, None) / 5
            found = dip_widths(
                ts, 90 - 80 * inside, 5.0, (np.array([lo]), np.array([hi])), np.array([90.0]), 10.0
            )
            widths.append(found.width_s[0])

        assert widths == pytest.approx([7.0] * 40)

    def test_a_neighbour_below_the_baseline_is_not_part_of_the_dip(self) -> None:
        """Training at 60 follows a dip to 10 of 12 s."""
        ts = np.arange(1.0, 12.0) * 5.0
        share = np.clip(np.minimum(ts, 22.0) - np.maximum(ts - 5, 10.0), 0, None) / 5
        after = np.clip(ts - np.maximum(ts - 5, 22.0), 0, None) / 5
        util = 90 * (1 - share - after) + 10 * share + 60 * after
        found = dip_widths(ts, util, 5.0, (np.array([10.0]), np.array([22.0])), np.array([90.0]), 10.0)

        assert found.width_s.tolist() == pytest.approx([12.0])

    def test_the_floor_is_learned_from_windows_inside_the_dips(self) -> None:
        """Down to 15 %."""
        ts = np.arange(1.0, 101.0)
        lo, hi = np.array([20.0, 60.0]), np.array([30.0, 80.0])
        util = np.where(((ts > 20) & (ts <= 30)) | ((ts > 60) & (ts <= 80)), 15.0, 95.0)
        found = dip_widths(ts, util, 1.0, (lo, hi), np.full(2, 95.0))

        assert found.floor_pct == 15.0
        assert found.width_s.tolist() == pytest.approx([10.0, 20.0])

    def test_a_step_without_samples_is_missing_not_zero(self) -> None:
        """The second interval lies after the last sample."""
        ts = np.arange(1.0, 11.0)
        found = dip_widths(
            ts, np.zeros(10), 1.0, (np.array([2.0, 50.0]), np.array([5.0, 60.0])), np.full(2, 90.0)
        )

        assert np.isnan(found.width_s).tolist() == [False, True]

    def test_a_sparse_scrape_is_marked_as_sampled(self) -> None:
        """W = 1 s each 15 s."""
        ts = np.arange(15.0, 151.0, 15.0)
        found = dip_widths(
            ts, np.full(10, 50.0), 1.0, (np.array([20.0]), np.array([100.0])), np.array([90.0])
        )

        assert not found.contiguous

    def test_missing_samples_are_left_out(self) -> None:
        """A NaN inside the dip."""
        ts = np.arange(1.0, 21.0)
        util = np.where((ts > 5) & (ts <= 15), 10.0, 90.0)
        util[10] = np.nan
        found = dip_widths(ts, util, 1.0, (np.array([5.0]), np.array([15.0])), np.array([90.0]), 10.0)

        assert found.samples.tolist() == [9]


class TestDrivers:
    """Who wins, and what is said of the longest job."""

    def test_a_dip_as_long_as_the_longest_job_is_a_straggler(self) -> None:
        """60 steps, 2 s overhead: rho high, slope 1, wins."""
        jobs = jobs_of(60)
        found = judge(jobs["longest_job"] + 2 + noise(60), jobs)

        assert (found.verdict, found.codes, found.driver) == ("yes", (), "longest_job")

    def test_the_intercept_is_the_overhead(self) -> None:
        """2 s."""
        jobs = jobs_of(60)
        row = judge(jobs["longest_job"] + 2 + noise(60), jobs).row("longest_job")

        assert row is not None
        assert row.intercept == pytest.approx(2.0, abs=0.3)
        assert row.slope.low <= 1 <= row.slope.high

    def test_a_dip_of_queued_work_is_only_partially_the_straggler(self) -> None:
        """The longest job correlates through the total, with a slope far from 1."""
        jobs = jobs_of(60)
        found = judge(jobs["total_work"] + 2 + noise(60), jobs)
        row = found.row("longest_job")

        assert (found.verdict, found.driver) == ("partially", "total_work")
        assert row is not None
        assert row.slope.high < 1

    def test_unrelated_dips_get_a_no_with_enough_steps(self) -> None:
        """300 steps: the interval of rho ends below 0.3."""
        found = judge(10 + noise(300, 1.0), jobs_of(300))

        assert (found.verdict, found.driver) == ("no", "none")

    def test_unrelated_dips_of_a_short_run_stay_open(self) -> None:
        """20 steps: rho could still be 0.5, and the steps that would do are named."""
        found = judge(10 + np.random.default_rng(2).normal(0, 1.0, 20), jobs_of(20))

        assert (found.verdict, found.codes) == ("unconfirmed", ("LOW_N",))
        assert found.detectable_rho == pytest.approx(0.58, abs=0.03)
        assert found.steps_needed == 27

    def test_makespan_equal_to_the_longest_job_is_the_longest_job(self) -> None:
        """As many slots as jobs."""
        jobs = jobs_of(60)
        jobs["makespan"] = jobs["longest_job"].copy()
        found = judge(jobs["longest_job"] + 2 + noise(60), jobs)

        assert found.driver == "longest_job"
        assert ("longest_job", "makespan") in found.same

    def test_makespan_equal_to_the_total_work_is_queued_work(self) -> None:
        """Many short jobs on two slots, as in the H200 trace."""
        jobs = jobs_of(60)
        jobs["makespan"] = jobs["total_work"] + noise(60, 0.01)

        assert judge(jobs["makespan"] + noise(60, 0.05), jobs).driver == "total_work"

    def test_when_longest_and_total_are_one_nothing_is_resolved(self) -> None:
        """One job a step: the longest is the total."""
        longest = jobs_of(60)["longest_job"]
        found = judge(longest + noise(60), {"longest_job": longest, "total_work": longest * 1.0})

        assert (found.verdict, found.codes, found.driver) == ("unconfirmed", ("COLLINEAR",), "unresolved")

    def test_a_shared_drift_is_not_a_relation(self) -> None:
        """Jobs and dips both double over 60 steps, and have nothing else in common."""
        k = np.arange(60) / 60
        jobs = {n: v * np.exp(0.7 * k) for n, v in jobs_of(60).items()}
        found = judge(10 * np.exp(0.7 * k) + noise(60), jobs)

        assert found.verdict in {"no", "unconfirmed"}

    def test_a_common_cause_that_is_given_is_taken_out(self) -> None:
        """Completion length scales both."""
        length = np.exp(0.3 * np.random.default_rng(2).normal(size=120))
        jobs = {n: v * length for n, v in jobs_of(120).items()}
        dip = 10 * length + noise(120, 0.5)
        found = judge_stragglers(dip, jobs, {"completion_length": length}, 1.0, QUICK)

        assert found.row("longest_job") is not None
        assert found.verdict in {"no", "unconfirmed"}


class TestUnfit:
    """Data that cannot answer."""

    def test_fourteen_steps_are_too_few(self) -> None:
        """15 at fine sampling."""
        jobs = jobs_of(14)

        assert judge(jobs["longest_job"] + 2, jobs).codes == ("LOW_N",)

    def test_coarse_samples_need_thirty_steps(self) -> None:
        """20 steps at W = 15 s."""
        jobs = jobs_of(20)

        assert judge(jobs["longest_job"] + 2, jobs, window=15.0).codes == ("LOW_N",)

    def test_jobs_that_hardly_vary_cannot_tell(self) -> None:
        """All steps end at the same timeout, within 20 %."""
        longest = np.random.default_rng(0).uniform(27, 33, 60)

        assert judge(longest + noise(60), {"longest_job": longest}).codes == ("NO_VARIATION",)

    def test_constant_jobs_cannot_tell(self) -> None:
        """Exactly the same timeout."""
        assert judge(10 + noise(60), {"longest_job": np.full(60, 30.0)}).codes == ("NO_VARIATION",)

    def test_without_a_longest_job_there_is_no_verdict(self) -> None:
        """Worker logs missing."""
        assert judge(noise(60), {"total_work": jobs_of(60)["total_work"]}).codes == ("LOW_N",)

    def test_halves_that_disagree_are_not_one_answer(self) -> None:
        """The dip follows the job in the first half and is unrelated in the second."""
        jobs = jobs_of(120)
        other = np.random.default_rng(3).permutation(jobs["longest_job"])
        dip = np.where(np.arange(120) < 60, jobs["longest_job"], other) + 2 + noise(120)
        found = judge(dip, {"longest_job": jobs["longest_job"]})

        assert (found.verdict, found.codes) == ("unconfirmed", ("NONSTATIONARY",))

    def test_missing_steps_are_left_out(self) -> None:
        """Five dips were not seen."""
        jobs = jobs_of(60)
        dip = jobs["longest_job"] + 2 + noise(60)
        dip[10:15] = np.nan

        assert (judge(dip, jobs).steps, judge(dip, jobs).verdict) == (55, "yes")


class TestSpread:
    """p90 / p10."""

    def test_a_constant_has_spread_one(self) -> None:
        """Also a constant zero."""
        assert spread(np.full(5, 3.0)) == spread(np.zeros(5)) == 1.0

    def test_a_tenth_at_zero_is_infinite(self) -> None:
        """Timeouts are mostly none."""
        assert spread(np.array([0.0, 0.0, 1.0, 2.0])) == np.inf

    def test_nothing_has_no_spread(self) -> None:
        """NaN."""
        assert np.isnan(spread(np.empty(0)))


class TestTiming:
    """The end of the dip against candidate instants."""

    def test_the_steadiest_anchor_wins(self) -> None:
        """0.2 +- 0.05 s after the longest job."""
        draw = np.random.default_rng(0)
        longest = np.arange(40.0) * 60 + draw.normal(20, 4, 40)
        median = np.arange(40.0) * 60 + draw.normal(8, 1, 40)
        found = timing_contest(
            longest + 0.2 + draw.normal(0, 0.05, 40), {"longest_job": longest, "median_job": median}
        )

        assert found.winner == "longest_job"
        assert found.lag_s["longest_job"] == pytest.approx(0.2, abs=0.03)

    def test_anchors_that_move_together_are_not_resolved(self) -> None:
        """Always 1 s apart."""
        longest = np.arange(40.0) * 60 + np.random.default_rng(0).normal(20, 4, 40)

        assert timing_contest(longest + 0.5, {"a": longest, "b": longest - 1}).winner is None

    def test_steps_without_an_anchor_are_left_out(self) -> None:
        """Two NaNs."""
        end = np.arange(10.0)
        end[[2, 5]] = np.nan

        assert timing_contest(end, {"a": np.arange(10.0)}).steps == 8

    def test_one_step_has_no_winner(self) -> None:
        """No dispersion."""
        assert timing_contest(np.array([1.0]), {"a": np.array([0.5])}).winner is None

    def test_a_straggler_verdict_yields_to_another_anchor(self) -> None:
        """Second for second right, but the dip ends with something else."""
        jobs = jobs_of(60)
        test = judge(jobs["longest_job"] + 2 + noise(60), jobs)
        end = np.arange(60.0) * 60.0
        other = timing_contest(
            end, {"last_job": end, "longest_job": end + np.random.default_rng(0).normal(0, 3, 60)}
        )

        assert confirm_timing(test, other).verdict == "partially"

    def test_an_unresolved_race_changes_nothing(self) -> None:
        """Same lag dispersion."""
        jobs = jobs_of(60)
        test = judge(jobs["longest_job"] + 2 + noise(60), jobs)
        end = np.arange(60.0) * 60.0

        assert confirm_timing(test, timing_contest(end, {"a": end, "b": end})).verdict == "yes"
