"""Derive a number again: SQL over a recording's tables.

Every receipt of a report names such a query. Recorded tables (gpu, spans, jobs ...) have their times in
seconds beside the nanoseconds; derived ones (phase_pieces, steps, waits, states, dips ...) hold what the
analysis worked out. Without SQL the tables and their columns are listed. A query sees these tables and nothing
else: functions that read files or URLs are refused.
"""

from __future__ import annotations

import re

from dipstick.cli.options import positive
from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    import polars as pl

    from dipstick.cli.output import Talk
    from dipstick.recording.reader import Recording

NAME = "query"
_NEWLINE = "\n"
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"|`[^`]*`)|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<other>.)""",
    re.DOTALL,
)
_READER = re.compile(r"\b(?:read|scan)_\w+", re.IGNORECASE)
_ASKS = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)
_OTHER_STRING = re.compile(r"[\w&]''|\$")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("run", metavar="RUN", help="a recording folder, or sample:NAME")
    parser.add_argument("sql", metavar="SQL", nargs="?", help="a SELECT over the tables; absent: list them")
    parser.add_argument("--limit", metavar="N", type=positive, default=50, help="rows to print (50)")


def run(args: Namespace, talk: Talk) -> int:
    """Answer the query, or list what can be asked."""
    from dipstick import load  # noqa: PLC0415 - loads Polars

    recording = load(args.run)
    result = ask(recording, args.sql) if args.sql else _catalogue(recording)
    shown = result.head(args.limit)
    if args.json:
        answer_json({"rows": result.height, "columns": result.columns, "data": shown.to_dicts()})
    else:
        answer(_table(shown))
    if shown.height < result.height:
        talk.say(f"{result.height - shown.height} more rows: --limit N prints more")
    return EXIT_ANSWERED


def ask(recording: Recording, sql: str) -> pl.DataFrame:
    """The query's result; only the tables that it names are loaded."""
    import polars as pl  # noqa: PLC0415 - --help stays light

    from dipstick.analysis import frames  # noqa: PLC0415 - loads NumPy
    from dipstick.analysis.pipeline import analyse  # noqa: PLC0415 - loads NumPy

    sql = only_tables(sql)
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    wanted = [name for name in frames.names() if name in words]
    findings = analyse(recording) if any(name in frames.DERIVED for name in wanted) else None
    tables = {
        name: frames.derived(findings, name)
        if findings and name in frames.DERIVED
        else frames.recorded(recording, name)
        for name in wanted
    }
    try:
        return pl.SQLContext(tables, eager=True).execute(sql)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError) as error:
        known = ", ".join(frames.names())
        raise UsageError(
            f"the query failed: {str(error).partition(_NEWLINE)[0]}",
            fix=f"tables: {known}; columns: dipstick query RUN",
        ) from error


def only_tables(sql: str) -> str:
    """The query without comments, if it can read nothing but the recording's tables.

    Polars' SQL can read any file, and URLs: ``FROM read_csv('/etc/passwd')``. Whoever wrote the query (a page
    that somebody sent, an agent), only the recording is to be read. Names inside strings are no functions.
    Comments go, and strings with a prefix (``E'...'``, ``$$``) are refused: Polars might see their ends elsewhere.

    Raises:
        UsageError: A function that reads files, a string with a prefix, or a statement that is no query (DROP TABLE).
    """
    tokens = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(sql)]
    outside = "".join("''" if kind == "text" else part for kind, part in tokens if kind != "comment")
    found = _READER.search(outside)
    if found:
        raise UsageError(
            f"{found[0].lower()} reads from outside the recording", fix="tables: dipstick query RUN"
        )
    if not _ASKS.match(outside):
        from dipstick.analysis import frames  # noqa: PLC0415 - loads NumPy

        known = ", ".join(frames.names())
        raise UsageError(
            "a query begins with SELECT or WITH", fix=f"tables: {known}; columns: dipstick query RUN"
        )
    if _OTHER_STRING.search(outside):
        raise UsageError("strings are 'in single quotes', without a letter or $ before them")
    return "".join(" " if kind == "comment" else part for kind, part in tokens)


def _catalogue(recording: Recording) -> pl.DataFrame:
    """Every table, how many rows it has here, and its columns."""
    import polars as pl  # noqa: PLC0415 - --help stays light

    from dipstick.analysis import frames  # noqa: PLC0415 - loads NumPy
    from dipstick.recording.schema import TABLES  # noqa: PLC0415 - loads Polars

    rows = [
        {
            "table": name,
            "rows": recording.table(name).height,
            "columns": ", ".join(frames.recorded(recording, name).columns),
        }
        for name in TABLES
    ]
    rows += [
        {"table": name, "rows": None, "columns": f"{', '.join(frames.SCHEMAS[name])} ({what})"}
        for name, what in frames.DERIVED.items()
    ]
    return pl.DataFrame(rows)


def _table(frame: pl.DataFrame) -> str:
    """Plain columns; recorded strings lose their control characters."""
    from dipstick.show.words import clean  # noqa: PLC0415 - --help stays light

    def cell(value: object) -> str:
        if value is None:
            return "-"
        return f"{value:.6g}" if isinstance(value, float) else clean(str(value), 400)

    lines = [frame.columns, *([cell(v) for v in row] for row in frame.iter_rows())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(frame.columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
