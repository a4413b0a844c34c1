"""Telemetry rows on their way into the tables: what each rule does to hand-made batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dipstick
from dipstick.cli import main
from dipstick.errors import EmptyRecordingError, ImportFormatError
from dipstick.importers import chunks, delimited
from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.options import Options
from dipstick.importers.registry import choose
from dipstick.importers.samples import Samples, count_times
from dipstick.importers.sweeps import Sweeps
from dipstick.recording.reader import open_recording
from dipstick.recording.writer import RecordingWriter
from imported import S, T

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.account = Account("x.csv", "nvidia-smi", "host0")
        self.batches: dict[str, list[pl.DataFrame]] = {}
        self.sink = Sink(self.account, lambda table, frame: self.batches.setdefault(table, []).append(frame))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table; times since ``T``."""
        frame = pl.concat(self.batches.get(table, [pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))]))
        return frame.select((pl.col(c) - T if c == "t_ns" else pl.col(c)) for c in columns).rows()


def batch(times_s: list[float | None], **columns: Any) -> pl.DataFrame:
    """A frame of one batch, one GPU unless said otherwise."""
    times = [None if t is None else T + round(t * S) for t in times_s]
    return pl.DataFrame({"gpu": 0, **columns, "t_ns": pl.Series(times, dtype=pl.Int64)})


# --- whole seconds ---


def test_rows_of_one_second_are_spread_over_it_across_batches() -> None:
    """Three rows of second 1, two of them in the next batch: 1, 1.33, 1.67 s."""
    kept = Kept()
    samples = Samples(kept.sink, Options(), whole_seconds=True)
    samples.add(batch([0, 1], util_pct=[1.0, 2.0]))
    samples.add(batch([1, 1, 2], util_pct=[3.0, 4.0, 5.0]))
    samples.finish()
    assert kept.rows("gpu", "t_ns", "util_pct") == [
        (0, 1.0), (S, 2.0), (S + S // 3, 3.0), (S + 2 * S // 3, 4.0), (2 * S, 5.0),
    ]  # fmt: skip


def test_gpus_of_one_second_are_not_spread_against_each_other() -> None:
    """Two GPUs at second 0: both at 0."""
    kept = Kept()
    samples = Samples(kept.sink, Options(), whole_seconds=True)
    samples.add(batch([0, 0, 0, 0], gpu=[0, 1, 0, 1], util_pct=[1.0, 2.0, 3.0, 4.0]))
    samples.finish()
    assert kept.rows("gpu", "gpu", "t_ns") == [(0, 0), (1, 0), (0, S // 2), (1, S // 2)]


def test_processes_of_one_gpu_are_not_spread_against_each_other() -> None:
    """Two processes at second 0: both at 0."""
    kept = Kept()
    samples = Samples(kept.sink, Options(), whole_seconds=True, describes=False)
    samples.add(batch([0, 0], pid=[7, 8], sm_pct=[50.0, 20.0]))
    samples.finish()
    assert kept.rows("gpu_process", "pid", "t_ns", "sm_pct") == [(7, 0, 50.0), (8, 0, 20.0)]
    assert "gpus" not in kept.batches


# --- missing ---


def test_rows_without_time_gpu_or_value_are_dropped_by_reason() -> None:
    """Each is counted; a row with one value stays."""
    kept = Kept()
    samples = Samples(kept.sink, Options())
    frame = batch(
        [0, None, 2, 3, 4],
        gpu=[0, 0, None, 0, 0],
        util_pct=[1.0, 1.0, 1.0, None, None],
        power_w=[5.0, 5.0, 5.0, 6.0, None],
    )
    samples.add(frame)
    samples.finish()
    assert kept.rows("gpu", "t_ns", "util_pct", "power_w") == [(0, 1.0, 5.0), (3 * S, None, 6.0)]
    assert kept.account.dropped == {
        "the time can't be read": 1, "the GPU's index can't be read": 1, "no value in it (N/A)": 1,
    }  # fmt: skip


def test_columns_go_to_their_tables() -> None:
    """A row of utilization and counters is one row in each table; a table without a value gets none."""
    kept = Kept()
    samples = Samples(kept.sink, Options())
    samples.add(batch([0, 1, 2], util_pct=[1.0, 2.0, 3.0], sm_active_pct=[None, 50.0, 60.0]))
    samples.finish()
    assert kept.rows("gpu", "t_ns") == [(0,), (S,), (2 * S,)]
    assert kept.rows("gpu_counters", "t_ns", "sm_active_pct", "window_ns") == [(S, 50.0, S), (2 * S, 60.0, S)]


# --- windows ---


@pytest.mark.parametrize(("every_s", "window"), [(1.0, None), (2.0, S), (15.0, S)])
def test_a_poll_is_a_probe_of_its_last_second_at_most(every_s: float, window: int | None) -> None:
    """A value every 15 s is no mean of 15 s; at one a second the distance stands in."""
    kept = Kept()
    samples = Samples(kept.sink, Options())
    samples.add(batch([i * every_s for i in range(20)], util_pct=[float(i) for i in range(20)]))
    samples.finish()
    assert {w for (w,) in kept.rows("gpu", "window_ns")} == {window}
    assert kept.batches["gpus"][0]["util_window_ns"].to_list() == [None]


def test_a_window_that_the_importer_knows_is_kept() -> None:
    """W&B's old means are of 30 s."""
    kept = Kept()
    samples = Samples(kept.sink, Options())
    samples.add(batch([30, 60], util_pct=[50.0, 60.0], window_ns=[30 * S, 30 * S]))
    samples.finish()
    assert kept.rows("gpu", "window_ns") == [(30 * S,), (30 * S,)]


# --- sweeps ---


def sweep(times_ms: list[int], gpus: int | None = None, *, whole: bool = False) -> list[int]:
    """GPU of each row."""
    frame = pl.DataFrame({"t_ns": [T + t * MS for t in times_ms]})
    return Sweeps(gpus, whole_seconds=whole).number(frame, Kept().sink)["gpu"].to_list()


def test_rows_a_few_milliseconds_apart_are_one_sweep() -> None:
    """Three GPUs; the second sweep lost its last row."""
    full = [t + d for t in range(0, 20_000, 1000) for d in (0, 1, 2)]
    assert sweep([*full, 20_000, 20_001]) == [0, 1, 2] * 20 + [0, 1]


def test_one_row_a_moment_is_one_gpu() -> None:
    """Also if two rows share a second now and then."""
    assert sweep([0, 1000, 2000, 3000]) == [0] * 4
    assert sweep([0, 1000, 1000, 2000, 3000, 4000, 5000], whole=True) == [0] * 7


def test_sweeps_of_different_sizes_are_asked_about() -> None:
    """Two rows, three rows, one row: nothing tells how many GPUs there are."""
    with pytest.raises(ImportFormatError, match=r"--gpus"):
        sweep([0, 1, 1000, 1001, 1002, 2000, 3000, 3001, 3002, 4000, 4001])


def test_the_user_says_how_many() -> None:
    """With whole seconds rows are counted off, across batches."""
    assert sweep([0, 0, 1000, 1000], 2, whole=True) == [0, 1, 0, 1]
    two = Sweeps(2, whole_seconds=True)
    frames = [pl.DataFrame({"t_ns": [T, T, T + S]}), pl.DataFrame({"t_ns": [T + S, T + 2 * S]})]
    assert [two.number(f, Kept().sink)["gpu"].to_list() for f in frames] == [[0, 1, 0], [1, 0]]


def test_counted_times_go_on_across_batches() -> None:
    """Two GPUs every 5 s; three rows came before."""
    assert count_times(4, 3, 5 * S, 2).to_list() == [5 * S, 10 * S, 10 * S, 15 * S]


# --- what a recording of telemetry alone can tell ---


def test_power_without_utilization_is_not_enough_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names what is there, and what to record."""
    path = tmp_path / "power.csv"
    path.write_text("timestamp,gpu,power_w\n" + "".join(f"{T // S + i}.5,0,{100 + i}\n" for i in range(20)))
    assert main(["import", str(path), "-o", str(tmp_path / "run"), "-q"]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert "neither GPU utilization nor phase spans" in err
    assert "(it holds gpu)" in err
    assert "utilization.gpu" in err
    with pytest.raises(EmptyRecordingError):
        dipstick.explain(open_recording(tmp_path / "run"))


def test_the_name_of_a_gpu_survives_a_file_that_does_not_know_it(tmp_path: Path) -> None:
    """Two files describe GPU 0, one without a name: it is still an AMD GPU, whose states are not claimed."""
    with RecordingWriter.create(tmp_path / "r", origin="imported", host="h") as writer:
        writer.append(
            "gpu",
            {
                "host": ["h"] * 30,
                "gpu": [0] * 30,
                "t_ns": [T + i * S for i in range(30)],
                "util_pct": [50.0 + i for i in range(30)],
            },
        )
        writer.append(
            "gpus", [{"host": "h", "gpu": 0, "name": "AMD GPU"}, {"host": "h", "gpu": 0, "name": None}]
        )
    (state,) = dipstick.explain(open_recording(tmp_path / "r")).states
    assert state.seconds["unknown"] > 0
    assert state.seconds["compute"] == 0


# --- bounded memory ---


def test_a_file_is_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at once does not grow with the file: forty pieces make forty batches."""
    pieces = chunks.chunks
    monkeypatch.setattr(delimited, "chunks", lambda path, **_: pieces(path, size=4096))
    path = tmp_path / "long.csv"
    path.write_text(
        "timestamp,gpu,gpu_util\n" + "".join(f"{T // S + i}.5,0,{i % 100}\n" for i in range(9000))
    )
    most = 0
    many = 0

    def put(table: str, frame: pl.DataFrame) -> None:
        nonlocal most, many
        if table == "gpu":
            most, many = max(most, frame.height), many + 1

    account = Account("long.csv", "csv", "host0")
    choose(path).read(path, Options(), Sink(account, put))
    assert (account.rows_read, account.tables["gpu"]) == (9000, 9000)
    assert many >= 40
    assert most <= 300
