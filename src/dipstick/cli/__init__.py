"""The command line: a list of verbs.

Nothing here imports NumPy, Polars or rich: ``dipstick --help`` answers at once, a verb loads what it needs.
"""

from __future__ import annotations

from dipstick.cli import claims, demo, doctor, explain, export, import_, live, query, ray_env, run, selftest
from dipstick.cli.options import DIPSTICK
from dipstick.cli.program import run_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.cli.options import Command

COMMANDS: tuple[Command, ...] = (
    run,
    live,
    explain,
    claims,
    query,
    export,
    import_,
    demo,
    doctor,
    ray_env,
    selftest,
)
"""One module a verb: its docstring is its help, ``NAME`` the verb, ``add_arguments`` and ``run`` do the rest."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    Args:
        argv: Arguments without the program's name; None takes the process's own.
    """
    return run_program(DIPSTICK, COMMANDS, argv)
