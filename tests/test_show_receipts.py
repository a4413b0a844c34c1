"""Receipts: where the evidence is, and a command that derives it again and can be pasted."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from builders import HOSTILE, claims, hostile_report, judged_report, receipts, run_info, tiny_report
from dipstick.errors import UsageError
from dipstick.judgement import Receipt
from dipstick.show import words
from dipstick.show.receipts import (
    CHECK_NAMES,
    as_json,
    command,
    find,
    known_name,
    proof,
    quoted,
    run_word,
    where,
)

SQL = [
    "SELECT 1",
    "a = 'it''s'",
    'a = "b"',
    "a = '$HOME'",
    "a = '`id`'",
    "a = 'x\\y'",
    "a = 'wow!'",
    "'",
    "--x",
    "",
]
ATTACKS = [
    "\x1b[31mred",
    "two\nlines",
    "\u202egnp",
    "bell\x07",
    "a  b",
    "tab\t'q'",
    "é\u0301\u0301\u0301",
    "\x9b31m",
]


@pytest.mark.parametrize("word", [*SQL, *ATTACKS])
def test_a_shell_reads_back_what_was_quoted(word: str) -> None:
    """Bash is asked: nothing is expanded, run or lost."""
    done = subprocess.run(["/bin/bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True)
    assert done.stdout.decode() == word


@pytest.mark.parametrize("word", [*SQL, *ATTACKS, HOSTILE])
def test_what_is_quoted_can_be_printed(word: str) -> None:
    """No control character, no override, and nothing that a terminal would act on."""
    assert words.clean(quoted(word), 1000) == quoted(word)
    assert quoted(word, unicode=False).isascii()


def test_ascii_is_asked_for_where_nothing_else_arrives() -> None:
    """The bytes of UTF-8, so that the shell still gets the letter."""
    assert quoted("é") == "'é'"
    assert quoted("é", unicode=False) == r"$'\xc3\xa9'"


def test_sql_keeps_its_own_quotes_where_it_can() -> None:
    """Double quotes around it, unless the shell would expand something there."""
    assert quoted("phase = 'reward'") == "\"phase = 'reward'\""
    assert quoted("phase = '$x'") == "'phase = '\"'\"'$x'\"'\"''"


def test_a_query_becomes_a_command() -> None:
    """The recording's name is quoted, too."""
    receipt = Receipt("number", "x", query="SELECT 1")
    assert command(receipt, "my run") == "dipstick query 'my run' 'SELECT 1'"
    assert command(Receipt("code", "x", file="a.py"), "my run") == ""


def test_samples_are_named_and_other_recordings_are_not() -> None:
    """A page travels: RUN stands for wherever the recording is."""
    assert run_word(tiny_report()) == "RUN"
    assert run_word(tiny_report(run=run_info(name="sample:x"))) == "sample:x"


@pytest.mark.parametrize(
    ("receipt", "expected"),
    [
        (Receipt("interval", "", gpu=1, rank=0, t0_s=5.2, t1_s=8.25), "5.200–8.250 s, GPU 1, rank 0"),
        (Receipt("interval", "", t0_s=5.2), "5.200 s"),
        (Receipt("interval", "", t0_s=float("nan"), t1_s=None), ""),
        (Receipt("code", "", file="a/train.py", line=42), "a/train.py:42"),
        (Receipt("code", "", file="a/train.py"), "a/train.py"),
        (Receipt("count", "", gpu=0), "GPU 0"),
        (Receipt("count", ""), ""),
    ],
)
def test_where_the_evidence_is(receipt: Receipt, expected: str) -> None:
    """Times, GPU, rank, or the place in the code; what is not known is left out."""
    assert where(receipt) == expected


def test_bytes_are_told_once() -> None:
    """A text that names the number is not followed by it again."""
    told = "64 hand-overs, 217,088 pickled bytes"
    assert (
        proof(Receipt("bytes", "64 hand-overs", value=217_088.0), "RUN").text
        == "64 hand-overs (217,088 bytes)"
    )
    assert proof(Receipt("bytes", told, value=217_088.0), "RUN").text == told
    assert proof(Receipt("bytes", "some", value=None), "RUN").text == "some"


def test_a_receipt_from_the_code_has_no_command() -> None:
    """Its origin says that it was read, not seen running."""
    shown = proof(receipts()[2], "RUN")
    assert (shown.where, shown.origin, shown.command) == ("train.py:42", "static", "")


def test_hostile_receipts_are_clean() -> None:
    """Text, place and command."""
    report = hostile_report()
    for receipt in (report.checks[0].receipts[0], report.claims[0].receipts[0]):
        shown = proof(receipt, HOSTILE)
        for text in (shown.text, shown.where, shown.command):
            assert words.clean(text, 10_000) == text


def test_json_has_every_field_and_the_command() -> None:
    """What a receipt doesn't have is null."""
    assert as_json(Receipt("count", "3 steps", rank=1, value=3, unit="steps", query="SELECT 3"), "RUN") == {
        "kind": "count", "text": "3 steps", "gpu": None, "rank": 1, "t0_s": None, "t1_s": None, "value": 3,
        "unit": "steps", "file": None, "line": None, "origin": "recorded", "query": "SELECT 3",
        "command": "dipstick query RUN 'SELECT 3'",
    }  # fmt: skip


def test_a_check_is_found_by_name_and_a_claim_by_number() -> None:
    """Numbers are those of the scorecard, from 1."""
    report = judged_report()
    assert find(report, "alignment") is report.checks[0]
    assert find(report, "2") is report.claims[1]


@pytest.mark.parametrize("name", ["0", "3", "10", "nothing", "-1", "²", "9" * 5000])
def test_an_unknown_name_lists_those_there_are(name: str) -> None:
    """A usage error, also for numbers that no scorecard has."""
    with pytest.raises(UsageError, match="alignment, phases, memory_spikes, stragglers, trends, 1 to 2"):
        find(judged_report(), name)


def test_a_report_without_verdicts_says_so() -> None:
    """There is nothing to list."""
    with pytest.raises(UsageError, match="nothing was judged"):
        find(tiny_report(), "alignment")
    with pytest.raises(UsageError, match=r"use one of: 1 to 2 \(the scorecard\)"):
        find(tiny_report(claims=claims()), "alignment")


def test_names_are_checked_before_any_work() -> None:
    """The five checks and numbers can name something; a typo can't."""
    assert [known_name(name) for name in (*CHECK_NAMES, "7")] == [*CHECK_NAMES, "7"]
    with pytest.raises(UsageError, match="alignment, phases, memory_spikes, stragglers, trends, the number"):
        known_name("straglers")


def test_a_hostile_check_name_is_cleaned_in_the_message() -> None:
    """It may come from a plug-in or a file."""
    report = judged_report()
    report = replace(report, checks=(replace(report.checks[0], name="\x1b[31mred"),), claims=())
    with pytest.raises(UsageError, match=r"use one of: red$"):
        find(report, "x")
