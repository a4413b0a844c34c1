"""Numbers and recorded strings as people read them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.show import words

NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand  blanks", "two lines and blanks"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ends", ""),
        ("\x1bcreset", "reset"),
        ("bell\x07", "bell\ufffd"),
        ("8-bit \x9b31m", "8-bit \ufffd31m"),
        ("a\u202eb", "a\ufffdb"),
        ("zero\u200bwidth", "zero\ufffdwidth"),
        ("half \ud800", "half \ufffd"),
        ("line\u2028separator", "line separator"),
        ("e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301"),
        ("äöü 漢字 🚀", "äöü 漢字 🚀"),
    ],
)
def test_a_recorded_string_cannot_drive_a_terminal(recorded: str, shown: str) -> None:
    """Escapes go, control and format characters become U+FFFD, letters stay."""
    assert words.clean(recorded) == shown


@given(st.text(alphabet=st.characters(), max_size=60))
def test_cleaned_text_holds_no_control_or_format_character(text: str) -> None:
    """Whatever goes in, what comes out is one line of visible characters, and cleaning it again changes nothing."""
    cleaned = words.clean(text)
    assert [c for c in cleaned if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}] == []
    assert words.clean(cleaned) == cleaned


def test_a_long_string_is_cut() -> None:
    """The cut is shown, and the limit is the length of the result."""
    assert words.clean("x" * 50, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (NAN, "–"),
        (INF, "–"),
        (0.0, "0 s"),
        (0.0003, "0.3 ms"),
        (0.045, "45 ms"),
        (0.12, "0.12 s"),
        (7.64, "7.6 s"),
        (99.96, "100 s"),
        (405.0, "405 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds_in_text(value: float | None, shown: str) -> None:
    """Two figures or more; what was not measured is never 0."""
    assert words.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (0.0044, "0.004"), (0.174, "0.17"), (2.84, "2.8"), (146.2, "146"), (NAN, "–")],
)
def test_seconds_in_a_column_of_mixed_sizes(value: float | None, shown: str) -> None:
    """A micro-step of milliseconds and a wait of minutes stand in one column."""
    assert words.short(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.2, "0.20 s"),
        (405, "405 s"),
        (1400, "23 min 20 s"),
        (86_400, "24 h 00 min"),
        (NAN, "–"),
    ],
)
def test_length_of_a_run(value: float | None, shown: str) -> None:
    """Hours are not told in seconds."""
    assert words.span(value) == shown


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (61.4, 0, "61 %"),
        (0.0, 0, "0 %"),
        (0.2, 0, "<1 %"),
        (0.5, 0, "0 %"),
        (0.04, 1, "<0.1 %"),
        (None, 0, "–"),
        (NAN, 0, "–"),
    ],
)
def test_percent(value: float | None, decimals: int, shown: str) -> None:
    """Something is never shown as nothing."""
    assert words.percent(value, decimals) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(1.0, 4.0, "25 %"), (0.0, 4.0, "0 %"), (0.0, 0.0, "–"), (None, 4.0, "–"), (1.0, NAN, "–")],
)
def test_share(part: float | None, whole: float, shown: str) -> None:
    """Nothing of nothing is absent, not 0 %."""
    assert words.share(part, whole) == shown


def test_numbers_have_thousands_and_no_negative_zero() -> None:
    """-0.0 reads 0.0."""
    assert (words.number(1234.56), words.number(-0.0), words.number(None)) == ("1,234.6", "0.0", "–")


@pytest.mark.parametrize(("largest", "decimals"), [(0.2, 3), (405.0, 1), (86_400.0, 0), (None, 0), (NAN, 0)])
def test_decimals_follow_the_largest_number_of_a_column(largest: float | None, decimals: int) -> None:
    """A recording of 0.2 s needs milliseconds, one of a day needs none."""
    assert words.decimals_for(largest) == decimals


def test_counts_and_lists() -> None:
    """Singular, plural, thousands, and 'and' before the last."""
    assert words.count(1, "rank") == "1 rank"
    assert words.count(1984, "job") == "1,984 jobs"
    assert words.count(0, "process", "processes") == "0 processes"
    assert [words.listed(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("second", "step", "shown"),
    [
        (40.0, 10.0, "40 s"),
        (0.25, 0.05, "0.250 s"),
        (0.5, 0.1, "0.5 s"),
        (3720.0, 600.0, "1:02 h"),
        (1234.0, 60.0, "1,234 s"),
    ],
)
def test_times_on_an_axis(second: float, step: float, shown: str) -> None:
    """As fine as the ticks are."""
    assert words.clock(second, step) == shown


@pytest.mark.parametrize(
    ("value", "decimals", "shown"), [(-0.04, 1, "0.0"), (-0.4, 0, "0"), (-0.0, 2, "0.00"), (-0.06, 1, "-0.1"), (-1e-15, 0, "0")]
)  # fmt: skip
def test_nothing_has_no_sign(value: float, decimals: int, shown: str) -> None:
    """What rounds to nothing is 0, not -0."""
    assert words.number(value, decimals) == shown


@pytest.mark.parametrize("dust", [-1e-12, 1e-12, -0.0])
def test_what_floats_leave_is_no_duration(dust: float) -> None:
    """Less than a nanosecond was never recorded."""
    assert words.seconds(dust) == "0 s"


@pytest.mark.parametrize(
    ("step", "shown"),
    [(0.001, "0.000 s"), (0.5, "0.0 s"), (60.0, "0 s"), (1200.0, "0:00 h"), (7200.0, "0:00 h")],
)
def test_an_axis_begins_at_nought(step: float, shown: str) -> None:
    """Even where the arithmetic of its ticks ends a hair before it: never -0 s, nor -1:59 h."""
    assert words.clock(-1e-9, step) == words.clock(0.0, step) == shown
