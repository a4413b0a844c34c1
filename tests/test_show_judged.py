"""The sections of verdicts before any format: checks, what-ifs, scorecard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import checks, hostile_report, judged_report, tiny_report, what_ifs
from dipstick.judgement import Claim, Reason, Verdict
from dipstick.show.judged import check_section, claim_section, details, figures, what_if_table


def what_if_rows(edits: list[dict[str, Any]], most: int | None = None) -> list[tuple[str, ...]]:
    """The cells of the what-if table."""
    one = replace(checks()[1], facts={"what_if": edits})
    table = what_if_table(tiny_report(checks=(one,)), most)
    return [] if table is None else [row.cells for row in table.rows]


def test_every_check_has_its_word_and_its_sentence() -> None:
    """In the order of the report, with the name that --receipts takes."""
    section = check_section(judged_report())
    assert section is not None
    assert [(i.key, i.ink.label, i.because) for i in section.items] == [
        ("alignment", "yes", "2 of 2 dips start at reward"),
        ("phases", "partially", "generate is 50 % of the path"),
        ("memory_spikes", "can't tell", "no step fired twice"),
        ("stragglers", "no", "rho is 0.02"),
        ("trends", "no", "no drift stands out"),
    ]
    assert section.title == "The five checks"


def test_one_screen_has_the_four_checks_and_a_trend_only_if_there_is_one() -> None:
    """That nothing drifts is no news."""
    section = check_section(judged_report(), brief=True)
    assert section is not None
    assert (section.title, [i.key for i in section.items]) == (
        "The four checks", ["alignment", "phases", "memory_spikes", "stragglers"],
    )  # fmt: skip
    drifting = replace(checks()[4], verdict=Verdict("yes", "steps get longer"))
    section = check_section(tiny_report(checks=(*checks()[:4], drifting)), brief=True)
    assert section is not None
    assert [i.key for i in section.items][-1] == "trends"


def test_a_check_of_a_later_version_is_shown_under_its_name() -> None:
    """Its question stands in full beside it."""
    section = check_section(tiny_report(checks=(replace(checks()[0], name="power_draw"),)))
    assert section is not None
    assert (section.title, section.items[0].label) == ("The checks", "power draw")


def test_nothing_judged_no_section() -> None:
    """A report of an older kind has none of the three."""
    report = tiny_report()
    assert (check_section(report), claim_section(report), what_if_table(report)) == (None, None, None)


def test_claims_are_numbered_as_receipts_are_asked_for() -> None:
    """From 1, in the order of the report."""
    section = claim_section(judged_report())
    assert section is not None
    assert section.numbered
    assert [(i.key, i.label, i.ink.key) for i in section.items] == [
        ("1", "the dips are the reward phase", "yes"),
        ("2", "generation hands tensors to the workers", "unconfirmed"),
    ]
    assert section.items[0].details[-1] == (
        "evidence",
        "1 receipt, printed by dipstick explain RUN --receipts 1",
    )


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict("yes", "x"), []),
        (Verdict("yes", "x", 0.9, (0.8, 0.95), 0.0002), [("numbers", "effect 0.9 [0.8, 0.95]; p < 0.001")]),
        (Verdict("no", "x", 1234.5, None, 0.04), [("numbers", "effect 1,234; p = 0.04")]),
        (Verdict("no", "x", 0.0, min_detectable=0.4, steps_needed=1), [
            ("numbers", "effect 0; smallest effect this run would show: 0.4, 1 step would show this one"),
        ]),
        (Verdict("yes", "x", float("nan"), (0.0, float("inf")), float("nan")), []),
        (Verdict("partially", "x", experiment="vary the cap"), [("to settle it", "vary the cap")]),
        (Verdict("yes", "x", experiment="vary the cap"), []),
        (Verdict("unconfirmed", "x", reason=Reason.COARSE), [
            ("unconfirmed (COARSE)",
             "the sampling window is longer than the phase or dip, or too few samples touch it"),
            ("to settle it", "sample at 1 s for 10 minutes: dipstick run --hz 10 -- CMD"),
        ]),
        (Verdict("unconfirmed", "x", reason=Reason.COARSE, experiment="sample at 0.1 s"), [
            ("unconfirmed (COARSE)",
             "the sampling window is longer than the phase or dip, or too few samples touch it"),
            ("to settle it", "sample at 0.1 s"),
        ]),
    ],
)  # fmt: skip
def test_the_numbers_behind_a_word(verdict: Verdict, expected: list[tuple[str, str]]) -> None:
    """What is not known is left out; an open question says why, and what would settle it."""
    assert list(details(verdict)) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9076, "0.908"), (12.34, "12.3"), (-1234.5, "-1,234"), (0.0, "0"), (None, "–"), (float("inf"), "–")],
)
def test_three_figures(value: float | None, shown: str) -> None:
    """More would be noise."""
    assert figures(value) == shown


def test_sure_changes_come_first_and_the_largest_of_them_leads() -> None:
    """A speed-up that may not be relied on stands in brackets and says why, however large it is."""
    assert what_if_rows(what_ifs()) == [
        ("reward 2x faster", "1.25×", "1.20 to 1.30", "8", ""),
        ("reward overlapped", "1.10×", "1.05 to 1.15", "4", "at most"),
        ("without checkpoint", "(1.50×)", "0.90 to 2.00", "9", "can't tell (LOW_N)"),
        ("other placement", "–", "–", "–", "can't tell (MISSING_SIGNAL)"),
    ]


def test_one_screen_has_the_first_rows_without_the_remarks_under_them() -> None:
    """The rest is in the full report."""
    table = what_if_table(judged_report(), 1)
    assert table is not None
    assert ([row.cells[0] for row in table.rows], table.notes) == (["reward 2x faster"], ())


def test_what_is_held_fixed_is_told_once_and_reasons_are_explained() -> None:
    """A what-if without its assumption is a promise."""
    table = what_if_table(judged_report())
    assert table is not None
    assert table.notes == (
        "Everything else held fixed.",
        "LOW_N: fewer steps or fired events than the decision needs.",
        "MISSING_SIGNAL: a signal that the decision needs was not recorded.",
    )


@pytest.mark.parametrize("edits", [None, []])
def test_no_changes_no_table(edits: list[dict[str, Any]] | None) -> None:
    """A run without steps has none."""
    assert what_if_rows(edits or []) == []


def test_numbers_that_are_none_are_dashes() -> None:
    """NaN, infinity and text are not speed-ups."""
    odd = {"change": "x", "step_speedup": float("nan"), "saved_gpu_s": "many", "interval": None}
    assert what_if_rows([odd]) == [("x", "–", "–", "–", "")]
    assert what_if_rows([{}]) == [("", "–", "–", "–", "")]


def test_a_hostile_what_if_is_one_clean_row() -> None:
    """A reason that is not ours is shown, and not explained."""
    table = what_if_table(hostile_report())
    assert table is not None
    assert len(table.rows) == 1
    assert len(table.notes) == 1


def test_a_long_claim_is_cut() -> None:
    """A claim of a megabyte is no label."""
    section = claim_section(tiny_report(claims=(Claim("x" * 10_000, "t", {}, Verdict("yes", "y" * 10_000)),)))
    assert section is not None
    assert (len(section.items[0].label), len(section.items[0].because)) == (200, 2000)
