"""The crystals that training starts from: shipped in ``data/structures.extxyz``, made by :mod:`crystal_rl.generate`."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.errors import CrystalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ase import Atoms

    from crystal_rl.messages import Structure

FORMATS = {".cif": "cif", ".xyz": "extxyz", ".extxyz": "extxyz", ".vasp": "vasp", ".poscar": "vasp"}
"""What is read of a user's; ASE has formats that run code, which are not among them."""
MAX_FILE_BYTES = 10_000_000
MAX_ATOMS = 64


@dataclass(frozen=True, slots=True)
class Crystal:
    """A structure with its origin.

    Attributes:
        id: ``rocksalt-NaCl``; unique in its file.
        formula: Of the cell: ``Na4Cl4``.
        prototype: A family's name, or the label of an AFLOW prototype.
        structure: Relaxed.
        seed: Of the rattle before it was relaxed.
        model: The surrogate that relaxed it; empty: none did.
        formation_energy: By that model, eV/atom; None: unknown.
    """

    id: str
    formula: str
    prototype: str
    structure: Structure
    seed: int = 0
    model: str = ""
    formation_energy: float | None = None


@functools.cache
def shipped() -> tuple[Crystal, ...]:
    """All shipped crystals, in the order of the file."""
    return parse((files("crystal_rl") / "data" / "structures.extxyz").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Crystal, ...]:
    """The crystals of an extended-XYZ file of ours."""
    from ase.io import iread  # noqa: PLC0415 - slow to import, and only files need it

    return tuple(_crystal(atoms) for atoms in iread(io.StringIO(text), index=":", format="extxyz"))


def written(crystals: Iterable[Crystal]) -> str:
    """The crystals as extended XYZ: what :func:`parse` reads."""
    from ase.io import write  # noqa: PLC0415 - as above

    out = io.StringIO()
    write(out, [_atoms(crystal) for crystal in crystals], format="extxyz")
    return out.getvalue()


def _crystal(atoms: Atoms) -> Crystal:
    info = atoms.info
    energy = info.get("formation_energy")
    return Crystal(
        id=str(info["id"]),
        formula=str(atoms.get_chemical_formula()),
        prototype=str(info["prototype"]),
        structure=from_atoms(atoms),
        seed=int(info["seed"]),
        model=str(info.get("model", "")),
        formation_energy=None if energy is None else float(energy),
    )


def _atoms(crystal: Crystal) -> Atoms:
    from ase import Atoms  # noqa: PLC0415 - as above

    structure = crystal.structure
    atoms = Atoms(numbers=structure.numbers, cell=structure.cell, positions=structure.positions, pbc=True)
    atoms.info = {"id": crystal.id, "prototype": crystal.prototype, "seed": crystal.seed}
    if crystal.model:
        atoms.info["model"] = crystal.model
    if crystal.formation_energy is not None:
        atoms.info["formation_energy"] = round(crystal.formation_energy, 6)
    return atoms


def find(name: str) -> Crystal:
    """A shipped crystal by its id, or the one in a user's file.

    Raises:
        UsageError: Neither.
        CrystalError: The file cannot be read, or holds no crystal.
    """
    for crystal in shipped():
        if crystal.id == name:
            return crystal
    path = Path(name)
    if path.suffix.lower() in FORMATS or path.exists():
        return read(path)
    raise UsageError(
        f"no structure named {name!r}", fix=f"crystal-rl structures lists them; files: {', '.join(FORMATS)}"
    )


def read(path: Path) -> Crystal:
    """The first crystal of a user's file.

    Raises:
        CrystalError: It cannot be read, holds no periodic crystal, or more than 64 atoms.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise CrystalError("no format that is read", where=str(path), fix=f"use one of {', '.join(FORMATS)}")
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CrystalError(f"cannot be read: {error}", where=str(path)) from error
    if len(text) > MAX_FILE_BYTES:
        raise CrystalError(f"larger than {MAX_FILE_BYTES:,} characters", where=str(path))
    atoms = _first(text, kind, path)
    if not len(atoms) or atoms.cell.rank < 3:  # noqa: PLR2004 - space has three dimensions
        raise CrystalError("no crystal: it has no atoms or no three cell vectors", where=str(path))
    if len(atoms) > MAX_ATOMS:
        raise CrystalError(f"{len(atoms)} atoms; at most {MAX_ATOMS} are edited", where=str(path))
    return Crystal(path.stem, str(atoms.get_chemical_formula()), "", from_atoms(atoms))


def _first(text: str, kind: str, path: Path) -> Atoms:
    from ase.io import read as read_file  # noqa: PLC0415 - slow to import

    try:
        atoms = read_file(io.StringIO(text), index=0, format=kind)
    except Exception as error:  # ASE's readers raise anything on a damaged file
        raise CrystalError(f"not a {kind} file: {error}", where=str(path)) from error
    return atoms


def density_of(structure: Structure) -> float:
    """g/cm³."""
    from crystal_rl.properties import density  # noqa: PLC0415 - loads SciPy

    return density(to_atoms(structure))
