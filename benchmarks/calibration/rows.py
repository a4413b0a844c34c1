"""Cells, rows and their judgement: is a rate above its nominal level, is a power as in the table?

Levels: exact binomial probability of as many rejections or more at the nominal rate, Holm over all level
cells of the call. Powers: two-sided Fisher exact test against the table's rate at the table's own number of
runs, Holm over all power cells; "below" is a defect, "above" is not.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dipstick.analysis.stats import binomial_p, fisher_greater, holm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Kind = Literal["level", "power", "estimate"]
SIGNIFICANT = 0.05
S7_LIMIT = 0.09


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure of a cell and what it should be.

    Attributes:
        name: What is counted or estimated.
        kind: "level" (compared with ``nominal``), "power" or "estimate" (compared with ``table``).
        nominal: Rate that a level must not exceed.
        table: The methods' figure; None where they have none.
        table_runs: Runs behind the table's figure.
        table_sd: The methods' SD over runs, for estimates.
    """

    name: str
    kind: Kind
    nominal: float | None = None
    table: float | None = None
    table_runs: int = 200
    table_sd: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario: ``once(rng)`` runs it once and gives a value for each aim (0/1 for counted ones)."""

    scenario: str
    name: str
    aims: tuple[Aim, ...]
    once: Callable[[np.random.Generator], Sequence[float]]
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one cell, as written to JSON.

    Attributes:
        rejections: Runs in which the event was seen (None for estimates).
        rate: Rejections per run; for estimates the mean.
        sd: Over the runs, for estimates.
        p: Exact binomial (level) or Fisher (power) p-value; ``p_holm`` after Holm over the call.
        judgement: ok | above the nominal level | within noise | above the table | below the table | reported.
    """

    scenario: str
    cell: str
    figure: str
    kind: Kind
    runs: int
    rate: float
    rejections: int | None = None
    sd: float | None = None
    nominal: float | None = None
    table: float | None = None
    p: float | None = None
    p_holm: float | None = None
    judgement: str = "reported"
    table_sd: float | None = None
    seconds: float = 0.0


def generators(cell: Cell, runs: int, seed: int) -> list[np.random.Generator]:
    """One generator a run, from the seed and the cell's name: cells can run in any order and process."""
    own = zlib.crc32(f"{cell.scenario} {cell.name}".encode())
    return [np.random.default_rng(s) for s in np.random.SeedSequence([seed, own]).spawn(runs)]


def rows_of(cell: Cell, runs: int, seed: int) -> list[Row]:
    """Runs the cell and counts; judged later, together with the others."""
    runs = max(1, round(runs / cell.cost))
    values = np.array([tuple(cell.once(rng)) for rng in generators(cell, runs, seed)], dtype=np.float64)
    return [_row(cell, aim, values[:, i]) for i, aim in enumerate(cell.aims)]


def _row(cell: Cell, aim: Aim, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Row:
    seen = values[np.isfinite(values)]
    row = Row(
        cell.scenario, cell.name, aim.name, aim.kind, seen.size, float(seen.mean()) if seen.size else 0.0
    )
    row = replace(row, nominal=aim.nominal, table=aim.table)
    if aim.kind == "estimate":
        return replace(row, sd=float(seen.std()) if seen.size else None, table_sd=aim.table_sd)
    count = int(seen.sum())
    p = None
    if aim.kind == "level" and aim.nominal is not None:
        p = binomial_p(count, seen.size, aim.nominal)
    elif aim.table is not None:
        p = _fisher_two_sided(count, seen.size, round(aim.table * aim.table_runs), aim.table_runs)
    return replace(row, rejections=count, p=p)


def _fisher_two_sided(hits: int, runs: int, table_hits: int, table_runs: int) -> float:
    more = fisher_greater(hits, runs, table_hits, table_runs)
    fewer = fisher_greater(table_hits, table_runs, hits, runs)
    return min(1.0, 2 * min(more, fewer))


def judge(rows: Sequence[Row]) -> list[Row]:
    """Holm over the levels and, apart from them, over the powers."""
    judged = list(rows)
    for kind in ("level", "power"):
        at = [i for i, row in enumerate(judged) if row.kind == kind and row.p is not None]
        for i, p in zip(at, holm([float(judged[j].p or 0.0) for j in at]), strict=True):
            judged[i] = replace(judged[i], p_holm=float(p), judgement=_judgement(judged[i], float(p)))
    return judged


def _judgement(row: Row, p_holm: float) -> str:
    significant = p_holm <= SIGNIFICANT
    if row.kind == "level":
        return "above the nominal level" if significant else "ok"
    if not significant:
        return "within noise"
    return "below the table" if row.rate < (row.table or 0.0) else "above the table"


def as_lines(rows: Iterable[Row]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(asdict(row)) + "\n" for row in rows)


def failures(rows: Iterable[Row]) -> list[Row]:
    """Rows that a release must not have."""
    return [row for row in rows if row.judgement in ("above the nominal level", "below the table")]


def above_limit(rows: list[Row]) -> list[Row]:
    """Rows of S7 above 9 %, whatever chance says (methods, S7)."""
    return [r for r in rows if r.scenario == "S7" and r.kind == "level" and r.rate > S7_LIMIT]
