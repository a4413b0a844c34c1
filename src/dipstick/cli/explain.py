"""Say where the seconds of a recording went, and why.

Prints one screen: the answer, what the GPUs and ranks did, what the dips are, who waited for whom; with --full
everything that was found. With -o all of it is written to files, in the format of their suffix (.html, .md,
.json; .svg and .png are pictures), and only the answer is printed.
"""

from __future__ import annotations

import sys
from argparse import BooleanOptionalAction

from dipstick.cli.claims import fails
from dipstick.cli.options import finite, positive
from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED, EXIT_FAIL_ON, DipstickError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from dipstick.cli.output import Talk
    from dipstick.model import Report
    from dipstick.show import Format
    from dipstick.show.lanes import Range

NAME = "explain"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("run", metavar="RUN", help="a recording folder, or sample:NAME")
    parser.add_argument(
        "--receipts",
        metavar="CHECK",
        help="print the evidence of one check (alignment, phases, memory_spikes, stragglers, trends) or of a claim (its number)",
    )
    add_output_arguments(parser)


def add_output_arguments(parser: ArgumentParser) -> None:
    """What is the same for every verb that shows a report."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help="write .html, .md, .json, or a picture (loop.svg, trace.png); can be repeated",
    )
    parser.add_argument(
        "--picture",
        choices=("loop", "trace"),
        help="what .svg and .png show; without it the loop if the file's name has loop in it, else the trace",
    )
    parser.add_argument(
        "--redact",
        action=BooleanOptionalAction,
        help="replace host names, user names, paths and command lines in files; default: in all but .json",
    )
    parser.add_argument("--repo", metavar="PATH", help="a checkout of the training code: read, never run")
    parser.add_argument(
        "--claims", metavar="FILE", action="append", default=[], help="judge the claims of a YAML file too"
    )
    parser.add_argument(
        "--claim", metavar="TEXT", action="append", default=[], help="'what is said: TEST name=value ...'"
    )
    parser.add_argument(
        "--fail-on",
        choices=("no", "unconfirmed"),
        help="exit with 3 if one of your own claims gets this verdict, or worse",
    )
    parser.add_argument("--full", action="store_true", help="print everything, not one screen")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR does the same)")
    parser.add_argument("--width", metavar="N", type=positive, help="columns; the terminal's if absent")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="S",
        type=finite,
        help="draw the lanes (and trace.png) from this second on",
    )
    parser.add_argument("--to", dest="end", metavar="S", type=finite, help="draw the lanes up to this second")


def run(args: Namespace, talk: Talk) -> int:
    """Explain and show."""
    if args.receipts is not None:
        return _show_receipts(args)
    report = show(args.run, args, talk)
    if not args.output and not args.json:
        talk.next(["dipstick", "explain", args.run, "-o", "report.html"], "the same as a page to share")
    own = report.claims[len(report.claims) - _own_claims(report) :]
    return EXIT_FAIL_ON if fails(own, args.fail_on) else EXIT_ANSWERED


def _own_claims(report: Report) -> int:
    """How many claims are the user's; the built-in ones come first in a report."""
    from dipstick.verdicts.scorecard import scorecard  # noqa: PLC0415 - loads NumPy

    return len(report.claims) - len(scorecard())


def _show_receipts(args: Namespace) -> int:
    """The evidence of one check or claim, each piece with the command that derives it again."""
    from dipstick.show import receipts  # noqa: PLC0415 - --help stays light

    name = receipts.known_name(args.receipts)
    if args.output:
        raise UsageError(
            "--receipts prints, and writes no file", fix="leave -o out: the files hold the receipts"
        )
    from dipstick import explain  # noqa: PLC0415 - loads Polars
    from dipstick.show.look import detect  # noqa: PLC0415 - loads rich
    from dipstick.show.terminal_verdicts import render_receipts  # noqa: PLC0415 - loads rich

    found = receipts.find(
        explain(args.run, repo=args.repo, claims_files=args.claims, claims=args.claim), name
    )
    if args.json:
        answer_json(
            {"receipts_of": name, "receipts": [receipts.as_json(r, args.run) for r in found.receipts]}
        )
    else:
        look = detect(sys.stdout, color=not args.no_color, width=args.width)
        answer(render_receipts(found, args.run, look))
    return EXIT_ANSWERED


def show(run: str, args: Namespace, talk: Talk) -> Report:
    """Explain a recording and put the report where the arguments say."""
    targets = [_target(name, args) for name in args.output]  # before any work: a typo costs nothing
    from dipstick import explain, load  # noqa: PLC0415 - loads Polars

    recording = load(run) if targets else None
    report = explain(recording or run, repo=args.repo, claims_files=args.claims, claims=args.claim)
    zoom = _zoom(report, args)
    for path, kind in targets:
        path.write_bytes(kind.render(report, recording, redact=args.redact, zoom=zoom))
        talk.say(f"wrote {path}")
    if args.json:
        _answer_json(report)
    elif targets:
        _answer_headline(report)
    else:
        _answer_screen(report, args, zoom)
    return report


def _target(name: str, args: Namespace) -> tuple[Path, Format]:
    """The file and the format that its suffix asks for."""
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from dipstick.show import format_of  # noqa: PLC0415 - --help stays light

    kind, path = format_of(name, args.picture), Path(name)
    if path.exists() and not args.force:
        raise DipstickError("the file exists", where=name, fix="--force replaces it")
    if not path.parent.is_dir():
        raise DipstickError(
            "there is no such folder", where=str(path.parent), fix="make it first, or write elsewhere"
        )
    return path, kind


def _zoom(report: Report, args: Namespace) -> Range | None:
    """The stretch that --from and --to ask for."""
    if args.start is None and args.end is None:
        return None
    from dipstick.show.lanes import between  # noqa: PLC0415 - loads NumPy

    zoom = between(report, args.start, args.end)
    if zoom.t0 >= zoom.t1 or zoom.t1 <= 0 or zoom.t0 >= report.run.seconds:
        window = "{:.1f} to {:.1f} s".format(*report.run.window_s)
        raise UsageError(
            f"--from {zoom.t0:g} --to {zoom.t1:g} holds nothing", fix=f"the analysis window is {window}"
        )
    return zoom


def _answer_json(report: Report) -> None:
    from dipstick.show.json import document  # noqa: PLC0415 - --help stays light

    answer_json(document(report))


def _answer_headline(report: Report) -> None:
    from dipstick.show.contents import headline  # noqa: PLC0415 - --help stays light

    answer(headline(report))


def _answer_screen(report: Report, args: Namespace, zoom: Range | None) -> None:
    from dipstick.show.look import detect  # noqa: PLC0415 - loads rich
    from dipstick.show.terminal import render  # noqa: PLC0415 - loads rich and NumPy

    look = detect(sys.stdout, color=not args.no_color, width=args.width)
    answer(render(report, look, zoom, full=args.full))
