"""The one place where errors become exit codes, for every command with verbs that is ours."""

from __future__ import annotations

import errno
import sys

from dipstick.cli.options import make_parser
from dipstick.cli.output import Talk, drop_stdout
from dipstick.errors import EXIT_ANSWERED, EXIT_NO_ANSWER, EXIT_USAGE, DipstickError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from dipstick.cli.options import Command, Parser, Program

_INTERRUPTED = 130
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Of a write to a file that is open already: Python names no file then, and it is no bug of ours."""
_MAKE_ROOM = "Make room (df -h), or write to another disk with -o; then run it again."
_BUG = "this is a bug in {}, please report it; run again with -v for the traceback"


def run_program(program: Program, commands: Sequence[Command], argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    Args:
        program: The command.
        commands: Its verbs.
        argv: Arguments without the program's name; None takes the process's own.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    talk = Talk(traceback=_asks_for_traceback(words), program=program.name)
    try:
        status = _run(words, talk, make_parser(commands, program))
        sys.stdout.flush()
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else EXIT_ANSWERED
    except DipstickError as error:
        talk.error(error.message())
        return error.exit_code
    except BrokenPipeError:  # `dipstick explain RUN | head`: the reader has what it wanted
        drop_stdout()
        return EXIT_ANSWERED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - a panic of Polars is a BaseException, and none may end in a traceback
        return _unexpected(error, talk)
    return status


def _run(words: Sequence[str], talk: Talk, parser: Parser) -> int:
    if not words:
        talk.say(parser.format_help().rstrip())
        return EXIT_USAGE
    args: Namespace = parser.parse_args(words)
    talk.quiet = args.quiet
    command: Command = args.command
    return command.run(args, talk)


def _unexpected(error: BaseException, talk: Talk) -> int:
    """A file that cannot be written is the user's to fix; everything else is ours."""
    if isinstance(error, OSError) and error.filename is not None:
        talk.error(f"{error.filename}: {error.strerror}")
    elif isinstance(error, OSError) and error.errno in _FULL:
        talk.error(f"{error.strerror}: what was written is not whole\n{_MAKE_ROOM}")
    else:
        talk.error(f"{type(error).__name__}: {error}: {_BUG.format(talk.program)}")
    return EXIT_NO_ANSWER


def _asks_for_traceback(words: Sequence[str]) -> bool:
    """``-v`` of ours; what comes after ``--`` belongs to another program."""
    ours = words[: words.index("--")] if "--" in words else words
    return "-v" in ours or "--verbose" in ours
