"""`dipstick explain` and `dipstick demo`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import dipstick
from builders import empty_report, judged_report, tiny_report
from dipstick.cli import main
from dipstick.errors import UsageError
from dipstick.show import FORMATS, terminal
from dipstick.show.look import Look
from dipstick.show.terminal_verdicts import render_receipts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Explaining gives the hand-made report; the list holds what was asked for."""
    runs: list[object] = []

    def explain(run: object, **_more: object) -> object:
        runs.append(run)
        if run == "nothing":
            return empty_report()
        if str(run).startswith("sample:no"):
            raise UsageError("there is no sample 'no'.")
        return judged_report() if run == "judged run" else tiny_report()

    monkeypatch.setattr(dipstick, "explain", explain)
    monkeypatch.setattr(dipstick, "load", lambda _run: None)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return runs


def test_the_screen_is_the_answer_and_the_next_command_is_talk(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout can be piped; the hint is quoted for a shell."""
    assert main(["explain", "my run"]) == 0
    out, err = capsys.readouterr()
    assert out == terminal.render(tiny_report(), Look(80))
    assert err == "next: dipstick explain 'my run' -o report.html  (the same as a page to share)\n"


def test_receipts_of_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Only they are printed; the commands name the recording as it was asked for."""
    assert main(["explain", "judged run", "--receipts", "alignment"]) == 0
    out, err = capsys.readouterr()
    assert out == render_receipts(judged_report().checks[0], "judged run", Look(80))
    assert "dipstick query 'judged run' 'SELECT * FROM dips WHERE gpu = 0'" in out
    assert err == ""


def test_receipts_of_a_claim_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """By its number in the scorecard."""
    assert main(["explain", "judged run", "--receipts", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["receipts_of"], [r["t0_s"] for r in found["receipts"]]) == ("1", [5.2])


def test_an_unknown_check_is_a_usage_error_before_any_work(
    asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists the names."""
    assert main(["explain", "judged run", "--receipts", "straglers"]) == 2
    assert "alignment, phases, memory_spikes, stragglers, trends" in capsys.readouterr().err
    assert asked == []


def test_a_number_that_the_scorecard_lacks_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says up to which number it goes."""
    assert main(["explain", "judged run", "--receipts", "8"]) == 2
    assert "1 to 2 (the scorecard)" in capsys.readouterr().err


def test_receipts_write_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files hold them already."""
    assert main(["explain", "judged run", "--receipts", "1", "-o", str(tmp_path / "r.html")]) == 2
    assert "leave -o out" in capsys.readouterr().err


def test_full_prints_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """--full is the whole report as text."""
    assert main(["explain", "judged run", "--full", "-q"]) == 0
    assert capsys.readouterr().out == terminal.render(judged_report(), Look(80), full=True)


def test_width_and_colour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--width beats COLUMNS, FORCE_COLOR brings colour into a pipe, --no-color takes it away."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["explain", "x", "--width", "100", "-q"]) == 0
    assert capsys.readouterr().out == terminal.render(tiny_report(), Look(100, "standard"))
    assert main(["explain", "x", "--width", "100", "-q", "--no-color"]) == 0
    assert capsys.readouterr().out == terminal.render(tiny_report(), Look(100))


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as the .json file; silent on stderr."""
    assert main(["explain", "x", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (FORMATS[".json"].render(tiny_report()).decode(), "")


def test_an_empty_report_is_answered_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to say is said with exit status 0 (the reader refuses what cannot be read)."""
    assert main(["explain", "nothing", "-q"]) == 0
    assert "Nothing can be said." in capsys.readouterr().out


def test_files_are_written_in_the_format_of_their_suffix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """-o can be repeated; the answer itself still goes to stdout."""
    paths = [tmp_path / f"report{suffix}" for suffix in FORMATS]
    assert main(["explain", "x", *(word for path in paths for word in ("-o", str(path)))]) == 0
    out, err = capsys.readouterr()
    assert out == "Generation is the longest phase and what you pay for. The dips are the reward phase.\n"
    assert err.splitlines() == [f"wrote {path}" for path in paths]
    assert [p.read_bytes() for p in paths] == [f.render(tiny_report()) for f in FORMATS.values()]


def test_names_are_replaced_in_what_people_share_and_kept_on_request(tmp_path: Path) -> None:
    """The page says folder1 and host1, --no-redact writes what was recorded, JSON is redacted only with --redact."""

    def written(suffix: str, *options: str) -> str:
        path = tmp_path / f"r{len(list(tmp_path.iterdir()))}{suffix}"
        assert main(["explain", "judged run", "-q", "-o", str(path), *options]) == 0
        return path.read_text(encoding="utf-8")

    assert "tiny" not in written(".html")
    assert "tiny" in written(".html", "--no-redact")
    assert "node1" in written(".json")
    assert "node1" not in written(".json", "--redact")


def test_json_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is the JSON, the file is written beside it."""
    assert main(["explain", "x", "--json", "-o", str(tmp_path / "r.md")]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1
    assert (tmp_path / "r.md").exists()


def test_an_existing_file_is_kept(
    tmp_path: Path, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the flag; nothing is computed first."""
    path = tmp_path / "r.html"
    path.write_text("mine")
    assert main(["explain", "x", "-o", str(path)]) == 1
    assert capsys.readouterr().err == f"dipstick: error: {path}: the file exists\n  --force replaces it\n"
    assert (path.read_text(), asked) == ("mine", [])
    assert main(["explain", "x", "-o", str(path), "--force", "-q"]) == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_missing_folder_is_named(
    tmp_path: Path, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not made: a typo would make folders."""
    assert main(["explain", "x", "-o", str(tmp_path / "no" / "r.html")]) == 1
    assert f"{tmp_path / 'no'}: there is no such folder" in capsys.readouterr().err
    assert asked == []


def test_an_unknown_suffix_is_a_usage_error(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """With the list of those that there are."""
    assert main(["explain", "x", "-o", "r.pdf"]) == 2
    assert "use one of: .html" in capsys.readouterr().err
    assert asked == []


def test_a_stretch_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """--from and --to, in seconds since the recording's start."""
    assert main(["explain", "x", "-q", "--from", "11", "--to", "16"]) == 0
    assert "1 step, 11.0–16.0 s" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--from", "8", "--to", "2"], ["--from", "500"], ["--to", "0"]])
def test_a_stretch_outside_the_recording_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what the window is."""
    assert main(["explain", "x", *words]) == 2
    assert "the analysis window is 1.0 to 21.0 s" in capsys.readouterr().err


def test_a_sample_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, from the reader's own error."""
    assert main(["explain", "sample:no"]) == 2
    assert "there is no sample 'no'" in capsys.readouterr().err


def test_the_demo_explains_the_sample_and_says_what_to_do_next(
    asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen is the same as explain's."""
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert asked == ["sample:h200x2-grpo"]
    assert out == terminal.render(tiny_report(), Look(80))
    assert err.splitlines()[-1] == "next: dipstick import LOGS -o RUN  (then: dipstick explain RUN)"


def test_the_demo_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The contract, and silence on stderr."""
    assert main(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (FORMATS[".json"].render(tiny_report()).decode(), "")


def test_the_checkout_and_the_claims_reach_the_analysis(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--repo, --claims and --claim are handed on as they were said."""
    seen: dict[str, object] = {}

    def explain(_run: object, **more: object) -> object:
        seen.update(more)
        return tiny_report()

    monkeypatch.setattr("dipstick.explain", explain)

    status = main(
        ["explain", "r", "--json", "--repo", "code", "--claims", "a.yaml", "--claim", "x: drifts of=step"]
    )

    capsys.readouterr()
    assert status == 0
    assert seen == {"repo": "code", "claims_files": ["a.yaml"], "claims": ["x: drifts of=step"]}
