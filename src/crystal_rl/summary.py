"""What a set of scored completions says: how many are valid, what fails, and signs of gaming the reward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from crystal_rl.messages import Add, Strain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crystal_rl.messages import Edit, Result


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and shares over some completions; shares of nothing are None.

    Attributes:
        completions: How many.
        ok: Relaxed, converged and scored.
        lost: Without a reward (``worker_lost``): masked, not scored.
        mean_reward: Over those that have one.
        codes: How often each failure.
        strain_only: Share of parsed answers that do nothing but strain.
        with_add: Share of parsed answers that add atoms.
        duplicates: Share of parsed answers that another one equals.
        flat_groups: Groups whose rewards are all equal: they have no advantage, nothing is learned from them.
    """

    completions: int
    ok: int
    lost: int
    mean_reward: float | None
    codes: dict[str, int]
    strain_only: float | None
    with_add: float | None
    duplicates: float | None
    flat_groups: int


def summarise(
    results: Sequence[Result],
    edits: Sequence[tuple[Edit, ...] | None] = (),
    groups: Sequence[object] = (),
) -> Summary:
    """Sum up.

    Args:
        results: One a completion.
        edits: What each asked for, None for those that did not parse; empty: unknown.
        groups: The group of each; empty: all are one.
    """
    parsed = [edit for edit in edits if edit is not None]
    counts = Counter(parsed)
    rewards = [result.reward for result in results if result.reward is not None]
    return Summary(
        completions=len(results),
        ok=sum(result.ok for result in results),
        lost=len(results) - len(rewards),
        mean_reward=fmean(rewards) if rewards else None,
        codes=dict(sorted(Counter(result.code for result in results if result.code).items())),
        strain_only=_share(parsed, [all(isinstance(e, Strain) for e in edit) for edit in parsed]),
        with_add=_share(parsed, [any(isinstance(e, Add) for e in edit) for edit in parsed]),
        duplicates=_share(parsed, [counts[edit] > 1 for edit in parsed]),
        flat_groups=_flat(results, groups or [None] * len(results)),
    )


def _share(parsed: Sequence[object], hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(parsed) if parsed else None


def _flat(results: Sequence[Result], groups: Sequence[object]) -> int:
    rewards: dict[object, set[float]] = {}
    for result, group in zip(results, groups, strict=True):
        if result.reward is not None:
            rewards.setdefault(group, set()).add(result.reward)
    return sum(len(values) == 1 for values in rewards.values())
