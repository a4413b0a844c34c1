"""Make the starting structures: no download, the same cells from the same seed.

Simple families come from lists of compounds with lattice constants from covalent radii, the rest from the AFLOW
library of crystallographic prototypes (Mehl et al., Comput. Mater. Sci. 136, S1, 2017), which pymatgen ships, and from
variants of these in which one element is replaced by a chemically alike one. Each is relaxed once by the surrogate; what
does not converge, or ends outside the rules, is left out.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import random
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.data import atomic_numbers, covalent_radii
from ase.spacegroup import crystal

from crystal_rl import compounds, rules
from crystal_rl.atoms import from_atoms
from crystal_rl.errors import CrystalError, Rejection
from crystal_rl.messages import Relaxation
from crystal_rl.properties import formation_energy
from crystal_rl.relax import Deadline, relax
from crystal_rl.structures import Crystal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from crystal_rl.surrogate import Surrogate

SEED = 20261130
MIN_SITES, MAX_SITES = 2, 20
VARIANTS = 90
MAX_FORMATION_EV = 1.0
"""eV/atom above the elements: such a cell is no compound."""
SETTINGS = Relaxation(fmax=0.05, max_steps=150)
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Seedling:
    """A cell before its relaxation; the fields are those of :class:`Crystal`."""

    id: str
    prototype: str
    atoms: Atoms
    seed: int


def seedlings(elements: Collection[str], seed: int = SEED) -> list[Seedling]:
    """Every cell to relax, in a fixed order; those with an element outside ``elements`` are left out."""
    cells = [*_families(), *aflow(elements), *variants(elements, seed)]
    known = [(name, kind, atoms) for name, kind, atoms in cells if set(atoms.symbols) <= set(elements)]
    return [Seedling(name, kind, atoms, seed + i) for i, (name, kind, atoms) in enumerate(known)]


def grown(seedling: Seedling, surrogate: Surrogate) -> Crystal | None:
    """The cell relaxed; None if it does not converge, breaks a rule, or is far less stable than its elements."""
    try:
        rules.check(seedling.atoms)
        relaxed = relax(
            seedling.atoms, surrogate.calculator, SETTINGS,
            seed=seedling.seed % 2**32, deadline=Deadline.after(PATIENCE_S),
        ).atoms  # fmt: skip
        rules.check(relaxed)
    except Rejection:
        return None
    energy = formation_energy(relaxed, surrogate.references)
    if not energy < MAX_FORMATION_EV:
        return None
    return Crystal(
        id=seedling.id, formula=str(relaxed.get_chemical_formula()), prototype=seedling.prototype,
        structure=from_atoms(relaxed), seed=seedling.seed, model=surrogate.model, formation_energy=energy,
    )  # fmt: skip


# --- simple families --------------------------------------------------------------------------------------------

_Cell = tuple[str, str, Atoms]


def bond(a: str, b: str) -> float:
    """Sum of two covalent radii, Å: 2.68 for NaCl, whose bond is 2.82."""
    return float(covalent_radii[atomic_numbers[a]] + covalent_radii[atomic_numbers[b]])


def _families() -> Iterator[_Cell]:
    for name in compounds.ROCKSALT:
        yield f"rocksalt-{name}", "rocksalt", bulk(name, "rocksalt", a=2 * _bond_in(name), cubic=True)
    for name in compounds.ZINCBLENDE:
        side = 4 / math.sqrt(3) * _bond_in(name)
        yield f"zincblende-{name}", "zincblende", bulk(name, "zincblende", a=side, cubic=True)
    for name in compounds.WURTZITE:
        side = math.sqrt(8 / 3) * _bond_in(name)
        cell = bulk(name, "wurtzite", a=side, c=side * math.sqrt(8 / 3), u=0.375)
        yield f"wurtzite-{name}", "wurtzite", cell
    for name in compounds.CESIUM_CHLORIDE:
        side = 2 / math.sqrt(3) * _bond_in(name)
        yield f"cesiumchloride-{name}", "cesiumchloride", bulk(name, "cesiumchloride", a=side)
    for a, x in map(_split, compounds.FLUORITE):
        cell = _fluorite(a, x)
        yield f"fluorite-{cell.get_chemical_formula(empirical=True)}", "fluorite", cell
    for a, b, x in map(_split, compounds.PEROVSKITE):
        yield f"perovskite-{a}{b}{x}3", "perovskite", _perovskite(a, b, x)
    for x, y, z in map(_split, compounds.HALF_HEUSLER):
        yield f"halfheusler-{x}{y}{z}", "halfheusler", _half_heusler(x, y, z)


def _split(name: str) -> list[str]:
    return name.split("-")


def _bond_in(name: str) -> float:
    a, b = dict.fromkeys(Atoms(name).get_chemical_symbols())
    return bond(a, b)


def _fluorite(a: str, x: str) -> Atoms:
    places = [(0, 0, 0), (0.25, 0.25, 0.25)]
    return _plain(crystal([a, x], places, spacegroup=225, cellpar=_cubic(4 / math.sqrt(3) * bond(a, x))))


def _perovskite(a: str, b: str, x: str) -> Atoms:
    """Cubic ABX3; the constant is the mean of what its two bonds ask for."""
    constant = (2 * bond(b, x) + math.sqrt(2) * bond(a, x)) / 2
    places = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)]
    return _plain(crystal([a, b, x], places, spacegroup=221, cellpar=_cubic(constant)))


def _half_heusler(x: str, y: str, z: str) -> Atoms:
    constant = 4 / math.sqrt(3) * (bond(x, y) + bond(y, z)) / 2
    places = [(0, 0, 0), (0.25, 0.25, 0.25), (0.5, 0.5, 0.5)]
    return _plain(crystal([x, y, z], places, spacegroup=216, cellpar=_cubic(constant)))


def _cubic(a: float) -> list[float]:
    return [a, a, a, 90.0, 90.0, 90.0]


def _plain(atoms: Atoms) -> Atoms:
    """Without the space group that ASE notes on it."""
    return Atoms(numbers=atoms.numbers, cell=atoms.cell, positions=atoms.positions, pbc=True)


# --- AFLOW ------------------------------------------------------------------------------------------------------


@functools.cache
def _library() -> tuple[dict[str, Any], ...]:
    """The prototypes as pymatgen ships them, sorted by label.

    Raises:
        CrystalError: pymatgen is not installed.
    """
    spec = find_spec("pymatgen")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "analysis" / "prototypes" / "aflow_prototypes.json.gz"
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                entries: list[dict[str, Any]] = json.load(file)
            return tuple(
                sorted(entries, key=lambda entry: (entry["tags"]["aflow"], json.dumps(entry["tags"])))
            )
    raise CrystalError(
        "pymatgen, which ships the AFLOW prototypes, is not installed", fix="pip install pymatgen"
    )


def aflow(elements: Collection[str]) -> Iterator[_Cell]:
    """Compounds of 2 to 20 sites, fully occupied, of known elements; of equal label and formula the first."""
    seen: set[str] = set()
    for entry in _library():
        sites = entry["snl"]["sites"]
        symbols = [site["species"][0]["element"] for site in sites]
        is_ordered = all(len(s["species"]) == 1 and s["species"][0]["occu"] == 1 for s in sites)
        if not (is_ordered and MIN_SITES <= len(sites) <= MAX_SITES and len(set(symbols)) > 1):
            continue
        if not set(symbols) <= set(elements):
            continue
        cell = np.array(entry["snl"]["lattice"]["matrix"])
        atoms = Atoms(symbols, cell=cell, scaled_positions=[site["abc"] for site in sites], pbc=True)
        label = entry["tags"]["aflow"]
        name = f"aflow-{label}-{atoms.get_chemical_formula(empirical=True)}"
        if name not in seen:
            seen.add(name)
            yield name, label, atoms


def variants(elements: Collection[str], seed: int) -> Iterator[_Cell]:
    """AFLOW's compounds with one element replaced by a chemically alike one, the cell scaled by the radii."""
    dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
    originals = list(aflow(elements))
    dice.shuffle(originals)
    seen = {name for name, _, _ in originals}
    count = 0
    for _, label, atoms in originals:
        changed = _variant(atoms, dice)
        name = f"aflow-{label}-{changed.get_chemical_formula(empirical=True)}"
        if name not in seen and count < VARIANTS:
            seen.add(name)
            count += 1
            yield name, label, changed


def _variant(atoms: Atoms, dice: random.Random) -> Atoms:
    present = sorted(set(atoms.get_chemical_symbols()))
    choices = [
        (old, new)
        for old in present
        for row in compounds.ALIKE
        if old in row
        for new in row
        if new not in present and abs(row.index(new) - row.index(old)) == 1
    ]
    if not choices:
        return atoms
    old, new = dice.choice(choices)
    changed = atoms.copy()
    changed.set_chemical_symbols([new if s == old else s for s in atoms.get_chemical_symbols()])
    before, after = (covalent_radii[a.numbers].sum() for a in (atoms, changed))
    changed.set_cell(atoms.cell.array * float(after / before), scale_atoms=True)
    return changed
