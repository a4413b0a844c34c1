"""Score completions: parse, edit, relax, reward; no training.

FILE (or - for stdin) is one completion as plain text, or JSON lines: objects with "completion" and, if they
differ from the options, "id", "structure" and "goal" ({"property", "target", "width"} or {"property",
"direction", "low", "high"}). Every completion gets a reward and every term of it, or a code that says what is
wrong. A completion can be anything; it is read as data and nothing else.
"""

from __future__ import annotations

from crystal_rl.cli.common import add_relaxation, add_surrogate, need, table
from dipstick.cli.options import finite
from dipstick.cli.output import answer
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from crystal_rl.messages import Result
    from crystal_rl.summary import Summary
    from dipstick.cli.output import Talk

NAME = "score"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="completions; -: stdin (default)"
    )
    parser.add_argument(
        "--structure",
        metavar="ID",
        help="what is edited: one of crystal-rl structures, or a .cif, .xyz, .vasp file",
    )
    parser.add_argument(
        "--property", metavar="NAME", default="density", help="what the goal is about (density)"
    )
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--target", metavar="T", type=finite, help="bring the property to T")
    goal.add_argument(
        "--higher", metavar=("LOW", "HIGH"), nargs=2, type=finite, help="0 at LOW, 1 at HIGH and above"
    )
    goal.add_argument(
        "--lower", metavar=("LOW", "HIGH"), nargs=2, type=finite, help="1 at LOW and below, 0 at HIGH"
    )
    parser.add_argument("--width", metavar="W", type=finite, default=1.0, help="a miss by W is worth 0 (1)")
    add_surrogate(parser)
    add_relaxation(parser)


def run(args: Namespace, talk: Talk) -> int:
    """Score all, print all."""
    need()
    from crystal_rl.completions import jobs_of, read_text  # noqa: PLC0415 - --help stays light
    from crystal_rl.messages import Result  # noqa: PLC0415 - --help stays light
    from crystal_rl.scoring import load_scorer  # noqa: PLC0415 - loads ASE
    from crystal_rl.summary import summarise  # noqa: PLC0415 - --help stays light
    from crystal_rl.surrogate import elements_of  # noqa: PLC0415 - --help stays light

    talk.say(f"scoring with {args.surrogate} on {args.device}")
    jobs = jobs_of(read_text(args.file), args, elements_of(args.surrogate))
    scorer = load_scorer(args.surrogate, args.device)
    results = [job if isinstance(job, Result) else scorer.evaluate(job) for job in jobs]
    summary = summarise(results, [None if isinstance(job, Result) else job.edits for job in jobs])
    if args.json:
        answer(_json(scorer.model, results, summary))
    else:
        answer(f"{_table(results)}\n\n{_sentence(summary)}")
    return EXIT_ANSWERED


def _json(model: str, results: Sequence[Result], summary: Summary) -> str:
    import dataclasses  # noqa: PLC0415 - --help stays light
    import json  # noqa: PLC0415 - --help stays light

    from crystal_rl.messages import plain  # noqa: PLC0415 - --help stays light

    value = {
        "schema_version": 1,
        "model": model,
        "results": [plain(result) for result in results],
        "summary": dataclasses.asdict(summary),
    }
    return json.dumps(value, indent=2, allow_nan=False)


def _table(results: Sequence[Result]) -> str:
    head = ("id", "reward", "S", "E", "C", "edits", "steps", "value", "what")
    return table([head, *map(_row, results)])


def _row(result: Result) -> tuple[str, ...]:
    reward = "-" if result.reward is None else f"{result.reward:.3f}"
    if result.terms is None:
        return (result.id, reward, *"----", str(result.steps), "-", f"{result.code}: {result.message}")
    t = result.terms
    terms = (f"{t.closeness:.3f}", f"{t.stability:.3f}", f"{t.chemistry:.0f}", str(t.edits))
    return (result.id, reward, *terms, str(result.steps), f"{result.value:.4g}", "ok")


def _sentence(summary: Summary) -> str:
    mean = "-" if summary.mean_reward is None else f"{summary.mean_reward:.3f}"
    codes = ", ".join(f"{count} {code}" for code, count in summary.codes.items())
    failed = f"; {codes}" if codes else ""
    return f"{summary.ok} of {summary.completions} scored, mean reward {mean}{failed}"
