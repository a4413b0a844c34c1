"""The starting structures: what is shipped, that it can be made again, and what is read of a user's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

import numpy as np
from ase.build import bulk

from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.errors import CrystalError, UsageError
from crystal_rl.generate import MAX_SITES, MIN_SITES, SEED, Seedling, bond, grown, seedlings
from crystal_rl.potentials.fake import load
from crystal_rl.references import references_of
from crystal_rl.rules import check
from crystal_rl.structures import Crystal, find, parse, read, shipped, written
from crystal_rl.surrogate import elements_of

if TYPE_CHECKING:
    from pathlib import Path

CHGNET = elements_of("chgnet")


def test_hundreds_of_crystals_are_shipped_each_under_its_own_name() -> None:
    """2 to 20 atoms, elements that the default surrogate knows, relaxed by it, with seed and formation energy."""
    crystals = shipped()
    assert len(crystals) > 300
    assert len({crystal.id for crystal in crystals}) == len(crystals)
    assert {crystal.model for crystal in crystals} == {"chgnet-0.3.0"}
    for crystal in crystals:
        assert MIN_SITES <= len(crystal.structure.numbers) <= MAX_SITES
        assert set(to_atoms(crystal.structure).symbols) <= CHGNET
        assert SEED <= crystal.seed < SEED + 1000
        assert crystal.formation_energy is not None
        assert crystal.formation_energy < 1.0


def test_shipped_crystals_are_of_every_family() -> None:
    """And mostly more than a few of each."""
    families = [crystal.id.split("-")[0] for crystal in shipped()]
    names = (
        "rocksalt",
        "zincblende",
        "wurtzite",
        "cesiumchloride",
        "fluorite",
        "perovskite",
        "halfheusler",
        "aflow",
    )
    assert {name for name in names if families.count(name) >= 3} == set(families) == set(names)


def test_the_file_reads_back_as_it_was_written() -> None:
    """Bit for bit: the text is the structure."""
    crystals = shipped()[:20]
    assert parse(written(crystals)) == crystals


def test_seedlings_are_the_same_bit_for_bit() -> None:
    """Numbers, cells and positions of every cell before relaxation, from the seed and nothing else."""
    pytest.importorskip("pymatgen")
    cells = seedlings(CHGNET)
    digest = hashlib.sha256()
    for cell in cells:
        digest.update((np.round(cell.atoms.positions, 6) + 0.0).tobytes())
        digest.update(f"{cell.id} {cell.prototype} {cell.seed} {cell.atoms.numbers.tolist()}".encode())
        digest.update((np.round(cell.atoms.cell.array, 6) + 0.0).tobytes())
    assert len(cells) == 415
    assert digest.hexdigest()[:16] == "959a52dca48bcd3a"
    again = seedlings(CHGNET)
    assert [from_atoms(cell.atoms) for cell in again] == [from_atoms(cell.atoms) for cell in cells]


def test_another_seed_chooses_other_variants() -> None:
    """The families and AFLOW's own compounds stay."""
    pytest.importorskip("pymatgen")
    a, b = ([cell.id for cell in seedlings(CHGNET, seed)] for seed in (1, 2))
    assert a != b
    assert a[:300] == b[:300]


def test_only_known_elements_are_planted() -> None:
    """A surrogate that knows sodium and chlorine gets rock salt, from both sources."""
    pytest.importorskip("pymatgen")
    assert [cell.id for cell in seedlings({"Na", "Cl"})] == ["rocksalt-NaCl", "aflow-AB_cF8_225_a_b-ClNa"]


def test_bonds_come_from_covalent_radii() -> None:
    """Na 1.66 Å, Cl 1.02 Å."""
    assert bond("Na", "Cl") == pytest.approx(2.68)


def seedling(a: float, seed: int = 7) -> Seedling:
    return Seedling("rocksalt-NaCl", "rocksalt", bulk("NaCl", "rocksalt", a=a), seed)


def test_a_seedling_grows_the_same_each_time() -> None:
    """Bit for bit, and its origin stays with it."""
    a, b = (grown(seedling(5.2), load("fake-1", "cpu")) for _ in range(2))
    assert a is not None
    assert a == b
    assert (a.id, a.prototype, a.seed, a.model, a.formula) == (
        "rocksalt-NaCl", "rocksalt", 7, "fake-1", "ClNa",
    )  # fmt: skip
    check(to_atoms(a.structure))


def test_a_seedling_that_breaks_a_rule_is_left_out() -> None:
    """Atoms on top of each other, or a cell that does not converge."""
    assert grown(seedling(2.0), load("fake-1", "cpu")) is None
    assert grown(seedling(9.0), load("fake-1", "cpu")) is None


def test_references_are_shipped_for_every_element_of_the_surrogate() -> None:
    """69 of them; oxygen's is that of its molecule, and nothing binds a noble gas."""
    references = references_of("chgnet-0.3.0")
    assert len(references) == 69
    assert references["O"] == pytest.approx(-4.91, abs=0.01)
    assert abs(references["He"]) < 0.1
    assert references_of("no-such-model") == {}


# --- a user's own -----------------------------------------------------------------------------------------------

CIF = """data_x
_cell_length_a 5.64
_cell_length_b 5.64
_cell_length_c 5.64
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 90
_space_group_name_H-M_alt 'P 1'
loop_
_atom_site_type_symbol
_atom_site_label
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
Na Na1 0 0 0
Cl Cl1 0.5 0.5 0.5
"""


def test_shipped_crystals_are_found_by_name_and_files_by_path(tmp_path: Path) -> None:
    """A CIF of one's own, say."""
    assert find("rocksalt-NaCl").formula == "Cl4Na4"
    path = tmp_path / "mine.cif"
    path.write_text(CIF)
    assert find(str(path)) == Crystal("mine", "ClNa", "", read(path).structure)
    assert read(path).structure.numbers == (11, 17)


def test_a_name_that_is_neither_is_a_usage_error() -> None:
    """With the way to list what there is."""
    with pytest.raises(UsageError, match="no structure named 'unobtainium'"):
        find("unobtainium")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.cif", "what", "not a cif file"),
        ("a.cif", "", "not a cif file"),
        ("a.xyz", "1\n\nH 0 0 0\n", "no crystal"),
        ("a.vasp", "\x00", "not a vasp file"),
        ("a.py", "raise SystemExit", "no format that is read"),
        ("a.traj", "", "no format that is read"),
        ("a.json", "{}", "no format that is read"),
    ],
)
def test_files_that_hold_no_crystal_are_refused(tmp_path: Path, name: str, text: str, what: str) -> None:
    """Only plain formats are read; ASE has some that run code or unpickle."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CrystalError, match=what) as caught:
        read(path)
    assert caught.value.where == str(path)


def test_a_file_of_too_many_atoms_is_refused(tmp_path: Path) -> None:
    """More than may be left after the edits: looking for their void would take all memory."""
    path = tmp_path / "big.xyz"
    path.write_text('65\nLattice="50 0 0 0 50 0 0 0 50"\n' + "H 0 0 0\n" * 65)
    with pytest.raises(CrystalError, match="65 atoms; at most 64 are edited"):
        read(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Absent, or no text."""
    with pytest.raises(CrystalError, match="cannot be read"):
        read(tmp_path / "absent.cif")
    path = tmp_path / "binary.cif"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CrystalError, match="cannot be read"):
        read(path)
