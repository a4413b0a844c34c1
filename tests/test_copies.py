"""Copies that the program tells of itself: judged where there are no counters, with their seconds and bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dipstick.analysis.pipeline import analyse
from dipstick.cli.query import ask
from dipstick.judgement import Reason
from dipstick.phases import PHASES
from dipstick.verdicts.answer import answer
from dipstick.verdicts.claim_loading import data_loading_is_the_bottleneck
from dipstick.verdicts.claim_mechanisms import transfers_force_waiting
from dipstick.verdicts.copies import Copies, found_in, spent_s
from dipstick.verdicts.evidence import Evidence
from records import Row, memory, near, ns, process, span, utilization
from worlds import healthy

if TYPE_CHECKING:
    from dipstick.judgement import Verdict

GIB = 2**30
STEPS, STEP_S = 12, 10.0
SIZE = 8 * GIB


def loop(
    transfer_s: float = 2.0,
    size: Any = SIZE,
    *,
    idle_s: float = 0.5,
    name: str = "transfer",
    phase: str | None = None,
    count: int = STEPS,
) -> list[Row]:
    """Steps of 10 s: generation, rewards, the copy, backward, and so long nothing at the end."""
    rows: list[Row] = []
    for k in range(count):
        start = STEP_S * k
        copied = start + 5 + transfer_s
        rows += [
            span("step", start, start + STEP_S, step=k),
            span("vLLM.generate", start, start + 3, step=k),
            span("_calculate_rewards", start + 3, start + 5, step=k),
            span("backward", copied, start + STEP_S - idle_s, step=k),
        ]
        if transfer_s:
            detail = None if size is None else json.dumps({"bytes_b": size})
            rows.append(span(name, start + 5, copied, step=k) | {"detail": detail, "phase": phase})
    return rows


def evidence(*loops: list[Row], **tables: list[Row]) -> Evidence:
    """One rank a loop."""
    spans = [row | {"rank": rank, "pid": 900 + rank} for rank, rows in enumerate(loops) for row in rows]
    processes = [process(900 + rank, rank=rank, gpu=None) for rank in range(len(loops))]
    recording = memory(spans=spans, processes=processes, **tables)
    return Evidence(recording, analyse(recording))


def judged(*loops: list[Row], **tables: list[Row]) -> Verdict:
    return transfers_force_waiting(evidence(*loops, **tables))[0]


# --- the verdict -------------------------------------------------------------------------------------------------


def test_copies_that_take_the_time_without_work_are_named_with_seconds_and_bytes() -> None:
    """2 s a step of copying and 0.5 s of nothing: 80 % of the lost time, in 10 kept steps of one rank."""
    verdict = judged(loop())

    assert (verdict.word, verdict.effect) == ("yes", near(0.8))
    assert verdict.because == (
        "20.0 of 25.0 rank-seconds without work are recorded copies to the device (80 %, at least 80 %); "
        "12 copies moved 96.0 GiB at 4.0 GiB/s"
    )


@pytest.mark.parametrize(
    ("transfer_s", "idle_s", "word"),
    [(2.0, 0.5, "yes"), (1.0, 2.0, "partially"), (0.2, 2.0, "no")],
    ids=["80 %", "33 %", "9 %"],
)
def test_the_same_shares_decide_as_with_counters(transfer_s: float, idle_s: float, word: str) -> None:
    """Half and more of the time without work, a fifth and more, or less."""
    assert judged(loop(transfer_s, idle_s=idle_s)).word == word


def test_no_recorded_copy_proves_nothing() -> None:
    """A program that says nothing may copy all the same: as before, counters would tell."""
    verdict = judged(loop(0.0))

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.MISSING_SIGNAL)
    assert "SM and PCIe counters were not recorded" in verdict.because


def test_copies_in_a_few_steps_prove_nothing() -> None:
    """Five steps, all alike."""
    verdict = judged(loop(count=5))

    assert (verdict.word, verdict.reason) == ("unconfirmed", Reason.LOW_N)


def test_the_ranks_are_added_up() -> None:
    """Rank 0 copies 2 of 2.5 s without work, rank 1 copies nothing in 2.5: 40 %."""
    verdict = judged(loop(), loop(0.0, idle_s=2.5))

    assert verdict.word == "partially"
    assert "20.0 of 50.0 rank-seconds" in verdict.because


def test_counters_are_asked_first() -> None:
    """A GPU whose counters saw no bus copy: what the program calls a transfer was something else."""
    world = healthy(20)
    rows = world.rows()
    named = [
        span("transfer", t + 0.1, t + 0.4, step=k) | {"detail": json.dumps({"bytes_b": GIB})}
        for k, t in enumerate(world.starts[:-1])
    ]
    found = memory(**rows | {"spans": [*rows["spans"], *named]})
    verdict, receipts = transfers_force_waiting(Evidence(found, analyse(found)))

    assert "GPU-seconds without work are bus copies" in verdict.because
    assert verdict.because.endswith("copies moved 20.0 GiB at 3.3 GiB/s")
    assert receipts[-1].value == 20 * GIB
    assert verdict.word != "yes"


def test_a_gpu_without_counters_is_judged_by_the_program() -> None:
    """Utilization reads 100 % while it copies; the span says what that was."""
    gpu = utilization([100.0] * round(STEPS * STEP_S / 0.5), period=0.5)

    assert judged(loop(), gpu=gpu).word == "yes"


def test_a_named_copy_is_an_answer_to_the_loading_story_too() -> None:
    """Nothing before the first phase, and copies that cost: not refuted as a whole."""
    verdict, receipts = data_loading_is_the_bottleneck(evidence(loop()))

    assert verdict.word == "partially"
    assert "12 copies moved 96.0 GiB" in verdict.because
    assert any(receipt.unit == "B" for receipt in receipts)


# --- what is a copy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "phase"), [("transfer", None), ("push_batch", "transfer")])
def test_a_copy_is_a_span_of_that_name_or_phase(name: str, phase: str | None) -> None:
    """``dipstick.span("transfer")``, or ``span("push_batch", phase="transfer")``."""
    assert found_in(evidence(loop(name=name, phase=phase))) == Copies(12, 12, 12 * SIZE, 24.0)


def test_another_span_of_the_user_s_is_no_copy() -> None:
    """It belongs to the phase around it."""
    assert found_in(evidence(loop(name="push_batch"))) == Copies(0, 0, 0, 0.0)


def test_bytes_that_were_not_recorded_are_said_to_be_missing() -> None:
    """The seconds are known, the verdict stands; the sentence says what would tell the bytes."""
    verdict = judged(loop(size=None))

    assert verdict.word == "yes"
    assert verdict.because.endswith(
        "12 copies, their bytes were not recorded (dipstick.span('transfer', bytes_b=N) would tell)"
    )


def test_a_rate_is_that_of_the_copies_whose_bytes_are_known() -> None:
    """Rank 1 does not say how much: its seconds slow nobody down."""
    verdict = judged(loop(2.0), loop(4.0, None))

    assert verdict.because.endswith("12 of 24 copies moved 96.0 GiB at 4.0 GiB/s")


@pytest.mark.parametrize(
    "detail",
    [
        "not JSON",
        "[1, 2]",
        '{"bytes_b": -5}',
        '{"bytes_b": true}',
        '{"bytes_b": "8"}',
        '{"bytes_b": 1.5}',
        "[" * 5000,
        "{}",
    ],
    ids=["text", "list", "negative", "boolean", "string", "fraction", "nested", "empty"],
)
def test_a_detail_that_names_no_bytes_counts_none(detail: str) -> None:
    """Recorded text is hostile: it neither breaks the report nor adds to a sum."""
    rows = [row | ({"detail": detail} if row["name"] == "transfer" else {}) for row in loop()]

    assert found_in(evidence(rows)) == Copies(12, 0, 0, 0.0)


def test_copies_outside_the_steps_are_not_counted() -> None:
    """Before training began, and of a process that is no rank."""
    early = span("transfer", -20.0, -18.0) | {"detail": json.dumps({"bytes_b": GIB})}
    stray = span("transfer", 5.0, 6.0, pid=77) | {"rank": None, "detail": json.dumps({"bytes_b": GIB})}
    rows = [row | {"rank": 0, "pid": 900} for row in loop()]
    shifted = [
        row | {"t0_ns": row["t0_ns"] + ns(30), "t1_ns": row["t1_ns"] + ns(30)} for row in [*rows, early | {"rank": 0, "pid": 900}, stray]
    ]  # fmt: skip
    recording = memory(spans=shifted, processes=[process(900, rank=0, gpu=None)])

    assert found_in(Evidence(recording, analyse(recording))).count == 12


# --- receipts, phases --------------------------------------------------------------------------------------------


def test_the_receipts_derive_seconds_and_bytes() -> None:
    """Each query gives its number again, from the recording alone."""
    found = evidence(loop(), loop(1.0))
    _, receipts = transfers_force_waiting(found)

    assert [(r.rank, r.value, r.unit) for r in receipts] == [
        (0, near(24.0), "s"),
        (1, near(12.0), "s"),
        (None, 24.0 * SIZE, "B"),
    ]
    for receipt in receipts:
        (value,) = ask(found.recording, receipt.query).row(0)
        assert value == near(receipt.value)


@pytest.mark.parametrize("more", [{}, {"label": "a"}, {"zone": 3, "a": 1}])
def test_the_bytes_are_found_beside_other_numbers(more: dict[str, Any]) -> None:
    """Whatever else the user keeps with the span."""
    detail = json.dumps({"bytes_b": SIZE, **more}, sort_keys=True)
    found = evidence([r | ({"detail": detail} if r["name"] == "transfer" else {}) for r in loop()])
    _, receipts = transfers_force_waiting(found)

    assert ask(found.recording, receipts[-1].query).row(0) == (12 * SIZE,)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(("transfer",), [1.0, 2.0]), (("backward",), [0.0, 0.5]), (("transfer", "backward"), [1.0, 2.5])],
)
def test_seconds_of_phases_inside_intervals(names: tuple[str, ...], wanted: list[float]) -> None:
    """Copies on [5, 7): one second of them before 6, two after 5."""
    (timeline,) = evidence(loop(count=1)).findings.timelines
    begins, ends = np.asarray([ns(0), ns(5)]), np.asarray([ns(6), ns(7.5)])

    assert spent_s(timeline, names, begins, ends).tolist() == near(wanted)


def test_a_transfer_is_a_phase_of_its_own() -> None:
    """Its seconds are neither unattributed nor anybody else's, and the headline calls it by its name."""
    found = evidence(loop(4.0))
    assert found.findings.breakdown is not None
    seconds = {row.phase: row.seconds for row in found.findings.breakdown.rows}

    assert "transfer" in PHASES
    assert (seconds["transfer"], seconds["unattributed"]) == (near(48.0), near(6.0))
    assert answer(found).headline.startswith("The longest phase is copies to the device (4")
