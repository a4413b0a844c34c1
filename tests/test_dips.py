"""Dips with edges we know: square waves through window means, noise, gaps, one GPU against the whole job."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.analysis.dips import Found, baseline_of, find, mean_series
from dipstick.analysis.pipeline import Findings, analyse
from dipstick.analysis.spans import read_lanes
from dipstick.analysis.telemetry import Series
from dipstick.analysis.timeline import RankTimeline, build
from records import Row, boxcar, counters, cycle, memory, near, ns, process, span, table, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Dip

NAN = float("nan")
WINDOW = 0.2


def contiguous(values: Sequence[float], *, start: float = 0.0, period: float = WINDOW) -> Series:
    """Window means without gaps."""
    edges = np.array([ns(start + i * period) for i in range(len(values) + 1)], np.int64)
    return Series(edges[:-1], edges[1:], np.array(values, np.float64))


def dips_of(series: Series, baseline: float = 100.0, window: float = WINDOW) -> Found:
    """Dips against a flat baseline."""
    return find(series, np.full(len(series.value), baseline), ns(window))


def edges(found: Found) -> list[tuple[float, float]]:
    """Start and end of each dip in seconds."""
    return list(zip((found.start / 1e9).tolist(), (found.end / 1e9).tolist(), strict=True))


# Edges


def test_the_example_of_the_docstring() -> None:
    """100, 100, 40, 0, 0, 60, 100 a second: the dip is the lower 0.6 of the third window to 0.4 of the sixth."""
    found = dips_of(contiguous([100, 100, 40, 0, 0, 60, 100], period=1.0))

    assert edges(found) == [(near(2.4), near(5.4))]
    assert found.depth.tolist() == [100]
    assert found.deficit_gpu_s.tolist() == near([3.0])


@given(st.floats(2, 3), st.floats(1, 4), st.floats(2, 3), st.floats(0, 30))
def test_a_square_wave_s_edges_are_found_through_window_means(
    on: float, off: float, again: float, floor: float
) -> None:
    """A GPU busy for ``on``, at ``floor`` percent for ``off``, busy again: edges right to 2 % of a window."""
    busy = [(0.0, on), (on + off, on + off + again)]
    values = [floor + (100 - floor) * v / 100 for v in boxcar(busy, 15)[: int((on + off + again) / WINDOW)]]

    found = dips_of(contiguous(values))

    assert edges(found) == [(near(on, abs=0.004), near(on + off, abs=0.004))]


def test_edges_of_noisy_dips_are_right_to_a_few_percent_of_a_window() -> None:
    """200 dips to 10 % with 1 % of noise on every window: edges off by 5 % of a window in the mean square."""
    rng = np.random.default_rng(0)
    marks = np.cumsum(np.concatenate([[5], rng.uniform(1.0, 6.0, 400)])).tolist()
    busy = list(zip([0.0, *marks[1::2]], marks[0::2], strict=True))
    clean = np.array(boxcar(busy, marks[-1])[:-1])

    found = dips_of(contiguous((10 + 0.9 * clean + rng.normal(0, 1, len(clean))).tolist()))

    truth = np.array(list(zip(marks[0:-1:2], marks[1::2], strict=True)))
    assert len(found) == len(truth)
    off = np.concatenate([found.start / 1e9 - truth[:, 0], found.end / 1e9 - truth[:, 1]]) / WINDOW
    assert np.sqrt((off**2).mean()) < 0.05
    assert abs(off.mean()) < 0.02


def test_depth_and_deficit_are_measured_against_the_baseline() -> None:
    """From 90 to 20 for 1 s: 70 points deep, 0.7 GPU-seconds lost."""
    found = dips_of(contiguous([90] * 5 + [20] * 5 + [90] * 5), baseline=90)

    assert edges(found) == [(1.0, 2.0)]
    assert found.depth.tolist() == [70]
    assert found.baseline.tolist() == [90]
    assert found.deficit_gpu_s.tolist() == near([0.7])


def test_a_dip_at_the_border_of_the_recording_ends_there() -> None:
    """Nothing is known beyond."""
    assert edges(dips_of(contiguous([0] * 5 + [100] * 5 + [0] * 5))) == [(0, 1.0), (2.0, 3.0)]


# Hysteresis and length


@pytest.mark.parametrize(("low", "count"), [(49, 1), (50, 0), (60, 0)])
def test_a_dip_begins_below_half_the_baseline(low: float, count: int) -> None:
    """At half or above nothing begins."""
    assert len(dips_of(contiguous([100] * 5 + [low] * 5 + [100] * 5))) == count


def test_a_dip_goes_on_until_70_percent_of_the_baseline() -> None:
    """60 % in the middle does not end it, 71 % does."""
    assert len(dips_of(contiguous([100, 100, 0, 0, 60, 60, 0, 0, 100, 100]))) == 1
    assert len(dips_of(contiguous([100, 100, 0, 0, 71, 71, 0, 0, 100, 100]))) == 2


def test_noise_around_the_threshold_is_one_dip_and_not_forty() -> None:
    """20 s at 49 +- 8 % of the baseline: a single cut at 50 % would see dozens of dips."""
    noise = np.random.default_rng(1).normal(49, 8, 100).clip(20, 69).tolist()
    values = [100] * 10 + noise + [100] * 10
    crossings = sum(a >= 50 > b for a, b in pairwise(values))

    assert crossings > 20
    assert len(dips_of(contiguous(values))) == 1


def test_noise_above_the_threshold_is_no_dip_at_all() -> None:
    """A training plateau at 60-100 % of the baseline."""
    assert len(dips_of(contiguous(np.random.default_rng(2).uniform(51, 100, 500).tolist()))) == 0


def test_one_low_window_is_no_dip() -> None:
    """Two samples or more: a single one may be a hiccup of the counter."""
    assert len(dips_of(contiguous([100] * 5 + [0] + [100] * 5))) == 0


@pytest.mark.parametrize(("window", "count"), [(0.4, 1), (0.41, 0)])
def test_a_dip_lasts_at_least_one_counter_window(window: float, count: int) -> None:
    """Two samples of 0.2 s, read from a counter that averages over this long."""
    assert len(dips_of(contiguous([100] * 5 + [0] * 2 + [100] * 5), window=window)) == count


# Gaps


def test_a_gap_splits_a_dip() -> None:
    """Low before and after 4 s without samples: two dips, and none of the 4 s belongs to them."""
    left, right = contiguous([100] * 5 + [0] * 5), contiguous([0] * 5 + [100] * 5, start=6.0)
    joined = Series(
        *(
            np.concatenate([a, b])
            for a, b in ((left.t0, right.t0), (left.t1, right.t1), (left.value, right.value))
        )
    )

    assert edges(dips_of(joined)) == [(1.0, 2.0), (6.0, 7.0)]


def test_a_dip_does_not_go_on_after_a_gap_in_the_undecided_zone() -> None:
    """60 % keeps a dip alive, but only in touch with it."""
    left, right = contiguous([100] * 5 + [0] * 5), contiguous([60] * 5 + [100] * 5, start=6.0)
    joined = Series(
        *(
            np.concatenate([a, b])
            for a, b in ((left.t0, right.t0), (left.t1, right.t1), (left.value, right.value))
        )
    )

    assert edges(dips_of(joined)) == [(1.0, 2.0)]


def test_what_was_not_measured_ends_a_dip() -> None:
    """NaN is not low."""
    assert edges(dips_of(contiguous([100] * 5 + [0] * 5 + [NAN] * 5 + [0] * 5 + [100] * 5))) == [
        (1.0, 2.0),
        (3.0, 4.0),
    ]


@pytest.mark.parametrize("values", [[], [0], [100], [NAN], [NAN] * 10])
def test_next_to_nothing_holds_no_dip(values: list[float]) -> None:
    """Empty, one sample, or nothing measured."""
    assert len(dips_of(contiguous(values))) == 0


@given(st.lists(st.one_of(st.floats(0, 100), st.just(NAN)), max_size=40), st.floats(0, 100))
def test_dips_are_in_order_and_inside_the_recording(values: list[float], baseline: float) -> None:
    """Whatever the series: starts rise, ends do not precede starts, no edge leaves the recorded time."""
    found = dips_of(contiguous(values), baseline=baseline)

    assert (np.diff(found.start) > 0).all()
    assert (found.end >= found.start).all()
    assert ((found.start >= 0) & (found.end <= ns(WINDOW * len(values)))).all()
    assert (found.depth > 0).all()
    assert (found.deficit_gpu_s >= 0).all()


# Baseline


def timeline(rows: list[Row], seconds: float = 100) -> RankTimeline:
    """The only rank's timeline."""
    lanes, _ = read_lanes(table("spans", rows), table("processes"))
    return build(lanes, (0, ns(seconds)))[0][0]


def test_without_steps_the_baseline_is_the_80th_percentile_of_what_is_busy() -> None:
    """Half of the run at rest does not halve the plateau; of 10, 20 ... 100 the 80th percentile is 80."""
    series = contiguous([0.0] * 10 + [float(v) for v in range(10, 101, 10)])

    assert baseline_of(series, None).tolist() == [80] * 20


def test_the_baseline_is_local_to_five_steps_and_busy_phases() -> None:
    """Generation reads 100 in steps 0-4 and 60 in steps 5-9; rewards (16 %) do not count.

    Step 0 sees steps 0-2, step 7 steps 5-9. A dip of the second half is measured against 60, not 100.
    """
    rows, values = [], []
    for step in range(10):
        rows += [
            span("step", 2 * step, 2 * step + 2, step=step), span("vLLM.generate", 2 * step, 2 * step + 1),
            span("_calculate_rewards", 2 * step + 1, 2 * step + 2),
        ]  # fmt: skip
        values += [100.0 if step < 5 else 60.0] * 5 + [16.0] * 5

    baseline = baseline_of(contiguous(values), timeline(rows))

    assert [float(baseline[10 * step]) for step in (0, 2, 7, 9)] == [100, 100, 60, 60]


def test_the_baseline_reaches_two_steps_back_and_two_ahead() -> None:
    """Generation reads 10, 20 ... 100 in ten steps: step 4 sees 30-70, whose 80th percentile (lower neighbour) is 60."""
    rows = [r for step in range(10) for r in cycle(0, step, 1.0 * step, (1, 0, 0, 0))]

    baseline = baseline_of(contiguous([10.0 * (1 + i // 5) for i in range(50)]), timeline(rows))

    assert baseline[5 * 4] == 60


def test_a_step_without_busy_windows_takes_its_neighbours_baseline() -> None:
    """Samples of steps 3-7 are missing: their baseline lies between those of the steps around them."""
    rows = [r for step in range(12) for r in cycle(0, step, 2.0 * step, (1, 1, 0, 0))]
    values = [100.0 if i // 10 < 6 else 60.0 for i in range(120)]
    whole = contiguous(values)
    seen = np.array([not 3 <= i // 10 <= 8 for i in range(120)])

    baseline = baseline_of(Series(whole.t0[seen], whole.t1[seen], whole.value[seen]), timeline(rows))

    assert (baseline[0], baseline[-1]) == (100, 60)
    assert not np.isnan(baseline).any()


def test_busy_windows_before_a_rank_s_first_step_still_give_a_baseline() -> None:
    """Rank 1 generates before its own first step, and its GPU's samples end there."""
    rows = [
        span("step", 0, 10, rank=0, step=0), span("vLLM.generate", 0, 4, rank=1), span("step", 8, 10, rank=1, step=0),
    ]  # fmt: skip
    lanes, _ = read_lanes(table("spans", rows), table("processes"))
    second = build(lanes, (0, ns(10)))[0][1]

    assert set(baseline_of(contiguous([90.0] * 20), second).tolist()) == {90}


@pytest.mark.parametrize("values", [[], [NAN, NAN], [0.0, 0.0]])
def test_nothing_busy_has_baseline_zero_and_so_no_dips(values: list[float]) -> None:
    """A GPU at rest throughout does not dip."""
    series = contiguous(values)
    baseline = baseline_of(series, None)

    assert set(baseline.tolist()) <= {0.0}
    assert len(find(series, baseline, ns(WINDOW))) == 0


# The job's series


def test_the_job_is_the_mean_where_every_gpu_was_seen() -> None:
    """GPU 1 vanishes after 2 s: the job is known until then."""
    mean = mean_series([contiguous([100] * 20), contiguous([50] * 10)], ns(WINDOW))

    assert (mean.t0[0], mean.t1[-1]) == (0, ns(2))
    assert set(mean.value.tolist()) == {75}


def test_gpus_sampled_at_different_instants_meet_on_one_grid() -> None:
    """The second GPU's windows start 0.1 s later: [0, 0.2) of it is half seen."""
    mean = mean_series([contiguous([100] * 4), contiguous([0, 100, 0], start=0.1)], ns(WINDOW))

    assert mean.value.tolist() == [50, 75, 75, 50]


def test_one_sample_each_is_one_window_and_not_a_billion() -> None:
    """A recording of 0.2 s has no sampling period."""
    mean = mean_series([contiguous([100]), contiguous([50])], 0)

    assert (mean.t0.tolist(), mean.t1.tolist(), mean.value.tolist()) == ([0], [ns(0.2)], [75])


# Through the pipeline: scope, phase, series, and who takes part

PROCESSES = [process(900, rank=0, gpu=0), process(901, rank=1, gpu=1)]
REWARDS = cycle(0, 0, 0, (4, 3, 0, 3)) + cycle(0, 1, 10, (4, 3, 0, 3))
"""Rank 0, two steps of 10 s: rewards on [4, 7) and [14, 17)."""


def gpu_of(busy: list[tuple[float, float]], gpu: int = 0) -> list[Row]:
    """20 s of a GPU."""
    return utilization(boxcar(busy, 20), gpu=gpu)


def summary(findings: Findings, series: str = "utilization") -> list[Any]:
    """GPU, start, end and scope of each dip."""
    return [
        (d.gpu, near(d.start_s, abs=0.01), near(d.end_s, abs=0.01), d.scope)
        for d in findings.dips
        if d.series == series
    ]


BUSY = [(0.0, 4.0), (7.0, 14.0), (17.0, 20.0)]


def test_a_dip_of_every_gpu_is_job_wide_and_one_of_a_single_gpu_is_told_apart() -> None:
    """Both rest in the first rewards; in the second only GPU 0 does."""
    findings = analyse(memory(gpu=gpu_of(BUSY) + gpu_of([(0, 4), (7, 20)], gpu=1)))

    assert summary(findings) == [(0, 4, 7, "job"), (0, 14, 17, "gpu"), (1, 4, 7, "job")]


def test_with_three_gpus_some_may_dip_together() -> None:
    """GPUs 0 and 1 dip, GPU 2 does not."""
    rows = gpu_of([(0, 4), (7, 20)]) + gpu_of([(0, 4), (7, 20)], gpu=1) + gpu_of([(0, 20)], gpu=2)

    assert [scope for *_, scope in summary(analyse(memory(gpu=rows)))] == ["some", "some"]


def test_dips_that_overlap_for_less_than_half_are_not_one() -> None:
    """GPU 1 dips 2 s later: they share 1 of 3 s."""
    rows = gpu_of([(0, 4), (7, 20)]) + gpu_of([(0, 6), (9, 20)], gpu=1)

    assert [scope for *_, scope in summary(analyse(memory(gpu=rows)))] == ["gpu", "gpu"]


def test_the_job_s_own_dips_are_of_the_mean_over_gpus() -> None:
    """Both rest on [4, 7): the mean falls to 0. Where one rests the mean is 50 % of the baseline: no dip."""
    findings = analyse(memory(gpu=gpu_of(BUSY) + gpu_of([(0, 4), (7, 20)], gpu=1)))

    assert [(d.gpu, d.start_s, d.end_s, d.scope) for d in findings.job_dips if d.series == "utilization"] == [
        (None, near(4, abs=0.01), near(7, abs=0.01), "job")
    ]


def test_one_gpu_is_the_job() -> None:
    """Its dips are job-wide, and are not listed twice."""
    findings = analyse(memory(gpu=gpu_of(BUSY)))

    assert [scope for *_, scope in summary(findings)] == ["job", "job"]
    assert findings.job_dips == ()


def test_an_unused_gpu_has_no_dips_and_does_not_stop_the_others_from_dipping_together() -> None:
    """GPU 1 belongs to nobody and rests throughout: "unused", not one endless dip."""
    findings = analyse(memory(gpu=gpu_of(BUSY) + gpu_of([], gpu=1)))

    assert summary(findings) == [(0, 4, 7, "job"), (0, 14, 17, "job")]
    assert [s.used for s in findings.states] == [True, False]
    assert findings.job_dips == ()


def first_dip(spans: list[Row], busy: list[tuple[float, float]]) -> Dip:
    """The first dip of rank 0's GPU."""
    return analyse(memory(spans=spans, gpu=gpu_of(busy), processes=PROCESSES[:1])).dips[0]


@pytest.mark.parametrize("late", [-0.3, 0.0, 0.3])
def test_a_dip_has_the_phase_that_fills_it_and_its_lag_behind_that_phase(late: float) -> None:
    """The GPU rests from 4 s + late on; the rewards began at 4 s. Positive: the dip starts after."""
    dip = first_dip(REWARDS, [(0, 4 + late), (7, 20)])

    assert (dip.phase, dip.boundary) == ("reward", "reward")
    assert dip.boundary_lag_s == near(late, abs=0.01)


def test_a_dip_is_not_blamed_on_a_phase_that_only_touches_it() -> None:
    """It begins at the end of generation, but checkpoint fills it."""
    spans = [
        span("step", 0, 20, step=0), span("vLLM.generate", 0, 4.5, step=0), span("checkpoint", 4.5, 7, step=0),
        span("backward", 7, 20, step=0),
    ]  # fmt: skip

    assert first_dip(spans, [(0, 4), (7, 20)]).phase == "checkpoint"


def test_a_dip_is_named_after_the_phase_in_which_its_utilization_is_missing() -> None:
    """Generation fills 4 of its 6 s but runs at 40 of 100 %: 2.4 GPU-seconds missing. The idle weight sync: 2 s, 2.0.

    With the tail at 45 % it's 2.2 to 2.0 and still generation; at 49 % and 3 s it's 1.5 to 2.0 and the sync's.
    """

    def dip(tail_s: float, percent: float) -> Dip:
        busy, rest = round((8 - tail_s) / 0.2), round(tail_s / 0.2)
        util = [100.0] * busy + [percent] * rest + [0.0] * 10 + [100.0] * 50
        spans = [
            span("step", 0, 20, step=0), span("vLLM.generate", 0, 8, step=0), span("sync_weights", 8, 10, step=0),
            span("backward", 10, 20, step=0),
        ]  # fmt: skip
        return analyse(memory(spans=spans, gpu=utilization(util), processes=PROCESSES[:1])).dips[0]

    assert [dip(4, 40).phase, dip(4, 45).phase, dip(3, 49).phase] == ["generate", "generate", "weight_sync"]


def test_the_lag_is_still_that_of_the_phase_that_fills_the_dip() -> None:
    """3 s of generation at 49 % before 2 s of weight sync at 0: the dip is the sync's, its start compared with generation's."""
    util = [100.0] * 25 + [49.0] * 15 + [0.0] * 10 + [100.0] * 50
    spans = [
        span("step", 0, 20, step=0), span("vLLM.generate", 0, 8, step=0), span("sync_weights", 8, 10, step=0),
        span("backward", 10, 20, step=0),
    ]  # fmt: skip

    (dip,) = (
        d
        for d in analyse(memory(spans=spans, gpu=utilization(util), processes=PROCESSES[:1])).dips
        if d.series == "utilization"
    )

    assert (dip.phase, dip.boundary) == ("weight_sync", "generate")
    assert dip.boundary_lag_s == near(5, abs=0.3)


def test_without_spans_a_dip_has_no_phase() -> None:
    """None, and no lag."""
    dip = analyse(memory(gpu=gpu_of(BUSY))).dips[0]

    assert (dip.phase, dip.boundary, dip.boundary_lag_s) == (None, None, None)


def test_startup_is_no_dip() -> None:
    """The GPU rests for 5 s before the first step; the window starts with the step."""
    spans = [r for step in (0, 1) for r in cycle(0, step, 5 + 7 * step, (4, 1, 1, 1))]

    assert analyse(memory(spans=spans, gpu=gpu_of([(5, 20)]), processes=PROCESSES[:1])).dips == ()


def test_where_the_wait_is_the_plateau_the_work_is_the_dip() -> None:
    """Rank 0 spins at 100 % while rank 1 finishes its rewards: no dip of utilization there, one of work."""
    util = [100.0] * 20 + [0.0] * 15 + [100.0] * 65
    sm = [90.0] * 20 + [0.0] * 15 + [0.8] * 25 + [90.0] * 40
    profile = counters(sm, gr_active_pct=util, dram_active_pct=[0.0 if s < 50 else 50.0 for s in sm])
    spans = cycle(0, 0, 0, (4, 3, 5, 8)) + cycle(1, 0, 0, (4, 8, 0, 8))

    findings = analyse(memory(spans=spans, gpu=utilization(util), gpu_counters=profile, processes=PROCESSES))

    assert summary(findings) == [(0, 4, 7, "job")]
    assert summary(findings, "work") == [(0, 4, 12, "job")]
    assert [(d.series, d.phase) for d in findings.dips] == [
        ("utilization", "reward"),
        ("work", "gather_wait"),
    ]
