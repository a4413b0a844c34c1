"""The report as one self-contained page: works from disk, asks for nothing, light and dark, fit for print.

The page's policy lets run what is hashed in it (uPlot and our own script) and nothing else. Without scripts the
answer, the verdicts, the drawings and every table are there.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dipstick.show import loop_picture, page
from dipstick.show.contents import headline, sections, title
from dipstick.show.document import Bars, Bullets, Table, Verdicts
from dipstick.show.drawing import svg
from dipstick.show.lanes import lanes, typical, whole
from dipstick.show.palette import HOLLOW, PHASE_BY_CODE, PHASE_INKS, STATE_BY_CODE, STATE_INKS, VERDICT_INKS
from dipstick.show.step_bars import step_bars
from dipstick.show.svg import COLUMNS, draw

if TYPE_CHECKING:
    from dipstick.model import Report
    from dipstick.show.document import Section
    from dipstick.show.lanes import Lane, Range
    from dipstick.show.page_range import Detail
    from dipstick.show.palette import Ink
    from dipstick.show.recorded import Recorded

_ZOOM_COLUMNS = 80
"""As many steps are picked as a terminal of this many columns could show."""


_MOST_PROOFS = 50
SCRIPTS: Final = ("data.js", "pixels.js", "tracks.js", "page.js")
"""Ours, in this order, as one script."""
LIVE_SCRIPTS: Final = ("fine.js", "live.js")
"""After them in a served page: fetch what the page holds too coarsely; hear of news, and take them into the page."""


class Live(NamedTuple):
    """What a served page holds beside the report.

    Attributes:
        version: Counts the pages of one server, from 1; 0 has no report yet.
        said: How the recording stands.
        detail: What the server has of it at full resolution.
    """

    version: int
    said: str
    detail: Detail | None = None


def render(report: Report, recording: Recorded | None = None, live: Live | None = None) -> str:
    """The whole page. Autoescaping is on; what is marked safe is ours, escaped when drawn, or base64."""
    return _environment().get_template("report.html.j2").render(_context(report, recording, live))


def waiting(name: str, live: Live) -> str:
    """What is served before there is anything to explain; the page looks for news by itself."""
    ours = script(live=True)
    facts = {"title": name, "live": live, "style": asset("page.css"), "script": ours}
    template = _environment().get_template("waiting.html.j2")
    return template.render({**facts, "policy": policy(ours, live=True)})


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("dipstick.show", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def asset(name: str) -> Markup:
    """A file of ours, as it is."""
    return Markup((files("dipstick.show") / "assets" / name).read_text(encoding="utf-8"))  # noqa: S704 - shipped with dipstick


def script(*, live: bool = False) -> Markup:
    """Our own script: its files in one strict scope."""
    parts = [asset(name) for name in (*SCRIPTS, *(LIVE_SCRIPTS if live else ()))]
    return Markup("\n").join([Markup("(() => {"), *parts, Markup("})();")])


def policy(*scripts: str, live: bool = False) -> str:
    """The page's Content-Security-Policy: only these scripts may run; nothing may be fetched, live only from the server."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    may_run = f"script-src {allowed}; " if allowed else ""
    fetched = "connect-src 'self'; " if live else ""
    return f"default-src 'none'; {may_run}{fetched}style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def served_policy() -> str:
    """The policy of every page that is served, as a header; no other page may frame it."""
    scripts = (script(live=True), asset("vendor/uPlot.js"))
    return policy(*scripts, live=True) + "; frame-ancestors 'none'"


def _context(report: Report, recording: Recorded | None, live: Live | None) -> dict[str, Any]:
    drawn, found = _drawn(report), sections(report)
    return {
        "title": title(report),
        "headline": headline(report),
        "figures": [_figure(span, cut, report.run.hosts) for span, cut in drawn],
        "legends": _legends(report),
        "verdicts": [section for section in found if isinstance(section, Verdicts)],
        "sections": [(_kind(section), section) for section in found if not isinstance(section, Verdicts)],
        "verdict_inks": list(VERDICT_INKS.values()),
        "most_proofs": _MOST_PROOFS,
        "phase_inks": list(PHASE_INKS.values()),
        "state_inks": list(STATE_INKS.values()),
        "hollow": HOLLOW,
        "loop": _loop(report, recording),
        "bars": step_bars(report),
        "live": live,
        "start_s": 0.0 if recording is None else recording.start_unix_ns / 1e9,
        **_tracks(report, recording, live),
    }


def _tracks(report: Report, recording: Recorded | None, live: Live | None) -> dict[str, Any]:
    """The packed tracks and the scripts that draw them; a report without anything to draw has neither in a file."""
    style = asset("page.css")
    is_live = live is not None
    if not report.tracks.gpus and not report.tracks.ranks:
        ours = [script(live=True)] if is_live else []
        nothing = dict.fromkeys(("tracks", "thinned", "library", "licence"), "")
        return {
            **nothing,
            "policy": policy(*ours, live=is_live),
            "style": style,
            "script": Markup("").join(ours),
        }
    packed, thinned = page.data(report, recording, live.detail if live else None)
    library, own = asset("vendor/uPlot.js"), script(live=is_live)
    return {
        "tracks": Markup(packed),  # noqa: S704 - base64
        "thinned": thinned,
        "policy": policy(library, own, live=is_live),
        "style": style + asset("vendor/uPlot.css"),
        "library": library,
        "script": own,
        "licence": asset("vendor/uPlot.LICENSE"),
    }


def _loop(report: Report, recording: Recorded | None) -> Markup | None:
    """The step loop, where there is one."""
    return (
        svg(loop_picture.draw(report, recording), inline=True)
        if report.phases and report.tracks.ranks
        else None
    )


def _kind(section: Section) -> str:
    return {Table: "table", Bars: "bars", Bullets: "bullets"}[type(section)]


def _drawn(report: Report) -> list[tuple[Range, tuple[Lane, ...]]]:
    """What is drawn where scripts are off: a few typical steps, then the whole run (only that where it is short)."""
    if not report.tracks.gpus:
        return []
    full, near = whole(report), typical(report, _ZOOM_COLUMNS)
    ranges = [near, full] if near.typical else [full]
    return [(span, lanes(report, span, COLUMNS)) for span in ranges]


def _figure(span: Range, drawn: tuple[Lane, ...], hosts: int) -> tuple[str, Markup]:
    """Caption and drawing."""
    times = f"{span.t0:z,.1f} to {span.t1:z,.1f} s"
    if not span.typical:
        return f"The whole run, {times}", draw(
            drawn, span, "Utilization, phases and states over the whole run", hosts
        )
    steps = f"Steps {span.first_step} to {span.last_step}"
    caption = f"{steps}, {times}: typical, their lengths are closest to the median"
    return caption, draw(drawn, span, f"Utilization, phases and states: {steps}", hosts)


def _legends(report: Report) -> list[tuple[str, list[Ink]]]:
    """Inks of the phases and states that the run holds, and no others."""
    phases = {int(c) for track in report.tracks.ranks for c in set(track.code.tolist())}
    states = {int(c) for track in report.tracks.gpus for c in set(track.state.tolist())}
    legends = [
        ("Phases", [PHASE_BY_CODE[c] for c in sorted(phases)]),
        ("States", [STATE_BY_CODE[c] for c in sorted(states)]),
    ]
    return [(name, inks) for name, inks in legends if inks]
