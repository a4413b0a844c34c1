"""A progress bar on stderr while files are read, where stderr is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def file_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """Take (file name, bytes done, bytes in all) and show it; None where nobody would see it.

    Args:
        quiet: Show nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    from dipstick.show.words import clean  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, object] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(escape(clean(name, 40)), total=total or None)
            bars.update(tasks[name], completed=done)  # type: ignore[arg-type] # TaskID is an int of rich's own

        yield show
