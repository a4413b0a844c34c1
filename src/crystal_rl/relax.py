"""Relaxation: ASE's FIRE on positions and cell, with a cap on steps, a deadline, and a watch on divergence."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase.filters import FrechetCellFilter
from ase.optimize import FIRE

from crystal_rl.errors import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ase import Atoms
    from ase.calculators.calculator import BaseCalculator

    from crystal_rl.messages import Relaxation

RATTLE_A = 0.01
"""Symmetric crystals have no forces: without a rattle they stay on their saddle points."""
MAX_FORCE = 50.0
"""eV/Å; more is no chemistry."""
MIN_SCALE, MAX_SCALE = 0.5, 2.0
"""Of the volume before."""


class RelaxationStoppedError(Rejection):
    """A relaxation that did not end well.

    Attributes:
        steps: How many it took until then.
    """

    def __init__(self, code: str, message: str, steps: int) -> None:
        super().__init__(code, message)
        self.steps = steps


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A converged crystal with its calculator attached, and the steps it took."""

    atoms: Atoms
    steps: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which work stops.

    Attributes:
        seconds: What was allowed.
        at: The clock's reading at which it ends.
        clock: Seconds, monotonic.
    """

    seconds: float
    at: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """From now on."""
        return cls(seconds, clock() + seconds, clock)

    @property
    def is_over(self) -> bool:
        """Has it passed?"""
        return self.clock() >= self.at


def relax(
    atoms: Atoms,
    calculator: BaseCalculator,
    settings: Relaxation,
    *,
    seed: int,
    deadline: Deadline,
    beat: Callable[[int, float], None] | None = None,
) -> Relaxed:
    """Relax a copy until no force exceeds ``settings.fmax``.

    Args:
        atoms: The crystal; left alone.
        calculator: Energies, forces, and stresses if the cell is to relax.
        settings: Largest force, step cap, cell or not.
        seed: Of the rattle.
        deadline: Checked at each step.
        beat: Told the step and the largest force, eV/Å, at each step.

    Raises:
        RelaxationStoppedError: ``diverged``, ``not_converged`` or ``timeout``.
    """
    copy = atoms.copy()
    copy.rattle(RATTLE_A, seed=seed)
    copy.calc = calculator
    volume, steps, largest, is_converged = float(copy.cell.volume), 0, math.nan, False
    optimizer = FIRE(FrechetCellFilter(copy) if settings.cell else copy, logfile=None)
    for is_converged in _steps(optimizer, settings, copy, volume):
        steps = optimizer.nsteps
        largest = _largest_force(copy)
        _check(largest, float(copy.cell.volume) / volume, steps)
        if beat:
            beat(steps, largest)
        if deadline.is_over and not is_converged:
            raise RelaxationStoppedError("timeout", _late(deadline, steps, largest), steps)
    if not is_converged:
        text = f"largest force {largest:.2f} eV/Å after {steps} steps; {settings.fmax:g} is wanted"
        raise RelaxationStoppedError("not_converged", text, steps)
    return Relaxed(copy, steps)


def _steps(optimizer: FIRE, settings: Relaxation, atoms: Atoms, volume: float) -> Iterator[bool]:
    """The optimiser's steps; its and the calculator's failures count as divergence if the crystal has blown up.

    Anything else that fails (memory, say) says nothing about the crystal and goes up as it is.
    """
    try:
        with warnings.catch_warnings():
            # ASE and SciPy warn about ill matrices of cells that blow up; _check says so in our words.
            warnings.simplefilter("ignore", RuntimeWarning)
            yield from optimizer.irun(fmax=settings.fmax, steps=settings.max_steps)
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        scale = float(atoms.cell.volume) / volume
        if np.isfinite(atoms.positions).all() and MIN_SCALE <= scale <= MAX_SCALE:
            raise
        text = f"the surrogate failed on a crystal blown up to x{scale:.3g} of its volume"
        raise RelaxationStoppedError("diverged", text, optimizer.nsteps) from error


def _largest_force(atoms: Atoms) -> float:
    return float(np.sqrt((atoms.get_forces() ** 2).sum(axis=1).max()))


def _check(force: float, scale: float, steps: int) -> None:
    if not (math.isfinite(force) and math.isfinite(scale)):
        raise RelaxationStoppedError("diverged", f"not a number at step {steps}", steps)
    if force > MAX_FORCE:
        text = f"a force of {force:.0f} eV/Å at step {steps}; at most {MAX_FORCE:g} is believed"
        raise RelaxationStoppedError("diverged", text, steps)
    if not MIN_SCALE <= scale <= MAX_SCALE:
        text = (
            f"the volume went to x{scale:.2f} at step {steps}; x{MIN_SCALE:g} to x{MAX_SCALE:g} is believed"
        )
        raise RelaxationStoppedError("diverged", text, steps)


def _late(deadline: Deadline, steps: int, force: float) -> str:
    return f"{deadline.seconds:g} s were over at step {steps}, largest force {force:.2f} eV/Å"
