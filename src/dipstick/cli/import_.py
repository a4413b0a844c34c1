"""Make a recording from what other tools wrote.

PATH is a file or folder; which format it is, is found out. The recording is a folder that
`dipstick explain` reads.
"""

from __future__ import annotations

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.output import Talk
    from dipstick.recording.reader import Recording

NAME = "import"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("path", metavar="PATH", help="a file or folder of another tool")
    parser.add_argument("-o", "--output", metavar="RUN", required=True, help="the recording folder to make")
    parser.add_argument("--force", action="store_true", help="replace RUN if it is a recording")


def run(args: Namespace, talk: Talk) -> int:
    """Import, say what became of it, and what to do next."""
    from dipstick import load  # noqa: PLC0415 - loads Polars
    from dipstick.importers import import_path  # noqa: PLC0415 - loads Polars

    recording = load(import_path(args.path, args.output, force=args.force))
    rows = _rows(recording)
    if args.json:
        answer_json(_document(recording, rows))
        return EXIT_ANSWERED
    answer(_told(recording, rows))
    talk.next(["dipstick", "explain", args.output], "where the seconds went")
    return EXIT_ANSWERED


def _rows(recording: Recording) -> dict[str, int]:
    """Rows of each table that has any, in the schema's order."""
    from dipstick.recording.schema import TABLES  # noqa: PLC0415 - loads Polars

    counts = {table: recording.table(table).height for table in TABLES if recording.has(table)}
    return {table: rows for table, rows in counts.items() if rows}


def _document(recording: Recording, rows: dict[str, int]) -> dict[str, object]:
    return {
        "schema_version": 1,
        "recording": str(recording.path),
        "source": recording.manifest.source,
        "seconds": (recording.end_unix_ns - recording.start_unix_ns) / 1e9,
        "tables": [{"table": table, "rows": count} for table, count in rows.items()],
        "notes": [{"level": note.level, "text": note.text} for note in recording.notes],
    }


def _told(recording: Recording, rows: dict[str, int]) -> str:
    """``spans  10,123 rows`` and so on, then what the reader should know."""
    from dipstick.show.words import clean, span  # noqa: PLC0415 - --help stays light

    seconds = span((recording.end_unix_ns - recording.start_unix_ns) / 1e9)
    lines = [f"{clean(str(recording.path))}: {clean(recording.manifest.source)}, {seconds}"]
    wide = max((len(table) for table in rows), default=0)
    lines += [f"  {table:<{wide}}  {count:>9,} rows" for table, count in rows.items()]
    lines += [f"  {'warning: ' if n.level == 'warning' else ''}{clean(n.text)}" for n in recording.notes]
    return "\n".join(lines)
