"""Record a command, with no change to its code.

Starts CMD as if dipstick were not there: its output, terminal, signals and exit status are its own. GPUs and host are
sampled beside it, and every Python process that it starts loads the probe, which sees phases and reward jobs.
Whatever happens to the recording, CMD goes on. At the end, on stderr: what was captured, what was not, and the next
command. With --json that account is one line of JSON on stderr (stdout belongs to CMD).
"""

from __future__ import annotations

import argparse

from dipstick.errors import DipstickError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from dipstick.cli.output import Talk

NAME = "run"
SLOWEST_HZ, FASTEST_HZ = 0.1, 50.0


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("-o", "--output", metavar="RUN", help="the recording folder to make (run-DATE-TIME)")
    parser.add_argument(
        "--hz", metavar="N", type=_hertz, default=10.0, help="polls of each GPU a second (10)"
    )
    parser.add_argument("--force", action="store_true", help="replace RUN if it is a recording")
    parser.add_argument(
        "--join",
        action="store_true",
        help="add this host to RUN, or make it (several nodes, one shared folder)",
    )
    parser.add_argument(
        "cmd", metavar="CMD", nargs=argparse.REMAINDER, help="after --: the command to record"
    )


def run(args: Namespace, talk: Talk) -> int:
    """Record, then account for it; the status is CMD's own."""
    command = tuple(args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd)
    if not command:
        raise UsageError(
            "there is no command to record", fix="dipstick run -- torchrun --nproc_per_node=4 train.py"
        )
    if args.force and args.join:
        raise UsageError("--force replaces RUN and --join adds to it", fix="use one of them")
    from dipstick.capture.supervisor import Plan, record  # noqa: PLC0415 - --help stays light

    plan = Plan(command, _folder(args.output), args.hz, force=args.force, join=args.join)
    outcome = record(plan, lambda text: talk.say(f"dipstick: {text}"), _warn)
    if outcome.captured is not None:
        _account(outcome.captured, talk, as_json=args.json)
        if outcome.captured.is_explainable:
            talk.next(["dipstick", "explain", str(plan.run)], "where the seconds went")
        else:
            talk.next(["dipstick", "doctor"], "what this machine can tell")
    return outcome.status


def _account(captured: object, talk: Talk, *, as_json: bool) -> None:
    """The box, or one line of JSON."""
    import json  # noqa: PLC0415 - --help stays light

    from dipstick.capture import summary  # noqa: PLC0415 - --help stays light
    from dipstick.capture.supervisor import probe_state  # noqa: PLC0415 - --help stays light

    if as_json:
        talk.say(json.dumps(summary.document(captured, probe_state())))  # type: ignore[arg-type] # Captured, from a lazy import
    else:
        talk.say(summary.box(captured, probe_state()))  # type: ignore[arg-type] # Captured, from a lazy import


def _warn(text: str) -> None:
    """Said even when quiet: the recording has lost something."""
    import sys  # noqa: PLC0415 - only when there is something to say

    from dipstick.show.words import clean  # noqa: PLC0415 - only when there is something to say

    print(f"dipstick: {clean(text, 1000)}", file=sys.stderr)  # noqa: T201 - talk goes to stderr


def _folder(name: str | None) -> Path:
    """Where to record: as asked, or a new name from the time."""
    import time  # noqa: PLC0415 - --help stays light
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    if name is not None:
        return Path(name)
    base = time.strftime("run-%Y%m%d-%H%M%S")
    names = (base if n == 1 else f"{base}-{n}" for n in range(1, 1000))
    free = next((Path(name) for name in names if not Path(name).exists()), None)
    if free is None:
        raise DipstickError("a thousand recordings were begun in this second", fix="name one: -o RUN")
    return free


def _hertz(text: str) -> float:
    value = float(text)
    if not SLOWEST_HZ <= value <= FASTEST_HZ:
        raise argparse.ArgumentTypeError(f"{text} is not within {SLOWEST_HZ:g} and {FASTEST_HZ:g}")
    return value
