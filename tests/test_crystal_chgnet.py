"""The real surrogate on real relaxations: CHGNet as installed, its weights from its own package."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("chgnet", reason="needs CHGNet: nox -s crystal")

from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.generate import grown, seedlings
from crystal_rl.messages import Add, Edit, Relaxation, Result, Strain, Substitute, Target, Task
from crystal_rl.scoring import Scorer, load_scorer
from crystal_rl.structures import find

SALT = find("rocksalt-NaCl").structure


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    found = load_scorer("chgnet")
    found.warm_up()
    return found


def run(
    scorer: Scorer, *edits: Edit, name: str = "rocksalt-NaCl", goal: str = "density", max_steps: int = 100
) -> Result:
    start, wanted = find(name).structure, Target(goal, 2.0, 1.0)
    return scorer.evaluate(Task("c1", start, edits, wanted, Relaxation(max_steps=max_steps), 600.0, seed=1))


def test_potassium_for_sodium_gives_sylvite(scorer: Scorer) -> None:
    """KCl: 1.98 g/cm³ and -2.26 eV/atom by experiment; the functional behind CHGNet binds it less and wider."""
    result = run(scorer, Substitute("Na", "K"))
    assert result.ok
    assert result.value == pytest.approx(1.93, abs=0.05)
    assert result.terms is not None
    assert result.terms.formation_energy == pytest.approx(-2.1, abs=0.15)
    assert result.terms.chemistry == 1.0
    assert result.terms.stability == 1.0
    assert 0.8 < (result.reward or 0) <= 1.0


def test_the_same_task_gives_the_same_bits(scorer: Scorer) -> None:
    """On a CPU: energies, positions and the reward of two runs are equal."""
    edits = (Substitute("Na", "Li", 0), Strain("c", -2.0))
    assert run(scorer, *edits, max_steps=8) == run(scorer, *edits, max_steps=8)


def test_an_atom_squeezed_into_a_void_takes_long(scorer: Scorer) -> None:
    """The straggler of a batch: `add` has not converged when a substitution is long done."""
    quick = run(scorer, Substitute("Cl", "Br"))
    slow = run(scorer, Add("Li"), max_steps=quick.steps)
    assert quick.ok
    assert slow.code == "not_converged"


def test_magnetic_moments_are_a_property(scorer: Scorer) -> None:
    """Nickel oxide has them, rock salt has not; mu_B per atom."""
    oxide = run(scorer, Strain("all", 1.0), name="rocksalt-NiO", goal="magnetisation")
    salt = run(scorer, Strain("all", 1.0), goal="magnetisation")
    assert 0.3 < (oxide.value or 0) < 1.2
    assert (salt.value or 0) < 0.05


def test_a_bulk_modulus_is_near_experiment(scorer: Scorer) -> None:
    """Rock salt: 24 GPa."""
    assert 15 < (run(scorer, Strain("all", 1.0), goal="bulk_modulus").value or 0) < 35


def test_a_shipped_crystal_can_be_grown_again(scorer: Scorer) -> None:
    """To 0.01 Å and 2 meV/atom on any machine: processors round single precision differently."""
    pytest.importorskip("pymatgen")
    for seedling in seedlings(scorer.surrogate.references)[:2]:
        crystal, old = grown(seedling, scorer.surrogate), find(seedling.id)
        assert crystal is not None
        assert (crystal.id, crystal.seed, crystal.formula) == (old.id, old.seed, old.formula)
        assert crystal.formation_energy == pytest.approx(old.formation_energy, abs=0.002)
        new, shipped = to_atoms(crystal.structure), to_atoms(old.structure)
        assert abs(new.positions - shipped.positions).max() < 0.01
        assert abs(new.cell.array - shipped.cell.array).max() < 0.01


def test_a_shipped_crystal_is_at_rest(scorer: Scorer) -> None:
    """Nothing moves much when it is relaxed once more."""
    atoms = to_atoms(SALT)
    atoms.calc = scorer.surrogate.calculator
    assert abs(atoms.get_forces()).max() < 0.1
    assert abs(atoms.get_stress()).max() < 0.01
    assert from_atoms(atoms) == SALT


def test_loading_is_silent_and_leaves_nvml_alone() -> None:
    """Nothing on stdout, where answers go; no NVML binding loaded: CHGNet's would be one of 2019."""
    code = (
        "import sys; from crystal_rl.surrogate import load_surrogate\n"
        "load_surrogate('chgnet'); print('pynvml' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:crystal_rl", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
