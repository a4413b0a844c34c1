"""The run at one instant, from hand-made windows: phases under way, who is waited for, the last step, the recorder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.analysis.live import frame
from dipstick.analysis.live_frame import Awaited, ProcessNow, RankNow
from dipstick.analysis.live_gpus import beat
from dipstick.recording.window import Health, ProbeCost, Replay
from live_windows import at, going, straggling, window
from records import cycle, job, near, ns, on_disk, span, utilization

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = ((), (), (), (), None, None)


def doing(found: RankNow) -> tuple[str | None, float | None]:
    """Phase, and for how long."""
    return found.phase, near(found.phase_s)


# What each rank is in


def test_a_run_of_which_nothing_is_known_yet() -> None:
    """No row is no zero: everything is empty or None."""
    found = at(1.0)
    assert (found.gpus, found.processes, found.ranks, found.waits, found.step, found.last_step) == EMPTY
    assert (found.recorder.beats, found.recorder.quiet_s, found.recorder.probe_pct) == ((), None, None)


def test_an_open_span_is_the_phase_of_now() -> None:
    """Generation began at 2 s and goes on: at 9 s, for 7 s; the step began at 1 s."""
    spans = [going("step", 1, step=4), going("generate", 2, step=4)]
    (rank,) = at(9.0, spans=spans).ranks
    assert rank == RankNow(0, "generate", near(7.0), "generate", 4, near(8.0), None, None, None)


def test_a_span_that_ends_later_is_open_now() -> None:
    """A replay knows how it ends; the frame must not."""
    spans = [span("step", 0, 10, step=0), span("generate", 0, 4, step=0), span("reward", 4, 9, step=0)]
    found = at(5.0, spans=spans)
    assert (doing(found.ranks[0]), found.last_step) == (("reward", 1.0), None)
    assert doing(at(3.0, spans=spans).ranks[0]) == ("generate", 3.0)


def test_the_innermost_phase_counts() -> None:
    """A helper inside the rewards is reward, and is named; the container around them is nothing."""
    spans = [
        going("GRPOTrainer._prepare_inputs", 1, step=0),
        going("GRPOTrainer._calculate_rewards", 2, step=0),
        going("judge", 4, step=0),
    ]
    (rank,) = at(6.0, spans=spans).ranks
    assert (doing(rank), rank.inside) == (("reward", 4.0), "judge")


def test_between_two_phases_the_one_before_is_named() -> None:
    """Without an open span nobody can say what a rank is in; what it was in last is known."""
    (rank,) = at(6.0, spans=[span("step", 0, 5, step=3), span("optimizer", 4, 5, step=3)]).ranks
    assert (rank.phase, rank.last, rank.inside, rank.step, rank.step_s) == (None, "optimizer", None, 3, None)


def test_reward_jobs_of_the_step_are_counted() -> None:
    """Eight were handed out and three have ended; those of the step before do not count."""
    rows = straggling()
    rows["jobs"] = [*rows["jobs"], job("old", 0, 1, rank=1, step=0)]
    found = at(9.0, **rows)
    assert [(r.jobs_done, r.jobs_sent) for r in found.ranks] == [(None, None), (3, 8)]


def test_jobs_that_end_later_have_not_ended() -> None:
    """In a replay the recording knows their ends; one that is submitted later is not there at all."""
    jobs = [job("a", 1, 2), job("b", 1, 6), job("c", 5, 6)]
    (rank,) = at(4.0, spans=[span("step", 0, 8, step=0), span("reward", 1, 7, step=0)], jobs=jobs).ranks
    assert (rank.jobs_done, rank.jobs_sent) == (1, 2)


def test_a_rank_whose_first_span_goes_on_is_there() -> None:
    """Rank 1 has ended nothing yet: it is shown, and it is the one that rank 0 waits for."""
    spans = [
        span("step", 0, 0.5, rank=0, step=0), span("GRPOTrainer._calculate_rewards", 1, 3, rank=0, step=1),
        going("step", 0.5, rank=1, step=1), going("generate", 0.6, rank=1, step=1),
    ]  # fmt: skip
    found = at(5.0, spans=spans)
    assert [r.phase for r in found.ranks] == ["gather_wait", "generate"]
    assert found.waits == (Awaited("reward", ((0, near(2.0)),), (1,), 1, "generate"),)


# Who is waited for


def test_a_rank_that_has_arrived_waits_for_the_one_that_has_not() -> None:
    """Rank 0's rewards ended at 6 s: at 9 s it has waited 3 s for rank 1, which is in its rewards."""
    found = at(9.0, **straggling())
    assert found.waits == (Awaited("reward", ((0, near(3.0)),), (1,), 1, "reward"),)
    assert [doing(r) for r in found.ranks] == [("gather_wait", 3.0), ("reward", 5.0)]


def test_nobody_waits_once_all_have_arrived() -> None:
    """Rank 1 arrives at 8 s: from then on the barrier is open."""
    rows = straggling()
    late = span("GRPOTrainer._calculate_rewards", 4, 8, rank=1, step=1)
    found = at(9.0, spans=[*rows["spans"][:-1], late])
    assert found.waits == ()


def test_a_rank_that_went_on_does_not_wait() -> None:
    """Loops that run apart pass the same points without meeting: rank 0 is in its backward."""
    rows = straggling()
    found = at(9.0, spans=[*rows["spans"], going("backward", 6.5, rank=0, step=1)])
    assert (found.waits, doing(found.ranks[0])) == ((), ("backward", 2.5))


def test_one_rank_waits_for_nobody() -> None:
    """It takes two."""
    assert (
        at(5.0, spans=[span("GRPOTrainer._calculate_rewards", 1, 2, step=0), going("step", 0, step=0)]).waits
        == ()
    )


def test_a_process_that_trains_no_step_is_not_waited_for() -> None:
    """An engine with a rank of its own never comes to the rewards."""
    rows = straggling()
    engine = going("vLLM.generate", 1, rank=7)
    (wait,) = at(9.0, spans=[*rows["spans"], engine]).waits
    assert wait.late == (1,)


def test_a_call_that_gathers_on_the_host_is_a_wait_too() -> None:
    """Gloo blocks inside ``gather``: rank 0 is in it since 5 s, rank 1 still generates."""
    spans = [
        span("step", 0, 1, rank=0, step=0), span("step", 0, 1, rank=1, step=0),
        going("reward", 1, rank=0, step=1), going("gather", 5, rank=0, step=1), going("generate", 1, rank=1, step=1),
    ]  # fmt: skip
    assert at(7.0, spans=spans).waits == (Awaited("gather", ((0, near(2.0)),), (1,), 1, "generate"),)


def test_when_all_are_in_the_gather_nobody_is_late() -> None:
    """The data are on their way."""
    spans = [going("gather", 5, rank=rank, step=1) for rank in (0, 1)]
    assert at(7.0, spans=spans).waits == ()


def test_several_late_ranks_in_different_phases_have_no_common_one() -> None:
    """Rank 0 waits for two others; what they do differs, so it is not said."""
    spans = [span("step", 0, 1, rank=rank, step=0) for rank in range(3)]
    spans += [span("GRPOTrainer._calculate_rewards", 2, 3, rank=0, step=1)]
    spans += [
        going("generate", 2, rank=1, step=1),
        going("GRPOTrainer._calculate_rewards", 2, rank=2, step=1),
    ]
    (wait,) = at(5.0, spans=spans).waits
    assert (wait.late, wait.phase) == ((1, 2), None)


# The last step


def test_the_last_step_of_all_ranks_is_broken_down() -> None:
    """Rank 0: 4 s of generation, 3 of rewards, 2 of waiting, 1 of backward; rank 1 scores for 5."""
    spans = [
        *cycle(0, 7, 0.0, (4, 3, 2, 1)),
        *cycle(1, 7, 0.0, (4, 5, 0, 1)),
        going("step", 10, rank=0, step=8),
    ]
    step = at(11.0, spans=spans).last_step
    assert step is not None
    assert (step.number, step.seconds, step.median_s) == (7, near(10.0), None)
    assert step.by_rank[0] == (
        0,
        (("generate", near(4.0)), ("reward", near(3.0)), ("gather_wait", near(2.0)), ("backward", near(1.0))),
    )
    assert dict(step.phases) == near({"generate": 4.0, "reward": 4.0, "gather_wait": 1.0, "backward": 1.0})


def test_a_step_that_one_rank_is_still_in_is_not_the_last() -> None:
    """Rank 1 has not ended step 1; the last of both is step 0, and three steps have a median."""
    spans = [row for k in range(4) for row in cycle(0, k, 10.0 * k, (4, 3, 2, 1))]
    spans += [row for k in range(3) for row in cycle(1, k, 10.0 * k, (4, 3, 2, 1))]
    step = at(40.0, spans=spans).last_step
    assert step is not None
    assert (step.number, step.median_s) == (2, near(10.0))


def test_steps_that_are_only_numbers_end_when_the_next_begins() -> None:
    """Without step spans the last number is under way."""
    spans = [span("generate", 10 * k, 10 * k + 4, step=k) for k in range(3)]
    step = at(25.0, spans=spans).last_step
    assert step is not None
    assert (step.number, step.seconds) == (1, near(4.0))


def test_busy_and_hollow_seconds_of_the_step_need_telemetry_over_all_of_it() -> None:
    """Two GPUs read 99 % for 2 s each; a view that came late can't tell."""
    rows = straggling()
    step = at(9.0, **rows).last_step
    assert step is not None
    assert (step.busy_gpu_s, step.hollow_gpu_s) == (near(2 * 2 * 0.99, rel=0.05), near(0.0))
    late = [row for row in rows["gpu"] if row["t_ns"] > ns(1)]
    step = at(9.0, **{**rows, "gpu": late, "gpu_counters": []}).last_step
    assert step is not None
    assert (step.busy_gpu_s, step.hollow_gpu_s) == (None, None)


# GPUs


def test_a_gpu_that_spins_is_hollow() -> None:
    """GPU 0 reads 100 % while its rank waits: state, mean of ten seconds, and the share without SM work."""
    zero, one = at(9.0, **straggling()).gpus
    assert (zero.util_pct, zero.state, zero.rank, zero.mem_total_b) == (100.0, "spinning", 0, 140 * 2**30)
    assert zero.hollow_pct == near(100 * 3 / 9, abs=3)
    assert (one.util_pct, one.state, one.hollow_pct, one.power_w) == (10.0, "compute", near(0.0), 200.0)


def test_a_gpu_that_fell_silent_has_no_value_of_now() -> None:
    """The last sample came at 9 s; at 20 s it says nothing about now, and the screen says how old it is."""
    zero, _ = at(20.0, **straggling(9.0)).gpus
    assert (zero.util_pct, zero.state, zero.busy_pct, zero.power_w) == (None, None, None, None)
    assert zero.stale_s == near(11.0, abs=0.2)


def test_the_drivers_late_samples_do_not_hold_the_view_back() -> None:
    """They come every four seconds in one batch; the polls are fresher."""
    polls = utilization([20.0] * 50, source="poll")
    buffer = utilization([80.0] * 30, source="buffer")
    (gpu,) = at(10.0, gpu=[*polls, *buffer]).gpus
    assert (gpu.util_pct, gpu.stale_s) == (20.0, None)
    (gpu,) = at(6.0, gpu=buffer).gpus
    assert gpu.util_pct == 80.0


def test_which_rank_is_on_which_gpu_is_said_by_the_driver() -> None:
    """While a run goes on, nobody else has: the pid that holds most memory there."""
    rows = straggling()
    rows["processes"] = [row | {"gpu": None} for row in rows["processes"]]
    rows["gpu_process"] = [
        {"host": "node1", "gpu": gpu, "pid": pid, "t_ns": ns(1), "mem_used_b": held}
        for gpu, pid, held in ((1, 900, 50), (0, 900, 1), (0, 901, 50))
    ]
    assert [(gpu.gpu, gpu.rank) for gpu in at(9.0, **rows).gpus] == [(0, 1), (1, 0)]


def test_without_a_gpu_processes_stand_in() -> None:
    """CPU milliseconds of the last three seconds over their windows; ranks first, then the busiest."""
    use = [
        {"host": "node1", "pid": pid, "t_ns": ns(t), "window_ns": ns(0.2), "cpu_ms": ms, "rss_b": 1000}
        for t in (1.0, 8.8, 9.0)
        for pid, ms in ((900, 20.0), (901, 100.0), (902, 150.0))
    ]
    processes = [{"host": "node1", "pid": 900, "role": "trainer", "rank": 0}]
    found = at(9.0, host_process=use, processes=processes, spans=[going("generate", 1, step=0)])
    assert found.processes == (
        ProcessNow("node1", 900, "trainer", 0, near(10.0), 1000),
        ProcessNow("node1", 902, None, None, near(75.0), 1000),
        ProcessNow("node1", 901, None, None, near(50.0), 1000),
    )


# The recorder


def test_lateness_is_read_from_the_stamps() -> None:
    """A grid of 100 ms, one poll 3 ms late, one missing."""
    stamps = np.array([0, 100, 203, 300, 400, 600, 700], np.int64) * 1_000_000
    found = beat("h", stamps)
    assert found is not None
    assert (found.hz, found.late_max_ms, found.missed, found.window_s) == (
        near(10.0),
        near(3.0),
        1,
        near(0.7),
    )
    assert found.late_mean_ms == near(3 / 7)


def test_a_first_poll_that_is_late_is_no_reason_to_call_the_others_early() -> None:
    """The grid's origin is the earliest poll within its period: the first one came 50 ms late, like none after it."""
    stamps = np.array([50, *range(100, 1000, 100)], np.int64) * 1_000_000
    found = beat("h", stamps)
    assert found is not None
    assert found.late_max_ms < 60


def test_a_few_stamps_are_no_beat() -> None:
    """Four polls can't tell the period from its jitter."""
    assert beat("h", np.arange(4, dtype=np.int64) * 100) is None


def test_overhead_is_what_the_recorder_says_of_itself() -> None:
    """2.5 CPU seconds of which 0.5 to start, over 100 s: 2 %. The worst rank's probe took 0.6 of 100 s."""
    account: dict[str, dict[str, Any]] = {
        "node1": {"cpu_s": 2.5, "start_cpu_s": 0.5, "wall_s": 100.0},
        "node2": {"cpu_s": "x"},
    }
    probes = (ProbeCost(0, 0.1, 100.0), ProbeCost(1, 0.6, 100.0), ProbeCost(2, 5.0, None))
    found = frame(window(9.0, health=Health(account, probes, 3, 1))).recorder
    assert (found.sampler_cpu_pct, found.probe_pct, found.dropped, found.capped) == (
        near(2.0),
        near(0.6),
        3,
        1,
    )


def test_how_long_telemetry_has_been_silent() -> None:
    """The last sample is 4 s old."""
    assert at(13.0, **straggling(9.0)).recorder.quiet_s == near(4.0, abs=0.21)


# A replay gives the same frames


def test_a_replay_shows_what_a_live_view_showed(tmp_path: Path) -> None:
    """The same two ranks, all of it recorded: at 9 s rank 0 waits for rank 1."""
    ended = [row | {"t1_ns": ns(12)} if row["t1_ns"] is None else row for row in straggling()["spans"]]
    jobs = [row | {"t1_ns": row["t1_ns"] or ns(11)} for row in straggling()["jobs"]]
    recording = on_disk(tmp_path / "RUN", **{**straggling(12.0), "spans": ended, "jobs": jobs})
    replayed = frame(Replay(recording).window(ns(9)))
    live = at(9.0, **straggling())
    same = {
        "mode": "replay",
        "last_s": 12.0,
        "tracks": live.tracks,
        "recorder": live.recorder,
    }
    assert replace(replayed, tracks=live.tracks, recorder=live.recorder) == replace(live, **same)  # type: ignore[arg-type] # fields by name


@pytest.mark.parametrize("t", [134.0, 203.5, 303.9, 400.0, 545.0])
def test_any_instant_of_a_real_run_has_a_frame(t: float) -> None:
    """Startup, training, a wait, the end: two GPUs and two ranks, each with numbers."""
    from dipstick.recording.reader import open_recording  # noqa: PLC0415 - only here

    found = frame(Replay(open_recording("sample:h200x2-grpo")).window(ns(t)))
    assert [gpu.util_pct is not None for gpu in found.gpus] == [True, True]
    assert len(found.ranks) == (2 if t > 140 else len(found.ranks))
