"""The quick ways through large files give what the careful ways give, and step aside where a file is not regular."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.importers import chunks, delimited, stamps
from dipstick.importers.account import Account
from dipstick.importers.ahead import one_ahead
from dipstick.importers.base import Head, Sink
from dipstick.importers.binding import parse_wish
from dipstick.importers.columns import find_columns
from dipstick.importers.fast import PATIENCE, FastReader
from dipstick.importers.layout import find_layout
from dipstick.importers.mend import Mender
from dipstick.importers.options import Options
from imported import S, T, read_text, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
START = datetime(2026, 11, 30, 15, 42, 13, tzinfo=UTC)


def lines(count: int, *, every: timedelta = timedelta(milliseconds=100)) -> list[str]:
    """Rows of two GPUs."""
    found = []
    for i in range(count):
        at = START + i * every
        stamp = f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}"
        found += [
            f"{stamp}, {g}, NVIDIA H200, {(i + g) % 101} %, {i} MiB, {100 + i / 4:.2f} W\n" for g in (0, 1)
        ]
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in pieces of some lines, so that a small file has many."""

    def pieces(path: Path, **how: object) -> Iterator[tuple[bytes, int]]:
        return chunks.chunks(path, size=4096, quoted=bool(how.get("quoted")))

    monkeypatch.setattr(delimited, "chunks", pieces)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each piece after the first: whether it was read the quick way."""
    told: list[bool] = []
    real = FastReader.read

    def read(reader: FastReader, body: bytes) -> pl.DataFrame | None:
        found = real(reader, body)
        told.append(found is not None)
        return found

    monkeypatch.setattr(FastReader, "read", read)
    return told


# --- the quick way through a table ---


@pytest.mark.usefixtures("small_pieces")
def test_a_regular_file_is_read_the_quick_way_with_the_same_result(
    tmp_path: Path, parsed: list[bool]
) -> None:
    """Every piece but the first; times, GPUs, values and units as in the careful way."""
    text = HEADER + "".join(lines(400))
    quick = read_text(tmp_path, text)
    assert len(parsed) > 5
    assert all(parsed)
    careful = read_text(tmp_path, text.replace(" %", "%").replace("NVIDIA", '"NVIDIA"'), "careful.csv")
    columns = ("gpu", "t_ns", "util_pct", "mem_used_b", "power_w")
    assert rows(quick, "gpu", *columns) == rows(careful, "gpu", *columns)
    assert quick.account.rows_read == 800
    assert quick.tables["gpus"].select("gpu", "name").rows() == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("odd", "dropped"),
    [
        (HEADER, {}),
        ("\n", {}),
        ("Unable to determine the device handle\n", {"the time can't be read": 1}),
        (
            "2026/11/30 15:42:50.000, 0, NVIDIA H200, 5 %, 5 MiB, 5 W, 7, 8\n",
            {"more cells than the header has": 1},
        ),
        ("2026/11/30 15:42:50.000, -, NVIDIA H200, 5 %, 5 MiB, 5 W\n", {"the GPU's index can't be read": 1}),
    ],
)
def test_a_piece_that_is_not_regular_is_read_the_careful_way(
    tmp_path: Path, parsed: list[bool], odd: str, dropped: dict[str, int]
) -> None:
    """A header, a blank line, an error text, too many cells, no GPU: counted as ever, and the rest stays quick."""
    body = lines(400)
    body.insert(500, odd)
    found = read_text(tmp_path, HEADER + "".join(body))
    assert (found.tables["gpu"].height, found.account.dropped) == (800, dropped)
    assert parsed.count(False) == 1


@pytest.mark.usefixtures("small_pieces")
def test_after_a_few_irregular_pieces_it_is_not_tried_again(tmp_path: Path, parsed: list[bool]) -> None:
    """A shell loop repeats the header before every row."""
    body = [line for pair in ((HEADER, row) for row in lines(200)) for line in pair]
    found = read_text(tmp_path, "".join(body))
    assert (found.tables["gpu"].height, found.account.rows_read) == (400, 400)
    assert not any(parsed)
    assert len(parsed) > PATIENCE


@pytest.mark.usefixtures("small_pieces")
def test_words_for_no_value_stay_missing_the_quick_way(tmp_path: Path, parsed: list[bool]) -> None:
    """[N/A], nan and DCGM's blank are null, not 0."""
    body = lines(400)
    for at, word in ((500, "[N/A]"), (502, "nan"), (504, "9223372036854775794")):
        body[at] = body[at].replace(f"{at // 2 % 101} %", word)
    found = read_text(tmp_path, HEADER + "".join(body))
    assert all(parsed)
    assert found.tables["gpu"]["util_pct"].null_count() == 3


@pytest.mark.parametrize(
    ("text", "wish", "is_fit"),
    [
        (HEADER + "".join(lines(3)), "", True),
        ("time,gpu_util\n2026-11-30 15:42:13.0,5\n2026-11-30 15:42:14.0,6\n", "", True),
        ("time,gpu_util\n2026-11-30 15:42:13.0,5 %\n2026-11-30 15:42:14.0,6 %\n", "", False),
        ("time;gpu_util\n2026-11-30 15:42:13.0;5,5\n2026-11-30 15:42:14.0;6,5\n", "", False),
        ("date time gpu util\n2026-11-30 15:42:13 0 5\n2026-11-30 15:42:14 0 6\n", "", False),
        ("device,GPU use (%)\ncard0,5\ncard0,6\n", "", False),
        ('"time","gpu_util"\n"2026-11-30 15:42:13.0","5"\n"2026-11-30 15:42:14.0","6"\n', "", False),
    ],
    ids=["nvidia-smi", "plain", "units-by-guess", "decimal-comma", "blanks", "no-time", "quoted"],
)
def test_which_tables_are_fit_for_it(tmp_path: Path, text: str, wish: str, is_fit: bool) -> None:  # noqa: FBT001 - a column of the table
    """Units are deleted unseen only where the tool defines the column."""
    path = tmp_path / "x.csv"
    path.write_text(text)
    layout = find_layout(Head(path).lines, "x")
    assert layout is not None
    columns = find_columns(layout, Options(wishes=(parse_wish(wish),) if wish else ()), "x")
    body = text.split("\n", 1)[1].encode()
    assert (FastReader(layout, columns).read(body) is not None) == is_fit


# --- the quick way through stamps ---


def written(count: int, digits: int, pattern: str) -> list[str]:
    """Stamps a third of a second apart, over several minutes and midnight."""
    start = datetime(2026, 11, 30, 23, 58, 59, 123_456, tzinfo=UTC)
    found = []
    for i in range(count):
        at = start + i * timedelta(microseconds=333_333)
        found.append(at.strftime(pattern) + "." + f"{at.microsecond:06d}".ljust(9, "7")[:digits])
    return found


@pytest.mark.parametrize("digits", [1, 3, 6, 9])
@pytest.mark.parametrize("pattern", ["%Y/%m/%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%d.%m.%Y%H:%M:%S"])
def test_digits_give_what_the_general_parser_gives(
    monkeypatch: pytest.MonkeyPatch, digits: int, pattern: str
) -> None:
    """To the nanosecond, over minutes and midnight."""
    monkeypatch.setattr(stamps, "MANY", 10)
    text = pl.Series("t", written(1000, digits, pattern))
    quick = stamps.read_fixed(text, f"{pattern}%.f")
    general = text.str.to_datetime(f"{pattern}%.f", time_unit="ns").cast(pl.Int64)
    assert quick is not None
    assert quick.to_list() == general.to_list()


@pytest.mark.parametrize(
    "bad",
    ["2026/11/30 23:59:00.1234", "2026/11/30 23:59:0x.123", "2026/11/30 23:59:75.123", "2026/13/30 23:59:00.123",
     "2026/11/30 23:59-00.123", "2026/11/30 23:59:00,123", None],
)  # fmt: skip
def test_one_stamp_of_another_form_leaves_all_to_the_general_parser(
    monkeypatch: pytest.MonkeyPatch, bad: str | None
) -> None:
    """Another width, no digit, no such second or month, another sign between them, none at all."""
    monkeypatch.setattr(stamps, "MANY", 10)
    text = pl.Series("t", [*written(20, 3, "%Y/%m/%d %H:%M:%S"), bad])
    assert stamps.read_fixed(text, "%Y/%m/%d %H:%M:%S%.f") is None


def test_few_stamps_and_whole_seconds_are_not_worth_it() -> None:
    """The general parser is as fast."""
    assert (
        stamps.read_fixed(pl.Series("t", written(5, 3, "%Y/%m/%d %H:%M:%S")), "%Y/%m/%d %H:%M:%S%.f") is None
    )
    assert stamps.read_fixed(pl.Series("t", ["2026/11/30 23:59:00"] * 20_000), "%Y/%m/%d %H:%M:%S") is None


# --- one item ahead ---


def test_the_same_items_in_the_same_order() -> None:
    """Made in another thread."""
    makers: set[str] = set()

    def items() -> Iterator[int]:
        for i in range(100):
            makers.add(threading.current_thread().name)
            yield i

    assert (list(one_ahead(items())), makers) == (list(range(100)), {"dipstick-import"})


def test_what_goes_wrong_is_raised_where_it_would_have_come() -> None:
    """After the items before it."""

    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = one_ahead(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_a_caller_who_stops_ends_the_thread() -> None:
    """No thread is left behind, even if the source never ends."""

    def items() -> Iterator[int]:
        i = 0
        while True:
            i += 1
            yield i

    found = one_ahead(items())
    assert next(found) == 1
    found.close()  # type: ignore[attr-defined] # a generator
    assert [t.name for t in threading.enumerate() if t.name == "dipstick-import"] == []


# --- clocks that were set ---


def mender() -> tuple[Mender, Account]:
    """A mender and what it tells."""
    account = Account("x", "y", "h")
    return Mender(Sink(account, lambda *_: None)), account


def test_two_gpus_of_one_sweep_are_one_step() -> None:
    """Both rows of the sweep go back; the clock was set once."""
    one, account = mender()
    times = np.array([0, 1, 10, 11, 20, 21, 5, 6, 15, 16]) * S + T
    found = one.mend(times, np.array([0, 1] * 5))
    assert ((found - T) // S).tolist() == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]
    assert len(account.notes) == 1


def test_rows_of_one_gpu_after_the_other_are_no_step() -> None:
    """Each series is in order by itself."""
    one, account = mender()
    times = np.array([0, 10, 20, 0, 10, 20]) * S + T
    assert one.mend(times, np.array([0, 0, 0, 1, 1, 1])).tolist() == times.tolist()
    assert account.notes == []


def test_a_step_on_the_border_of_two_batches() -> None:
    """The last time of each series is remembered, and so is the move."""
    one, _ = mender()
    series = np.zeros(3, dtype=np.int64)
    one.mend(np.array([0, 10, 20]) * S + T, series)
    second = one.mend(np.array([5, 15, 25]) * S + T, series)
    third = one.mend(np.array([35, 45, 55]) * S + T, series)
    assert ((np.concatenate([second, third]) - T) // S).tolist() == [30, 40, 50, 60, 70, 80]


def test_rows_in_no_order_are_left_and_said_to_be() -> None:
    """Twenty backward moves are no clock."""
    one, account = mender()
    times = (np.tile([0, 100], 60) + np.repeat(np.arange(60), 2)) * S + T
    one.mend(times, np.zeros(120, dtype=np.int64))
    assert "out of order" in account.notes[-1].text


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 10**6), min_size=60, max_size=60),
)
def test_times_in_order_are_never_touched(series: list[int], steps: list[int]) -> None:
    """Whatever the GPUs and distances."""
    one, account = mender()
    times = np.cumsum(np.array(steps[: len(series)], dtype=np.int64)) + T
    assert one.mend(times, np.array(series)).tolist() == times.tolist()
    assert account.notes == []
