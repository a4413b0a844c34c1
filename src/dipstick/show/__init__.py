"""Reasons out: each format is a module with ``render(report) -> str``; the caller writes.

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


class Format(NamedTuple):
    """One file format of a report.

    Attributes:
        suffix: With the dot; the file name chooses by it.
        module: Where its ``render`` is.
        what: For help texts.
    """

    suffix: str
    module: str
    what: str

    def render(self, report: Report) -> str:
        """The whole file."""
        render: Callable[[Report], str] = import_module(self.module).render
        return render(report)


FORMATS: dict[str, Format] = {
    f.suffix: f
    for f in (
        Format(".html", "dipstick.show.html", "a self-contained page"),
        Format(".md", "dipstick.show.markdown", "Markdown for an issue or a wiki"),
        Format(".json", "dipstick.show.json", "the stable keys, for scripts"),
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
