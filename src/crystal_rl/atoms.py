"""Structures as messages, and as ASE's Atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crystal_rl.messages import Structure

if TYPE_CHECKING:
    from ase import Atoms


def to_atoms(structure: Structure) -> Atoms:
    """Periodic Atoms; tags are the atoms' indices."""
    from ase import Atoms  # noqa: PLC0415 - messages travel without ASE

    return Atoms(
        numbers=structure.numbers,
        cell=structure.cell,
        positions=structure.positions,
        pbc=True,
        tags=range(len(structure.numbers)),
    )


def from_atoms(atoms: Atoms) -> Structure:
    """The same numbers, bit for bit."""
    a, b, c = (_vector(row) for row in atoms.cell.tolist())
    return Structure(
        numbers=tuple(int(number) for number in atoms.numbers),
        cell=(a, b, c),
        positions=tuple(_vector(row) for row in atoms.positions.tolist()),
    )


def _vector(row: list[float]) -> tuple[float, float, float]:
    x, y, z = row
    return (x, y, z)
