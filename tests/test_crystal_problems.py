"""What training asks: problems, prompts, and the summary of the answers."""

from __future__ import annotations

import pytest

pytest.importorskip("ase", reason="needs the extra `crystal`: nox -s crystal")

from crystal_rl.errors import UsageError, rejected
from crystal_rl.grammar import parse
from crystal_rl.messages import Add, Limit, Relaxation, Result, Strain, Substitute, Target, Task
from crystal_rl.problems import RANGES, Problem, draw, task_of
from crystal_rl.prompts import EXAMPLES, chat, question_of
from crystal_rl.reward import closeness
from crystal_rl.structures import find, shipped
from crystal_rl.summary import Summary, summarise
from crystal_rl.surrogate import elements_of

SALT = find("rocksalt-NaCl")


@pytest.mark.parametrize("goal", RANGES)
def test_doing_nothing_is_worth_nothing(goal: str) -> None:
    """Every drawn target is a width or more away from the start."""
    for problem in draw(shipped(), 200, seed=1, goal=goal):
        assert isinstance(problem.goal, Target)
        assert abs(problem.start - problem.goal.target) >= problem.goal.width
        assert closeness(problem.goal, problem.start) == pytest.approx(0.0, abs=1e-9)


def test_the_same_seed_draws_the_same_problems() -> None:
    """Another one others; names are unique."""
    a, b, c = (draw(shipped(), 50, seed=seed) for seed in (1, 1, 2))
    assert a == b != c
    assert len({problem.id for problem in a}) == 50


@pytest.mark.parametrize(("direction", "sign"), [("higher", 1), ("lower", -1)])
def test_targets_lie_on_the_asked_side(direction: str, sign: int) -> None:
    """Of the start."""
    problems = draw(shipped(), 50, seed=3, direction=direction)  # type: ignore[arg-type] # one of three
    assert all(sign * (p.goal.target - p.start) > 0 for p in problems if isinstance(p.goal, Target))


def test_large_cells_are_left_out() -> None:
    """As many atoms as a worker has time for."""
    problems = draw(shipped(), 50, seed=3, max_atoms=4)
    assert all(len(problem.crystal.structure.numbers) <= 4 for problem in problems)


def test_what_cannot_be_drawn_says_so() -> None:
    """An unknown property, or no crystal that small."""
    with pytest.raises(UsageError, match="targets of band_gap cannot be drawn"):
        draw(shipped(), 1, seed=1, goal="band_gap")
    with pytest.raises(UsageError, match="no structure has at most 1 atoms"):
        draw(shipped(), 1, seed=1, max_atoms=1)


def problem(goal: Target | Limit) -> Problem:
    return Problem("p1", SALT, goal, 2.16)


def test_a_completion_becomes_a_task_or_at_once_a_result() -> None:
    """What does not parse never reaches a worker."""
    asked = problem(Target("density", 2.8, 0.4))
    task = task_of("c1", '<modification><strain axis="a" percent="1"/></modification>', asked, {"Na"}, seed=3)
    assert task == Task("c1", SALT.structure, (Strain("a", 1.0),), asked.goal, Relaxation(), 30.0, 3)
    result = task_of("c2", "no", asked, {"Na"})
    assert isinstance(result, Result)
    assert (result.id, result.code, result.reward) == ("c2", "no_block", -1.0)


def test_the_question_lists_sites_by_element_with_their_indices() -> None:
    """Short: a small model's context is."""
    asked = problem(Target("density", 2.8, 0.4))
    sites = "Na 0 2 4 6; Cl 1 3 5 7"
    assert question_of(asked) == f"Crystal Na4 Cl4: {sites}. density 2.16. Goal: density 2.8."
    limit = question_of(problem(Limit("density", "higher", 1.0, 3.0)))
    assert limit.endswith("density 2.16. Goal: higher density.")


def test_coordinates_are_listed_on_demand() -> None:
    """Fractional, with the index in front."""
    text = question_of(problem(Target("density", 2.8, 0.4)), coordinates=True)
    assert text.startswith("Crystal Na4 Cl4: 0 Na ")
    assert "; 7 Cl " in text


def test_examples_are_earlier_turns() -> None:
    """As many as asked for, each with an answer that parses, the question last."""
    messages = chat(problem(Target("density", 2.8, 0.4)), examples=3)
    assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * 3, "user"]
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    assert [parse(text, elements_of("chgnet")) for text in answers] == [edits for _, edits in EXAMPLES[:3]]
    bare = chat(problem(Target("density", 2.8, 0.4)), examples=0, instructions=False)
    assert [m["role"] for m in bare] == ["user"]


def test_examples_spread_over_the_edits() -> None:
    """What most of them do is what a small model does."""
    kinds = [type(edit) for _, edits in EXAMPLES for edit in edits]
    assert {Substitute, Add, Strain} <= set(kinds)
    assert max(map(kinds.count, kinds)) <= 3


# --- the summary ------------------------------------------------------------------------------------------------


def ok(name: str, reward: float) -> Result:
    return Result(name, ok=True, reward=reward)


def test_a_summary_counts_failures_and_signs_of_gaming() -> None:
    """Lost workers have no reward and do not weigh on the mean; shares are of what parsed."""
    results = [ok("a", 0.9), ok("b", 0.5), rejected("c", "bad_xml", "x"), rejected("d", "worker_lost", "x")]
    strain, add = (Strain("a", 1.0),), (Add("H"), Strain("a", 1.0))
    found = summarise(results, [strain, strain, None, add], groups=[0, 0, 1, 1])
    assert found.mean_reward == pytest.approx(0.4 / 3)
    assert found == Summary(
        completions=4,
        ok=2,
        lost=1,
        mean_reward=found.mean_reward,
        codes={"bad_xml": 1, "worker_lost": 1},
        strain_only=2 / 3,
        with_add=1 / 3,
        duplicates=2 / 3,
        flat_groups=1,
    )


def test_a_group_without_advantage_is_counted() -> None:
    """All rewards equal: nothing is learned from it."""
    assert summarise([ok("a", 0.5), ok("b", 0.5)]).flat_groups == 1
    assert summarise([ok("a", 0.5), ok("b", 0.6)]).flat_groups == 0


def test_shares_of_nothing_are_missing_not_zero() -> None:
    """No completion, no parsed answer."""
    found = summarise([])
    assert (found.mean_reward, found.strain_only, found.with_add, found.duplicates) == (None,) * 4
