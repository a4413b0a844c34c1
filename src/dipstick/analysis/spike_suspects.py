"""Which schedules can be told apart in this run: contamination, shadows and classes (methods, 4.3).

* **Contaminated**: an opportunity that another optional event's window touches. Dropped.
* **Twins**: schedules whose windows overlap by J > 0.8, or that each have under 2 events without the other.
  They are one suspect; its events are the union.
* **Shadowed**: A has under 2 events without B, but B has plenty without A (checkpoints that always fall on a
  cache clear). B is judged by itself; A only together with B, and never "yes".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dipstick.analysis.spike_schedules import (
    Kind,
    Opportunities,
    Reach,
    Schedule,
    kind_of,
    merged,
    opportunities,
    overlap,
    touches,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dipstick.model import FloatArray

_MIN_EXCLUSIVE = 2
_TWIN_OVERLAP = 0.8


@dataclass(frozen=True, slots=True)
class Suspect:
    """A schedule with its windows, marked clean or not.

    Attributes:
        twins: Indices of its class, itself included.
        shadows: Indices of the schedules that it is never apart from (the reverse not holding).
    """

    name: str
    kind: Kind
    opp: Opportunities
    twins: tuple[int, ...] = ()
    shadows: tuple[int, ...] = ()


def find_suspects(
    schedules: Sequence[Schedule], edge_s: FloatArray, reach: Reach, anchors: Mapping[str, FloatArray] | None
) -> tuple[Suspect, ...]:
    """Windows, classes and contamination of all schedules of a run, in the order given."""
    raw = [Suspect(s.name, kind_of(s, edge_s), opportunities(s, edge_s, reach, anchors)) for s in schedules]
    alone = [_cleaned(raw, i, {i}) for i in range(len(raw))]
    marked = []
    for i, mine in enumerate(alone):
        hidden = {j for j in range(len(raw)) if j != i and _hidden_by(raw, alone, i, j)}
        twins = {j for j in hidden if _hidden_by(raw, alone, j, i)}
        marked.append(replace(mine, twins=tuple(sorted({i} | twins)), shadows=tuple(sorted(hidden - twins))))
    return tuple(_pooled(raw, s, i) for i, s in enumerate(marked))


def units_of(suspects: Sequence[Suspect]) -> list[tuple[int, ...]]:
    """The classes, each once, in order of their first member."""
    seen: set[int] = set()
    units = []
    for i, s in enumerate(suspects):
        if i not in seen:
            members = tuple(m for m in s.twins if m not in seen)
            seen.update(members)
            units.append(members)
    return units


def fired_windows(suspects: Sequence[Suspect], members: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Union of the fired windows of some suspects: where the disjoint windows open and close."""
    lo = np.concatenate([suspects[m].opp.lo_s[suspects[m].opp.fired] for m in members])
    hi = np.concatenate([suspects[m].opp.hi_s[suspects[m].opp.fired] for m in members])
    return merged(lo, hi)


def _cleaned(raw: Sequence[Suspect], i: int, own: set[int]) -> Suspect:
    """Mark the opportunities that an optional event outside ``own`` touches."""
    opp = raw[i].opp
    clean = np.ones(opp.lo_s.size, dtype=bool)
    for j, other in enumerate(raw):
        if j not in own and other.kind == "event":
            fired = other.opp.fired
            clean &= ~touches(opp.lo_s, opp.hi_s, other.opp.lo_s[fired], other.opp.hi_s[fired])
    return replace(raw[i], opp=replace(opp, clean=clean))


def _hidden_by(raw: Sequence[Suspect], alone: Sequence[Suspect], i: int, j: int) -> bool:
    """Is i never (or hardly) apart from j? J > 0.8, or under 2 clean events because of j."""
    if overlap(raw[i].opp, raw[j].opp) > _TWIN_OVERLAP:
        return True
    if alone[i].opp.clean_fired >= _MIN_EXCLUSIVE or raw[j].kind != "event":
        return False
    f, g = raw[i].opp.fired, raw[j].opp.fired
    both = touches(raw[i].opp.lo_s[f], raw[i].opp.hi_s[f], raw[j].opp.lo_s[g], raw[j].opp.hi_s[g])
    return bool(both.any()) and int(np.count_nonzero(~both)) < _MIN_EXCLUSIVE


def _pooled(raw: Sequence[Suspect], mine: Suspect, i: int) -> Suspect:
    """A class shares its fired windows; events of the own class (or of its shadow) do not contaminate."""
    if len(mine.twins) == 1:
        return replace(_cleaned(raw, i, {i, *mine.shadows}), twins=mine.twins, shadows=mine.shadows)
    lo, hi = fired_windows(raw, mine.twins)
    opp = raw[i].opp
    free = ~opp.fired & ~touches(opp.lo_s, opp.hi_s, lo, hi)
    flag = np.concatenate([np.ones(lo.size, dtype=bool), np.zeros(int(free.sum()), dtype=bool)])
    lo, hi = np.concatenate([lo, opp.lo_s[free]]), np.concatenate([hi, opp.hi_s[free]])
    pool = replace(raw[i], opp=Opportunities(lo, hi, flag, np.ones(lo.size, dtype=bool), opp.anchor))
    patched = [pool if k == i else s for k, s in enumerate(raw)]
    return replace(_cleaned(patched, i, set(mine.twins)), twins=mine.twins, shadows=mine.shadows)
