"""Check 3: spikes that belong to a phase, to an event, to nothing; and telemetry that cannot tell."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.judgement import REASONS, Reason
from dipstick.phases import CODE
from dipstick.verdicts import check_spikes
from dipstick.verdicts.spikes_exposed import without_suspects
from records import HOST, Row, memory, near, ns, process, utilization
from worlds import PERIOD, World, event, evidence_of, healthy, varied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.judgement import Check
    from dipstick.verdicts.evidence import Evidence

ACCESS = {"generate": 80.0, "reward": 0.0, "wait": 0.0, "train": 10.0}
QUIET = dict.fromkeys(ACCESS, 0.0)
Spike = tuple[float, float]
STEPS = 40


def run(
    spikes: Sequence[Spike] = (),
    *,
    steps: int = STEPS,
    access: dict[str, float] | None = None,
    events: Sequence[Row] = (),
    ranks: int = 2,
    **tables: list[Row],
) -> Evidence:
    """A healthy loop whose memory is read at ``access`` in each phase, and at 90 % more during each spike."""
    world = healthy(steps, reward=varied(steps, ranks), jobs=0, profiled=False)
    gpu: list[Row] = []
    for rank in range(ranks):
        read = np.asarray(world.mixed(rank, access or QUIET))
        edges = np.arange(len(read) + 1) * PERIOD
        for start, end in spikes:
            inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None) / PERIOD
            read = np.minimum(read + 90 * inside, 100.0)
        gpu += utilization(world.mixed(rank, world.levels), gpu=rank, mem_util_pct=[float(x) for x in read])
    return evidence_of(memory(**world.rows() | {"gpu": gpu, "events": list(events)} | tables))


@cache
def edges() -> list[float]:
    """When the steps start."""
    return healthy(STEPS, reward=varied(STEPS)).starts


def checkpoints(every: int, *, at: float = 0.5, length: float = 0.6) -> tuple[list[Spike], list[Row]]:
    """A checkpoint in every ``every``-th step, and the spike that it makes."""
    when = [edges()[k] + at for k in range(STEPS) if k % every == every - 1]
    return [(t + 0.1, t + length) for t in when], [event("checkpoint", t, t + length) for t in when]


def candidates(found: Check) -> dict[str, dict[str, Any]]:
    """The schedules by name."""
    return {row["event"]: row for row in found.facts["candidates"]}


# Phases


@cache
def decode() -> Check:
    """Memory is read at 80 % while tokens are generated."""
    return check_spikes.check(run(access=ACCESS))


def test_the_decode_of_each_step_belongs_to_generation() -> None:
    """Forty of them on each GPU: the anatomy of the step, and nothing to chase."""
    found = decode()

    assert found.verdict.word == "yes"
    assert {row["explained_by"] for row in found.facts["spikes"]} == {"generate"}
    assert [row["spikes"] for row in found.facts["levels"] if row["phase"] == "generate"] == [STEPS, STEPS]
    assert [row["usual_pct"] for row in found.facts["levels"] if row["phase"] == "generate"] == near([80, 80])
    assert (found.facts["unexplained"], found.facts["unexplained_spikes"]) == (0, [])
    assert found.verdict.because == "80 spikes on 2 GPUs: 80 belong to generate"


def test_receipts_give_time_and_height() -> None:
    """The five highest of each GPU."""
    receipts = decode().receipts

    assert [r.gpu for r in receipts] == [0] * 5 + [1] * 5
    assert {r.value for r in receipts} == {80.0}
    assert receipts[0].text.endswith("in generate, belongs to generate")


# Events


@cache
def saved() -> Check:
    """A checkpoint in every fourth step makes a spike each time; a cache clear in every seventh makes none."""
    spikes, events = checkpoints(4)
    clears = [event("cache_clear", edges()[k] + 3.0, edges()[k] + 3.1) for k in range(6, STEPS, 7)]
    return check_spikes.check(run(spikes, events=events + clears))


def test_spikes_at_checkpoints_and_nowhere_else_are_theirs() -> None:
    """Ten of ten fired, none of thirty others."""
    found = saved()

    assert found.verdict.word == "yes"
    row = candidates(found)["checkpoint"]
    assert (row["verdict"], row["fired"], row["recall"]) == ("yes", 10, 1.0)
    assert row["effect"] == near(1.0)
    assert row["p_adjusted"] < 0.001
    assert {spike["explained_by"] for spike in found.facts["spikes"]} == {"checkpoint"}


def test_an_event_without_spikes_is_not_accepted() -> None:
    """Five cache clears: none has a spike, but "no" takes sixteen (methods 0.8)."""
    row = candidates(saved())["cache_clear"]

    assert row["verdict"] == "unconfirmed"
    assert row["recall"] == 0.0
    assert row["detectable"] is not None


def test_the_same_checkpoint_reported_by_two_ranks_is_one() -> None:
    """A tenth of a second apart."""
    spikes, events = checkpoints(4)
    twice = events + [
        r | {"rank": 1, "t0_ns": r["t0_ns"] + ns(0.1), "t1_ns": r["t1_ns"] + ns(0.1)} for r in events
    ]

    assert candidates(check_spikes.check(run(spikes, events=twice)))["checkpoint"]["fired"] == 10


def test_twins_are_named_together() -> None:
    """A cache clear goes with every checkpoint: nobody can tell which of the two it was."""
    spikes, events = checkpoints(4)
    twins = events + [r | {"name": "cache_clear", "t0_ns": r["t0_ns"] + ns(0.2)} for r in events]

    found = check_spikes.check(run(spikes, events=twins))

    assert {row["verdict"] for row in candidates(found).values()} <= {"partially", "unconfirmed"}
    assert {spike["explained_by"] for spike in found.facts["spikes"]} <= {"cache_clear or checkpoint", None}


def test_an_instant_event_has_no_end() -> None:
    """``t1_ns`` is null."""
    spikes, events = checkpoints(4)
    instants = [r | {"t1_ns": None} for r in events]

    assert candidates(check_spikes.check(run(spikes, events=instants)))["checkpoint"]["verdict"] == "yes"


@pytest.mark.parametrize("name", ["'; DROP TABLE gpu; --", "$(touch x)", "\x1b[31m", "a\nb", "☃"])
def test_an_event_may_be_called_anything(name: str) -> None:
    """Its name is data."""
    spikes, events = checkpoints(4)
    found = check_spikes.check(run(spikes, events=[r | {"name": name} for r in events]))

    assert set(candidates(found)) == {name}
    assert {spike["explained_by"] for spike in found.facts["spikes"]} == {name}


# Spikes that match nothing


@cache
def stray() -> Check:
    """Twelve spikes at drawn times, and checkpoints elsewhere; a process works on GPU 0 around each of them."""
    when = np.sort(np.random.default_rng(7).uniform(30, edges()[-1] - 10, 12))
    _, events = checkpoints(4)
    busy = [
        {
            "host": HOST,
            "gpu": 0,
            "t_ns": ns(t + 0.2),
            "window_ns": ns(1),
            "pid": 4711,
            "sm_pct": 3.0,
            "mem_pct": 60.0,
        }
        for t in when
    ]
    who = [process(900 + r, rank=r, gpu=r) for r in range(2)] + [process(4711, rank=None, gpu=0, role="cron")]
    evidence = run([(float(t), float(t) + 0.5) for t in when], events=events, gpu_process=busy, processes=who)
    return check_spikes.check(evidence)


def test_spikes_that_match_no_schedule_are_listed_for_the_chase() -> None:
    """With time, GPU, phase and what was running."""
    found = stray()
    chase = found.facts["unexplained_spikes"]

    assert found.verdict.word in {"no", "unconfirmed"}
    assert found.facts["unexplained"] == len(chase) == 24
    running = {gpu: next(row["running"] for row in chase if row["gpu"] == gpu) for gpu in (0, 1)}
    assert running == {0: [{"pid": 4711, "role": "cron", "mem_pct": 60.0}], 1: []}
    assert "24 match nothing" in found.verdict.because


def test_what_would_settle_it_is_said() -> None:
    """A name for what runs then, or more fired events."""
    verdict = stray().verdict

    assert verdict.cheapest_experiment != ""
    assert (verdict.min_detectable is not None) or verdict.word == "no"


def test_a_beat_of_unexplained_spikes_is_a_hint() -> None:
    """Every 45 s, whatever the step does: exploratory, never a verdict."""
    when = np.arange(20.0, edges()[-1] - 5, 45.0)
    found = check_spikes.check(run([(float(t), float(t) + 0.5) for t in when]))

    assert found.facts["cadence"]["exploratory"] is True
    assert found.facts["cadence"]["period_s"] == near(45, rel=0.1)
    assert found.verdict.word == "no"


# What can't be told


def test_memory_access_that_was_not_recorded_is_missing() -> None:
    """Not zero."""
    found = check_spikes.check(healthy(4).evidence())

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert found.verdict.cheapest_experiment == "record utilization.memory beside utilization.gpu"
    assert found.facts["spikes"] is None


def test_no_spikes_need_no_explanation() -> None:
    """Memory is never read; the number of samples says how well that is known."""
    found = check_spikes.check(run())

    assert found.verdict.word == "yes"
    assert found.verdict.because.startswith("memory-access time has no spikes to explain in ")
    assert found.facts["spikes"] == []


def test_a_handful_of_samples_don_t_tell_what_is_usual() -> None:
    """Ten windows."""
    found = check_spikes.check(evidence_of(memory(gpu=utilization([50.0] * 10, mem_util_pct=0.0))))

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert found.verdict.because == "10 samples of memory-access time don't tell what is usual"


def test_samples_every_fifteen_seconds_can_t_show_spikes() -> None:
    """None seen is not none there."""
    world = World(generate=[60.0] * 20, reward=[[20.0, 20.0]] * 20, jobs=0, profiled=False)
    gpu = [r for g in range(2) for r in utilization([90.0, 20.0] * 54, gpu=g, period=15, mem_util_pct=5.0)]
    found = check_spikes.check(evidence_of(memory(**world.rows() | {"gpu": gpu})))

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.COARSE)
    assert (
        found.verdict.because
        == "one sample every 15 s can't show spikes of a few seconds, nor when they began"
    )


def coarse(name: str, height: float, every: int = 4, steps: int = 80) -> Check:
    """Samples of 5 s each; an event of 4 s in every ``every``-th step of about 50 s adds so much to them."""
    generate = [float(30 + (k * 7) % 11) for k in range(steps)]
    world = World(generate=generate, reward=[[8.0]] * steps, train=6.0, jobs=0, profiled=False)
    when = [t + 2.0 for k, t in enumerate(world.starts[:-1]) if k % every == every - 1]
    edges = np.arange(0.0, world.starts[-1], 5.0)
    inside = sum(np.clip(np.minimum(edges + 5, t + 4) - np.maximum(edges, t), 0, None) for t in when) / 5
    noise = np.random.default_rng(3).normal(0, 1.0, len(edges))
    read = [float(x) for x in np.clip(20 + height * np.asarray(inside) + noise, 0, 100)]
    gpu = utilization([90.0] * len(read), period=5.0, mem_util_pct=read)
    events = [event(name, t, t + 4) for t in when]
    return check_spikes.check(evidence_of(memory(**world.rows() | {"gpu": gpu, "events": events})))


def test_coarse_samples_show_what_an_event_adds_to_them() -> None:
    """Not a spike to be seen; the samples that overlap a checkpoint read 50 points more of its time."""
    found = coarse("checkpoint", 50.0)

    row = candidates(found)["checkpoint"]
    assert (found.verdict.word, row["verdict"]) == ("partially", "yes")
    assert row["effect"] == near(50, abs=4)
    assert row["interval"][0] < 50 < row["interval"][1]
    assert (row["precision"], row["recall"]) == (None, None)
    assert "the samples that see a checkpoint read " in found.verdict.because
    assert found.verdict.cheapest_experiment == REASONS[Reason.COARSE].fix


def test_an_event_that_adds_nothing_is_ruled_out_and_the_check_stays_open() -> None:
    """What it could have added unseen is said."""
    found = coarse("cache_clear", 0.0)

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.COARSE)
    assert candidates(found)["cache_clear"]["verdict"] == "no"
    assert found.verdict.min_detectable is not None
    assert found.verdict.min_detectable < 10


def test_too_few_coarse_samples_see_an_event_to_judge_it() -> None:
    """Four of them in twelve steps: below the exposure gate."""
    row = candidates(coarse("checkpoint", 50.0, every=3, steps=12))["checkpoint"]

    assert (row["verdict"], row["reason"]) == ("unconfirmed", "COARSE")


@pytest.mark.parametrize(
    ("phases_", "suspects", "expected"),
    [
        (("generate", "checkpoint", "reward"), ["checkpoint"], ("generate", "generate", "reward")),
        (("checkpoint", "checkpoint", "reward"), ["checkpoint"], ("unattributed", "unattributed", "reward")),
        (("generate", "weight_sync", "checkpoint"), ["checkpoint", "weight_sync"], ("generate",) * 3),
        (("generate", "reward"), ["no such phase"], ("generate", "reward")),
    ],
)
def test_a_suspected_phase_belongs_to_the_one_before_it(
    phases_: tuple[str, ...], suspects: list[str], expected: tuple[str, ...]
) -> None:
    """So that the event's height is what it adds to its surroundings."""
    codes = np.asarray([CODE[name] for name in phases_])

    assert without_suspects(codes, suspects).tolist() == [CODE[name] for name in expected]


def test_without_steps_no_schedule_can_be_tested() -> None:
    """GPU samples alone: the spikes are seen, whose they are is not known."""
    read = [90.0 if i % 100 < 3 else 0.0 for i in range(1000)]
    found = check_spikes.check(evidence_of(memory(gpu=utilization([50.0] * 1000, mem_util_pct=read))))

    assert (found.verdict.word, found.verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert found.verdict.because.endswith("without steps no schedule can be tested")
    assert found.facts["candidates"] is None
    assert found.facts["unexplained"] == 10


def test_the_list_in_the_json_is_cut_and_the_count_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of a day must stay readable."""
    monkeypatch.setattr(check_spikes, "SHOWN", 7)
    found = check_spikes.check(run(access=ACCESS, steps=12))

    assert (len(found.facts["spikes"]), found.facts["spikes_in_all"]) == (7, 24)
