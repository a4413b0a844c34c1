"""The frame of the importers: what the user says, what is refused, how files come to one time axis."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dipstick.errors import ImportFormatError, UsageError
from dipstick.importers.account import Account
from dipstick.importers.base import Head, Sink, check_readable
from dipstick.importers.binding import Binding, Wish, check_bound, factor, parse_wish, wished
from dipstick.importers.files import find_sources
from dipstick.importers.options import Options, parse_start, parse_zone
from dipstick.importers.place import NOWHERE_NS, place
from dipstick.importers.views import redundant

S = 1_000_000_000
T = 1_796_000_000 * S
HOUR = 3600 * S


def account(
    name: str = "a.csv", clock: str = "unix", first: int = T, seconds: int = 600, every_s: int = 1
) -> Account:
    """A file with one GPU, sampled regularly."""
    made = Account(name, "nvidia-smi" if name.endswith("csv") else "dmon", "host0", clock=clock)
    times = [first + i * S for i in range(0, seconds + 1, every_s)]
    frame = pl.DataFrame({"host": "host0", "gpu": 0, "t_ns": times, "util_pct": 50.0})
    made.saw("gpu", frame, ("t_ns",))
    return made


# --- what the user says ---


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("GPU*=power_w", Wish("GPU*", "power_w")),
        ("vram=mem_used_b:MiB", Wish("vram", "mem_used_b", "MiB")),
        ("2=util_pct@0", Wish("2", "util_pct", "", 0)),
        ("a=b=temp_c", Wish("a=b", "temp_c")),
        ("x=ignore", Wish("x", "")),
    ],
)
def test_a_wish_is_column_meaning_unit_and_gpu(text: str, wish: Wish) -> None:
    """The last ``=`` divides; unit and GPU may be absent."""
    assert parse_wish(text) == wish


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("util", "is not COLUMN=MEANING"),
        ("a=load", r"no meaning 'load'.*\n.*util_pct"),
        ("a=power_w:PS", r"power_w has no unit 'PS'.*\n.*W, mW"),
        ("a=power_w@x", "is not COLUMN=MEANING"),
    ],
)
def test_a_wish_that_names_nothing_lists_the_choices(text: str, message: str) -> None:
    """It is a usage error: status 2."""
    with pytest.raises(UsageError, match=message):
        parse_wish(text)


def test_the_star_of_a_wish_is_the_gpu() -> None:
    """``GPU*`` binds GPU3 to GPU 3; a column by number is the n-th."""
    wishes = (parse_wish("GPU*=power_w"), parse_wish("5=temp_c"))
    assert wished(wishes, "GPU3", 2) == Binding("GPU3", "power_w", "", "you said so", gpu=3)
    assert wished(wishes, "x", 5) == Binding("x", "temp_c", "", "you said so")
    assert wished(wishes, "x", 4) is None


@pytest.mark.parametrize(
    ("binding", "times"),
    [
        (Binding("a", "mem_used_b", "MiB"), 2.0**20),
        (Binding("a", "power_w", "mW"), 1e-3),
        (Binding("a", "gr_active_pct", "ratio"), 100.0),
        (Binding("a", "power_w"), 1.0),
        (Binding("a", "span reward", "s"), 1.0),
    ],
)
def test_values_are_brought_to_the_unit_of_the_table(binding: Binding, times: float) -> None:
    """By the unit's factor; what is no telemetry stays."""
    assert factor(binding) == times


def test_a_file_of_which_nothing_is_understood_is_refused_with_what_it_has() -> None:
    """Time and index alone are no metric."""
    with pytest.raises(ImportFormatError, match=r"0 metrics bound.*\n.*'when', 'foo'"):
        check_bound("a.csv", [Binding("when", "time"), Binding("foo", sure="unrecognised")])
    check_bound("a.csv", [Binding("u", "util_pct")])
    check_bound("a.wandb", [Binding("profiling/x", "span x")])


@pytest.mark.parametrize(
    ("text", "offset_h"), [("UTC", 0), ("+08:00", 8), ("-0330", -3.5), ("Asia/Tokyo", 9), ("UTC+2", 2)]
)
def test_zones(text: str, offset_h: float) -> None:
    """By name or by offset."""
    offset = parse_zone(text).utcoffset(datetime(2026, 11, 30))  # noqa: DTZ001 - the zone is asked
    assert offset is not None
    assert offset.total_seconds() == offset_h * 3600


@pytest.mark.parametrize("text", ["Mars/Olympus", "+25:00", "../../etc/passwd", ""])
def test_a_zone_that_does_not_exist(text: str) -> None:
    """The message shows how one is written."""
    with pytest.raises(UsageError, match="Europe/Berlin"):
        parse_zone(text)


@pytest.mark.parametrize(
    ("text", "unix_ns"),
    [
        ("1796053333.956", 1_796_053_333_956_000_000),
        ("2026-11-30T15:42:13.956Z", 1_796_053_333_956_000_000),
        ("2026-11-30 16:42:13.956+01:00", 1_796_053_333_956_000_000),
    ],
)
def test_starts(text: str, unix_ns: int) -> None:
    """ISO with a zone, or Unix seconds; to the nanosecond."""
    assert parse_start(text, None) == unix_ns


def test_a_start_without_zone_needs_one() -> None:
    """``--tz`` gives it; UTC is never assumed."""
    with pytest.raises(UsageError, match="has no zone"):
        parse_start("2026-11-30T15:42:13", None)
    assert parse_start("2026-11-30T15:42:13", UTC) == 1_796_053_333 * S
    with pytest.raises(UsageError, match="is no time"):
        parse_start("tomorrow", UTC)


# --- the account of a file ---


def test_the_account_counts_levels_distances_and_gaps_over_batches() -> None:
    """A gap on the border of two batches is seen; 1, 1, 5 s: usual distance 1 s, one gap."""
    made = Account("a.csv", "nvidia-smi", "host0")
    for times, values in (([0, 1, 2], [10.0, None, 30.0]), ([7], [80.0])):
        frame = pl.DataFrame({"host": "host0", "gpu": 0, "t_ns": [t * S for t in times], "util_pct": values})
        made.saw("gpu", frame, ("t_ns",))
    facts = made.plain()
    assert facts["gpus"] == [
        {"host": "host0", "gpu": 0, "util_pct": {"mean": 40.0, "min": 10.0, "max": 80.0}}
    ]
    assert (facts["interval_s"], facts["longest_interval_s"], facts["gaps"], facts["span_s"]) == (
        1.0,
        5.0,
        1,
        7.0,
    )
    assert facts["tables"] == {"gpu": 4}


def test_a_gpu_without_a_value_has_no_level() -> None:
    """Missing is not 0."""
    made = Account("a.csv", "nvidia-smi", "host0")
    made.saw("gpu", pl.DataFrame({"host": "host0", "gpu": [3], "t_ns": [S], "power_w": [70.0]}), ("t_ns",))
    assert made.plain()["gpus"] == [{"host": "host0", "gpu": 3, "util_pct": None}]


def test_rows_of_another_clock_carry_its_number() -> None:
    """So that they can be placed when all files are read."""
    rows: dict[str, Any] = {}
    sink = Sink(Account("a", "x", "node7"), rows.__setitem__)
    sink.clock("local")
    sink.rows("gpu", pl.DataFrame({"gpu": [0], "t_ns": [S], "util_pct": [1.0]}))
    sink.rows("gpus", pl.DataFrame({"gpu": [0], "name": ["H200"]}))
    assert rows["gpu"].select("host", "clock").rows() == [("node7", 1)]
    assert "clock" not in rows["gpus"].columns


# --- one time axis ---


def test_local_times_alone_are_kept_and_said_to_have_no_date() -> None:
    """UTC is not assumed: it is said that the date is not known."""
    (where,) = place([account(clock="local")], Options())
    assert (where.offset_ns, where.is_known) == (0, False)
    assert "--tz" in where.how


def test_the_only_zone_in_which_two_files_overlap_is_taken() -> None:
    """Local 15:42 in Berlin and Unix times of 14:42 UTC: one hour ahead."""
    places = place([account("a.csv", "local", T + HOUR), account("b.log")], Options())
    assert [p.offset_ns for p in places] == [-HOUR, 0]
    assert "UTC+01:00" in places[0].how


@pytest.mark.parametrize(
    ("seconds", "first", "message"),
    [(36_000, T, "zones would fit"), (600, T + HOUR // 3, "in no zone it overlaps")],
)
def test_a_zone_that_can_not_be_told_is_asked_for(seconds: int, first: int, message: str) -> None:
    """Ten hours overlap in many zones; twenty minutes off is no zone at all."""
    with pytest.raises(ImportFormatError, match=rf"{message}.*\n.*--tz"):
        place(
            [account("a.csv", "local", first, seconds, 10), account("b.log", seconds=seconds, every_s=10)],
            Options(),
        )


def test_a_relative_clock_is_placed_by_its_start() -> None:
    """Alone it may float; beside other files its start is asked for."""
    lone = account("a.csv", "relative", 0)
    assert place([lone], Options())[0].offset_ns == NOWHERE_NS
    assert place([lone, account("b.log")], Options(start_ns=T))[0].offset_ns == T
    with pytest.raises(ImportFormatError, match=r"no absolute times.*\n.*--start"):
        place([lone, account("b.log")], Options())


# --- several files ---


def test_the_finer_of_two_views_stays() -> None:
    """Dmon every 5 s and nvidia-smi every second show the same GPU."""
    assert redundant([account("a.log", every_s=5), account("b.csv")]) == [(0, 1)]
    assert redundant([account("a.csv"), account("b.csv", first=T + 700 * S)]) == []


def test_two_files_of_one_format_at_the_same_time_may_be_two_hosts() -> None:
    """It is asked, not guessed."""
    with pytest.raises(
        ImportFormatError, match=r"two hosts, or the same one twice.*\n.*node0=a\.csv node1=b\.csv"
    ):
        redundant([account("a.csv"), account("b.csv")])


def test_words_of_the_command_line(tmp_path: Path) -> None:
    """``HOST=FILE`` names the host, unless a file is called so; a file that is not there is said."""
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "spans.r0.jsonl").touch()
    ((source,), notes) = find_sources([f"node1={folder}"])
    assert (source.path, source.host, notes) == (folder, "node1", [])
    with pytest.raises(ImportFormatError, match="no such file"):
        find_sources([folder, tmp_path / "nowhere"])


def test_an_unknown_file_beside_known_ones_is_left_out_with_a_note(tmp_path: Path) -> None:
    """A glob may catch a picture; alone it is an error."""
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "spans.r0.jsonl").touch()
    picture = tmp_path / "p.png"
    picture.write_bytes(b"\x89PNG\x00")
    sources, notes = find_sources([folder, picture])
    assert [s.path for s in sources] == [folder]
    assert notes[0].text.startswith("p.png: no importer knows this.")
    with pytest.raises(ImportFormatError, match="no importer knows"):
        find_sources([picture])


def test_pipes_and_devices_are_not_read() -> None:
    """Reading them may never end."""
    with pytest.raises(ImportFormatError, match="neither a file nor a folder"):
        check_readable(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n", ["a,b", "1,2"]),
        ("a,b\n".encode("utf-16"), ["a,b"]),
        ("größe\n".encode("latin-1"), ["größe"]),
        (b"\x00\x01", []),
        (b"", []),
    ],
)
def test_the_head_of_a_file_as_text(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    """Byte-order marks, UTF-16 and Latin-1 are text; bytes with zeros are not."""
    (tmp_path / "f").write_bytes(data)
    assert Head(tmp_path / "f").lines == lines
