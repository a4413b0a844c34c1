"""A file or folder may be called ``run[1]`` or ``what?*``: a name is a name, never a pattern that Polars expands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from dipstick.cli import main
from dipstick.importers.files import import_files
from dipstick.importers.text import read_csv
from dipstick.recording.reader import open_recording

if TYPE_CHECKING:
    from pathlib import Path

SMI = "timestamp, index, utilization.gpu [%]\n" + "".join(
    f"2026/11/30 15:42:{s:02d}.000, 0, {s} %\n" for s in range(20)
)
NAMES = ("run[1]", "run[!a]", "50 % *", "what?", "{a,b}")


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """What was imported into it is read back, row by row."""
    (tmp_path / "smi.csv").write_text(SMI)
    made = import_files([tmp_path / "smi.csv"], tmp_path / name)
    assert open_recording(made.path).table("gpu")["util_pct"].to_list() == list(range(20))


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_that_fits_another_recording_does_not_read_it(name: str, tmp_path: Path) -> None:
    """``run[1]`` is not ``run1``, even where both are there."""
    (tmp_path / "long.csv").write_text(SMI)
    (tmp_path / "short.csv").write_text("".join(SMI.splitlines(keepends=True)[:4]))
    made = [
        import_files([tmp_path / f"{f}.csv"], tmp_path / n).path
        for f, n in (("long", name), ("short", "run1"))
    ]
    assert [open_recording(path).table("gpu").height for path in made] == [20, 3]


def test_the_live_view_reads_such_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``live --once`` shows its last sample."""
    (tmp_path / "smi.csv").write_text(SMI)
    import_files([tmp_path / "smi.csv"], tmp_path / "run[1]")
    assert main(["live", str(tmp_path / "run[1]"), "--once", "--no-color", "--width", "80"]) == 0
    assert "GPU 0  19 %" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_imported_files_may_be_called_so(suffix: str, tmp_path: Path) -> None:
    """A table of a tool, as text and as Parquet."""
    path = tmp_path / f"log[1]*.{suffix}"
    frame = pl.DataFrame(
        {"t_ns": [(1_796_000_000 + i) * 10**9 for i in range(5)], "gpu": [0] * 5, "util_pct": [float(i) for i in range(5)]}
    )  # fmt: skip
    with path.open("wb") as file:
        frame.write_parquet(file) if suffix == "parquet" else frame.write_csv(file)
    made = import_files([path], tmp_path / "run")
    assert open_recording(made.path).table("gpu")["util_pct"].to_list() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_so_may_a_chart_of_wandb(tmp_path: Path) -> None:
    """The browser names a second download ``wandb_export(1).csv``, a run may bring brackets along."""
    chart = '"Relative Time (Process)","run-a - system/gpu.0.gpu"\n"0","10"\n"15","20"\n"30","30"\n'
    (tmp_path / "export[1].csv").write_text(chart)
    made = import_files([tmp_path / "export[1].csv"], tmp_path / "run")
    assert open_recording(made.path).table("gpu")["util_pct"].to_list() == [10.0, 20.0, 30.0]


def test_so_may_a_trace_folder(tmp_path: Path) -> None:
    """Its tables are read with Polars from their paths."""
    (tmp_path / "h200[2]").mkdir()
    path = tmp_path / "h200[2]" / "nvml.csv"
    path.write_text("t_ns,gpu\n1796000000000000000,0\n")
    frame, skipped = read_csv(path, {"t_ns": pl.Int64, "gpu": pl.Int64}, ("t_ns",))
    assert (frame.rows(), skipped) == ([(1_796_000_000_000_000_000, 0)], 0)
