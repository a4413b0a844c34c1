"""Who waited for whom, as a matrix; and which event explains which spike of memory access."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from dipstick.show import words
from dipstick.show.document import Column, Row, Table
from dipstick.show.palette import VERDICT_INKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Breakdown, Report, WaitRow

_MOST_RANKS = 16


def wait_matrix(breakdown: Breakdown) -> Table | None:
    """Seconds that the rank of the row waited for the rank of the column, at all barriers.

    With more than 16 ranks, those that waited or were waited for most. Waits for several ranks at once have
    a column of their own, so that a row adds up to all that its rank waited.
    """
    if not breakdown.waits:
        return None
    seconds: dict[tuple[int, int | None], float] = defaultdict(float)
    for wait in breakdown.waits:
        seconds[wait.rank, wait.late_rank] += wait.seconds
    ranks = _ranks(breakdown.waits)
    late: list[int | None] = [rank for rank in ranks if any(seconds.get((r, rank)) for r in ranks)]
    late += [None] if any(seconds.get((r, None)) for r in ranks) else []
    columns = (Column("waited, s", right=False), *(Column(_for(rank)) for rank in late), Column("all"))
    places = words.decimals_for(max(seconds.values()))
    rows = tuple(_row(rank, late, seconds, places) for rank in ranks)
    left = len({w.rank for w in breakdown.waits} | {w.late_rank for w in breakdown.waits} - {None}) - len(
        ranks
    )
    notes = (f"{words.count(left, 'more rank')} waited, or made others wait, less.",) if left > 0 else ()
    return Table("Who waited for whom", columns, rows, notes)


def _ranks(waits: Sequence[WaitRow]) -> list[int]:
    weight: dict[int, float] = defaultdict(float)
    for wait in waits:
        for rank in (wait.rank, wait.late_rank):
            if rank is not None:
                weight[rank] += wait.seconds
    most = sorted(weight, key=lambda rank: (-weight[rank], rank))[:_MOST_RANKS]
    return sorted(most)


def _for(rank: int | None) -> str:
    return "for several" if rank is None else f"for rank {rank}"


def _row(
    rank: int, late: Sequence[int | None], seconds: dict[tuple[int, int | None], float], places: int
) -> Row:
    cells = [words.number(seconds[rank, other], places) if (rank, other) in seconds else "" for other in late]
    whole = sum(value for (who, _), value in seconds.items() if who == rank)
    return Row((f"rank {rank}", *cells, words.number(whole, places)))


def spike_tables(report: Report) -> list[Table]:
    """Candidate events with their tests, and spikes by what explains them; empty where spikes were not judged."""
    facts = next((check.facts for check in report.checks if check.name == "memory_spikes"), {})
    tables = [_candidates(facts.get("candidates") or ()), _owners(facts.get("spikes") or ())]
    return [table for table in tables if table is not None]


def _candidates(rows: Sequence[dict[str, Any]]) -> Table | None:
    if not rows:
        return None
    columns = (
        Column("event", right=False), Column("explains spikes?", right=False), Column("fired"), Column("spikes that match"),
        Column("fires with a spike"), Column("adjusted p"),
    )  # fmt: skip
    body = tuple(_candidate(row) for row in rows)
    notes = (
        "p is corrected for the number of events tried; \u201cspikes that match\u201d is precision, \u201cfires with a spike\u201d recall.",
    )
    return Table("Events tried on the spikes of memory access", columns, body, notes)


def _candidate(row: dict[str, Any]) -> Row:
    word = VERDICT_INKS.get(str(row.get("verdict")), VERDICT_INKS["unconfirmed"])
    reason = f" ({words.clean(str(row['reason']), 24)})" if row.get("reason") else ""
    cells = (
        words.clean(str(row.get("event", "")), 40).replace("_", " "),
        f"{word.letter} {word.label}{reason}",
        words.number(row.get("fired"), 0),
        _percent(row.get("precision")),
        _percent(row.get("recall")),
        words.number(row.get("p_adjusted"), 3),
    )
    return Row(cells)


def _percent(value: float | None) -> str:
    return words.percent(None if value is None else 100 * value)


def _owners(spikes: Sequence[dict[str, Any]]) -> Table | None:
    """Spikes by what explains them; those that nothing explains come last, and are the ones worth chasing."""
    if not spikes:
        return None
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for spike in spikes:
        groups[str(spike.get("explained_by") or "")].append(spike)
    order = sorted(groups, key=lambda name: (not name, -len(groups[name]), name))
    columns = (
        Column("spikes that belong to", right=False),
        Column("spikes"),
        Column("seconds"),
        Column("highest"),
    )
    return Table("Spikes of memory access", columns, tuple(_owner(name, groups[name]) for name in order))


def _owner(name: str, spikes: Sequence[dict[str, Any]]) -> Row:
    seconds = sum(_length(spike) for spike in spikes)
    peaks = [float(s["peak_pct"]) for s in spikes if words.known(s.get("peak_pct"))]
    label = words.clean(name, 40).replace("_", " ") if name else "nothing known"
    return Row((label, f"{len(spikes):,}", words.number(seconds), words.percent(max(peaks, default=None))))


def _length(spike: dict[str, Any]) -> float:
    start, end = spike.get("start_s"), spike.get("end_s")
    return (
        float(end) - float(start)
        if start is not None and end is not None and words.known(end - start)
        else 0.0
    )
