"""Files made to break the readers of W&B and TensorBoard: a recording, a partial one that counts, or an error of ours."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dipstick.errors import DipstickError
from dipstick.importers import read_path
from dipstick.importers.options import Options
from imported import T_S
from wire import (
    blob,
    double,
    single,
    stamp,
    tf_event,
    tf_file,
    tf_record,
    tf_simple,
    tf_tensor,
    wandb_exit,
    wandb_gpus,
    wandb_header,
    wandb_history,
    wandb_log,
    wandb_output,
    wandb_run,
    wandb_stats,
    whole,
)

if TYPE_CHECKING:
    from dipstick.importers import ImportedTables

TYPES = ("gpu", "gpu_counters", "scalars")

RUN = [
    wandb_header(), wandb_run(T_S, "0.21.0"), wandb_gpus(("H200", 1 << 37, "GPU-1")),
    wandb_stats(T_S + 15, {"gpu.0.gpu": 98.5, "gpu.1.smActive/l:a": "1e1", "cpu": 3}), wandb_output(T_S + 16, "step:1"),
    wandb_history({"train/loss": 0.5, "_timestamp": T_S + 17, "train/global_step": 1}, nested=True),
    wandb_stats(T_S + 30, {"gpu.0.gpu": 3}), wandb_exit(1, 31),
]  # fmt: skip
EVENTS = [
    tf_event(T_S + 1, 1, tf_simple("train/loss", 0.5)), tf_event(T_S + 2, 1, tf_tensor("x", 1, struct.pack("<f", 1))),
    tf_event(T_S + 5, 2, tf_simple("train/loss", 0.25)),
]  # fmt: skip


def attempt(data: bytes, form: str, name: str = "x") -> ImportedTables | None:
    """What is read of a file with these bytes, None if it is refused; any other exception is a failure of the test."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            found = read_path(path, Options(format=form))
        except DipstickError:
            return None
    check(found)
    return found


def check(found: ImportedTables) -> None:
    """What holds of whatever is read: times are times of a log, values are finite, the account fits JSON."""
    for table in TYPES:
        frame = found.tables.get(table)
        if frame is None:
            continue
        times: list[int] = frame["t_ns"].drop_nulls().to_list() if "t_ns" in frame.columns else []
        assert all(0 < t < 1 << 63 for t in times)
        for column in frame.columns:
            if frame[column].dtype.is_float():
                assert all(math.isfinite(v) for v in frame[column].drop_nulls())
    json.dumps(found.account.plain(), allow_nan=False)


# --- whole files, cut and damaged ---

FILES = {"wandb": wandb_log(RUN), "tfevents": tf_file(*EVENTS)}


@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_file_cut_anywhere(form: str, data: st.DataObject) -> None:
    """Read as far as it goes, or refused."""
    whole_file = FILES[form]
    attempt(whole_file[: data.draw(st.integers(0, len(whole_file)))], form)


@given(
    st.sampled_from(sorted(FILES)), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=8)
)
def test_bytes_that_were_changed(form: str, changes: list[tuple[int, int]]) -> None:
    """Anywhere, also in the header."""
    data = bytearray(FILES[form])
    for at, byte in changes:
        data[at % len(data)] = byte
    attempt(bytes(data), form)


@given(st.sampled_from(sorted(FILES)), st.binary(max_size=300), st.integers(0, 2000))
def test_bytes_that_were_put_in(form: str, more: bytes, at: int) -> None:
    """Another process wrote into the file."""
    data = FILES[form]
    attempt(data[: at % len(data)] + more + data[at % len(data) :], form)


# --- right checksums, hostile records ---

NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, -(2**63), 10**9])
FLOATS = st.sampled_from([0.0, -1.0, T_S * 1.0, 1e300, -1e300, math.nan, math.inf, 5e-324])
TEXTS = st.sampled_from([
    "", "gpu.0.gpu", "gpu.9999.gpu", "gpu.99999.gpu", "gpu.0.smActive", "gpu.0.gpu/l:", "gpu.0.gpu/l:\x1b[31m", "_timestamp",
    "_step", "_runtime", "train/global_step", "train/loss", "train/step_time", "profiling/Time taken: GRPOTrainer.x", "1", "1e400",
    "-1e18", "NaN", "1.796053333e9", "[" * 5000, "9" * 5000, "\ud7ff\x00", "0.14.2", "0.99999999999",
])  # fmt: skip
NUMBER_OF_FIELD = st.integers(1, 26)
LEAF = st.one_of(
    st.builds(whole, NUMBER_OF_FIELD, NUMBERS), st.builds(double, NUMBER_OF_FIELD, FLOATS),
    st.builds(single, NUMBER_OF_FIELD, st.sampled_from([0.0, 1.5, math.nan, math.inf])), st.builds(blob, NUMBER_OF_FIELD, TEXTS),
    st.builds(stamp, NUMBER_OF_FIELD, st.sampled_from([0.0, -5.0, T_S * 1.0, T_S + 0.5, 1e12])), st.binary(max_size=6),
)  # fmt: skip


def nested(parts: st.SearchStrategy[list[bytes]]) -> st.SearchStrategy[bytes]:
    """A message in a field."""
    return st.builds(lambda number, inner: blob(number, b"".join(inner)), NUMBER_OF_FIELD, parts)


MESSAGES = st.recursive(LEAF, lambda inner: nested(st.lists(inner, max_size=4)), max_leaves=12)
ITEM = st.builds(lambda key, value: blob(1, key) + blob(16, value), TEXTS, TEXTS)
STATS = st.builds(
    lambda at, items: blob(7, at + b"".join(blob(3, item) for item in items)), LEAF | st.builds(stamp, st.just(2), st.floats(1, 1e10)),
    st.lists(ITEM, max_size=5),
)  # fmt: skip
HISTORY = st.builds(
    lambda items: blob(2, b"".join(blob(1, item) for item in items)), st.lists(ITEM, max_size=5)
)


@given(st.lists(st.one_of(MESSAGES, STATS, HISTORY, st.sampled_from(RUN)), max_size=12))
@example(
    [wandb_stats(T_S, {"gpu.0.gpu": "1e308"}), wandb_stats(T_S + 1, {"gpu.0.memoryAllocatedBytes": "1e300"})]
)
@example([wandb_history({"_step": "1e300", "loss": "1", "_timestamp": T_S})])
@example([wandb_gpus(("x", 2**63 - 1, "y")), wandb_stats(T_S, {"gpu.0.gpu": 1})])
@example([wandb_stats([1.0, 8e9, 5.0][i % 3], {"gpu.0.gpu": 1}) for i in range(12)])
def test_any_records_of_a_run(records: list[bytes]) -> None:
    """Fields of other types, numbers beyond all limits, texts that are no JSON, keys that end a terminal's sanity."""
    attempt(wandb_log(records), "wandb")


VALUES = st.one_of(
    MESSAGES, st.builds(tf_simple, TEXTS, st.sampled_from([0.0, 1.5, -1e38, math.nan])),
    st.builds(tf_tensor, TEXTS, st.integers(0, 30), st.binary(max_size=9), st.just(()) | st.just((1, 1)) | st.just((0,))),
)  # fmt: skip
ANY_EVENT = st.builds(
    lambda at, step, values: tf_event(at, step, *values), FLOATS, NUMBERS, st.lists(VALUES, max_size=4)
)


@given(st.lists(st.one_of(ANY_EVENT, MESSAGES, st.sampled_from(EVENTS)), max_size=12))
@example([tf_event(T_S, 2**63 - 1, tf_simple("a", 1)), tf_event(T_S, -(2**63), tf_simple("b", 1))])
@example([tf_event([1.0, 8e9][i % 2], i, tf_simple("a", 1)) for i in range(12)])
def test_any_events(events: list[bytes]) -> None:
    """Steps and times beyond all limits, tensors of any type and size."""
    attempt(tf_file(*events), "tfevents")


# --- JSON lines ---

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.just(10**400),
    st.just([1]),
    st.just({"a": 1}),
)
KEYS = TEXTS | st.sampled_from(
    ["system.gpu.0.gpu", "system.gpu.1.memoryAllocatedBytes", "system.cpu", "loss"]
)
OBJECTS = st.dictionaries(KEYS, CELLS | st.just(T_S), max_size=6)


@given(st.lists(OBJECTS, max_size=8), st.binary(max_size=30))
@example([{"system.gpu.0.gpu": 1e308, "_timestamp": T_S, "_runtime": 1e308}], b"")
def test_any_lines(objects: list[dict[str, Any]], more: bytes) -> None:
    """Values of any type under any key, and a last line that is none."""
    text = "".join(json.dumps(each) + "\n" for each in objects).encode()
    attempt(text + more, "wandb-jsonl")


# --- size ---


def test_a_file_of_empty_records(tmp_path: Path) -> None:
    """100,000 records of nothing: read through, and refused, since there is nothing in it."""
    path = tmp_path / "x.wandb"
    path.write_bytes(wandb_log([b""] * 100_000))
    with pytest.raises(DipstickError, match=r"0 metrics bound|none of its"):
        read_path(path)


def test_a_record_of_a_million_fields() -> None:
    """A row with more numbers than any training logs: cut off at a limit."""
    items = b"".join(blob(1, blob(1, f"k{i}") + blob(16, "1")) for i in range(100_000))
    found = attempt(wandb_log([wandb_header(), blob(2, items)]), "wandb")
    assert found is None or found.tables["scalars"].height <= 4096


def test_an_event_of_many_values() -> None:
    """As many tags as are kept, and no more."""
    event = tf_event(T_S, 1, tf_simple("train/loss", 1), *(tf_simple(f"x{i}", 1) for i in range(6000)))
    found = attempt(tf_file(event), "tfevents")
    assert found is not None
    assert found.tables["scalars"].height <= 4096


def test_names_that_a_terminal_would_obey_stay_text() -> None:
    """Escape sequences in keys and labels reach the recording as they are; what shows them escapes them."""
    found = attempt(wandb_log([wandb_header(), wandb_stats(T_S, {"gpu.0.gpu/l:\x1b[31m": 5})]), "wandb")
    assert found is not None
    assert found.tables["gpu"]["host"].cast(str).to_list() == ["\x1b[31m"]


# --- what the fuzzer found, or came near to: kept so that it stays away ---

KEPT = {
    "an empty message in every field": wandb_log([blob(n, b"") for n in range(1, 27)]),
    "a stamp that is a number": wandb_log(
        [blob(7, whole(2, 5) + blob(3, blob(1, "gpu.0.gpu") + blob(16, "1")))]
    ),
    "a version that is no text": wandb_log([blob(21, blob(1, blob(1, b"\xff\xfe")))]),
    "a count of GPUs below none": wandb_log([blob(26, blob(18, "x") + whole(19, -5))]),
    "a count of GPUs beyond all": wandb_log([blob(26, blob(18, "x") + whole(19, 2**62))]),
    "an event of its version only": tf_record(blob(3, "brain.Event:2")),
    "a record of length 0": tf_record(b"") * 3,
    "a tensor without a type": tf_file(tf_event(T_S, 1, blob(1, "x") + blob(8, b""))),
}


@pytest.mark.parametrize("name", sorted(KEPT))
@pytest.mark.parametrize("form", ["wandb", "tfevents"])
def test_inputs_that_are_kept(name: str, form: str) -> None:
    """Each is refused, or read without a row."""
    found = attempt(KEPT[name], form)
    assert found is None or not found.tables.get("gpu", found.tables.get("scalars", [1])).is_empty()  # type: ignore[union-attr]
