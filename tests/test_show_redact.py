"""Nothing of the original survives in what is written for sharing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from builders import hostile_report, judged_report, many_report, tiny_report
from dipstick.judgement import Receipt
from dipstick.show import FORMATS
from dipstick.show.redact import NOTE, redact
from records import cycle, job, memory, on_disk, process, span, utilization

if TYPE_CHECKING:
    from dipstick.recording.reader import Recording

SECRETS = (
    "gpu-node17",
    "hpc.acme.example",
    "mallory",
    "acme_secret",
    "/scratch",
    "wandb-project",
    "10.1.2.3",
    "of mallory's",
)
"""What a person would not want to see in a post."""
HOST = "gpu-node17.hpc.acme.example"
FILE = "/home/mallory/acme_secret/reward.py"


def secretive() -> dict[str, list[dict[str, Any]]]:
    """Two steps of two ranks whose every free string names somebody."""
    more = {
        "host": HOST,
        "file": FILE,
        "line": 7,
        "detail": "tmp=/scratch/mallory/x by mallory on gpu-node17",
    }
    rows = [
        r | more for rank in (0, 1) for step in (0, 1) for r in cycle(rank, step, 10.0 * step, (4, 3, 2, 1))
    ]
    jobs = [
        job(f"/home/mallory/{i}", 4.0, 6.0, pid=1000 + i)
        | {"host": HOST, "detail": "http://10.1.2.3:8000/mallory"}
        for i in range(2)
    ]
    processes = [
        process(900 + r, rank=r, gpu=r, host=HOST)
        | {"cmdline": f"python {FILE} --wandb wandb-project --rank {r}"}
        for r in (0, 1)
    ]
    gpu = [r | {"host": HOST} for g in (0, 1) for r in utilization([95.0] * 70 + [20.0] * 30, gpu=g)]
    return {"spans": rows, "jobs": jobs, "processes": processes, "gpu": gpu}  # fmt: skip


def texts(recording: Any) -> str:
    """Everything in every table."""
    tables = ("spans", "jobs", "processes", "gpu", "gpus", "events", "handoffs")
    return "\n".join(recording.table(name).write_csv() for name in tables)


def left(text: str) -> list[str]:
    """Which secrets are still there."""
    return [secret for secret in SECRETS if secret.lower() in text.lower()]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The secretive recording, in a folder that is called after a person."""
    return on_disk(tmp_path_factory.mktemp("x") / "of mallory's", **secretive())


def test_no_name_survives_in_any_shared_file(recording: Recording) -> None:
    """Every format, by default; the original does hold them."""
    report = dipstick.explain(recording)
    shared = {f.suffix: f.render(report, recording, redact=True).decode("latin-1") for f in FORMATS.values()}
    assert {suffix: left(text) for suffix, text in shared.items()} == {key: [] for key in shared}
    assert left(texts(recording)) == [s for s in SECRETS if s != "of mallory's"]


def test_a_sample_survives_under_its_public_name() -> None:
    """The samples hold one name, of their host; it goes, and the sample stays named."""
    for name in ("sample:h200x2-grpo-135m",):
        recording = dipstick.load(name)
        report = dipstick.explain(recording)
        for kind in FORMATS.values():
            if kind.shared:
                page = kind.render(report, recording).decode("latin-1")
                assert ("host0" in page, name in page) == (False, True)


def test_the_tables_hold_no_name_and_the_same_rows(recording: Recording) -> None:
    """Times, numbers and types are untouched."""
    hidden = redact(dipstick.explain(recording), recording)[1]
    assert hidden is not None
    assert left(texts(hidden)) == []
    spans, original = hidden.table("spans"), recording.table("spans")
    assert spans.schema == original.schema
    assert spans["t0_ns"].equals(original["t0_ns"])
    assert spans["file"].cast(pl.String).unique().to_list() == ["folder1/reward.py"]
    assert hidden.table("processes")["cmdline"].to_list() == ["command1", "command2"]


def test_the_report_and_the_tables_agree_on_the_words(recording: Recording) -> None:
    """A host in the report's tracks is found in the tables under the same word."""
    report, hidden = redact(dipstick.explain(recording), recording)
    assert hidden is not None
    assert {t.host for t in report.tracks.gpus} == {*hidden.table("gpu")["host"].cast(pl.String)} == {"host1"}
    assert {key for r in report.tracks.ranks for key in r.gpus} == {("host1", 0), ("host1", 1)}


def test_the_reader_is_told() -> None:
    """One note says what was replaced and how to keep it."""
    assert [n.text for n in redact(tiny_report(), None)[0].notes][-1] == f"{NOTE}."


def test_receipts_keep_their_file_and_line_without_the_folder() -> None:
    """And the query names the pseudonym."""
    receipt = Receipt(
        "code", f"pool.map at {FILE}:7", file=FILE, line=7, query="SELECT 1 FROM gpu WHERE host = 'node1'"
    )
    base = judged_report()
    report = redact(replace(base, checks=(replace(base.checks[0], receipts=(receipt,)),)), None)[0]
    found = report.checks[0].receipts[0]
    assert (found.file, found.line, found.text) == ("folder1/reward.py", 7, "pool.map at folder1/reward.py:7")
    assert found.query == "SELECT 1 FROM gpu WHERE host = 'host1'"


def test_several_hosts_stay_apart() -> None:
    """host0 and host1 of the original become two words, the same in states and tracks."""
    report = redact(many_report(), None)[0]
    assert [t.host for t in report.tracks.gpus] == ["host1"] * 8 + ["host2"] * 8


def test_a_hostile_report_can_be_redacted() -> None:
    """Attacks in every field: still a report, still every format."""
    report = redact(hostile_report(), None)[0]
    assert report.run.name == "run"
    assert all(f.render(hostile_report(), redact=True) for f in FORMATS.values())


def test_numbers_arrays_and_words_of_ours_are_untouched() -> None:
    """Redacting changes names and nothing else."""
    before, after = tiny_report(), redact(tiny_report(), None)[0]
    assert after.phases == before.phases
    assert after.answer == before.answer
    assert after.tracks.gpus[0].util_pct.tolist() == before.tracks.gpus[0].util_pct.tolist()


def test_a_recording_without_names_is_left_as_it_is() -> None:
    """No host, no file: nothing to replace."""
    bare = memory(spans=[span("step", 0, 1) | {"host": None}])
    hidden = redact(tiny_report(), bare)[1]
    assert hidden is not None
    assert hidden.table("spans").equals(bare.table("spans"))
