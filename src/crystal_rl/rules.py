"""Is an edited crystal worth relaxing? Atoms not on top of each other, and neither squeezed nor blown up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ase.data import chemical_symbols, covalent_radii

from crystal_rl.errors import Rejection
from crystal_rl.neighbours import heights, pairs

if TYPE_CHECKING:
    from ase import Atoms

MIN_DISTANCE = 0.6
"""Of the sum of two atoms' covalent radii. Untouched prototypes have 0.84 to 1.09, S for O in SrTiO3 0.74, Cs for O 0.48."""
MIN_VOLUME, MAX_VOLUME = 4.0, 80.0
"""Å³ per atom."""
_FLAT = 0.5  # Å between opposite faces: counting neighbours in such a cell would not end


def check(atoms: Atoms) -> None:
    """Nothing, if the crystal may be relaxed.

    Raises:
        Rejection: ``too_close`` or ``bad_volume``.
    """
    volume = abs(float(atoms.cell.volume)) / len(atoms)
    flat = not volume or min(heights(atoms.cell.array)) < _FLAT
    if not flat:
        _check_distances(atoms)
    if flat or not MIN_VOLUME <= volume <= MAX_VOLUME:
        raise Rejection(
            "bad_volume", f"{volume:.2f} Å³ per atom; {MIN_VOLUME:g} to {MAX_VOLUME:g} are allowed"
        )


def _check_distances(atoms: Atoms) -> None:
    """The nearest pair, counted in sums of their radii, over all periodic images."""
    radii = covalent_radii[atoms.numbers]
    i, j, d, _ = pairs(atoms, MIN_DISTANCE * radii)
    if not len(d):
        return
    limits = MIN_DISTANCE * (radii[i] + radii[j])
    worst = int((d / limits).argmin())
    pair = "-".join(chemical_symbols[atoms.numbers[index[worst]]] for index in (i, j))
    raise Rejection("too_close", f"{pair} {d[worst]:.2f} Å, minimum {limits[worst]:.2f} Å")
