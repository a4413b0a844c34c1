"""A modification worker: a GNN surrogate on the rank's own GPU, one structure at a time.

Workers know nothing of each other: no barrier, no lock, no collective. The only place where anybody
waits for the slowest of them is the gather of rewards in the trainer.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from ase.optimize import FIRE

if TYPE_CHECKING:
    from ase import Atoms
    from ase.calculators.calculator import Calculator

MAX_STEPS = 100
FMAX = 0.1


@cache
def surrogate() -> Calculator:
    """The pretrained interatomic potential, loaded once a process."""
    from chgnet.model.dynamics import CHGNetCalculator  # noqa: PLC0415  # 10 s; the trainer never needs it

    return CHGNetCalculator(use_device=f"cuda:{os.environ.get('LOCAL_RANK', '0')}")


def start() -> None:
    """Runs once in each new worker."""
    surrogate()


def score(structure: Atoms) -> float:
    """Relax a structure and score its density [amu/A^3]: 1 at 1.0 below the start, 0 at the start."""
    before = structure.get_masses().sum() / structure.get_volume()
    structure.calc = surrogate()
    FIRE(structure, logfile=None).run(fmax=FMAX, steps=MAX_STEPS)
    after = structure.get_masses().sum() / structure.get_volume()
    return float(min(max(before - after, 0.0), 1.0))
