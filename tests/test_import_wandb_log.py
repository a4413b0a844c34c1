"""The framing of ``.wandb`` files: fragments, blocks, checksums, and files that were cut or damaged."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.importers import wandb_log
from dipstick.importers.wandb_log import BLOCK, Log
from wire import WANDB_MAGIC, fragment
from wire import wandb_log as written

CUT = "record that never ends (the run was killed, or the file is cut)"
SIZES = st.one_of(
    st.integers(0, 40), st.integers(BLOCK - 40, BLOCK + 40), st.integers(2 * BLOCK - 60, 2 * BLOCK + 60)
)


def records(data: bytes) -> tuple[list[bytes], dict[str, int]]:
    """Records of a file, and what was lost."""
    log = Log(io.BytesIO(data))
    return list(log), dict(log.lost)


def numbered(sizes: list[int]) -> list[bytes]:
    """Records of these sizes, each full of its own byte."""
    return [bytes([number % 255 + 1]) * size for number, size in enumerate(sizes)]


@given(st.lists(SIZES, max_size=12))
def test_every_record_is_read_whatever_its_size(sizes: list[int]) -> None:
    """Records of none, some and tens of thousands of bytes, at any place in a block."""
    many = numbered(sizes)
    assert records(written(many)) == (many, {})


@pytest.mark.parametrize("left", range(9))
def test_a_record_near_the_end_of_a_block(left: int) -> None:
    """With fewer than seven bytes left in a block, they are padding; with seven, an empty FIRST fragment stands there."""
    first = b"a" * (BLOCK - 7 - 7 - left)
    assert len(written([first])) == BLOCK - left
    assert records(written([first, b"second"])) == ([first, b"second"], {})


@given(st.lists(SIZES, min_size=1, max_size=8), st.data())
def test_a_file_cut_anywhere_keeps_the_records_before(sizes: list[int], data: st.DataObject) -> None:
    """A killed run: no record is made up, and none that is whole is lost."""
    many = numbered(sizes)
    whole = written(many)
    cut = data.draw(st.integers(7, len(whole)))
    found, lost = records(whole[:cut])
    assert found == many[: len(found)]
    assert len(written(many[: len(found) + 1])) > cut or len(found) == len(many)
    assert sum(lost.values()) <= 1


@given(st.lists(SIZES, min_size=1, max_size=8), st.data())
def test_a_flipped_byte_never_makes_up_a_record(sizes: list[int], data: st.DataObject) -> None:
    """What is read was written; what was not read is counted."""
    many = numbered(sizes)
    damaged = bytearray(written(many))
    at = data.draw(st.integers(7, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    found, lost = records(bytes(damaged))
    assert [record for record in found if record not in many] == []
    assert len(found) == len(many) or lost


def test_damaged_data_cost_one_record() -> None:
    """The length still holds: the next record is read."""
    data = bytearray(written([b"one", b"two", b"three"]))
    data[data.index(b"two")] ^= 1
    assert records(bytes(data)) == ([b"one", b"three"], {"fragment with a wrong checksum": 1})


def test_a_damaged_length_costs_the_rest_of_its_block() -> None:
    """The next block begins at a place that is known."""
    fill = b"x" * (BLOCK - 7 - 10 - 10 - 7)
    data = bytearray(written([b"one", b"two", fill, b"next block"]))
    data[data.index(b"two") - 2] = 0xFF  # high byte of its length
    assert records(bytes(data)) == ([b"one", b"next block"], {"fragment that ends outside of its block": 1})


def test_a_record_whose_middle_is_lost_is_not_glued_together() -> None:
    """FIRST, damaged MIDDLE, LAST: two pieces of it are no record, and the last one has no beginning."""
    data = bytearray(written([b"a" * (3 * BLOCK), b"after"]))
    data[2 * BLOCK - 100] ^= 1
    found, lost = records(bytes(data))
    assert found == [b"after"]
    assert lost == {"fragment with a wrong checksum": 1, "fragment without its beginning": 2}


def test_a_first_fragment_without_a_last_one() -> None:
    """Another record begins: the one before it was never finished."""
    data = WANDB_MAGIC + fragment(2, b"begun") + fragment(1, b"whole") + fragment(2, b"again")
    assert records(data) == ([b"whole"], {"record without its end": 1, CUT: 1})


def test_fragments_of_an_unknown_kind_are_left_out() -> None:
    """Kinds are 1 to 4."""
    assert records(WANDB_MAGIC + fragment(9, b"?") + fragment(1, b"whole")) == (
        [b"whole"],
        {"fragment without its beginning": 1},
    )


def test_space_that_was_never_written() -> None:
    """A file system may set it aside before a crash: it is no damage."""
    assert records(WANDB_MAGIC + fragment(1, b"whole") + bytes(500)) == ([b"whole"], {})


def test_a_file_of_exactly_one_block_whose_record_goes_on() -> None:
    """What a killed run leaves: the size is a multiple of 32 KiB."""
    data = written([b"kept", b"b" * BLOCK])[:BLOCK]
    assert records(data) == ([b"kept"], {CUT: 1})


def test_a_record_above_the_limit_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted and passed over; its last fragments have no beginning."""
    monkeypatch.setattr(wandb_log, "LARGEST", 2 * BLOCK)
    found, lost = records(written([b"a", b"b" * (4 * BLOCK), b"c"]))
    assert found == [b"a", b"c"]
    assert lost["record above 32 MiB"] == 1


def test_the_progress_is_told_block_by_block() -> None:
    """Bytes that are read, the last block as long as it is."""
    data = written([b"a" * BLOCK])
    told: list[int] = []
    list(Log(io.BytesIO(data), told.append))
    assert told == [BLOCK, len(data)]


@given(st.binary(max_size=400), st.integers(0, 5))
def test_any_bytes_behind_the_header(data: bytes, repeats: int) -> None:
    """No exception, and no more records than checksums that fit."""
    found, _ = records(WANDB_MAGIC + data * repeats)
    assert sum(7 + len(record) for record in found) <= max(len(data) * repeats, 0)


def test_the_checksum_covers_the_kind() -> None:
    """A FULL fragment whose kind was turned into LAST is damage, not the end of a record."""
    data = bytearray(WANDB_MAGIC + fragment(2, b"begun") + fragment(1, b"whole"))
    struct.pack_into("<B", data, data.rindex(b"whole") - 1, 4)
    assert records(bytes(data)) == ([], {"fragment with a wrong checksum": 1})
