"""Reasons out: each format is a module with ``render(report, recording) -> str | bytes``; the caller writes.

Nothing heavy is imported here: a format's module is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from dipstick.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dipstick.model import Report
    from dipstick.show.lanes import Range
    from dipstick.show.recorded import Recorded


class Format(NamedTuple):
    """One file format of a report.

    Attributes:
        suffix: With the dot; the file name chooses by it.
        module: Where its ``render`` is.
        what: For help texts.
        shared: Whether people pass it on: then names are left out unless somebody asks for them.
        drawn: Whether it is a picture, whose ``render`` also takes the suffix and the stretch to draw.
    """

    suffix: str
    module: str
    what: str
    shared: bool = True
    drawn: bool = False

    def render(
        self,
        report: Report,
        recording: Recorded | None = None,
        *,
        redact: bool | None = None,
        zoom: Range | None = None,
    ) -> bytes:
        """The whole file.

        Args:
            report: The finding.
            recording: What it was found in; without it, what only the recording can tell is left out.
            redact: Replace names (:mod:`dipstick.show.redact`); None does it where the format is shared.
            zoom: The stretch that a picture shows; None lets it pick typical steps.
        """
        render: Callable[..., str | bytes] = import_module(self.module).render
        if self.shared if redact is None else redact:
            from dipstick.show.redact import redact as hide  # noqa: PLC0415 - loads Polars

            report, recording = hide(report, recording)
        more = {"suffix": self.suffix, "zoom": zoom} if self.drawn else {}
        made = render(report, recording, **more)
        return made.encode("utf-8", "replace") if isinstance(made, str) else made


FORMATS: dict[str, Format] = {
    f.suffix: f
    for f in (
        Format(".html", "dipstick.show.html", "a self-contained page"),
        Format(".md", "dipstick.show.markdown", "Markdown for an issue or a wiki"),
        Format(".json", "dipstick.show.json", "the stable keys, for scripts", shared=False),
    )
}


PICTURES: dict[str, Format] = {
    "loop": Format(".svg", "dipstick.show.loop_picture", "the step loop", drawn=True),
    "trace": Format(
        ".svg", "dipstick.show.trace_picture", "utilization with its phases under it", drawn=True
    ),
}
"""By name; each can be an .svg and a .png."""
PICTURE_SUFFIXES = (".svg", ".png")


def format_of(path: str, picture: str | None = None) -> Format:
    """The format that a file name asks for.

    Args:
        path: Its suffix picks the format. A picture whose name has ``loop`` in it is the loop, any other one the trace.
        picture: A name in ``PICTURES``, whatever the file is called.

    Raises:
        UsageError: No format has this suffix; the message lists those there are.
    """
    name = PurePath(path)
    suffix = name.suffix.lower()
    if suffix in PICTURE_SUFFIXES:
        chosen = picture or ("loop" if "loop" in name.stem.lower() else "trace")
        return PICTURES[chosen]._replace(suffix=suffix)
    if suffix in FORMATS:
        return FORMATS[suffix]
    known = [f"{f.suffix} ({f.what})" for f in FORMATS.values()]
    pictures = " or ".join(PICTURE_SUFFIXES)
    raise UsageError(
        f"no format has the suffix {suffix!r}"
        if suffix
        else "the file name has no suffix to pick a format by",
        where=path,
        fix=f"use one of: {', '.join(known)}, {pictures} (a picture: loop.svg, trace.png)",
    )
