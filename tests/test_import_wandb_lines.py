"""W&B's JSON lines (events, history) and run folders."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.cli import main
from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.wandb_meta import from_metadata
from dipstick.importers.wandb_system import Device, Run
from imported import T_S, S, T, bound, read_text, rows, texts
from wire import wandb_header, wandb_log, wandb_run, wandb_stats

if TYPE_CHECKING:
    from pathlib import Path

GPU = {"system.gpu.0.gpu": 50.5, "system.gpu.0.powerWatts": 27.5, "system.cpu": 3}
RUN = wandb_log([wandb_header(), wandb_run(T_S), wandb_stats(T_S + 15, {"gpu.0.gpu": 98})])


def lines(*objects: dict[str, Any]) -> str:
    """One object a line."""
    return "".join(json.dumps(each) + "\n" for each in objects)


def event(at_s: float, **more: Any) -> dict[str, Any]:
    """A line of system metrics."""
    return {**GPU, "_wandb": True, "_timestamp": T_S + at_s, "_runtime": at_s, **more}


# --- wandb-events.jsonl ---


def test_events_become_telemetry(tmp_path: Path) -> None:
    """The prefix ``system.`` is the server's; fractions show means; the run began ``_runtime`` before the first line."""
    found = read_text(tmp_path, lines(event(28), event(58), event(61)), "wandb-events.jsonl")
    assert rows(found, "gpu", "gpu", "t_ns", "window_ns", "util_pct", "power_w") == [
        (0, 28 * S, 28 * S, 50.5, 27.5), (0, 58 * S, 30 * S, 50.5, 27.5), (0, 61 * S, 3 * S, 50.5, 27.5),
    ]  # fmt: skip
    assert found.account.format == "wandb-jsonl"
    assert found.account.facts["run_start_s"] == T_S
    assert bound(found)["system.gpu.N.gpu"] == ("util_pct", "%", "certain")


def test_whole_seconds_are_said(tmp_path: Path) -> None:
    """``_timestamp`` was an integer before 2022: each stamp may be a second early."""
    old = read_text(tmp_path, lines(event(30), event(60)), "wandb-events.jsonl")
    new = read_text(tmp_path, lines(event(30.25), event(60.25)), "wandb-events.jsonl")
    assert (old.account.resolution_ns, new.account.resolution_ns) == (S, 0)
    assert rows(new, "gpu", "t_ns") == [(30_250_000_000,), (60_250_000_000,)]


def test_lines_that_are_no_object_are_counted(tmp_path: Path) -> None:
    """A cut last line, a list, nesting deeper than any reader goes, bytes that are no text."""
    deep = '{"a":' * 50_000
    text = (
        lines(event(30)).encode()
        + b"[1]\n\xff\xfe\n"
        + deep.encode()
        + b"\n\n"
        + lines(event(60)).encode()[:-9]
    )
    found = read_text(tmp_path, text, "wandb-events.jsonl")
    assert found.tables["gpu"].height == 1
    assert dict(found.account.dropped) == {"line that is no JSON object": 4}
    assert found.account.rows_read == 5


def test_events_without_a_time_are_counted(tmp_path: Path) -> None:
    """A line without ``_timestamp``, and one whose time is text."""
    text = lines(event(30), {**GPU, "_runtime": 5}, event(60) | {"_timestamp": "now"})
    found = read_text(tmp_path, text, "wandb-events.jsonl")
    assert dict(found.account.dropped) == {"system metrics without a time": 2}


def test_huge_numbers_are_missing(tmp_path: Path) -> None:
    """They are no utilization, and no reason to stop."""
    text = lines(event(30)) + '{"system.gpu.0.gpu": 1' + "0" * 400 + f', "_timestamp": {T_S + 60}}}\n'
    found = read_text(tmp_path, text + lines(event(90)), "wandb-events.jsonl")
    assert [t for (t,) in rows(found, "gpu", "t_ns")] == [30 * S, 90 * S]


def test_a_gzip_file_is_read(tmp_path: Path) -> None:
    """As every text."""
    packed = gzip.compress(lines(event(30)).encode())
    assert read_text(tmp_path, packed, "wandb-events.jsonl.gz").tables["gpu"].height == 1


# --- wandb-history.jsonl ---


def test_history_becomes_scalars(tmp_path: Path) -> None:
    """The training's own step, the time of logging; pictures are no numbers."""
    row = {
        "loss": 0.5,
        "train/global_step": 3,
        "_step": 9,
        "_runtime": 4.0,
        "_timestamp": T_S + 4.5,
        "p": {"_type": "x"},
    }
    found = read_text(tmp_path, lines(row), "wandb-history.jsonl")
    losses = [
        entry for entry in rows(found, "scalars", "name", "value", "step", "t_ns") if entry[0] == "loss"
    ]
    assert losses == [("loss", 0.5, 3, 4_500_000_000)]
    assert "gpu" not in found.tables


def test_rows_without_a_number_are_counted(tmp_path: Path) -> None:
    """Only W&B's own columns, and a picture."""
    text = lines({"loss": 1, "_step": 0, "_timestamp": T_S}, {"_step": 1, "_timestamp": T_S + 1, "p": {}})
    assert dict(read_text(tmp_path, text, "wandb-history.jsonl").account.dropped) == {
        "row without a number": 1
    }


@pytest.mark.parametrize(
    ("first", "form"),
    [
        ({"loss": 1, "_step": 0, "_timestamp": T_S}, "wandb-jsonl"),
        ({"system.gpu.0.gpu": 1, "_timestamp": T_S}, "wandb-jsonl"),
        ({"timestamp": T_S, "gpu": 0, "utilization": 1}, "generic"),
    ],
)
def test_the_format_is_known_by_w_and_b_s_own_columns(
    tmp_path: Path, first: dict[str, Any], form: str
) -> None:
    """Two of them, or one beside system metrics; other JSON lines are someone else's."""
    assert read_text(tmp_path, lines(first), "data.jsonl").account.format == form


def test_a_file_without_an_object_is_refused(tmp_path: Path) -> None:
    """If it is forced to be one."""
    with pytest.raises(ImportFormatError, match="no line of it is a JSON object"):
        read_text(tmp_path, "hello\n", "x.jsonl", format="wandb-jsonl")


# --- run folders ---


def folder_of(place: Path, **files: bytes | str) -> Path:
    """A run folder: ``run`` is its run file, ``meta`` its metadata, ``__`` a folder."""
    folder = place / "run-20261130_154213-abc"
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(
            {"run": "run-abc.wandb", "meta": "wandb-metadata.json"}.get(path.name, path.name)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_a_run_folder_is_its_run_file_and_the_machine(tmp_path: Path) -> None:
    """Older versions name the GPUs only in ``files/wandb-metadata.json``."""
    meta = {
        "gpu": "NVIDIA A100",
        "gpu_count": 2,
        "gpu_devices": [{"name": "NVIDIA A100", "memory_total": 2**36}] * 2,
    }
    found = read_path(folder_of(tmp_path, run=RUN, files__meta=json.dumps(meta)))
    assert (found.account.format, found.account.facts["read"]) == ("wandb-folder", ["run-abc.wandb"])
    assert rows(found, "gpus", "gpu", "name", "mem_total_b") == [(0, "NVIDIA A100", 2**36)]
    assert rows(found, "gpu", "t_ns", "util_pct") == [(15 * S, 98.0)]


def test_without_a_run_file_the_lines_are_read(tmp_path: Path) -> None:
    """Events and history, as they are downloaded, or of versions that had no run file; an empty run file is none."""
    folder = folder_of(tmp_path, run=b"")
    (folder / "wandb-events.jsonl").write_text(lines(event(30)))
    (folder / "files").mkdir()
    (folder / "files" / "wandb-history.jsonl").write_text(lines({"loss": 1, "_step": 0, "_timestamp": T_S}))
    found = read_path(folder)
    assert found.account.facts["read"] == ["wandb-events.jsonl", "wandb-history.jsonl"]
    assert (
        found.tables["gpu"].height,
        found.tables["scalars"].filter(found.tables["scalars"]["name"] == "loss").height,
    ) == (1, 1)


def test_two_runs_in_one_folder_are_asked_about(tmp_path: Path) -> None:
    """A recording is of one run."""
    folder = folder_of(tmp_path, run=RUN)
    (folder / "run-def.wandb").write_bytes(RUN)
    with pytest.raises(ImportFormatError, match=r"2 run files.*\n.*run-abc\.wandb, run-def\.wandb"):
        read_path(folder)


def test_links_in_a_run_folder_are_not_followed(tmp_path: Path) -> None:
    """A run folder from somewhere else must not read files of this machine."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"gpu": "secret", "gpu_count": 1}')
    folder = folder_of(tmp_path, run=RUN)
    (folder / "files").mkdir()
    (folder / "files" / "wandb-metadata.json").symlink_to(secret)
    (folder / "run-b.wandb").symlink_to(secret)
    assert rows(read_path(folder), "gpus", "name") == [(None,)]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    """If it is forced to be one."""
    from dipstick.importers.options import Options  # noqa: PLC0415 - this test only

    with pytest.raises(ImportFormatError, match="no run of W&B"):
        read_path(tmp_path, Options(format="wandb-folder"))


@pytest.mark.parametrize(
    ("meta", "devices", "start"),
    [
        ({"gpu": "T4", "gpucount": 1}, [Device("T4")], None),
        ({"gpu": "T4", "gpu_count": 2}, [Device("T4")] * 2, None),
        ({"gpu_nvidia": [{"name": "H200", "memoryTotal": "150754820096", "uuid": "GPU-1"}]}, [Device("H200", "GPU-1", 150754820096.0)], None),
        ({"gpu_devices": [{"name": 3}, "x"]}, [Device()], None),
        ({"gpu_count": -5}, [], None),
        ({"gpu_count": 1e300}, [Device()] * 1024, None),
        ({"startedAt": "2026-11-30T15:42:13.000000"}, [], T),
        ({"startedAt": "2026-11-30T15:42:13.000000123Z"}, [], T),
        ({"startedAt": "yesterday"}, [], None),
        ({"startedAt": 5}, [], None),
        ([1], [], None),
    ],
)  # fmt: skip
def test_metadata_of_any_version(tmp_path: Path, meta: Any, devices: list[Device], start: int | None) -> None:
    """One name for all GPUs, a list with memory, a list with UUIDs; the start is UTC, with or without a Z."""
    path = tmp_path / "wandb-metadata.json"
    path.write_text(json.dumps(meta))
    run = Run()
    from_metadata(path, run)
    assert (run.devices, run.start_ns) == (devices, start)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00"])
def test_metadata_that_can_not_be_read_is_not_there(tmp_path: Path, text: str) -> None:
    """The run is read all the same."""
    found = read_path(folder_of(tmp_path, run=RUN, files__meta=text))
    assert found.tables["gpu"].height == 1


def test_metadata_does_not_overrule_the_run_file(tmp_path: Path) -> None:
    """What is known stays."""
    path = tmp_path / "wandb-metadata.json"
    path.write_text('{"gpu": "other", "gpu_count": 1, "startedAt": "2020-01-01T00:00:00"}')
    run = Run(start_ns=T, devices=[Device("H200")])
    from_metadata(path, run)
    assert run == Run(start_ns=T, devices=[Device("H200")])


def test_from_a_run_folder_to_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Import, then explain: it says that phases are not known, and from what they would be."""
    many = [
        wandb_stats(T_S + 15 * i, {"gpu.0.gpu": 98 if i % 4 else 3, "gpu.0.powerWatts": 600})
        for i in range(1, 60)
    ]
    folder = folder_of(tmp_path, run=wandb_log([wandb_header(), wandb_run(T_S), *many]))
    out = tmp_path / "RUN"
    assert main(["import", str(folder), "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "gpu.N.gpu" in told
    assert main(["explain", str(out)]) == 0
    assert "dip" in capsys.readouterr().out


def test_notes_name_the_file(tmp_path: Path) -> None:
    """There may be several."""
    found = read_text(tmp_path, lines(event(30)), "wandb-events.jsonl")
    assert texts(found).startswith("wandb-events.jsonl: each value is the mean of the 30 s before it")
