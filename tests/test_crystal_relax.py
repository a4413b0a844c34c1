"""Relaxations that end well, and each way in which they do not: potentials with known answers, and an injected clock."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import Calculator, all_changes

from crystal_rl.atoms import from_atoms
from crystal_rl.errors import CODES
from crystal_rl.messages import Relaxation
from crystal_rl.potentials.fake import PairPotential
from crystal_rl.relax import Deadline, RelaxationStoppedError, relax

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIONS_ONLY = Relaxation(cell=False)


class Spring(Calculator):  # type: ignore[misc] # ASE is untyped
    """Every atom is pulled to the origin with ``k`` eV/Å²; the cell feels ``pressure`` eV/Å³."""

    implemented_properties = ("energy", "forces", "stress")

    def __init__(self, k: float = 1.0, pressure: float = 0.0, failure: Exception | None = None) -> None:
        super().__init__()
        self.k, self.pressure, self.failure = k, pressure, failure
        self.calls = 0

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        """Fill ``results``."""
        super().calculate(atoms, properties, system_changes)
        self.calls += 1
        if self.failure and self.calls > 3:
            raise self.failure
        self.results = {
            "energy": self.k * float((self.atoms.positions**2).sum()) / 2,
            "forces": -self.k * self.atoms.positions,
            "stress": np.array([-self.pressure] * 3 + [0.0] * 3),
        }


def pair() -> Atoms:
    return Atoms("NaCl", positions=[(0.5, 0, 0), (0, 1.0, 0)], cell=[10.0] * 3, pbc=True)


def never() -> Deadline:
    return Deadline.after(60.0, lambda: 0.0)


def stopped(
    calculator: Calculator, settings: Relaxation, deadline: Deadline | None = None
) -> RelaxationStoppedError:
    with pytest.raises(RelaxationStoppedError) as caught:
        relax(pair(), calculator, settings, seed=1, deadline=deadline or never())
    return caught.value


def test_a_relaxation_ends_when_no_force_is_larger_than_wanted() -> None:
    """Atoms on springs come to rest at the origin; the input stays where it was."""
    atoms = pair()
    relaxed = relax(atoms, Spring(), POSITIONS_ONLY, seed=1, deadline=never())
    assert np.abs(relaxed.atoms.positions).max() < 0.1
    assert relaxed.steps > 5
    assert from_atoms(atoms) == from_atoms(pair())


def test_each_step_is_told() -> None:
    """Steps from 0, the largest force of each, the last below what is wanted."""
    beats: list[tuple[int, float]] = []
    relaxed = relax(
        pair(), Spring(), POSITIONS_ONLY, seed=1, deadline=never(), beat=lambda *b: beats.append(b)
    )
    assert [step for step, _ in beats] == list(range(relaxed.steps + 1))
    assert beats[0][1] == pytest.approx(1.0, abs=0.05)
    assert beats[-1][1] < 0.1 <= beats[-2][1]


def test_the_cell_relaxes_too() -> None:
    """The fake potential contracts rocksalt at its radii; with `cell` off its volume stays."""
    atoms = bulk("NaCl", "rocksalt", a=5.4, cubic=True)
    free = relax(atoms, PairPotential(), Relaxation(), seed=1, deadline=never()).atoms
    fixed = relax(atoms, PairPotential(), POSITIONS_ONLY, seed=1, deadline=never()).atoms
    assert free.cell.volume < 0.95 * atoms.cell.volume
    assert fixed.cell.volume == pytest.approx(atoms.cell.volume, abs=1e-9)


def test_the_same_seed_gives_the_same_bits() -> None:
    """And another one others: the rattle is real."""
    atoms = bulk("NaCl", "rocksalt", a=5.4)
    runs = [relax(atoms, PairPotential(), Relaxation(), seed=seed, deadline=never()) for seed in (7, 7, 8)]
    a, b, c = (from_atoms(run.atoms) for run in runs)
    assert a == b != c


def test_the_step_cap_is_not_converged() -> None:
    """The message has the force that is left and the one that is wanted."""
    error = stopped(Spring(), Relaxation(max_steps=3, cell=False))
    assert (error.code, error.steps) == ("not_converged", 3)
    assert str(error).startswith("largest force 0.9")
    assert str(error).endswith("eV/Å after 3 steps; 0.1 is wanted")


def test_convergence_at_the_last_allowed_step_counts() -> None:
    """The cap allows that many steps, not one less."""
    steps = relax(pair(), Spring(), POSITIONS_ONLY, seed=1, deadline=never()).steps
    exact = Relaxation(max_steps=steps, cell=False)
    assert relax(pair(), Spring(), exact, seed=1, deadline=never()).steps == steps
    assert stopped(Spring(), Relaxation(max_steps=steps - 1, cell=False)).code == "not_converged"


def ticking(step_s: float) -> Callable[[], float]:
    """A clock on which each look takes so long."""
    return map(float, itertools.count(0, step_s)).__next__


def test_the_deadline_is_checked_at_each_step() -> None:
    """2.5 s with a second a step: over at the third look."""
    error = stopped(Spring(), POSITIONS_ONLY, Deadline.after(2.5, ticking(1.0)))
    assert (error.code, error.steps) == ("timeout", 2)
    assert str(error).startswith("2.5 s were over at step 2, largest force ")


def test_a_force_beyond_belief_is_divergence() -> None:
    """Before any step: the edited crystal is no start for a relaxation."""
    error = stopped(Spring(k=100.0), POSITIONS_ONLY)
    assert (error.code, error.steps) == ("diverged", 0)
    assert str(error).endswith("eV/Å at step 0; at most 50 is believed")


def test_not_a_number_is_divergence() -> None:
    """Whatever the potential made it of."""
    error = stopped(Spring(k=float("nan")), POSITIONS_ONLY)
    assert (error.code, str(error)) == ("diverged", "not a number at step 0")


@pytest.mark.parametrize(("pressure", "limit"), [(0.05, 2.0), (-0.05, 0.5)])
def test_a_cell_that_runs_away_is_divergence(pressure: float, limit: float) -> None:
    """Blown up to twice the volume or crushed to half of it."""
    error = stopped(Spring(k=0.0, pressure=pressure), Relaxation(max_steps=500))
    assert error.code == "diverged"
    assert f"the volume went to x{limit:.0f}"[:25] in str(error) or "the volume went to x0.4" in str(error)


def test_a_failure_of_the_surrogate_says_nothing_about_a_sound_crystal() -> None:
    """Out of memory is not bad chemistry: the error goes up as it is."""
    with pytest.raises(RuntimeError, match="out of memory"):
        relax(pair(), Spring(failure=RuntimeError("out of memory")), POSITIONS_ONLY, seed=1, deadline=never())


def test_a_failure_of_the_surrogate_on_a_blown_up_crystal_is_divergence() -> None:
    """Graphs without edges and the like: the crystal's fault."""

    class Tearing(Spring):
        def calculate(self, *args: Any, **more: Any) -> None:
            super().calculate(*args, **more)
            if self.calls > 1:
                self.atoms.positions[:] = np.nan  # ASE's own copy
                raise ValueError("no edges")

    class Broken(Spring):
        """Moves the crystal itself out of all bounds, then fails."""

        def calculate(self, atoms: Any = None, *args: Any, **more: Any) -> None:
            super().calculate(atoms, *args, **more)
            if self.calls > 1:
                atoms.set_cell(atoms.cell.array * 3)
                raise ValueError("no edges")

    error = stopped(Broken(), POSITIONS_ONLY)
    assert (error.code, str(error)) == (
        "diverged",
        "the surrogate failed on a crystal blown up to x27 of its volume",
    )
    with pytest.raises(ValueError, match="no edges"):
        relax(pair(), Tearing(), POSITIONS_ONLY, seed=1, deadline=never())


def test_every_code_of_the_stage_is_tested() -> None:
    """The three above."""
    assert {name for name, code in CODES.items() if code.stage == "relax"} == {
        "diverged",
        "not_converged",
        "timeout",
    }


@pytest.mark.parametrize("scale", [0.95, 1.05])
def test_forces_and_stress_of_the_fake_potential_are_its_energys_slopes(scale: float) -> None:
    """By finite differences: a relaxation with it descends."""
    atoms = bulk("NaCl", "rocksalt", a=5.0 * scale, cubic=True)
    atoms.rattle(0.05, seed=2)
    atoms.calc = PairPotential()
    forces, stress, h = atoms.get_forces(), atoms.get_stress(voigt=False), 1e-5

    def energy(shift: float, strain: float) -> float:
        moved = atoms.copy()
        moved.calc = PairPotential()
        moved.positions[0, 0] += shift
        moved.set_cell(atoms.cell.array @ (np.eye(3) + strain * np.diag([1, 0, 0])), scale_atoms=True)
        return float(moved.get_potential_energy())

    assert (energy(-h, 0) - energy(h, 0)) / (2 * h) == pytest.approx(forces[0, 0], abs=1e-6)
    slope = (energy(0, h) - energy(0, -h)) / (2 * h) / atoms.cell.volume
    assert slope == pytest.approx(stress[0, 0], abs=1e-6)
