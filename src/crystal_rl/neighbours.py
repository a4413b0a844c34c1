"""Pairs of atoms within reach, over all periodic images. For the small cells of this package: every image is tried."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ase import Atoms
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]


class Pairs(NamedTuple):
    """Each pair twice, (i, j) and (j, i); an atom and its own image are a pair, too.

    Attributes:
        i: Index of the first atom.
        j: Index of the second.
        d: Distance, Å.
        vector: From the first to the second, Å, shape (pairs, 3).
    """

    i: Indices
    j: Indices
    d: Floats
    vector: Floats


def heights(cell: Floats) -> Floats:
    """Distances between opposite faces of a cell, Å: a sphere of radius r spans ceil(r / height) images each way."""
    inverse = np.linalg.inv(cell)
    return np.asarray((inverse**2).sum(axis=0) ** -0.5, dtype=np.float64)


def pairs(atoms: Atoms, radii: Floats) -> Pairs:
    """All pairs with a distance below the sum of their radii.

    Args:
        atoms: Periodic, with a cell that is not flat.
        radii: One an atom, Å.
    """
    cell: Floats = atoms.cell.array
    fractions: Floats = atoms.get_scaled_positions(wrap=True)
    reach = 2 * float(radii.max())
    counts = np.ceil(reach / heights(cell)).astype(int)
    images = np.array(list(itertools.product(*(range(-n, n + 1) for n in counts))), dtype=float) @ cell
    positions = fractions @ cell
    vectors = positions[None, :, None] + images - positions[:, None, None]  # i, j, image, xyz
    distances = np.sqrt((vectors**2).sum(axis=-1))
    limits = (radii[:, None] + radii)[:, :, None]
    own = np.eye(len(atoms), dtype=bool)[:, :, None] & (images == 0).all(axis=1)
    i, j, image = np.nonzero((distances < limits) & ~own)
    return Pairs(i, j, distances[i, j, image], vectors[i, j, image])
