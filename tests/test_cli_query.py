"""`dipstick query`: any number again, from the recording and from nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from dipstick.analysis import frames
from dipstick.cli import main
from dipstick.cli.query import ask, only_tables
from dipstick.errors import UsageError
from dipstick.show.receipts import quoted
from dipstick.verdicts.sql import select
from records import job, memory, on_disk
from worlds import World

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "it's \x1b[31mred\x07\nrm -rf $HOME; `id` \u202e<b>"
TINY = World(generate=[4, 5], reward=[[3, 2], [3, 4]], profiled=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two steps of two ranks on disk, with a job of a hostile name."""
    folder = tmp_path_factory.mktemp("query") / "RUN"
    rows = TINY.rows()
    rows["jobs"] = [*rows["jobs"], job(HOSTILE, 4, 5, step=0)]
    on_disk(folder, **rows)
    return str(folder)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines that a command prints."""
    assert main(["query", *words]) == 0
    return capsys.readouterr().out.splitlines()


# Answers


def test_a_number_is_printed_under_its_column(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 scores for 2 and 4 s."""
    sql = "SELECT SUM(seconds) FROM phase_pieces WHERE rank = 1 AND phase = 'reward'"

    assert printed(capsys, run, sql) == ["seconds", "6"]


def test_rows_are_plain_columns(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Null is a dash, a fraction has six digits."""
    sql = "SELECT rank, phase, seconds / 3 AS third, NULL AS nothing FROM phase_rows WHERE phase = 'generate'"

    assert printed(capsys, run, sql) == [
        "rank  phase     third  nothing",
        "0     generate  3      -",
        "1     generate  3      -",
    ]


def test_as_json(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, columns and data; the count is that of the whole result."""
    assert (
        main(["query", run, "SELECT step, seconds FROM cycles ORDER BY step", "--json", "--limit", "1"]) == 0
    )

    assert json.loads(capsys.readouterr().out) == {
        "rows": 2,
        "columns": ["step", "seconds"],
        "data": [{"step": 0, "seconds": 8.0}],
    }


def test_more_rows_than_asked_for_are_said_on_stderr(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fifty by default."""
    assert main(["query", run, "SELECT t_ns FROM gpu", "--limit", "3"]) == 0
    out, err = capsys.readouterr()

    assert len(out.splitlines()) == 4
    assert err == "177 more rows: --limit N prints more\n"


def test_without_a_query_the_tables_are_listed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded ones with their rows and columns, derived ones with their columns and what they are."""
    lines = printed(capsys, run)
    names = [line.split()[0] for line in lines[1:]]

    assert lines[0].split() == ["table", "rows", "columns"]
    assert names == list(frames.names())
    spans = next(line for line in lines if line.startswith("spans "))
    assert spans.split()[1] == "20"
    assert "t0_s" in spans
    assert next(line for line in lines if line.startswith("cycles ")).endswith(
        "step, t0_s, t1_s, seconds (steps from last barrier to last barrier, the unit of the statistics)"
    )


def test_names_of_tables_may_be_written_in_capitals(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """SQL is not particular."""
    assert printed(capsys, run, "select count(*) AS n from STEPS") == ["n", "4"]


def test_a_table_without_rows_counts_none(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody logged events or hand-overs."""
    assert printed(capsys, run, "SELECT COUNT(*) AS n FROM events") == ["n", "0"]
    assert printed(capsys, run, "SELECT name FROM events") == ["name"]


@pytest.mark.parametrize("table", frames.DERIVED)
def test_derived_tables_can_be_asked_of_samples_alone(table: str) -> None:
    """A recording of GPU samples has no phases: no rows, and no error."""
    recording = memory(gpu=TINY.gpu())

    assert ask(recording, f"SELECT COUNT(*) AS n FROM {table}").columns == ["n"]  # noqa: S608 - our own names


# Hostile strings


def test_a_recorded_string_is_found_by_its_literal_and_printed_clean(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No control character reaches the terminal; the JSON has all of them, escaped."""
    sql = select("job", "jobs", job=HOSTILE)

    (_, shown) = printed(capsys, run, sql)
    assert shown.isprintable()
    assert "\x1b" not in shown
    assert main(["query", run, sql, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["data"] == [{"job": HOSTILE}]
    assert "\x1b" not in out


def test_the_command_of_a_receipt_passes_a_real_shell(run: str) -> None:
    """Quoted as reports quote it, run by bash, answered with the number."""
    sql = select("COUNT(*)", "jobs", job=HOSTILE)
    command = f"{quoted(sys.executable)} -m dipstick query {quoted(run)} {quoted(sql)}"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=True)

    assert done.stdout.split()[-1] == "1"


# Nothing but the recording


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM READ_CSV ('{file}')",
        "SELECT * FROM \"read_csv\"('{file}')",
        "SELECT * FROM `read_csv`('{file}')",
        "SELECT * FROM read_csv/* */('{file}')",
        "SELECT * FROM read_/**/csv('{file}')",
        "SELECT * FROM read_ndjson('{file}')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x')",
        "SELECT 1 AS \"a'b\" FROM read_csv('{file}') AS \"c'd\"",
        "SELECT 1 -- it's\n FROM read_csv('{file}') --'",
        "SELECT 1 /* ' */ FROM read_csv('{file}') /* ' */",
        "--\r'\n SELECT * FROM read_csv('{file}')",
        "WITH x AS (SELECT * FROM read_csv('{file}')) SELECT * FROM x",
        "SELECT * FROM gpu JOIN read_csv('{file}') AS s ON TRUE",
        "SELECT (SELECT MAX(a) FROM read_csv('{file}')) FROM gpu",
    ],
)
def test_files_and_urls_are_out_of_reach(
    run: str, sql: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the function is written; and nothing was read."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nhunter2\n")

    assert main(["query", run, sql.format(file=secret)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "reads from outside the recording" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    "sql",
    ["SELECT E'\\'' FROM gpu", "SELECT $$x$$ FROM gpu", "SELECT n'x' FROM gpu", "SELECT U&'x' FROM gpu"],
)
def test_strings_with_a_prefix_are_refused(sql: str) -> None:
    """Polars might see another end of them than we do."""
    with pytest.raises(UsageError, match="strings are 'in single quotes'"):
        only_tables(sql)


def test_the_name_of_such_a_function_may_be_recorded() -> None:
    """A span of a data loader: data, in quotes."""
    sql = "SELECT COUNT(*) FROM spans WHERE name = 'read_csv(''x'')' OR name IN('scan_parquet')"

    assert only_tables(sql) == sql


def test_comments_are_left_out() -> None:
    """What Polars gets has none, so that both see the same strings."""
    assert (
        only_tables("SELECT 1 -- it's\nFROM gpu /* a '\n */ WHERE x = '--'")
        == "SELECT 1  \nFROM gpu   WHERE x = '--'"
    )


def test_a_query_changes_nothing(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables are copies in memory; the next command has them all."""
    main(["query", run, "DROP TABLE gpu"])
    main(["query", run, "DELETE FROM gpu"])
    capsys.readouterr()

    assert printed(capsys, run, "SELECT COUNT(*) AS n FROM gpu") == ["n", "180"]


# Mistakes


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT", "Expected: an expression"),
        ("SELECT * FROM nowhere", "relation 'nowhere' was not found"),
        ("SELECT hollow FROM states", 'unable to find column "hollow"'),
        ("SELECT 1; SELECT 2", "one (and only one) statement"),
        ("COPY gpu TO 'x'", "a query begins with SELECT or WITH"),
        ("select it's", "the query failed"),
        ("SELECT " + "(" * 500 + "1" + ")" * 500, "recursion limit exceeded"),
        ("SELECT '\udcff' FROM gpu", "the query failed"),
        (" -- nothing but a comment", "a query begins with SELECT or WITH"),
    ],
)
def test_a_mistake_is_a_usage_error_in_one_line(
    run: str, sql: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the tables there are, and no traceback."""
    assert main(["query", run, sql]) == 2
    out, err = capsys.readouterr()

    assert out == ""
    assert what in err.splitlines()[0]
    assert err.splitlines()[1].strip().startswith("tables: gpu, gpu_counters, ")
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        (["sample:nobody", "SELECT 1"], 2, "there is no sample 'nobody'"),
        (["/nowhere/at/all", "SELECT 1"], 1, "no such folder"),
        (["sample:h200x2-grpo", "SELECT 1", "--limit", "0"], 2, "0 is not above 0"),
    ],
)
def test_other_mistakes_have_their_own_status(
    words: list[str], status: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 for a name that is none, 1 for a folder that is not there."""
    assert main(["query", *words]) == status
    assert what in capsys.readouterr().err


def test_only_the_tables_of_the_query_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded table needs no analysis."""
    recording = memory(gpu=TINY.gpu())

    def never(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("dipstick.analysis.pipeline.analyse", never)
    assert ask(recording, "SELECT MAX(util_pct) AS top FROM gpu").rows() == [(100.0,)]


def test_a_result_is_a_data_frame() -> None:
    """For those who call it from Python."""
    assert isinstance(ask(memory(gpu=TINY.gpu()), "SELECT gpu FROM gpu LIMIT 1"), pl.DataFrame)


@pytest.mark.parametrize("sql", ["drop table gpu", "  CREATE TABLE x AS SELECT 1", "truncate table gpu", "explain select 1", "/* select */ show tables"])  # fmt: skip
def test_only_questions_are_answered(sql: str) -> None:
    """A statement that asks nothing is refused, not answered with an empty screen and status 0."""
    with pytest.raises(UsageError, match="a query begins with SELECT or WITH"):
        only_tables(sql)


@pytest.mark.parametrize("sql", ["SELECT 1", "\n select 1", "(select 1)", "with a as (select 1) select * from a", "-- why\nselect 1"])  # fmt: skip
def test_questions_may_begin_in_any_way_that_asks(sql: str) -> None:
    """In any case, in brackets, behind a comment."""
    assert "select 1" in only_tables(sql).lower()
