"""Write a recording for the tools you already use.

-o picks the format: run.pftrace (Perfetto; needs the perfetto extra) or run.json.gz (Chrome JSON) for ui.perfetto.dev, with
counters of each GPU, phases and spans of each rank, reward jobs of each worker and an arrow from where a job was
submitted to where it ran; run.parquet or run.csv for one table, by default all of that in long form.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction

from dipstick.cli.output import answer_json
from dipstick.errors import EXIT_ANSWERED, DipstickError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    import polars as pl

    from dipstick.cli.output import Talk
    from dipstick.recording.reader import Recording

NAME = "export"
TRACES = (".pftrace", ".json.gz")
TABLE_SUFFIXES = (".parquet", ".csv")
TIMELINE = "timeline"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("run", metavar="RUN", help="a recording folder, or sample:NAME")
    parser.add_argument(
        "-o", "--output", metavar="FILE", action="append", default=[], help="run.pftrace, run.json.gz, run.parquet or run.csv; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--table", metavar="NAME", default=TIMELINE, help="for .parquet and .csv: a table of dipstick query (timeline: all of them, in long form)",
    )  # fmt: skip
    parser.add_argument(
        "--redact", action=BooleanOptionalAction, help="replace host names, user names, paths and command lines; default: in traces, not in tables",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(args: Namespace, talk: Talk) -> int:
    """Write each file; what was written is the answer."""
    targets = [_target(name, force=args.force) for name in args.output]
    if not targets:
        raise UsageError("where to?", fix=f"-o FILE; {_suffixes()}")
    from dipstick import load  # noqa: PLC0415 - loads Polars

    recording = load(args.run)
    written = []
    for path, suffix in targets:
        redact = suffix in TRACES if args.redact is None else args.redact
        content = _content(_source(recording, redact=redact), suffix, args.table)
        path.write_bytes(content)
        written.append({"file": str(path), "bytes": len(content), "redacted": redact})
        talk.say(f"wrote {path} ({len(content):,} bytes{', names replaced' if redact else ''})")
    if args.json:
        answer_json({"written": written})
    if any(suffix in TRACES for _, suffix in targets):
        talk.say("open it at https://ui.perfetto.dev: it is read in the browser, and sent nowhere")
    return EXIT_ANSWERED


def _target(name: str, *, force: bool) -> tuple[Path, str]:
    """The file and the suffix that picks its format."""
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    path = Path(name)
    suffix = next((s for s in (*TRACES, *TABLE_SUFFIXES) if name.lower().endswith(s)), None)
    if suffix is None:
        raise UsageError("no format has this suffix", where=name, fix=f"use one of: {_suffixes()}")
    if path.exists() and not force:
        raise DipstickError("the file exists", where=name, fix="--force replaces it")
    if not path.parent.is_dir():
        raise DipstickError(
            "there is no such folder", where=str(path.parent), fix="make it first, or write elsewhere"
        )
    return path, suffix


def _suffixes() -> str:
    return ", ".join((*TRACES, *TABLE_SUFFIXES))


def _source(recording: Recording, *, redact: bool) -> Recording:
    """The recording, or one without names."""
    if not redact:
        return recording
    from dipstick.show.redact import without_names  # noqa: PLC0415 - loads Polars

    return without_names(recording)


def _content(recording: Recording, suffix: str, table: str) -> bytes:
    from dipstick.show import trace_chrome, trace_perfetto, trace_tables  # noqa: PLC0415 - loads Polars

    if suffix in TRACES:
        from dipstick.analysis.pipeline import analyse  # noqa: PLC0415 - loads NumPy
        from dipstick.show.trace_events import trace_of  # noqa: PLC0415 - loads NumPy

        trace = trace_of(analyse(recording), recording)
        return trace_perfetto.render(trace) if suffix == ".pftrace" else trace_chrome.render(trace)
    return trace_tables.TABLES[suffix](_table(recording, table))


def _table(recording: Recording, name: str) -> pl.DataFrame:
    """A table of ``dipstick query``, or the timeline."""
    from dipstick.analysis import frames  # noqa: PLC0415 - loads NumPy
    from dipstick.analysis.pipeline import analyse  # noqa: PLC0415 - loads NumPy
    from dipstick.show.trace_events import trace_of  # noqa: PLC0415 - loads NumPy
    from dipstick.show.trace_tables import timeline  # noqa: PLC0415 - loads Polars

    if name == TIMELINE:
        return timeline(trace_of(analyse(recording), recording))
    if name in frames.DERIVED:
        return frames.derived(analyse(recording), name)
    if name in frames.names():
        return frames.recorded(recording, name)
    raise UsageError(
        f"there is no table {name!r}", where="--table", fix=f"tables: {TIMELINE}, {', '.join(frames.names())}"
    )
