"""Check dipstick on runs whose truth is planted.

Draws synthetic runs (a healthy one, a slow worker, bus copies, checkpoints, another process on the GPU ...), writes each
as a recording, explains it, and prints what was planted against what was found. Exit status 1 if anything differs.
The tests have a level of 5 %: another seed can show a drift, or a last rank, by chance.
"""

from __future__ import annotations

import os

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED, EXIT_NO_ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from typing import Any

    from dipstick.cli.output import Talk
    from dipstick.selftest.confusion import Outcome

NAME = "selftest"
MOST_PROCESSES = 4


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="scenarios to run; all if none is named")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="draw other runs of the same kinds (0)"
    )


def run(args: Namespace, talk: Talk) -> int:
    """Run the scenarios and print the table."""
    from dipstick.selftest.confusion import table  # noqa: PLC0415 - --help stays light
    from dipstick.selftest.run import run as judge  # noqa: PLC0415 - loads NumPy

    processes = min(os.cpu_count() or 1, MOST_PROCESSES)
    outcomes = []
    for outcome in judge(args.names, args.seed, processes=processes):
        outcomes.append(outcome)
        talk.say(
            f"{outcome.scenario}: {outcome.about}: {'ok' if outcome.passed else 'DIFFERS'} ({outcome.seconds:z.1f} s)"
        )
    if args.json:
        answer_json(document(outcomes, args.seed))
    else:
        answer(table(outcomes))
    return EXIT_ANSWERED if all(outcome.passed for outcome in outcomes) else EXIT_NO_ANSWER


def document(outcomes: Sequence[Outcome], seed: int) -> dict[str, Any]:
    """The table as JSON."""
    return {
        "seed": seed,
        "passed": sum(outcome.passed for outcome in outcomes),
        "scenarios": [
            {
                "name": o.scenario, "about": o.about, "passed": o.passed, "error": o.error or None,
                "findings": [
                    {"finding": c.finding, "expected": c.expected or None, "found": c.found or None, "state": c.state}
                    for c in o.cells
                ],
            }
            for o in outcomes
        ],
    }  # fmt: skip
