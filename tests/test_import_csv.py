"""nvidia-smi's CSV and tables that people write: every shape to the same rows, ambiguity refused, missing kept missing."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers.binding import parse_wish
from dipstick.importers.options import parse_zone
from imported import T_S, S, T, bound, read_text, rows, texts

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
BODY = "2026/11/30 15:42:13.500, 0, 98 %, 30994 MiB, 283.66 W\n2026/11/30 15:42:14.500, 0, 4 %, 30994 MiB, 120.00 W\n"
EXPECTED = [(0, S // 2, 98.0, 30_994 * 2**20, 283.66), (0, S + S // 2, 4.0, 30_994 * 2**20, 120.0)]
COLUMNS = ("gpu", "t_ns", "util_pct", "mem_used_b", "power_w")


# --- one table, many shapes ---


@pytest.mark.parametrize(
    "text",
    [
        HEADER + BODY,
        (HEADER + BODY).replace("\n", "\r\n"),
        "\ufeff" + HEADER + BODY,
        HEADER + BODY.replace(" %", "").replace(" MiB", "").replace(" W", ""),
        HEADER + BODY.replace("\n", "\n" + HEADER),
        "Überwachung läuft …\n=== start ===\n\n" + HEADER + BODY,
        HEADER + "\n\n" + BODY + "\n\n",
        (HEADER + BODY).replace(", ", ";"),
        (HEADER + BODY).replace(", ", "\t"),
        HEADER.upper() + BODY,
        (HEADER + BODY).replace(", ", '","').replace("\n", '"\n"').join(['"', ""])[:-1],
        HEADER + BODY.rstrip("\n"),
        (HEADER + BODY).encode("utf-16"),
        gzip.compress((HEADER + BODY).encode()),
        HEADER.replace("\n", ",\n") + BODY.replace("\n", ",\n"),
    ],
    ids=["plain", "crlf", "bom", "nounits", "repeated-headers", "preamble", "blank-lines", "semicolons", "tabs", "upper-case",
         "quoted", "no-last-line-end", "utf-16", "gzip", "closing-delimiter"],
)  # fmt: skip
def test_every_shape_of_the_query_gives_the_same_rows(tmp_path: Path, text: str | bytes) -> None:
    """Units, delimiters, line ends and encodings change nothing."""
    found = read_text(tmp_path, text)
    assert rows(found, "gpu", *COLUMNS) == EXPECTED
    assert (found.account.rows_read, found.account.dropped, found.account.clock) == (2, {}, "local")


def test_latin_1_text_does_not_stop_the_reading(tmp_path: Path) -> None:
    """``°C`` in Latin-1 is no UTF-8."""
    text = "timestamp,gpu_util,temperature [°C]\n2026-11-30 15:42:13,50,60\n2026-11-30 15:42:14,51,61\n"
    found = read_text(tmp_path, text.encode("latin-1"))
    assert rows(found, "gpu", "t_ns", "util_pct", "temp_c") == [(0, 50.0, 60.0), (S, 51.0, 61.0)]


@pytest.mark.parametrize(
    ("first", "second", "clock"),
    [
        ("2026-11-30T15:42:13Z", "2026-11-30T15:42:14Z", "unix"),
        ("2026-11-30T16:42:13+01:00", "2026-11-30T16:42:14+01:00", "unix"),
        ("2026-11-30 15:42:13.000", "2026-11-30 15:42:14.000", "local"),
        ("30/11/2026 15:42:13", "30/11/2026 15:42:14", "local"),
        ("11/30/2026 03:42:13 PM", "11/30/2026 03:42:14 PM", "local"),
        ("30.11.2026 15:42:13", "30.11.2026 15:42:14", "local"),
        (f"{T_S}", f"{T_S + 1}", "unix"),
        (f"{T_S}.0", f"{T_S + 1}.0", "unix"),
        (f"{T_S * 1000}", f"{T_S * 1000 + 1000}", "unix"),
        (f"{T}", f"{T + S}", "unix"),
        ("Mon Nov 30 15:42:13 2026", "Mon Nov 30 15:42:14 2026", "local"),
        ("Mon Nov 30 15:42:13 UTC 2026", "Mon Nov 30 15:42:14 UTC 2026", "local"),
        ("2026-11-30 15:42:13,000", "2026-11-30 15:42:14,000", "local"),
    ],
)
def test_times(tmp_path: Path, first: str, second: str, clock: str) -> None:
    """ISO, epoch in any unit, day first, month first, as ``date`` prints it."""
    found = read_text(tmp_path, f"time;gpu_util\n{first};1\n{second};2\n")
    assert (rows(found, "gpu", "t_ns"), found.account.clock) == ([(0,), (S,)], clock)


def test_nanoseconds_are_kept_exactly(tmp_path: Path) -> None:
    """A float would round 1.8e18 to 256 ns."""
    found = read_text(tmp_path, f"timestamp,gpu_util\n{T + 123},1\n{T + 457},2\n")
    assert rows(found, "gpu", "t_ns") == [(123,), (457,)]


def test_days_and_months_that_can_not_be_told_apart_are_asked_for(tmp_path: Path) -> None:
    """1/2/2026 may be January or February; both formats are offered, and one is taken when given."""
    text = "time,gpu_util\n01/02/2026 10:00:00,1\n01/02/2026 10:00:01,2\n"
    with pytest.raises(ImportFormatError, match=r"day/month or month/day.*\n.*--time-format '%d/%m/%Y"):
        read_text(tmp_path, text)
    found = read_text(tmp_path, text, time_format="%d/%m/%Y %H:%M:%S")
    assert found.account.first_ns == 1_769_940_000 * S


def test_a_date_and_a_time_column_are_one_time(tmp_path: Path) -> None:
    """In a table of blanks a stamp with a blank in it is two columns."""
    found = read_text(
        tmp_path,
        "date       time         gpu  util\n2026-11-30 15:42:13.5   0   97\n2026-11-30 15:42:14.5   0    3\n",
    )
    assert rows(found, "gpu", "gpu", "t_ns", "util_pct") == [(0, S // 2, 97.0), (0, S + S // 2, 3.0)]


def test_seconds_since_the_start(tmp_path: Path) -> None:
    """A column that says so is a relative clock."""
    found = read_text(tmp_path, "elapsed_s,gpu_util\n0.0,1\n0.5,2\n")
    assert (rows(found, "gpu", "t_ns"), found.account.clock) == ([(-T,), (S // 2 - T,)], "relative")


# --- which GPU ---


def test_long_and_wide_tables_are_the_same(tmp_path: Path) -> None:
    """One row a GPU, or one column a GPU."""
    long = read_text(tmp_path, f"timestamp,gpu,util\n{T_S}.5,0,10\n{T_S}.5,1,20\n", "long.csv")
    wide = read_text(tmp_path, f"timestamp,gpu0_util,gpu1_util\n{T_S}.5,10,20\n", "wide.csv")
    assert rows(long, "gpu", "gpu", "t_ns", "util_pct") == rows(wide, "gpu", "gpu", "t_ns", "util_pct")
    assert rows(wide, "gpu", "gpu", "util_pct") == [(0, 10.0), (1, 20.0)]


def test_rows_of_a_sweep_without_index_are_numbered_in_order(tmp_path: Path) -> None:
    """Two rows within two milliseconds, again and again: two GPUs; it is said to be likely."""
    sweep = "2026/11/30 15:42:{s}.100, {a} %\n2026/11/30 15:42:{s}.102, {b} %\n"
    text = "timestamp, utilization.gpu [%]\n" + "".join(
        sweep.format(s=20 + i, a=i, b=90 + i) for i in range(5)
    )
    found = read_text(tmp_path, text)
    assert [row[1:] for row in rows(found, "gpu", "t_ns", "gpu", "util_pct")][:4] == [
        (0, 0.0),
        (1, 90.0),
        (0, 1.0),
        (1, 91.0),
    ]
    assert bound(found)["(order of rows)"] == ("gpu", "", "likely")


def test_whole_seconds_without_index_may_be_gpus_or_fast_polls(tmp_path: Path) -> None:
    """Two rows a second: asked, not guessed; ``--gpus`` answers."""
    text = "timestamp,gpu_util\n" + "".join(
        f"2026-11-30 15:42:{13 + i},{v}\n" for i in range(5) for v in (10, 20)
    )
    with pytest.raises(ImportFormatError, match=r"several GPUs, or one.*\n.*--gpus 2 or --gpus 1"):
        read_text(tmp_path, text)
    assert rows(read_text(tmp_path, text, gpus=2), "gpu", "gpu", "t_ns", "util_pct")[:2] == [
        (0, 0, 10.0),
        (1, 0, 20.0),
    ]
    assert rows(read_text(tmp_path, text, gpus=1), "gpu", "gpu", "t_ns", "util_pct")[:2] == [
        (0, 0, 10.0),
        (0, S // 2, 20.0),
    ]


def test_a_column_called_gpu_may_be_the_utilization(tmp_path: Path) -> None:
    """Its values are no indices."""
    found = read_text(
        tmp_path, "timestamp,gpu\n" + "".join(f"2026-11-30 15:42:{13 + i},{97 - 7 * i}\n" for i in range(9))
    )
    assert bound(found)["gpu"] == ("util_pct", "%", "likely")


def test_files_without_times_count_rows_of_each_sweep(tmp_path: Path) -> None:
    """Two GPUs every two seconds."""
    found = read_text(tmp_path, "index,utilization.gpu [%]\n0,1\n1,2\n0,3\n1,4\n", interval_ns=2 * S)
    assert found.tables["gpu"].select("gpu", "t_ns", "util_pct").rows() == [
        (0, 0, 1.0),
        (1, 0, 2.0),
        (0, 2 * S, 3.0),
        (1, 2 * S, 4.0),
    ]


# --- what columns are ---


def test_the_unit_of_a_name_or_of_a_cell_counts(tmp_path: Path) -> None:
    """Milliwatts, GiB and ratios are brought to the tables' units."""
    found = read_text(
        tmp_path, f"time,power_mw,memory_used_gb,gpu_util\n{T_S}.1,283660,30,0.5\n{T_S}.2,100000,31,0.25\n"
    )
    assert rows(found, "gpu", "power_w", "mem_used_b", "util_pct") == [
        (283.66, 30 * 2**30, 50.0),
        (100.0, 31 * 2**30, 25.0),
    ]


@pytest.mark.parametrize("name", ["memory_util", "mem", "memory_utilization"])
def test_a_name_for_two_things_is_left_unbound_with_the_choices(tmp_path: Path, name: str) -> None:
    """Time with memory access, or memory in use: the rest of the file is read; --bind decides."""
    text = f"time,gpu_util,{name}\n{T_S}.1,1,20\n{T_S}.2,2,30\n"
    found = read_text(tmp_path, text)
    (binding,) = [b for b in found.account.bindings if b.source == name]
    assert (binding.meaning, binding.sure) == ("", "not used")
    found = read_text(tmp_path, text, wishes=(parse_wish(f"{name}=mem_util_pct"),))
    assert rows(found, "gpu", "mem_util_pct") == [(20.0,), (30.0,)]


def test_an_ambiguous_column_that_is_all_there_is_is_refused(tmp_path: Path) -> None:
    """With the choices as they are typed."""
    with pytest.raises(
        ImportFormatError, match=r"'memory_util' is ambiguous.*\n.*--bind 'memory_util=mem_util_pct'"
    ):
        read_text(tmp_path, f"time,gpu,memory_util\n{T_S}.1,0,20\n{T_S}.1,1,30\n")


def test_bare_gpu_columns_are_bound_by_the_user(tmp_path: Path) -> None:
    """``GPU*=util_pct`` names all at once."""
    found = read_text(tmp_path, f"time,GPU0,GPU1\n{T_S}.1,10,20\n", wishes=(parse_wish("GPU*=util_pct"),))
    assert rows(found, "gpu", "gpu", "util_pct") == [(0, 10.0), (1, 20.0)]


def test_two_columns_for_one_quantity_the_surer_one_counts(tmp_path: Path) -> None:
    """``power.draw`` before ``power``; the other one is named as not used."""
    found = read_text(
        tmp_path, f"timestamp,power,power.draw [W],utilization.gpu [%]\n{T_S}.1,1,300,5\n{T_S}.2,1,300,5\n"
    )
    assert bound(found)["power"] == ("", "", "not used")
    assert rows(found, "gpu", "power_w")[0] == (300.0,)


def test_a_table_of_which_nothing_is_a_metric(tmp_path: Path) -> None:
    """It lists what is there."""
    with pytest.raises(ImportFormatError, match=r"0 metrics bound.*\n.*'foo'"):
        read_text(tmp_path, f"timestamp,foo\n{T_S}.1,1\n{T_S}.2,2\n", format="csv")


def test_a_header_of_another_length_is_refused(tmp_path: Path) -> None:
    """Zipping names and cells would bind the wrong ones."""
    with pytest.raises(ImportFormatError, match="names 4 columns, the rows have 3"):
        read_text(tmp_path, f"timestamp,gpu,util,power\n{T_S},0,5\n{T_S + 1},0,6\n")


def test_another_header_in_the_middle_is_refused(tmp_path: Path) -> None:
    """What follows it would be bound to the wrong columns."""
    other = HEADER.replace("utilization.gpu [%], memory.used [MiB]", "memory.used [MiB], utilization.gpu [%]")
    with pytest.raises(ImportFormatError, match=r"another header comes in the middle.*\n.*Split"):
        read_text(tmp_path, HEADER + BODY + other + BODY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("50 %, 20 %\n51 %, 21 %\n", "both in %"),
        (f"{T_S},5,7\n{T_S + 1},3,8\n{T_S + 2},6,1\n", "could all be percentages"),
        ("a b c\nd e f\n", "no importer knows this"),
    ],
)
def test_a_file_without_header_that_could_be_several_things(tmp_path: Path, text: str, message: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ImportFormatError, match=message):
        read_text(tmp_path, text, interval_ns=S)


def test_unnamed_columns_bound_by_number(tmp_path: Path) -> None:
    """``--bind 2=util_pct --bind 3=mem_util_pct``."""
    wishes = (parse_wish("2=util_pct"), parse_wish("3=mem_util_pct"))
    found = read_text(tmp_path, f"{T_S},5,7\n{T_S + 1},3,8\n", wishes=wishes)
    assert rows(found, "gpu", "t_ns", "util_pct", "mem_util_pct") == [(0, 5.0, 7.0), (S, 3.0, 8.0)]


# --- missing, broken, out of order ---


@pytest.mark.parametrize(
    "word",
    ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "ERR!", "-", "", "nan"],
)
def test_words_for_no_value_are_missing_not_zero(tmp_path: Path, word: str) -> None:
    """A row that has nothing else is left out and counted; other values of the row stay."""
    text = (
        HEADER
        + BODY
        + f"2026/11/30 15:42:15.500, 0, {word}, 5 MiB, {word}\n2026/11/30 15:42:16.500, 0, {word}, {word}, {word}\n"
    )
    found = read_text(tmp_path, text)
    assert rows(found, "gpu", "util_pct", "mem_used_b", "power_w")[2:] == [(None, 5 * 2**20, None)]
    assert found.account.dropped == {"no value in it (N/A)": 1}


def test_error_lines_between_rows_are_counted(tmp_path: Path) -> None:
    """A lost GPU prints a sentence."""
    text = (
        HEADER
        + BODY
        + "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n"
        + BODY.replace("42:1", "43:1")
    )
    found = read_text(tmp_path, text)
    assert (found.tables["gpu"].height, found.account.dropped) == (4, {"the time can't be read": 1})


def test_a_clock_that_was_set_back_goes_on(tmp_path: Path) -> None:
    """100 rows, then the clock goes back 29 s: the rest is moved so that rows stay one second apart, and it is said."""
    stamps = [*range(100), *(100 - 29 + i for i in range(50))]
    found = read_text(tmp_path, "timestamp,gpu_util\n" + "".join(f"{T_S + s}.5,1\n" for s in stamps))
    times = [t for (t,) in rows(found, "gpu", "t_ns")]
    assert times == [S // 2 + i * S for i in range(150)]
    assert "the clock went back 28.000 s" in texts(found)
    assert "moved by +29.000 s" in texts(found)


def test_a_log_whose_parts_are_in_another_order_is_no_clock_step(tmp_path: Path) -> None:
    """What comes later lies before everything: times stay as they are."""
    stamps = [*range(100, 110), *range(10)]
    found = read_text(tmp_path, "timestamp,gpu_util\n" + "".join(f"{T_S + s}.5,1\n" for s in stamps))
    assert [t for (t,) in rows(found, "gpu", "t_ns")] == [S // 2 + s * S for s in stamps]
    assert texts(found) == ""


def test_the_hour_that_comes_twice(tmp_path: Path) -> None:
    """Berlin, 2026-10-25: 02:59:59 is followed by 02:00:00; in a zone both are right, one second apart."""
    text = "timestamp,gpu_util\n2026-10-25 02:59:58,1\n2026-10-25 02:59:59,1\n2026-10-25 02:00:00,1\n2026-10-25 03:00:00,1\n"
    found = read_text(tmp_path, text, tz=parse_zone("Europe/Berlin"))
    times = found.tables["gpu"]["t_ns"]
    assert times.diff().drop_nulls().to_list() == [S, S, 3600 * S]
    assert texts(found).count("went back") == 0


def test_a_gap_stays_a_gap(tmp_path: Path) -> None:
    """Ten minutes without a row: counted, no row invented."""
    found = read_text(
        tmp_path, "timestamp,gpu_util\n" + "".join(f"{T_S + s}.5,1\n" for s in (0, 1, 2, 602, 603))
    )
    facts = found.account.plain()
    assert (facts["rows_read"], facts["gaps"], facts["longest_interval_s"]) == (5, 1, 600.0)


def test_a_cut_last_line_costs_itself(tmp_path: Path) -> None:
    """Buffered pipes cut it."""
    found = read_text(tmp_path, HEADER + BODY + "2026/11/30 15:4")
    assert rows(found, "gpu", *COLUMNS) == EXPECTED
    assert found.account.dropped == {"the time can't be read": 1}


def test_a_cut_gzip_keeps_what_comes_before(tmp_path: Path) -> None:
    """It is said."""
    whole = gzip.compress(
        (
            HEADER
            + "".join(
                f"2026/11/30 15:42:{10 + i % 50}.{i % 1000:03d}, 0, {i % 100} %, 1 MiB, 1 W\n"
                for i in range(3000)
            )
        ).encode()
    )
    found = read_text(tmp_path, whole[: len(whole) // 2], "log.csv.gz")
    assert 0 < found.tables["gpu"].height < 3000
    assert "damaged or cut" in texts(found)


def test_a_multi_line_cell_is_one_cell(tmp_path: Path) -> None:
    """The line end inside quotes does not end the row."""
    found = read_text(tmp_path, f'timestamp,note,gpu_util\n{T_S}.1,"two\nlines",5\n{T_S}.2,"one",6\n')
    assert rows(found, "gpu", "util_pct") == [(5.0,), (6.0,)]


def test_the_decimal_comma_of_semicolon_tables(tmp_path: Path) -> None:
    """``283,66`` is a number."""
    found = read_text(tmp_path, f"timestamp;power_w;gpu_util\n{T_S};283,66;50,5\n{T_S + 1};120,00;7,5\n")
    assert rows(found, "gpu", "power_w", "util_pct") == [(283.66, 50.5), (120.0, 7.5)]


def test_names_memory_and_uuid_describe_the_gpus(tmp_path: Path) -> None:
    """Once a GPU."""
    text = "timestamp, index, name, uuid, memory.total [MiB], utilization.gpu [%]\n" + "".join(
        f"2026/11/30 15:42:1{i}.000, {g}, NVIDIA H200, GPU-{g}, 143771 MiB, 5 %\n"
        for i in range(3)
        for g in (0, 1)
    )
    found = read_text(tmp_path, text)
    assert found.tables["gpus"].select("gpu", "name", "uuid", "mem_total_b").rows() == [
        (g, "NVIDIA H200", f"GPU-{g}", 143_771 * 2**20) for g in (0, 1)
    ]


ROCM = "device,GPU use (%),GPU Memory Allocated (VRAM%),Average Graphics Package Power (W)\n"
AMD = "timestamp,gpu,power_usage,hotspot_temperature,memory_temperature,gfx,gfx_clock,mem,vram_used,vram_total\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{ROCM}card0,98,40,300.0\n\n{ROCM}card0,4,40,90.0\n", "rocm.csv"),
        (f"{AMD}{T_S},0,300,60,N/A,98,2100,40,1000,196608\n{T_S + 1},0,90,50,N/A,4,100,1,1000,196608\n", "amd.csv"),
    ],
)  # fmt: skip
def test_what_amds_tools_print(tmp_path: Path, text: str, name: str) -> None:
    """By specification; the GPU is called AMD, so that no state is claimed for it."""
    found = read_text(tmp_path, text, name, interval_ns=S)
    assert found.account.format == "amd"
    assert rows(found, "gpu", "gpu", "util_pct", "power_w") == [(0, 98.0, 300.0), (0, 4.0, 90.0)]
    assert found.tables["gpus"]["name"].to_list() == ["AMD GPU"]


def test_fast_polling_shows_the_counters_own_window(tmp_path: Path) -> None:
    """At 20 Hz the value changes every 200 ms: that is what it averages over."""
    values: list[Any] = [(i // 4 * 37) % 100 for i in range(400)]
    text = "timestamp,gpu_util\n" + "".join(f"{T_S + i * 0.05:.3f},{v}\n" for i, v in enumerate(values))
    found = read_text(tmp_path, text)
    assert set(found.tables["gpu"]["window_ns"]) == {200 * MS}
