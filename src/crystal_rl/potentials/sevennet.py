"""SevenNet-0 (Park et al., JCTC 2024): energies, forces and stresses from an equivariant network."""

from __future__ import annotations

import contextlib
import io
import warnings

from crystal_rl.potentials.base import Potential
from crystal_rl.references import references_of


def load(model: str, device: str) -> Potential:
    """The weights of 11 July 2024, the package's default."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # e3nn and torch, about each other
        from sevenn.calculator import SevenNetCalculator  # noqa: PLC0415 - inside the silence

        calculator = SevenNetCalculator("7net-0", device=device)
    return Potential(model, device, references_of(model), calculator)
