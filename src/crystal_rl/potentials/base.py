"""A surrogate as plain data: what the shipped ones return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ase import Atoms
    from ase.calculators.calculator import BaseCalculator


def _nothing(_: Atoms) -> dict[str, float]:
    return {}


@dataclass(frozen=True, slots=True)
class Potential:
    """See :class:`crystal_rl.surrogate.Surrogate`.

    Attributes:
        more: What ``predict`` answers.
    """

    model: str
    device: str
    references: Mapping[str, float]
    calculator: BaseCalculator
    more: Callable[[Atoms], dict[str, float]] = field(default=_nothing, repr=False)

    def predict(self, atoms: Atoms) -> dict[str, float]:
        """Properties of its own."""
        return self.more(atoms)
