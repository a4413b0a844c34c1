"""What a report says, in the order it says it. The formats decide only how it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dipstick.recording.overhead import in_words
from dipstick.show import words
from dipstick.show.document import Bullets
from dipstick.show.gpu_tables import busy_bars, dip_table, state_table, tenant_table
from dipstick.show.judged import check_section, claim_section, what_if_table
from dipstick.show.step_tables import phase_table, rank_table, state_of_phase_table, wait_table, worker_table
from dipstick.show.wait_tables import spike_tables, wait_matrix

if TYPE_CHECKING:
    from dipstick.model import Report
    from dipstick.show.document import Section


SPARSE = 0.75
"""Samples that stand for less than this share of their distance are probes: what lies between is not seen."""


def title(report: Report) -> str:
    """One line that says what was recorded: ``grpo · 2 × NVIDIA H200 · 2 ranks · 31 steps · 405 s``."""
    run = report.run
    names = sorted({words.clean(n, 40) for n in run.gpu_names}) or ["GPU"]
    gpus = f"{run.gpus} × {' / '.join(names)}" if run.gpus else "no GPU telemetry"
    parts = [words.clean(run.name, 60), gpus]
    parts += [words.count(run.hosts, "host")] if run.hosts > 1 else []
    parts += [words.count(run.ranks, "rank"), words.count(run.steps, "step")]
    start, end = run.window_s
    return " · ".join([*parts, words.span(end - start)])


def headline(report: Report) -> str:
    """The answer, safe to print."""
    return words.clean(report.answer.headline, 2000)


def sections(report: Report) -> tuple[Section, ...]:
    """Every section that has something to say, in reading order; lanes are drawn apart."""
    judged = [check_section(report), claim_section(report), what_if_table(report)]
    tables = [*judged, *_gpu_and_phase(report), *_steps(report), *_rest(report)]
    return tuple(table for table in tables if table is not None)


def _gpu_and_phase(report: Report) -> list[Section | None]:
    found = report.phases
    states = state_of_phase_table(found) if found else None
    return [busy_bars(report), phase_table(found) if found else None, states]


def _steps(report: Report) -> list[Section | None]:
    found = report.stragglers
    return [
        wait_matrix(report.phases) if report.phases else None,
        wait_table(report.phases) if report.phases else None,
        rank_table(found) if found else None,
        worker_table(found) if found else None,
        dip_table(report),
        *spike_tables(report),
    ]


def _rest(report: Report) -> list[Section | None]:
    return [state_table(report), tenant_table(report), _missing(report), _notes(report)]


def sampling(report: Report) -> str:
    """How finely the run was seen: the reader must know what could stay unseen. Empty without GPU samples."""
    seen = report.run.sampling
    if not words.known(seen.period_s):
        return ""
    text = f"one utilization value every {words.seconds(seen.period_s)}"
    if seen.counter_window_s is not None and words.known(seen.counter_window_s):
        window = words.seconds(seen.counter_window_s)
        sparse = seen.period_s is not None and seen.counter_window_s < SPARSE * seen.period_s
        text += f", each of at most the last {window} only" if sparse else f", each a mean over {window}"
    if words.known(seen.smallest_visible_dip_s):
        text += f"; a dip shorter than {words.seconds(seen.smallest_visible_dip_s)} can stay unseen"
    if seen.coverage is not None and words.known(seen.coverage):
        holes = (
            f", {words.count(seen.gaps, 'gap')} of {words.seconds(seen.gap_s)} in all" if seen.gaps else ""
        )
        text += f"; {words.percent(100 * seen.coverage, 1)} of the window covered{holes}"
    return f"{text}."


def overhead(report: Report) -> list[tuple[str, str]]:
    """What recording cost the run, or why that is not known; nothing for a report of no recording."""
    cost = report.run.overhead
    return [] if cost is None else [("overhead", words.clean(in_words(cost)))]


def _missing(report: Report) -> Bullets | None:
    items = [
        (
            words.clean(m.signal, 80),
            f"needed for {words.clean(m.needed_for, 160)}; {words.clean(m.how_to_get_it, 240)}",
        )
        for m in report.missing
    ]
    return Bullets("Missing", tuple(items)) if items else None


def _notes(report: Report) -> Bullets | None:
    notes = [(note.level if note.level == "warning" else "", words.clean(note.text)) for note in report.notes]
    told = sampling(report)
    items = [*([("sampling", told)] if told else []), *overhead(report), *notes]
    return Bullets("Notes", tuple(items)) if items else None
