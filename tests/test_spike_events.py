"""Which schedule explains the spikes: the rule of methods 4.3 on runs with planted causes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.spike_events import (
    EventOptions,
    SpikeVerdicts,
    judge_schedules,
    off_beat,
    same_in_both_halves,
)
from dipstick.analysis.spike_schedules import Schedule
from dipstick.analysis.spike_verdict import Counts, Evidence, detectable_rate, grade, steps_needed
from dipstick.analysis.stats import Estimate

if TYPE_CHECKING:
    from dipstick.analysis.spike_events import ScheduleResult
    from dipstick.model import FloatArray

FINE = EventOptions(window_s=1.0, draws=399)


def edges_of(steps: int, seed: int = 0) -> FloatArray:
    """Steps of 60 +- 4 s."""
    rng = np.random.default_rng(seed)
    return np.concatenate([[0.0], np.cumsum(60 + rng.normal(0, 4, steps))])


def suspects(edges: FloatArray) -> list[Schedule]:
    """Sync each step at 57 s, checkpoint every 20 at 50 s, cache clear every 5 at 40 s, cron every 45 s."""
    start, n = edges[:-1], edges.size - 1
    k = np.arange(1, n + 1)
    cron = np.arange(11.0, edges[-1], 45.0)
    return [
        Schedule("sync", start + 52, start + 55),
        Schedule("checkpoint", start[k % 20 == 0] + 46, start[k % 20 == 0] + 47.5),
        Schedule("cache", start[k % 5 == 0] + 36, start[k % 5 == 0] + 36.2),
        Schedule("cron", cron, cron + 0.5),
    ]


def background(edges: FloatArray, rate: float = 0.2, seed: int = 5) -> FloatArray:
    """Spikes that have nothing to do with anything."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, edges[-1], rng.poisson(rate * (edges.size - 1)))


def judge(steps: int, cause: str | None, options: EventOptions = FINE) -> SpikeVerdicts:
    """A run in which every event of ``cause`` brings a spike 0.2 s after its start."""
    edges = edges_of(steps)
    schedules = suspects(edges)
    planted = [s.start_s + 0.2 for s in schedules if s.name == cause]
    return judge_schedules(np.concatenate([background(edges), *planted]), edges, schedules, options)


def named(found: SpikeVerdicts, name: str) -> ScheduleResult:
    """The result of one schedule."""
    return next(r for r in found.schedules if r.name == name)


class TestPlantedCauses:
    """The guilty one is named, the others are not."""

    def test_a_cause_that_fires_each_step(self) -> None:
        """Weight sync in 20 steps."""
        found = judge(20, "sync")

        assert named(found, "sync").verdict == "yes"
        assert [r.name for r in found.schedules if r.verdict == "yes"] == ["sync"]

    def test_a_cause_that_fires_every_fifth_step(self) -> None:
        """Cache clears in 60 steps: 12 fired."""
        found = judge(60, "cache")

        assert [r.name for r in found.schedules if r.verdict == "yes"] == ["cache"]
        assert named(found, "cache").counts.hits_fired == 12

    def test_a_cause_on_a_clock(self) -> None:
        """Cron every 45 s."""
        found = judge(100, "cron")

        assert [r.name for r in found.schedules if r.verdict == "yes"] == ["cron"]
        assert named(found, "cron").kind == "clock"

    def test_a_run_of_whole_clock_periods_is_cut_to_halve_the_last_one(self) -> None:
        """The worked example: 45 s in 6,000 s."""
        edges = off_beat(np.arange(101.0) * 60.0, np.arange(0.0, 6000.0, 45.0))

        assert edges[-1] == 5962.5
        assert edges[-2] == 5940.0

    def test_one_fired_event_cannot_be_confirmed(self) -> None:
        """One checkpoint in 20 steps: 1 / 20 is above 0.05 / 4, and the result says so."""
        checkpoint = named(judge(20, "checkpoint"), "checkpoint")

        assert (checkpoint.verdict, checkpoint.codes) == ("unconfirmed", ("P_FLOOR", "LOW_N"))
        assert checkpoint.p_floor >= 1 / 20

    def test_five_fired_events_are_enough(self) -> None:
        """Checkpoints in 100 steps."""
        assert named(judge(100, "checkpoint"), "checkpoint").verdict == "yes"

    def test_without_a_cause_nobody_is_guilty(self) -> None:
        """Background only, 100 steps: the frequent schedules get a no, with data."""
        verdicts = {r.name: r.verdict for r in judge(100, None).schedules}

        assert verdicts == {"sync": "no", "checkpoint": "unconfirmed", "cache": "no", "cron": "no"}

    def test_no_needs_sixteen_clean_events(self) -> None:
        """Cache clears in 40 steps: 8 clean events without a spike prove nothing."""
        assert named(judge(40, None), "cache").verdict == "unconfirmed"

    def test_without_spikes_there_is_nothing_to_explain(self) -> None:
        """An empty list of onsets."""
        edges = edges_of(40)
        found = judge_schedules(np.empty(0), edges, suspects(edges), FINE)

        assert {r.verdict for r in found.schedules} <= {"no", "unconfirmed"}
        assert found.spikes == ()

    def test_the_same_seed_gives_the_same_answer(self) -> None:
        """Every draw comes from the seed."""
        assert judge(30, "sync") == judge(30, "sync")


class TestTwins:
    """Schedules that are never apart."""

    def test_a_class_of_twins_is_at_most_partially_guilty_and_names_both(self) -> None:
        """Checkpoint and cache clear 0.7 s apart, every tenth of 100 steps; the checkpoint did it."""
        edges = edges_of(100)
        save = edges[:-1][9::10] + 46
        schedules = [Schedule("checkpoint", save, save + 1.5), Schedule("cache", save + 0.7, save + 0.9)]
        onset = np.concatenate([background(edges), save + 0.2])
        found = judge_schedules(onset, edges, schedules, FINE)

        assert [(r.verdict, r.codes, r.twins) for r in found.schedules] == [
            ("partially", ("COLLINEAR",), ("cache",)),
            ("partially", ("COLLINEAR",), ("checkpoint",)),
        ]
        assert {s.schedule for s in found.spikes if s.label == "assigned"} == {"checkpoint+cache"}

    def test_a_shadowed_schedule_is_not_guilty_of_what_its_shadow_does(self) -> None:
        """Cache clears every 5 steps bring spikes; checkpoints every 20 coincide with every fourth of them."""
        edges = edges_of(100)
        clear = edges[:-1][4::5] + 46
        save = edges[:-1][19::20] + 46.3
        schedules = [Schedule("checkpoint", save, save + 1), Schedule("cache", clear, clear + 0.2)]
        found = judge_schedules(np.concatenate([background(edges), clear + 0.1]), edges, schedules, FINE)

        assert named(found, "cache").verdict == "yes"
        assert (named(found, "checkpoint").verdict, named(found, "checkpoint").codes) == (
            "unconfirmed",
            ("COLLINEAR",),
        )

    def test_a_schedule_that_only_stands_beside_the_cause_is_not_confirmed(self) -> None:
        """Fired windows of the checkpoint reach into the sync, unfired ones do not: the sync does as well.

        Seen on the H200 trace: rank 1 saves nothing, but its 16 ms "checkpoint" ends as the next sync begins.
        """
        edges = edges_of(60)
        sync = edges[:-1] + 2.0
        save = edges[10:60:10] + 1.2
        far = np.where(np.isin(np.arange(60), np.arange(10, 60, 10)), 0.0, 3.0)
        schedules = [
            Schedule("sync", sync + far, sync + far + 1),
            Schedule("checkpoint", save, save + 0.1),
        ]
        found = judge_schedules(np.concatenate([background(edges), sync + far + 0.1]), edges, schedules, FINE)

        assert named(found, "checkpoint").p_adjusted <= 0.05
        assert named(found, "checkpoint").delta_bic < 10
        assert (named(found, "checkpoint").verdict, named(found, "checkpoint").codes) == (
            "unconfirmed",
            ("COLLINEAR",),
        )


class TestLimits:
    """What a run cannot show."""

    def test_windows_that_cover_the_run_say_nothing(self) -> None:
        """W = 15 s: each sync window is 21 s of a 60 s step."""
        sync = named(judge(40, "sync", replace(FINE, window_s=15.0)), "sync")

        assert (sync.verdict, sync.codes) == ("unconfirmed", ("COVERAGE",))

    def test_equal_steps_give_no_accumulating_evidence(self) -> None:
        """100 steps of exactly 60 s: the shift null is one draw of a phase, 5 s of 60."""
        edges = np.arange(101.0) * 60.0
        sync = Schedule("sync", edges[:-1] + 52, edges[:-1] + 55, "step")
        found = judge_schedules(edges[:-1] + 52.2, edges, [sync], FINE).schedules[0]

        assert found.p_floor == pytest.approx(5 / 60)
        assert (found.verdict, found.codes) == ("unconfirmed", ("P_FLOOR",))

    def test_a_spike_before_the_event_is_not_its_effect(self) -> None:
        """Onsets 3 s before each cache clear."""
        edges = edges_of(100)
        schedules = suspects(edges)
        onset = np.concatenate([background(edges), schedules[2].start_s - 3.0])

        assert named(judge_schedules(onset, edges, schedules, FINE), "cache").verdict == "no"

    def test_a_cause_of_half_the_run_is_not_one_answer(self) -> None:
        """Sync brings spikes in the first 50 of 100 steps only."""
        edges = edges_of(100)
        schedules = suspects(edges)
        onset = np.concatenate([background(edges), schedules[0].start_s[:50] + 0.2])
        sync = named(judge_schedules(onset, edges, schedules, FINE), "sync")

        assert (sync.verdict, sync.codes) == ("unconfirmed", ("NONSTATIONARY",))

    def test_every_non_yes_says_what_it_could_have_seen(self) -> None:
        """Cache in 40 steps without a cause: a detectable rate, and the steps for a rate of 0.8."""
        cache = named(judge(40, None), "cache")

        assert cache.detectable is not None
        assert 0.4 < cache.detectable < 0.9
        assert cache.steps_needed is not None
        assert cache.steps_needed <= 40

    def test_a_yes_needs_no_such_figures(self) -> None:
        """It has its effect."""
        sync = named(judge(20, "sync"), "sync")

        assert (sync.detectable, sync.steps_needed) == (None, None)


class TestHalves:
    """Is it one answer for the whole run?"""

    def test_equal_rates_are_steady(self) -> None:
        """9 of 10 in both halves."""
        assert same_in_both_halves(np.tile([True] * 9 + [False], 2))

    def test_all_then_nothing_is_not(self) -> None:
        """10 of 10, then 0 of 10."""
        assert not same_in_both_halves(np.repeat([True, False], 10))

    def test_short_halves_are_not_compared(self) -> None:
        """7 and 8 events."""
        assert same_in_both_halves(np.repeat([True, False], [7, 8]))


class TestEachSpike:
    """Posterior owners."""

    def test_spikes_of_the_cause_are_assigned_and_those_far_from_any_event_match_nothing(self) -> None:
        """20 planted at the sync, 3 at 25 s into a step."""
        edges = edges_of(20)
        sync = suspects(edges)[0]
        stray = edges[[3, 8, 15]] + 25
        found = judge_schedules(np.concatenate([sync.start_s + 0.2, stray]), edges, [sync], FINE)

        assert [s.onset_s for s in found.unexplained] == pytest.approx(stray)
        assert [s.schedule for s in found.spikes if s.label == "assigned"] == ["sync"] * 20

    def test_chance_matches_are_coverage_times_spikes(self) -> None:
        """One schedule, 20 windows of 5 s in the run, 30 spikes."""
        edges = edges_of(20)
        sync = suspects(edges)[0]
        onset = np.linspace(1.0, edges[-1] - 1, 30)
        found = judge_schedules(onset, edges, [sync], FINE)

        assert found.chance_matches == pytest.approx(20 * 5 / edges[-1] * 30)

    def test_the_unmatched_share_has_an_interval(self) -> None:
        """Background only."""
        found = judge(100, None)

        assert 0.0 < found.unmatched.low < found.unmatched.value <= 1.0

    def test_precision_and_recall_of_the_cause(self) -> None:
        """All events hit; nearly all spikes inside its windows."""
        sync = named(judge(40, "sync"), "sync")

        assert sync.recall == 1.0
        assert sync.precision > 0.8


BASE = Evidence(
    kind="event",
    counts=Counts(10, 90, 9, 2, 0),
    p_adjusted=0.001,
    effect=Estimate(0.88, 0.6, 0.95),
    p_floor=1e-9,
    coverage=0.05,
    delta_bic=40.0,
    alone_bic=40.0,
    chance=0.02,
    alone=True,
    taken=False,
    alpha=0.05,
    level=0.0125,
)


class TestGrade:
    """Each boundary of the rule."""

    def test_all_conditions_met_is_a_yes(self) -> None:
        """The base case."""
        assert grade(BASE) == ("yes", ())

    @pytest.mark.parametrize(("effect", "verdict"), [(0.5, "yes"), (0.49, "partially"), (0.2, "partially")])
    def test_the_effect_decides_between_yes_and_partially(self, effect: float, verdict: str) -> None:
        """0.5 and 0.2 are the conventions."""
        assert grade(replace(BASE, effect=Estimate(effect, 0.1, 0.9)))[0] == verdict

    def test_a_significant_but_tiny_effect_is_unconfirmed(self) -> None:
        """0.1."""
        assert grade(replace(BASE, effect=Estimate(0.1, 0.05, 0.15))) == ("unconfirmed", ("LOW_N",))

    def test_too_few_spikes_for_the_model_comparison_is_low_n(self) -> None:
        """The schedule alone gains less than 10 as well."""
        assert grade(replace(BASE, delta_bic=8.0, alone_bic=9.0)) == ("unconfirmed", ("LOW_N",))

    def test_another_schedule_that_does_as_well_is_collinear(self) -> None:
        """Alone it gains 40, beside the others nothing."""
        assert grade(replace(BASE, delta_bic=-3.0)) == ("unconfirmed", ("COLLINEAR",))

    def test_halves_that_disagree_are_no_answer(self) -> None:
        """Before the effect is looked at."""
        assert grade(replace(BASE, steady=False)) == ("unconfirmed", ("NONSTATIONARY",))

    def test_a_class_with_a_weak_effect_is_unconfirmed(self) -> None:
        """Twins need 0.5 even for "partially"."""
        evidence = replace(BASE, alone=False, effect=Estimate(0.4, 0.2, 0.6))

        assert grade(evidence) == ("unconfirmed", ("COLLINEAR",))

    def test_a_test_that_could_not_be_run_is_never_significant(self) -> None:
        """No unfired steps: p is NaN."""
        evidence = replace(BASE, p_adjusted=float("nan"), p_floor=1.0)

        assert grade(evidence) == ("unconfirmed", ("P_FLOOR", "LOW_N"))

    @pytest.mark.parametrize(("fired", "verdict"), [(16, "no"), (15, "unconfirmed")])
    def test_a_no_needs_sixteen_events(self, fired: int, verdict: str) -> None:
        """Upper bound 0.19."""
        evidence = replace(
            BASE, counts=Counts(fired, 90, 0, 2, 0), p_adjusted=1.0, effect=Estimate(0.0, -0.1, 0.19)
        )

        assert grade(evidence)[0] == verdict


class TestPower:
    """Figures beside a verdict that is not yes."""

    def test_the_methods_figure_for_five_fired_and_forty_unfired(self) -> None:
        """Background 0.1 at level 0.01: 0.8 is just seen."""
        evidence = replace(BASE, counts=Counts(5, 40, 0, 4, 0), chance=0.1, level=0.01)

        assert detectable_rate(evidence) == pytest.approx(0.82, abs=0.02)

    def test_more_steps_lower_the_smallest_visible_rate(self) -> None:
        """Ten times the events."""
        few = detectable_rate(replace(BASE, counts=Counts(5, 40, 0, 0, 0)))
        many = detectable_rate(replace(BASE, counts=Counts(50, 400, 0, 0, 0)))

        assert few is not None
        assert many is not None
        assert many < few / 2

    def test_no_events_see_nothing(self) -> None:
        """None, not 1.0."""
        assert detectable_rate(replace(BASE, counts=Counts(0, 40, 0, 0, 0))) is None

    def test_steps_needed_scale_the_run(self) -> None:
        """One checkpoint in 20 steps, no background: about six of them settle it."""
        evidence = replace(BASE, counts=Counts(1, 19, 1, 0, 0), chance=0.0, effect=Estimate(1.0, 0.0, 1.0))
        need = steps_needed(evidence, 20)

        assert need is not None
        assert 20 < need <= 60

    def test_a_step_schedule_uses_the_shift_nulls_chance(self) -> None:
        """20 windows against chance 0.1: a rate of 0.4 or so is seen."""
        evidence = replace(BASE, kind="step", counts=Counts(20, 0, 2, 0, 0), chance=0.1)

        assert detectable_rate(evidence) == pytest.approx(0.37, abs=0.06)
