"""Whose spikes: twins share them, an ordinary weight sync owns its own, and coarse samples own none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.judgement import Reason
from dipstick.verdicts.check_spikes import check
from dipstick.verdicts.evidence import Evidence
from records import HOST, Row, memory, ns, process, span, utilization

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.judgement import Check

STEPS, STEP_S, PERIOD = 40, 10.0, 0.2
SYNC_S = 0.6
PROCESSES = [process(900, rank=0, gpu=0)]


def start_of(k: int) -> float:
    """Steps of 9.6 to 10.4 s, so that they are no clock."""
    return STEP_S * k + 0.4 * ((k * 7) % 5 - 2) / 2


def spans() -> list[Row]:
    """Weight sync 0.6 s, generation 5 s, rewards, backward for the last 3 s."""
    rows = []
    for k in range(STEPS):
        start, end = start_of(k), start_of(k + 1)
        names = [("sync_weights", start, start + SYNC_S), ("vLLM.generate", start + SYNC_S, start + 5.6),
                 ("_calculate_rewards", start + 5.6, end - 3), ("backward", end - 3, end)]  # fmt: skip
        rows += [span("step", start, end, step=k), *(span(*name, step=k) for name in names)]
    return rows


def events(name: str, at: Callable[[int], float], steps: range) -> list[Row]:
    """An event of 0.2 s in some steps."""
    return [
        {
            "host": HOST,
            "rank": 0,
            "pid": 900,
            "name": name,
            "t0_ns": ns(at(k)),
            "t1_ns": ns(at(k) + 0.2),
            "step": k,
        }
        for k in steps
    ]


def memory_access(*extra: tuple[float, float, float]) -> list[float]:
    """Percent by window: sync 35, generation 81, rewards 3, backward 25; and (start, end, level) on top."""
    levels = []
    for i in range(round(start_of(STEPS) / PERIOD)):
        t = (i + 0.5) * PERIOD
        k = max(n for n in range(STEPS) if start_of(n) <= t or n == 0)
        since, left = t - start_of(k), start_of(k + 1) - t
        usual = 35.0 if since < SYNC_S else 81.0 if since < 5.6 else 25.0 if left < 3 else 3.0
        levels.append(next((level for a, b, level in extra if a <= t < b), usual))
    return levels


def checked(levels: list[float], recorded: list[Row], period: float = PERIOD) -> Check:
    gpu = utilization([90.0] * len(levels), period=period, mem_util_pct=levels)
    recording = memory(spans=spans(), gpu=gpu, events=recorded, processes=PROCESSES)
    return check(Evidence(recording, analyse(recording)))


def owners(found: Check) -> dict[Any, int]:
    """How many spikes belong to whom."""
    names = [spike["explained_by"] for spike in found.facts["spikes"]]
    return {name: names.count(name) for name in set(names)}


def in_rewards(k: int) -> float:
    """A second into the rewards of a step."""
    return start_of(k) + 6.4


CLEARED = range(3, STEPS, 4)
SPIKES = [(in_rewards(k), in_rewards(k) + 0.8, 75.0) for k in CLEARED]


def test_an_event_that_makes_spikes_owns_them() -> None:
    """Cache clears in every fourth step, a spike after each; checkpoints elsewhere stay innocent."""
    recorded = events("cache_clear", lambda k: in_rewards(k) - 0.2, CLEARED)
    recorded += events("checkpoint", lambda k: in_rewards(k) - 0.2, range(5, STEPS, 4))

    found = checked(memory_access(*SPIKES), recorded)

    assert found.verdict.word == "yes"
    assert owners(found)["cache_clear"] == len(CLEARED)
    assert "checkpoint" not in owners(found)


def test_events_that_are_never_apart_own_them_together() -> None:
    """To give the spikes to one of them would be a guess."""
    recorded = events("cache_clear", lambda k: in_rewards(k) - 0.2, CLEARED)
    recorded += events("checkpoint", lambda k: in_rewards(k) - 0.5, CLEARED)

    found = checked(memory_access(*SPIKES), recorded)

    assert owners(found)["cache_clear or checkpoint"] == len(CLEARED)
    assert not owners(found).keys() & {"cache_clear", "checkpoint"}
    assert {row["reason"] for row in found.facts["candidates"]} == {"COLLINEAR"}


def test_spikes_of_no_event_belong_to_nobody() -> None:
    """The same spikes, and only checkpoints that come two steps later."""
    recorded = events("checkpoint", in_rewards, range(5, STEPS, 4))

    found = checked(memory_access(*SPIKES), recorded)

    assert owners(found)[None] == found.facts["unexplained"] == len(CLEARED)


def test_a_weight_sync_at_its_usual_level_is_no_riddle() -> None:
    """Where rewards are missing around it, the quiet neighbourhood makes it stand out."""
    quiet = (start_of(20) + SYNC_S, start_of(29), 0.0)
    recorded = events("weight_sync", start_of, range(STEPS))

    found = checked(memory_access(quiet), recorded)

    assert found.facts["unexplained"] == 0
    assert owners(found).get("weight_sync", 0) > 0


def test_a_weight_sync_far_above_its_usual_level_is_one() -> None:
    """One sync at 95 % where they read 35 %: something else was there."""
    strange = (start_of(20), start_of(20) + SYNC_S, 95.0)
    recorded = events("weight_sync", start_of, range(STEPS))

    found = checked(memory_access(strange), recorded)

    lonely = [spike for spike in found.facts["spikes"] if spike["explained_by"] is None]
    assert [round(spike["peak_pct"]) for spike in lonely] == [95]


def averaged(levels: list[float], period: float) -> list[float]:
    """What a counter reads that means over ``period`` seconds."""
    wide = round(period / PERIOD)
    return [sum(levels[i : i + wide]) / wide for i in range(0, len(levels) - wide + 1, wide)]


@pytest.mark.parametrize("period", [5.0, 15.0])
def test_coarse_samples_show_no_spikes_but_what_an_event_adds(period: float) -> None:
    """Cache clears that came with spikes stand out of the samples that see them; no spike is counted."""
    found = checked(
        averaged(memory_access(*SPIKES), period), events("cache_clear", in_rewards, CLEARED), period
    )

    assert found.verdict.word == "partially"
    assert found.verdict.because.startswith(
        f"one sample every {period:.0f} s can't show spikes of a few seconds, nor when they began; "
        "the samples that see a cache_clear read "
    )
    assert [row["verdict"] for row in found.facts["candidates"]] == ["yes"]


@pytest.mark.parametrize("period", [5.0, 15.0])
def test_coarse_samples_say_why_where_no_event_stands_out(period: float) -> None:
    """Not "memory-access time has no spikes"."""
    found = checked(averaged(memory_access(), period), events("cache_clear", in_rewards, CLEARED), period)

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.COARSE)
    assert found.verdict.because == (
        f"one sample every {period:.0f} s can't show spikes of a few seconds, nor when they began"
    )
