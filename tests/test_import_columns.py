"""What names and cells of telemetry tables mean: one rule a row."""

from __future__ import annotations

import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import Binding
from dipstick.importers.columns import find_columns, unit_of
from dipstick.importers.dcgm_fields import is_blank
from dipstick.importers.headerless import bare_gpu, infer
from dipstick.importers.layout import find_layout
from dipstick.importers.names import named
from dipstick.importers.options import Options
from dipstick.importers.times import find_format
from imported import T_S


@pytest.mark.parametrize(
    ("name", "meaning", "unit", "sure", "gpu"),
    [
        ("utilization.gpu [%]", "util_pct", "%", "certain", None),
        (" Utilization.GPU [%] ", "util_pct", "%", "certain", None),
        ("utilization.memory [%]", "mem_util_pct", "%", "certain", None),
        ("memory.used [MiB]", "mem_used_b", "MiB", "certain", None),
        ("memory.total [MiB]", "mem_total_b", "MiB", "certain", None),
        ("power.draw.instant [W]", "power_w", "W", "certain", None),
        ("clocks.current.sm [MHz]", "sm_mhz", "MHz", "certain", None),
        ("temperature.gpu", "temp_c", "C", "certain", None),
        ("\ufefftimestamp", "time", "", "certain", None),
        ("uuid", "uuid", "", "certain", None),
        ("pci.bus_id", "uuid", "", "certain", None),
        ("GPU use (%)", "util_pct", "%", "certain", None),
        ("gfx", "util_pct", "%", "certain", None),
        ("gpu_util", "util_pct", "", "likely", None),
        ("GPU Utilization (%)", "util_pct", "%", "likely", None),
        ("GPU (%)", "util_pct", "%", "likely", None),
        ("gpu_usage_percent", "util_pct", "%", "likely", None),
        ("vram_used_mb", "mem_used_b", "MiB", "likely", None),
        ("Memory Usage (MB)", "mem_used_b", "MiB", "likely", None),
        ("gpu_memory_gb", "mem_used_b", "GiB", "likely", None),
        ("power_mw", "power_w", "mW", "likely", None),
        ("temp", "temp_c", "", "likely", None),
        ("hostname", "host", "", "likely", None),
        ("timestamp_ms", "time", "ms", "likely", None),
        ("elapsed_s", "elapsed", "s", "likely", None),
        ("gpu_0_util", "util_pct", "", "likely", 0),
        ("GPU 3 Memory Used (MiB)", "mem_used_b", "MiB", "likely", 3),
        ("util_11", "util_pct", "", "likely", 11),
        ("cuda:1 power", "power_w", "", "likely", 1),
        ("GPU0", "", "", "ambiguous", 0),
        ("memory_util", "", "", "ambiguous", None),
        ("memory", "", "", "ambiguous", None),
        ("memory_percent", "", "%", "not used", None),
        ("GPU memory use (%)", "", "%", "not used", None),
        ("pstate", "", "", "not used", None),
        ("fan.speed [%]", "", "%", "not used", None),
        ("memory.free [MiB]", "", "MiB", "not used", None),
        ("power.limit [W]", "", "W", "not used", None),
        ("loss", "", "", "unrecognised", None),
        ("timing_s/reward", "", "", "unrecognised", None),
        ("utilisation du processeur", "", "", "unrecognised", None),
        ("", "", "", "unrecognised", None),
    ],
)
def test_names(name: str, meaning: str, unit: str, sure: str, gpu: int | None) -> None:
    """Meaning, unit, how sure, and the GPU where the name has one."""
    found = named(name)
    assert (found.meaning, found.unit, found.sure, found.gpu) == (meaning, unit, sure, gpu)


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        (["98 %", "4 %"], "%"),
        (["[N/A]", "30994 MiB"], "MiB"),
        (["283.66 W"], "W"),
        (["31C"], "C"),
        (["98"], ""),
        (["5 apples"], ""),
    ],
)
def test_units_of_cells(cells: list[str], unit: str) -> None:
    """Behind the first number that has one."""
    assert unit_of(cells) == unit


@pytest.mark.parametrize(
    ("cells", "kind", "unit"),
    [
        ([f"{T_S}"], "unix", "s"),
        ([f"{T_S}.956"], "unix", "s"),
        ([f"{T_S}000"], "unix", "ms"),
        ([f"{T_S}000000"], "unix", "us"),
        ([f"{T_S}000000000"], "unix", "ns"),
        (["1.796053333e9"], "unix", "s"),
        (["2026/11/30 15:42:13.956"], "local", ""),
        (["2026-11-30T15:42"], "local", ""),
        (["20261130 15:42:13"], "local", ""),
        (["2026-11-30T15:42:13+0100"], "unix", ""),
        (["2026-11-30 15:42:13 UTC"], "unix", ""),
    ],
)
def test_formats_of_times(cells: list[str], kind: str, unit: str) -> None:
    """Numbers by their size, text by its form."""
    found = find_format(cells)
    assert found is not None
    assert (found.kind, found.unit) == (kind, unit)


@pytest.mark.parametrize(
    "cells",
    [[], [""], ["98"], ["H200"], ["2026"], ["15:42:13"], ["yesterday"], ["1e400"], ["1796053333", "x", "y"]],
)
def test_cells_that_are_no_times(cells: list[str]) -> None:
    """A time of day has no date; a small number no epoch."""
    assert find_format(cells) is None


@pytest.mark.parametrize(
    ("days", "pattern"),
    [(["13/01/2026 10:00:00"], "%d/%m/%Y %H:%M:%S"), (["01/13/2026 10:00:00"], "%m/%d/%Y %H:%M:%S"),
     (["01-02-2026 10:00:00", "31-02-2026 10:00:00"], "%d-%m-%Y %H:%M:%S"), (["12/31/26 1:02:03 PM"], "%m/%d/%y %I:%M:%S %p")],
)  # fmt: skip
def test_a_number_above_twelve_tells_days_from_months(days: list[str], pattern: str) -> None:
    """In any of the first rows."""
    found = find_format(days)
    assert found is not None
    assert found.pattern == pattern


# --- columns named after a GPU ---


@pytest.mark.parametrize(
    ("file", "values", "meaning"),
    [
        ("power_log.csv", [145.7, 214.9], "power_w"),
        ("gpu_util.csv", [0.0, 100.0], "util_pct"),
        ("gpu_util.csv", [145.7, 214.9], "power_w|mem_used_b|sm_mhz"),
        ("temps.csv", [31.0, 80.0], "temp_c"),
        ("data.csv", [0.0, 90.0], "util_pct|power_w|mem_used_b"),
        ("power_util.csv", [20.0, 90.0], "util_pct|power_w|mem_used_b|temp_c"),
    ],
)
def test_the_files_name_says_what_bare_columns_are_if_their_values_allow_it(
    file: str, values: list[float], meaning: str
) -> None:
    """One hint is taken; none, two, or one that the values contradict leave the choices."""
    assert bare_gpu(Binding("GPU0", gpu=0), values, f"/x/{file}").meaning == meaning


# --- columns without a name ---


def inferred(*rows: str) -> list[str]:
    """Meanings of the columns of these rows."""
    table = [row.split(",") for row in rows]
    found = [Binding(f"column {i + 1}", sure="unrecognised") for i in range(len(table[0]))]
    return [b.meaning for b in infer(found, [[row[i] for row in table] for i in range(len(table[0]))], "x")]


def test_nounits_noheader() -> None:
    """Time, index, utilization, power, memory used of memory total."""
    rows = [f"{T_S + i // 2},{i % 2},{(i * 37) % 101},{72 + i}.60,73543,81920" for i in range(8)]
    assert inferred(*rows) == ["time", "gpu", "util_pct", "power_w", "mem_used_b", "mem_total_b"]


def test_a_column_that_never_falls_below_fifteen_is_no_utilization() -> None:
    """It may be a temperature: it is left unbound."""
    assert inferred(*(f"{T_S + i},{40 + i}" for i in range(8))) == ["time", ""]


def test_cells_with_units_and_no_header() -> None:
    """One column in each unit; the constant one of two in MiB is the total."""
    rows = [f"2026/11/30 15:42:1{i}.000,{i} %,{500 + i} MiB,8192 MiB,{60 + i}.10 W" for i in range(5)]
    assert inferred(*rows) == ["time", "util_pct", "mem_used_b", "", "power_w"]


def test_two_columns_in_one_unit_are_asked_about() -> None:
    """Utilization of GPU and memory look alike."""
    with pytest.raises(ImportFormatError, match="column 1 and column 2 are both in %"):
        inferred("5 %,20 %", "6 %,21 %")


# --- tables ---


def bound(text: str) -> dict[str, str]:
    """Meanings of the bound columns of a table."""
    layout = find_layout(text.splitlines(), "x")
    assert layout is not None
    return {b.source: b.meaning for b in find_columns(layout, Options(), "x").bindings if b.meaning}


def test_memory_by_its_size() -> None:
    """Bytes, MiB; what may be percent or GiB is left unbound."""
    assert bound("time,memory_used\n1796053333,30994000000\n1796053334,30994000001\n") == {
        "time": "time",
        "memory_used": "mem_used_b",
    }
    with pytest.raises(ImportFormatError, match=r"'memory_used' is ambiguous.*percent, GiB or MiB"):
        bound("time,memory_used\n1796053333,40\n1796053334,41\n")


def test_percentages_above_a_hundred_are_none() -> None:
    """A column called usage with megabytes in it."""
    assert bound("time,usage,power_w\n1796053333,4000,50\n1796053334,4001,51\n") == {
        "time": "time",
        "power_w": "power_w",
    }


def test_a_preamble_of_any_length() -> None:
    """The first line that names columns counts."""
    text = (
        "=== monitor ===\nhost: x, y\n\n" * 20
        + "timestamp,gpu_util\n2026-11-30 15:42:13,5\n2026-11-30 15:42:14,6\n"
    )
    layout = find_layout(text.splitlines(), "x")
    assert layout is not None
    assert (layout.names, layout.skip, layout.sample[0]) == (
        ("timestamp", "gpu_util"),
        61,
        ("2026-11-30 15:42:13", "5"),
    )


@pytest.mark.parametrize(
    ("value", "is_it"),
    [
        (9.223372036854776e18, True),
        (140_737_488_355_328.0, True),
        (2_147_483_632.0, True),
        (2_147_483_636.0, False),
        (98.0, False),
        (1e12, False),
    ],
)
def test_dcgms_numbers_for_no_value(value: float, is_it: bool) -> None:  # noqa: FBT001 - a column of the table
    """64-bit, 32-bit and floating-point blanks; large readings are none."""
    assert is_blank(value) is is_it
