"""Which run of a store that holds several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.errors import ImportFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping


def one_run(runs: Mapping[str, str], wanted: str, where: str) -> str:
    """The id of the run to read.

    Args:
        runs: Name by id.
        wanted: ``--run``: an id or a name; empty: there must be one.
        where: The store.

    Raises:
        ImportFormatError: There is none, or several fit; they are listed.
    """
    fit = [key for key, name in runs.items() if not wanted or wanted in (key, name)]
    if len(fit) == 1:
        return fit[0]
    listed = ", ".join(f"{name or '(no name)'} ({key})" for key, name in list(runs.items())[:20]) or "none"
    says = "no such run" if wanted and not fit else f"{len(fit)} runs, and a recording is of one"
    raise ImportFormatError(f"it holds {says}.", where=where, fix=f"Choose: --run ID. Runs: {listed}.")
