"""The planted loop keeps its own promises: who waits, who works on what, what the instruments would have read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from dipstick.recording.reader import open_recording
from dipstick.selftest import instruments, write
from dipstick.selftest.instruments import EPOCH_NS, Extra, Sampling, Scene
from dipstick.selftest.levels import LEVELS, SIGNALS
from dipstick.selftest.loop import AT, COLUMNS, JobPlan, Loop, Plan, draw, schedule
from records import near

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.model import FloatArray, IntArray

SHORT = Plan(steps=6, jobs=JobPlan(count=4, seconds=0.5, spread=0.3))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def seconds(loop: Loop, column: str) -> FloatArray:
    """(R, K) length of a stretch."""
    length: FloatArray = (loop.end(column) - loop.start(column)) / 1e9
    return length


def constant(*jobs: float, **plan: object) -> Plan:
    """One rank, one step, jobs of exactly these lengths in two workers' hands (all are the median's)."""
    return Plan(steps=1, ranks=1, jobs=JobPlan(count=len(jobs), seconds=jobs[0], spread=0.0, **plan))  # type: ignore[arg-type]


# The loop


def test_stretches_are_never_negative() -> None:
    """Edges only move forward, and a step begins where the one before ended."""
    loop = draw(SHORT, rng())

    assert np.diff(loop.edges, axis=2).min() >= 0
    assert (loop.edges[:, 1:, 0] == loop.edges[:, :-1, -1]).all()


@pytest.mark.parametrize("wait", ["lengths_wait", "gather_wait"])
def test_ranks_leave_a_barrier_together(wait: str) -> None:
    """Whoever was last waited for nobody."""
    loop = draw(replace(SHORT, ranks=3), rng())
    released = loop.end(wait)

    assert (released == released[0]).all()
    assert (seconds(loop, wait).min(axis=0) == 0).all()


def test_without_barriers_nobody_waits_and_loops_drift_apart() -> None:
    """Rank 1 generates half as long again: after six steps of 5 s it is some 15 s behind."""
    loop = draw(replace(SHORT, barriers=False, drift=0.5), rng())
    behind = (loop.edges[1, -1, -1] - loop.edges[0, -1, -1]) / 1e9

    assert loop.waited_s() == 0
    assert behind == near(15, abs=3)


def test_planted_waits_are_what_the_early_ranks_spend() -> None:
    """The sum of both waits of all ranks."""
    loop = draw(SHORT, rng())

    assert loop.waited_s() == near(
        float(seconds(loop, "lengths_wait").sum() + seconds(loop, "gather_wait").sum())
    )


def test_training_takes_all_ranks_the_same_time() -> None:
    """It is data-parallel: nobody is early at the next step for having trained less."""
    loop = draw(SHORT, rng())
    train = slice(AT["forward"], AT["optimizer"])

    spent = np.diff(loop.edges, axis=2)[:, :, train].sum(axis=2)

    assert (spent == spent[0]).all()


def test_checkpoints_are_rank_0_s_and_cache_clears_everybody_s() -> None:
    """Every third and every second step, at the step's end."""
    loop = draw(replace(SHORT, checkpoint_every=3, cache_clear_every=2), rng())

    assert [np.flatnonzero(row).tolist() for row in seconds(loop, "checkpoint")] == [[2, 5], []]
    assert [np.flatnonzero(row).tolist() for row in seconds(loop, "cache_clear")] == [[1, 3, 5], [1, 3, 5]]


def test_what_is_not_planned_does_not_happen() -> None:
    """No transfer, no checkpoint, no cache clear."""
    loop = draw(SHORT, rng())

    assert [seconds(loop, name).max() for name in ("transfer", "checkpoint", "cache_clear")] == [0, 0, 0]


def test_growth_stretches_generation_from_the_first_step_to_the_last() -> None:
    """Twice as long at the end, when it does not vary otherwise."""
    loop = draw(replace(SHORT, growth=2.0, generate_spread=0.0), rng())

    generated = seconds(loop, "generate").mean(axis=0)

    assert generated[-1] / generated[0] == near(2.0, rel=0.05)


def test_the_same_seed_draws_the_same_run() -> None:
    """And another seed another one."""
    first, again, other = (draw(SHORT, rng(seed)) for seed in (1, 1, 2))

    assert (first.edges == again.edges).all()
    assert (first.edges != other.edges).any()


# The jobs


def test_a_free_worker_takes_the_next_job() -> None:
    """Four jobs of 1 s on two workers: two rounds."""
    start, end, worker = schedule(constant(1, 1, 1, 1), rng())

    assert start.ravel().tolist() == [0, 0, 1, 1]
    assert end.ravel().tolist() == [1, 1, 2, 2]
    assert worker.ravel().tolist() == [0, 1, 0, 1]


def test_a_slow_worker_gets_fewer_jobs_when_the_others_can_take_them() -> None:
    """Worker 1 needs 3 s for each: while it works on one, worker 0 does three."""
    start, end, worker = schedule(constant(1, 1, 1, 1, slow={(0, 1): 3.0}), rng())

    assert worker.ravel().tolist() == [0, 1, 0, 0]
    assert (start.ravel().tolist(), end.ravel().tolist()) == ([0, 0, 1, 2], [1, 3, 2, 3])


def test_jobs_that_are_dealt_beforehand_stay_with_the_slow_worker() -> None:
    """Each worker has two of the four: the slow one needs 6 s for its."""
    _, end, worker = schedule(constant(1, 1, 1, 1, slow={(0, 1): 3.0}, fixed=True), rng())

    assert worker.ravel().tolist() == [0, 1, 0, 1]
    assert end.ravel().tolist() == [1, 3, 2, 6]


def test_a_slow_rank_is_slow_on_all_of_its_workers() -> None:
    """Rank 1 takes twice as long."""
    plan = Plan(steps=2, jobs=JobPlan(count=2, seconds=1.0, spread=0.0, slow_rank={1: 2.0}))

    _, end, _ = schedule(plan, rng())

    assert end.max(axis=2).tolist() == [[1, 1], [2, 2]]


def test_slowness_can_come_every_third_step_only() -> None:
    """Steps 2 and 5 of six."""
    plan = Plan(
        steps=6, ranks=1, jobs=JobPlan(count=2, seconds=1.0, spread=0.0, slow={(0, 0): 2.0}, slow_every=3)
    )

    _, end, _ = schedule(plan, rng())

    assert end.max(axis=2).tolist() == [[1, 1, 2, 1, 1, 2]]


def test_the_long_job_is_on_one_rank_a_step_and_any_worker_can_have_it() -> None:
    """200 steps of two ranks with two workers: each of the four gets about a quarter."""
    plan = Plan(steps=200, jobs=JobPlan(count=4, seconds=0.1, spread=0.0, long_s=5.0))

    start, end, worker = schedule(plan, rng())
    long = (end - start) > 4

    assert (long.sum(axis=(0, 2)) == 1).all()
    counts = [int(long[rank][worker[rank] == w].sum()) for rank in (0, 1) for w in (0, 1)]
    assert min(counts) > 30


def test_the_long_job_starts_at_once_so_that_it_sets_the_end() -> None:
    """Nobody has to finish a short one first."""
    plan = Plan(steps=50, jobs=JobPlan(count=4, seconds=0.1, spread=0.0, long_s=5.0))

    start, end, _ = schedule(plan, rng())

    assert start[(end - start) > 4].max() == 0


def test_rewards_last_until_the_last_job_has_ended() -> None:
    """And not longer."""
    loop = draw(SHORT, rng())

    assert (loop.job_end.max(axis=2) == loop.end("score")).all()


# The instruments


def still(**levels: tuple[float, ...]) -> Scene:
    """Two steps of one rank, with some levels of our own."""
    return Scene(draw(Plan(steps=2, ranks=1), rng()), levels=levels)


def middle(scene: Scene, column: str) -> IntArray:
    """An instant in the middle of a stretch of the first step, as the end of a window of 10 ms."""
    at = (scene.loop.start(column)[0, 0] + scene.loop.end(column)[0, 0]) // 2
    return np.array([at])


@pytest.mark.parametrize(
    ("column", "like"), [("generate", "generate"), ("score", "reward"), ("logprobs", "logprobs")]
)
def test_a_window_inside_a_stretch_reads_its_level(column: str, like: str) -> None:
    """Every signal, from the table of known loads."""
    scene = still()
    read = [float(scene.mean(0, name, middle(scene, column), 10_000_000)[0]) for name in SIGNALS]

    assert read == near(LEVELS[like])


def test_a_window_over_two_stretches_reads_their_mix() -> None:
    """Half generation at 99, half log-probabilities at 95 (nobody waits alone)."""
    scene = still()
    at = scene.loop.end("generate")[0, :1] + 50_000_000

    assert scene.mean(0, "util_pct", at, 100_000_000).tolist() == near([97.0])


def test_before_the_first_step_the_board_idles() -> None:
    """0 %, and the power of a context at full clock."""
    scene = still()
    at = np.array([2_000_000_000])

    assert (scene.mean(0, "util_pct", at, 200_000_000)[0], scene.mean(0, "power_w", at, 200_000_000)[0]) == (
        0,
        121,
    )


def test_a_level_of_one_s_own_replaces_the_usual_one() -> None:
    """A launch-bound decode."""
    scene = still(generate=(34, 8, 180, 10, 6, 1, 40))

    assert scene.mean(0, "util_pct", middle(scene, "generate"), 10_000_000).tolist() == [34]


def test_an_extra_adds_for_its_share_of_the_window_and_stops_at_full() -> None:
    """50 points for half of the window add 25; 99 and 50 make 100."""
    extra = Extra(np.array([10.0]), np.array([10.5]), {"util_pct": 50.0})
    ends = np.array([10_500_000_000, 11_000_000_000, 12_000_000_000])

    assert extra.share(ends, 1_000_000_000).tolist() == [0.5, 0.5, 0]
    scene = still()
    there = float(middle(scene, "generate")[0]) / 1e9
    busy = Scene(scene.loop, (Extra(np.array([there - 1]), np.array([there + 1]), {"util_pct": 50.0}),))
    assert busy.mean(0, "util_pct", middle(scene, "generate"), 10_000_000).tolist() == [100]


def test_two_extras_in_a_row_do_not_add_between_them() -> None:
    """Only while they last."""
    extra = Extra(np.array([1.0, 3.0]), np.array([2.0, 4.0]), {})

    assert extra.share(np.array([2, 3, 4, 5]) * 1_000_000_000, 1_000_000_000).tolist() == [1, 0, 1, 0]


def test_telemetry_is_rounded_and_idle_is_exactly_zero() -> None:
    """NVML gives whole percents; noise makes no activity where there is none."""
    frame = instruments.telemetry(still(), Sampling(), rng())
    util = frame["util_pct"].to_numpy()

    assert (util == np.rint(util)).all()
    assert (util[frame["t_ns"].to_numpy() < EPOCH_NS + 7_000_000_000] == 0).all()
    assert (util.min(), util.max()) == (0, 100)


def test_power_lags_behind_by_its_own_window() -> None:
    """Half a second into generation the board still reads half way to 560 W."""
    scene = still()
    begun = int(scene.loop.start("generate")[0, 0])
    frame = instruments.telemetry(scene, Sampling(period_s=0.1), rng())
    t = frame["t_ns"].to_numpy() - EPOCH_NS
    near_half = frame["power_w"].to_numpy()[np.argmin(np.abs(t - begun - 500_000_000))]

    assert 250 < near_half < 480


def test_the_graphics_engine_rests_during_a_bus_copy() -> None:
    """Utilization reads 100 there, graphics-engine active 0, and PCIe 50 GiB/s."""
    scene = Scene(draw(Plan(steps=2, ranks=1, transfer_s=4.0), rng()))
    frame = instruments.counters(scene, Sampling(), rng())
    at = int(np.argmin(np.abs(frame["t_ns"].to_numpy() - EPOCH_NS - middle(scene, "transfer")[0])))

    row = frame.row(at, named=True)
    assert (row["gr_active_pct"], row["sm_active_pct"]) == (0, 0)
    assert row["pcie_rx_mib_s"] == near(51_200, rel=0.1)


def test_a_stranger_is_seen_on_every_gpu_while_it_works() -> None:
    """Process 7 for two seconds, at the memory-access time that it adds."""
    extra = Extra(np.array([10.0]), np.array([12.0]), {"mem_util_pct": 60.0, "sm_active_pct": 20.0}, pid=7)
    frame = instruments.processes(Scene(draw(SHORT, rng()), (extra,)), {0: 1000, 1: 1010})

    mine = frame.filter(pl.col("pid") == 7)
    assert sorted(mine["gpu"].to_list()) == [0, 0, 1, 1]
    assert mine["mem_pct"].to_list() == [60, 60, 60, 60]


# The recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps of two ranks with a checkpoint every third, on disk."""
    path = tmp_path_factory.mktemp("selftest") / "run"
    loop = draw(replace(SHORT, checkpoint_every=3), rng())
    write.record(path, Scene(loop), Sampling(), rng())
    return path


def test_everything_that_a_recorder_writes_is_there(folder: Path) -> None:
    """Telemetry, counters, processes, spans, events, jobs, scalars, who is who, and the boards."""
    recording = open_recording(folder)
    tables = ["gpu", "gpu_counters", "gpu_process", "spans", "events", "jobs", "scalars", "processes", "gpus"]

    assert [name for name in tables if not recording.has(name)] == []
    assert recording.notes == ()


def test_spans_are_nested_as_trl_nests_them(folder: Path) -> None:
    """A step holds its spans; checkpoints are there where they happened."""
    spans = open_recording(folder).table("spans").with_columns(pl.col("name").cast(pl.String))
    counts = dict(spans.group_by("name").len().iter_rows())

    assert (counts["step"], counts["GRPOTrainer.vLLM.generate"], counts["backward"]) == (12, 12, 48)
    assert (counts["checkpoint"], counts.get("empty_cache")) == (2, None)


def test_every_job_runs_inside_its_rank_s_rewards(folder: Path) -> None:
    """After it was submitted, on a worker of that rank."""
    recording = open_recording(folder)
    jobs = recording.table("jobs")
    people = dict(recording.table("processes").select("pid", "rank").iter_rows())

    assert jobs.height == 6 * 2 * 4
    assert (jobs["submitted_ns"].to_numpy() <= jobs["t0_ns"].to_numpy() + 4_000).all()
    assert [people[pid] for pid in jobs["pid"]] == jobs["rank"].to_list()


def test_events_are_the_spans_that_are_events(folder: Path) -> None:
    """Each rank's weight syncs, rank 0's checkpoints."""
    events = open_recording(folder).table("events").with_columns(pl.col("name").cast(pl.String))

    assert sorted(events.group_by("name").len().iter_rows()) == [("checkpoint", 2), ("weight_sync", 12)]


def test_completion_lengths_follow_generation(folder: Path) -> None:
    """45 tokens a second, logged after the step under its number plus one."""
    scalars = open_recording(folder).table("scalars")

    assert scalars["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert scalars["value"].to_numpy() == near(45 * 5.0, rel=0.4)


def test_plain_spans_are_named_like_their_phases() -> None:
    """Nothing in them tells of a barrier."""
    names = {name for name, _, _ in write.plain_spans()}

    assert names == {
        "step", "reward", "weight_sync", "generate", "logprobs", "forward", "backward", "optimizer", "checkpoint",
        "cache_clear",
    }  # fmt: skip


@pytest.mark.parametrize("spans", [write.trl_spans(), write.plain_spans()], ids=["trl", "plain"])
def test_spans_begin_and_end_on_edges_of_the_loop(spans: list[write.Span]) -> None:
    """In order, and inside the step."""
    assert all(0 <= first < last <= len(COLUMNS) for _, first, last in spans)


def test_without_counters_and_power_neither_is_written(tmp_path: Path) -> None:
    """Not a zero: nothing."""
    write.record(
        tmp_path / "run", Scene(draw(SHORT, rng())), Sampling(1.0, 1.0, counters=False, power=False), rng()
    )
    recording = open_recording(tmp_path / "run")

    assert not recording.has("gpu_counters")
    assert recording.table("gpu")["power_w"].null_count() == recording.table("gpu").height
