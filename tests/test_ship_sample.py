"""A recording of one's own becomes a shipped sample: small, nameless, with the same answer, or not at all."""

from __future__ import annotations

import shutil
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import ship_sample
from dipstick.recording import reader
from dipstick.recording.reader import open_recording
from dipstick.verdicts.report import explain
from records import cycle, on_disk, process, utilization
from runs import ran

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys, time
import dipstick
for step in range(3):
    with dipstick.span("step", step=step):
        with dipstick.span("generate"): time.sleep(0.05)
        with dipstick.span("reward"): time.sleep(0.1)
"""


def ship(
    monkeypatch: pytest.MonkeyPatch, run: Path, samples: Path, *more: str, name: str = "cpu-toy"
) -> Path:
    """`python scripts/ship_sample.py RUN NAME ...` into a folder of samples of its own."""
    monkeypatch.setattr(sys, "argv", ["ship_sample.py", str(run), name, "--samples", str(samples), *more])
    assert ship_sample.main() == 0
    return samples / name


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps on the CPU, under dipstick run, from a user's home."""
    home = tmp_path_factory.mktemp("r") / "home" / "ann" / "acme"
    home.mkdir(parents=True)
    script = home / "train.py"
    script.write_text(SCRIPT)
    found = ran(home / "run", sys.executable, str(script), "--api-base", "https://acme.example/v1")
    assert found.status == 0, found.err
    return found.run


def test_a_real_recording_becomes_a_sample(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It opens as ``sample:cpu-toy``, says what the recording says, and the next command is printed."""
    folder = ship(monkeypatch, recorded, tmp_path)
    monkeypatch.setattr(reader, "SAMPLES", tmp_path)

    shipped, whole = open_recording("sample:cpu-toy"), open_recording(recorded)

    assert "dipstick explain sample:cpu-toy" in capsys.readouterr().out
    assert explain(shipped).answer == explain(whole).answer
    assert shipped.table("spans").height == whole.table("spans").height > 0
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 100_000


def test_nothing_in_it_tells_whose_it_was(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host, user, folder, command or address, in tables and manifest; the script's own name may stay."""
    folder = ship(monkeypatch, recorded, tmp_path)
    whole = open_recording(recorded)
    texts = list(ship_sample.texts_of(open_recording(folder)))

    assert [host for host in whole.manifest.hosts for text in texts if host in text] == []
    assert [
        text for text in texts for word in ("ann", "acme") if f"/{word}" in text or f"{word}.example" in text
    ] == []
    assert (
        open_recording(folder)
        .table("processes")["cmdline"]
        .drop_nulls()
        .cast(pl.String)
        .str.contains("/")
        .sum()
        == 0
    )
    assert any("train.py" in text for text in texts)


def test_it_can_be_read_by_everybody(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder is private, a shipped one is not."""
    folder = ship(monkeypatch, recorded, tmp_path)

    assert {oct(p.stat().st_mode & 0o777) for p in folder.rglob("*") if p.is_dir()} == {"0o755"}
    assert {oct(p.stat().st_mode & 0o777) for p in folder.rglob("*") if p.is_file()} == {"0o644"}


def test_an_archive_of_a_gpu_session_is_taken_as_it_came(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``train.tar.gz`` holds the log and the recording: the one folder with a manifest is it."""
    with tarfile.open(tmp_path / "train.tar.gz", "w:gz") as archive:
        archive.add(recorded, "train/kept")
    folder = ship(monkeypatch, tmp_path / "train.tar.gz", tmp_path / "samples")

    assert explain(open_recording(folder)).answer == explain(open_recording(recorded)).answer


def test_an_archive_with_two_recordings_needs_a_choice(recorded: Path, tmp_path: Path) -> None:
    """None is picked in silence."""
    with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as archive:
        archive.add(recorded, "a")
        archive.add(recorded, "b")

    with pytest.raises(SystemExit, match="2 recordings in it"):
        ship_sample.unpacked(tmp_path / "two.tar.gz", tmp_path)


# Hand-made


def two_hosts(folder: Path, **more: Any) -> Path:
    """Two ranks on two hosts, GPU 0 of each, with a home in a span's file."""
    spans = [
        row | {"host": host, "file": "/home/ann/acme/train.py", "line": 7}
        for rank, host in enumerate(("gpu-a.lab.example", "gpu-b.lab.example"))
        for step in range(3)
        for row in cycle(rank, step, 10.0 * step, (4, 3, 2, 1))
    ]
    gpu = [
        row | {"host": host}
        for host in ("gpu-a.lab.example", "gpu-b.lab.example")
        for row in utilization([95.0] * 150)
    ]
    who = [
        process(900 + r, rank=r, gpu=0, host=h)
        for r, h in enumerate(("gpu-a.lab.example", "gpu-b.lab.example"))
    ]
    return on_disk(folder / "run", spans=spans, gpu=gpu, processes=who, **more).path


def test_hosts_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them, numbered alike in manifest and tables, each with its own GPU 0 and rank."""
    folder = ship(monkeypatch, two_hosts(tmp_path), tmp_path / "samples")
    found = open_recording(folder)

    assert sorted(found.table("gpu")["host"].cast(pl.String).unique()) == ["host0", "host1"]
    assert found.table("processes").select(pl.col("host").cast(pl.String), "rank").sort("rank").rows() == [
        ("host0", 0),
        ("host1", 1),
    ]


def test_one_that_is_too_large_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is deleted again, and how to make it smaller is said."""
    with pytest.raises(SystemExit, match="take fewer seconds"):
        ship(monkeypatch, two_hosts(tmp_path), tmp_path / "samples", "--limit", "1000")
    assert not (tmp_path / "samples" / "cpu-toy").exists()


def test_one_in_which_a_name_is_left_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the redaction misses is found by reading the sample again: here it is switched off."""
    monkeypatch.setattr(ship_sample, "without_names", lambda recording: recording)
    with pytest.raises(SystemExit, match="a path is left"):
        ship(monkeypatch, two_hosts(tmp_path), tmp_path / "samples")
    assert not (tmp_path / "samples" / "cpu-toy").exists()


def test_a_host_s_name_inside_other_text_is_found(tmp_path: Path) -> None:
    """A name is looked for in every string, not only where hosts stand."""
    run = two_hosts(tmp_path)

    assert ship_sample.left_in(run, {"lab.example"}) == [
        "a name is left ('lab.example')", "a path is left ('/home/ann/acme/train.py')",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Crystal", "../x", "a b", "x"])
def test_a_name_is_plain(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes a folder and a word on command lines."""
    with pytest.raises(SystemExit, match="lower case letters"):
        ship(monkeypatch, tmp_path, tmp_path, name=name)


def test_a_sample_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete it first."""
    run = two_hosts(tmp_path)
    ship(monkeypatch, run, tmp_path / "samples")
    with pytest.raises(SystemExit, match="there already"):
        ship(monkeypatch, run, tmp_path / "samples")
    shutil.rmtree(tmp_path / "samples" / "cpu-toy")
    ship(monkeypatch, run, tmp_path / "samples")
