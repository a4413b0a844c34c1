"""`dipstick claims`: what can be tested, and the user's own story judged."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import dipstick
from dipstick.cli import main
from dipstick.cli.claims import fails
from dipstick.judgement import Claim, Reason, Verdict
from dipstick.verdicts.claims import TESTS
from records import on_disk
from worlds import healthy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dipstick.model import Report

OK = "generation costs most: paid_most_for phase=generate"
WRONG = "rewards cost most: paid_most_for phase=reward"
OPEN = "workers_get_tensors"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six steps of two ranks on disk."""
    folder = tmp_path_factory.mktemp("claims") / "RUN"
    on_disk(folder, **healthy(6).rows())
    return str(folder)


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is judged once, however many tests ask it."""
    monkeypatch.setattr(dipstick, "explain", explained)


def explained(run: str, *, repo: str | None, claims_files: Sequence[Path], claims: Sequence[str]) -> Report:
    """As ``dipstick.explain``."""
    return _explained(run, repo, tuple(claims_files), tuple(claims))


_explain = dipstick.explain


@cache
def _explained(run: str, repo: str | None, files: tuple[Path, ...], claims: tuple[str, ...]) -> Report:
    return _explain(run, repo=repo, claims_files=files, claims=claims)


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What a command prints on stdout."""
    assert main(["claims", *words]) == status
    return capsys.readouterr().out


# What can be tested


def test_the_list_names_every_test_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    """Optional ones in brackets, with their default; one line says what it tests."""
    lines = printed(capsys, "list").splitlines()

    assert [line.split()[0] for line in lines[::2]] == sorted(TESTS)
    assert "phase_utilization phase [at_least=0.0] [at_most=100.0]" in lines
    assert all(line.startswith("    ") for line in lines[1::2])


def test_a_page_says_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    """All of the docstring, the parameters, and a claim to fill in."""
    page = printed(capsys, "show", "phase_utilization").splitlines()

    assert page[0] == "phase_utilization"
    assert "  phase: str, required" in page
    assert "  at_most: float, default 100.0" in page
    assert page[-1] == "  --claim 'phase_utilization phase=...'"


def test_both_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """For a script that writes claims."""
    everything = json.loads(printed(capsys, "list", "--json"))["tests"]
    (one,) = json.loads(printed(capsys, "show", "straggler_rank", "--json"))["tests"]

    assert [test["name"] for test in everything] == sorted(TESTS)
    assert one["parameters"] == [{"name": "rank", "type": "int", "required": True, "default": None}]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["show"], "which test?"),
        (["show", "hunch"], "there is no test 'hunch'"),
        (["list", "hunch"], "there is no test 'hunch'"),
        (["check"], "which recording?"),
        (["judge"], "invalid choice: 'judge'"),
        ([], "the following arguments are required"),
    ],
)
def test_a_wrong_word_is_a_usage_error(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is right beside it."""
    assert main(["claims", *words]) == 2
    assert what in capsys.readouterr().err


# The user's own story


def test_only_the_user_s_claims_are_printed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In their order: word, what was said, why."""
    lines = printed(capsys, "check", run, "--claim", OK, "--claim", WRONG).splitlines()

    assert lines[0] == "yes          generation costs most"
    assert lines[1].strip().startswith("generate takes ")
    assert lines[2] == "no           rewards cost most"


def test_without_claims_the_scorecard_is_printed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All seven rows."""
    rows = json.loads(printed(capsys, "check", run, "--json"))["claims"]

    assert len(rows) == 7
    assert rows[0]["test"] == "locked_to_steps"


def test_an_open_claim_says_what_would_settle_it(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And what the run could have shown, where that is known."""
    text = printed(capsys, "check", run, "--claim", OPEN, "--claim", "phase_longest phase=generate")

    assert "to settle it: dipstick explain RUN --repo PATH reads it from the training code" in text
    assert "smallest effect seen with power 0.8: " in text
    assert " steps would do" in text


def test_files_are_judged_before_words(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files and a word."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"- {{say: from {name}, test: locked_to_steps}}\n")
    out = printed(
        capsys, "check", run, str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "--claim", OK, "--json"
    )

    assert [row["say"] for row in json.loads(out)["claims"]] == ["from a", "from b", "generation costs most"]


def test_an_empty_file_judges_nothing(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list is a list; the scorecard was not asked for."""
    (tmp_path / "none.yaml").write_text("[]\n")

    assert printed(capsys, "check", run, str(tmp_path / "none.yaml")) == "no claims\n"


def test_the_json_has_the_numbers_and_the_receipts(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of the contract; each receipt with its command."""
    (row,) = json.loads(printed(capsys, "check", run, "--claim", WRONG, "--json"))["claims"]

    assert (row["say"], row["test"], row["parameters"], row["verdict"]) == (
        "rewards cost most", "paid_most_for", {"phase": "reward"}, "no",
    )  # fmt: skip
    assert {receipt["kind"] for receipt in row["receipts"]} == {"number"}
    assert all(receipt["command"].startswith("dipstick query RUN ") for receipt in row["receipts"])


def test_the_next_command_asks_the_same_again(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Quoted for a shell."""
    assert main(["claims", "check", run, "--claim", OK]) == 0

    assert capsys.readouterr().err == (
        f"next: dipstick claims check {run} --claim 'generation costs most: paid_most_for phase=generate' --json"
        "  (the numbers and receipts)\n"
    )


def test_what_is_said_is_printed_clean(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It may come from somebody's file."""
    out = printed(capsys, "check", run, "--claim", "\x1b[31mred\x07 \u202enpg: paid_most_for phase=reward")

    assert out.replace("\n", "").isprintable()


def test_code_settles_what_the_recording_cannot(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout with a trainer whose rewards get text and hand strings to a pool."""
    (tmp_path / "train.py").write_text(
        "from trl import GRPOTrainer\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "pool = ProcessPoolExecutor()\ndef work(text: str) -> float:\n    return 1.0\n"
        "def reward(completions: list[str], **_) -> list[float]:\n    return list(pool.map(work, completions))\n"
        "GRPOTrainer(model='m', reward_funcs=[reward]).train()\n"
    )
    (row,) = json.loads(printed(capsys, "check", run, "--claim", OPEN, "--repo", str(tmp_path), "--json"))[
        "claims"
    ]

    assert row["verdict"] == "no"
    assert ("train.py", "static") in {(r["file"], r["origin"]) for r in row["receipts"]}


@pytest.mark.parametrize("path", ["/nowhere/at/all", "train.py"])
def test_a_repo_that_is_no_folder_is_an_error(
    run: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not an empty finding."""
    assert main(["claims", "check", run, "--repo", path]) in {1, 2}
    assert path in capsys.readouterr().err


# Exit status


@pytest.mark.parametrize(
    ("claims", "level", "status"),
    [
        ([OK], None, 0),
        ([WRONG], None, 0),
        ([OK], "no", 0),
        ([WRONG], "no", 3),
        ([OPEN], "no", 0),
        ([OPEN], "unconfirmed", 3),
        ([WRONG], "unconfirmed", 3),
        ([OK], "unconfirmed", 0),
        ([OK, WRONG], "no", 3),
    ],
)
def test_a_verdict_can_fail_a_job(
    run: str, claims: list[str], level: str | None, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 where a claim got the verdict or a worse one; the answer is printed all the same."""
    words = [word for claim in claims for word in ("--claim", claim)] + (
        ["--fail-on", level] if level else []
    )

    assert printed(capsys, "check", run, *words, status=status) != ""


def test_explain_fails_on_the_user_s_claims_only(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Open rows of the scorecard are nobody's claim."""
    assert main(["explain", run, "--json", "--fail-on", "unconfirmed"]) == 0
    assert main(["explain", run, "--json", "--fail-on", "no", "--claim", WRONG]) == 3
    assert main(["explain", run, "--json", "--fail-on", "no", "--claim", OK]) == 0
    assert len(json.loads(capsys.readouterr().out.split("\n}\n")[1] + "\n}")["claims"]) == 8


def claim(word: str) -> Claim:
    """A judged claim."""
    reason: Any = Reason.LOW_N if word == "unconfirmed" else None
    return Claim("x", "test", {}, Verdict(word, reason=reason))  # type: ignore[arg-type] # one of the four words


@pytest.mark.parametrize(
    ("words", "level", "failed"),
    [
        ((), "no", False),
        (("yes", "partially"), "unconfirmed", False),
        (("partially", "no"), "no", True),
        (("unconfirmed",), "no", False),
        (("unconfirmed",), "unconfirmed", True),
        (("no",), None, False),
    ],
)
def test_no_is_worse_than_unconfirmed(words: tuple[str, ...], level: str | None, failed: bool) -> None:  # noqa: FBT001 - parametrized
    """And partially passes."""
    assert fails(tuple(map(claim, words)), level) is failed


@pytest.mark.parametrize("text", ["hunch", "paid_most_for phase=x", ""])
def test_a_claim_that_does_not_compile_is_a_usage_error(
    run: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, not 3: nothing was judged."""
    assert main(["claims", "check", run, "--claim", text, "--fail-on", "no"]) == 2
    assert capsys.readouterr().out == ""
