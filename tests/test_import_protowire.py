"""The protocol-buffer reader: against Google's own encoder, and against bytes that are no message."""

from __future__ import annotations

import struct

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from dipstick.importers.protowire import Message, WireError, varint
from wire import blob, double, single, stamp, whole
from wire import varint as encoded

INT64 = st.integers(-(2**63), 2**63 - 1)


# --- against Google's encoder ---


@given(st.integers(1, 2**33 - 1), st.integers(0, 999_999_999))
def test_a_timestamp_is_read_as_google_writes_it(seconds: int, nanos: int) -> None:
    """Nanoseconds since 1970; a field of 0 is not written at all."""
    told = timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    assert Message(blob(2, told)).time_ns(2) == seconds * 10**9 + nanos


@given(st.floats(allow_nan=False))
def test_a_double_is_read_as_google_writes_it(value: float) -> None:
    """All 64 bits of it, infinities included."""
    assert Message(struct_pb2.Value(number_value=value).SerializeToString()).number(2) == value


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=5), st.text(alphabet="abc")
)
def test_strings_single_and_repeated_are_read_as_google_writes_them(many: list[str], name: str) -> None:
    """Empty ones in a repeated field count; an absent one is empty."""
    told = descriptor_pb2.FileDescriptorProto(dependency=many)
    if name:
        told.name = name
    message = Message(told.SerializeToString())
    assert [data.decode() for data in message.blobs(3)] == many
    assert message.text(1) == name


@given(INT64)
def test_an_integer_is_read_as_google_writes_it(value: int) -> None:
    """Negative int32 and int64 take ten bytes, as 64-bit two's complement."""
    told = descriptor_pb2.UninterpretedOption(negative_int_value=value)
    assert Message(told.SerializeToString()).integer(5) == value


# --- fields ---


def test_what_is_absent_or_of_another_type_is_none() -> None:
    """A string asked for as an integer, an integer as a message, a field that is not there."""
    message = Message(blob(1, "x") + whole(2, 7))
    assert (
        message.integer(1),
        message.message(2),
        message.number(2),
        message.blob(2),
        message.integer(9),
    ) == (None,) * 5
    assert (message.text(2), message.blobs(9), 1 in message, 9 in message) == ("", [], True, False)


def test_of_a_single_field_that_comes_twice_the_last_counts() -> None:
    """As the encoding says; a repeated field keeps both."""
    message = Message(whole(1, 1) + blob(2, "a") + whole(1, 2) + blob(2, "b"))
    assert (message.integer(1), message.text(2), message.blobs(2)) == (2, "b", [b"a", b"b"])


def test_a_float_and_a_double_are_told_apart_by_their_size() -> None:
    """Four bytes and eight; of any other size it is no number."""
    message = Message(single(1, 0.5) + double(2, 0.1) + blob(3, b"abc"))
    assert (message.number(1), message.number(2), message.number(3)) == (0.5, 0.1, None)


def test_a_message_within_a_message() -> None:
    """Read when it is asked for, not before."""
    message = Message(blob(4, blob(1, "inner")) + blob(5, b"\xff"))
    inner = message.message(4)
    assert inner is not None
    assert inner.text(1) == "inner"
    with pytest.raises(WireError):
        message.message(5)


def test_text_that_is_no_utf8_is_replaced() -> None:
    """A console line may be cut within a letter."""
    assert Message(blob(1, b"a\xe2\x82")).text(1) == "a\ufffd"


@pytest.mark.parametrize(("seconds", "nanos"), [(0, 5), (-1, 0), (2**40, 0), (5, -1), (5, 10**9)])
def test_a_time_that_no_log_has_is_none(seconds: int, nanos: int) -> None:
    """1970 itself, times before it, the far future, nanoseconds beyond a second."""
    assert Message(blob(1, whole(1, seconds) + whole(2, nanos))).time_ns(1) is None


def test_a_time_to_the_microsecond() -> None:
    """The tests' own writer agrees with the reader."""
    assert Message(stamp(1, 1_796_053_333.000_25)).time_ns(1) == 1_796_053_333_000_250_000


# --- bytes that are no message ---


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x08", "does not end"),
        (b"\x08\x80", "does not end"),
        (b"\x08" + b"\xff" * 11, "does not end"),
        (b"\x0a\x05abcd", "longer than its message"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "longer than its message"),
        (b"\x09" + bytes(7), "longer than its message"),
        (b"\x0d" + bytes(3), "longer than its message"),
        (b"\x00\x00", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0c", "wire type 4"),
        (b"\x0e", "wire type 6"),
        (b"\x0f", "wire type 7"),
    ],
)
def test_damage_is_named(data: bytes, why: str) -> None:
    """Groups were given up before any of these formats was made: they are damage too."""
    with pytest.raises(WireError, match=why):
        Message(data)


@given(st.binary(max_size=200))
@example(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
def test_any_bytes_are_a_message_or_none(data: bytes) -> None:
    """Nothing but WireError is raised, and what was read is no longer than what was given."""
    try:
        message = Message(data)
    except WireError:
        return
    kept = [value for number in range(1, 32) for value in message.blobs(number)]
    assert sum(map(len, kept)) <= len(data)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_number_and_where_it_ends(value: int, more: bytes) -> None:
    """Whatever comes behind it."""
    assert varint(encoded(value) + more, 0) == (value, len(encoded(value)))


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), INT64 | st.binary(max_size=20)), max_size=20), st.data())
def test_a_message_that_is_cut_is_its_first_fields_or_damaged(
    fields: list[tuple[int, int | bytes]], data: st.DataObject
) -> None:
    """Cut anywhere: at the end of a field the fields before it are read; within one it is damaged."""
    parts = [
        whole(number, value) if isinstance(value, int) else blob(number, value) for number, value in fields
    ]
    text = b"".join(parts)
    cut = data.draw(st.integers(0, len(text)))
    ends = {sum(map(len, parts[:i])) for i in range(len(parts) + 1)}
    if cut in ends:
        Message(text[:cut])
        return
    with pytest.raises(WireError):
        Message(text[:cut])


def test_a_number_of_ten_bytes_is_cut_to_64_bits() -> None:
    """As Google's reader does."""
    data = b"\xff" * 9 + b"\x7f"
    assert varint(data, 0) == (2**64 - 1, 10)
    assert struct.unpack("<q", struct.pack("<Q", varint(data, 0)[0]))[0] == -1
