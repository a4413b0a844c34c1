"""What rests on reconstructed spans says so; and a driver's phases are those of every GPU in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import dipstick
from dipstick.importers.files import import_files
from dipstick.judgement import Check, Claim, Reason, Receipt, Verdict
from dipstick.verdicts.reconstructed import HEADLINE, RECORDED, SAYS, marked, share
from dipstick.verdicts.sql import select
from imported import T_S

if TYPE_CHECKING:
    from pathlib import Path

YES, OPEN = Verdict("yes", "it is"), Verdict("unconfirmed", "nobody knows", reason=Reason.LOW_N)
RECEIPTS = (
    Receipt("number", "rank 0: 3 s", rank=0),
    Receipt("number", "GPU 0", gpu=0),
    Receipt("code", "x", file="a.py", line=1, origin="static"),
)


def test_a_verdict_on_reconstructed_spans_says_so() -> None:
    """In its sentence, in the receipts of its ranks, and with how many spans there are."""
    found = marked(Check("phases", "?", YES, RECEIPTS), (2, 3))
    assert found.verdict.because == f"it is; {SAYS}"
    assert [receipt.origin for receipt in found.receipts] == [
        "reconstructed",
        "recorded",
        "static",
        "reconstructed",
    ]
    assert found.receipts[-1].text.startswith("2 of 3 spans are reconstructed from seconds per step")


def test_a_claim_likewise() -> None:
    """The same sentence and count."""
    found = marked(Claim("x", "t", {}, YES, RECEIPTS), (3, 3))
    assert found.verdict.because == f"it is; {SAYS}"
    assert len(found.receipts) == 4


@pytest.mark.parametrize(("verdict", "counts"), [(YES, (0, 3)), (OPEN, (3, 3)), (YES, (0, 0))])
def test_others_stay_as_they_are(verdict: Verdict, counts: tuple[int, int]) -> None:
    """Measured spans, and questions that stay open: nothing rests on anything."""
    check = Check("phases", "?", verdict, RECEIPTS)
    assert marked(check, counts) is check


def judged(word: str, *queries: str, **more: object) -> Check:
    """A check whose receipts were derived by these queries."""
    receipts = tuple(Receipt("number", "x", query=query, **more) for query in queries)  # type: ignore[arg-type]
    return Check("phases", "?", Verdict(word, "it is"), receipts)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", sorted(RECORDED))
@pytest.mark.parametrize("word", ["yes", "partially", "no"])
def test_a_verdict_on_telemetry_alone_is_not_marked(table: str, word: str) -> None:
    """How full the memory is does not rest on spans, wherever those lie."""
    check = judged(word, select("MAX(value)", table, gpu=0))
    assert marked(check, (3, 3)) is check


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) FROM spans", "SELECT SUM(seconds) FROM phase_pieces WHERE rank = 0", "SELECT 1 FROM dips",
        "SELECT hollow_s FROM states WHERE gpu = 0", "select 1 from gpu join steps using (t_ns)", "", "SELECT 1 FROM waits",
    ],
)  # fmt: skip
def test_what_is_derived_from_spans_is_marked(query: str) -> None:
    """Phases, dips (each lies in a phase), states (they know the ranks' waits); and what can't be told apart."""
    assert marked(judged("yes", query), (3, 3)).verdict.because == f"it is; {SAYS}"


def test_one_receipt_of_spans_among_telemetry_is_enough() -> None:
    """The verdict needed both."""
    check = judged("yes", "SELECT MAX(mem_used_b) FROM gpu", "SELECT COUNT(*) FROM spans")
    assert marked(check, (3, 3)).verdict.because.endswith(SAYS)


def test_a_receipt_of_a_rank_is_one_of_spans() -> None:
    """Ranks are known by their spans only."""
    assert marked(judged("yes", "SELECT 1 FROM gpu", rank=1), (3, 3)).verdict.because.endswith(SAYS)


def test_a_verdict_on_code_alone_is_not_marked() -> None:
    """What a checkout shows has nothing to do with the run's spans."""
    claim = Claim("x", "t", {}, YES, (Receipt("code", "x", file="a.py", line=1, origin="static"),))
    assert marked(claim, (3, 3)) is claim


def test_the_headline_says_that_its_phases_are_reconstructed(tmp_path: Path) -> None:
    """Whoever reads one sentence only reads it there."""
    report = dipstick.explain(dipstick.load(prime_rl(tmp_path)))
    assert report.answer.longest_phase == "collective_wait"
    assert report.answer.headline.endswith(HEADLINE)


def test_a_headline_without_phases_says_nothing_of_them(tmp_path: Path) -> None:
    """Steps alone, from step_time: no phase is named, so none is reconstructed."""
    rows = ",".join(f'{{"step": {i}, "step_time": 2.0, "loss": 1.0}}' for i in range(1, 9))
    (tmp_path / "trainer_state.json").write_text(
        f'{{"global_step": 8, "max_steps": 8, "log_history": [{rows}]}}'
    )
    recording = dipstick.load(import_files([tmp_path / "trainer_state.json"], tmp_path / "run").path)
    assert share(recording) == (8, 8)
    answer = dipstick.explain(recording).answer
    assert answer.longest_phase is None
    assert HEADLINE not in answer.headline


def test_measured_phases_in_reconstructed_steps_are_measured(tmp_path: Path) -> None:
    """Only the steps' edges are reconstructed: the shares of the phases are not."""
    rows = [
        {"name": "generate", "phase": "generate", "rank": 0, "step": i, "start": T_S + 2.0 * i, "end": T_S + 2.0 * i + 1.5}
        for i in range(9)
    ]  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "spans.parquet")
    report = dipstick.explain(
        dipstick.load(import_files([tmp_path / "spans.parquet"], tmp_path / "run").path)
    )
    assert report.answer.longest_phase == "generate"
    assert HEADLINE not in report.answer.headline


def prime_rl(folder: Path, gpus: int = 3, idle: int = 2) -> Path:
    """A trainer that waits 6 of 10 s for batches beside GPUs that work while it does not; the last ones are idle."""
    rows = [
        f'{{"step": {i}, "time": {T_S + 10 * (i + 1)}, "time/step": 10.0, "time/wait_for_batch": 6.0, "time/forward_backward": 4.0}}'
        for i in range(20)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    lines = [
        f"{T_S + t / 2},{gpu},{0 if gpu >= idle else 95 if t % 20 >= 12 else 3},{100 + 200 * (t % 20 >= 12)}"
        for t in range(400) for gpu in range(gpus)
    ]  # fmt: skip
    (folder / "gpu.csv").write_text("timestamp,gpu,util_pct,power_w\n" + "\n".join(lines) + "\n")
    return import_files([folder / "metrics.jsonl", folder / "gpu.csv"], folder / "run").path


def test_a_driver_owns_the_gpus_in_use(tmp_path: Path) -> None:
    """The phases of one driver are taken for both GPUs that work, not for the idle one; and that this may be wrong is said."""
    report = dipstick.explain(dipstick.load(prime_rl(tmp_path)))
    owners = {gpu.gpu: gpu.rank for gpu in report.tracks.gpus}
    assert owners == {0: 0, 1: 0, 2: None}
    said = "\n".join(note.text for note in report.notes)
    assert "the phases are the driver's; they were taken for all 2 GPUs in use" in said
    assert "engines that generate while others train" in said
    assert "GPU 2 on host0 was never used" in said


def test_an_asynchronous_loop_without_reward_workers_is_explained(tmp_path: Path) -> None:
    """The trainer waits for batches: that wait is the longest phase; stragglers can't be told."""
    recording = dipstick.load(prime_rl(tmp_path))
    assert share(recording) == (60, 60)
    report = dipstick.explain(recording)
    assert report.phases is not None
    seconds = {row.phase: round(row.seconds) for row in report.phases.rows}
    assert (seconds["collective_wait"], seconds["backward"]) == (120, 80)
    stragglers = next(check for check in report.checks if check.name == "stragglers")
    assert stragglers.verdict.word == "unconfirmed"


def test_measured_spans_are_not_called_reconstructed(tmp_path: Path) -> None:
    """Spans of one's own, with start and end."""
    rows = [
        {"name": "generate", "rank": 0, "step": i, "start": float(T_S + 2 * i), "end": float(T_S + 2 * i + 1)}
        for i in range(9)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "spans.parquet")
    recording = dipstick.load(import_files([tmp_path / "spans.parquet"], tmp_path / "run").path)
    assert share(recording) == (0, 9)
    assert not any(SAYS in check.verdict.because for check in dipstick.explain(recording).checks)
