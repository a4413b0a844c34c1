"""Sections about GPUs: busy against doing work, seconds by state, dips, tenants."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from dipstick.model import STATES
from dipstick.show import words
from dipstick.show.document import Bar, Bars, Column, Row, Table
from dipstick.show.palette import HOLLOW, IDLE, UNSEEN, WORK, phase_ink, state_ink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dipstick.model import Dip, GpuStates, Report, Series, Tenant
    from dipstick.show.document import RowKind


def gpu_label(host: str, gpu: int, hosts: int, most: int = 24) -> str:
    """``GPU 0``, or ``node1 GPU 0`` where the run has several hosts; ``most`` characters of the host's name."""
    return f"{words.clean(host, most)} GPU {gpu}" if hosts > 1 else f"GPU {gpu}"


def busy_bars(report: Report) -> Bars | None:
    """What reads as busy, and how much of it is work: one bar a GPU over the analysis window, then all of them."""
    used = [s for s in report.states if s.used]
    if not used:
        return None
    bars = [_busy_bar([s], gpu_label(s.host, s.gpu, report.run.hosts)) for s in used]
    bars += [_busy_bar(used, "all", "total")] if len(used) > 1 else []
    return Bars("Busy by utilization, and doing work", _BUSY_COLUMNS, tuple(bars), unused(report))


_BUSY_COLUMNS = ("busy", "doing work", "hollow", "of busy")


def _busy_bar(group: Sequence[GpuStates], label: str, kind: RowKind = "body") -> Bar:
    """Worked example: recorded 10, idle 4, spinning 2, unknown 1 -> busy 60 %, work 30 to 40 %, hollow 2.0 to 3.0 s."""
    recorded, busy = sum(s.recorded_s for s in group), sum(s.busy_s for s in group)
    hollow, unknown = sum(s.hollow_s for s in group), sum(s.seconds.get("unknown", 0.0) for s in group)
    work = busy - hollow - unknown
    work = work if work > _DUST * recorded else 0.0
    parts = ((WORK, work), (HOLLOW, hollow), (UNSEEN, unknown), (IDLE, recorded - busy))
    cells = (
        words.share(busy, recorded),
        _work_words(work, unknown, recorded),
        _range(words.seconds(hollow), words.seconds(hollow + unknown), " s"),
        _range(words.share(hollow, busy), words.share(hollow + unknown, busy), " %"),
    )
    return Bar(label, tuple((ink, value) for ink, value in parts if value > 0), cells, kind)


def _work_words(work: float, unknown: float, recorded: float) -> str:
    """``41 %``, or ``30 to 40 %`` where the signals leave some busy time unknown."""
    return _range(words.share(work, recorded), words.share(work + unknown, recorded), " %")


def _range(least: str, most: str, unit: str) -> str:
    """``0 to 280 s``: busy time whose state is not known may all be hollow, or none of it."""
    return (
        least if least == most else f"{least.removesuffix(unit) if most.endswith(unit) else least} to {most}"
    )


_DUST = 1e-9
"""What floats leave of nothing, as a share of the recorded time."""


def unused(report: Report) -> tuple[str, ...]:
    """One sentence that names the GPUs that the job never used, if there are any."""
    names = [words.clean(name, 40) for name in report.run.unused_gpus]
    return (f"Never used in the window: {words.listed(names)}.",) if names else ()


def state_table(report: Report) -> Table | None:
    """GPU-seconds by state; only the states that occur; a row's states add up to its recorded time."""
    rows = report.states
    names = [n for n in STATES if any(s.seconds.get(n, 0.0) > 0 for s in rows)]
    if not names:
        return None
    places = words.decimals_for(max(s.recorded_s for s in rows))
    body = [_state_row(gpu_label(s.host, s.gpu, report.run.hosts), [s], names, places) for s in rows]
    total = [_state_row("all", list(rows), names, places, last=True)] if len(rows) > 1 else []
    columns = (Column("", right=False), *(Column(state_ink(n).label) for n in names), Column("recorded"))
    explained = "; ".join(f"{state_ink(n).label}: {state_ink(n).meaning}" for n in names if n in _EXPLAINED)
    notes = (f"{explained}.",) if explained else ()
    return Table("GPU-seconds by state", columns, (*body, *total), notes)


_EXPLAINED = ("light", "spinning", "copying_bus", "copying_device", "waiting_or_bus_copy", "unknown")


def _state_row(
    label: str, group: Sequence[GpuStates], names: list[str], places: int, *, last: bool = False
) -> Row:
    cells = [words.number(sum(s.seconds.get(n, 0.0) for s in group), places) for n in names]
    recorded = words.number(sum(s.recorded_s for s in group), places)
    return Row((label, *cells, recorded), "total" if last else "body")


def dip_table(report: Report) -> Table | None:
    """Dips of single GPUs by phase: of utilization on the left, of work on the right; the most lost first.

    Phases below 2 % of the loss are one row, ``others``.
    """
    if not report.dips:
        return None
    groups: dict[str, list[Dip]] = defaultdict(list)
    for dip in report.dips:
        groups[dip.phase or ""].append(dip)
    worth = _WORTH_A_DIP * _lost(report.dips)
    order = sorted(groups, key=lambda phase: (-_lost(groups[phase]), phase))
    rows = [_dip_row(phase, groups[phase]) for phase in order if _lost(groups[phase]) >= worth]
    rest = [dip for phase in order if _lost(groups[phase]) < worth for dip in groups[phase]]
    rows += [Row(("others", *_dip_cells(rest)))] if rest else []
    first = (Column("of util"), Column("depth", drop=1), Column("length", drop=2), Column("lost"))
    second = (Column("of work"), Column("depth", drop=3), Column("length", drop=4), Column("lost"))
    columns = (Column("mostly in", right=False), *first, *second)
    notes = tuple(
        _dip_words(report, series) for series in _SERIES if any(d.series == series for d in report.dips)
    )
    title = "Dips of utilization, and of work (without the hollow part); lost GPU-seconds"
    return Table(title, columns, tuple(rows), notes)


_SERIES: tuple[Series, ...] = ("utilization", "work")
_WORTH_A_DIP = 0.02


def _lost(dips: Sequence[Dip]) -> float:
    return sum(d.deficit_gpu_s for d in dips)


def _dip_row(phase: str, dips: Sequence[Dip]) -> Row:
    ink = phase_ink(phase) if phase else None
    label = words.clean(ink.label, 24) if ink else "no phase known"
    return Row((label, *_dip_cells(dips)), ink=ink)


def _dip_cells(dips: Sequence[Dip]) -> list[str]:
    """Count, median depth, median length and loss, for utilization and for work."""
    cells = []
    for series in _SERIES:
        group = [d for d in dips if d.series == series]
        cells += (
            [str(len(group)), _depth(group), _length(group), words.number(_lost(group))]
            if group
            else ["0", "", "", ""]
        )
    return cells


def _depth(dips: Sequence[Dip]) -> str:
    return f"{words.number(median(d.depth_pct for d in dips), 0)} pts"


def _length(dips: Sequence[Dip]) -> str:
    return words.seconds(median(d.end_s - d.start_s for d in dips))


def _dip_words(report: Report, series: Series) -> str:
    """One sentence: how many dips all GPUs share, and those of the mean over GPUs."""
    dips = [d for d in report.dips if d.series == series]
    scopes = [d.scope for d in dips]
    text = f"{series.capitalize()}: {words.count(len(dips), 'dip')}"
    if report.run.gpus > 1:
        text += f", {scopes.count('job')} with every GPU, {scopes.count('gpu')} of one alone"
    mean = [d for d in report.job_dips if d.series == series]
    if mean:
        text += f"; mean of all GPUs: {words.count(len(mean), 'dip')}, {_depth(mean)}, {_length(mean)}"
    return f"{text}."


def tenant_table(report: Report) -> Table | None:
    """The processes that share each GPU."""
    if not report.tenants:
        return None
    columns = (
        Column("", right=False),
        Column("pid"),
        Column("role", right=False),
        Column("utilization"),
        Column("memory GiB"),
    )
    return Table(
        "Who shares the GPUs", columns, tuple(_tenant_row(t, report.run.hosts) for t in report.tenants)
    )


def _tenant_row(tenant: Tenant, hosts: int) -> Row:
    memory = None if tenant.mem_used_b is None else tenant.mem_used_b / 2**30
    label = gpu_label(tenant.host, tenant.gpu, hosts)
    role = words.clean(tenant.role, 32)
    return Row((label, str(tenant.pid), role, words.percent(tenant.util_mean_pct), words.number(memory)))
