"""Consoles, states and JSON lines of training runs that anybody may have written: read in part, counted or refused."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import DipstickError, ImportFormatError
from dipstick.importers import (
    hf_log,
    read_path,
    rl_jsonl,
    rl_log,
    rl_text,
    timings,
    trainer_state,
    training_rows,
    verl_log,
)
from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.options import Options
from imported import T_S, S, bound, read_text, texts

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

LIMITS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HF = " {done}%|#  | {done}/40 [00:{done:02d}<01:00, 1s/it]\r{{'loss': 0.5, 'epoch': {done}.0}}\n"
VERL = "(TaskRunner pid=7) step:{n} - critic/score/mean:0.5 - timing_s/gen:6.0 - timing_s/step:10.0\n"
SLIME = "[2026-11-30 15:42:{n:02d}] perf {n}: {{'perf/step_time': 1.0, 'perf/train_time': 0.5}}\n"
PRIME = '{{"step": {n}, "time": {at}, "time/step": 1.0, "loss": 0.5}}\n'
FORMS = {
    "hf-log": "".join(HF.format(done=n) for n in range(1, 9)),
    "verl-log": "".join(VERL.format(n=n) for n in range(1, 9)),
    "rl-log": "".join(SLIME.format(n=n) for n in range(1, 9)),
    "rl-jsonl": "".join(PRIME.format(n=n, at=T_S + n) for n in range(1, 9)),
    "trainer-state": json.dumps(
        {"global_step": 8, "log_history": [{"step": n, "step_time": 1.0, "loss": 0.5} for n in range(1, 9)]}
    ),
}
LINES = tuple(name for name in FORMS if name != "trainer-state")
READERS: dict[str, Any] = {
    "hf-log": hf_log, "verl-log": verl_log, "rl-log": rl_log, "rl-jsonl": rl_jsonl, "trainer-state": trainer_state,
}  # fmt: skip


def read(folder: Path, form: str, data: str | bytes) -> ImportedTables:
    """The tables of that text, read as that format."""
    return read_text(folder, data, "x.log", format=form)


def losses(found: ImportedTables) -> int:
    """How many numbers were kept."""
    return found.tables["scalars"].height


@pytest.mark.parametrize("form", FORMS)
def test_each_example_is_whole(tmp_path: Path, form: str) -> None:
    """So that the damage below is damage: 8 rows, nothing dropped."""
    found = read(tmp_path, form, FORMS[form])
    assert found.account.rows_read == 8
    assert found.account.dropped == {}


@pytest.mark.parametrize("form", FORMS)
def test_each_example_is_recognised(tmp_path: Path, form: str) -> None:
    """Nobody has to say what it is."""
    path = tmp_path / "x.log"
    path.write_text(FORMS[form])
    assert read_path(path).account.format == form


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("end", ["\r\n", "\n\n\n"])
def test_line_ends_of_other_machines(tmp_path: Path, form: str, end: str) -> None:
    """Windows' line ends and blank lines change no number."""
    plain = read(tmp_path, form, FORMS[form]).tables["scalars"]
    other = read(tmp_path, form, FORMS[form].replace("\n", end)).tables["scalars"]
    assert other.select("name", "value").equals(plain.select("name", "value"))


@pytest.mark.parametrize("form", LINES)
def test_a_log_that_was_packed(tmp_path: Path, form: str) -> None:
    """Gzip is opened; the numbers are the same."""
    plain = losses(read(tmp_path, form, FORMS[form]))
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(FORMS[form].encode()))
    assert losses(read_path(path, Options(format=form))) == plain


@pytest.mark.parametrize("form", LINES)
def test_a_packed_log_that_was_cut(tmp_path: Path, form: str) -> None:
    """What could be unpacked is read and the damage is said, or it is refused."""
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(FORMS[form].encode(), 0)[:-20])
    try:
        found = read_path(path, Options(format=form))
    except ImportFormatError:
        return
    assert found.account.notes


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize(
    "noise", [b"\x80\xff\xfe\xc3\n", b"\x1b[31m\x1b[0m\n", b"\x00" * 50 + b"\n", "\u202e\u0000😀\n".encode()]
)
def test_bytes_between_the_rows(tmp_path: Path, form: str, noise: bytes) -> None:
    """Invalid UTF-8, colours, zeros, bidirectional marks on lines of their own: no row is lost."""
    plain = losses(read(tmp_path, form, FORMS[form]))
    dirty = b"".join(noise + line for line in FORMS[form].encode().splitlines(keepends=True))
    assert losses(read(tmp_path, form, dirty)) == plain


@pytest.mark.parametrize("form", LINES)
def test_a_line_longer_than_any_row(tmp_path: Path, form: str) -> None:
    """A sample's text of two million characters is passed by; the rows around it are read."""
    plain = losses(read(tmp_path, form, FORMS[form]))
    found = read(tmp_path, form, FORMS[form] + "x" * 2_000_000 + "\n" + FORMS[form])
    assert losses(found) == 2 * plain


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "9" * 400])
def test_a_number_that_is_none(tmp_path: Path, form: str, number: str) -> None:
    """NaN, infinity, or more than a float can hold: missing, never 0, and the rest of the log stays."""
    word = (
        {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(number, number)
        if form == "rl-jsonl"
        else number
    )
    damaged = FORMS[form].replace("0.5", word, 1)
    found = read(tmp_path, form, damaged)
    values = found.tables["scalars"]["value"]
    assert values.is_finite().all()
    assert (values == 0).sum() == 0
    assert losses(found) == losses(read(tmp_path, form, FORMS[form])) - 1


@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_400_digits(tmp_path: Path, form: str) -> None:
    """No step of any run: that row has no such step, and no exception of Python's."""
    big = "9" * 400
    damaged = {
        "hf-log": FORMS[form].replace("1/40 [", f"{big}/40 [", 1), "verl-log": FORMS[form].replace("step:1 ", f"step:{big} ", 1),
        "rl-log": FORMS[form].replace("perf 1:", f"perf {big}:", 1), "rl-jsonl": FORMS[form].replace('"step": 1,', f'"step": {big},', 1),
        "trainer-state": FORMS[form].replace('"step": 1,', f'"step": {big},', 1),
    }[form]  # fmt: skip
    assert damaged != FORMS[form]
    found = read(tmp_path, form, damaged)
    steps = found.tables["scalars"]["step"].drop_nulls()
    assert steps.is_between(0, 40).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    ["", "\n", "nothing of interest\n", "\x00" * 1000, "{}", "[]", "null", "{" * 100_000, "[" * 100_000],
)
def test_what_is_none_of_these_is_refused(tmp_path: Path, form: str, text: str) -> None:
    """An error of ours that names the file; not an empty recording."""
    with pytest.raises(ImportFormatError) as caught:
        read(tmp_path, form, text)
    assert "x.log" in str(caught.value)


@LIMITS
@given(
    form=st.sampled_from(sorted(FORMS)),
    cut=st.floats(0, 1),
    at=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
)
def test_cut_anywhere_with_any_byte_changed(
    tmp_path_factory: pytest.TempPathFactory, form: str, cut: float, at: float, byte: int
) -> None:
    """Never more rows than there were, no span that ends before it begins, and no other exception."""
    data = bytearray(FORMS[form].encode())
    data[int(at * len(data))] = byte
    try:
        found = read(tmp_path_factory.mktemp("cut"), form, bytes(data[: round(cut * len(data))]))
    except DipstickError:
        return
    assert found.account.rows_read <= 9  # a changed byte can make two lines of one
    spans = found.tables.get("spans")
    assert spans is None or (spans["t1_ns"] >= spans["t0_ns"]).all()


@pytest.mark.parametrize("form", LINES)
def test_rows_before_the_cut_stay(tmp_path: Path, form: str) -> None:
    """A log that ends within its last line: the seven rows before it are there."""
    found = read(tmp_path, form, FORMS[form][:-12])
    assert found.account.rows_read in {7, 8}
    assert losses(found) >= losses(read(tmp_path, form, FORMS[form])) * 7 // 8


@pytest.mark.parametrize("form", LINES)
def test_memory_does_not_grow_with_the_log(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times the log takes no more than half as much memory again: pieces come in, full batches go out."""
    for module in (rl_text, rl_jsonl):
        monkeypatch.setattr(module, "PIECE", 4096)
    for module in (training_rows, timings, hf_log):
        monkeypatch.setattr(module, "_BATCH", 100)
    peaks = []
    for many in (150, 450):
        path = tmp_path / "x.log"
        path.write_text(FORMS[form] * many)
        account = Account(path.name, form, "host0")
        tracemalloc.start()
        try:
            READERS[form].read(path, Options(), Sink(account, lambda _table, _frame: None))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert account.rows_read >= 7 * many
    assert peaks[1] < 1.5 * peaks[0] + 100_000


@pytest.mark.parametrize("form", ["verl-log", "rl-log", "rl-jsonl", "trainer-state"])
def test_a_new_key_in_every_row(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys beyond the limit are counted, whoever makes them up."""
    monkeypatch.setattr(training_rows, "MOST_KEYS", 5)
    text = {
        "verl-log": "".join(f"step:{n} - actor/k{n}:1.0 - timing_s/step:1.0\n" for n in range(20)),
        "rl-log": "".join(f"perf {n}: {{'perf/step_time': 1.0, 'perf/k{n}': 1.0}}\n" for n in range(20)),
        "rl-jsonl": "".join(f'{{"step": {n}, "data": {{"timing_s/step": 1.0, "k{n}": 1.0}}}}\n' for n in range(20)),
        "trainer-state": json.dumps({"log_history": [{"step": n, "loss": 1.0, f"k{n}": 1.0} for n in range(20)]}),
    }[form]  # fmt: skip
    found = read(tmp_path, form, text)
    assert len(found.account.bindings) == 5
    assert found.account.dropped == {"number of a key beyond the first 5": 16}


def test_a_state_of_a_million_keys_is_bounded(tmp_path: Path) -> None:
    """One entry with as many keys: the first 100,000 are kept, the others counted."""
    many = 150_000
    entry = {"step": 1, "loss": 1.0} | {f"k{i}": 1 for i in range(many)}
    found = read(tmp_path, "trainer-state", json.dumps({"log_history": [entry]}))
    assert found.tables["scalars"].height == training_rows.MOST_KEYS
    assert found.account.dropped == {
        f"number of a key beyond the first {training_rows.MOST_KEYS:,}": many + 1 - training_rows.MOST_KEYS
    }


@pytest.mark.parametrize(
    "value", ["1.5", "'1.5'", "True", "null", "[1.5]", '{"a": 1.5}', '"NaN"', '"1e999"', "9" * 400]
)
def test_what_counts_as_a_number_of_a_state(tmp_path: Path, value: str) -> None:
    """Text, lists and truth values are none: kept out, and the entry's other numbers stay."""
    text = f'{{"log_history": [{{"step": 1, "loss": 0.5, "x": {value.replace("True", "true")}}}]}}'
    try:
        found = read(tmp_path, "trainer-state", text)
    except ImportFormatError:
        json_ok = value != "'1.5'"
        assert not json_ok
        return
    names = set(found.tables["scalars"]["name"].cast(str))
    assert names == ({"loss", "x"} if value == "1.5" else {"loss"})


@pytest.mark.parametrize("every", ["0", "-5", "1.5", '"x"', "null", "1e300", "9" * 400, "[]"])
def test_a_strange_logging_interval_is_one(tmp_path: Path, every: str) -> None:
    """``logging_steps`` that is no number of steps: the first row stands for one step."""
    text = f'{{"logging_steps": {every}, "log_history": [{{"step": 7, "step_time": 2.0}}]}}'
    found = read(tmp_path, "trainer-state", text)
    spans = found.tables["spans"]
    assert spans.select("step", (pl.col("t1_ns") - pl.col("t0_ns")).alias("ns")).rows() == [(7, 2 * S)]


def test_a_console_is_searched_not_evaluated(tmp_path: Path) -> None:
    """A printed dict that holds a call is text."""
    evil = f"{{'loss': 0.5, 'x': __import__('os').mkdir('{tmp_path}/owned'), 'epoch': 1.0}}\n"
    found = read(tmp_path, "hf-log", FORMS["hf-log"] + evil)
    assert found.account.rows_read >= 8
    assert not (tmp_path / "owned").exists()


def test_a_row_of_prime_rl_without_a_time_is_counted(tmp_path: Path) -> None:
    """The first row has a time, so the log has: one without has no place."""
    text = FORMS["rl-jsonl"] + '{"step": 9, "time/step": 1.0}\n'
    found = read(tmp_path, "rl-jsonl", text)
    assert found.account.dropped == {"no time stamp before the row": 1}
    assert found.account.rows_read == 9


def test_a_log_without_times_says_what_its_clock_is(tmp_path: Path) -> None:
    """Verl's step lines: the sum of the steps, and a restarted run is said."""
    found = read(tmp_path, "verl-log", FORMS["verl-log"] + VERL.format(n=3))
    assert found.account.clock == "relative"
    assert "the clock is the sum of the steps' seconds" in texts(found)
    assert "step numbers go back 1 times" in texts(found)
    assert found.account.last_ns == 90 * S


def test_a_log_with_times_says_nothing_of_a_made_up_clock(tmp_path: Path) -> None:
    """Slime's lines have stamps; whole seconds are said, no zone is local time."""
    found = read(tmp_path, "rl-log", FORMS["rl-log"])
    assert (found.account.clock, found.account.resolution_ns) == ("local", S)
    assert "sum of the steps' seconds" not in texts(found)
    assert bound(found)["perf/step_time"][2] == "likely"
