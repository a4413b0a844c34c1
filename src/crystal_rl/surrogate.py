"""What a surrogate is, and where the shipped ones are. Importing this loads no torch.

A surrogate is an ASE calculator with a name, a device, and properties of its own. Those by name:

    chgnet          CHGNet 0.3.0 (default): 412,525 parameters, weights in its wheel, modified BSD; has magnetic moments
    chgnet-r2scan   the same network, fitted further on r2SCAN energies
    sevennet        SevenNet-0, weights in its wheel, MIT; twice as slow on a CPU
    fake            a pair potential of our own, 1 ms a call: for tests, its numbers mean nothing

A user's own is ``package.module:function``, a function of the device that returns a :class:`Surrogate`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from crystal_rl.errors import CrystalError, UsageError
from crystal_rl.references import references_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ase import Atoms
    from ase.calculators.calculator import BaseCalculator


class Surrogate(Protocol):
    """A potential that relaxes and scores crystals."""

    @property
    def model(self) -> str:
        """Name and version of the weights: ``chgnet-0.3.0``."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:0``."""

    @property
    def references(self) -> Mapping[str, float]:
        """Energy of each element's crystal, eV/atom. Its keys are the elements that the surrogate knows."""

    @property
    def calculator(self) -> BaseCalculator:
        """Energy (eV), forces (eV/Å) and stress (eV/Å³)."""

    def predict(self, atoms: Atoms) -> Mapping[str, float]:
        """Properties beyond :mod:`crystal_rl.properties`, by name, of a crystal with the calculator attached."""


SHIPPED: dict[str, tuple[str, str]] = {
    "chgnet": ("crystal_rl.potentials.chgnet", "chgnet-0.3.0"),
    "chgnet-r2scan": ("crystal_rl.potentials.chgnet", "chgnet-r2scan"),
    "sevennet": ("crystal_rl.potentials.sevennet", "sevennet-0"),
    "fake": ("crystal_rl.potentials.fake", "fake-1"),
}
"""Name: where its ``load(model, device)`` is, and the model."""
DEFAULT = "chgnet"
_INSTALL = {
    "crystal_rl.potentials.chgnet": "pip install --no-deps chgnet==0.4.2    (why --no-deps: docs/crystal_rl.md)",
    "crystal_rl.potentials.sevennet": "pip install sevenn==0.13.0",
}


def load_surrogate(name: str = DEFAULT, device: str = "cpu") -> Surrogate:
    """A surrogate, its weights on the device.

    Args:
        name: One of SHIPPED, or ``package.module:function``.
        device: ``cpu``, ``cuda``, ``cuda:1``.

    Raises:
        UsageError: There is no such surrogate.
        CrystalError: Its package is not installed.
    """
    module, model = find(name)
    try:
        loaded = import_module(module)
        surrogate: Surrogate = (
            loaded.load(model, device) if name in SHIPPED else getattr(loaded, model)(device)
        )
    except ModuleNotFoundError as error:
        fix = _INSTALL.get(module, "install it beside crystal_rl")
        raise CrystalError(f"surrogate {name} needs {error.name}, which is not installed", fix=fix) from error
    return surrogate


def elements_of(name: str = DEFAULT) -> frozenset[str]:
    """The elements that a surrogate knows; of the shipped ones without loading torch.

    Raises:
        UsageError: There is no such surrogate.
        CrystalError: It is a user's own, and its package is not installed.
    """
    module, model = find(name)
    if name in SHIPPED and module != "crystal_rl.potentials.fake":
        return frozenset(references_of(model))
    return frozenset(load_surrogate(name).references)


def find(name: str) -> tuple[str, str]:
    """Module and model (or function) of a surrogate's name.

    Raises:
        UsageError: There is no such surrogate.
    """
    if name in SHIPPED:
        return SHIPPED[name]
    module, colon, function = name.partition(":")
    if not (colon and module and function.isidentifier()):
        choices = ", ".join(SHIPPED)
        raise UsageError(f"no surrogate named {name!r}", fix=f"one of {choices}, or package.module:function")
    return module, function
