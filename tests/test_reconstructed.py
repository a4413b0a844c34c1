"""What rests on reconstructed spans says so; and a driver's phases are those of every GPU in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import dipstick
from dipstick.importers.files import import_files
from dipstick.judgement import Check, Claim, Reason, Receipt, Verdict
from dipstick.verdicts.reconstructed import SAYS, marked_check, marked_claim, share
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
    found = marked_check(Check("phases", "?", YES, RECEIPTS), (2, 3))
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
    found = marked_claim(Claim("x", "t", {}, YES, RECEIPTS), (3, 3))
    assert found.verdict.because == f"it is; {SAYS}"
    assert len(found.receipts) == 4


@pytest.mark.parametrize(("verdict", "counts"), [(YES, (0, 3)), (OPEN, (3, 3)), (YES, (0, 0))])
def test_others_stay_as_they_are(verdict: Verdict, counts: tuple[int, int]) -> None:
    """Measured spans, and questions that stay open: nothing rests on anything."""
    check = Check("phases", "?", verdict, RECEIPTS)
    assert marked_check(check, counts) is check


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
