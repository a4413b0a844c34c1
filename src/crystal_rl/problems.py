"""What training asks: a crystal and a goal, drawn so that doing nothing is worth nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from crystal_rl.atoms import to_atoms
from crystal_rl.errors import Rejection, UsageError, rejected
from crystal_rl.grammar import parse
from crystal_rl.messages import Relaxation, Target, Task
from crystal_rl.properties import density, volume_per_atom

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ase import Atoms

    from crystal_rl.messages import Goal, Result
    from crystal_rl.structures import Crystal

DEFAULT_RELAXATION = Relaxation()
Direction = Literal["either", "higher", "lower"]


@dataclass(frozen=True, slots=True)
class Range:
    """How far targets of a property lie from the start: between ``near`` and ``far``, both relative or both absolute.

    Attributes:
        near: Also the width of the target: the start is worth nothing.
        far: The farthest.
        is_relative: To the start's value.
    """

    near: float
    far: float
    is_relative: bool


RANGES: dict[str, Range] = {
    "density": Range(0.2, 0.6, is_relative=True),
    "volume_per_atom": Range(0.15, 0.5, is_relative=True),
    "formation_energy": Range(0.3, 1.0, is_relative=False),
}
"""Properties that are known of every start without a surrogate at hand. Others: a ``score`` job's own goal."""
_VALUES: dict[str, Callable[[Atoms], float]] = {"density": density, "volume_per_atom": volume_per_atom}


@dataclass(frozen=True, slots=True)
class Problem:
    """A crystal and what is wanted of it.

    Attributes:
        id: Of the crystal and the goal; unique among those drawn together.
        crystal: Where to start.
        goal: What is wanted.
        start: The goal's property of the start.
    """

    id: str
    crystal: Crystal
    goal: Goal
    start: float


def draw(
    crystals: Sequence[Crystal],
    count: int,
    *,
    seed: int,
    goal: str = "density",
    direction: Direction = "either",
    max_atoms: int = 20,
) -> list[Problem]:
    """Problems whose start is a width or more away from the target: S is 0 for an answer that changes nothing.

    Args:
        crystals: To choose from, with repetition; those of more than ``max_atoms`` are left out.
        count: How many.
        seed: The same seed draws the same problems.
        goal: A property of RANGES.
        direction: On which side of the start targets lie.
        max_atoms: Of the start.

    Raises:
        UsageError: No such property to draw targets of, or no crystal is small enough.
    """
    if goal not in RANGES:
        raise UsageError(f"targets of {goal} cannot be drawn", fix=f"choose from: {', '.join(RANGES)}")
    small = [c for c in crystals if len(c.structure.numbers) <= max_atoms and start_of(goal, c) is not None]
    if not small:
        raise UsageError(f"no structure has at most {max_atoms} atoms and a known {goal}")
    dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
    return [_problem(i, dice.choice(small), goal, direction, dice) for i in range(count)]


def _problem(index: int, crystal: Crystal, goal: str, direction: Direction, dice: random.Random) -> Problem:
    span, start = RANGES[goal], start_of(goal, crystal) or 0.0
    scale = abs(start) if span.is_relative else 1.0
    sign = {"higher": 1, "lower": -1, "either": dice.choice((1, -1))}[direction]
    distance = dice.uniform(span.near, span.far) * scale
    width = round(span.near * scale, 3)
    target = round(start + sign * max(distance, width), 3)
    if abs(target - start) < width:  # rounding
        target = round(target + sign * 0.001, 3)
    return Problem(f"{index}-{crystal.id}", crystal, Target(goal, target, width), start)


def start_of(goal: str, crystal: Crystal) -> float | None:
    """The property of a start, as far as it is known without a surrogate."""
    if goal == "formation_energy":
        return crystal.formation_energy
    return _VALUES[goal](to_atoms(crystal.structure)) if goal in _VALUES else None


def task_of(
    task_id: str,
    completion: str,
    problem: Problem,
    elements: Collection[str] | Mapping[str, float],
    *,
    relax: Relaxation = DEFAULT_RELAXATION,
    deadline_s: float = 30.0,
    seed: int = 0,
) -> Task | Result:
    """The task for a worker, or at once the result of a completion that does not parse."""
    try:
        edits = parse(completion, elements)
    except Rejection as failure:
        return rejected(task_id, failure.code, str(failure))
    return Task(task_id, problem.crystal.structure, edits, problem.goal, relax, deadline_s, seed)
