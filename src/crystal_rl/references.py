"""Energies of the elements' own crystals, to which formation energies refer.

They are the crystals of the Delta test (Lejaeghere et al., Science 2016; ``ase.collections.dcdft``), relaxed by the
surrogate itself and shipped in ``data/references.json``: model -> element -> eV/atom.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from crystal_rl.surrogate import Surrogate

UNKNOWN_TO_MPTRJ = frozenset({"Po", "Rn"})
"""In the Delta test, but not among the 89 elements that CHGNet and SevenNet-0 were trained on."""


@functools.cache
def _shipped() -> dict[str, dict[str, float]]:
    value: dict[str, Any] = json.loads((files("crystal_rl") / "data" / "references.json").read_text())
    return value


def references_of(model: str) -> Mapping[str, float]:
    """Element to eV/atom; its keys are the elements that the model is asked about. Empty: none are shipped for it."""
    return _shipped().get(model, {})


def compute(surrogate: Surrogate) -> Iterator[tuple[str, float]]:
    """Relax each element's crystal, 69 of them; what does not converge counts as it ended."""
    from ase.collections import dcdft  # noqa: PLC0415 - shipped energies need no ASE
    from ase.filters import FrechetCellFilter  # noqa: PLC0415 - the same
    from ase.optimize import FIRE  # noqa: PLC0415 - the same

    for name in dcdft.names:
        if name in UNKNOWN_TO_MPTRJ:
            continue
        atoms = dcdft[name]
        atoms.calc = surrogate.calculator
        FIRE(FrechetCellFilter(atoms), logfile=None).run(fmax=0.02, steps=200)
        yield name, round(float(atoms.get_potential_energy()) / len(atoms), 6)
