"""Phases that were recorded are not "missing": where steps are too few, that is said, and what would be enough."""

from __future__ import annotations

import pytest

from dipstick.judgement import Reason
from dipstick.verdicts import check_alignment, check_phases, check_spikes, check_trends
from dipstick.verdicts.answer import answer
from dipstick.verdicts.bill import amount
from dipstick.verdicts.claim_mechanisms import high_utilization_means_work
from dipstick.verdicts.claim_phases import phase_longest
from records import Row, counters, memory, span, utilization
from worlds import evidence_of

ONE_STEP = [
    span("step", 0, 10, step=0),
    span("vLLM.generate", 0, 6, step=0),
    span("GRPOTrainer._calculate_rewards", 6, 9, step=0),
]
GPU = utilization([90] * 60 + [10] * 40)


def judged(spans: list[Row]) -> list[tuple[Reason | None, str]]:
    """Reason and first words of everything that takes a loop of steps."""
    evidence = evidence_of(memory(spans=spans, gpu=GPU))
    verdicts = [check.check(evidence).verdict for check in (check_alignment, check_phases, check_trends)]
    verdicts.append(phase_longest(evidence, phase="generate")[0])
    return [(verdict.reason, verdict.because.partition(":")[0]) for verdict in verdicts]


def test_one_step_with_phases_is_too_few() -> None:
    """Its phases stand in the table; saying that none were recorded would contradict it."""
    assert judged(ONE_STEP) == [(Reason.LOW_N, "too few whole steps")] * 4


def test_phases_without_steps_lack_the_steps() -> None:
    """Spans that no step holds."""
    assert (
        judged([span("vLLM.generate", 0, 5)])
        == [(Reason.MISSING_SIGNAL, "no steps with phases were recorded")] * 4
    )


def test_steps_without_phases_lack_the_phases() -> None:
    """Step times of a log."""
    assert (
        judged([span("step", 0, 5, step=0), span("step", 5, 10, step=1)])
        == [(Reason.MISSING_SIGNAL, "no steps with phases were recorded")] * 4
    )


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(77.7, 405.0, "78"), (4.2, 9.99, "4.2"), (0.34, 1.23, "0.3"), (0.34, 0.55, "0.3"), (0.034, 0.055, "0.034"), (0.001, 0.006, "0.001"), (0.0, 0.0, "0.000")],
)  # fmt: skip
def test_gpu_seconds_are_as_fine_as_their_whole(part: float, whole: float, text: str) -> None:
    """A profiler's trace lasts a second: "0 of 0 GPU-seconds" answers nothing."""
    assert amount(part, whole) == text


def test_a_trace_of_some_milliseconds_is_told_in_milliseconds() -> None:
    """The headline and the claim name the same seconds."""
    busy = memory(gpu=utilization([100] * 4, period=0.01), gpu_counters=counters([0.5] * 4, period=0.01))
    evidence = evidence_of(busy)
    seconds = sum(s.busy_s for s in evidence.findings.states)
    assert 0 < seconds < 0.1
    assert high_utilization_means_work(evidence)[0].because.partition(" GPU")[0].endswith(f"of {seconds:.3f}")
    assert f"the {seconds:.3f} GPU-seconds" in answer(evidence).headline


def test_one_spike_on_one_gpu_is_not_plural() -> None:
    """Said as people count."""
    memory_access = [20.0] * 300
    memory_access[100:103] = [95.0] * 3
    recording = memory(gpu=utilization([90.0] * 300, mem_util_pct=memory_access))
    assert check_spikes.check(evidence_of(recording)).verdict.because.startswith("1 spike on 1 GPU:")
