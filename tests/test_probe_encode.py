"""Rows to lines: only numbers, strings and plain containers get through, and every line is JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.probe.dipstick_probe import encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
FINITE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), inner, max_size=5),
    max_leaves=8,
)  # fmt: skip


class Hostile:
    """Whatever is called on it raises, and it lies about its class."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("code of the value ran")

    __repr__ = __str__ = __len__ = __iter__ = __hash__ = __eq__ = __getattr__ = __bool__ = __index__ = _refuse
    __class__ = property(_refuse)


class LoudText(str):
    """A string whose own methods must not be called."""

    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("code of the value ran")

    __repr__ = __format__ = __hash__ = __str__  # type: ignore[assignment]


@given(PLAIN)
def test_every_plain_value_becomes_json(value: Any) -> None:
    """Lone surrogates, NaN, integers of any size: the result parses."""
    json.loads(encode.dumps(value))


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


@given(FINITE.filter(lambda value: depth(value) <= encode.DEEPEST))
def test_what_json_can_hold_comes_back_as_it_was(value: Any) -> None:
    """Numbers of 64 bits, finite floats, short text and small containers are exact."""
    assert json.loads(encode.dumps(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (-math.inf, None),
        (2**63, None),
        (2**63 - 1, 2**63 - 1),
        (True, True),
        ("\ud800", "?"),
        ("a" * 600, "a" * 512),
        ({1: 2, "a": {3}}, {"a": "<set>"}),
        ([[[[[[1]]]]]], [[[[["<list>"]]]]]),
        ([0] * 300, [0] * 256),
    ],
)
def test_the_edges(value: Any, expected: Any) -> None:
    """What JSON cannot hold is null, the name of its type, or cut."""
    assert json.loads(encode.dumps(value)) == expected


def test_no_code_of_a_value_ever_runs() -> None:
    """A foreign object is the name of its type, a string of a type of its own its characters."""
    text = encode.dumps([Hostile(), LoudText("x"), {"key": Hostile()}])
    assert json.loads(text) == ["<Hostile>", "x", {"key": "<Hostile>"}]


def test_a_span_is_one_line_without_what_is_absent() -> None:
    """The order is that of the row; None is left out."""
    full = encode.span((None, "n", 1, 2, 3, 4, "p", "reward", "f.py", 5, {"jobs": 6}))
    bare = encode.span((None, "n", 1, 2, 3, None, None, None, None, None, None))
    assert full == (
        '{"k":"span","n":"n","a":1,"b":2,"tid":3,"step":4,"p":"p","ph":"reward","f":"f.py","l":5,"x":{"jobs":6}}\n'
    )
    assert bare == '{"k":"span","n":"n","a":1,"b":2,"tid":3}\n'


def test_a_name_with_a_line_break_stays_on_its_line() -> None:
    """A hostile name cannot forge a row."""
    line = encode.span((None, 'n"}\n{"k":"end"}', 1, 2, 3, None, None, None, None, None, None))
    assert line.count("\n") == 1
    assert json.loads(line)["n"] == 'n"}\n{"k":"end"}'


def test_fields_that_come_in_time_join_their_row() -> None:
    """What a result weighs is known after the job's row was put: it is one line."""
    row = encode.Open("job", {"job": "j"}, {"a": 1})
    later: list[Any] = []
    row.add(later.append, result_b=7)
    assert (encode.open_line(row.row()), later) == ('{"k":"job","job":"j","a":1,"result_b":7}\n', [])


def test_fields_that_come_too_late_get_a_line_of_their_own() -> None:
    """The row is written; the reader joins the two lines by the key."""
    row = encode.Open("job", {"job": "j"}, {"a": 1})
    later: list[Any] = []
    first = encode.open_line(row.row())
    row.add(later.append, result_b=7)
    assert first == '{"k":"job","job":"j","a":1}\n'
    assert [encode.line(each) for each in later] == ['{"k":"job","job":"j","result_b":7}\n']


def test_the_memory_for_names_is_bounded() -> None:
    """A program that makes a new name for each span does not fill memory."""
    for i in range(10_000):
        encode.quote(f"name {i}")
    assert len(encode._known) <= 4100
