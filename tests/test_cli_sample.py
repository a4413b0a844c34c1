"""The shipped sample, from the command line: what traces/README.md worked out by hand is what the screen says."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.cli import main
from test_show_json import CONTRACT, breaches

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = "sample:h200x2-grpo"
BY_HAND = {
    "reward": (116.4, 147.1), "gather_wait": (81.7, 51.2), "generate": (60.3, 60.9), "backward": (46.3, 46.7),
    "forward": (41.0, 40.4), "logprobs": (33.5, 33.2), "weight_sync": (7.0, 7.2), "checkpoint": (7.2, 0.1),
}  # fmt: skip
"""Exclusive seconds of rank 0 and 1 (traces/README.md)."""


def answer_of(*words: str) -> str:
    """What a command writes to a UTF-8 stdout."""
    out = TextIOWrapper(BytesIO(), encoding="utf-8")
    with redirect_stdout(out):
        assert main(list(words)) == 0
    out.seek(0)
    return out.read()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """`dipstick explain sample:h200x2-grpo --json`."""
    found: dict[str, Any] = json.loads(answer_of("explain", SAMPLE, "--json"))
    return found


@pytest.fixture(scope="module")
def screen() -> list[str]:
    """`dipstick demo --width 100`."""
    return answer_of("demo", "--width", "100", "--no-color", "--quiet").splitlines()


def test_the_json_keeps_the_contract(document: dict[str, Any]) -> None:
    """On a real recording, too."""
    assert breaches(document, CONTRACT) == []


def test_exclusive_seconds_are_those_worked_out_by_hand(document: dict[str, Any]) -> None:
    """Within 2 % (or 0.05 s, where the hand-made table is rounded)."""
    rows = {(row["phase"], row["rank"]): row["seconds"] for row in document["checks"]["phases"]["rows"]}
    found = {phase: tuple(rows[phase, rank] for rank in (0, 1)) for phase in BY_HAND}
    assert found == {phase: pytest.approx(seconds, rel=0.02, abs=0.05) for phase, seconds in BY_HAND.items()}


def test_the_seconds_of_a_rank_add_up_to_the_window(document: dict[str, Any]) -> None:
    """405.0 s each."""
    start, end = document["run"]["window_s"]
    for rank in (0, 1):
        rows = [row["seconds"] for row in document["checks"]["phases"]["rows"] if row["rank"] == rank]
        assert sum(rows) == pytest.approx(end - start, abs=1e-4)


def test_the_full_report_shows_them() -> None:
    """Letter, name, rank 0, rank 1; one screen folds the checkpoint into the smaller phases."""
    shown = {}
    for line in answer_of(
        "explain", SAMPLE, "--full", "--width", "100", "--no-color", "--quiet"
    ).splitlines():
        if found := re.match(r"[A-Zwcx] ([a-z ]+?) +([\d.]+) +([\d.]+) +<?\d+ %", line):
            shown[found[1].replace(" ", "_")] = (float(found[2]), float(found[3]))
    assert {phase: shown.get(phase) for phase in BY_HAND} == {
        phase: pytest.approx(seconds, rel=0.02, abs=0.1) for phase, seconds in BY_HAND.items()
    }


def test_the_screen_says_who_came_last(screen: list[str]) -> None:
    """Rank 0 in 11 steps, rank 1 in 20."""
    assert [line for line in screen if " of 31 steps " in line] == [
        "last at reward  rank 1 in 20 of 31 steps (others waited 81.7 s), rank 0 in 11 (51.2 s)"
    ]


def test_the_wait_after_the_checkpoints_is_named(screen: list[str]) -> None:
    """Rank 1 waits for rank 0's checkpoints; it is no gather wait."""
    assert [line for line in screen if "checkpoint " in line and line.startswith("rank 1 ")] != []


def test_more_than_a_quarter_of_busy_is_hollow(screen: list[str]) -> None:
    """The numbers of both GPUs, at the end of the axis."""
    line = next(line for line in screen if line.startswith("all "))
    busy, work, hollow = map(float, re.findall(r"([\d.]+) +(?:%|s)", line)[-3:])
    assert hollow / (810.1 * busy / 100) > 0.25
    assert busy - work == pytest.approx(100 * hollow / 810.1, abs=1.0)


def test_the_screen_has_lanes_of_typical_steps_with_both_ranks(screen: list[str]) -> None:
    """Generation, reward, wait and training are to be seen in the lanes of the ranks that waited."""
    assert any(re.match(r"Steps \d+–\d+, .* \(typical: ", line) for line in screen)
    lanes = [line for line in screen if re.match(r"rank \d phase ", line)]
    assert len(lanes) == 2
    letters = set("".join(line.split("phase ", 1)[1] for line in lanes))
    assert set("GRwBF") <= letters


def test_the_screen_fits_100_columns_and_62_lines(screen: list[str]) -> None:
    """One screen, with the checks, the scorecard and the what-ifs."""
    assert max(map(len, screen)) <= 100
    assert len(screen) <= 62


def test_the_screen_fits_80_columns_and_68_lines() -> None:
    """Narrow, a few lines wrap."""
    lines = answer_of("explain", SAMPLE, "--width", "80", "--no-color", "--quiet").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 68


def test_full_has_what_the_screen_left_out() -> None:
    """The steps of each rank, the pids that share a GPU, how to get what is missing."""
    lines = answer_of("explain", SAMPLE, "--full", "--width", "100", "--no-color", "--quiet").splitlines()
    assert [line for line in lines if " of 31 steps " in line] == [
        "rank 1  20 of 31 steps  51.2 s            81.7 s",
        "rank 0  11 of 31 steps  81.7 s            51.2 s",
    ]
    for title in ("Reward workers", "Who shares the GPUs", "GPU-seconds by state", "Missing", "Notes"):
        assert title in lines


def test_the_screen_has_a_verdict_for_each_check_and_claim(screen: list[str]) -> None:
    """Four checks, then the seven claims of the scorecard, each with one of the four words."""
    at = screen.index("The four checks")
    word = r"(✓ yes|~ partially|✗ no|\? can't tell) "
    assert [line for line in screen[at + 1 : at + 5] if not re.match(word, line)] == []
    assert screen[at + 5] == "Scorecard"
    numbers = [re.match(rf"(\d)  {word}", line) for line in screen[at + 6 : at + 13]]
    assert [found and found[1] for found in numbers] == list("1234567")


@pytest.mark.parametrize("name", ["phases", "stragglers"])
def test_every_query_of_a_receipt_gives_the_number_that_it_stands_for(name: str) -> None:
    """The command shown beside a receipt, run: its one number is the receipt's value."""
    receipts = json.loads(answer_of("explain", SAMPLE, "--receipts", name, "--json"))["receipts"]
    asked = [(r["value"], shlex.split(r["command"])) for r in receipts if r["kind"] in {"number", "count"}]
    found = [(value, json.loads(answer_of(*words[1:], "--json"))["data"]) for value, words in asked]
    assert [value for value, _ in found] == [
        pytest.approx(next(iter(rows[0].values())), rel=1e-3, abs=1e-3) for _, rows in found
    ]
    assert len(found) > 1


def test_the_small_model_is_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    """sample:h200x2-grpo-135m: rank 1 comes last in 11 of 12 steps, and the whole answer fits 80 columns."""
    assert main(["explain", "sample:h200x2-grpo-135m", "--width", "80", "--no-color", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line[:40] for line in lines if line.startswith("last at reward")] == [
        "last at reward  rank 1 in 11 of 12 steps"
    ]


@pytest.mark.parametrize(
    ("suffix", "start"), [(".html", "<!doctype html>"), (".md", "# sample:h200x2-grpo · ")]
)
def test_files_of_the_sample_hold_the_numbers_worked_out_by_hand(
    tmp_path: Path, suffix: str, start: str
) -> None:
    """Reward 116.4 and 147.1 s, last in 20 of 31 steps, and the pids that share a GPU."""
    path = tmp_path / f"report{suffix}"
    assert main(["explain", SAMPLE, "-o", str(path), "-q"]) == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith(start)
    plain = re.sub(r"[|\s]+", " ", re.sub(r"<[^>]+>", " ", text))
    for expected in ("116.4 147.1", "20 of 31 steps", "trainer"):
        assert expected in plain
