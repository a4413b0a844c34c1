"""Make a recording from what other tools wrote.

FILES are logs, telemetry and traces of one run, or folders of them; which format each has is found out. They become one
recording, on one time axis, that `dipstick explain` reads. Printed is what each column was taken for and how sure
that is; what is ambiguous is refused, with the choices. Formats and what each can answer: docs/import.md.
"""

from __future__ import annotations

from argparse import ArgumentTypeError

from dipstick.cli.options import positive
from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.output import Talk
    from dipstick.importers.options import Options

NAME = "import"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument(
        "files", metavar="FILES", nargs="+", help="files or folders; HOST=FILE where there are several hosts"
    )
    parser.add_argument("-o", "--output", metavar="RUN", required=True, help="the recording folder to make")
    parser.add_argument("--force", action="store_true", help="replace RUN if it is a recording")
    parser.add_argument("--format", metavar="NAME", default="", help="read all FILES as this format")
    parser.add_argument("--run", metavar="NAME", default="", help="which run, in files that hold several")
    time = parser.add_argument_group("what the files do not say")
    time.add_argument("--tz", metavar="ZONE", help="zone of times without one: Europe/Berlin, UTC, +08:00")
    time.add_argument(
        "--start", metavar="TIME", help="time of the first row, for files without absolute times"
    )
    time.add_argument(
        "--interval",
        metavar="S",
        type=_seconds,
        help="seconds between two rows of one GPU, for files without times",
    )
    time.add_argument("--time-format", metavar="FORMAT", default="", help="how times are written (strptime)")
    time.add_argument(
        "--gpus", metavar="N", type=positive, help="number of GPUs, where rows do not name them"
    )
    time.add_argument(
        "--bind", metavar="COLUMN=MEANING", action="append", default=[],
        help="what a column is: MEANING[:UNIT][@GPU]; * in COLUMN is the GPU's index; can be repeated",
    )  # fmt: skip
    for name, meaning in (("time", "time"), ("gpu", "gpu"), ("util", "util_pct")):
        time.add_argument(f"--{name}-col", metavar="COLUMN", help=f"short for --bind COLUMN={meaning}")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:  # noqa: PLR2004 - NaN fails too
        raise ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def run(args: Namespace, talk: Talk) -> int:
    """Import, say what became of it, and what to do next."""
    from dipstick import load  # noqa: PLC0415 - loads Polars
    from dipstick.cli.import_told import document, told  # noqa: PLC0415 - loads Polars
    from dipstick.cli.progress import file_progress  # noqa: PLC0415 - loads rich where there is a terminal
    from dipstick.importers.files import import_files  # noqa: PLC0415 - loads Polars

    with file_progress(quiet=talk.quiet) as progress:
        made = import_files(args.files, args.output, _options(args), force=args.force, progress=progress)
    recording = load(made.path)
    if args.json:
        answer_json(document(made, recording))
        return EXIT_ANSWERED
    answer(told(made, recording))
    talk.next(["dipstick", "explain", args.output], "where the seconds went")
    return EXIT_ANSWERED


def _options(args: Namespace) -> Options:
    """What the command line says of the files."""
    from dipstick.importers.binding import parse_wish  # noqa: PLC0415 - --help stays light
    from dipstick.importers.options import Options, parse_start, parse_zone  # noqa: PLC0415 - --help stays light

    tz = None if args.tz is None else parse_zone(args.tz)
    short = {"time": args.time_col, "gpu": args.gpu_col, "util_pct": args.util_col}
    said = [*args.bind, *(f"{column}={meaning}" for meaning, column in short.items() if column is not None)]
    return Options(
        format=args.format,
        tz=tz,
        start_ns=None if args.start is None else parse_start(args.start, tz),
        interval_ns=None if args.interval is None else round(args.interval * 1e9),
        time_format=args.time_format,
        gpus=args.gpus,
        wishes=tuple(parse_wish(text) for text in said),
        run=args.run,
    )
