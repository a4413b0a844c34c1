"""Files made to break readers: each gives a recording, a partial one that counts what was dropped, or an error that is ours."""

from __future__ import annotations

import gzip
import json
import os
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dipstick.cli import main
from dipstick.errors import DipstickError, ImportFormatError
from dipstick.importers import IMPORTERS, importers, read_path
from dipstick.importers.base import Head
from dipstick.importers.chunks import chunks
from dipstick.importers.columns import numbers
from dipstick.importers.layout import find_layout
from dipstick.importers.names import named
from dipstick.importers.options import Options
from dipstick.importers.times import TimeReader, find_format
from imported import T_S, S, read_text, rows

ROW = "2026/11/30 15:42:13.000, 0, 50 %\n"
HEADER = "timestamp, index, utilization.gpu [%]\n"
TELEMETRY = [i.FORMAT for i in importers() if i.FORMAT != "trace-folder"]


def attempt(data: bytes, name: str, **options: Any) -> pl.DataFrame | None:
    """The telemetry of a file with these bytes, None if it is refused; any other exception is a failure of the test."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            return read_path(path, Options(**options)).tables.get("gpu")
        except DipstickError:
            return None


# --- whatever the bytes are ---


@given(st.binary(max_size=2000), st.sampled_from(TELEMETRY))
def test_any_bytes_as_any_format(data: bytes, form: str) -> None:
    """Forced upon a format they don't have: read or refused, never a crash."""
    attempt(data, "x.log", format=form, interval_ns=S)


LINES = st.lists(
    st.one_of(
        st.just(HEADER), st.just(ROW), st.just("# gpu sm mem\n"), st.just(" 0 50 -\n"), st.just("\n"), st.just("\r"),
        st.just('"'), st.just('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 98\n'), st.just("Mon Nov 30 15:42:13 2026\n"),
        st.just("2026/11/30 15:42:13.000, 99999999999999999999999, 1e400 %\n"), st.just("a,b,c,d,e,f,g\n"),
        st.just('{"name": "x", "start": 1e308, "end": -1}\n'), st.just("| NVIDIA-SMI GPU-Util\n"), st.text(max_size=40),
    ),
    max_size=30,
)  # fmt: skip


@given(LINES, st.sampled_from(TELEMETRY))
@example(["# gpu sm mem\n", " 0 50 -\n", HEADER], "dmon")
@example([HEADER, ROW, "#Date Time gpu sm\n"], "nvidia-smi")
def test_lines_of_all_formats_mixed(lines: list[str], form: str) -> None:
    """Headers where rows should be, rows of other tools, stray quotes and carriage returns."""
    found = attempt("".join(lines).encode("utf-8", "replace"), "x.log", format=form, interval_ns=S)
    assert found is None or found["t_ns"].null_count() == 0


@given(LINES)
def test_sniffing_never_fails(lines: list[str]) -> None:
    """Every importer gives a number between 0 and 1 on anything."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes("".join(lines).encode("utf-8", "surrogatepass"))
        assert all(0 <= importer.sniff(Head(path)) <= 1 for importer in importers())


@given(st.text(max_size=300))
def test_any_name_of_a_column(name: str) -> None:
    """A meaning has a certainty; nothing is both unrecognised and bound."""
    found = named(name)
    assert (found.sure == "unrecognised") <= (not found.meaning)


@given(st.lists(st.text(alphabet=string.printable, max_size=60), max_size=20))
def test_any_text_has_a_layout_or_none(lines: list[str]) -> None:
    """Rows of the sample are as long as the names."""
    try:
        layout = find_layout(lines, "x")
    except ImportFormatError:
        return
    assert layout is None or {len(row) for row in layout.sample} <= {len(layout.names)}


@given(st.lists(st.text(alphabet="0123456789-/:. TZ+apm,", max_size=30), min_size=1, max_size=5))
def test_any_cells_as_times(cells: list[str]) -> None:
    """A format that is found reads cells to 64-bit nanoseconds or null."""
    try:
        form = find_format(cells, elapsed=True)
    except ImportFormatError:
        return
    if form is not None:
        assert TimeReader(form, UTC).read(pl.Series("t", cells)).dtype == pl.Int64


STAMPS = st.datetimes(min_value=datetime(2001, 10, 1), max_value=datetime(2090, 1, 1))  # noqa: DTZ001 - local times


@given(
    STAMPS,
    st.sampled_from(
        ["%Y/%m/%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f", "%d.%m.%Y %H:%M:%S.%f", "%Y%m%d %H:%M:%S.%f"]
    ),
)
def test_what_was_written_is_read(when: datetime, pattern: str) -> None:
    """To the microsecond, in every unambiguous form."""
    cells = [(when + timedelta(seconds=i)).strftime(pattern) for i in range(3)]
    form = find_format(cells)
    assert form is not None
    since = (when - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001 - local times
    assert TimeReader(form, None).read(pl.Series("t", cells)).to_list() == [
        since * 1000 + i * S for i in range(3)
    ]


@given(st.integers(min_value=10**18, max_value=4 * 10**18), st.sampled_from([1, 1000, 10**6, 10**9]))
def test_unix_times_are_read_exactly_in_any_unit(at_ns: int, unit: int) -> None:
    """Whole numbers keep every digit."""
    form = find_format([str(at_ns // unit)])
    assert form is not None
    assert TimeReader(form, None).read(pl.Series("t", [str(at_ns // unit)])).to_list() == [
        at_ns // unit * unit
    ]


CELLS = st.one_of(st.none(), st.integers(0, 100))


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=40),
    st.sampled_from([", ", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_values_come_through_and_missing_ones_stay_missing(
    values: list[tuple[int | None, int | None]],
    delimiter: str,
    end: str,
    bom: bool,  # noqa: FBT001 - Hypothesis gives it
) -> None:
    """Whatever delimiter and line end: known values are equal, a row without any is left out, none becomes 0."""
    lines = (
        ["timestamp", "index", "utilization.gpu [%]", "power.draw [W]"],
        *(
            [
                f"2026/11/30 15:42:{13 + i}.000",
                "0",
                *("[N/A]" if v is None else f"{v} {u}" for v, u in zip(pair, "%W", strict=True)),
            ]
            for i, pair in enumerate(values)
        ),
    )
    text = ("\ufeff" if bom else "") + "".join(delimiter.join(line) + end for line in lines)
    found = attempt(text.encode(), "x.csv")
    known = [pair for pair in values if pair != (None, None)]
    assert (
        found is None
        if not known
        else found is not None and found.select("util_pct", "power_w").rows() == known
    )


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(1, 64))
def test_pieces_of_a_file_are_the_file(lines: list[bytes], size: int) -> None:
    """Cut anywhere, put together again: the same lines, each piece ended by a line end."""
    data = b"".join(line.replace(b"\r", b"").replace(b"\n", b"") + b"\n" for line in lines)
    if data.startswith((b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(data)
        pieces = [piece for piece, _ in chunks(path, size=size)]
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces)


# --- one attack at a time ---


@pytest.mark.parametrize("columns", [20_000, 1_000_000])
def test_a_header_of_a_million_columns(tmp_path: Path, columns: int) -> None:
    """Refused before it costs memory."""
    text = (
        ",".join(["timestamp", "index", "utilization.gpu [%]", *(f"c{i}" for i in range(columns))])
        + "\n"
        + ROW
    )
    path = tmp_path / "wide.csv"
    path.write_text(text)
    with pytest.raises(ImportFormatError, match=r"columns|characters|no importer"):
        read_path(path)
    with pytest.raises(ImportFormatError, match=r"columns|characters"):
        read_path(path, Options(format="csv"))


@pytest.mark.parametrize("value", ["9" * 400, "1e999", "-1", "9223372036854775794", "0x1p1000", "١٢"])
def test_huge_and_strange_numbers_are_no_values(tmp_path: Path, value: str) -> None:
    """Not a crash, not a number of 400 digits, not DCGM's blank: the recording holds nothing absurd."""
    text = HEADER + ROW + ROW.replace("13.000", "14.000").replace("50", value)
    found = read_text(tmp_path, text)
    values = [v for (v,) in rows(found, "gpu", "util_pct")]
    assert values[0] == 50.0
    assert all(v is None or v == -1.0 for v in values[1:])  # a negative one is cleaned on load, with a note


def test_a_gpu_index_beyond_reason_is_dropped(tmp_path: Path) -> None:
    """65,536 is no GPU; the row is counted."""
    found = read_text(tmp_path, HEADER + ROW + ROW.replace(" 0,", " 65536,") + ROW.replace(" 0,", " -1,"))
    assert rows(found, "gpu", "gpu") == [(0,)]
    assert found.account.dropped == {"the GPU's index can't be read": 2}


def test_invalid_utf_8_in_the_middle(tmp_path: Path) -> None:
    """Only the cell is damaged."""
    text = (
        (HEADER + ROW).encode()
        + b"2026/11/30 15:42:14.000, 0, 5\xff\xfe %\n"
        + ROW.replace("13.0", "15.0").encode()
    )
    found = read_text(tmp_path, text)
    assert len(rows(found, "gpu", "util_pct")) == 2
    assert found.account.rows_read == 3


def test_a_stray_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    """Quotes are quotes only where they open and close cells."""
    text = (
        HEADER
        + ROW
        + ROW.replace("50", '5" 0')
        + "".join(ROW.replace("13.000", f"{14 + i}.000") for i in range(20))
    )
    assert read_text(tmp_path, text).tables["gpu"].height >= 21


def test_a_line_without_end(tmp_path: Path) -> None:
    """100 MB of zeros from a few kB of gzip: refused at 64 MiB, in bounded memory."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write((HEADER + ROW * 10).encode())
        for _ in range(100):
            stream.write(b"0" * 1_000_000)
    assert path.stat().st_size < 200_000
    with pytest.raises(ImportFormatError, match="does not end within 64 MiB"):
        read_path(path)


@pytest.mark.parametrize("form", ["prometheus", "generic"])
def test_deep_json(tmp_path: Path, form: str) -> None:
    """A hundred thousand brackets do not break the stack."""
    deep = "[" * 100_000 + "]" * 100_000
    text = '{"status":"success","data":{"resultType":"matrix","result":[' + deep + "]}}"
    with pytest.raises(ImportFormatError):
        read_text(tmp_path, text, "deep.json", format=form)


@pytest.mark.parametrize(
    "points",
    ["[[]]", '[["x", "y"]]', "[[1e400, 1]]", '[[1796053333, "NaN"]]', "[null]", '{"a": 1}', '[[1796053333, "1e999"]]', "[[null, null]]"],
)  # fmt: skip
def test_points_of_prometheus_that_are_none(tmp_path: Path, points: str) -> None:
    """Counted, and the rest is read."""
    series = '{{"metric":{{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"0"}},"values":{}}}'
    good = series.format(f'[[{T_S}, "98"]]')
    text = (
        '{"status":"success","data":{"resultType":"matrix","result":['
        + series.format(points)
        + ","
        + good
        + "]}}"
    )
    assert rows(read_text(tmp_path, text, "q.json"), "gpu", "util_pct") == [(98.0,)]


def test_links_that_the_user_names_are_followed_links_in_folders_are_not(tmp_path: Path) -> None:
    """``latest.csv -> run7.csv`` is what people have; a link in a folder may lead anywhere."""
    (tmp_path / "run7.csv").write_text(HEADER + ROW + ROW.replace("13.0", "14.0"))
    (tmp_path / "latest.csv").symlink_to("run7.csv")
    assert read_path(tmp_path / "latest.csv").tables["gpu"].height == 2
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "x.csv").symlink_to("../run7.csv")
    assert main(["import", str(folder), "-o", str(tmp_path / "run"), "-q"]) == 1


def test_a_link_to_itself_and_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither hangs."""
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("loop.csv", "pipe.csv"):
        assert main(["import", str(tmp_path / name), "-o", str(tmp_path / "run"), "-q"]) == 1
        assert name in capsys.readouterr().err


def test_what_a_file_may_not_do_to_the_manifest(tmp_path: Path) -> None:
    """Names of columns are data: they are stored as text, whatever they hold."""
    evil = '{"x": "\u202e\x00'
    found = read_text(
        tmp_path, f"timestamp,gpu_util,{evil.replace(chr(0), '')}\n{T_S}.5,1,2\n{T_S + 1}.5,1,2\n"
    )
    assert json.loads(json.dumps(found.account.plain()))["bindings"][2]["sure"] == "unrecognised"


def test_numbers_in_cells() -> None:
    """Units are cut off, words are none."""
    assert numbers(["98 %", "1e3", "[N/A]", "-5.5W", "x7"]) == [98.0, 1000.0, -5.5]


def test_every_importer_module_is_one() -> None:
    """Each has a format name of its own, a name in words, sniff and read."""
    found = importers()
    assert len({i.FORMAT for i in found}) == len(IMPORTERS)
    assert [i.FORMAT for i in found if not (i.NAME and i.__doc__)] == []
