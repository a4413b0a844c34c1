"""Score a policy on fresh problems: mean reward, valid share, what fails.

Settings as for training (see crystal-rl train --help); --tasks problems, --completions answers each. The problems are
not those that training draws from the same seed.
"""

from __future__ import annotations

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from crystal_rl.evaluate import Evaluation
    from dipstick.cli.output import Talk

NAME = "evaluate"
GROUPS = ("policy", "generation", "tasks", "workers", "run")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    from crystal_rl import options  # noqa: PLC0415 - light, but only for this verb's help

    parser.add_argument("--adapter", metavar="DIR", help="LoRA adapter: OUTPUT/final of a training run")
    options.add_arguments(parser, GROUPS)


def run(args: Namespace, talk: Talk) -> int:
    """Evaluate and print."""
    import dataclasses  # noqa: PLC0415 - --help stays light

    from crystal_rl import options  # noqa: PLC0415 - the same
    from crystal_rl.evaluate import evaluate  # noqa: PLC0415 - the same

    found = evaluate(options.read(args), args.adapter, talk.say)
    if args.json:
        answer_json({**dataclasses.asdict(found.summary), "metrics": found.metrics})
    else:
        answer(told(found))
    return EXIT_ANSWERED


def told(found: Evaluation) -> str:
    """The result in words and one line a failure."""
    from crystal_rl.cli.common import table  # noqa: PLC0415 - --help stays light

    summary = found.summary
    reward = "none was scored" if summary.mean_reward is None else f"mean reward {summary.mean_reward:.3f}"
    head = f"{summary.completions} completions: {reward}; {found.metrics['valid']:.0%} valid, {summary.ok} relaxed"
    lost = f", {summary.lost} lost with their workers" if summary.lost else ""
    rows = [(code, count) for code, count in summary.codes.items()]
    return "\n".join([f"{head}{lost}.", *([table(rows)] if rows else [])])
