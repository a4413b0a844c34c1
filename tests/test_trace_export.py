"""Imported kernel traces, written for trace viewers: what ui.perfetto.dev shows of them is what was imported."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dipstick.cli import main
from dipstick.importers.files import import_files
from dipstick.importers.options import Options
from kernel_traces import GEMM, NCCL, export, kernel, note, trace

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
PERFETTO = pytest.mark.skipif(
    not find_spec("perfetto"), reason="needs perfetto: pip install 'dipstick[perfetto]'"
)


def kineto_run(folder: Path) -> str:
    """Two ranks, two steps of 100 ms: forward, backward with a collective that rank 1 joins 20 ms late."""
    files = []
    for rank in (0, 1):
        events = []
        for step in (0, 1):
            at, begin = 100 * step, 50 + 20 * rank
            events += [note(at, 99, f"ProfilerStep#{step}"), note(at, 40, "forward"), note(at + 40, 50, "backward"),
                       kernel(at, begin, device=rank), kernel(at + begin, 90 - begin, NCCL, device=rank)]  # fmt: skip
        files.append(trace(folder / f"{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2}))
    import_files(files, folder / "kineto", created_unix_ns=1)
    return str(folder / "kineto")


def nsight_run(folder: Path) -> str:
    """One process with a step, a forward, work and a copy."""
    path = export(
        folder / "a.sqlite", StringIds=[(1, GEMM)], TARGET_INFO_SESSION_START_TIME=[(1_700_000_000_000_000_000, "", "")],
        CUPTI_ACTIVITY_KIND_KERNEL=[(0, 40 * MS, 0, 70 << 24, 1)], CUPTI_ACTIVITY_KIND_MEMCPY=[(50 * MS, 60 * MS, 0, 1, 64)],
        NVTX_EVENTS=[(0, 100 * MS, 59, "step 1", None, 70 << 24 | 1), (0, 50 * MS, 59, "forward", None, 70 << 24 | 1)],
    )  # fmt: skip
    import_files([path], folder / "nsight", Options(format="nsight"), created_unix_ns=1)
    return str(folder / "nsight")


def chrome(run: str, path: Path) -> list[dict[str, Any]]:
    """The events of the exported Chrome JSON."""
    assert main(["export", run, "-o", str(path), "-q"]) == 0
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def lengths(events: list[dict[str, Any]], name: str) -> list[float]:
    """Lengths (ms) of slices of a name, shortest first."""
    return sorted(round(e["dur"] / 1000, 3) for e in events if e["ph"] == "X" and e["name"] == name)


def test_ranges_are_slices_as_long_as_they_were(tmp_path: Path) -> None:
    """Two ranks, two steps: four forwards of 40 ms among the phases and four among the spans; ditto backward of 50."""
    events = chrome(kineto_run(tmp_path), tmp_path / "x.json.gz")
    assert {*lengths(events, "forward")} == {40.0}
    assert {*lengths(events, "backward")} == {50.0}
    assert len(lengths(events, "forward")) % 4 == 0


def test_what_the_gpu_did_is_there(tmp_path: Path) -> None:
    """States of each GPU, with the waiting that both ranks' traces tell: 2 x 20 ms on rank 0's GPU."""
    events = chrome(kineto_run(tmp_path), tmp_path / "x.json.gz")
    spinning = [e for e in events if e["ph"] == "X" and "spin" in json.dumps(e).lower()]
    assert sum(e["dur"] for e in spinning) / 1000 == pytest.approx(40, abs=2)


def test_every_slice_lies_in_the_recording(tmp_path: Path) -> None:
    """No negative lengths, nothing before the start or after the end."""
    for run in (kineto_run(tmp_path), nsight_run(tmp_path)):
        slices = [e for e in chrome(run, tmp_path / f"{run[-3:]}.json.gz") if e["ph"] == "X"]
        begin = min(e["ts"] for e in slices)
        assert slices
        assert all(e["dur"] >= 0 and e["ts"] + e["dur"] <= begin + 201_000 for e in slices)


def test_an_nsight_export_too(tmp_path: Path) -> None:
    """Its NVTX ranges are slices."""
    events = chrome(nsight_run(tmp_path), tmp_path / "x.json.gz")
    assert {*lengths(events, "forward")} == {50.0}


@PERFETTO
@pytest.mark.parametrize("make", [kineto_run, nsight_run])
def test_perfettos_own_format(tmp_path: Path, make: Any) -> None:
    """A protobuf that the official classes parse, with as many begins as ends and our names in it."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # noqa: PLC0415 - an extra

    assert main(["export", make(tmp_path), "-o", str(tmp_path / "x.pftrace"), "-q"]) == 0
    content = (tmp_path / "x.pftrace").read_bytes()
    found = Trace.FromString(content)
    kinds = [p.track_event.type for p in found.packet if p.HasField("track_event")]
    assert kinds.count(TrackEvent.TYPE_SLICE_BEGIN) == kinds.count(TrackEvent.TYPE_SLICE_END) > 0
    assert b"forward" in content


def test_names_of_hosts_are_replaced_and_names_of_ranges_escaped(tmp_path: Path) -> None:
    """A trace is passed on: its host is not named; a hostile range stays one JSON string."""
    name = '<b onload=x>"\\u2028'  # no slash: paths are replaced
    events = [note(0, 9, "ProfilerStep#0"), note(1, 5, name), kernel(0, 9)]
    path = trace(tmp_path / "secret-box_1.2.pt.trace.json", events, distributedInfo={"rank": 0})
    import_files([path], tmp_path / "run", created_unix_ns=1)
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "x.json.gz"), "-q"]) == 0
    text = gzip.decompress((tmp_path / "x.json.gz").read_bytes()).decode()
    assert "secret-box" not in text
    assert (
        main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "y.json.gz"), "-q", "--no-redact"]) == 0
    )
    named = json.loads(gzip.decompress((tmp_path / "y.json.gz").read_bytes()))["traceEvents"]
    assert any("onload" in json.dumps(e) for e in named)


def test_kernels_of_collectives_as_a_table(tmp_path: Path) -> None:
    """One row a kernel, with its source, for tools of one's own."""
    path = tmp_path / "t.parquet"
    assert main(["export", kineto_run(tmp_path), "-o", str(path), "--table", "collectives", "-q"]) == 0
    rows = pl.read_parquet(path)
    assert rows.height == 4
    assert {*rows["source"].cast(pl.String)} == {"kernel"}
    assert sorted(rows["device_ms"].round(3)) == [20.0, 20.0, 40.0, 40.0]


def test_an_exported_trace_is_not_taken_for_the_profilers(tmp_path: Path) -> None:
    """Our own Chrome JSON holds no kernels: importing it again is refused, not read as an empty run."""
    run = kineto_run(tmp_path)
    chrome(run, tmp_path / "x.json.gz")
    assert main(["import", str(tmp_path / "x.json.gz"), "-o", str(tmp_path / "again"), "-q"]) == 1
    assert not (tmp_path / "again").exists()


@PERFETTO
def test_the_real_pair_exports(traces: Path, tmp_path: Path) -> None:
    """Both formats, of both real ranks."""
    files = [traces.parent / "real-files" / f"kineto-rank{rank}.json.gz" for rank in (0, 1)]
    if not all(file.is_file() for file in files):
        pytest.skip(f"needs the real files in {files[0].parent}")
    import_files(files, tmp_path / "run", created_unix_ns=1)
    run = str(tmp_path / "run")
    assert main(["export", run, "-o", str(tmp_path / "x.pftrace"), "-q"]) == 0
    assert (tmp_path / "x.pftrace").stat().st_size > 10_000
    steps = [
        e for e in chrome(run, tmp_path / "x.json.gz") if e["ph"] == "X" and e["name"].startswith("step")
    ]
    assert len(steps) >= 4
