"""`dipstick export`."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

import polars as pl
import pytest

from dipstick.cli import main
from records import cycle, job, on_disk, process, utilization

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A recording of one rank on a host with a name."""
    spans = [
        row | {"file": "/home/ann/train.py", "line": 3}
        for s in (0, 1)
        for row in cycle(0, s, 10.0 * s, (4, 3, 2, 1))
    ]
    rows = {
        "spans": spans,
        "jobs": [job("a", 5, 6)],
        "processes": [process(900, rank=0, gpu=0)],
        "gpu": utilization([95.0] * 100),
    }
    on_disk(tmp_path / "run", **rows)
    return str(tmp_path / "run")


def test_the_suffix_picks_the_format(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Chrome JSON and two tables; what was written is said on stderr, with the size."""
    names = [tmp_path / f"x{suffix}" for suffix in (".json.gz", ".parquet", ".csv")]
    assert main(["export", run, *(word for name in names for word in ("-o", str(name)))]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(" (")[0] for line in err.splitlines()[:3]] == [f"wrote {name}" for name in names]
    assert json.loads(gzip.decompress(names[0].read_bytes()))["traceEvents"]
    assert pl.read_parquet(names[1]).height == pl.read_csv(names[2]).height


@pytest.mark.skipif(not find_spec("perfetto"), reason="needs perfetto: pip install 'dipstick[perfetto]'")
def test_perfetto(run: str, tmp_path: Path) -> None:
    """A protobuf with our tracks in it."""
    assert main(["export", run, "-o", str(tmp_path / "x.pftrace"), "-q"]) == 0
    content = (tmp_path / "x.pftrace").read_bytes()
    assert b"utilization.gpu" in content
    assert b"ann" not in content


def test_without_perfetto_the_message_names_the_extra(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the format that needs nothing."""
    import sys  # noqa: PLC0415 - only here

    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    assert main(["export", run, "-o", str(tmp_path / "x.pftrace")]) == 1
    assert "dipstick[perfetto]" in capsys.readouterr().err


def test_traces_name_nobody_and_tables_keep_names(run: str, tmp_path: Path) -> None:
    """Traces are passed on, tables are joined with others; either can be told otherwise."""

    def text(suffix: str, *options: str) -> str:
        path = tmp_path / f"y{suffix}"
        assert main(["export", run, "-o", str(path), "-q", "--force", *options]) == 0
        return (gzip.decompress(path.read_bytes()) if suffix == ".json.gz" else path.read_bytes()).decode()

    assert ["/home/ann" in text(".json.gz"), "/home/ann" in text(".json.gz", "--no-redact")] == [False, True]
    assert ["/home/ann" in text(".csv"), "/home/ann" in text(".csv", "--redact")] == [True, False]


@pytest.mark.parametrize(
    ("table", "columns"), [("jobs", {"payload_b", "t0_s"}), ("phase_pieces", {"phase", "seconds"})]
)
def test_any_table_can_be_written(run: str, tmp_path: Path, table: str, columns: set[str]) -> None:
    """Recorded ones with seconds beside nanoseconds, derived ones as `dipstick query` has them."""
    path = tmp_path / "t.parquet"
    assert main(["export", run, "-o", str(path), "--table", table, "-q"]) == 0
    assert columns <= set(pl.read_parquet(path).columns)


def test_an_unknown_table_is_a_usage_error(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the list of those that there are."""
    assert main(["export", run, "-o", str(tmp_path / "t.csv"), "--table", "joobs"]) == 2
    assert "tables: timeline, gpu" in capsys.readouterr().err


def test_json_says_what_was_written(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Path, bytes, and whether names were replaced."""
    assert main(["export", run, "-o", str(tmp_path / "t.csv"), "--json", "-q"]) == 0
    (written,) = json.loads(capsys.readouterr().out)["written"]
    assert written == {
        "file": str(tmp_path / "t.csv"),
        "bytes": (tmp_path / "t.csv").stat().st_size,
        "redacted": False,
    }


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "where to?"),
        (["-o", "x.pdf"], 2, "use one of: .pftrace"),
        (["-o", "no/x.csv"], 1, "no such folder"),
    ],
)
def test_mistakes_are_told_before_any_work(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recording is not even opened."""
    assert main(["export", "nowhere", *words]) == status
    assert said in capsys.readouterr().err


def test_an_existing_file_is_kept(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--force replaces it."""
    (tmp_path / "t.csv").write_text("mine")
    assert main(["export", run, "-o", str(tmp_path / "t.csv")]) == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert (tmp_path / "t.csv").read_text() == "mine"
