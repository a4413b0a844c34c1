"""Properties with known answers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.calculator import Calculator, all_changes
from ase.eos import birchmurnaghan

from crystal_rl.errors import CrystalError
from crystal_rl.potentials.base import Potential
from crystal_rl.potentials.fake import load
from crystal_rl.properties import (
    PROPERTIES,
    bulk_modulus,
    density,
    formation_energy,
    is_sensible,
    value_of,
    volume_per_atom,
)
from crystal_rl.relax import Deadline, RelaxationStoppedError


class EquationOfState(Calculator):  # type: ignore[misc] # ASE is untyped
    """Birch-Murnaghan with 50 GPa around a volume of 40 Å³, in a cell of two atoms."""

    implemented_properties = ("energy",)

    def __init__(self, volume: float = 40.0) -> None:
        super().__init__()
        self.volume = volume

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        """Fill ``results``."""
        super().calculate(atoms, properties, system_changes)
        energy = birchmurnaghan(self.atoms.cell.volume, -6.0, 50 * units.GPa, 4.5, self.volume)
        self.results = {"energy": float(energy)}


def cube(volume: float, calculator: Calculator) -> Atoms:
    length = volume ** (1 / 3)
    return Atoms(
        "NaCl", positions=[(0, 0, 0), (length / 2,) * 3], cell=[length] * 3, pbc=True, calculator=calculator
    )


def test_the_density_of_rock_salt() -> None:
    """4 x 58.440 u in (5.64 Å)³: 2.164 g/cm³."""
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    assert density(atoms) == pytest.approx(4 * (22.98977 + 35.45) / 5.64**3 * 1.66053907, rel=1e-6)
    assert volume_per_atom(atoms) == pytest.approx(5.64**3 / 8)


def test_formation_energy_is_counted_from_the_elements_per_atom() -> None:
    """Energy -6 eV for NaCl, elements at -1.3 and -1.9: -1.4 eV/atom."""
    assert formation_energy(cube(40.0, EquationOfState()), {"Na": -1.3, "Cl": -1.9}) == pytest.approx(-1.4)


def test_the_bulk_modulus_of_a_known_equation_of_state_is_found() -> None:
    """50 GPa, to a thousandth, also 2 % off the minimum."""
    assert bulk_modulus(cube(40.0, EquationOfState())) == pytest.approx(50.0, rel=1e-3)
    assert bulk_modulus(cube(40.8, EquationOfState())) == pytest.approx(50.0, rel=1e-3)


def test_without_a_minimum_there_is_no_bulk_modulus() -> None:
    """Energies that fall all the way: the crystal is not at rest."""
    with pytest.raises(RelaxationStoppedError, match="no energy minimum within 6 % of the volume") as caught:
        bulk_modulus(cube(40.0, EquationOfState(volume=60.0)))
    assert caught.value.code == "diverged"


def test_the_seven_points_keep_the_deadline() -> None:
    """They are the second phase of a task."""
    late = Deadline(5.0, 0.0, lambda: 1.0)
    with pytest.raises(RelaxationStoppedError) as caught:
        bulk_modulus(cube(40.0, EquationOfState()), late)
    assert (caught.value.code, str(caught.value)) == ("timeout", "5 s were over while fitting")


def test_a_surrogates_own_properties_are_asked_for_by_name() -> None:
    """A user's band gap, say."""
    own = Potential(
        "mine", "cpu", {"Na": 0.0}, EquationOfState(), more=lambda atoms: {"band_gap": len(atoms) / 4}
    )
    assert value_of("band_gap", cube(40.0, EquationOfState()), own) == 0.5
    with pytest.raises(CrystalError, match="mine predicts no colour") as caught:
        value_of("colour", cube(40.0, EquationOfState()), own)
    assert caught.value.fix == f"choose from: {', '.join(PROPERTIES)}, band_gap"


def test_our_properties_by_name_are_the_functions() -> None:
    """Each in its unit."""
    atoms, fake = bulk("NaCl", "rocksalt", a=5.0), load("fake-1", "cpu")
    atoms.calc = fake.calculator
    assert value_of("density", atoms, fake) == density(atoms)
    assert value_of("volume_per_atom", atoms, fake) == volume_per_atom(atoms)
    assert value_of("formation_energy", atoms, fake) == formation_energy(atoms, fake.references)
    assert value_of("bulk_modulus", atoms, fake) == bulk_modulus(atoms)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("Na4Cl4", True),
        ("SrTiO3", True),
        ("CuZn", True),
        ("Fe2", True),
        ("Na7Cl", False),
        ("SrTiO2Li5", False),
    ],
)
def test_sensible_compositions(formula: str, *, expected: bool) -> None:
    """Neutral with known oxidation states, or all metal."""
    pytest.importorskip("smact")
    assert is_sensible(formula) is expected


def test_a_crystal_without_forces_is_still_finite() -> None:
    """The fake potential beyond its reach: energy 0, not a division by zero."""
    atoms = Atoms("NaCl", positions=[(0, 0, 0), (10, 10, 10)], cell=[20] * 3, pbc=True)
    atoms.calc = load("fake-1", "cpu").calculator
    assert (atoms.get_potential_energy(), np.abs(atoms.get_forces()).max()) == (0.0, 0.0)
