"""dmon, pmon, plain tables, DCGM as text and as Prometheus answers, W&B chart exports: to the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import parse_wish
from dipstick.importers.prometheus import scrapes
from dipstick.importers.system_keys import SystemKey, system_key
from imported import T_S, S, bound, read_text, rows, texts

if TYPE_CHECKING:
    from pathlib import Path

import numpy as np

# --- dmon and pmon ---

DATED = """#Date       Time        gpu    pwr  gtemp     sm    mem   pclk     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %    MHz     MB
 20261130   15:42:13      0    560     60     99     81   1980  30994
 20261130   15:42:13      1     78     39      -      -    345      0
"""


def test_dmon_with_date_and_time(tmp_path: Path) -> None:
    """By header; ``-`` is missing; sm is utilization.gpu, mem utilization.memory."""
    found = read_text(tmp_path, DATED, "dmon.log")
    assert (found.account.format, found.account.clock) == ("dmon", "local")
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct", "mem_util_pct", "power_w", "sm_mhz", "temp_c", "mem_used_b") == [
        (0, 0, 99.0, 81.0, 560.0, 1980.0, 60.0, 30_994 * 2**20),
        (1, 0, None, None, 78.0, 345.0, 39.0, 0),
    ]  # fmt: skip


def test_dmon_header_comes_again_with_other_columns(tmp_path: Path) -> None:
    """A new driver adds a column: rows are read by the header above them."""
    more = "#Date Time gpu sm jpg pwr\n#YYYYMMDD HH:MM:SS Idx % % W\n 20261130 15:42:14 0 7 0 90\n"
    found = read_text(tmp_path, DATED + "\n" + more, "dmon.log")
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct", "power_w")[2:] == [(0, S, 7.0, 90.0)]


def test_dmon_as_csv(tmp_path: Path) -> None:
    """``--format csv``: commas, and ``#`` in the header cells."""
    text = "#Date, Time, gpu, sm, pwr\n#YYYYMMDD, HH:MM:SS, Idx, %, W\n20261130, 15:42:13, 0, 99, 560\n"
    found = read_text(tmp_path, text, "dmon.csv")
    assert rows(found, "gpu", "t_ns", "util_pct", "power_w") == [(0, 99.0, 560.0)]


def test_dmon_without_time_counts_sweeps(tmp_path: Path) -> None:
    """A new sweep begins where the index does not grow."""
    text = "# gpu sm\n# Idx %\n 0 1\n 1 2\n 0 3\n 1 4\n# gpu sm\n# Idx %\n 0 5\n"
    found = read_text(tmp_path, text, "dmon.log", interval_ns=S)
    assert found.tables["gpu"].select("gpu", "t_ns", "util_pct").rows() == [
        (0, 0, 1.0), (1, 0, 2.0), (0, S, 3.0), (1, S, 4.0), (0, 2 * S, 5.0),
    ]  # fmt: skip


def test_dmon_gpm_columns_are_counters(tmp_path: Path) -> None:
    """The first cycle is always ``-``: a delta needs two samples. Each stands for the time since the one before."""
    text = (
        "#Date Time gpu sm gract smutil pcierx\n#YYYYMMDD HH:MM:SS Idx % GPM:% GPM:% GPM:MiB/s\n"
        + "".join(
            f" 20261130 15:42:{13 + i} 0 50 {'-' if i == 0 else 40 + i} {'-' if i == 0 else 30} {'-' if i == 0 else 5}\n"
            for i in range(4)
        )
    )
    found = read_text(tmp_path, text, "dmon.log")
    counters = ("t_ns", "window_ns", "gr_active_pct", "sm_active_pct", "pcie_rx_mib_s")
    assert rows(found, "gpu_counters", *counters) == [(i * S, S, 40.0 + i, 30.0, 5.0) for i in (1, 2, 3)]
    assert found.tables["gpu"].height == 4


def test_rows_without_a_dmon_header_are_refused(tmp_path: Path) -> None:
    """Which column is what differs from driver to driver."""
    with pytest.raises(ImportFormatError, match="it has no header"):
        read_text(
            tmp_path, "    0     99     81\n    0     98     80\n", "dmon.log", format="dmon", interval_ns=S
        )


def test_pmon_rows_are_processes(tmp_path: Path) -> None:
    """A GPU without a process has a row of dashes, which is none; the command may hold blanks."""
    text = """#Date       Time        gpu   pid   type   sm   mem   fb   command
#YYYYMMDD   HH:MM:SS    Idx   #     C/G    %    %     MB   name
 20261130   15:42:13      0   4711  C      97   40    100  python train.py --x
 20261130   15:42:13      0   4712  C       -    -     50  VLLM::EngineCore
 20261130   15:42:13      1   -     -       -    -      -  -
"""
    found = read_text(tmp_path, text, "pmon.log")
    assert rows(found, "gpu_process", "gpu", "pid", "t_ns", "sm_pct", "mem_pct", "mem_used_b") == [
        (0, 4711, 0, 97.0, 40.0, 100 * 2**20), (0, 4712, 0, None, None, 50 * 2**20),
    ]  # fmt: skip
    assert "gpu" not in found.tables


# --- plain tables ---

TABLE = """Mon Nov 30 15:42:{second} 2026
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104                Driver Version: 535.104      CUDA Version: 12.2     |
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|=========================================+======================+======================|
|   0  NVIDIA RTX A6000               Off | 00000000:01:00.0 Off |                  Off |
| 30%   31C    P8              31W / 260W |      1MiB / 49152MiB |     {util}      Default |
|                                         |                      |                  N/A |
|   1  NVIDIA RTX A6000               Off | 00000000:02:00.0 Off |                  Off |
|ERR!  ERR!   ERR!           ERR! / ERR!  |      5MiB / 49152MiB |     ERR!     Default |
+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|    0   N/A  N/A      4711      C   python                                      900MiB |
+---------------------------------------------------------------------------------------+
"""


def test_plain_tables(tmp_path: Path) -> None:
    """Two lines a GPU; ERR! is missing; two tables in one second lie half a second apart."""
    text = (
        TABLE.format(second="13", util=" 7%")
        + TABLE.format(second="13", util="99%")
        + TABLE.format(second="14", util="N/A")
    )
    found = read_text(tmp_path, text, "smi.log")
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct", "power_w", "temp_c", "mem_used_b") == [
        (0, 0, 7.0, 31.0, 31.0, 2**20), (1, 0, None, None, None, 5 * 2**20),
        (0, S // 2, 99.0, 31.0, 31.0, 2**20), (1, S // 2, None, None, None, 5 * 2**20),
        (0, S, None, 31.0, 31.0, 2**20), (1, S, None, None, None, 5 * 2**20),
    ]  # fmt: skip
    assert rows(found, "gpu_process", "pid", "mem_used_b") == [(4711, 900 * 2**20)] * 3
    assert found.tables["gpus"].select("gpu", "name").rows() == [
        (0, "NVIDIA RTX A6000"),
        (1, "NVIDIA RTX A6000"),
    ]


def test_tables_without_a_time_above_are_refused(tmp_path: Path) -> None:
    """The way to record them better is said."""
    text = TABLE.format(second="13", util=" 7%").split("\n", 1)[1]
    with pytest.raises(ImportFormatError, match=r"when they were taken.*\n.*--query-gpu"):
        read_text(tmp_path, text, "smi.log")


# --- DCGM ---


def matrix(*series: tuple[dict[str, str], list[Any]]) -> str:
    """A query_range answer."""
    result = [
        {"metric": labels, "values": [[T_S + 15 * i, str(v)] for i, v in enumerate(values)]}
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


LABELS = {"gpu": "0", "UUID": "GPU-a", "modelName": "NVIDIA H100", "Hostname": "node7"}


def test_a_range_query(tmp_path: Path) -> None:
    """Names, labels, values as strings; NaN and DCGM's number for no value are missing; metrics of a moment are one row."""
    text = matrix(
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", **LABELS}, [98, "NaN", 5]),
        ({"__name__": "DCGM_FI_DEV_POWER_USAGE", **LABELS}, [560.5, 200, 9_223_372_036_854_775_794]),
        ({"__name__": "DCGM_FI_DEV_FB_USED", **LABELS}, [1, 2, 3]),
        ({"__name__": "DCGM_FI_DEV_XID_ERRORS", **LABELS}, [0, 0, 0]),
    )
    found = read_text(tmp_path, text, "q.json")
    assert rows(found, "gpu", "host", "gpu", "t_ns", "util_pct", "power_w", "mem_used_b") == [
        ("node7", 0, 0, 98.0, 560.5, 2**20), ("node7", 0, 15 * S, None, 200.0, 2 * 2**20), ("node7", 0, 30 * S, 5.0, None, 3 * 2**20),
    ]  # fmt: skip
    assert found.account.dropped == {
        "metric DCGM_FI_DEV_XID_ERRORS: not used": 3, "no number, or DCGM's number for no value": 2,
    }  # fmt: skip
    assert found.tables["gpus"].select("host", "name", "uuid").rows() == [("node7", "NVIDIA H100", "GPU-a")]


@pytest.mark.parametrize(
    ("name", "values", "percent"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", [0.5, 0.9], [50.0, 90.0]),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", [0.5, 0.9], [50.0, 90.0]),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", [50, 90], [50.0, 90.0]),
    ],
)
def test_ratio_or_percent_is_decided_from_the_values(
    tmp_path: Path, name: str, values: list[float], percent: list[float]
) -> None:
    """Fields are being renamed, and old and new names are both about."""
    found = read_text(tmp_path, matrix(({"__name__": name, **LABELS}, values)), "q.json")
    assert rows(found, "gpu_counters", "sm_active_pct") == [(pytest.approx(p),) for p in percent]


def test_a_series_without_a_name_is_asked_about(tmp_path: Path) -> None:
    """PromQL functions take it away; --bind gives it back."""
    text = matrix((LABELS, [98, 5]))
    with pytest.raises(ImportFormatError, match=r"took the metric's name away.*\n.*value=util_pct"):
        read_text(tmp_path, text, "q.json")
    found = read_text(tmp_path, text, "q.json", wishes=(parse_wish("value=util_pct"),))
    assert rows(found, "gpu", "util_pct") == [(98.0,), (5.0,)]


def test_mig_instances_are_left_out(tmp_path: Path) -> None:
    """What their utilization means is not understood; that is said, with the number of points."""
    text = matrix(({"__name__": "DCGM_FI_DEV_GPU_UTIL", **LABELS}, [1, 2]),
                  ({"__name__": "DCGM_FI_DEV_GPU_UTIL", **LABELS, "GPU_I_ID": "3"}, [5, 6]))  # fmt: skip
    found = read_text(tmp_path, text, "q.json")
    assert found.account.dropped == {"MIG instance: what its utilization means is not known": 2}


def test_an_instant_query_is_one_row(tmp_path: Path) -> None:
    """``vector`` has one value a series."""
    result = [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **LABELS}, "value": [T_S, "98"]}]
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})
    assert rows(read_text(tmp_path, text, "q.json"), "gpu", "t_ns", "util_pct") == [(0, 98.0)]


def test_a_cut_answer_keeps_whole_series(tmp_path: Path) -> None:
    """The series that is cut is lost, the one before it stays."""
    text = matrix(
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", **LABELS}, [1, 2]),
        ({"__name__": "DCGM_FI_DEV_POWER_USAGE", **LABELS}, [1, 2]),
    )
    assert rows(read_text(tmp_path, text[:-60], "q.json"), "gpu", "util_pct") == [(1.0,), (2.0,)]


def test_values_held_between_scrapes_are_thinned() -> None:
    """Every value stands twice: each second point is a scrape. Constant stretches keep their rhythm."""
    values = np.repeat([1.0, 5, 5, 2, 9, 4, 7, 3, 8], 2)
    keep, held = scrapes(np.arange(len(values)) * 15 * S, values)
    assert (held, keep.tolist()) == (2, [True, False] * 9)
    keep, held = scrapes(np.arange(5) * S, np.zeros(5))
    assert (held, keep.tolist()) == (1, [True] * 5)


EXPORTER = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"}} {a}
DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"}} {b}
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0"}} 0.5
"""


def test_the_exporters_page_in_a_loop(tmp_path: Path) -> None:
    """A line of ``date`` before each scrape gives its time; without one, the distance is asked for."""
    pages = [EXPORTER.format(a=98, b=1), EXPORTER.format(a=4, b=2)]
    dated = "".join(f"Mon Nov 30 15:42:1{3 + i} UTC 2026\n{page}" for i, page in enumerate(pages))
    found = read_text(tmp_path, dated, "dcgm.txt")
    expected = [(0, 0, 98.0), (1, 0, 1.0), (0, S, 4.0), (1, S, 2.0)]
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct") == expected
    assert rows(found, "gpu_counters", "gr_active_pct") == [(50.0,), (50.0,)]
    with pytest.raises(ImportFormatError, match="have no time"):
        read_text(tmp_path, "".join(pages), "bare.txt")
    found = read_text(tmp_path, "".join(pages), "bare.txt", interval_ns=S)
    assert found.tables["gpu"].select("gpu", "t_ns", "util_pct").rows() == expected


def test_dcgmi_dmon(tmp_path: Path) -> None:
    """Short names, N/A, a header again and again, no time."""
    head = "#Entity   GPUTL  GRACT  SMACT\nID\n"
    text = (
        head
        + "GPU 0     98     0.910  N/A\nGPU 1     2      0.01   0.0\n"
        + head
        + "GPU 0     4      0.020  0.01\n"
    )
    found = read_text(tmp_path, text, "dcgmi.txt", interval_ns=S)
    assert found.tables["gpu"].select("gpu", "t_ns", "util_pct").rows() == [
        (0, 0, 98.0),
        (1, 0, 2.0),
        (0, S, 4.0),
    ]
    assert found.tables["gpu_counters"]["sm_active_pct"].to_list() == [None, 0.0, 1.0]
    assert bound(found)["GRACT"][1] == "ratio"


# --- W&B charts ---


def chart(*lines: str) -> str:
    """Every cell quoted, as the web page does."""
    return "".join(",".join(f'"{cell}"' for cell in line.split("|")) + "\n" for line in lines)


def test_a_chart_of_gpu_metrics(tmp_path: Path) -> None:
    """Seconds since the run's start; run names hold anything; an empty cell is no point."""
    run = "17/04 a: b - c_0"
    text = chart(
        f"Relative Time (Process)|{run} - system/gpu.0.gpu|{run} - system/gpu.0.gpu__MIN|{run} - system/gpu.0.gpu__MAX|{run} - system/gpu.1.powerWatts",
        "15.0|98|98|98|", "30.0|4|4|4|70.5",
    )  # fmt: skip
    found = read_text(tmp_path, text, "wandb_export.csv")
    assert found.account.clock == "relative"
    assert found.tables["gpu"].select("gpu", "t_ns", "util_pct", "power_w").rows() == [
        (0, 15 * S, 98.0, None), (0, 30 * S, 4.0, None), (1, 30 * S, None, 70.5),
    ]  # fmt: skip
    assert texts(found) == ""


def test_points_that_are_means_of_buckets_are_said_to_be(tmp_path: Path) -> None:
    """MIN and MAX differ: the page thinned them."""
    text = chart(
        "Wall Time|r - system/gpu.0.gpu|r - system/gpu.0.gpu__MIN|r - system/gpu.0.gpu__MAX",
        f"{T_S}|50|0|100",
        f"{T_S + 15}|7|7|7",
    )
    found = read_text(tmp_path, text, "e.csv")
    assert rows(found, "gpu", "t_ns", "util_pct") == [(0, 50.0), (15 * S, 7.0)]
    assert "1 points are means of several samples" in texts(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (chart("Relative Time (Process)|a - system/gpu.0.gpu|b - system/gpu.0.gpu", "1|2|3"), r"shows 2 runs.*\n.*--run NAME, one of a, b"),
        (chart("Step|a - system/gpu.0.gpu", "1|2"), r"stand over 'Step', which is no time.*\n.*Relative Time"),
        (chart("Name|State|Notes|User", "a|finished||x"), r"the table of runs.*\n.*export that as CSV"),
    ],
)  # fmt: skip
def test_exports_that_can_not_be_read_say_how_to_export(tmp_path: Path, text: str, message: str) -> None:
    """Several runs, steps instead of time, the table of runs."""
    with pytest.raises(ImportFormatError, match=message):
        read_text(tmp_path, text, "e.csv")


def test_one_run_of_several(tmp_path: Path) -> None:
    """--run chooses; grouped runs are called by their group."""
    text = chart("Relative Time (Process)|Group: a - train/loss|b - train/loss", "1|2|3", "2|4|5")
    found = read_text(tmp_path, text, "e.csv", run="a")
    assert found.tables["scalars"].select("t_ns", "name", "value").rows() == [
        (S, "train/loss", 2.0),
        (2 * S, "train/loss", 4.0),
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("gpu.3.gpu", SystemKey(3, "util_pct", "%")),
        ("system.gpu.3.memory", SystemKey(3, "mem_util_pct", "%")),
        ("system/gpu.12.memoryAllocatedBytes", SystemKey(12, "mem_used_b", "B")),
        ("gpu.0.gpu/l:node1", SystemKey(0, "util_pct", "%", "node1")),
        ("system.gpu.process.0.gpu", SystemKey(None)),
        ("gpu.0.memoryAllocated", SystemKey(0)),
        ("system.cpu", SystemKey(None)),
        ("train/loss", None),
        ("gpu.0.newMetric", None),
    ],
)
def test_names_of_system_metrics(key: str, expected: SystemKey | None) -> None:
    """``memory`` is utilization.memory; what a process's key repeats is of the device, and not used."""
    assert system_key(key) == expected
