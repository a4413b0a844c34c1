"""The parser: global flags before or after the verb, one sub-parser a verb."""

from __future__ import annotations

import argparse

from dipstick import __version__
from dipstick.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, Protocol

    from dipstick.cli.output import Talk

    class Command(Protocol):
        """A verb; the modules of this package are such objects."""

        @property
        def NAME(self) -> str:  # noqa: N802 - a module constant
            """The verb."""

        @property
        def __doc__(self) -> str | None:  # type: ignore[override] # a module's docstring may be absent
            """Help: the first line in lists, all of it in the verb's own help."""

        def add_arguments(self, parser: argparse.ArgumentParser) -> None:
            """Declare what the verb takes."""

        def run(self, args: argparse.Namespace, talk: Talk) -> int:
            """Do it; return the exit status."""


class Program:
    """A command with verbs: its name, what its help says around the list of verbs."""

    def __init__(self, name: str, description: str, epilog: str) -> None:
        self.name = name
        self.description = description
        self.epilog = epilog


DIPSTICK = Program(
    "dipstick",
    "Why does my GPU utilization keep dipping? Explains colocated RL post-training runs.",
    """RUN is a recording folder, or a shipped sample: sample:h200x2-grpo
exit status: 0 answered, 1 could not answer (the message says why), 2 usage""",
)


class Parser(argparse.ArgumentParser):
    """argparse, with errors as UsageError: one shape for all messages."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        raise UsageError(message, fix=f"see: {self.prog} --help")


def make_parser(commands: Sequence[Command], program: Program = DIPSTICK) -> Parser:
    """The whole command line."""
    version = f"{program.name} {__version__}"
    parser = Parser(
        prog=program.name,
        description=program.description,
        epilog=program.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version)
    _add_global(parser, default=False)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for command in commands:
        text = (command.__doc__ or "").strip()
        verb = verbs.add_parser(
            command.NAME,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(verb)
        verb.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
        _add_global(verb, default=argparse.SUPPRESS)
        verb.set_defaults(command=command)
    return parser


def _add_global(parser: argparse.ArgumentParser, *, default: bool | str) -> None:
    """The flags of every verb. Absent after the verb, they keep what was said before it."""
    group = parser.add_argument_group("everywhere")
    group.add_argument("--json", action="store_true", default=default, help="the answer as JSON on stdout")
    group.add_argument(
        "--quiet", "-q", action="store_true", default=default, help="nothing on stderr but errors"
    )
    group.add_argument(
        "--verbose", "-v", action="store_true", default=default, help="with errors, the traceback"
    )


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def finite(text: str) -> float:
    """A number that is not NaN or infinite, for argparse."""
    value = float(text)
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN, without importing math
        raise argparse.ArgumentTypeError(f"{text} is no point in time")
    return value
