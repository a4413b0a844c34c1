"""Per step: how wide the reward dip was, and what could have driven it."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.verdicts.dip_series import completion_length, drivers, reward_dips, stage_interval
from records import Row, memory, near, ns, without
from worlds import BUSY, World, evidence_of, healthy, varied

REWARD = varied(12)
EMPTY = BUSY | {"reward": 0.0}
"""Rewards that leave the GPU idle, so that a second of rewards is a second of dip."""


def test_a_dip_is_as_wide_as_the_slowest_rank_s_rewards() -> None:
    """A rank that waits does no work: both GPUs dip until the gather opens. Widths within a tenth of a second."""
    evidence = World(generate=[6.0] * 12, reward=REWARD, levels=EMPTY).evidence()

    found = reward_dips(evidence)

    assert found is not None
    assert found.series == "work"
    assert found.window_s == near(0.2)
    assert found.width_s == near(np.asarray([max(r) for r in REWARD[2:]]), abs=0.1)


def test_without_counters_the_wait_hides_the_dip() -> None:
    """Utilization reads 100 % there: each GPU's dip is its own rewards, the job's their mean."""
    evidence = World(generate=[6.0] * 12, reward=REWARD, levels=EMPTY, profiled=False).evidence()

    found = reward_dips(evidence)

    assert found is not None
    assert found.series == "utilization"
    assert found.width_s == near(np.asarray([sum(r) / 2 for r in REWARD[2:]]), abs=0.1)


def test_a_partial_dip_counts_against_its_own_floor() -> None:
    """Rewards at 15 % on one rank alone: a second of rewards is still a second."""
    reward = [[r[0]] for r in REWARD]
    evidence = World(generate=[6.0] * 12, reward=reward, levels=BUSY).evidence()

    found = reward_dips(evidence)

    assert found is not None
    assert found.width_s == near(np.asarray([r[0] for r in reward[2:]]), abs=0.15)


@pytest.mark.parametrize("gone", ["gpu", "spans"])
def test_no_dips_without_telemetry_or_steps(gone: str) -> None:
    """None, not zeros."""
    assert reward_dips(evidence_of(without(healthy(4).recording(), gone, "gpu_counters"))) is None


def test_no_dips_without_rewards_on_the_trainer_s_thread() -> None:
    """There is no gather that they could end at."""
    world = healthy(4)
    rows = world.rows() | {"spans": [r for r in world.spans() if "rewards" not in r["name"]]}

    assert reward_dips(evidence_of(memory(**rows))) is None


def test_the_stage_lies_between_generation_and_the_gather() -> None:
    """Both at the last rank."""
    low, high = stage_interval(World(generate=[4, 5], reward=[[3, 2], [3, 4]]).evidence())

    assert (low.tolist(), high.tolist()) == ([4, 13], [7, 17])


def test_drivers_are_those_of_the_slowest_rank() -> None:
    """Four jobs over two workers fill each reward: each lasts half of it, the work per slot is all of it."""
    found = drivers(World(generate=[6.0] * 12, reward=REWARD).evidence())
    slowest = np.asarray([max(r) for r in REWARD[2:]])

    assert found["longest_job"] == near(slowest / 2)
    assert found["total_work"] == near(slowest)
    assert found["makespan"] == near(slowest)


def test_no_jobs_no_drivers() -> None:
    """Nothing to compare with."""
    assert drivers(World(generate=[6.0] * 4, reward=REWARD[:4], jobs=0).evidence()) == {}


# Completion length


def logged(values: list[float | None], step: int | None = None) -> dict[str, list[Row]]:
    """The trainer logs a step's lengths under the number of the step after it."""
    name = "completions/mean_length"
    return {
        "scalars": [
            {"step": k + 1 if step is None else step, "name": name, "value": v, "t_ns": ns(k)}
            for k, v in enumerate(values)
        ]
    }


def lengths(tables: dict[str, list[Row]]) -> dict[str, list[float]]:
    """What is found for a run of three steps."""
    evidence = World(generate=[6.0] * 3, reward=REWARD[:3], jobs=0, profiled=False, tables=tables).evidence()
    return {name: values.tolist() for name, values in completion_length(evidence).items()}


def test_the_length_of_a_step_is_logged_at_its_end() -> None:
    """``global_step`` 1 is what step 0 produced."""
    assert lengths(logged([10.0, 30.0, 20.0])) == {"completion length": [10.0, 30.0, 20.0]}


@pytest.mark.parametrize(
    "tables",
    [
        {},
        logged([10.0, 30.0]),
        logged([10.0, None, 20.0]),
        logged([10.0, float("nan"), 20.0]),
        logged([7.0, 7.0, 7.0]),
        {"scalars": [{"step": None, "name": "completions/mean_length", "value": 3.0, "t_ns": 0}]},
        {"scalars": [{"step": 1, "name": "loss", "value": 3.0, "t_ns": 0}]},
    ],
    ids=["none", "short", "null", "nan", "constant", "no step", "other"],
)
def test_a_length_that_is_not_known_for_each_step_is_no_covariate(tables: dict[str, list[Row]]) -> None:
    """Nor is one that never changes (224 tokens, always)."""
    assert lengths(tables) == {}
