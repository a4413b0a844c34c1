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
    from dipstick.show.recorded import Recorded


class Format(NamedTuple):
    """One file format of a report.

    Attributes:
        suffix: With the dot; the file name chooses by it.
        module: Where its ``render`` is.
        what: For help texts.
        shared: Whether people pass it on: then names are left out unless somebody asks for them.
    """

    suffix: str
    module: str
    what: str
    shared: bool = True

    def render(
        self, report: Report, recording: Recorded | None = None, *, redact: bool | None = None
    ) -> bytes:
        """The whole file.

        Args:
            report: The finding.
            recording: What it was found in; without it, what only the recording can tell is left out.
            redact: Replace names (:mod:`dipstick.show.redact`); None does it where the format is shared.
        """
        render: Callable[[Report, Recorded | None], str | bytes] = import_module(self.module).render
        if self.shared if redact is None else redact:
            from dipstick.show.redact import redact as hide  # noqa: PLC0415 - loads Polars

            report, recording = hide(report, recording)
        made = render(report, recording)
        return made.encode("utf-8", "replace") if isinstance(made, str) else made


FORMATS: dict[str, Format] = {
    f.suffix: f
    for f in (
        Format(".html", "dipstick.show.html", "a self-contained page"),
        Format(".md", "dipstick.show.markdown", "Markdown for an issue or a wiki"),
        Format(".json", "dipstick.show.json", "the stable keys, for scripts", shared=False),
    )
}


def format_of(path: str) -> Format:
    """The format that a file name asks for.

    Raises:
        UsageError: No format has this suffix; the message lists those there are.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix in FORMATS:
        return FORMATS[suffix]
    raise UsageError(
        f"no format has the suffix {suffix!r}"
        if suffix
        else "the file name has no suffix to pick a format by",
        where=path,
        fix="use one of: " + ", ".join(f"{f.suffix} ({f.what})" for f in FORMATS.values()),
    )
