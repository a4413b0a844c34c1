"""The reward: a pure formula, every term of it kept.

::

    S = clip(1 - |p - t| / w, 0, 1)  for a target, or linear between two values         closeness
    E = clip(1 - max(0, f_new - f_start) / 0.5, 0, 1)   f = formation energy, eV/atom   stability
    C = 1 if charge-neutral or all-metal, else 0                                        chemistry
    R = 0.1 + 0.4 S + 0.3 E + 0.2 C - 0.02 (edits - 1)

Density 4.2 for a target of 5 and width of 3, formation energy unchanged, neutral, one edit:
S = 0.733, R = 0.1 + 0.293 + 0.3 + 0.2 = 0.893.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crystal_rl.messages import Target

if TYPE_CHECKING:
    from crystal_rl.messages import Goal, Terms

BASE, CLOSENESS, STABILITY, CHEMISTRY, PER_EDIT = 0.1, 0.4, 0.3, 0.2, 0.02
TOLERANCE_EV = 0.5
"""Formation energy per atom that may be lost until stability is worth nothing."""


def closeness(goal: Goal, value: float) -> float:
    """S: 1 at the goal, 0 a width away; for a limit 0 at one end and 1 at the other."""
    if isinstance(goal, Target):
        return _clip(1 - abs(value - goal.target) / goal.width)
    share = (value - goal.low) / (goal.high - goal.low)
    return _clip(share if goal.direction == "higher" else 1 - share)


def stability(new: float, start: float) -> float:
    """E, from two formation energies in eV/atom: 1 unless energy was lost, 0 when 0.5 eV/atom was."""
    return _clip(1 - max(0.0, new - start) / TOLERANCE_EV)


def reward(terms: Terms) -> float:
    """R of a relaxed crystal, 0.04 to 1."""
    gain = CLOSENESS * terms.closeness + STABILITY * terms.stability + CHEMISTRY * terms.chemistry
    return BASE + gain - PER_EDIT * (terms.edits - 1)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
