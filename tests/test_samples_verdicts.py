"""The verdicts on the two real recordings, against what is known of them; and every receipt derived again."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dipstick
from dipstick.analysis import frames
from dipstick.analysis.pipeline import analyse
from dipstick.cli.query import ask
from dipstick.judgement import REASONS, Check, Claim, Reason, Receipt
from dipstick.show.json import document, render
from dipstick.verdicts import claims, scorecard
from dipstick.verdicts.claims import TESTS
from dipstick.verdicts.evidence import Evidence
from records import near

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.model import Report
    from dipstick.recording.reader import Recording

BIG, SMALL = "h200x2-grpo", "h200x2-grpo-135m"
SAMPLES = (BIG, SMALL)
ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "seed_pipeline"


@cache
def recording(name: str) -> Recording:
    """A shipped sample."""
    return dipstick.load(f"sample:{name}")


@cache
def report(name: str) -> Report:
    """Its report."""
    return dipstick.explain(recording(name))


@cache
def evidence(name: str) -> Evidence:
    """What its claims are judged from."""
    return Evidence(recording(name), analyse(recording(name)))


def check(name: str, check_name: str) -> Check:
    """One of its checks."""
    return next(found for found in report(name).checks if found.name == check_name)


def words_of(judged: Report) -> list[str]:
    """The scorecard's verdicts."""
    return [claim.verdict.word for claim in judged.claims]


def judged(text: str, name: str = BIG) -> Claim:
    """One claim in words."""
    return claims.judge(evidence(name), [claims.from_words(text)])[0]


# The flagship: two H200, 31 steps


def test_the_seed_s_scorecard() -> None:
    """Six rows of the origin post's table without its repository, and whether high utilization means work."""
    assert words_of(report(BIG)) == ["yes", "yes", "yes", "unconfirmed", "unconfirmed", "partially", "no"]


def test_what_the_recording_cannot_tell_is_open_with_the_way_to_know() -> None:
    """Payload types, and whether workers wait for each other."""
    for row in report(BIG).claims[3:5]:
        assert row.verdict.reason == Reason.MISSING_SIGNAL
        assert "--repo PATH" in row.verdict.cheapest_experiment


def test_the_code_settles_the_two_open_rows() -> None:
    """With the example checkout: no tensors cross; workers do not wait for each other, but ranks do."""
    if not EXAMPLE.is_dir():
        pytest.skip("examples/ is not beside the tests (installed package)")
    with_code = dipstick.explain(recording(BIG), repo=EXAMPLE)

    assert words_of(with_code) == ["yes", "yes", "yes", "no", "partially", "partially", "no"]
    for row in with_code.claims[3:5]:
        code = [r for r in row.receipts if r.kind == "code"]
        assert code
        for receipt in code:
            assert receipt.origin == "static"
            assert receipt.line is not None
            assert 0 < receipt.line <= len((EXAMPLE / receipt.file).read_text().splitlines())
    assert words_of(with_code)[:3] == words_of(report(BIG))[:3]


def test_the_reward_dips_are_queued_work() -> None:
    """1.9 of 2 slots busy: total work drives their width, second for second; the longest job only goes with it."""
    found, stragglers = check(BIG, "stragglers"), report(BIG).stragglers

    assert report(BIG).answer.dips_are == "queued_work"
    assert (found.verdict.word, found.facts["driver"]) == ("partially", "total_work")
    assert stragglers is not None
    assert (stragglers.slots, stragglers.slots_busy) == (2, near(1.91, abs=0.02))
    work = next(row for row in found.facts["drivers"] if row["driver"] == "total_work")
    assert work["slope"] == near(1.0, abs=0.15)
    assert judged("dips_follow_queued_work").verdict.word == "yes"
    assert judged("dips_follow_longest_job").verdict.word == "partially"


def test_no_single_rank_is_the_straggler() -> None:
    """11 and 20 of 31 are not beyond chance; how many steps could tell is said."""
    rows = check(BIG, "stragglers").facts["last_arrivers"]

    assert [(row["rank"], row["last_in_steps"], row["steps"]) for row in rows] == [
        (0, near(11), 31),
        (1, near(20), 31),
    ]
    assert "yes" not in {row["verdict"] for row in rows}
    verdict = judged("straggler_rank rank=1").verdict
    assert verdict.word == "unconfirmed"
    assert verdict.min_detectable is not None
    assert verdict.steps_needed is not None


def test_memory_spikes_belong_to_generation_in_every_step() -> None:
    """31 on each GPU, at about 81 %."""
    levels = [row for row in check(BIG, "memory_spikes").facts["levels"] if row["phase"] == "generate"]

    assert [(row["gpu"], row["spikes"]) for row in levels] == [(0, 31), (1, 31)]
    assert [row["usual_pct"] for row in levels] == [near(81, abs=2)] * 2


def test_checkpoints_and_cache_clears_make_no_spikes() -> None:
    """Steps without them have the same spike (it is the weight sync's): no effect, no yes, and too few for a no."""
    candidates = {row["event"]: row for row in check(BIG, "memory_spikes").facts["candidates"]}

    for name in ("checkpoint", "cache_clear"):
        assert candidates[name]["verdict"] == "unconfirmed"
        assert candidates[name]["effect"] == near(0, abs=0.1)
    owners = {row["explained_by"] for row in check(BIG, "memory_spikes").facts["spikes"]}
    assert owners.isdisjoint({"checkpoint", "cache_clear"})


def test_more_workers_help_more_than_shorter_jobs() -> None:
    """A queue is shortened by slots; capping the longest twentieth of the jobs leaves it."""
    edits = {row["change"]: row for row in check(BIG, "phases").facts["what_if"]}
    slots = edits["1 more worker slot a rank"]
    cap = next(row for change, row in edits.items() if change.startswith("reward jobs capped at "))

    assert slots["reason"] is None
    assert slots["step_speedup"] > cap["step_speedup"]
    assert slots["interval"][0] > 1.1


def test_a_host_transfer_bottleneck_is_a_plain_no() -> None:
    """No window has host-to-device traffic of note, over 29 steps."""
    verdict = judged("transfers_force_waiting").verdict

    assert (verdict.word, verdict.effect) == ("no", near(0, abs=0.01))
    assert verdict.interval is not None
    assert verdict.interval[1] < 0.2


def test_generation_reads_ninety_nine_percent_and_rewards_sixteen() -> None:
    """As worked out by hand from the files."""
    assert judged("phase_utilization phase=generate at_least=97 at_most=100").verdict.word == "yes"
    assert judged("phase_utilization phase=reward at_least=12 at_most=22").verdict.word == "yes"
    assert judged("phase_utilization phase=gather_wait at_least=98").verdict.word == "yes"


def test_more_than_a_quarter_of_what_reads_as_busy_is_a_wait() -> None:
    """133 of 472 GPU-seconds."""
    verdict = report(BIG).claims[6].verdict

    assert verdict.effect == near(28.2, abs=1.0)
    assert "28 % are a rank waiting for another one at full utilization" in report(BIG).answer.headline


def test_memory_is_under_pressure_by_three_tenants() -> None:
    """85.8 GiB of 140.4; three processes a GPU."""
    verdict = judged("memory_is_under_pressure").verdict

    assert verdict.word == "yes"
    assert verdict.because == "61 % of the memory is allocated, 3 processes on a GPU"


# The small model: twelve steps


def test_rank_1_is_the_straggler_of_the_small_run() -> None:
    """Last in 11 of 12 steps: the exact test can tell from so few."""
    found = judged("straggler_rank rank=1", SMALL)

    assert found.verdict.word == "yes"
    assert found.verdict.p == near(0.0063, abs=0.0005)
    assert judged("straggler_rank rank=0", SMALL).verdict.word == "no"
    assert report(SMALL).answer.dips_are == "straggler_rank"
    assert "rank 1 is last in 11 of 12 steps" in report(SMALL).answer.headline


@pytest.mark.parametrize(
    "claim",
    [
        "phase_longest phase=reward", "dips_follow_longest_job", "dips_follow_queued_work", "drifts",
        "speedup change=more_slots times=1", "transfers_force_waiting",
    ],
)  # fmt: skip
def test_twelve_steps_are_too_few_for_most_claims(claim: str) -> None:
    """Ten after warm-up: open, for that reason, with what would have shown."""
    verdict = judged(claim, SMALL).verdict

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)
    assert verdict.min_detectable is not None
    assert verdict.cheapest_experiment == REASONS[Reason.LOW_N].fix


def test_a_launch_bound_decode_does_not_read_ninety_percent() -> None:
    """It reads a third."""
    verdict = report(SMALL).claims[1].verdict

    assert verdict.word == "no"
    assert verdict.effect == near(33, abs=2)


# What every verdict owes


def everything(name: str) -> Iterator[tuple[str, Check | Claim]]:
    """Checks, the scorecard, and each registered test with each sensible parameter."""
    yield from ((found.name, found) for found in report(name).checks)
    words = []
    for test in TESTS.values():
        required = {p.name for p in test.parameters if p.required}
        given = {
            frozenset({"phase"}): [f"phase={phase}" for phase in ("generate", "reward", "eval")],
            frozenset({"rank"}): ["rank=0", "rank=1"],
            frozenset({"pid"}): [f"pid={worker.pid}" for worker in (report(name).stragglers or ()).by_worker],  # type: ignore[union-attr] # both samples have jobs
        }.get(frozenset(required), [""])
        words += [f"{test.name} {parameters}".strip() for parameters in given]
    changes = (
        "change=more_slots",
        "change=cap_jobs",
        "change=balance",
        "change=overlap_reward",
        "phase=eval",
    )
    words += [f"speedup {change}" for change in changes]
    words += [
        f"drifts of={of}" for of in ("dip", "dips_per_minute", "reward", "gather_wait", "total_work", "eval")
    ]
    built_in = scorecard.scorecard()
    for one in claims.judge(evidence(name), [*built_in, *map(claims.from_words, words)]):
        yield one.say, one


@cache
def judgements(name: str) -> list[tuple[str, Check | Claim]]:
    """All of them, once."""
    return list(everything(name))


def numbers_in(row: tuple[Any, ...]) -> list[float]:
    """The numbers of a result's first row, in order."""
    return [float(value) for value in row if isinstance(value, int | float) and not isinstance(value, bool)]


@cache
def derived(query: str, name: str) -> float | None:
    """The first number that a query gives."""
    result = ask(recording(name), query)
    found = numbers_in(result.row(0)) if result.height else []
    return found[0] if found else None


def differs(receipt: Receipt, name: str) -> bool:
    """Whether the query gives another number than the receipt: by more than a millionth, or none."""
    again = derived(receipt.query, name)
    return again is None or not math.isclose(again, receipt.value or 0.0, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_receipt_with_a_query_is_derived_again(name: str) -> None:
    """By the code behind ``dipstick query``."""
    all_of_them = [(what, receipt) for what, found in judgements(name) for receipt in found.receipts]

    assert len(all_of_them) > 100
    assert [
        (what, r.query, r.value, derived(r.query, name))
        for what, r in all_of_them
        if r.query and differs(r, name)
    ] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_number_has_a_query(name: str) -> None:
    """Only code has none: it is in a file."""
    bare = [
        (what, r.text)
        for what, found in judgements(name)
        for r in found.receipts
        if not r.query and r.kind != "code"
    ]

    assert bare == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_check_has_receipts(name: str) -> None:
    """Both samples have all signals."""
    assert [found.name for found in report(name).checks if not found.receipts] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_open_verdict_says_why_and_what_would_settle_it(name: str) -> None:
    """And no other one has a reason: "partially" and "no" stand on their numbers."""
    for what, found in judgements(name):
        verdict = found.verdict
        assert (verdict.reason is not None) is (verdict.word == "unconfirmed"), what
        assert (verdict.cheapest_experiment != "") or verdict.word != "unconfirmed", what
        assert verdict.because, what
        assert not any(odd in verdict.because for odd in ("nan", "None", "inf ")), what


COUNTS = {
    "paid_most_for", "memory_is_under_pressure", "high_utilization_means_work", "synchronizing_workers_cause_dips",
    "large_moves_force_waiting", "workers_get_tensors", "copies_belong_to", "data_loading_is_the_bottleneck", "straggler_worker",
}  # fmt: skip
"""Tests that count, or combine others: no interval, so nothing to detect."""


@pytest.mark.parametrize("name", SAMPLES)
def test_every_tested_effect_that_is_no_yes_says_what_the_run_could_have_shown(name: str) -> None:
    """Where the test has an interval; a phase without any time has none."""
    silent = [
        what
        for what, found in judgements(name)
        if found.verdict.word != "yes"
        and found.verdict.interval is not None
        and found.verdict.min_detectable is None
        and getattr(found, "test", found) not in COUNTS
    ]

    assert silent == []


@pytest.mark.parametrize("name", SAMPLES)
def test_a_second_look_gives_the_same_verdicts(name: str) -> None:
    """Every draw is seeded: the whole report is equal, to the last digit."""
    again = dipstick.explain(dipstick.load(f"sample:{name}"))

    assert json.loads(render(again)) == json.loads(render(report(name)))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_json_of_a_receipt_carries_the_command_that_derives_it(name: str) -> None:
    """Ready to paste."""
    first = document(report(name))["checks"]["phases"]["receipts"][0]

    assert first["command"].startswith(f"dipstick query sample:{name} ")
    assert first["query"] in first["command"]


@pytest.mark.parametrize("table", frames.DERIVED)
def test_derived_tables_of_a_sample_have_rows(table: str) -> None:
    """Nothing that a receipt could ask for is empty."""
    assert ask(recording(BIG), f"SELECT COUNT(*) FROM {table}").item() > 0  # noqa: S608 - our own names
