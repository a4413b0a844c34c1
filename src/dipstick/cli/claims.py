"""Judge your own story against a recording.

List the tests, show one, or check claims:

    dipstick claims list
    dipstick claims show phase_longest
    dipstick claims check RUN claims.yaml --claim 'paid_most_for phase=reward'

A claims file is a list of {say: "...", test: NAME, parameter: value}.
"""

from __future__ import annotations

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED, EXIT_FAIL_ON, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from dipstick.cli.output import Talk
    from dipstick.judgement import Claim
    from dipstick.verdicts.claims import ClaimTest

NAME = "claims"
WORDS = ("list", "show", "check")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("what", metavar="list|show|check", choices=WORDS, help="what to do")
    parser.add_argument(
        "names", metavar="NAME|RUN|FILE", nargs="*", help="a test to show; or a recording, then claims files"
    )
    parser.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="TEXT",
        help="'what is said: TEST name=value ...'; can be repeated",
    )
    parser.add_argument("--repo", metavar="PATH", help="a checkout of the training code, read and never run")
    parser.add_argument(
        "--fail-on",
        choices=("no", "unconfirmed"),
        help="exit with 3 if any claim gets this verdict (or worse)",
    )


def run(args: Namespace, talk: Talk) -> int:
    """Do it."""
    if args.what == "check":
        return _check(args, talk)
    from dipstick.verdicts import scorecard  # noqa: PLC0415 - loads NumPy
    from dipstick.verdicts.claims import TESTS  # noqa: PLC0415 - loads NumPy

    assert scorecard.REGISTERED  # noqa: S101 - importing it registers the tests
    unknown = [name for name in args.names if name not in TESTS]
    if unknown:
        raise UsageError(f"there is no test {unknown[0]!r}", fix=f"tests: {', '.join(sorted(TESTS))}")
    if args.what == "show" and not args.names:
        raise UsageError("which test?", fix=f"dipstick claims show {next(iter(sorted(TESTS)))}")
    chosen = [TESTS[name] for name in args.names or sorted(TESTS)]
    if args.json:
        answer_json({"tests": [_described(test) for test in chosen]})
    else:
        answer("\n".join(_line(test) if args.what == "list" else _page(test) for test in chosen))
    return EXIT_ANSWERED


def _check(args: Namespace, talk: Talk) -> int:
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from dipstick import explain  # noqa: PLC0415 - loads Polars
    from dipstick.verdicts.scorecard import scorecard  # noqa: PLC0415 - loads NumPy

    if not args.names:
        raise UsageError("which recording?", fix="dipstick claims check RUN [claims.yaml] [--claim TEXT]")
    run_name, *files = args.names
    report = explain(run_name, claims_files=[Path(f) for f in files], claims=args.claim, repo=args.repo)
    first = len(scorecard()) if files or args.claim else 0  # the built-in ones come first in a report
    own = report.claims[first:]
    if args.json:
        from dipstick.show.json import document  # noqa: PLC0415 - --help stays light

        answer_json({"claims": (document(report)["claims"] or [])[first:]})
    else:
        answer("\n".join(_verdict(claim) for claim in own) or "no claims")
        talk.next([*_same_command(args), "--json"], "the numbers and receipts")
    return EXIT_FAIL_ON if fails(own, args.fail_on) else EXIT_ANSWERED


def _same_command(args: Namespace) -> list[str]:
    """The words that ask for these claims again."""
    repo = ["--repo", args.repo] if args.repo else []
    return [
        "dipstick",
        "claims",
        "check",
        *args.names,
        *(w for c in args.claim for w in ("--claim", c)),
        *repo,
    ]


def fails(judged: tuple[Claim, ...], level: str | None) -> bool:
    """Whether a claim got a verdict that the caller does not accept."""
    bad = {"no": {"no"}, "unconfirmed": {"no", "unconfirmed"}}.get(level or "", set())
    return any(claim.verdict.word in bad for claim in judged)


def _verdict(claim: Claim) -> str:
    from dipstick.show.words import clean  # noqa: PLC0415 - --help stays light

    lines = [f"{claim.verdict.word:<12} {clean(claim.say)}", f"{'':<13}{clean(claim.verdict.because, 1000)}"]
    if claim.verdict.word != "yes" and claim.verdict.min_detectable is not None:
        needed = f", {claim.verdict.steps_needed} steps would do" if claim.verdict.steps_needed else ""
        lines.append(
            f"{'':<13}smallest effect seen with power 0.8: {claim.verdict.min_detectable:.3g}{needed}"
        )
    if claim.verdict.cheapest_experiment:
        lines.append(f"{'':<13}to settle it: {claim.verdict.cheapest_experiment}")
    return "\n".join(lines)


def _described(test: ClaimTest) -> dict[str, Any]:
    parameters = [
        {"name": p.name, "type": p.kind.__name__, "required": p.required, "default": p.default}
        for p in test.parameters
    ]
    return {"name": test.name, "doc": test.doc, "parameters": parameters}


def _line(test: ClaimTest) -> str:
    named = " ".join(p.name if p.required else f"[{p.name}={p.default}]" for p in test.parameters)
    return f"{test.name} {named}".rstrip() + f"\n    {test.doc.splitlines()[0]}"


def _page(test: ClaimTest) -> str:
    lines = [test.name, f"  {test.doc}"]
    lines += [
        f"  {p.name}: {p.kind.__name__}, {'required' if p.required else f'default {p.default}'}"
        for p in test.parameters
    ]
    words = " ".join(f"{p.name}=..." for p in test.parameters if p.required)
    return "\n".join([*lines, f"  --claim '{f'{test.name} {words}'.strip()}'"])
