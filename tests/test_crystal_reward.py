"""The reward, to the digit."""

from __future__ import annotations

import pytest

from crystal_rl.errors import CODES, STAGE_REWARDS, rejected
from crystal_rl.messages import Limit, Target, Terms
from crystal_rl.reward import closeness, reward, stability


def terms(s: float, e: float, c: float, edits: int = 1) -> Terms:
    return Terms(s, e, c, edits, formation_energy=0.0, formation_energy_start=0.0)


def test_the_worked_example() -> None:
    """Density 4.2, target 5, width 3, energy unchanged, neutral, one edit: 0.893."""
    s = closeness(Target("density", 5.0, 3.0), 4.2)
    assert s == pytest.approx(0.7333333333333334, abs=1e-15)
    assert reward(terms(s, stability(-1.0, -1.0), 1.0)) == pytest.approx(0.8933333333333333, abs=1e-15)


@pytest.mark.parametrize(
    ("value", "expected"), [(5.0, 1.0), (6.5, 0.5), (3.5, 0.5), (8.0, 0.0), (2.0, 0.0), (-100.0, 0.0)]
)
def test_closeness_to_a_target_falls_linearly_to_0_a_width_away(value: float, expected: float) -> None:
    """On both sides, never below 0."""
    assert closeness(Target("density", 5.0, 3.0), value) == expected


@pytest.mark.parametrize(("value", "higher"), [(0.0, 0.0), (1.0, 0.0), (2.0, 0.5), (3.0, 1.0), (9.0, 1.0)])
def test_closeness_to_a_limit_is_linear_between_its_ends(value: float, higher: float) -> None:
    """`lower` is the mirror image of `higher`."""
    assert closeness(Limit("density", "higher", 1.0, 3.0), value) == higher
    assert closeness(Limit("density", "lower", 1.0, 3.0), value) == 1 - higher


@pytest.mark.parametrize(
    ("new", "expected"), [(-2.0, 1.0), (-1.0, 1.0), (-0.75, 0.5), (-0.5, 0.0), (3.0, 0.0)]
)
def test_stability_is_lost_with_half_an_electronvolt_an_atom(new: float, expected: float) -> None:
    """From a start at -1; what is gained is worth nothing more."""
    assert stability(new, -1.0) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (terms(0, 0, 0), 0.1),
        (terms(1, 0, 0), 0.5),
        (terms(0, 1, 0), 0.4),
        (terms(0, 0, 1), 0.3),
        (terms(1, 1, 1), 1.0),
        (terms(1, 1, 1, edits=4), 0.94),
        (terms(0, 0, 0, edits=4), 0.04),
    ],
)
def test_the_terms_add_up(parts: Terms, expected: float) -> None:
    """0.1 + 0.4 S + 0.3 E + 0.2 C - 0.02 for each edit beyond the first."""
    assert reward(parts) == pytest.approx(expected, abs=1e-15)


def test_every_failure_is_worth_less_than_the_worst_crystal_and_later_stages_more() -> None:
    """The ladder keeps variance inside a group early in training."""
    assert STAGE_REWARDS == {"parse": -1.0, "apply": -0.8, "check": -0.6, "relax": -0.4, "worker": None}
    assert max(code.reward for code in CODES.values() if code.reward is not None) < reward(
        terms(0, 0, 0, edits=4)
    )


def test_a_lost_worker_is_no_bad_chemistry() -> None:
    """Its result has no reward at all, so that nobody can take it for one."""
    result = rejected("c1", "worker_lost", "died twice")
    assert (result.ok, result.reward, result.code) == (False, None, "worker_lost")


def test_a_rejection_has_the_reward_of_its_stage() -> None:
    """Whatever the code."""
    for name, code in CODES.items():
        assert rejected("c1", name, "why", steps=3).reward == STAGE_REWARDS[code.stage]
