"""The command line ``crystal-rl``: a list of verbs.

Nothing here imports ASE, torch or NumPy: ``crystal-rl --help`` answers at once, a verb loads what it needs.
"""

from __future__ import annotations

from crystal_rl.cli import demo, evaluate, score, structures, train
from dipstick.cli.options import Program
from dipstick.cli.program import run_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.cli.options import Command

COMMANDS: tuple[Command, ...] = (train, evaluate, score, structures, demo)
"""One module a verb: its docstring is its help, ``NAME`` the verb, ``add_arguments`` and ``run`` do the rest."""

PROGRAM = Program(
    "crystal-rl",
    "GRPO on a language model that edits crystals, scored by GNN workers that share its device.",
    "exit status: 0 answered, 1 could not answer (the message says why), 2 usage",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    Args:
        argv: Arguments without the program's name; None takes the process's own.
    """
    return run_program(PROGRAM, COMMANDS, argv)
