"""`dipstick import`, and the verbs on real folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dipstick.cli import main

if TYPE_CHECKING:
    from pathlib import Path

SPAN = '{"name": "%s", "rank": 0, "pid": 7, "step": 0, "t0": %d, "t1": %d}\n'
SECOND = 1_000_000_000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace folder of one step: generate 2 s, reward 1 s."""
    folder = tmp_path / "trace"
    folder.mkdir()
    start = 1_796_053_319 * SECOND
    spans = [
        ("step", 0, 3),
        ("GRPOTrainer.vLLM.generate", 0, 2),
        ("GRPOTrainer._calculate_rewards", 2, 3),
    ]
    lines = [SPAN % (name, start + a * SECOND, start + b * SECOND) for name, a, b in spans]
    (folder / "spans.r0.jsonl").write_text("".join(lines))
    return folder


def test_what_was_bound_is_told_and_what_to_do_next(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables and rows on stdout, the next command on stderr."""
    run = tmp_path / "RUN"
    assert main(["import", str(trace), "-o", str(run)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{run}: ")
    assert "  spans" in out
    assert "3 rows" in out
    assert err == f"next: dipstick explain {run}  (where the seconds went)\n"


def test_as_json(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows as numbers."""
    assert main(["import", str(trace), "-o", str(tmp_path / "RUN"), "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert {"table": "spans", "rows": 3} in document["tables"]
    assert (document["schema_version"], document["seconds"], err) == (1, 3.0, "")


def test_an_existing_recording_is_kept_unless_forced(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the flag."""
    words = ["import", str(trace), "-o", str(tmp_path / "RUN"), "--quiet"]
    assert main(words) == 0
    assert main(words) == 1
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1: there is a file, but no answer."""
    odd = tmp_path / "odd.bin"
    odd.write_bytes(b"\x00\x01")
    assert main(["import", str(odd), "-o", str(tmp_path / "RUN")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"dipstick: error: {odd}: ")
    assert "trace" in err


@pytest.mark.parametrize("name", ["nowhere", "sample:nothing"])
def test_a_run_that_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder: 1; a sample's name: 2, it is a word of the command line."""
    assert main(["explain", name]) == (2 if name.startswith("sample:") else 1)
    assert capsys.readouterr().out == ""


def test_a_trace_folder_is_sent_to_import(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way to make it a recording is in the message."""
    assert main(["explain", str(trace)]) == 1
    assert f"dipstick import {trace} -o RUN" in capsys.readouterr().err


def test_from_a_trace_to_a_page(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Imported, explained, written: no GPU sample in it, and the answer says what the spans say."""
    run, page = tmp_path / "RUN", tmp_path / "report.html"
    assert main(["import", str(trace), "-o", str(run), "-q"]) == 0
    capsys.readouterr()
    assert main(["explain", str(run), "-o", str(page), "-q"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["explain", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert document["answer"]["longest_phase"] == "generate"
    assert document["run"]["gpus"] == 0
