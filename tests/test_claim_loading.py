"""Data loading and copies: bounded by the spans, never proven by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.errors import UsageError
from dipstick.judgement import Reason
from dipstick.verdicts.claim_loading import (
    before_first_phase,
    copies_belong_to,
    data_loading_is_the_bottleneck,
    holders,
)
from dipstick.verdicts.evidence import Evidence
from records import HOST, Row, counters, memory, near, ns, process, span, utilization

if TYPE_CHECKING:
    from dipstick.judgement import Verdict

STEPS, STEP_S = 12, 10.0
PROCESSES = [process(900, rank=0, gpu=0)]


def steps(loader_s: float = 0.1, sync_s: float = 1.0, *, name: str = "", count: int = STEPS) -> list[Row]:
    """Steps of 10 s: nothing (or a span of that name), weight sync, generation, backward for 1 s."""
    rows = []
    for k in range(count):
        start = STEP_S * k
        synced = start + loader_s + sync_s
        rows += [
            span("step", start, start + STEP_S, step=k),
            span("sync_weights", start + loader_s, synced, step=k),
            span("vLLM.generate", synced, start + 9, step=k),
            span("backward", start + 9, start + STEP_S, step=k),
        ]
        rows += [span(name, start, start + loader_s, step=k)] if name else []
    return rows


def copy(at: float, size: int | None = 600_000_000, *, rank: int = 0, device: str | None = "cuda:0") -> Row:
    """A hand-over to a GPU."""
    return {
        "host": HOST, "rank": rank, "t_ns": ns(at), "from": "trainer", "to": "engine", "count": 1, "bytes_b": size,
        "device": device,
    }  # fmt: skip


COPIES = [copy(STEP_S * k + 0.5) for k in range(STEPS)]
"""One a step, inside the weight sync."""


def evidence(spans: list[Row], handoffs: list[Row] | None = None, **more: list[Row]) -> Evidence:
    recording = memory(spans=spans, handoffs=handoffs or [], processes=PROCESSES, **more)
    return Evidence(recording, analyse(recording))


def loading(spans: list[Row], handoffs: list[Row] | None = None, **more: list[Row]) -> Verdict:
    return data_loading_is_the_bottleneck(evidence(spans, handoffs, **more))[0]


# The claim


def test_a_loader_that_has_no_time_is_no_bottleneck() -> None:
    """0.1 of each 10 s, and copies inside a phase of 1 s: both bounds are in the sentence."""
    verdict = loading(steps(), COPIES)

    assert verdict.word == "no"
    assert verdict.because == (
        "a loader could take 1.2 of 120 s: what passes before the first phase of rank 0's steps (1.0 %, at most 1.0 %); "
        "12 copies to the GPU (7.2 GB) lie in weight_sync, which take 12 of 120 s as a whole (10.0 %, at most 10.0 %)"
    )


def test_much_unnamed_time_at_a_step_s_start_could_be_a_loader() -> None:
    """3 of 10 s: not told, and how to tell."""
    verdict = loading(steps(loader_s=3.0), COPIES)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.GAP)
    assert verdict.cheapest_experiment == "put the loader into a span: with dipstick.span('data_loading')"


def test_unnamed_time_is_no_proof_even_if_it_is_most_of_the_step() -> None:
    """8 of 10 s without a name are not a loader yet."""
    assert loading(steps(loader_s=7.5), COPIES).word == "unconfirmed"


def test_copies_in_a_long_phase_are_open_without_counters() -> None:
    """The weight sync takes 4 of 10 s: how much of it is the copy, nobody knows."""
    verdict = loading(steps(sync_s=4.0), COPIES)

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert "PCIe counters" in verdict.cheapest_experiment


def gpu(rx: float, seconds: float = STEPS * STEP_S) -> dict[str, list[Row]]:
    """A GPU at full utilization whose SMs work but in the first second of each step, with that bus traffic there."""
    windows = round(seconds / 0.5)
    first = [i % 20 < 2 for i in range(windows)]
    profile = counters(
        [0.0 if at else 90.0 for at in first], period=0.5, gr_active_pct=100.0,
        dram_active_pct=[0.0 if at else 50.0 for at in first], pcie_rx_mib_s=[rx if at else 20.0 for at in first],
    )  # fmt: skip
    return {"gpu": utilization([100.0] * windows, period=0.5), "gpu_counters": profile}


def test_with_counters_copies_are_measured_instead_of_bounded() -> None:
    """Full copies in the first second of each step, all of the time without work: the claim is not refuted."""
    assert loading(steps(), COPIES, **gpu(50_000.0)).word == "partially"


def test_with_counters_little_traffic_refutes_the_copies() -> None:
    """12 MiB/s, in 24 steps: enough of them to rule out that one in five waits for the bus."""
    verdict = loading(steps(count=24), COPIES, **gpu(12.0, 240.0))

    assert verdict.word == "no"
    assert (
        "GPU-seconds without work are bus copies (0.0 %, at most 15 %); the busiest window took 20 MiB"
        in verdict.because
    )


def test_too_few_steps_for_the_counters_fall_back_to_the_bound() -> None:
    """Twelve steps without a copy leave one in five possible; the phase that holds the copies does not."""
    verdict = loading(steps(), COPIES, **gpu(12.0))

    assert verdict.word == "no"
    assert "12 copies to the GPU (7.2 GB) lie in weight_sync" in verdict.because


def test_without_copies_and_counters_the_transfer_stays_open() -> None:
    """What the loader could take is known, what the bus did is not."""
    assert loading(steps()).word == "unconfirmed"


def test_without_steps_nothing_is_known() -> None:
    """A span that is no step."""
    verdict = loading([span("vLLM.generate", 0, 5)])

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)


def test_few_steps_refute_nothing() -> None:
    """Seven of them."""
    verdict = loading(steps(count=7), COPIES[:7])

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)


def test_the_rank_that_could_lose_most_is_looked_at() -> None:
    """Rank 1 has 0.5 s before its first phase, rank 0 has 0.1 s."""
    late = [row | {"rank": 1, "pid": 901} for row in steps(loader_s=0.5)]

    verdict = loading(steps() + late, COPIES)

    assert (
        "a loader could take 6.0 of 120 s: what passes before the first phase of rank 1's steps"
        in verdict.because
    )


def test_the_receipts_derive_both_numbers() -> None:
    """Time without a phase, and the recorded copies."""
    _, receipts = data_loading_is_the_bottleneck(evidence(steps(), COPIES))

    assert [(r.value, r.unit, r.query) for r in receipts] == [
        (near(1.2), "s", "SELECT SUM(seconds) FROM phase_pieces WHERE rank = 0 AND phase = 'unattributed'"),
        (
            7_200_000_000,
            "B",
            (
                "SELECT COALESCE(SUM(bytes_b), 0) FROM handoffs WHERE (device LIKE '%cuda%' OR device LIKE '%gpu%'"
                " OR device LIKE '%device%') AND rank IN (0) AND t_ns >= 0 AND t_ns < 120000000000"
            ),
        ),
    ]


# Time before the first phase


@pytest.mark.parametrize(("loader_s", "name"), [(0.5, ""), (0.0, ""), (2.0, "my_loader")])
def test_what_passes_before_the_first_phase(loader_s: float, name: str) -> None:
    """Also under a span whose name means nothing."""
    (timeline,) = evidence(steps(loader_s, name=name)).findings.timelines

    assert (before_first_phase(timeline) / 1e9).tolist() == near([loader_s] * STEPS)


def test_a_step_without_any_phase_passes_wholly() -> None:
    """To its own end, not to the next one's first phase."""
    rows = [span("step", 0, 10, step=0), span("step", 10, 20, step=1), span("backward", 12, 20, step=1)]
    (timeline,) = evidence(rows).findings.timelines

    assert (before_first_phase(timeline) / 1e9).tolist() == [10, 2]


def test_a_step_that_begins_inside_a_phase_passes_nothing() -> None:
    """Generation began before the step was counted."""
    rows = [
        span("vLLM.generate", 0, 20, step=0),
        *(span("step", 10 * k, 10 * k + 10, step=k) for k in (0, 1)),
    ]
    (timeline,) = evidence(rows).findings.timelines

    assert before_first_phase(timeline).tolist() == [0, 0]


# Whose copies


def test_copies_belong_to_the_span_around_them() -> None:
    """Eleven in the weight sync, one in generation: 92 % are not all of them."""
    found = evidence(steps(), [*COPIES[:-1], copy(115.0, 100_000_000)])

    assert holders(found) == {"weight_sync": (11, 6_600_000_000), "generate": (1, 100_000_000)}
    assert copies_belong_to(found, phase="weight_sync")[0].word == "partially"
    assert copies_belong_to(found, phase="generate")[0].word == "no"


def test_all_copies_in_one_phase_belong_to_it() -> None:
    """And the sentence counts them."""
    verdict, receipts = copies_belong_to(evidence(steps(), COPIES), phase="weight_sync")

    assert (verdict.word, verdict.because) == (
        "yes",
        "12 of 12 copies to the GPU lie in weight_sync (7.2 GB)",
    )
    assert receipts[0].value == 7_200_000_000


def test_hand_overs_between_processes_are_no_copies_to_a_gpu() -> None:
    """Text on the host, or of unknown place."""
    rows = [copy(0.5, device="host"), copy(10.5, device=None)]

    assert holders(evidence(steps(), rows)) == {}
    assert copies_belong_to(evidence(steps(), rows), phase="weight_sync")[0].reason == Reason.MISSING_SIGNAL


def test_copies_of_unknown_size_or_outside_the_steps() -> None:
    """Counted without bytes; not counted at all."""
    assert holders(evidence(steps(), [copy(0.5, None), copy(500.0)])) == {"weight_sync": (1, 0)}


def test_copies_of_another_rank_lie_in_that_rank_s_phases() -> None:
    """Rank 7 has no spans here."""
    assert holders(evidence(steps(), [copy(0.5, rank=7)])) == {}


def test_an_unknown_phase_is_an_error_that_lists_them() -> None:
    """Before anything is looked at."""
    with pytest.raises(UsageError, match="no phase 'sync'"):
        copies_belong_to(evidence(steps(), COPIES), phase="sync")


def test_the_bootstrap_is_seeded() -> None:
    """The same recording gives the same interval."""
    rng = np.random.default_rng(0)
    uneven = [row for k in range(STEPS) for row in _one(k, float(rng.uniform(0.05, 0.3)))]

    assert loading(uneven, COPIES).interval == loading(uneven, COPIES).interval


def _one(k: int, loader_s: float) -> list[Row]:
    start = STEP_S * k
    return [
        span("step", start, start + STEP_S, step=k),
        span("sync_weights", start + loader_s, start + 1, step=k),
        span("vLLM.generate", start + 1, start + STEP_S, step=k),
    ]
