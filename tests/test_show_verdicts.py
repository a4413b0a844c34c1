"""Verdicts and receipts on every output: the screen to the character, the page, Markdown, JSON."""

from __future__ import annotations

import json
import re

import pytest
from rich.cells import cell_len

from builders import HOSTILE, hostile_report, judged_report, tiny_report
from dipstick.judgement import Check, Receipt, Verdict
from dipstick.show import html, markdown, words
from dipstick.show import json as as_json
from dipstick.show.look import Look
from dipstick.show.palette import VERDICT_INKS, luminance
from dipstick.show.receipts import find
from dipstick.show.terminal import render
from dipstick.show.terminal_verdicts import render_receipts

SGR = re.compile(r"\x1b\[[0-9;]*m")

SCREEN = """\
The four checks
✓ yes         dips part of the step?      2 of 2 dips start at reward
~ partially   one phase dominates?        generate is 50 % of the path
? can't tell  memory spikes explained?    no step fired twice
✗ no          slowest job sets the dips?  rho is 0.02
Scorecard
1  ✓ yes         the dips are the reward phase   2 of 2 dips
2  ? can't tell  generation hands tensors to t…  payload types were not recorded
What would shrink the step     step          95 %
reward 2x faster              1.25×  1.20 to 1.30
reward overlapped             1.10×  1.05 to 1.15  at most
without checkpoint          (1.50×)  0.90 to 2.00  can't tell (LOW_N)

Where each rank's 20.0 s went
"""

FULL = """\
The five checks
✓ yes         Are the dips locked to the steps?
  2 of 2 dips start at reward
  numbers: effect 0.9 [0.8, 0.95]; p < 0.001
  evidence: 3 receipts, printed by dipstick explain RUN --receipts alignment
~ partially   Which phase is longest?
  generate is 50 % of the path
  numbers: effect 0.5
? can't tell  Which event explains each spike?
  no step fired twice
  numbers: smallest effect this run would show: 0.4, 28 steps would show this
  one
  unconfirmed (LOW_N): fewer steps or fired events than the decision needs
  to settle it: record a longer run, or fire the event more often (a checkpoint
  every 5 steps)
✗ no          Do the dips follow the slowest job?
  rho is 0.02
  numbers: effect 0.02 [-0.3, 0.3]; p = 0.8
✗ no          Does the run change?
  no drift stands out

Scorecard
1 ✓ yes         the dips are the reward phase
    2 of 2 dips
    evidence: 1 receipt, printed by dipstick explain RUN --receipts 1
2 ? can't tell  generation hands tensors to the workers
    payload types were not recorded
    unconfirmed (MISSING_SIGNAL): a signal that the decision needs was not
    recorded
    to settle it: explain with --repo PATH

"""

RECEIPTS = """\
✓ yes         Are the dips locked to the steps?
  2 of 2 dips start at reward

1  GPU 0 dips 84 points for 3.0 s
   5.200–8.200 s, GPU 0, rank 0 · recorded
   dipstick query 'my run' 'SELECT * FROM dips WHERE gpu = 0'

2  64 jobs carried list[str] (217,088 bytes)
   recorded
   dipstick query 'my run' "SELECT SUM(payload_b) FROM jobs WHERE payload_types = 'list[str]'"

3  pool.submit(score, text)
   train.py:42 · static
"""


def test_one_screen_has_a_line_a_verdict() -> None:
    """Checks, scorecard and the surest what-ifs stand between the lanes and the tables, without blank lines."""
    assert SCREEN in render(judged_report())


def test_in_full_each_verdict_has_its_numbers_and_what_would_settle_it() -> None:
    """Nothing is cut."""
    screen = render(judged_report(), full=True)
    assert FULL + "What would shrink the step\nchange  " in screen


def test_in_ascii_the_signs_have_stand_ins() -> None:
    """The word is there all the same."""
    lines = render(judged_report(), Look(80, unicode=False)).splitlines()
    assert [line[:14].rstrip() for line in lines if "?  " in line] == [
        "+ yes", "~ partially", "? can't tell", "- no",
    ]  # fmt: skip


@pytest.mark.parametrize("word", VERDICT_INKS)
def test_a_verdict_is_told_by_colour_sign_and_word(word: str) -> None:
    """Never by colour alone; and the colours differ in lightness or hue for every kind of colour vision."""
    ink = VERDICT_INKS[word]
    assert len({i.letter for i in VERDICT_INKS.values()}) == len({i.hex for i in VERDICT_INKS.values()}) == 4
    assert abs(luminance(ink.hex) - luminance(ink.text)) > 0.1
    red, green, blue = (int(ink.hex[i : i + 2], 16) for i in (1, 3, 5))
    screen = render(judged_report(), Look(80, "truecolor"))
    assert f"\x1b[1;38;2;{red};{green};{blue}m{ink.letter} {ink.label}" in screen


def test_colour_says_the_same_as_no_colour() -> None:
    """Stripped of codes, the lines are the same."""
    colored = SGR.sub("", render(judged_report(), Look(80, "truecolor"))).splitlines()
    at = colored.index("The four checks")
    assert [line.rstrip() for line in colored[at : at + 12]] == SCREEN.splitlines()[:12]


def test_receipts_are_listed_with_the_command_that_derives_them_again() -> None:
    """Times, GPU, rank, bytes, file and line; recorded or read from the code."""
    assert render_receipts(find(judged_report(), "alignment"), "my run") == RECEIPTS


def test_a_command_is_never_wrapped() -> None:
    """It can be copied in one piece, however narrow the terminal is; the words around it are wrapped."""
    screen = render_receipts(find(judged_report(), "1"), "RUN", Look(40)).splitlines()
    assert "   dipstick query RUN 'SELECT * FROM dips WHERE gpu = 0'" in screen
    assert [line for line in screen if cell_len(line) > 40 and "dipstick query" not in line] == []


def test_ascii_commands_still_say_the_same() -> None:
    """A letter that would not arrive is an escape that the shell reads back."""
    check = Check("x", "Q?", Verdict("yes"), (Receipt("count", "é", query="SELECT 'é'"),))
    assert r"$'SELECT \'\xc3\xa9\''" in render_receipts(check, "RUN", Look(80, unicode=False))


def test_a_verdict_without_receipts_says_so() -> None:
    """No empty list."""
    assert render_receipts(find(judged_report(), "2"), "RUN").endswith(
        "\nNo receipts: nothing was recorded that this could rest on.\n"
    )


@pytest.mark.parametrize("name", ["phases", "1"])
@pytest.mark.parametrize("color", [None, "truecolor"])
def test_hostile_receipts_reach_no_terminal(name: str, color: object) -> None:
    """No escape but our own colours, no override, no control character."""
    text = SGR.sub("", render_receipts(find(hostile_report(), name), HOSTILE, Look(60, color)))  # type: ignore[arg-type] # matrix
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", text) == []


def test_the_page_begins_with_the_verdicts() -> None:
    """Cards of the checks, then the scorecard, then the lanes; a card's colour is its word's."""
    page = html.render(judged_report())
    order = ["The five checks", "Scorecard", "<figure>", "What would shrink the step", "Busy by utilization"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert re.findall(r'<article class="card v-(\w+)">', page) == [
        "yes", "partially", "unconfirmed", "no", "no", "yes", "unconfirmed",
    ]  # fmt: skip
    for ink in VERDICT_INKS.values():
        assert f".v-{ink.key} {{ border-left-color: {ink.hex}; }}" in page


def test_a_card_holds_numbers_receipts_and_commands() -> None:
    """Folded, so that the page stays an answer; quotes in commands are escaped."""
    page = html.render(judged_report())
    assert '<li><span class="soft">numbers:</span> effect 0.9 [0.8, 0.95]; p &lt; 0.001</li>' in page
    assert "<code>dipstick query RUN &#39;SELECT * FROM dips WHERE gpu = 0&#39;</code>" in page
    assert '<span class="soft">train.py:42 · static</span>' in page


def test_a_page_lists_fifty_receipts_and_counts_the_rest() -> None:
    """The command prints them all."""
    many = tuple(Receipt("count", f"number {i}") for i in range(53))
    page = html.render(tiny_report(checks=(Check("phases", "Q?", Verdict("yes"), many),)))
    assert ("number 49" in page, "number 50" in page, "3 more: --receipts phases" in page) == (
        True,
        False,
        True,
    )


def test_an_unjudged_page_has_no_empty_section() -> None:
    """Nor a title without cards."""
    assert '<section class="verdicts">' not in html.render(tiny_report())


def test_markdown_lists_each_verdict_with_its_receipts() -> None:
    """Commands are code; what Markdown would read as markup is escaped."""
    text = markdown.render(judged_report())
    assert (
        """\
## The five checks

**✓ yes** Are the dips locked to the steps?

- 2 of 2 dips start at reward
- numbers: effect 0.9 \\[0.8, 0.95\\]; p &lt; 0.001
- evidence: 3 receipts, printed by dipstick explain RUN --receipts alignment
- GPU 0 dips 84 points for 3.0 s (5.200–8.200 s, GPU 0, rank 0; recorded): `dipstick query RUN 'SELECT * FROM dips WHERE gpu = 0'`
- 64 jobs carried list\\[str\\] (217,088 bytes) (recorded): `dipstick query RUN "SELECT SUM(payload_b) FROM jobs WHERE payload_types = 'list[str]'"`
- pool.submit(score, text) (train.py:42; static)

**\\~ partially** Which phase is longest?
"""
        in text
    )
    assert "1\\. **✓ yes** the dips are the reward phase\n" in text


@pytest.mark.parametrize(
    ("text", "expected"), [("a", "`a`"), ("a`b", "`` a`b ``"), ("a``b`", "``` a``b` ```"), ("<b>", "`<b>`")]
)
def test_a_code_span_holds_any_text(text: str, expected: str) -> None:
    """Its fence is longer than any run of backticks inside."""
    assert markdown.code(text) == expected


def test_json_has_the_verdict_of_every_check_and_claim() -> None:
    """The contract's keys, what was counted, what was judged and the facts of the check in one object."""
    found = as_json.document(judged_report())
    alignment = found["checks"]["alignment"]
    assert {key: alignment[key] for key in alignment if key != "receipts"} == {
        "verdict": "yes", "why": "2 of 2 dips start at reward", "p_value": 0.0002, "effect": 0.9, "interval": [0.8, 0.95],
        "reason": None, "min_detectable": None, "steps_needed": None, "experiment": None,
    }  # fmt: skip
    assert [r["command"] for r in alignment["receipts"]][2] is None
    assert found["checks"]["memory_spikes"]["reason"] == "LOW_N"
    assert found["checks"]["memory_spikes"]["experiment"].startswith("record a longer run")
    assert found["checks"]["memory_spikes"]["unexplained"] == 0
    assert found["checks"]["phases"]["what_if"][2]["step_speedup"] == 1.25
    assert found["checks"]["phases"]["longest"] == "generate"
    assert found["claims"][0] | {"receipts": 1} == {
        "say": "the dips are the reward phase", "test": "dips_are", "parameters": {"phase": "reward"}, "verdict": "yes",
        "because": "2 of 2 dips", "p_value": None, "effect": None, "interval": None, "reason": None,
        "min_detectable": None, "steps_needed": None, "experiment": None, "receipts": 1,
    }  # fmt: skip


def test_facts_add_to_what_was_counted_and_do_not_replace_it() -> None:
    """A test keeps fewer steps than were counted: they stand beside each other."""
    found = as_json.document(judged_report())["checks"]["stragglers"]
    assert (found["steps"], found["steps_tested"], found["driver"]) == (2, 2, "total_work")
    assert found["what_if"] == {"no_straggler_step_speedup": 1.04}
    unknown = Check("stragglers", "Q?", Verdict("no"), facts={"what_if": None, "correlation": None})
    found = as_json.document(tiny_report(checks=(unknown,)))["checks"]["stragglers"]
    assert found["what_if"] == {"no_straggler_step_speedup": None}
    assert found["by_rank"][1]["last_in_steps"] == 2


def test_a_check_outside_the_contract_is_in_the_json_too() -> None:
    """Keys may be added."""
    extra = Check("power_draw", "Q?", Verdict("yes", "so"))
    found = as_json.document(tiny_report(checks=(extra,)))["checks"]
    assert list(found) == ["alignment", "phases", "memory_spikes", "stragglers", "trends", "power_draw"]
    assert (found["power_draw"]["why"], found["alignment"]["verdict"]) == ("so", None)


def test_hostile_verdicts_are_strict_json() -> None:
    """NaN becomes null, half a surrogate U+FFFD."""
    text = as_json.render(hostile_report())
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["checks"]["phases"]["effect"] is None
    assert words.clean(HOSTILE) not in text
    assert text.isascii()
