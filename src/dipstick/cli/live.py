"""Watch a run while it records.

Shows each second what every GPU and rank is doing, who is waited for, where the last step went, and what recording
costs. RUN is the folder of a `dipstick run` that goes on, or a finished recording, which is replayed. It only reads:
the run is not slowed, and stopping it stops nothing else. Phases are shown 1.5 s late, so that they are right.

With --web it is the interactive report instead, on a page of this machine that takes in what is new without a reload.

keys: q quit, space pause, left and right 10 s back and forth
"""

from __future__ import annotations

import argparse
import sys

from dipstick.cli.options import finite, positive
from dipstick.errors import EXIT_ANSWERED, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.live_feed import Feed
    from dipstick.cli.output import Talk

NAME = "live"
SHORTEST_S, LONGEST_S = 0.1, 60.0
FASTEST = 1000.0
NICENESS = 10


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("run", metavar="RUN", help="a recording folder, or sample:NAME")
    parser.add_argument("--once", action="store_true", help="print one screen and leave")
    parser.add_argument(
        "--interval", metavar="S", type=_interval, default=1.0, help="seconds between two looks (1)"
    )
    parser.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0, help="replay so many times as fast (1)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="S",
        type=finite,
        help="replay from this second on, a run that goes on as well; with --once, show this second",
    )
    parser.add_argument(
        "--web", action="store_true", help="serve the report as a page that grows with the run"
    )
    parser.add_argument(
        "--port", metavar="N", type=_port, default=0, help="of the page; a free one if absent"
    )
    parser.add_argument("--no-token", action="store_true", help="let every user of this machine see the page")
    parser.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR does the same)")
    parser.add_argument("--width", metavar="N", type=positive, help="columns; the terminal's if absent")
    parser.add_argument("--height", metavar="N", type=positive, help="lines; the terminal's if absent")


def run(args: Namespace, talk: Talk) -> int:
    """Watch, in the form that was asked for."""
    if args.web and args.once:
        raise UsageError(
            "--web serves, --once leaves", fix="for a page to keep: dipstick explain RUN -o report.html"
        )
    _go_easy(once=args.once)
    if args.web:
        return _serve(args, talk)
    from dipstick.cli import live_screen  # noqa: PLC0415 - loads rich and Polars
    from dipstick.cli.live_feed import open_feed  # noqa: PLC0415 - as above

    feed = open_feed(args.run, speed=args.speed, start=args.start, once=args.once)
    screen = live_screen.Screen.of(sys.stdout, color=not args.no_color, width=args.width, height=args.height)
    if args.json:
        live_screen.stream(feed, sys.stdout, args.interval, once=args.once)
    elif args.once or not screen.is_terminal:
        if not args.once:
            talk.say("stdout is no terminal: one screen (--json prints an object each second)")
        live_screen.print_once(feed, screen)
    else:
        live_screen.watch(feed, screen, args.interval)
    _say_next(feed, args, talk)
    return EXIT_ANSWERED


def _serve(args: Namespace, talk: Talk) -> int:
    from dipstick.cli.live_feed import open_feed  # noqa: PLC0415 - loads Polars
    from dipstick.cli.live_web import serve  # noqa: PLC0415 - as above

    serve(open_feed(args.run, once=True), args, talk)
    return EXIT_ANSWERED


def _say_next(feed: Feed, args: Namespace, talk: Talk) -> None:
    if feed.has_ended and not args.json:
        talk.next(["dipstick", "explain", args.run], "where the seconds went")


def _go_easy(*, once: bool) -> None:
    """Training may need every core: one thread, and what others leave. Only in a process of our own."""
    import os  # noqa: PLC0415 - --help stays light

    if "polars" not in sys.modules:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if not once:
            os.nice(NICENESS)


def _interval(text: str) -> float:
    return _within(text, SHORTEST_S, LONGEST_S)


def _speed(text: str) -> float:
    return _within(text, 1 / FASTEST, FASTEST)


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65_535:  # noqa: PLR2004 - what a port can be
        raise argparse.ArgumentTypeError(f"{text} is no port")
    return value


def _within(text: str, low: float, high: float) -> float:
    value = float(text)
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is not within {low:g} and {high:g}")
    return value
