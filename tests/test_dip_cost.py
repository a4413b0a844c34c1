"""What the dips cost by phase: only what lies below half the baseline, split where phases change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.verdicts.dip_cost import chosen, lost_by_phase
from dipstick.verdicts.dips_are import dips_are
from dipstick.verdicts.evidence import Evidence
from records import Row, counters, memory, near, process, span, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence

PROCESSES = [process(900, rank=0, gpu=0)]
STEPS = 6
PERIOD = 0.5


def spans(names: Sequence[tuple[str, float]], count: int = STEPS) -> list[Row]:
    """Steps of phases in a row: ``[("vLLM.generate", 5), ("_calculate_rewards", 2)]``."""
    length = sum(seconds for _, seconds in names)
    rows = []
    for k in range(count):
        start = k * length
        rows.append(span("step", start, start + length, step=k))
        for name, seconds in names:
            rows.append(span(name, start, start + seconds, step=k))
            start += seconds
    return rows


def levels(parts: Sequence[tuple[float, float]], count: int = STEPS) -> list[float]:
    """Utilization of each window: ``[(99, 5), (10, 2)]`` is 99 % for 5 s and 10 % for 2 s, in each step."""
    return [level for _ in range(count) for level, seconds in parts for _ in range(round(seconds / PERIOD))]


def cost(names: Sequence[tuple[str, float]], parts: Sequence[tuple[float, float]]) -> dict[str | None, float]:
    recording = memory(spans=spans(names), gpu=utilization(levels(parts), period=PERIOD), processes=PROCESSES)
    return lost_by_phase(Evidence(recording, analyse(recording)))


ANATOMY = [("vLLM.generate", 5.0), ("_calculate_rewards", 2.0), ("backward", 3.0)]


def test_a_dip_in_one_phase_costs_what_is_missing_there() -> None:
    """89 points for 2 s, six times: 10.7 GPU-seconds."""
    assert cost(ANATOMY, [(99, 5), (10, 2), (99, 3)]) == {"reward": near(6 * 2 * 0.89)}


def test_training_at_60_percent_behind_a_dip_is_not_what_the_dip_costs() -> None:
    """Hysteresis keeps the dip open through it, longer than the rewards: it is still the rewards' dip."""
    assert cost(ANATOMY, [(99, 5), (10, 2), (60, 3)]) == {"reward": near(6 * 2 * 0.89)}


def test_a_dip_over_two_phases_is_split_where_they_meet() -> None:
    """2 s at 10 % in rewards and 1 s at 30 % in the weight sync behind them."""
    names = [("vLLM.generate", 5.0), ("_calculate_rewards", 2.0), ("sync_weights", 1.0), ("backward", 2.0)]

    found = cost(names, [(99, 5), (10, 2), (30, 1), (99, 2)])

    assert found == {"reward": near(6 * 2 * 0.89), "weight_sync": near(6 * 0.69)}


def test_a_window_over_two_phases_is_shared_by_time() -> None:
    """Rewards end in the middle of the last low window."""
    names = [("vLLM.generate", 5.0), ("_calculate_rewards", 1.75), ("sync_weights", 3.25)]

    found = cost(names, [(99, 5), (10, 2), (99, 3)])

    assert found == {"reward": near(6 * 1.75 * 0.89), "weight_sync": near(6 * 0.25 * 0.89)}


def test_without_dips_nothing_is_lost() -> None:
    """60 % in training is above half of the plateau."""
    assert cost(ANATOMY, [(99, 5), (95, 2), (60, 3)]) == {}


def test_a_gpu_without_phases_loses_for_nobody() -> None:
    """Its dips are counted, under no name."""
    recording = memory(gpu=utilization(levels([(99, 5), (10, 2), (99, 3)]), period=PERIOD))
    found = lost_by_phase(Evidence(recording, analyse(recording)))

    assert list(found) == [None]
    assert found[None] == near(6 * 2 * 0.89, rel=0.01)


def test_lost_seconds_of_several_gpus_add_up() -> None:
    """Two ranks, the same dips."""
    both = spans(ANATOMY) + [row | {"rank": 1, "pid": 901} for row in spans(ANATOMY)]
    rows = [utilization(levels([(99, 5), (10, 2), (99, 3)]), period=PERIOD, gpu=gpu) for gpu in (0, 1)]
    recording = memory(spans=both, gpu=rows[0] + rows[1], processes=[*PROCESSES, process(901, rank=1, gpu=1)])

    assert lost_by_phase(Evidence(recording, analyse(recording))) == {"reward": near(2 * 6 * 2 * 0.89)}


def test_a_wait_that_reads_full_is_a_dip_of_work() -> None:
    """With counters the hollow seconds are known, and they count; without, the graph shows no dip at all."""
    util = levels([(99, 5), (99, 2), (99, 3)])
    sm = levels([(90, 5), (0.5, 2), (90, 3)])
    dram = [50.0 if value > 50 else 0.0 for value in sm]
    profile = counters(sm, period=PERIOD, gr_active_pct=100.0, dram_active_pct=dram)
    tables = {"spans": spans(ANATOMY), "gpu": utilization(util, period=PERIOD), "processes": PROCESSES}
    blind, seeing = memory(**tables), memory(**tables, gpu_counters=profile)

    known = Evidence(seeing, analyse(seeing))

    assert {dip.series for dip in chosen(known)} == {"work"}
    assert lost_by_phase(known) == {"reward": near(6 * 2 * 0.99)}
    assert lost_by_phase(Evidence(blind, analyse(blind))) == {}


@pytest.mark.parametrize(("period", "word"), [(0.5, "none"), (15.0, "unknown")])
def test_no_dips_are_none_only_where_dips_could_be_seen(period: float, word: str) -> None:
    """At one sample in 15 s nobody can say so of steps of 10 s."""
    count = 30
    recording = memory(
        spans=spans(ANATOMY, count), gpu=utilization([90.0] * round(300 / period), period=period),
        processes=PROCESSES,
    )  # fmt: skip

    assert dips_are(Evidence(recording, analyse(recording))).word == word
