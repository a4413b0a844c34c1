"""What is packed for a page comes out as it went in."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dipstick.show.pack import ABSENT, TICK_S, Pack


def opened(text: str) -> tuple[dict[str, Any], list[list[int]]]:
    """The header and the arrays, read as page.js reads them."""
    raw = zlib.decompress(base64.b64decode(text))
    length = int.from_bytes(raw[:4], "little")
    head, body = json.loads(raw[4 : 4 + length]), raw[4 + length :]
    arrays = []
    for offset, count, size in head["arrays"]:
        planes = np.frombuffer(body, np.uint8, count * size, offset).reshape(size, count).T
        steps = np.ascontiguousarray(planes).view(f"<u{size}").ravel()
        arrays.append(np.cumsum(steps, dtype=steps.dtype).tolist())
    return head, arrays


def test_numbers_come_back() -> None:
    """Times to a tenth of a millisecond, values to their unit, absent is absent."""
    pack = Pack()
    times, values = pack.times(np.array([0.0, 1.5, 0.25])), pack.values(np.array([100.0, np.nan, 0.06]), 0.1)
    numbers = pack.numbers([7, -1, 2**31])
    head, arrays = opened(pack.text({"facts": "x"}))
    assert (head["facts"], head["tick_s"], head["absent"]) == ("x", TICK_S, ABSENT)
    assert arrays[times] == [0, 15_000, 2_500]
    assert arrays[values] == [1000, ABSENT, 1]
    assert arrays[numbers] == [7, 2**32 - 1, 2**31]


def test_the_same_array_is_stored_once() -> None:
    """Utilization and memory access share their times."""
    pack = Pack()
    assert pack.times(np.array([1.0, 2.0])) == pack.times(np.array([1.0, 2.0]))
    assert pack.times(np.array([1.0, 2.1])) == 1
    assert (pack.count(1), pack.widest(1)) == (2, 2.1)


def test_empty_arrays() -> None:
    """A GPU without samples."""
    pack = Pack()
    number = pack.times(np.zeros(0))
    assert opened(pack.text({}))[1][number] == []


def test_nothing_hostile_gets_out_of_the_text() -> None:
    """Whatever the header says, the text is base64."""
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", Pack().text({"x": "</script><script>alert(1)//\u2028\ud800"}))


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_any_floats_can_be_packed(values: list[float]) -> None:
    """Infinity is absent, and what is out of range is the nearest end."""
    pack = Pack()
    pack.times(np.array(values, float))
    pack.values(np.array(values, float), 0.5)
    pack.numbers(np.array(values, float))
    assert len(opened(pack.text({}))[1]) >= 1
