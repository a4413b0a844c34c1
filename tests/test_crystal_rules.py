"""Which crystals are worth relaxing: distances over all periodic images, and the volume."""

from __future__ import annotations

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from hypothesis import given
from hypothesis import strategies as st

from crystal_rl.atoms import to_atoms
from crystal_rl.edits import apply
from crystal_rl.errors import CODES, Rejection
from crystal_rl.messages import Add, Strain, Substitute
from crystal_rl.neighbours import heights, pairs
from crystal_rl.rules import check
from crystal_rl.structures import shipped


def perovskite() -> Atoms:
    places = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    return Atoms("SrTiO3", scaled_positions=places, cell=[3.905] * 3, pbc=True)


def failure(atoms: Atoms) -> tuple[str, str]:
    with pytest.raises(Rejection) as caught:
        check(atoms)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize(
    "atoms",
    [
        perovskite(),
        apply(perovskite(), [Substitute("O", "S")]),
        apply(perovskite(), [Add("F", (0.25, 0.25, 0.25))]),
        bulk("CsCl", "cesiumchloride", a=4.12),
    ],
)
def test_plausible_crystals_pass(atoms: Atoms) -> None:
    """Untouched, S for O (0.74 of the radii), F in a corner of the perovskite (0.67)."""
    check(atoms)


def test_atoms_on_top_of_each_other_are_too_close() -> None:
    """The worst pair of all is named, with its distance and what would be allowed."""
    assert failure(apply(perovskite(), [Substitute("O", "Cs")])) == (
        "too_close",
        "Ti-Cs 1.95 Å, minimum 2.42 Å",
    )


def test_an_atom_may_be_too_close_to_its_own_image() -> None:
    """Distances count over the cell's borders."""
    chain = Atoms("Cs2", positions=[(0, 0, 0), (1, 5, 5)], cell=[2.5, 10, 10], pbc=True)
    assert failure(chain) == ("too_close", "Cs-Cs 2.50 Å, minimum 2.93 Å")


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (1.9, "3.43 Å³ per atom; 4 to 80 are allowed"),
        (5.5, "83.19 Å³ per atom; 4 to 80 are allowed"),
    ],
)
def test_a_volume_out_of_bounds(length: float, message: str) -> None:
    """Hydrogen can be squeezed without touching; anything can be blown up."""
    assert failure(Atoms("H2", positions=[(0, 0, 0), (length / 2,) * 3], cell=[length] * 3, pbc=True)) == (
        "bad_volume",
        message,
    )


@pytest.mark.parametrize("cell", [[0.0, 3.0, 3.0], [0.01, 100.0, 100.0]])
def test_a_flat_cell_is_refused_without_counting_its_images(cell: list[float]) -> None:
    """Neighbours in it would never end."""
    assert failure(Atoms("NaCl", positions=[(0, 0, 0), (0, 1, 1)], cell=cell, pbc=True))[0] == "bad_volume"


def test_too_close_comes_first() -> None:
    """First failure wins, in the order of the table."""
    squeezed = apply(perovskite(), [Strain("all", -10.0)] * 4)
    assert squeezed.cell.volume / 5 < 5.2
    assert failure(squeezed)[0] == "too_close"


def test_every_code_of_the_stage_is_tested() -> None:
    """Both of them, above."""
    assert {name for name, code in CODES.items() if code.stage == "check"} == {"too_close", "bad_volume"}


def test_every_shipped_structure_passes() -> None:
    """Training starts from crystals that the rules accept."""
    for crystal in shipped():
        check(to_atoms(crystal.structure))


@given(st.integers(0, 2**32 - 1))
def test_pairs_are_those_of_ases_neighbour_list(seed: int) -> None:
    """In random skewed cells with atoms anywhere: the same pairs, distances and vectors."""
    dice = np.random.default_rng(seed)
    cell = np.diag(dice.uniform(2, 5, 3)) + dice.uniform(-1.5, 1.5, (3, 3))
    if abs(np.linalg.det(cell)) < 8:
        return
    atoms = Atoms("NaClO", positions=dice.uniform(-10, 10, (3, 3)), cell=cell, pbc=True)
    radii = covalent_radii[atoms.numbers]
    ours = pairs(atoms, radii)
    i, j, d, vectors = neighbor_list("ijdD", atoms, radii, self_interaction=False)
    theirs = sorted(zip(i, j, np.round(d, 9), map(tuple, np.round(vectors, 6) + 0.0), strict=True))
    assert (
        sorted(
            zip(ours.i, ours.j, np.round(ours.d, 9), map(tuple, np.round(ours.vector, 6) + 0.0), strict=True)
        )
        == theirs
    )


def test_heights_of_a_sheared_cell() -> None:
    """Distances between opposite faces, not lengths of the vectors."""
    assert heights(np.array([[2.0, 0, 0], [2.0, 2.0, 0], [0, 0, 3.0]])).tolist() == pytest.approx(
        [2**0.5, 2.0, 3.0]
    )
