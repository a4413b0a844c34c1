"""The report as one self-contained page: no script, no request, light and dark, fit for print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dipstick.show.contents import headline, sections, title
from dipstick.show.document import Bars, Bullets, Table, Verdicts
from dipstick.show.lanes import lanes, typical, whole
from dipstick.show.palette import HOLLOW, PHASE_BY_CODE, PHASE_INKS, STATE_BY_CODE, STATE_INKS, VERDICT_INKS
from dipstick.show.svg import COLUMNS, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from dipstick.model import Report
    from dipstick.show.document import Section
    from dipstick.show.lanes import Lane, Range
    from dipstick.show.palette import Ink
    from dipstick.show.recorded import Recorded

_ZOOM_COLUMNS = 80
"""As many steps are picked as a terminal of this many columns could show."""


_MOST_PROOFS = 50


def render(report: Report, _recording: Recorded | None = None) -> str:
    """The whole page. Autoescaping is on, and the page's policy forbids scripts and requests."""
    environment = Environment(
        loader=PackageLoader("dipstick.show", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2").render(_context(report))


def _context(report: Report) -> dict[str, Any]:
    drawn, found = _drawn(report), sections(report)
    return {
        "title": title(report),
        "headline": headline(report),
        "figures": [_figure(span, cut, report.run.hosts) for span, cut in drawn],
        "legends": _legends([lane for _, cut in drawn for lane in cut]),
        "verdicts": [section for section in found if isinstance(section, Verdicts)],
        "sections": [(_kind(section), section) for section in found if not isinstance(section, Verdicts)],
        "verdict_inks": list(VERDICT_INKS.values()),
        "most_proofs": _MOST_PROOFS,
        "phase_inks": list(PHASE_INKS.values()),
        "state_inks": list(STATE_INKS.values()),
        "hollow": HOLLOW,
    }


def _kind(section: Section) -> str:
    return {Table: "table", Bars: "bars", Bullets: "bullets"}[type(section)]


def _drawn(report: Report) -> list[tuple[Range, tuple[Lane, ...]]]:
    """What is drawn: a few typical steps, then the whole run (only that where it is short)."""
    if not report.tracks.gpus:
        return []
    full, near = whole(report), typical(report, _ZOOM_COLUMNS)
    ranges = [near, full] if near.typical else [full]
    return [(span, lanes(report, span, COLUMNS)) for span in ranges]


def _figure(span: Range, drawn: tuple[Lane, ...], hosts: int) -> tuple[str, Markup]:
    """Caption and drawing."""
    times = f"{span.t0:,.1f} to {span.t1:,.1f} s"
    if not span.typical:
        return f"The whole run, {times}", draw(
            drawn, span, "Utilization, phases and states over the whole run", hosts
        )
    steps = f"Steps {span.first_step} to {span.last_step}"
    caption = f"{steps}, {times}: typical, their lengths are closest to the median"
    return caption, draw(drawn, span, f"Utilization, phases and states: {steps}", hosts)


def _legends(drawn: Sequence[Lane]) -> list[tuple[str, list[Ink]]]:
    """Inks of the phases and states that the figures hold, and no others."""
    phases = {int(c) for lane in drawn if lane.phase is not None for c in lane.phase if c >= 0}
    states = {int(c) for lane in drawn for c in lane.state if c >= 0}
    legends = [
        ("Phases", [PHASE_BY_CODE[c] for c in sorted(phases)]),
        ("States", [STATE_BY_CODE[c] for c in sorted(states)]),
    ]
    return [(name, inks) for name, inks in legends if inks]
