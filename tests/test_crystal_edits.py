"""Edits on crystals: what each does, every code of the apply stage, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

import numpy as np
from ase import Atoms
from ase.build import bulk
from hypothesis import given
from hypothesis import strategies as st

from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.edits import apply, void
from crystal_rl.errors import CODES, Rejection
from crystal_rl.messages import Add, Exchange, Remove, Strain, Structure, Substitute

if TYPE_CHECKING:
    from crystal_rl.messages import Edit


def salt() -> Atoms:
    return bulk("NaCl", "rocksalt", a=5.64, cubic=True)


def perovskite() -> Atoms:
    places = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    return Atoms("SrTiO3", scaled_positions=places, cell=[3.905] * 3, pbc=True)


def failure(atoms: Atoms, *edits: Edit) -> tuple[str, str]:
    with pytest.raises(Rejection) as caught:
        apply(atoms, edits)
    return caught.value.code, str(caught.value)


def symbols(atoms: Atoms, *edits: Edit) -> str:
    return "".join(apply(atoms, edits).get_chemical_symbols())


def test_substitute_takes_every_atom_of_the_element_or_one_site() -> None:
    """The meaning of LLMatDesign, and the index as printed in the prompt."""
    assert symbols(perovskite(), Substitute("O", "S")) == "SrTiSSS"
    assert symbols(perovskite(), Substitute("O", "S", 3)) == "SrTiOSO"


def test_exchange_swaps_two_elements_everywhere() -> None:
    """Positions stay."""
    assert symbols(perovskite(), Exchange("Ti", "O")) == "SrOTiTiTi"


def test_remove_takes_out_atoms_and_the_later_ones_move_up() -> None:
    """The next edit's index counts in the current list."""
    assert symbols(perovskite(), Remove("O")) == "SrTi"
    assert symbols(perovskite(), Remove("Sr", 0), Substitute("Ti", "Zr", 0)) == "ZrOOO"


def test_add_appends_at_fractional_coordinates() -> None:
    """Where cell.T @ (x, y, z) is; its tag is -1, the others keep their index."""
    new = apply(perovskite(), [Add("Li", (0.5, 0.0, 0.0)), Remove("Sr", 0)])
    assert new.get_chemical_symbols() == ["Ti", "O", "O", "O", "Li"]
    assert new.positions[-1].tolist() == [1.9525, 0.0, 0.0]
    assert new.get_tags().tolist() == [1, 2, 3, 4, -1]


def test_the_void_of_strontium_titanate_is_between_two_strontiums() -> None:
    """(0, 0, 1/2), 1.95 Å from its neighbours; (0, 1/2, 0) is as far and comes later in C order."""
    new = apply(perovskite(), [Add("H")])
    assert void(perovskite()).tolist() == [0.0, 0.0, 0.5]
    assert new.get_distance(5, 0, mic=True) == pytest.approx(1.9525)
    assert new.get_distance(5, 3, mic=True) == pytest.approx(1.9525)


@pytest.mark.parametrize(
    ("axis", "lengths"),
    [
        ("a", [4.2955, 3.905, 3.905]),
        ("b", [3.905, 4.2955, 3.905]),
        ("c", [3.905, 3.905, 4.2955]),
        ("all", [4.2955, 4.2955, 4.2955]),
    ],
)
def test_strain_scales_cell_vectors_and_atoms_with_them(axis: str, lengths: list[float]) -> None:
    """Fractional coordinates stay."""
    new = apply(perovskite(), [Strain(axis, 10.0)])  # type: ignore[arg-type] # one of the four
    assert new.cell.lengths().tolist() == pytest.approx(lengths)
    assert np.allclose(new.get_scaled_positions(), perovskite().get_scaled_positions(), atol=1e-12)


def big() -> Atoms:
    return salt().repeat((2, 2, 2))


BAD: list[tuple[str, Atoms, tuple[Edit, ...], str]] = [
    ("absent_element", perovskite(), (Remove("Cl"),), "remove Cl: the structure has O, Sr, Ti"),
    ("absent_element", perovskite(), (Substitute("Ba", "Sr"),), "substitute Ba: the structure has O, Sr, Ti"),
    ("absent_element", perovskite(), (Exchange("Sr", "Ba"),), "exchange Ba: the structure has O, Sr, Ti"),
    ("absent_element", perovskite(), (Remove("Ti"), Remove("Ti")), "remove Ti: the structure has O, Sr"),
    ("bad_site", perovskite(), (Remove("O", 5),), "site 5 is out of range: the structure has 0 to 4"),
    ("bad_site", perovskite(), (Substitute("Ti", "Zr", 3),), "site 3 is O, not Ti"),
    ("no_change", perovskite(), (Substitute("O", "O"),), "substitute O by O leaves the structure as it was"),
    ("no_change", perovskite(), (Exchange("O", "O"),), "exchange O and O leaves the structure as it was"),
    ("no_change", perovskite(), (Strain("a", 0.0),), "the edits leave the structure as it was"),
    ("no_change", salt(), (Exchange("Na", "Cl"), Exchange("Na", "Cl")), "the edits leave the structure as it was"),
    ("too_small", salt(), (Remove("Na"), Remove("Cl")), "0 atoms left; at least 2 are needed"),
    ("too_small", bulk("NaCl", "rocksalt", a=5.64), (Remove("Na"),), "1 atom left; at least 2 are needed"),
    ("too_small", salt(), (Remove("Na"), Remove("Cl"), Add("H")), "no atom left to edit; at least 2 are needed"),
    ("too_big", big(), (Add("H"),), "65 atoms; at most 64 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "atoms", "edits", "message"), BAD)
def test_every_failure_has_its_code_and_message(
    code: str, atoms: Atoms, edits: tuple[Edit, ...], message: str
) -> None:
    """The first thing wrong, in words for the log."""
    assert failure(atoms, *edits) == (code, message)


def test_every_code_of_the_stage_is_tested() -> None:
    """The table above has each apply code of the documentation."""
    assert {code for code, *_ in BAD} == {name for name, code in CODES.items() if code.stage == "apply"}


# --- properties -------------------------------------------------------------------------------------------------

KNOWN = ("Na", "Cl", "K", "O")
elements = st.sampled_from(KNOWN)
sites = st.none() | st.integers(0, 9)
fractions = st.tuples(*[st.floats(0, 0.999)] * 3)
edits = st.one_of(
    st.builds(Substitute, elements, elements, sites),
    st.builds(Exchange, elements, elements),
    st.builds(Remove, elements, sites),
    st.builds(Add, elements, st.none() | fractions),
    st.builds(Strain, st.sampled_from(("a", "b", "c", "all")), st.floats(-10, 10)),
)


@given(st.lists(edits, min_size=1, max_size=4))
def test_edits_are_pure(wanted: list[Edit]) -> None:
    """The same input gives the same bits, the input is left alone, and only rejections are raised."""

    def outcome(atoms: Atoms) -> Structure | tuple[str, str, str]:
        try:
            return from_atoms(apply(atoms, wanted))
        except Rejection as rejection:
            return CODES[rejection.code].stage, rejection.code, str(rejection)

    atoms = salt()
    before = from_atoms(atoms)
    new = outcome(atoms)
    assert isinstance(new, Structure) or new[0] == "apply"
    assert new == outcome(salt())
    assert from_atoms(atoms) == before


@given(st.sampled_from([("Sr", "Ti"), ("Ti", "O"), ("O", "Sr")]))
def test_exchange_is_its_own_inverse(pair: tuple[str, str]) -> None:
    """Twice is the identity: beside another edit, since alone it would be no change."""
    new = apply(perovskite(), [Exchange(*pair), Exchange(*reversed(pair)), Add("H", (0.5, 0.0, 0.0))])
    assert from_atoms(new[:5]) == from_atoms(perovskite())


@given(st.sampled_from(("a", "b", "c", "all")), st.floats(-9, 9).filter(lambda p: abs(p) > 0.01))
def test_a_strain_and_its_inverse_restore_the_cell(axis: str, percent: float) -> None:
    """To 1e-9 Å; the inverse of p is -p / (1 + p/100)."""
    there = apply(perovskite(), [Strain(axis, percent)])  # type: ignore[arg-type] # one of the four
    back = apply(there, [Strain(axis, -percent / (1 + percent / 100))])  # type: ignore[arg-type] # the same
    assert np.abs(back.cell.array - perovskite().cell.array).max() < 1e-9
    assert np.abs(back.positions - perovskite().positions).max() < 1e-9


@given(st.none() | st.integers(0, 7))
def test_remove_lowers_the_number_of_atoms_by_those_it_names(site: int | None) -> None:
    """One site, or the four of the element."""
    element = "Na" if site is None else salt().get_chemical_symbols()[site]
    assert len(apply(salt(), [Remove(element, site)])) == (4 if site is None else 7)


def test_a_structure_survives_the_way_to_atoms_and_back() -> None:
    """Bit for bit, also for numbers without a short decimal form."""
    atoms = salt()
    atoms.rattle(0.1, seed=1)
    structure = from_atoms(atoms)
    assert from_atoms(to_atoms(structure)) == structure
    assert to_atoms(structure).pbc.all()
