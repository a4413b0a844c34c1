"""Recordings that lack nearly everything: every check and claim still answers, in honest words.

Each case goes through the writer, the reader, all checks, every registered claim and the renderers. No exception,
no "nan", nothing claimed that was not seen.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.errors import EmptyRecordingError
from dipstick.show import FORMATS
from dipstick.show.look import Look
from dipstick.show.terminal import render as on_screen
from dipstick.verdicts import claims
from dipstick.verdicts.claims import TESTS
from dipstick.verdicts.report import explain
from records import Row, memory, ns, on_disk, process, span, utilization
from worlds import World, evidence_of, healthy

if TYPE_CHECKING:
    from dipstick.judgement import Check, Claim
    from dipstick.model import Report
    from dipstick.recording.reader import Recording

Tables = dict[str, list[Row]]
HONEST = {"yes", "partially", "no", "unconfirmed"}


def world(steps: int = 12, **changes: Any) -> Tables:
    """A healthy run's tables."""
    return healthy(steps, **changes).rows()


def only(tables: Tables, *names: str) -> Tables:
    """A part of them."""
    return {name: rows for name, rows in tables.items() if name in names}


def changed(tables: Tables, name: str, **columns: Any) -> Tables:
    """Every row of a table with other values."""
    return tables | {name: [r | columns for r in tables[name]]}


def tiny() -> Tables:
    """A fifth of a second: one step, one sample."""
    spans = [span("step", 0, 0.2, step=0), span("vLLM.generate", 0, 0.1, step=0)]
    return {"spans": spans, "gpu": utilization([50.0]), "processes": [process(900, rank=0, gpu=0)]}


def apart() -> Tables:
    """Two loops that run on without waiting for each other: asynchronous training."""
    one = healthy(12)
    late = [
        r | ({"t0_ns": r["t0_ns"] + ns(3), "t1_ns": r["t1_ns"] + ns(3)} if r["rank"] else {})
        for r in one.spans()
    ]
    return one.rows() | {"spans": late}


def threaded() -> Tables:
    """Rewards in a thread of their own, while the next generation runs."""
    spans = [
        row
        for k in range(12)
        for row in (
            span("step", 10 * k, 10 * k + 10, step=k),
            span("vLLM.generate", 10 * k, 10 * k + 5, step=k),
            span("backward", 10 * k + 5, 10 * k + 10, step=k),
            span("reward", 10 * k + 5, 10 * k + 14, step=k, tid=77),
        )
    ]
    return {
        "spans": spans,
        "gpu": utilization(([90.0] * 25 + [20.0] * 25) * 12),
        "processes": [process(900, rank=0, gpu=0)],
    }


def restarted() -> Tables:
    """Step numbers that start again at 4."""
    tables = world()
    return tables | {
        "spans": [r | {"step": r["step"] if r["step"] < 8 else r["step"] - 4} for r in tables["spans"]]
    }


def holes() -> Tables:
    """Rank 1 lost half of its steps."""
    tables = world()
    return tables | {"spans": [r for r in tables["spans"] if r["rank"] == 0 or r["step"] % 2]}


CASES: dict[str, tuple[Any, str, str]] = {
    # name: tables, what the dips are, the words of alignment, phases, memory_spikes, stragglers, trends
    "a fifth of a second": (tiny, "unknown", "uuuuu"),
    "one sample": (lambda: {"gpu": utilization([50.0])}, "unknown", "uuuuu"),
    "samples without time between them": (lambda: {"gpu": [r | {"t_ns": 5} for r in utilization([50.0] * 3)]}, "unknown", "uuuuu"),
    "GPU only": (lambda: only(world(), "gpu"), "unknown", "uuuuu"),
    "GPU and counters": (lambda: only(world(), "gpu", "gpu_counters"), "unknown", "uuuuu"),
    "spans only": (lambda: only(world(), "spans"), "unknown", "uuuuu"),
    "spans and jobs": (lambda: only(world(), "spans", "jobs"), "unknown", "uuuuu"),
    "one rank": (lambda: world(reward=[[2.0]] * 12), "queued_work", "yuuuu"),
    "one step": (lambda: world(1), "queued_work", "uuuuu"),
    "two steps": (lambda: world(2), "queued_work", "uuuuu"),
    "no jobs": (lambda: world(jobs=0), "step_cycle", "yuuuu"),
    "no counters": (lambda: world(profiled=False), "queued_work", "yuuuu"),
    "utilization is never a number": (lambda: changed(world(), "gpu", util_pct=float("nan")), "queued_work", "yuuuu"),
    "counters are never a number": (lambda: changed(world(), "gpu_counters", sm_active_pct=float("nan")), "queued_work", "yuuuu"),
    "no window": (lambda: changed(world(), "gpu", window_ns=None), "queued_work", "yuuuu"),
    "a window of no length": (lambda: changed(world(), "gpu", window_ns=0), "queued_work", "yuuuu"),
    "a rank without spans": (lambda: world() | {"spans": [r for r in world()["spans"] if r["rank"] == 0]}, "unknown", "yuuuu"),
    "a rank without steps": (lambda: world() | {"spans": [*(r for r in world()["spans"] if r["rank"] == 0), span("reward", 4, 9, rank=1)]}, "unknown", "uuuuu"),
    "no step numbers": (lambda: changed(world(), "spans", step=None), "queued_work", "uuuuu"),
    "steps and nothing in them": (lambda: only(world(), "gpu", "processes") | {"spans": [r for r in world()["spans"] if r["name"] == "step"]}, "unknown", "uuuuu"),
    "loops that run apart": (apart, "queued_work", "uuuuu"),
    "rewards in a thread": (threaded, "step_cycle", "uuuuu"),
    "a restart": (restarted, "queued_work", "yuuuu"),
    "a rank that lost steps": (holes, "unknown", "uuuuu"),
    "numbers that count down": (lambda: changed(world(), "spans") | {"spans": [r | {"step": 20 - r["step"]} for r in world()["spans"]]}, "queued_work", "uuuuu"),
    "jobs of no length": (lambda: world() | {"jobs": [r | {"t1_ns": r["t0_ns"]} for r in world()["jobs"]]}, "step_cycle", "yuuuu"),
    "every rank the same": (lambda: world(reward=[[2.0, 2.0]] * 12), "queued_work", "yuuuu"),
}  # fmt: skip
WORDS = {"y": "yes", "p": "partially", "n": "no", "u": "unconfirmed"}


@cache
def folder() -> Path:
    """Where the cases are written; gone with the process."""
    kept.append(TemporaryDirectory())
    return Path(kept[-1].name)


kept: list[TemporaryDirectory[str]] = []


@cache
def recording_of(name: str) -> Recording:
    """The case, written and read back."""
    tables: Tables = CASES[name][0]()
    return on_disk(folder() / name.replace(" ", "_"), **tables)


@cache
def report_of(name: str) -> Report:
    """Through all checks."""
    return explain(recording_of(name))


@pytest.mark.parametrize("name", CASES)
def test_every_check_answers_in_an_honest_word(name: str) -> None:
    """What is not seen is open, what is seen is said."""
    report = report_of(name)

    assert {check.name: check.verdict.word for check in report.checks} == {
        check.name: WORDS[letter] for check, letter in zip(report.checks, CASES[name][2], strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_the_dips_are_called_what_is_known_of_them(name: str) -> None:
    """Nothing where nothing is known."""
    assert report_of(name).answer.dips_are == CASES[name][1]


@pytest.mark.parametrize("name", CASES)
def test_every_sentence_is_one(name: str) -> None:
    """No nan, no None, no infinity; what is open says why and what would settle it."""
    report = report_of(name)

    assert not odd(report.answer.headline)
    found: tuple[Check | Claim, ...] = (*report.checks, *report.claims)
    for one in found:
        verdict = one.verdict
        assert verdict.because
        assert not odd(verdict.because), verdict.because
        assert (verdict.reason is not None) is (verdict.word == "unconfirmed")
        assert verdict.word != "unconfirmed" or verdict.cheapest_experiment
        assert not any(odd(receipt.text) for receipt in one.receipts)


def odd(text: str) -> bool:
    """Whether a number or a name in it is none."""
    return any(word.strip("[](),;:%+-") in {"nan", "None", "inf"} for word in text.split())


@pytest.mark.parametrize("name", CASES)
def test_every_format_can_be_written(name: str) -> None:
    """Screen, page, Markdown, JSON."""
    report = report_of(name)

    assert on_screen(report, Look(80))
    assert on_screen(report, Look(80), full=True)
    assert all(kind.render(report) for kind in FORMATS.values())


@pytest.mark.parametrize("name", CASES)
def test_every_registered_claim_can_be_asked(name: str) -> None:
    """With each kind of parameter; a rank or worker that is not there is a usage error, and nothing else is."""
    evidence = evidence_of(recording_of(name))
    words = []
    for test in TESTS.values():
        required = [p.name for p in test.parameters if p.required]
        if required == ["phase"]:
            words += [
                f"{test.name} phase={phase}"
                for phase in ("generate", "reward", "gather_wait", "eval", "unattributed")
            ]
        elif not required:
            words.append(test.name)
    words += [
        f"drifts of={of}"
        for of in ("dip", "dips_per_minute", "reward", "gather_wait", "total_work", "longest_job")
    ]
    words += [
        f"speedup change={change}" for change in ("more_slots", "cap_jobs", "balance", "overlap_reward")
    ]
    words += ["speedup phase=eval", "speedup phase=generate times=1000"]

    for claim in claims.judge(evidence, [claims.from_words(text) for text in words]):
        assert claim.verdict.word in HONEST
        assert not odd(claim.verdict.because), (claim.say, claim.verdict.because)


@pytest.mark.parametrize(
    "tables", [{}, {"jobs": World([4], [[2]]).reward_jobs()}, {"processes": [process(1, rank=0, gpu=0)]}]
)
def test_nothing_to_explain_is_said(tables: Tables) -> None:
    """Empty tables, or jobs alone."""
    with pytest.raises(EmptyRecordingError, match="neither GPU utilization nor phase spans"):
        explain(memory(**tables))
