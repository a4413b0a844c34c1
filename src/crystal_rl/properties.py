"""Properties of a relaxed crystal, by name. Units: eV/atom, g/cm³, Å³/atom, GPa, mu_B/atom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ase import units
from ase.eos import EquationOfState
from ase.symbols import symbols2numbers

from crystal_rl.errors import CrystalError
from crystal_rl.relax import RelaxationStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ase import Atoms

    from crystal_rl.relax import Deadline
    from crystal_rl.surrogate import Surrogate

EOS_POINTS = 7
EOS_STRAIN = 0.06
"""Seven volumes from -6 % to +6 %."""
AMU_PER_A3 = 1e24 / units.mol
"""g/cm³ of one atomic mass unit in one Å³: 1.66054."""


def value_of(name: str, atoms: Atoms, surrogate: Surrogate, deadline: Deadline | None = None) -> float:
    """One property.

    Args:
        name: One of PROPERTIES, or one that the surrogate predicts.
        atoms: A crystal with the surrogate's calculator attached.
        surrogate: For reference energies and properties of its own.
        deadline: Checked before each of the seven single points of ``bulk_modulus``.

    Raises:
        CrystalError: Neither we nor this surrogate know the property.
        RelaxationStoppedError: ``timeout``, or ``diverged`` where the energies have no minimum.
    """
    if name == "bulk_modulus":
        return bulk_modulus(atoms, deadline)
    if name in _SIMPLE:
        return _SIMPLE[name](atoms, surrogate)
    own = surrogate.predict(atoms)
    if name not in own:
        known = ", ".join([*PROPERTIES, *own])
        raise CrystalError(f"{surrogate.model} predicts no {name}", fix=f"choose from: {known}")
    return float(own[name])


def formation_energy(atoms: Atoms, references: Mapping[str, float]) -> float:
    """Energy per atom above that of the elements' own crystals; negative: the compound is more stable."""
    elements = sum(references[symbol] for symbol in atoms.get_chemical_symbols())
    return (float(atoms.get_potential_energy()) - elements) / len(atoms)


def density(atoms: Atoms) -> float:
    """NaCl at 5.64 Å: 4 x 58.44 u in 179.4 Å³, 2.16 g/cm³."""
    return float(atoms.get_masses().sum() / atoms.cell.volume * AMU_PER_A3)


def volume_per_atom(atoms: Atoms) -> float:
    """Å³."""
    return float(atoms.cell.volume) / len(atoms)


def bulk_modulus(atoms: Atoms, deadline: Deadline | None = None) -> float:
    """GPa, from a Birch-Murnaghan fit to seven volumes within 6 %, fractional coordinates kept."""
    volumes, energies = [], []
    for factor in np.linspace(1 - EOS_STRAIN, 1 + EOS_STRAIN, EOS_POINTS):
        if deadline and deadline.is_over:
            raise RelaxationStoppedError("timeout", f"{deadline.seconds:g} s were over while fitting", 0)
        point = atoms.copy()
        point.calc = atoms.calc
        point.set_cell(atoms.cell.array * factor ** (1 / 3), scale_atoms=True)
        volumes.append(float(point.cell.volume))
        energies.append(float(point.get_potential_energy()))
    if not 0 < int(np.argmin(energies)) < EOS_POINTS - 1:
        raise RelaxationStoppedError("diverged", "no energy minimum within 6 % of the volume", 0)
    try:
        fitted = EquationOfState(volumes, energies, eos="birchmurnaghan").fit(warn=False)
    except (RuntimeError, ValueError) as error:
        raise RelaxationStoppedError("diverged", f"no equation of state fits: {error}", 0) from error
    return float(fitted[2] / units.GPa)


def _formation_energy(atoms: Atoms, surrogate: Surrogate) -> float:
    return formation_energy(atoms, surrogate.references)


_SIMPLE: dict[str, Callable[[Atoms, Surrogate], float]] = {
    "formation_energy": _formation_energy,
    "density": lambda atoms, _: density(atoms),
    "volume_per_atom": lambda atoms, _: volume_per_atom(atoms),
}
PROPERTIES: dict[str, str] = {
    "formation_energy": "eV/atom",
    "density": "g/cm³",
    "volume_per_atom": "Å³/atom",
    "bulk_modulus": "GPa",
    "magnetisation": "mu_B/atom",
}
"""Name and unit. ``magnetisation`` comes from the surrogate (CHGNet has it), like any property of a user's own."""


def is_sensible(symbols: str) -> bool:
    """Is a composition charge-neutral with common oxidation states, or all metal? SMACT's rule, alloys included.

    ``Na4Cl4`` and ``CuZn`` are, ``Na7Cl`` is not.
    """
    from smact.screening import smact_validity  # noqa: PLC0415 - loads pandas

    symbols2numbers(symbols)  # a formula, nothing else
    return bool(smact_validity(symbols, include_alloys=True))
