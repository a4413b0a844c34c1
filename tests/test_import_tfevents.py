"""TensorBoard's event files: framing, scalars in every form, rows of one step, clocks that step and machines that sleep."""

from __future__ import annotations

import io
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path, tfrecord
from dipstick.importers.protowire import WireError
from dipstick.importers.tf_scalars import event
from dipstick.importers.tfrecord import Records, is_head, masked_crc
from imported import T_S, S, T, read_text, rows, texts
from wire import blob, crc32c, double, masked, tf_event, tf_file, tf_record, tf_simple, tf_tensor, whole

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

NAME = "events.out.tfevents.1796053333.node.1.0"
NONE_FINITE = "value that is no finite number (text, picture, histogram, NaN)"


def read(folder: Path, *events: bytes) -> ImportedTables:
    """The tables of a file with these events."""
    return read_text(folder, tf_file(*events), NAME)


def logged(at_s: float, step: int, **values: float) -> bytes:
    """A step's numbers, as HF writes them: one event a tag, microseconds apart."""
    many = enumerate(values.items())
    return b"".join(
        tf_record(tf_event(T_S + at_s + i * 2e-5, step, tf_simple(f"train/{tag}", v))) for i, (tag, v) in many
    )


def steps(folder: Path, *rows_of_log: bytes) -> ImportedTables:
    """The tables of a file of such steps."""
    return read_text(folder, tf_file() + b"".join(rows_of_log), NAME)


def losses(found: ImportedTables) -> list[tuple[Any, ...]]:
    """Value, step and time of the loss."""
    many = rows(found, "scalars", "name", "value", "step", "t_ns")
    return [row[1:] for row in many if row[0] == "train/loss"]


class Stream(io.BytesIO):
    """A file in memory that has a size."""


def framed(folder: Path, data: bytes) -> tuple[list[bytes], dict[str, int]]:
    """Records of a file, and what was lost."""
    path = folder / "records"
    path.write_bytes(data)
    with path.open("rb") as stream:
        records = Records(stream)
        return list(records), dict(records.lost)


# --- checksums ---


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_crc32c_of_the_standard_s_examples(data: bytes, crc: int) -> None:
    """RFC 3720, appendix B.4; the mask rotates by 15 and adds a constant."""
    assert crc32c(data) == crc
    assert masked_crc(data) == ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_the_table_and_the_bitwise_algorithm_agree(data: bytes) -> None:
    """Two ways to the same checksum."""
    assert struct.pack("<I", masked_crc(data)) == masked(data)


def test_the_head_of_a_record_is_known_by_its_checksum() -> None:
    """Twelve bytes: eight of length, four of checksum."""
    head = tf_record(b"abc")[:12]
    assert is_head(head)
    assert not is_head(head[:11])
    assert not is_head(b"\x04" + head[1:])


# --- framing ---


@given(st.lists(st.binary(max_size=60), max_size=8), st.data())
def test_a_file_cut_anywhere_keeps_the_records_before(
    tmp_path_factory: pytest.TempPathFactory, many: list[bytes], data: st.DataObject
) -> None:
    """The last record of a run that was killed may be cut."""
    whole_file = b"".join(map(tf_record, many))
    cut = data.draw(st.integers(0, len(whole_file)))
    found, lost = framed(tmp_path_factory.getbasetemp(), whole_file[:cut])
    assert found == many[: len(found)]
    ends = {sum(len(tf_record(r)) for r in many[:i]) for i in range(len(many) + 1)}
    assert lost == ({} if cut in ends else {"record that is cut": 1})


def test_damaged_data_cost_one_record(tmp_path: Path) -> None:
    """The length still holds."""
    data = bytearray(b"".join(map(tf_record, (b"one", b"two", b"three"))))
    data[data.index(b"two")] ^= 1
    assert framed(tmp_path, bytes(data)) == ([b"one", b"three"], {"record with a wrong checksum": 1})


def test_behind_a_damaged_length_the_next_record_is_found(tmp_path: Path) -> None:
    """By the checksum of its length."""
    data = bytearray(b"".join(map(tf_record, (b"one", b"two", b"three", b"four"))))
    data[data.index(b"two") - 12] ^= 1
    assert framed(tmp_path, bytes(data)) == ([b"one", b"three", b"four"], {"record with a damaged length": 1})


def test_the_search_for_the_next_record_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of nothing but damage is not searched for ever; what was not looked at is counted."""
    monkeypatch.setattr(tfrecord, "SEARCHED", 100)
    found, lost = framed(tmp_path, tf_record(b"one") + b"\x01" * 3_000_000 + tf_record(b"two"))
    assert found == [b"one"]
    assert lost == {"record with a damaged length": 1, "MiB after it, in which no record was found": 3}


def test_many_damaged_lengths_end_the_search_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a part of what may be searched, so that a hostile file takes no hours."""
    monkeypatch.setattr(tfrecord, "SEARCHED", 2048)
    bad = b"\x01" * 12 + tf_record(b"")
    found, lost = framed(tmp_path, bad * 5000)
    assert len(found) < 1100
    assert lost["record with a damaged length"] < 1100


def test_a_record_too_large_for_a_scalar_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither read nor checked."""
    monkeypatch.setattr(tfrecord, "LARGEST", 100)
    found, lost = framed(tmp_path, tf_record(b"x" * 101) + tf_record(b"small"))
    assert (found, lost) == ([b"small"], {"record above 16 MiB (no scalar)": 1})


def test_a_length_beyond_the_end_of_the_file_is_a_cut(tmp_path: Path) -> None:
    """Also one of 2^63 with a right checksum: nothing is set aside for it."""
    head = struct.pack("<Q", 2**63)
    assert framed(tmp_path, head + masked(head) + b"x") == ([], {"record that is cut": 1})


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """No exception; nothing is lost without being counted."""
    found, lost = framed(tmp_path_factory.getbasetemp(), data)
    assert bool(data) <= bool(found or lost)


# --- scalars ---

FLOAT, DOUBLE, INT32, STRING, INT64, HALF = 1, 2, 3, 7, 9, 19


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (tf_simple("x", 0.5), 0.5),
        (tf_tensor("x", FLOAT, struct.pack("<f", 0.25)), 0.25),
        (tf_tensor("x", DOUBLE, struct.pack("<d", 0.1)), 0.1),
        (tf_tensor("x", INT32, struct.pack("<i", -7)), -7.0),
        (tf_tensor("x", INT64, struct.pack("<q", -(2**40))), -float(2**40)),
        (tf_tensor("x", HALF, struct.pack("<e", 1.5)), 1.5),
        (tf_tensor("x", FLOAT, struct.pack("<f", 2.0), shape=(1,)), 2.0),
        (tf_tensor("x", FLOAT, listed=blob(5, struct.pack("<f", 0.25))), 0.25),
        (tf_tensor("x", FLOAT, listed=b"\x2d" + struct.pack("<f", 0.5)), 0.5),
        (tf_tensor("x", DOUBLE, listed=blob(6, struct.pack("<d", 0.1))), 0.1),
        (tf_tensor("x", INT64, listed=blob(10, whole(1, -3)[1:])), -3.0),
        (tf_tensor("x", INT32, listed=whole(7, 12)), 12.0),
        (tf_tensor("x", FLOAT), 0.0),
        (tf_tensor("x", INT64), 0.0),
    ],
)
def test_a_scalar_in_every_form(value: bytes, number: float) -> None:
    """``simple_value`` (PyTorch, HF), or a tensor of one number: its bytes, or a list, packed or not; zeros are left out."""
    assert event(tf_event(1.0, 1, value)).scalars == {"x": number}


@pytest.mark.parametrize(
    "value",
    [
        tf_tensor("x", STRING, listed=blob(8, "# Model card")),
        tf_tensor("x", FLOAT, struct.pack("<2f", 1, 2), shape=(2,)),
        tf_tensor("x", FLOAT, b"abc"),
        tf_tensor("x", FLOAT, listed=blob(5, b"abc")),
        tf_tensor("x", HALF),
        tf_tensor("x", 99, b"abcd"),
        blob(1, "x") + blob(5, b""),
        blob(1, "x") + blob(4, whole(1, 640)),
        tf_simple("x", math.nan),
        tf_simple("x", math.inf),
        blob(1, "x") + whole(2, 5),
    ],
)
def test_what_is_no_finite_number_is_none(value: bytes) -> None:
    """Texts, vectors, histograms, pictures, NaN, types that nobody knows, sizes that do not fit."""
    found = event(tf_event(1.0, 1, value))
    assert (found.scalars, found.others) == ({}, ("x",))


@pytest.mark.parametrize("value", [b"\xff", blob(8, b"\xff"), blob(8, whole(1, 1) + blob(2, b"\xff"))])
def test_a_damaged_value_is_damage(value: bytes) -> None:
    """Not a number of some kind."""
    with pytest.raises(WireError):
        event(tf_event(1.0, 1, value))


def test_a_step_of_zero_is_not_written() -> None:
    """An absent step is 0; a negative one is kept."""
    assert event(tf_event(5.0, 0, tf_simple("x", 1))).step == 0
    assert event(tf_event(5.0, -1, tf_simple("x", 1))).step == -1


@pytest.mark.parametrize("wall", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_a_wall_time_that_is_none(wall: float) -> None:
    """It can't be placed."""
    assert event(tf_event(wall, 1, tf_simple("x", 1))).t_ns is None


# --- rows of the log ---


def test_events_become_scalars(tmp_path: Path) -> None:
    """Tags as they are, the time of logging, the step."""
    found = steps(tmp_path, logged(0, 1, loss=0.5, step_time=3.5), logged(3.6, 2, loss=0.25, step_time=3.4))
    assert [(value, step, t // 10**6) for value, step, t in losses(found)] == [(0.5, 1, 0), (0.25, 2, 3600)]
    facts = found.account.facts
    assert (facts["events"], facts["tags"], found.account.rows_read) == (5, 2, 4)
    assert (facts["wall_first_s"], facts["wall_last_s"]) == (T_S, pytest.approx(T_S + 3.60002, abs=1e-6))
    assert (found.account.format, found.account.clock) == ("tfevents", "unix")


def test_one_event_may_hold_many_values(tmp_path: Path) -> None:
    """As TensorFlow 1 wrote them."""
    found = read(
        tmp_path, tf_event(T_S, 1, tf_simple("train/loss", 1), tf_simple("train/lr", 2), blob(1, "image"))
    )
    assert losses(found) == [(1.0, 1, 0)]
    assert dict(found.account.dropped) == {NONE_FINITE: 1}


def test_a_tag_that_comes_twice_in_a_step_is_two_rows(tmp_path: Path) -> None:
    """Gradient accumulation, or a second logger: neither value is lost."""
    found = steps(tmp_path, logged(0, 1, loss=0.5), logged(0.1, 1, loss=0.25))
    assert [(value, step) for value, step, _ in losses(found)] == [(0.5, 1), (0.25, 1)]


def test_a_clock_that_was_set_back_goes_on(tmp_path: Path) -> None:
    """Steps 3.6 s apart, and the clock goes back 29 s after the fourth: the rows behind it are moved, one step on."""
    times = [0, 3.6, 7.2, 10.8, 10.8 - 29, 14.4 - 29]
    found = steps(tmp_path, *(logged(100 + t, i + 1, loss=1.0) for i, t in enumerate(times)))
    assert [round((t - 100 * S) / 1e8) / 10 for *_, t in losses(found)] == [0, 3.6, 7.2, 10.8, 14.4, 18.0]
    assert (
        "the clock went back 29.000 s between step 4 and 5; the rows from there on are moved by +32.600 s"
        in texts(found)
    )
    assert found.account.facts["wall_last_s"] == pytest.approx(T_S + 100 + 14.4 - 29)


def test_a_suspended_machine_is_said(tmp_path: Path) -> None:
    """49 minutes between two steps of 3.6 s: no step took that long because of the training."""
    times = [*(3.6 * i for i in range(10)), 32.4 + 2936]
    found = steps(tmp_path, *(logged(t, i + 1, loss=1.0) for i, t in enumerate(times)))
    assert "2,936 s pass between step 10 and 11 (usually 3.6 s): the machine was suspended, or" in texts(
        found
    )


def test_slow_steps_are_not_a_suspension(tmp_path: Path) -> None:
    """An evaluation that takes ten steps' time, and steps of two minutes each."""
    short = steps(tmp_path, *(logged(t, i, loss=1.0) for i, t in enumerate([0, 10, 20, 30, 140])))
    long = steps(tmp_path, *(logged(120 * i, i, loss=1.0) for i in range(5)))
    assert "suspended" not in texts(short) + texts(long)


def test_events_without_a_time_and_damaged_ones_are_counted(tmp_path: Path) -> None:
    """The rest is read."""
    bad = [tf_event(-5.0, 1, tf_simple("train/loss", 1)), b"\xff\xff", blob(5, blob(1, b"\xff"))]
    found = read(tmp_path, *bad, tf_event(T_S, 2, tf_simple("train/loss", 1)))
    assert dict(found.account.dropped) == {"event without a time": 1, "event that can't be decoded": 2}
    assert losses(found) == [(1.0, 2, 0)]


def test_a_file_without_numbers_is_refused(tmp_path: Path) -> None:
    """HF writes the arguments as text into a file of its own."""
    with pytest.raises(
        ImportFormatError, match=r"no event of it holds a number.*\n.*another file of the folder"
    ):
        read(tmp_path, tf_event(T_S, 0, tf_tensor("args/text_summary", STRING, listed=blob(8, "{}"))))


def test_many_tags_are_bounded(tmp_path: Path) -> None:
    """A hostile file with a tag an event: what is beyond the limit is counted, not kept."""
    values = [tf_simple("train/loss", 1), *(tf_simple(f"x{i}", 1) for i in range(5000))]
    found = read(tmp_path, tf_event(T_S, 1, values[0]), tf_event(T_S + 5, 2, *values))
    assert sum(found.account.dropped.values()) == 5001 - 4096
    assert found.tables["scalars"]["name"].n_unique() <= 4096


@pytest.mark.parametrize("name", [NAME, "renamed.bin"])
def test_the_format_is_known_by_its_first_record(tmp_path: Path, name: str) -> None:
    """Whatever the file is called."""
    path = tmp_path / name
    path.write_bytes(tf_file(tf_event(T_S, 1, tf_simple("loss", 1))))
    assert read_path(path).account.format == "tfevents"


def test_other_tfrecord_files_are_not_taken(tmp_path: Path) -> None:
    """Training data come in the same framing: their first record names no version."""
    path = tmp_path / "train-00000.tfrecord"
    path.write_bytes(tf_record(blob(1, "features")))
    with pytest.raises(ImportFormatError, match="no importer knows this"):
        read_path(path)


def test_a_clock_that_was_set_back_before_the_beginning(tmp_path: Path) -> None:
    """One process wrote the log: the order of its rows is the order of the steps."""
    found = steps(tmp_path, *(logged(t, i, loss=1.0) for i, t in enumerate([100, 102, 104, 6, 8])))
    assert [t // S for *_, t in losses(found)] == [100, 102, 104, 106, 108]


def test_rows_that_two_threads_wrote_are_no_clock_step(tmp_path: Path) -> None:
    """Half a second out of order: the later one is taken to be as late as the one before."""
    found = steps(tmp_path, *(logged(t, i, loss=1.0) for i, t in enumerate([0, 2, 4, 3.5, 6])))
    assert [t // S for *_, t in losses(found)] == [0, 2, 4, 4, 6]
    assert "clock" not in texts(found)


def test_a_clock_that_jumps_all_the_time_is_said_once(tmp_path: Path) -> None:
    """Twenty places are named, the rest summed up."""
    found = steps(tmp_path, *(logged(100 if i % 2 else 0, i, loss=1.0) for i in range(200)))
    assert texts(found).count("the clock went back") == 20
    assert texts(found).count("more places than these") == 1


def test_many_steps_are_all_there(tmp_path: Path) -> None:
    """In order, none lost; a late step back is seen."""
    count = 4096 + 50
    many = [logged(i if i < 4096 else i - 20, i, loss=float(i)) for i in range(count)]
    found = steps(tmp_path, *many)
    times = [t for *_, t in losses(found)]
    assert (len(times), times == sorted(times)) == (count, True)
    assert "the clock went back 19.000 s between step 4095 and 4096" in texts(found)


def test_the_first_event_has_a_time_but_no_value(tmp_path: Path) -> None:
    """The wall times are those of values: the file is opened before the model is loaded."""
    found = read(tmp_path, double(1, T_S + 1), tf_event(T_S + 20, 1, tf_simple("train/loss", 1)))
    assert found.account.facts["wall_first_s"] == T_S + 20
    assert (found.account.first_ns, found.account.facts["events"]) == (T + 20 * S, 3)
