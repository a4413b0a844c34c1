"""What checks judge from: warm-up left out, the middle of long runs, who waits for whom, and each model once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.verdicts import evidence as module
from records import memory, near, span, utilization, without
from worlds import World, evidence_of, healthy, varied

if TYPE_CHECKING:
    from dipstick.verdicts.evidence import Evidence


def run_of(steps: int, ranks: int = 2) -> Evidence:
    """Steps of 4 + 2 + 1 s, all alike."""
    return World(generate=[4.0] * steps, reward=[[2.0] * ranks] * steps, profiled=False, jobs=0).evidence()


@pytest.mark.parametrize(("steps", "kept"), [(0, 0), (1, 0), (2, 2), (9, 9), (10, 8), (31, 29)])
def test_two_steps_of_warm_up_are_left_out_where_eight_remain(steps: int, kept: int) -> None:
    """Of 9 steps all count: dropping two costs more than it cleans."""
    evidence = run_of(steps) if steps else evidence_of(memory(gpu=utilization([50.0] * 20)))

    assert len(evidence.kept) == kept
    assert (evidence.loop is None) is (kept == 0)
    if evidence.loop is not None:
        assert evidence.loop.steps == kept
        assert evidence.kept[-1] == steps - 1


def test_a_long_run_is_looked_at_closely_in_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 28 kept steps at most 10: as many are left out before as after; counts still use all."""
    monkeypatch.setattr(module, "MOST_STEPS", 10)
    evidence = run_of(30)

    assert len(evidence.kept) == 28
    assert evidence.close.tolist() == list(range(11, 21))
    assert evidence.close_ns == (77_000_000_000, 147_000_000_000)
    assert {float(t.ts.min() >= 77) for t in evidence.telemetry} == {1.0}


def test_a_short_run_is_looked_at_closely_as_a_whole() -> None:
    """Also its warm-up: the window of the analysis."""
    evidence = run_of(12)

    assert evidence.close.tolist() == evidence.kept.tolist()
    assert evidence.close_ns == (0, 84_000_000_000)


# Who waits for whom


def test_ranks_that_meet_at_the_gather_are_synchronous() -> None:
    """Each starts its backward when the last has its rewards."""
    assert healthy(4).evidence().synchronous


def test_a_single_rank_has_nobody_to_wait_for() -> None:
    """Every barrier is open."""
    assert run_of(4, ranks=1).synchronous


def test_loops_that_pass_the_gather_without_meeting_run_apart() -> None:
    """Rank 1 is a second behind throughout, and nobody waits for it: rank 0 is in backward when it arrives."""
    apart = World(generate=[4.0] * 6, reward=[[2.0, 2.0]] * 6, jobs=0, profiled=False)
    rows = [
        r | ({"t0_ns": r["t0_ns"] + 10**9, "t1_ns": r["t1_ns"] + 10**9} if r["rank"] else {})
        for r in apart.spans()
    ]

    evidence = evidence_of(memory(spans=rows, gpu=apart.gpu(), processes=apart.rows()["processes"]))

    assert not evidence.synchronous


def test_ranks_without_a_common_gather_can_t_be_called_synchronous() -> None:
    """Plain spans tell of no barrier."""
    rows = [
        span(name, t, t + 1, rank=r, step=int(t) // 2)
        for r in range(2)
        for t in (0.0, 2.0)
        for name in ("reward",)
    ]

    assert not evidence_of(memory(spans=rows)).synchronous


# Models


def test_the_same_recording_gives_the_same_draws() -> None:
    """A generator of its own for each purpose, the same at each call."""
    one, two = run_of(3), run_of(3)

    assert one.rng(1).random() == two.rng(1).random()
    assert one.rng(1).random() != one.rng(2).random()


def test_what_several_claims_rest_on_is_computed_once() -> None:
    """Also where the result is None."""
    evidence, calls = run_of(2), []

    def make(_: Evidence) -> None:
        calls.append(1)

    assert evidence.once("x", make) is None
    assert evidence.once("x", make) is None
    assert calls == [1]


def test_telemetry_is_that_of_gpus_whose_rank_is_known() -> None:
    """GPU 1 belongs to nobody."""
    world = healthy(4)
    recording = without(world.recording(), "processes")
    alone = World(generate=[4.0] * 4, reward=varied(4, ranks=1), jobs=0, profiled=False)

    assert len(world.evidence().telemetry) == 2
    assert len(evidence_of(recording).telemetry) == 2  # matched in order, and said so
    assert evidence_of(memory(spans=alone.spans(), gpu=world.gpu())).telemetry == ()


def test_levels_are_fitted_to_the_phases() -> None:
    """Generate 99, reward 15, the wait 100, train 60: within a point."""
    fit = healthy(12).evidence().overlap

    assert fit is not None
    found = {row.name: row.level_pct.value for row in fit.levels if row.level_pct is not None}
    assert {name: found[name] for name in ("reward", "gather_wait", "backward")} == near(
        {"reward": 15, "gather_wait": 100, "backward": 60}, abs=1.0
    )


@pytest.mark.parametrize("gone", ["gpu", "spans"])
def test_nothing_is_fitted_without_samples_or_without_steps(gone: str) -> None:
    """None, not zeros."""
    evidence = evidence_of(without(healthy(4).recording(), gone, "gpu_counters"))

    assert evidence.overlap is None
    assert (evidence.whatifs is None) is (gone == "spans")
    assert (evidence.path is None) is (gone == "spans")


def test_a_counter_window_of_no_length_is_the_sampling_period() -> None:
    """An importer that wrote 0 for "not known"."""
    world = healthy(4)
    rows = world.rows() | {"gpu": [r | {"window_ns": 0} for r in world.gpu()]}

    assert evidence_of(memory(**rows)).window_s == near(0.2)


def test_gpus_of_a_rank_multiply_its_seconds() -> None:
    """Two GPUs on the only rank."""
    world = World(generate=[4.0] * 3, reward=[[2.0]] * 3, jobs=0, profiled=False)
    rows = world.rows()
    rows["gpu"] = [*rows["gpu"], *(r | {"gpu": 1} for r in rows["gpu"])]
    rows["processes"] = [*rows["processes"], rows["processes"][0] | {"gpu": 1}]

    steps = evidence_of(memory(**rows)).steps

    assert steps is not None
    assert steps.loop.gpus.tolist() == [2]
    assert np.isfinite(steps.loop.measured).all()
