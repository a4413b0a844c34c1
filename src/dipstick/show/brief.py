"""What one screen says beside its lanes and tables: a line each for last arrivals, jobs, dips and what is missing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from dipstick.show import words
from dipstick.show.contents import overhead, sampling
from dipstick.show.document import Bullets
from dipstick.show.gpu_tables import unused
from dipstick.show.judged import check_section, claim_section, what_if_table
from dipstick.show.palette import phase_ink
from dipstick.show.step_tables import phase_table, wait_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Dip, RankRow, Report, Series, Stragglers
    from dipstick.show.document import Section, Table

FOLD = 0.01
"""Phases below this share of the time are one row of the screen's phase table."""
_MOST_WAITS = 3
_MOST_CHANGES = 3
_MOST_RANKS = 2
_MOST_PHASES = 2
_MOST_SIGNALS = 4
_WORTH_NAMING = 0.1
_COVERED = 0.995
_COARSE_S = 2.0

Line = tuple[str, str]


Block = tuple["Section", ...]


def blocks_of(report: Report) -> tuple[Block, ...]:
    """The sections of one screen, in blocks with a blank line between; ``contents.sections`` has everything."""
    found = report.phases
    lines = (*_last(report), *_jobs(report), *_dips(report), *_data(report))
    every: tuple[tuple[Section | None, ...], ...] = (
        (
            check_section(report, brief=True),
            claim_section(report),
            _headed(what_if_table(report, _MOST_CHANGES)),
        ),
        (phase_table(found, FOLD) if found else None,),
        (wait_table(found, _MOST_WAITS) if found else None, Bullets("", lines) if lines else None),
    )
    blocks = (tuple(section for section in block if section is not None) for block in every)
    return tuple(block for block in blocks if block)


def _headed(table: Table | None) -> Table | None:
    """The table with its title as the heading of its first column, which saves a line."""
    if table is None:
        return None
    first, *rest = table.columns
    return replace(table, title="", columns=(replace(first, title=table.title), *rest))


def _last(report: Report) -> list[Line]:
    """``rank 1 in 20 of 31 steps (others waited 81.7 s), rank 0 in 11 (51.2 s)``, the costliest first."""
    found = report.stragglers
    if found is None or not found.by_rank:
        return []
    ranks = sorted(found.by_rank, key=lambda r: (-r.blame_s, r.rank))
    first, *rest = ranks[:_MOST_RANKS]
    steps = f"{first.last_in_steps} of {words.count(found.steps, 'step')}"
    told = [f"rank {first.rank} in {steps} (others waited {words.seconds(first.blame_s)})"]
    told += [_also_last(row) for row in rest]
    told += [f"{words.count(len(ranks) - len(told), 'more rank')}"] if len(ranks) > len(told) else []
    return [("last at reward", ", ".join(told))]


def _also_last(row: RankRow) -> str:
    return f"rank {row.rank} in {row.last_in_steps} ({words.seconds(row.blame_s)})"


def _jobs(report: Report) -> list[Line]:
    found = report.stragglers
    if found is None or not found.jobs:
        return []
    return [("reward jobs", _job_words(found))]


def _job_words(found: Stragglers) -> str:
    text = (
        f"{found.jobs:,}: median {words.seconds(found.job_median_s)}, p99 {words.seconds(found.job_p99_s)}, "
        f"longest {words.seconds(found.job_max_s)}"
    )
    if words.known(found.slots_busy) and found.slots:
        text += f"; {words.number(found.slots_busy)} of {found.slots} worker slots a rank busy"
    return text


def _dips(report: Report) -> list[Line]:
    """A line a series: how many, of which phases, how deep and long, and how many all GPUs share."""
    kinds: tuple[tuple[Series, str], ...] = (("utilization", "dips of util"), ("work", "dips of work"))
    groups = [(lead, [d for d in report.dips if d.series == series]) for series, lead in kinds]
    return [(lead, _dip_words(dips, report.run.gpus)) for lead, dips in groups if dips]


def _dip_words(dips: Sequence[Dip], gpus: int) -> str:
    depth = words.number(median(d.depth_pct for d in dips), 0)
    length = words.seconds(median(d.end_s - d.start_s for d in dips))
    shared = f", {sum(d.scope == 'job' for d in dips):,} on all GPUs" if gpus > 1 else ""
    return f"{len(dips):,}{shared}; median {depth} pts, {length}; loss {_mostly(dips)}"


def _mostly(dips: Sequence[Dip]) -> str:
    """``79 % in reward, 14 % in backward``: the phases worth naming, by GPU-seconds lost."""
    lost: dict[str, float] = defaultdict(float)
    for dip in dips:
        lost[dip.phase or ""] += dip.deficit_gpu_s
    whole = sum(lost.values())
    order = sorted(lost, key=lambda phase: (-lost[phase], phase))[:_MOST_PHASES]
    named = [phase for i, phase in enumerate(order) if i == 0 or lost[phase] >= _WORTH_NAMING * whole]
    return ", ".join(f"{words.share(lost[phase], whole)} in {_phase(phase)}" for phase in named)


def _phase(phase: str) -> str:
    return words.clean(phase_ink(phase).label, 24) if phase else "no known phase"


def _data(report: Report) -> list[Line]:
    """What the reader must know about the recording: poor sampling, unused GPUs, warnings, missing signals."""
    seen = report.run.sampling
    poor = (seen.coverage or 1.0) < _COVERED or (seen.period_s or 0.0) > _COARSE_S
    lines = [("sampling", sampling(report))] if poor and sampling(report) else []
    lines += [("unused", text) for text in unused(report)]
    lines += [("warning", words.clean(note.text)) for note in report.notes if note.level == "warning"]
    cost = overhead(report) if report.run.origin == "measured" else []  # imported: not known, as --full says
    return [*lines, *cost, *_missing(report)]


def _missing(report: Report) -> list[Line]:
    signals = [words.clean(m.signal.partition(" (")[0], 60) for m in report.missing]
    if not signals:
        return []
    more = len(signals) - _MOST_SIGNALS
    text = "; ".join(signals[:_MOST_SIGNALS]) + (f"; {more} more" if more > 0 else "")
    return [("missing", f"{text} (--full: what for, how to get it)")]
