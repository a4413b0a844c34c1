"""What several verbs need: packages that may be absent, surrogate options, files that are not overwritten."""

from __future__ import annotations

import os

from dipstick.cli.options import positive
from dipstick.errors import DipstickError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any

NEEDED = ("ase", "numpy", "scipy")


def need(*packages: str) -> None:
    """Nothing, if the packages are installed.

    Raises:
        DipstickError: One is not; it says how to get them.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - --help stays light

    missing = [name for name in (*NEEDED, *packages) if find_spec(name) is None]
    if missing:
        raise DipstickError(
            f"not installed: {', '.join(missing)}",
            fix="pip install 'dipstick[crystal]' and what docs/crystal_rl.md says of surrogates",
        )


def add_surrogate(parser: ArgumentParser) -> None:
    """``--surrogate`` and ``--device``."""
    parser.add_argument(
        "--surrogate",
        metavar="NAME",
        default="chgnet",
        help="chgnet (default), chgnet-r2scan, sevennet, fake, or package.module:function",
    )
    parser.add_argument("--device", metavar="DEVICE", default="cpu", help="cpu (default), cuda, cuda:1")


def add_relaxation(parser: ArgumentParser) -> None:
    """``--max-steps``, ``--fmax``, ``--deadline`` and ``--seed``."""
    parser.add_argument("--max-steps", metavar="N", type=positive, default=100, help="relaxation steps (100)")
    parser.add_argument("--fmax", metavar="F", type=above_0, default=0.1, help="largest force, eV/Å (0.1)")
    parser.add_argument(
        "--deadline", metavar="S", type=above_0, default=60.0, help="seconds a completion may take (60)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the rattle (0)")


def above_0(text: str) -> float:
    """A finite number above 0, for argparse."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def check_new(path: str, *, force: bool) -> None:
    """Nothing, if the file may be written: before the work that it is to hold.

    Raises:
        DipstickError: It is there already, and ``force`` is not given.
    """
    if os.path.exists(path) and not force:  # noqa: PTH110 - pathlib is loaded by verbs only
        raise DipstickError("is there already", where=path, fix="--force overwrites it")


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns; text from outside loses its control characters."""
    from dipstick.show.words import clean  # noqa: PLC0415 - --help stays light

    cells = [[clean(str(value), 200) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)
