"""Tails of files that are still being written: whole records only, each once, whatever is cut or missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dipstick.recording import tail as tails
from dipstick.recording.probe_lines import LONGEST_LINE
from dipstick.recording.rows import to_frame
from dipstick.recording.segments import Segment
from dipstick.recording.tail import HEAD, LineTail, StreamTail, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl


def grown(path: Path, text: bytes) -> int:
    """Append, and the size then."""
    with path.open("ab") as stream:
        stream.write(text)
    return path.stat().st_size


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    """A live segment at ``w-000001.arrows``, left as a killed writer leaves it."""
    made = Segment(tmp_path / "w-000001.arrows", "gpus")
    yield made
    made.abandon()


def look(tail: LineTail, size: int) -> list[bytes]:
    return list(tail.lines(size))


def named(*names: str) -> pl.DataFrame:
    return to_frame("gpus", [{"host": "h", "gpu": i, "name": name} for i, name in enumerate(names)])


def names_in(frame: pl.DataFrame) -> list[str]:
    return frame["name"].to_list() if frame.width else []


def test_lines_are_handed_out_once_and_a_cut_one_when_it_is_whole(tmp_path: Path) -> None:
    """``one``, then half of ``two``: the half waits for its end."""
    path = tmp_path / "s.jsonl"
    tail = LineTail(path)
    assert look(tail, grown(path, b"one\ntw")) == [b"one"]
    assert look(tail, path.stat().st_size) == []
    assert look(tail, grown(path, b"o\nthree\n")) == [b"two", b"three"]


def test_a_file_that_has_not_grown_is_not_opened(tmp_path: Path) -> None:
    """The listed size says enough; here the file is even gone."""
    path = tmp_path / "s.jsonl"
    tail = LineTail(path)
    size = grown(path, b"one\n")
    assert look(tail, size) == [b"one"]
    path.unlink()
    assert (look(tail, size), look(tail, size + 10)) == ([], [])


def test_of_a_long_file_the_head_and_the_end_are_read(tmp_path: Path) -> None:
    """The first line says who wrote it; the middle is skipped, and so is the line that the end begins within."""
    path = tmp_path / "s.jsonl"
    lines = [b"meta", *(b"%07d" % i for i in range(20_000)), b"last"]
    size = grown(path, b"\n".join(lines) + b"\n")
    found = look(LineTail(path, most=1000), size)
    assert (found[0], found[-1]) == (b"meta", b"last")
    assert len(found) < (HEAD + 1000) / 8 + 2
    assert set(found) <= set(lines)


def test_a_long_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a piece at a time; no line is lost at its edges."""
    monkeypatch.setattr(tails, "CHUNK", 1000)
    path = tmp_path / "s.jsonl"
    lines = [b"%06d" % i for i in range(1000)]
    assert look(LineTail(path), grown(path, b"\n".join(lines) + b"\n")) == lines


def test_a_line_without_end_does_not_stop_what_follows(tmp_path: Path) -> None:
    """More than a megabyte without a line's end is garbage: it is counted and passed over."""
    path = tmp_path / "s.jsonl"
    tail = LineTail(path)
    assert look(tail, grown(path, b"x" * (LONGEST_LINE + 2))) == []
    assert look(tail, grown(path, b"y\nnext\n")) == [b"y", b"next"]
    assert tail.skipped == 1


def test_a_link_or_a_pipe_is_never_read(tmp_path: Path) -> None:
    """A hostile folder may hold either; a pipe would hang."""
    secret, link, pipe = tmp_path / "secret", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    secret.write_text("key\n")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    assert look(LineTail(link), 100) == []
    assert look(LineTail(pipe), 100) == []
    with pytest.raises(OSError, match="regular"):
        open_regular(pipe)


def test_batches_are_handed_out_as_they_come(segment: Segment) -> None:
    """Each flush of the writer is one batch; nothing comes twice."""
    tail = StreamTail(segment.path)
    assert names_in(tail.read()) == []
    segment.write(named("a", "b"))
    assert names_in(tail.read()) == ["a", "b"]
    assert names_in(tail.read()) == []
    segment.write(named("c"))
    segment.write(named("d"))
    assert names_in(tail.read()) == ["c", "d"]
    segment.close()
    assert names_in(tail.read()) == []
    assert tail.rows == 4


@pytest.mark.parametrize("cut", [1, 100, 300, 500, 900])
def test_a_batch_cut_anywhere_waits_for_its_rest(cut: int, segment: Segment) -> None:
    """The writer may be in the middle of a write, in the schema as well."""
    segment.write(named("a"))
    segment.write(named("b"))
    data = segment.path.read_bytes()
    path = segment.path.with_name("w-000002.arrows")
    path.write_bytes(data[:cut])
    tail = StreamTail(path)
    first = names_in(tail.read())
    path.write_bytes(data)
    assert first + names_in(tail.read()) == ["a", "b"]


def test_a_stream_longer_than_a_piece_is_read_to_its_end(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer that comes late reads what is there piece by piece."""
    monkeypatch.setattr(tails, "CHUNK", 2000)
    for i in range(20):
        segment.write(named(f"gpu {i}"))
    assert names_in(StreamTail(segment.path).read()) == [f"gpu {i}" for i in range(20)]


def test_garbage_is_no_batch_and_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is no stream gives no rows; beyond one piece it is not read again."""
    monkeypatch.setattr(tails, "CHUNK", 1000)
    path = tmp_path / "w-000001.arrows"
    path.write_bytes(os.urandom(1500))
    tail = StreamTail(path)
    assert (names_in(tail.read()), names_in(tail.read()), tail.rows) == ([], [], 0)
