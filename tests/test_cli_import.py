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


# Eighty columns


def wide_table(path: Path) -> Path:
    """Telemetry of forty seconds whose columns have long names, half of them unknown; local times without a zone."""
    names = ["timestamp", "index", "utilization.gpu [%]", "utilization.memory [%]", "power.draw.average [W]"]
    names += [f"some.vendor.extension.counter.number.{i}" for i in range(60)]
    rows = [
        ", ".join([f"2026/11/30 15:42:{s:02d}.000", "0", "50 %", "10 %", "300 W", *["1"] * 60])
        for s in range(10, 50)
    ]
    path.write_text("\n".join([", ".join(names), *rows]) + "\n")
    return path


def told(path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `dipstick import` prints."""
    assert main(["import", str(path), "-o", str(run), "--quiet"]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_line_fits_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Binding table, time, notes and lists of names are wrapped, and no name is lost or broken."""
    monkeypatch.chdir(tmp_path)
    lines = told(wide_table(tmp_path / "gpu.csv"), tmp_path.relative_to(tmp_path) / "run", capsys)
    assert max(map(len, lines)) <= 80
    words = {word.strip(",") for line in lines for word in line.split()}
    assert {f"some.vendor.extension.counter.number.{i}" for i in range(40)} <= words
    assert "and 20 more" in " ".join(" ".join(lines).split())


def test_the_meaning_goes_on_below_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unit and how sure stand on the first line, in columns of their own; the rest of the meaning is indented under it."""
    lines = told(wide_table(tmp_path / "gpu.csv"), tmp_path / "run", capsys)
    at = next(i for i, line in enumerate(lines) if line.startswith("    utilization.memory [%]"))
    first, rest = lines[at : at + 2]
    column = first.index("mem_util_pct")
    assert first.endswith("%      certain")
    assert rest.startswith(" " * (column + 2))
    assert rest[column + 2] != " "
    whole = first[column : first.rindex("%")] + " ".join(line.strip() for line in lines[at + 1 : at + 3])
    assert "share of time with memory access" in " ".join(whole.split())


def test_a_long_name_stands_above_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column called by 42 characters: the others' columns stay where they are."""
    path = tmp_path / "gpu.csv"
    name = "node.rack.seven.slot.three.utilization.gpu"
    rows = "".join(f"{1_796_053_333 + s},0,50\n" for s in range(40))
    path.write_text(f"timestamp,index,{name}\n{rows}")
    words = ["import", str(path), "-o", str(tmp_path / "run"), "-q", "--bind", f"{name}=util_pct"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(f"    {name}")
    index = next(line for line in lines if line.startswith("    index"))
    assert lines[at + 1].index("util_pct") == index.index("gpu:")


def test_the_time_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is uncertain of a file's clock stands in its paragraph, marked, and not again among the notes."""
    said = " ".join(" ".join(told(wide_table(tmp_path / "gpu.csv"), tmp_path / "run", capsys)).split())
    assert said.count("local time without a zone, read as UTC") == 1
    assert "time (warning): local time without a zone" in said


def test_a_path_is_not_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording's path, of whatever length, can be copied from the first line."""
    run = tmp_path / ("a-folder-with-quite-a-long-name" * 3)
    assert told(wide_table(tmp_path / "gpu.csv"), run, capsys)[0] == f"{run}:"


def test_a_hundred_columns_bound_are_cut_to_forty_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One column a GPU, 100 GPUs: the first 40 are shown, the rest is counted, --json has them all."""
    names = ",".join(f"gpu{i}.utilization" for i in range(100))
    path = tmp_path / "wide.csv"
    path.write_text(f"time,{names}\n" + "".join(f"{1_796_053_333 + s}{',5' * 100}\n" for s in range(40)))
    words = ["import", str(path), "-o", str(tmp_path / "run"), "-q"]
    assert main([*words, "--bind", "gpu*.utilization=util_pct"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert any("more (--json lists all)" in line for line in lines)
