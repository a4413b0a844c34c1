"""Which process is slow: from the jobs table to the answer, the check's facts and the claim."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.errors import UsageError
from dipstick.judgement import Reason
from dipstick.verdicts import slow_workers
from dipstick.verdicts.answer import answer
from dipstick.verdicts.check_stragglers import check
from dipstick.verdicts.evidence import Evidence
from dipstick.verdicts.slow_workers import straggler_worker, the_slow_one, workers
from records import Row, boxcar, job, memory, near, process, span, utilization

STEPS = 24
PIDS = (31, 32)
Shape = dict[int, tuple[float, float]]
"""Step -> how long the two workers' two jobs take each."""


def lengths(slow: float = 1.0, every: int = 1) -> Shape:
    """Jobs of about 1 s; worker 32's are ``slow`` times as long in every n-th step."""
    rng = np.random.default_rng(3)
    drawn = rng.uniform(0.9, 1.1, (STEPS, 2))
    factor = np.where(np.arange(STEPS) % every == every - 1, slow, 1.0)
    return {k: (float(drawn[k, 0]), float(drawn[k, 1] * factor[k])) for k in range(STEPS)}


def evidence(shape: Shape, pids: tuple[int, ...] = PIDS) -> Evidence:
    """Steps: generation 6 s, rewards as long as the longer worker's two jobs, backward 2 s; one rank, one GPU."""
    spans: list[Row] = []
    jobs: list[Row] = []
    busy: list[tuple[float, float]] = []
    at = 0.0
    for k, each in shape.items():
        scored = at + 6 + 2 * max(each)
        spans += [
            span("step", at, scored + 2, step=k),
            span("vLLM.generate", at, at + 6, step=k),
            span("_calculate_rewards", at + 6, scored, step=k),
            span("backward", scored, scored + 2, step=k),
        ]
        jobs += [
            job(f"{k}-{i}-{n}", at + 6 + n * each[i], at + 6 + (n + 1) * each[i], pid=pids[i], step=k)
            for i in range(len(pids))
            for n in (0, 1)
        ]
        busy += [(at, at + 6), (scored, scored + 2)]
        at = scored + 2
    recording = memory(
        spans=spans, jobs=jobs, gpu=utilization(boxcar(busy, at)), processes=[process(900, rank=0, gpu=0)]
    )
    return Evidence(recording, analyse(recording))


def test_the_slow_process_is_found_and_the_other_cleared() -> None:
    """Twice as long in every step; slowest first."""
    slow, fast = workers(evidence(lengths(2.0)))

    assert (slow.pid, slow.rank, slow.test.verdict) == (32, 0, "yes")
    assert (fast.pid, fast.test.verdict) == (31, "no")
    assert slow.test.ratio.value == near(2.0, rel=0.05)


def test_the_widest_dips_are_the_slow_process_s() -> None:
    """Slow in every fourth step: a quarter of the 22 kept steps are the widest, and all end with it."""
    slow = the_slow_one(evidence(lengths(2.0, every=4)))

    assert slow is not None
    assert (slow.pid, slow.last_in_widest, slow.widest) == (32, 6, 6)
    assert slow.test.deep.value == near(2.0, rel=0.1)


def test_the_sentence_gives_both_ratios_and_the_count() -> None:
    """With the interval and the adjusted p."""
    (slow, _) = workers(evidence(lengths(2.0, every=4)))

    assert slow.because.startswith("jobs of worker 32 (rank 0) take 1.2")
    assert "times in the 6 widest dips, of which 6 end with it (rank sums, p = " in slow.because


def test_equal_workers_leave_nobody_to_name() -> None:
    """Neither in the answer."""
    found = evidence(lengths())

    assert the_slow_one(found) is None
    assert "the widest wait for" not in answer(found).headline


def test_the_answer_names_the_slow_one() -> None:
    """After what the dips are."""
    headline = answer(evidence(lengths(2.0, every=4))).headline

    assert (
        "; the widest wait for worker 32 of rank 0, whose jobs take 1.9 times the others' there." in headline
    )


def test_the_check_lists_every_worker() -> None:
    """Ready for the JSON."""
    facts = check(evidence(lengths(2.0))).facts["slow_workers"]

    assert [row["pid"] for row in facts] == [32, 31]
    assert set(facts[0]) == {
        "pid", "rank", "verdict", "ratio", "interval", "ratio_in_widest_dips", "last_in_widest_dips", "widest_dips",
        "p_adjusted",
    }  # fmt: skip


def test_attribution_names_processes_too() -> None:
    """Not their number in the replay."""
    found = check(evidence(lengths(3.0))).facts["attribution"]
    (by_worker,) = [row for row in found if row["peers"] == "worker"]

    assert {cause["name"] for cause in by_worker["causes"]} <= {"worker 31", "worker 32"}


@pytest.mark.parametrize(("pid", "word"), [(32, "yes"), (31, "no")])
def test_the_claim(pid: int, word: str) -> None:
    """With a receipt that compares the workers of that rank."""
    verdict, receipts = straggler_worker(evidence(lengths(2.0)), pid=pid)

    assert verdict.word == word
    assert [r.text.split(":")[0] for r in receipts] == ["worker 32", "worker 31"]
    assert receipts[0].query == (
        "SELECT AVG(t1_ns - t0_ns) / 1e9 FROM jobs WHERE pid = 32 AND rank = 0 AND step >= 0"
    )


def test_an_unknown_process_is_an_error_that_lists_the_known_ones() -> None:
    """Slowest first."""
    with pytest.raises(UsageError, match="no worker 99") as error:
        straggler_worker(evidence(lengths(2.0)), pid=99)
    assert "workers: 32, 31" in error.value.message()


def test_one_worker_alone_can_t_be_compared() -> None:
    """Unconfirmed, for want of a peer."""
    verdict, _ = straggler_worker(evidence(lengths(), PIDS[:1]), pid=31)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)


def test_without_jobs_there_are_no_workers() -> None:
    """And no facts."""
    recording = memory(spans=[span("step", 0, 10, step=0), span("vLLM.generate", 0, 9, step=0)])
    found = Evidence(recording, analyse(recording))

    assert workers(found) == ()
    assert slow_workers.facts(found) == []
