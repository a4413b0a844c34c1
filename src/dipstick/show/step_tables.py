"""Sections about ranks and steps: the phase table, the waits, the stragglers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.model import STATES
from dipstick.phases import WAIT_PHASES
from dipstick.show import words
from dipstick.show.document import Column, Row, Table
from dipstick.show.palette import phase_ink, state_ink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Breakdown, PhaseRow, RankRow, StepArrival, Stragglers, WaitRow, WorkerRow
    from dipstick.show.document import RowKind

_RANK_COLUMNS = 4
_STEPS_SHOWN = 3
_WORTH_A_ROW = 0.005
_NOTHING = 1e-4


def phase_table(breakdown: Breakdown, fold: float = 0.0) -> Table:
    """Exclusive seconds by phase and rank; a rank's column adds up to the analysis window.

    With more than four ranks the columns are the least, the mean and the most over ranks.

    Args:
        breakdown: The seconds.
        fold: Phases with less than this share of the time are one row, so that the column still adds up.
    """
    ranks = sorted({row.rank for row in breakdown.rows if row.rank is not None})
    by_key = {(row.phase, row.rank): row for row in breakdown.rows}
    order = sorted(breakdown.totals, key=lambda t: (t.phase == "unattributed", -t.seconds, t.phase))
    grid = _Grid(ranks, by_key, _places(breakdown.totals, len(ranks)))
    small = folded(breakdown, fold)
    large = [t for t in order if t not in small and grid.shows(t.phase)]
    body = [row for total in large for row in grid.phase(total)]
    at = next((i for i, row in enumerate(body) if row.cells[0] == "unattributed"), len(body))
    body[at:at] = [grid.small(small)] if small else []
    columns = (
        Column("phase", right=False),
        *(Column(title) for title in grid.titles()),
        Column("share"),
        Column("times", drop=3),
        Column("median", drop=2),
        Column("p90", drop=4),
        Column("util"),
        Column("hollow", drop=1),
    )
    return Table(_phase_title(breakdown, ranks), columns, (*body, grid.total(order)))


def folded(breakdown: Breakdown, fold: float) -> list[PhaseRow]:
    """The phases that are told as one row: below ``fold`` of the time, and two of them or more."""
    small = [t for t in breakdown.totals if _NOTHING < t.share < fold and t.phase != "unattributed"]
    return small if len(small) > 1 else []


def _phase_title(breakdown: Breakdown, ranks: Sequence[int]) -> str:
    """Names what a column adds up to: the window, the same for each rank."""
    first = [row.seconds for row in breakdown.rows if ranks and row.rank == ranks[0]]
    window = words.number(sum(first), words.decimals_for(sum(first)))
    return f"Where each rank's {window} s went" if len(ranks) > 1 else f"Where the {window} s went"


def _places(totals: Sequence[PhaseRow], ranks: int) -> int:
    return words.decimals_for(sum(t.seconds for t in totals) / max(1, ranks))


class _Grid:
    """The per-rank part of the phase table: either each rank, or least, mean and most."""

    def __init__(self, ranks: list[int], by_key: dict[tuple[str, int | None], PhaseRow], places: int) -> None:
        self.ranks = ranks
        self.by_key = by_key
        self.places = places

    def titles(self) -> list[str]:
        if len(self.ranks) > _RANK_COLUMNS:
            return ["least", "mean", "most"]
        return [f"rank {rank}" for rank in self.ranks]

    def cells(self, values: Sequence[float]) -> list[str]:
        if len(self.ranks) > _RANK_COLUMNS:
            values = (min(values), sum(values) / len(values), max(values))
        return [words.number(value, self.places) for value in values]

    def seconds(self, phase: str) -> list[float]:
        found = (self.by_key.get((phase, rank)) for rank in self.ranks)
        return [row.seconds if row else 0.0 for row in found]

    def shows(self, phase: str) -> bool:
        """Whether any rank's seconds are more than 0 as displayed."""
        return any(round(seconds, self.places) > 0 for seconds in self.seconds(phase))

    def phase(self, total: PhaseRow) -> list[Row]:
        """The row of one phase, and of its parts where it has any worth a row."""
        ink = phase_ink(total.phase)
        cells = (
            words.clean(ink.label, 24),
            *self.cells(self.seconds(total.phase)),
            words.percent(100 * total.share),
            "" if total.phase == "unattributed" else f"{total.count:,}",
            words.short(total.median_s),
            words.short(total.p90_s),
            words.percent(total.util_mean_pct),
            words.number(total.hollow_s, self.places),
        )
        return [Row(cells, ink=ink), *self._parts(total)]

    def _parts(self, total: PhaseRow) -> list[Row]:
        """Waits have a table of their own; of the others, parts above 0.5 % of their phase."""
        if total.phase in WAIT_PHASES:
            return []
        worth = [p for p in total.parts if p.seconds > _WORTH_A_ROW * total.seconds]
        return [self._part(total.phase, part.name, part.count) for part in worth]

    def _part(self, phase: str, name: str, times: int) -> Row:
        values = [self._part_seconds(phase, rank, name) for rank in self.ranks]
        cells = self.cells(values)
        return Row((f"  {words.clean(name, 22)}", *cells, "", f"{times:,}", "", "", "", ""), "part")

    def _part_seconds(self, phase: str, rank: int, name: str) -> float:
        row = self.by_key.get((phase, rank))
        return sum(p.seconds for p in row.parts if p.name == name) if row else 0.0

    def small(self, totals: Sequence[PhaseRow]) -> Row:
        """Several phases as one row; the GPU's utilization over all of them would be a mean of unlike things."""
        sums = [sum(values) for values in zip(*(self.seconds(t.phase) for t in totals), strict=True)]
        return self._sum_row(f"{len(totals)} smaller phases", sums, totals, "body")

    def total(self, totals: Sequence[PhaseRow]) -> Row:
        sums = [sum(row.seconds for row in self.by_key.values() if row.rank == rank) for rank in self.ranks]
        return self._sum_row("total", sums or [0.0], totals, "total")

    def _sum_row(self, label: str, sums: Sequence[float], totals: Sequence[PhaseRow], kind: RowKind) -> Row:
        share = words.percent(100 * sum(t.share for t in totals))
        hollow = [t.hollow_s for t in totals if t.hollow_s is not None]
        lost = words.number(sum(hollow), self.places) if hollow else words.ABSENT
        return Row((label, *self.cells(sums), share, "", "", "", "", lost), kind)


def state_of_phase_table(breakdown: Breakdown) -> Table | None:
    """Rank-seconds of each phase by the state of the rank's GPU: what a wait or a sync looks like from outside."""
    places = words.decimals_for(max((t.seconds for t in breakdown.totals), default=0.0))
    totals = [t for t in breakdown.totals if t.states and round(t.seconds, places) > 0]
    names = [n for n in STATES if any((t.states or {}).get(n, 0.0) > 0 for t in totals)]
    if not names:
        return None
    columns = (Column("phase", right=False), *(Column(state_ink(n).label) for n in names))
    order = sorted(totals, key=lambda t: (-t.seconds, t.phase))
    return Table(
        "GPU-seconds of each phase by state", columns, tuple(_state_row(t, names, places) for t in order)
    )


def _state_row(total: PhaseRow, names: Sequence[str], places: int) -> Row:
    ink = phase_ink(total.phase)
    cells = [words.number((total.states or {}).get(name, 0.0), places) for name in names]
    return Row((words.clean(ink.label, 24), *cells), ink=ink)


def wait_table(breakdown: Breakdown, most: int | None = None) -> Table | None:
    """Who waited at which barrier, for whom, and what the late rank was doing; the longest first.

    Args:
        breakdown: The seconds.
        most: Rows at most; the title says how much of the waiting they hold.
    """
    if not breakdown.waits:
        return None
    columns = (
        Column("who waits", right=False),
        Column("at", right=False),
        Column("for", right=False),
        Column("because of", right=False),
        Column("waited"),
        Column("times"),
        Column("longest", drop=1),
    )
    rows = sorted(breakdown.waits, key=lambda w: (-w.seconds, w.rank))
    shown = rows[:most]
    title = (
        "Waits"
        if len(shown) == len(rows)
        else f"Waits: the longest {len(shown)} of {len(rows)} kinds, {_of(shown, rows)}"
    )
    return Table(title, columns, tuple(_wait_row(w) for w in shown), ink_at=1)


def _of(shown: Sequence[WaitRow], rows: Sequence[WaitRow]) -> str:
    part, whole = sum(w.seconds for w in shown), sum(w.seconds for w in rows)
    return f"{words.number(part)} of {words.number(whole)} s"


def _wait_row(wait: WaitRow) -> Row:
    late = "several ranks" if wait.late_rank is None else f"rank {wait.late_rank}"
    cells = (
        f"rank {wait.rank}",
        words.clean(wait.barrier, 24),
        late,
        words.clean(wait.because, 32).replace("_", " "),
        words.seconds(wait.seconds),
        f"{wait.count:,}",
        words.seconds(wait.longest_s),
    )
    return Row(cells, ink=phase_ink(wait.phase))


def rank_table(found: Stragglers) -> Table | None:
    """Per rank: how often it came last at the reward barrier, and what that cost whom; the costliest first."""
    if not found.by_rank:
        return None
    columns = (
        Column("rank", right=False),
        Column("came last in"),
        Column("waited"),
        Column("made others wait"),
    )
    ranks = sorted(found.by_rank, key=lambda r: (-r.blame_s, r.rank))
    rows = tuple(_rank_row(r, found.steps) for r in ranks)
    notes = (*_worker_notes(found), *_step_notes(found.arrivals, _STEPS_SHOWN))
    return Table("Who comes last at the reward barrier", columns, rows, notes)


def _rank_row(row: RankRow, steps: int) -> Row:
    last = f"{row.last_in_steps} of {words.count(steps, 'step')}"
    return Row((f"rank {row.rank}", last, words.seconds(row.waited_s), words.seconds(row.blame_s)))


def _worker_notes(found: Stragglers) -> tuple[str, ...]:
    notes = []
    if found.jobs:
        notes.append(
            f"{words.count(found.jobs, 'reward job')}: median {words.seconds(found.job_median_s)}, "
            f"p99 {words.seconds(found.job_p99_s)}, longest {words.seconds(found.job_max_s)}."
        )
    if words.known(found.slots_busy) and found.slots:
        notes.append(
            f"Worker slots busy while rewards run: {words.number(found.slots_busy)} of {found.slots} a rank."
        )
    return tuple(notes)


def _step_notes(arrivals: Sequence[StepArrival], many: int) -> tuple[str, ...]:
    """The widest gaps, each with the job that ended last on the late rank."""
    widest = sorted(arrivals, key=lambda a: -a.margin_s)[:many]
    told = [_step_words(a) for a in widest if a.margin_s > 0]
    return (f"Widest {'gap' if many == 1 else 'gaps'}: {'; '.join(told)}.",) if told else ()


def _step_words(arrival: StepArrival) -> str:
    head = f"step {arrival.step}, rank {arrival.last_rank} last by {words.seconds(arrival.margin_s)}"
    if arrival.last_job is None:
        return head
    job = words.clean(arrival.last_job, 24)
    return f"{head} (job {job}, {words.seconds(arrival.last_job_s)}, pid {arrival.last_job_pid})"


def worker_table(found: Stragglers) -> Table | None:
    """Reward workers, the busiest first."""
    if not found.by_worker:
        return None
    columns = (
        Column("worker", right=False),
        Column("rank"),
        Column("jobs"),
        Column("busy"),
        Column("ended last in"),
    )
    rows = sorted(found.by_worker, key=lambda w: (-w.busy_s, w.pid))
    return Table("Reward workers", columns, tuple(_worker_row(w) for w in rows))


def _worker_row(row: WorkerRow) -> Row:
    steps = words.count(row.last_in_steps, "step")
    return Row((f"pid {row.pid}", f"{row.rank}", f"{row.jobs:,}", words.seconds(row.busy_s), steps))
