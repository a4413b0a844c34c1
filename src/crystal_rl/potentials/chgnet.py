"""CHGNet (Deng et al., Nature Machine Intelligence 2023): energies, forces, stresses and magnetic moments.

Its package requires nvidia-ml-py3, an NVML binding of 2019 whose ``pynvml.py`` overwrites that of nvidia-ml-py, which
dipstick reads the GPU with. So it is installed without dependencies. It uses that binding for one thing only, choosing
the GPU with most free memory, which we never ask for; where it is absent, an empty module takes its place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from ase.build import bulk

from crystal_rl.potentials.base import Potential
from crystal_rl.references import references_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ase import Atoms
    from ase.calculators.calculator import BaseCalculator


def load(model: str, device: str) -> Potential:
    """``chgnet-0.3.0`` or ``chgnet-r2scan``, run once."""
    _stand_in_for_nvidia_smi()
    with _quiet():
        from chgnet.model import CHGNet  # noqa: PLC0415 - after the stand-in
        from chgnet.model.dynamics import CHGNetCalculator  # noqa: PLC0415 - after the stand-in

        version = model.removeprefix("chgnet-")
        network = CHGNet.load(model_name=version, use_device=device, check_cuda_mem=False, verbose=False)
        calculator = CHGNetCalculator(
            network, use_device=device, check_cuda_mem=False, on_isolated_atoms="ignore"
        )
        _run_once(calculator)
    return Potential(model, device, references_of(model), calculator, _magnetisation)


def _magnetisation(atoms: Atoms) -> dict[str, float]:
    """Mean size of the atoms' moments, mu_B/atom; CHGNet's have no sign."""
    return {"magnetisation": float(np.abs(atoms.get_magnetic_moments()).mean())}


def _run_once(calculator: BaseCalculator) -> None:
    """Torch says once a process what it dislikes in CHGNet: here, where nobody listens."""
    probe = bulk("NaCl", "rocksalt", a=5.64)
    probe.calc = calculator
    probe.get_potential_energy()


def _stand_in_for_nvidia_smi() -> None:
    if importlib.util.find_spec("nvidia_smi") is None:
        sys.modules["nvidia_smi"] = ModuleType(
            "nvidia_smi", "Stands in for nvidia-ml-py3; see crystal_rl.potentials"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """CHGNet prints to stdout, where our answers go, and warns about its own code."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
