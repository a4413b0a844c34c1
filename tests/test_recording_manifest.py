"""The manifest and the folder's listing: merged from pieces, written whole or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.model import Note
from dipstick.recording.layout import Listing, list_folder, part_path, piece_path
from dipstick.recording.manifest import Manifest, read_manifest, write_json
from dipstick.recording.schema import KIND

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {
    "kind": KIND, "schema_version": 1, "tool_version": "0.1.0", "created_unix_ns": 5, "origin": "measured", "source": "x",
}  # fmt: skip


def read(folder: Path, head: dict[str, Any] | None = None, **pieces: dict[str, Any]) -> Manifest:
    """Write a manifest and pieces by writer id, and read them."""
    write_json(folder / "manifest.json", HEAD | (head or {}))
    for writer, piece in pieces.items():
        write_json(piece_path(folder, writer), piece)
    return read_manifest(folder, list_folder(folder).pieces)


# --- the manifest ---


def test_a_manifest_without_pieces_is_still_being_recorded(tmp_path: Path) -> None:
    """The folder was made and no writer has said anything yet."""
    assert read(tmp_path) == Manifest(1, "0.1.0", 5, "measured", "x")


def test_pieces_are_merged(tmp_path: Path) -> None:
    """Hosts are united, counters added, facts and parts joined, notes kept in order of the writers."""
    merged = read(
        tmp_path,
        b={
            "hosts": ["n2"],
            "state": "closed",
            "health": {"gaps": 1.5},
            "info": {"pid": 2},
            "parts": {"gpu/b-1": 3},
        },
        a={
            "hosts": ["n1", "n2"],
            "state": "closed",
            "health": {"gaps": 1, "late_ticks": 4},
            "notes": [{"text": "from a"}],
        },
    )
    assert merged == Manifest(
        1, "0.1.0", 5, "measured", "x", ("n1", "n2"), "closed", {"gaps": 2.5, "late_ticks": 4}, {"pid": 2},
        (Note("info", "from a"),), {"gpu/b-1": 3},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("closed", "closed"), "closed"),
        (("closed", "recording"), "recording"),
        (("closed", "odd"), "recording"),
    ],
)
def test_a_recording_is_closed_when_every_writer_is(
    tmp_path: Path, states: tuple[str, str], expected: str
) -> None:
    """One writer that was killed leaves the recording open."""
    assert read(tmp_path, a={"state": states[0]}, b={"state": states[1]}).state == expected


@pytest.mark.parametrize(
    ("head", "attribute", "expected"),
    [
        ({"origin": "imported"}, "origin", "imported"),
        ({"origin": "invented"}, "origin", "measured"),
        ({"created_unix_ns": "yesterday"}, "created_unix_ns", 0),
        ({"created_unix_ns": True}, "created_unix_ns", 0),
        ({"source": 7}, "source", "7"),
        ({"schema_version": None}, "schema_version", 0),
    ],
)
def test_members_of_the_wrong_type_get_a_safe_value(
    tmp_path: Path, head: dict[str, Any], attribute: str, expected: object
) -> None:
    """The manifest is data from a file, like all the rest."""
    assert getattr(read(tmp_path, head), attribute) == expected


@pytest.mark.parametrize(
    ("level", "expected"), [("warning", "warning"), ("info", "info"), ("<b>", "info"), (None, "info")]
)
def test_note_levels_are_two(tmp_path: Path, level: object, expected: str) -> None:
    """Any other level is information."""
    assert read(tmp_path, a={"notes": [{"level": level, "text": "t"}]}).notes[0].level == expected


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that dies while writing leaves the old file, and no reader ever sees half of one."""
    write_json(tmp_path / "x.json", {"a": 1})
    monkeypatch.setattr("os.fsync", _crash)
    with pytest.raises(OSError, match="power"):
        write_json(tmp_path / "x.json", {"a": 2})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}


def _crash(_descriptor: int) -> None:
    raise OSError("power cut")


# --- the listing ---


def touch(folder: Path, *names: str) -> None:
    """Make empty files, with their folders."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


def keys(listing: Listing) -> list[str]:
    """The parts in reading order."""
    return [part.key for part in listing.parts]


def test_parts_are_listed_by_writer_and_number(tmp_path: Path) -> None:
    """Reading order is writing order: by number (also beyond six digits), never by what the file system says."""
    touch(
        tmp_path,
        "gpu/b-000001.parquet",
        "gpu/a-1000000.arrows",
        "gpu/a-000002.parquet",
        "gpu/a-000010.parquet",
    )
    assert keys(list_folder(tmp_path)) == [
        "gpu/a-000002.parquet", "gpu/a-000010.parquet", "gpu/a-1000000.arrows", "gpu/b-000001.parquet",
    ]  # fmt: skip


def test_of_a_part_and_its_segment_the_part_is_listed(tmp_path: Path) -> None:
    """Whichever name comes first; another writer's segment of that number is its own."""
    touch(tmp_path, "gpu/a-000001.arrows", "gpu/a-000001.parquet", "gpu/b-000001.arrows")
    assert keys(list_folder(tmp_path)) == ["gpu/a-000001.parquet", "gpu/b-000001.arrows"]


@pytest.mark.parametrize(
    "name",
    [
        "gpu/a-1.parquet",
        "gpu/a-000001.csv",
        "gpu/a-000001.parquet.tmp",
        "gpu/.a-000001.parquet.tmp",
        "gpu/-000001.parquet",
        "gpu/a b-000001.parquet",
        "elsewhere/a-000001.parquet",
        "a-000001.parquet",
        "manifest.a.b.json",
        "manifest..json",
    ],
)
def test_other_names_are_not_ours(tmp_path: Path, name: str) -> None:
    """Temporary files, other folders, ids that no writer has."""
    touch(tmp_path, name)
    assert list_folder(tmp_path) == Listing((), (), ())


def test_links_are_named_and_not_listed(tmp_path: Path) -> None:
    """A link to a part, to a folder, to nothing: all three are only named."""
    touch(tmp_path, "gpu/a-000001.parquet")
    (tmp_path / "gpu" / "b-000001.parquet").symlink_to(tmp_path / "gpu" / "a-000001.parquet")
    (tmp_path / "spans").symlink_to(tmp_path / "gpu")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    listing = list_folder(tmp_path)
    assert keys(listing) == ["gpu/a-000001.parquet"]
    assert listing.links == ("dangling", "gpu/b-000001.parquet", "spans")


def test_names_are_made_as_they_are_read(tmp_path: Path) -> None:
    """What the writer calls a file is what the listing finds."""
    part = part_path(tmp_path, "gpu", "w1_ab", 7, "parquet")
    touch(tmp_path, str(part.relative_to(tmp_path)), piece_path(tmp_path, "w1_ab").name)
    listing = list_folder(tmp_path)
    assert [(p.path, p.table, p.writer, p.number) for p in listing.parts] == [(part, "gpu", "w1_ab", 7)]
    assert listing.pieces == (tmp_path / "manifest.w1_ab.json",)
