"""Queries behind receipts: hostile strings stay strings, what was not measured is NULL, sums can be clipped."""

from __future__ import annotations

import shlex
import subprocess

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.cli.query import only_tables
from dipstick.show.receipts import quoted
from dipstick.verdicts.sql import equals, literal, select, within
from records import near

HOSTILE = [
    "it's",
    "''",
    "'; DROP TABLE jobs; --",
    "a' OR 1=1 --",
    "read_csv('/etc/passwd')",
    "' UNION SELECT * FROM read_csv('/etc/passwd') --",
    "$(touch /tmp/pwned) `id` ${HOME} !!",
    'double " quotes',
    "back\\slash\\'",
    "two\nlines\r\n",
    "\x1b[31mred\x07",
    "\u202e right to left",
    "/* comment */ -- and more",
    "%s {0} :name ? @x",
    "E'\\''",
    "$$dollar$$",
    "",
    " ",
    "é漢🙂",
]


def ask(sql: str, **tables: pl.DataFrame) -> pl.DataFrame:
    """What Polars answers."""
    return pl.SQLContext(tables or {"t": pl.DataFrame({"x": [1]})}, eager=True).execute(sql)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_recorded_string_comes_back_unharmed(text: str) -> None:
    """Selected as a literal, and found as a value among others."""
    frame = pl.DataFrame({"name": ["other", text, "'"]})

    assert ask(select(literal(text), "t")).item() == text
    assert ask(select("COUNT(*)", "t", name=text), t=frame).item() == (2 if text == "'" else 1)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_string_comes_back_unharmed(text: str) -> None:
    """Whatever a process called itself."""
    assert ask(select(literal(text), "t")).item() == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_query_with_a_recorded_string_passes_the_shell_unharmed(text: str) -> None:
    """As a report shows it, and as ``shlex`` quotes it: bash hands over exactly the query."""
    query = select("COUNT(*)", "jobs", job=text)
    for word in (quoted(query), shlex.quote(query)):
        done = subprocess.run(["/bin/bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
        assert done.stdout.decode() == query


@pytest.mark.parametrize("text", HOSTILE)
def test_a_recorded_string_is_never_taken_for_a_function(text: str) -> None:
    """The guard of ``dipstick query`` lets every receipt's query through as it is."""
    query = select("COUNT(*)", "jobs", job=text)

    assert only_tables(query) == query


def test_half_a_surrogate_becomes_a_replacement_character() -> None:
    """No shell could pass it on."""
    assert literal("a\ud800b") == "'a�b'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (3, "3"),
        (-2, "-2"),
        (1.5, "1.5"),
        (1e300, "1e+300"),
        (np.int64(7), "7"),
        (np.float64(0.1), "0.1"),
        (float("nan"), "NULL"),
        (float("inf"), "NULL"),
        (np.float64("-inf"), "NULL"),
    ],
)
def test_numbers_are_written_as_sql_has_them(value: float | None, expected: str) -> None:
    """NumPy's repr (``np.int64(7)``) is no SQL; what is not measured equals nothing."""
    assert literal(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_finds_itself(value: float) -> None:
    """Times of intervals are compared for equality, so no digit may be lost."""
    frame = pl.DataFrame({"t0_s": [value]})

    assert ask(select("COUNT(*)", "t", t0_s=value), t=frame).item() == 1


def test_null_is_asked_for_with_is() -> None:
    """``gpu = NULL`` would find nothing: the job's dips have no GPU."""
    frame = pl.DataFrame({"gpu": [None, 0, 1]})

    assert equals("gpu", None) == "gpu IS NULL"
    assert ask(select("COUNT(*)", "t", gpu=None), t=frame).item() == 1


def test_conditions_are_joined() -> None:
    """Values first, our own conditions after them."""
    assert select("x", "t") == "SELECT x FROM t"
    assert select("x", "t", "y > 1", "z < 2", rank=0, phase="reward") == (
        "SELECT x FROM t WHERE rank = 0 AND phase = 'reward' AND y > 1 AND z < 2"
    )


STATES = pl.DataFrame(
    {
        "t0_s": [0.0, 1.0, 2.0, 3.0],
        "t1_s": [1.0, 2.0, 3.0, 4.0],
        "hollow_s": [1.0, 0.5, None, 1.0],
        "gpu": [0, 0, 0, 1],
    }
)


@pytest.mark.parametrize(
    ("span", "gpu", "seconds"),
    [
        ((0.0, 4.0), 0, 1.5),
        ((0.5, 1.5), 0, 0.75),
        ((0.25, 0.5), 0, 0.25),
        ((10.0, 11.0), 0, 0.0),
        ((2.0, 3.0), 0, 0.0),
    ],
)
def test_a_sum_is_clipped_to_a_stretch(span: tuple[float, float], gpu: int, seconds: float) -> None:
    """A window half inside counts half; no row at all is 0, not NULL."""
    assert ask(within("hollow_s", "t", span, gpu=gpu), t=STATES).item() == near(seconds)


def test_a_sum_is_clipped_whatever_the_other_conditions() -> None:
    """A state's name among them."""
    assert within("busy_s", "states", (1.0, 2.5), state="it's", host=None) == (
        "SELECT COALESCE(SUM(busy_s * (LEAST(t1_s, 2.5) - GREATEST(t0_s, 1.0)) / (t1_s - t0_s)), 0.0) FROM states"
        " WHERE state = 'it''s' AND host IS NULL AND t1_s > 1.0 AND t0_s < 2.5"
    )
