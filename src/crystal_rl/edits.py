"""Edits on crystals: a pure function of (atoms, edits), the same bits every time."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms
from ase.geometry import get_distances

from crystal_rl.errors import Rejection
from crystal_rl.messages import Add, Edit, Exchange, Remove, Strain, Substitute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MIN_ATOMS = 2
MAX_ATOMS = 64
UNCHANGED_A = 1e-6
"""Cells and positions that differ by less are the same, Å."""
GRID = 12
"""Points along each cell vector among which the void is sought."""
_TIE_A = 1e-6
_ADDED = -1


def apply(atoms: Atoms, edits: Sequence[Edit]) -> Atoms:
    """A copy with the edits, in order, each applied to the result of the one before.

    Tags keep the original index; an added atom has the tag -1.

    Raises:
        Rejection: With a code of the stage ``apply``.
    """
    new = _copy(atoms)
    for edit in edits:
        if not len(new):
            raise Rejection("too_small", f"no atom left to edit; at least {MIN_ATOMS} are needed")
        new = _applied(new, edit)
    if len(new) < MIN_ATOMS:
        atoms_left = f"{len(new)} atom{'s' * (len(new) != 1)}"
        raise Rejection("too_small", f"{atoms_left} left; at least {MIN_ATOMS} are needed")
    if len(new) > MAX_ATOMS:
        raise Rejection("too_big", f"{len(new)} atoms; at most {MAX_ATOMS} are allowed")
    if _is_same(atoms, new):
        raise Rejection("no_change", "the edits leave the structure as it was")
    return new


def _copy(atoms: Atoms) -> Atoms:
    """Numbers, cell and positions only: no calculator, constraints or velocities."""
    return Atoms(
        numbers=atoms.numbers.copy(),
        cell=atoms.cell.array.copy(),
        positions=atoms.positions.copy(),
        tags=np.arange(len(atoms)),
        pbc=True,
    )


def _is_same(old: Atoms, new: Atoms) -> bool:
    return (
        np.array_equal(old.numbers, new.numbers)
        and np.allclose(old.cell.array, new.cell.array, rtol=0, atol=UNCHANGED_A)
        and np.allclose(old.positions, new.positions, rtol=0, atol=UNCHANGED_A)
    )


def _applied(atoms: Atoms, edit: Edit) -> Atoms:
    match edit:
        case Substitute(old, new, site):
            return _substituted(atoms, old, new, site)
        case Exchange(a, b):
            return _exchanged(atoms, a, b)
        case Remove(element, site):
            sites = _sites("remove", atoms, element, site)
            return atoms[[i for i in range(len(atoms)) if i not in sites]]
        case Add(element, at):
            fraction = void(atoms) if at is None else np.array(at)
            return _added(atoms, element, fraction)
        case Strain(axis, percent):
            return _strained(atoms, axis, percent)


def _substituted(atoms: Atoms, old: str, new: str, site: int | None) -> Atoms:
    sites = _sites("substitute", atoms, old, site)
    if old == new:
        raise Rejection("no_change", f"substitute {old} by {new} leaves the structure as it was")
    symbols = atoms.get_chemical_symbols()
    atoms.set_chemical_symbols([new if i in sites else symbol for i, symbol in enumerate(symbols)])
    return atoms


def _exchanged(atoms: Atoms, a: str, b: str) -> Atoms:
    for element in (a, b):
        _sites("exchange", atoms, element, None)
    if a == b:
        raise Rejection("no_change", f"exchange {a} and {b} leaves the structure as it was")
    other = {a: b, b: a}
    atoms.set_chemical_symbols([other.get(symbol, symbol) for symbol in atoms.get_chemical_symbols()])
    return atoms


def _sites(what: str, atoms: Atoms, element: str, site: int | None) -> set[int]:
    """The one site, or every site of the element."""
    symbols = atoms.get_chemical_symbols()
    if element not in symbols:
        present = ", ".join(sorted(Counter(symbols)))
        raise Rejection("absent_element", f"{what} {element}: the structure has {present}")
    if site is None:
        return {i for i, symbol in enumerate(symbols) if symbol == element}
    if site >= len(symbols):
        raise Rejection("bad_site", f"site {site} is out of range: the structure has 0 to {len(symbols) - 1}")
    if symbols[site] != element:
        raise Rejection("bad_site", f"site {site} is {symbols[site]}, not {element}")
    return {site}


def _added(atoms: Atoms, element: str, fraction: NDArray[np.float64]) -> Atoms:
    position = _cartesian(fraction[None, :], atoms.cell.array)
    return atoms + Atoms(element, positions=position, tags=[_ADDED])


def _strained(atoms: Atoms, axis: str, percent: float) -> Atoms:
    """The cell's vectors grow; fractional coordinates stay."""
    factors = [1 + percent / 100 if axis in {name, "all"} else 1.0 for name in "abc"]
    atoms.set_cell(atoms.cell.array * np.array(factors)[:, None], scale_atoms=True)
    return atoms


def void(atoms: Atoms) -> NDArray[np.float64]:
    """The point of a 12 x 12 x 12 grid farthest from all atoms, fractional; of ties (1e-6 Å) the first in C order.

    In SrTiO3 (Sr at a corner, 3.905 Å) it is (0, 0, 1/2), 1.95 Å from its neighbours.
    """
    steps = np.arange(GRID) / GRID
    grid = np.array(list(itertools.product(steps, steps, steps)))
    points = _cartesian(grid, atoms.cell.array)
    distances: NDArray[np.float64] = get_distances(points, atoms.positions, cell=atoms.cell, pbc=True)[1]
    nearest = distances.min(axis=1)
    farthest: NDArray[np.float64] = grid[int(np.flatnonzero(nearest >= nearest.max() - _TIE_A)[0])]
    return farthest


def _cartesian(fractions: NDArray[np.float64], cell: NDArray[Any]) -> NDArray[np.float64]:
    """cell.T @ frac, summed in a fixed order: a matrix product may differ in the last bit between machines."""
    a, b, c = cell
    points: NDArray[np.float64] = fractions[:, :1] * a + fractions[:, 1:2] * b + fractions[:, 2:] * c
    return points
