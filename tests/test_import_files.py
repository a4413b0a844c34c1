"""Several files into one recording: placed, accounted for, explained; and what is refused leaves nothing behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from dipstick.cli import main
from dipstick.errors import ImportFormatError, RecordingError
from dipstick.importers import files
from dipstick.importers.binding import parse_wish
from dipstick.importers.files import import_files
from dipstick.importers.options import Options, parse_zone
from dipstick.recording.reader import open_recording
from dipstick.recording.writer import RecordingWriter
from imported import T_S, S, T

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = 3600 * S


def smi(seconds: int = 60, *, at: str = "15:42", every: int = 1, util: int = 50) -> str:
    """nvidia-smi rows of one GPU."""
    lines = [
        f"2026/11/30 {at}:{i % 60:02d}.000, 0, {util} %, 300 W"
        if i < 60
        else f"2026/11/30 15:{42 + i // 60}:{i % 60:02d}.000, 0, {util} %, 300 W"
        for i in range(0, seconds, every)
    ]
    return "timestamp, index, utilization.gpu [%], power.draw [W]\n" + "\n".join(lines) + "\n"


def spans(count: int = 5) -> str:
    """Generate 8 s, reward 4 s, in Unix nanoseconds."""
    start = T_S // 60 * 60 * S
    lines = []
    for step in range(count):
        at = start + 12 * step * S
        for name, a, b in (("step", 0, 12), ("generate", 0, 8), ("reward", 8, 12)):
            lines.append(
                {"name": name, "rank": 0, "pid": 7, "step": step, "t0_ns": at + a * S, "t1_ns": at + b * S}
            )
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., list[Path]]:
    """Write files by name; returns their paths in order."""

    def write(**contents: str) -> list[Path]:
        paths = []
        for name, content in contents.items():
            path = tmp_path / name.replace("__", ".")
            path.write_text(content)
            paths.append(path)
        return paths

    return write


def test_telemetry_in_local_time_beside_spans_in_unix_time(
    put: Callable[..., list[Path]], tmp_path: Path
) -> None:
    """Berlin's 16:42 is 15:42 UTC, the only zone in which they overlap: both lie on one axis, and it is stored how."""
    made = import_files(put(smi__csv=smi(at="16:42"), spans__jsonl=spans()), tmp_path / "run")
    recording = open_recording(made.path)
    gpu, span = recording.table("gpu"), recording.table("spans")
    assert (gpu["t_ns"].min(), gpu["t_ns"].max(), span["t0_ns"].min(), span["t1_ns"].max()) == (
        0,
        59 * S,
        0,
        60 * S,
    )
    stored = recording.manifest.info["imported@import"]
    assert (stored["offset_s"], stored["clock"]) == (-3600.0, "local")
    assert "UTC+01:00" in stored["offset_from"]
    report = dipstick.explain(recording)
    assert (report.run.gpus, report.run.ranks, report.run.steps) == (1, 1, 5)


def test_the_binding_table_is_stored(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Every column with meaning, unit and how sure, for whoever reads the recording later."""
    made = import_files(put(smi__csv=smi()), tmp_path / "run")
    assert open_recording(made.path).manifest.info["imported@import"]["bindings"] == [
        {"source": "timestamp", "meaning": "time", "unit": "local", "sure": "certain"},
        {"source": "index", "meaning": "gpu", "sure": "certain"},
        {"source": "utilization.gpu [%]", "meaning": "util_pct", "unit": "%", "sure": "certain"},
        {"source": "power.draw [W]", "meaning": "power_w", "unit": "W", "sure": "certain"},
    ]


def test_two_hosts_are_named_and_kept_apart(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Without names it is asked whether they are one."""
    a, b = put(a__csv=smi(util=10), b__csv=smi(util=90))
    with pytest.raises(ImportFormatError, match="two hosts, or the same one twice"):
        import_files([a, b], tmp_path / "run")
    recording = open_recording(import_files([f"node0={a}", f"node1={b}"], tmp_path / "run").path)
    levels = recording.table("gpu").group_by("host").agg(pl.col("util_pct").mean()).sort("host").rows()
    assert [(str(host), util) for host, util in levels] == [("node0", 10.0), ("node1", 90.0)]
    assert recording.manifest.hosts == ("node0", "node1")


def test_the_coarser_of_two_views_is_taken_back(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Dmon every 5 s beside nvidia-smi every second: one utilization stays, and it is said."""
    rows = "".join(f" 20261130 15:42:{i:02d} 0 50\n" for i in range(0, 60, 5))
    made = import_files(
        put(dmon__txt="#Date Time gpu sm\n#YYYYMMDD HH:MM:SS Idx %\n" + rows, smi__csv=smi()),
        tmp_path / "run",
    )
    recording = open_recording(made.path)
    assert recording.table("gpu").height == 60
    assert [n.text for n in made.notes] == [
        "dmon.txt: shows the same GPUs as smi.csv, which is finer: its 12 utilization rows are left out"
    ]
    assert recording.manifest.notes


def test_the_finer_view_may_come_second_or_first(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """The order of the words does not decide."""
    rows = "".join(f" 20261130 15:42:{i:02d} 0 50\n" for i in range(0, 60, 5))
    a, b = put(smi__csv=smi(), dmon__txt="#Date Time gpu sm\n#YYYYMMDD HH:MM:SS Idx %\n" + rows)
    assert open_recording(import_files([a, b], tmp_path / "run").path).table("gpu").height == 60


def test_metrics_of_one_gpu_from_two_files_are_both_kept(
    put: Callable[..., list[Path]], tmp_path: Path
) -> None:
    """Utilization and power at the same moments: two rows, not one row twice."""
    util = f"timestamp,gpu,gpu_util\n{T_S}.5,0,98\n{T_S + 1}.5,0,4\n"
    power = f"timestamp,gpu,power_w\n{T_S}.5,0,560\n{T_S + 1}.5,0,90\n"
    recording = open_recording(import_files(put(util__csv=util, power__csv=power), tmp_path / "run").path)
    assert recording.table("gpu", columns=["util_pct", "power_w"]).null_count().rows() == [(2, 2)]


def test_a_zone_given_makes_times_absolute(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """15:42:00 in Tokyo."""
    made = import_files(put(smi__csv=smi()), tmp_path / "run", Options(tz=parse_zone("Asia/Tokyo")))
    assert open_recording(made.path).start_unix_ns == T_S // 60 * 60 * S - 9 * HOUR
    assert made.places[0].how == ""


def test_relative_times_alone_float_and_are_placed_by_a_start(
    put: Callable[..., list[Path]], tmp_path: Path
) -> None:
    """The date is said to be unknown; --start gives it."""
    paths = put(e__csv="elapsed_s,gpu_util\n0.0,1\n0.5,2\n1.0,3\n")
    made = import_files(paths, tmp_path / "a")
    assert (open_recording(made.path).start_unix_ns, made.places[0].is_known) == (S, False)
    made = import_files(paths, tmp_path / "b", Options(start_ns=T))
    assert open_recording(made.path).start_unix_ns == T


def test_a_folder_of_files_is_its_files(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """What no importer knows is left out; links are not followed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "smi.csv").write_text(smi())
    (folder / "notes.md").write_text("# hello\n")
    (folder / "link.csv").symlink_to(put(other__csv=smi(util=1))[0])
    made = import_files([folder], tmp_path / "run")
    assert [a.file for a in made.accounts] == ["smi.csv"]


def test_a_refused_import_leaves_what_was_there(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Even with --force the old recording goes only when the new one is whole."""
    good, bad = put(
        good__csv=smi(), bad__csv="timestamp, memory.used [MiB]\n2026/11/30 15:42:13.000, [N/A]\n"
    )
    import_files([good], tmp_path / "run")
    with pytest.raises(ImportFormatError, match="not supported"):
        import_files([bad], tmp_path / "run", force=True)
    assert open_recording(tmp_path / "run").table("gpu").height == 60
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "good.csv", "run"]
    with pytest.raises(RecordingError, match="already there"):
        import_files([good], tmp_path / "run")
    assert import_files([good], tmp_path / "run", force=True).tables["gpu"] == 60


def test_an_interrupted_import_leaves_nothing(
    put: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C while reading."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "place", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_files(put(smi__csv=smi()), tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["smi.csv"]


def test_progress_is_told_in_bytes(put: Callable[..., list[Path]], tmp_path: Path) -> None:
    """At the end all bytes of the file are done."""
    (path,) = put(smi__csv=smi())
    told: list[tuple[str, int, int]] = []
    import_files([path], tmp_path / "run", progress=lambda *at: told.append(at))
    size = path.stat().st_size
    assert told[-1] == ("smi.csv", size, size)


def test_a_writer_takes_back_a_table(tmp_path: Path) -> None:
    """Buffered rows, segments and parts; other tables and writers keep theirs."""
    with (
        RecordingWriter.create(tmp_path / "r", origin="imported", host="h", segment_rows=4) as one,
        RecordingWriter.join(tmp_path / "r", host="h", writer="other") as other,
    ):
        for many in (5, 2, 1):
            rows: list[dict[str, Any]] = [
                {"host": "h", "gpu": 0, "t_ns": T + i + many * 10} for i in range(many)
            ]
            one.append("gpu", rows)
            one.flush()
        other.append("gpu", [{"host": "h", "gpu": 1, "t_ns": T}])
        one.append("events", [{"host": "h", "name": "x", "t0_ns": T}])
        one.discard("gpu")
    recording = open_recording(tmp_path / "r")
    assert (recording.table("gpu")["gpu"].to_list(), recording.table("events").height, recording.notes) == (
        [1],
        1,
        (),
    )


# --- the command ---


def test_the_command_prints_the_binding_table(
    put: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables, then each file with its columns."""
    (path,) = put(smi__csv=smi().replace("power.draw [W]", "foo"))
    assert main(["import", str(path), "-o", str(tmp_path / "run"), "--tz", "UTC", "-q"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "gpu          60 rows" in lines
    assert "smi.csv: nvidia-smi, 60 rows, GPU 0, 59.0 s, a row every 1.0 s (at most 1.0 s)" in lines
    assert "GPU 0: utilization 50.0 % on average, 50 to 50 %" in lines
    assert any(
        line.startswith("utilization.gpu [%]  util_pct: share of time") and line.endswith("certain")
        for line in lines
    )
    assert "unrecognised: foo" in lines


def test_the_command_as_json(
    put: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account of each file, as numbers."""
    assert main(["import", *map(str, put(smi__csv=smi())), "-o", str(tmp_path / "run"), "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)["files"]
    assert (account["rows_read"], account["span_s"], account["interval_s"], account["dropped"]) == (
        60,
        59.0,
        1.0,
        {},
    )
    assert account["gpus"] == [
        {"host": "host0", "gpu": 0, "util_pct": {"mean": 50.0, "min": 50.0, "max": 50.0}}
    ]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--format", "nonsense"], 2), (["--tz", "Mars"], 2), (["--start", "soon"], 2), (["--bind", "x"], 2),
        (["--interval", "-1"], 2), (["--gpus", "0"], 2), (["--format", "dmon"], 1), ([], 0), (["--format", "csv"], 0),
    ],
)  # fmt: skip
def test_exit_statuses(put: Callable[..., list[Path]], tmp_path: Path, words: list[str], status: int) -> None:
    """2: the command line; 1: the file; 0: a recording."""
    (path,) = put(smi__csv=smi())
    assert main(["import", str(path), "-o", str(tmp_path / "run"), "-q", *words]) == status


def test_short_flags_bind_columns(
    put: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--time-col, --gpu-col and --util-col for tables whose names say nothing."""
    (path,) = put(x__csv="a;b;c\n2026-11-30 15:42:13.1;0;5\n2026-11-30 15:42:14.1;0;6\n")
    words = ["import", str(path), "-o", str(tmp_path / "run"), "--json", "--format", "csv"]
    assert main([*words, "--time-col", "a", "--gpu-col", "b", "--util-col", "c"]) == 0
    (account,) = json.loads(capsys.readouterr().out)["files"]
    assert [b["sure"] for b in account["bindings"]] == ["you said so"] * 3


def test_hostile_names_reach_the_terminal_without_control_characters(
    put: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escapes in a column's name are not obeyed."""
    (path,) = put(x__csv=f"timestamp,gpu_util,\x1b[2J\x1b]0;pwned\x07evil\n{T_S}.5,1,2\n{T_S + 1}.5,1,2\n")
    assert main(["import", str(path), "-o", str(tmp_path / "run"), "-q"]) == 0
    out = capsys.readouterr().out
    assert "evil" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_files_that_can_not_be_lined_up_ask_for_the_zone(
    put: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Local telemetry twenty minutes beside any zone of the spans: status 1, the option is named, nothing is made."""
    paths = put(smi__csv=smi(at="16:02"), spans__jsonl=spans())
    assert main(["import", *map(str, paths), "-o", str(tmp_path / "run"), "-q"]) == 1
    err = capsys.readouterr().err
    assert "smi.csv: its times are local and name no zone" in err
    assert "--tz Europe/Berlin" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(wishes=(parse_wish("vram=util_pct"),)), "--bind vram=util_pct: no file has such a column"),
        (Options(wishes=(parse_wish("vram=ignore"),)), "--bind vram=ignore: no file has such a column"),
        (Options(start_ns=T), "--start was not used: the files have dates of their own"),
        (Options(interval_ns=S), "--interval was not used: the files have times of their own"),
    ],
)
def test_what_was_said_in_vain_is_warned_of(
    put: Callable[..., list[Path]], tmp_path: Path, options: Options, said: str
) -> None:
    """A misspelt column, a start beside dates: silence would look like obedience."""
    made = import_files(put(smi__csv=smi()), tmp_path / "run", options)
    assert [(note.level, note.text.startswith(said)) for note in made.notes] == [("warning", True)]


@pytest.mark.parametrize("wish", ["x=power_w", "4=power_w", "x=ignore"])
def test_what_was_obeyed_is_not(put: Callable[..., list[Path]], tmp_path: Path, wish: str) -> None:
    """By name, by number, by pattern; what is left out on purpose counts as well."""
    rows = "".join(f"2026-11-30 15:42:{s:02d}.1,0,{s},{s}.5\n" for s in range(9))
    (path,) = put(t__csv=f"timestamp,gpu,gpu_util,x\n{rows}")
    wishes = (parse_wish(wish),)
    assert import_files([path], tmp_path / "run", Options(wishes=wishes)).notes == ()


@pytest.mark.parametrize("options", [Options(interval_ns=S), Options(interval_ns=S, start_ns=T)])
def test_rows_without_times_use_both(
    put: Callable[..., list[Path]], tmp_path: Path, options: Options
) -> None:
    """nvidia-smi without its timestamp: the distance makes the axis, the start its date."""
    (path,) = put(smi__csv="utilization.gpu [%]\n" + "50 %\n" * 20)
    made = import_files([path], tmp_path / "run", options)
    assert (made.tables["gpu"], made.notes) == (20, ())


def test_an_interval_of_nothing_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """In words, not as argparse's name of a function."""
    assert main(["import", "x.csv", "-o", "run", "--interval", "0"]) == 2
    assert "argument --interval: 0 is no number of seconds above 0" in capsys.readouterr().err
