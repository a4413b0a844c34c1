"""Questions for the model, as chat messages.

Examples stand before the question as turns of their own: small models copy the form of earlier answers, and hardly
that of examples inside a question. Sites are listed by element with their indices; coordinates cost tokens and are
left out unless asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ase.data import chemical_symbols

from crystal_rl.grammar import render
from crystal_rl.messages import Add, Strain, Substitute, Target

if TYPE_CHECKING:
    from crystal_rl.messages import Edit, Goal, Structure
    from crystal_rl.problems import Problem

Message = dict[str, str]

INSTRUCTIONS = """You modify crystals. Answer with one block of 1 to 4 edits:
<modification><substitute from="El" to="El"/><exchange a="El" b="El"/><remove element="El" site="i"/>\
<add element="El" at="void"/><strain axis="all" percent="p"/></modification>
site is optional and 0-based; at is "x y z" in [0, 1) or void; axis is a, b, c or all; percent is -10 to 10."""

# Spread over the edits: what most examples do is what a small model does.
EXAMPLES: tuple[tuple[str, tuple[Edit, ...]], ...] = (
    (
        "Crystal Sr Ti O3: Sr 0; Ti 1; O 2 3 4. density 5.12. Goal: density 5.9.",
        (Substitute("Sr", "Ba"),),
    ),
    ("Crystal Cs I: Cs 0; I 1. density 4.51. Goal: density 3.4.", (Substitute("I", "Br"),)),
    (
        "Crystal Mg4 O4: Mg 0 1 2 3; O 4 5 6 7. volume_per_atom 9.4. Goal: volume_per_atom 12.",
        (Substitute("Mg", "Ca", 0), Strain("all", 1.5)),
    ),
    (
        "Crystal Ga4 As4: Ga 0 1 2 3; As 4 5 6 7. density 5.3. Goal: density 6.",
        (Add("In", None),),
    ),
)


def chat(
    problem: Problem, *, examples: int = 2, instructions: bool = True, coordinates: bool = False
) -> list[Message]:
    """The messages before the model's answer.

    Args:
        problem: What is asked.
        examples: Answered questions before it, at most 4.
        instructions: Begin with the grammar as system message.
        coordinates: List each site with its fractional coordinates.
    """
    messages = [_said("system", INSTRUCTIONS)] if instructions else []
    for question, answer in EXAMPLES[:examples]:
        messages += [_said("user", question), _said("assistant", render(answer))]
    return [*messages, _said("user", question_of(problem, coordinates=coordinates))]


def question_of(problem: Problem, *, coordinates: bool = False) -> str:
    """For example ``Crystal Na4 Cl4: Na 0 1 2 3; Cl 4 5 6 7. density 2.16. Goal: density 2.8.`` (without units: tokens)."""
    structure, goal = problem.crystal.structure, problem.goal
    sites = _coordinates(structure) if coordinates else _sites(structure)
    return (
        f"Crystal {formula(structure)}: {sites}. {goal.property} {problem.start:.3g}. Goal: {_wanted(goal)}."
    )


def formula(structure: Structure) -> str:
    """Elements in the order of their first site: ``Sr Ti O3``."""
    counts = {symbol: len(sites) for symbol, sites in _by_element(structure).items()}
    return " ".join(symbol if count == 1 else f"{symbol}{count}" for symbol, count in counts.items())


def _by_element(structure: Structure) -> dict[str, list[int]]:
    sites: dict[str, list[int]] = {}
    for i, number in enumerate(structure.numbers):
        sites.setdefault(chemical_symbols[number], []).append(i)
    return sites


def _sites(structure: Structure) -> str:
    return "; ".join(f"{symbol} {' '.join(map(str, at))}" for symbol, at in _by_element(structure).items())


def _coordinates(structure: Structure) -> str:
    from crystal_rl.atoms import to_atoms  # noqa: PLC0415 - only here

    fractions = to_atoms(structure).get_scaled_positions()
    rows = zip(structure.numbers, fractions.tolist(), strict=True)
    return "; ".join(
        f"{i} {chemical_symbols[number]} {' '.join(f'{value:.3f}' for value in place)}"
        for i, (number, place) in enumerate(rows)
    )


def _wanted(goal: Goal) -> str:
    if isinstance(goal, Target):
        return f"{goal.property} {goal.target:.3g}"
    return f"{goal.direction} {goal.property}"


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
