"""One completion to one result, from end to end: every row of the error table, and everything a good one carries."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")
pytest.importorskip("smact", reason="needs the extra `crystal`: nox -s crystal")

from ase import Atoms
from ase.build import bulk
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_rl import scoring
from crystal_rl.atoms import from_atoms, to_atoms
from crystal_rl.errors import CODES, CrystalError, UsageError
from crystal_rl.messages import (
    Add,
    Exchange,
    Limit,
    Relaxation,
    Remove,
    Result,
    Strain,
    Structure,
    Substitute,
    Target,
    Task,
    plain,
)
from crystal_rl.potentials.base import Potential
from crystal_rl.potentials.fake import PairPotential, load
from crystal_rl.problems import Problem, task_of
from crystal_rl.properties import density
from crystal_rl.reward import closeness, reward, stability
from crystal_rl.scoring import Scorer, load_scorer
from crystal_rl.structures import Crystal
from crystal_rl.surrogate import elements_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from crystal_rl.messages import Edit

SALT = from_atoms(bulk("NaCl", "rocksalt", a=5.1, cubic=True))
TITANATE = from_atoms(
    Atoms(
        "SrTiO3",
        scaled_positions=[(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)],
        cell=[3.905] * 3,
        pbc=True,
    )
)
GOAL = Target("density", 3.0, 1.0)
WARM = Scorer(load("fake-1", "cpu"))


@pytest.fixture
def scorer() -> Scorer:
    return WARM


def task(*edits: Any, **more: Any) -> Task:
    return Task("c1", more.pop("structure", SALT), edits, more.pop("goal", GOAL), **more)


def scored(
    scorer: Scorer, completion: str, structure: Structure = SALT, goal: Target = GOAL, **more: Any
) -> Result:
    """The result of a completion: parsed here, then evaluated as a worker does."""
    problem = Problem("p", Crystal("x", "", "", structure), goal, 0.0)
    job = task_of("c1", completion, problem, elements_of("fake"), **more)
    return job if isinstance(job, Result) else scorer.evaluate(job)


STRAIN = '<strain axis="a" percent="1"/>'
SINGLE = Structure((11, 17), SALT.cell, SALT.positions[:1] + SALT.positions[4:5])
FULL = from_atoms(bulk("NaCl", "rocksalt", a=5.1, cubic=True).repeat((2, 2, 2)))

ROWS: list[tuple[str, float, str, dict[str, Any]]] = [
    ("no_block", -1.0, "no idea", {}),
    ("many_blocks", -1.0, "<modification/><modification/>", {}),
    ("too_long", -1.0, f"<modification>{' ' * 5000}</modification>", {}),
    ("unsafe_xml", -1.0, "<modification><!-- x --></modification>", {}),
    ("bad_xml", -1.0, "<modification><a></modification>", {}),
    ("unknown_edit", -1.0, "<modification><swap/></modification>", {}),
    ("edit_count", -1.0, "<modification></modification>", {}),
    ("bad_attribute", -1.0, '<modification><add element="O"/></modification>', {}),
    ("unknown_element", -1.0, '<modification><remove element="Uue"/></modification>', {}),
    ("absent_element", -0.8, '<modification><remove element="K"/></modification>', {}),
    ("bad_site", -0.8, '<modification><remove element="Na" site="1"/></modification>', {}),
    ("no_change", -0.8, '<modification><substitute from="Na" to="Na"/></modification>', {}),
    ("too_small", -0.8, '<modification><remove element="Na"/></modification>', {"structure": SINGLE}),
    ("too_big", -0.8, '<modification><add element="H" at="void"/></modification>', {"structure": FULL}),
    ("too_close", -0.6, '<modification><substitute from="O" to="Cs"/></modification>', {"structure": TITANATE}),
    (
        "bad_volume",
        -0.6,
        '<modification><remove element="Na"/><strain axis="all" percent="10"/></modification>',
        {"structure": from_atoms(bulk("NaCl", "rocksalt", a=8.0, cubic=True))},
    ),
    (
        "diverged",
        -0.4,
        '<modification><substitute from="Na" to="Mn"/></modification>',
        {"structure": from_atoms(bulk("NaCl", "rocksalt", a=5.64, cubic=True))},
    ),
    (
        "not_converged",
        -0.4,
        f"<modification>{STRAIN}</modification>",
        {"relax": Relaxation(max_steps=1, fmax=1e-3)},
    ),
    ("timeout", -0.4, f"<modification>{STRAIN}</modification>", {"deadline_s": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected", "completion", "more"), ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_error_table(
    scorer: Scorer, code: str, expected: float, completion: str, more: dict[str, Any]
) -> None:
    """One bad completion each: its code, the reward of its stage, a message, nothing of a score."""
    result = scored(scorer, completion, **more)
    assert (result.code, result.reward, result.ok) == (code, expected, False)
    assert result.message
    assert (result.value, result.terms, result.final) == (None, None, None)


def test_the_table_is_complete() -> None:
    """Only `worker_lost` is not an answer's fault: the pool gives it."""
    assert [row[0] for row in ROWS] == [name for name in CODES if name != "worker_lost"]


def test_a_good_answer_carries_every_term(scorer: Scorer) -> None:
    """The reward is that of its terms, the value that of the relaxed crystal."""
    result = scored(scorer, 'So: <modification><substitute from="Na" to="K"/></modification>')
    assert (result.ok, result.code, result.message) == (True, None, None)
    assert result.final is not None
    assert result.terms is not None
    assert result.value is not None
    relaxed = to_atoms(result.final)
    assert relaxed.get_chemical_formula() == "Cl4K4"
    assert result.value == pytest.approx(density(relaxed), abs=1e-12)
    terms = result.terms
    assert terms.closeness == closeness(GOAL, result.value)
    assert terms.stability == stability(terms.formation_energy, terms.formation_energy_start)
    assert (terms.chemistry, terms.edits) == (1.0, 1)
    assert result.reward == reward(terms)
    assert result.steps > 0


def test_a_composition_that_cannot_be_neutral_loses_the_chemistry_term(scorer: Scorer) -> None:
    """Na4Cl3 is neither neutral nor all metal."""
    result = scored(scorer, '<modification><remove element="Cl" site="1"/></modification>')
    assert result.terms is not None
    assert result.terms.chemistry == 0.0


def test_each_further_edit_costs(scorer: Scorer) -> None:
    """The same crystal in two edits gets 0.02 less."""
    one = scored(scorer, '<modification><substitute from="Na" to="K"/></modification>')
    two = scored(
        scorer,
        '<modification><substitute from="Na" to="Li"/><substitute from="Li" to="K"/></modification>',
    )
    assert (one.final, one.value) == (two.final, two.value)
    assert one.reward is not None
    assert two.reward == pytest.approx(one.reward - 0.02, abs=1e-12)


def test_the_same_task_gives_the_same_result(scorer: Scorer) -> None:
    """Bit for bit, also from another scorer that has done other work before."""
    job = task(Substitute("Na", "K"), seed=5)
    other = Scorer(load("fake-1", "cpu"))
    other.evaluate(task(Strain("b", 3.0), structure=TITANATE))
    assert scorer.evaluate(job) == scorer.evaluate(job) == other.evaluate(job)
    assert scorer.evaluate(dataclasses.replace(job, seed=6)).final != scorer.evaluate(job).final


def test_results_and_tasks_travel(scorer: Scorer) -> None:
    """Through pickle as they are, and as JSON-ready values with the type of each edit and goal."""
    job = task(Substitute("Na", "K"), Strain("a", 1.0), goal=Limit("density", "higher", 1.0, 4.0))
    result = scorer.evaluate(job)
    assert pickle.loads(pickle.dumps((job, result))) == (job, result)  # noqa: S301 - our own bytes
    value = plain(job)
    assert [edit["type"] for edit in value["edits"]] == ["substitute", "strain"]
    assert value["goal"] == {
        "type": "limit",
        "property": "density",
        "direction": "higher",
        "low": 1.0,
        "high": 4.0,
    }
    assert plain(result)["terms"]["edits"] == 2


elements = st.sampled_from(("Na", "Cl", "H", "Cs"))
edits = st.one_of(
    st.builds(Substitute, elements, elements, st.none() | st.integers(0, 9)),
    st.builds(Exchange, elements, elements),
    st.builds(Remove, elements, st.none() | st.integers(0, 9)),
    st.builds(Add, elements, st.none() | st.tuples(*[st.floats(0, 0.999)] * 3)),
    st.builds(Strain, st.sampled_from(("a", "b", "c", "all")), st.floats(-10, 10)),
)


@given(st.lists(edits, min_size=1, max_size=4))
@settings(max_examples=40)
def test_whatever_the_edits_there_is_exactly_one_result(wanted: list[Edit]) -> None:
    """Nothing is raised; a reward is in its bounds, and either a score or a code explains it."""
    result = WARM.evaluate(task(*wanted, relax=Relaxation(max_steps=5)))
    assert result.ok == (result.code is None) == (result.terms is not None)
    assert result.reward is not None
    assert (0.04 <= result.reward <= 1.0) if result.ok else result.reward == CODES[result.code or ""].reward


def spans(result: Result) -> list[str]:
    return [span.name for span in result.spans]


def counting() -> Callable[[], int]:
    """A clock that moves by a millisecond at each look."""
    return itertools.count(0, 1_000_000).__next__


def test_spans_say_where_the_time_went() -> None:
    """Edit, relax, score, one after the other; a failure closes the span it happened in."""
    ticking = Scorer(load("fake-1", "cpu"), clock=counting())
    good = ticking.evaluate(task(Substitute("Na", "K")))
    assert spans(good) == ["edit", "relax", "score"]
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(good.spans))
    assert all(span.start_ns < span.end_ns for span in good.spans)
    assert spans(ticking.evaluate(task(Substitute("K", "Na")))) == ["edit"]
    assert spans(ticking.evaluate(task(Strain("a", 1.0), relax=Relaxation(max_steps=1)))) == ["edit", "relax"]


def test_the_deadline_counts_on_the_scorers_clock() -> None:
    """A millisecond a look: 10 ms are over after a few steps, an hour is not."""
    short = Scorer(load("fake-1", "cpu"), clock=counting()).evaluate(task(Strain("a", 5.0), deadline_s=0.010))
    assert short.code == "timeout"
    assert 0 < short.steps < 10
    assert (
        Scorer(load("fake-1", "cpu"), clock=counting()).evaluate(task(Strain("a", 5.0), deadline_s=3600)).ok
    )


def test_a_beat_may_stop_the_work(scorer: Scorer) -> None:
    """What it raises goes up: a cancelled task is no result of the completion."""

    class CancelledError(Exception):
        pass

    def beat(step: int, _: float) -> None:
        if step == 2:
            raise CancelledError

    with pytest.raises(CancelledError):
        scorer.evaluate(task(Substitute("Na", "K")), beat)


def test_an_unknown_property_is_the_jobs_fault_not_the_completions(scorer: Scorer) -> None:
    """It is raised, not scored."""
    with pytest.raises(CrystalError, match="fake-1 predicts no band_gap"):
        scorer.evaluate(task(Strain("a", 1.0), goal=Target("band_gap", 1.0, 1.0)))


def test_a_property_that_is_no_number_is_divergence() -> None:
    """A user's model may fail in that way."""
    own = Potential(
        "mine", "cpu", load("fake-1", "cpu").references, PairPotential(), more=lambda _: {"gap": float("nan")}
    )
    result = Scorer(own).evaluate(task(Strain("a", 1.0), goal=Target("gap", 1.0, 1.0)))
    assert (result.code, result.reward) == ("diverged", -0.4)


def test_a_scorer_needs_reference_energies() -> None:
    """Without them no formation energy, and no element would be known."""
    with pytest.raises(CrystalError, match="new has no reference energies of the elements"):
        Scorer(Potential("new", "cpu", {}, PairPotential()))


def test_warming_up_leaves_nothing_behind(scorer: Scorer) -> None:
    """It runs the model and SMACT once."""
    scorer.warm_up()
    assert (scorer.model, scorer.device) == ("fake-1", "cpu")
    assert scorer.evaluate(task(Substitute("Na", "K"))).ok


def test_surrogates_are_found_by_name() -> None:
    """A shipped one, a user's own, and what is neither."""
    assert load_scorer("fake").model == "fake-1"
    assert load_scorer(f"{__name__}:own", "cuda:7").device == "cuda:7"
    for name in ("gpt", "a:b:c", ":f", "os:"):
        with pytest.raises(UsageError, match="no surrogate named"):
            load_scorer(name)
    with pytest.raises(CrystalError, match="needs no_such_package, which is not installed"):
        load_scorer("no_such_package:model")


def own(device: str) -> Potential:
    """A user's surrogate."""
    return Potential("own", device, {"Na": -1.0, "Cl": -1.0}, PairPotential())


def test_the_elements_of_a_surrogate_are_known_without_loading_it() -> None:
    """Those with a reference energy."""
    assert {"Na", "O", "Fe"} <= elements_of("chgnet")
    assert elements_of("chgnet").isdisjoint({"Po", "Rn", "U", "Xx"})
    assert elements_of(f"{__name__}:own") == {"Na", "Cl"}
    assert scoring.load_scorer("fake").surrogate.references.keys() == elements_of("fake")
