"""A stand-in for tests: a smooth pair potential whose minimum lies at the sum of two covalent radii. Not physics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ase.calculators.calculator import Calculator, all_changes
from ase.data import chemical_symbols, covalent_radii
from ase.stress import full_3x3_to_voigt_6_stress

from crystal_rl.neighbours import pairs
from crystal_rl.potentials.base import Potential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ase import Atoms
    from numpy.typing import NDArray

ELEMENTS = tuple(chemical_symbols[1:84])
DEPTH = 0.4  # eV a pair
CUTOFF = 1.6  # sums of radii
WIDTH = 0.25  # of the well, in sums of radii
STEEPNESS = 12.0  # of the core


def load(model: str, device: str) -> Potential:
    """Energies of the elements lie between 0 and -2 eV, by their radius."""
    references = {symbol: -float(covalent_radii[number]) for number, symbol in enumerate(ELEMENTS, start=1)}
    return Potential(model, device, references, PairPotential())


class PairPotential(Calculator):  # type: ignore[misc] # ASE is untyped
    """Each pair: ``-DEPTH exp(-((x - 1) / WIDTH)²) taper(x)``, x = distance / (sum of radii), plus a core."""

    implemented_properties = ("energy", "forces", "stress")

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Fill ``results``."""
        super().calculate(atoms, properties, system_changes)
        radii = covalent_radii[self.atoms.numbers]
        i, j, d, vectors = pairs(self.atoms, CUTOFF * radii)
        scale = radii[i] + radii[j]
        energy, slope = _pair(d / scale)
        pulls = (slope / scale / d)[:, None] * vectors  # dE/dr along each bond, seen from i
        forces = np.zeros((len(self.atoms), 3))
        np.add.at(forces, i, pulls)
        stress = np.einsum("pa,pb->ab", pulls, vectors) / 2 / self.atoms.cell.volume
        self.results: dict[str, Any] = {
            "energy": float(energy.sum() / 2),
            "forces": forces,
            "stress": full_3x3_to_voigt_6_stress(stress),
        }


def _pair(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Energy of pairs and its slope dE/dx; both end smoothly at CUTOFF."""
    well = -DEPTH * np.exp(-(((x - 1) / WIDTH) ** 2))
    core = DEPTH * np.exp(-STEEPNESS * (x - 0.8))
    taper, taper_slope = (1 - (x / CUTOFF) ** 2) ** 2, -4 * x / CUTOFF**2 * (1 - (x / CUTOFF) ** 2)
    slope = -2 * (x - 1) / WIDTH**2 * well - STEEPNESS * core
    return (well + core) * taper, slope * taper + (well + core) * taper_slope
